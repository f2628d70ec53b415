"""Sessions as a client sees them: found, shaped and ended, and the same in every list."""

import re
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta, timezone
from ipaddress import IPv6Address, IPv6Network
from typing import Any

import pytest

from tests.support.requests import assert_invalid
from tests.support.stack import Api, wait_for


@pytest.fixture(scope="module")
def sessions(api: Api) -> Iterator[dict[str, Any]]:
    """Sessions to spend, each with a VLAN that has others."""
    return iter(api.get("/subscribers", params={"sort": "-id", "limit": "90"})["sessions"])


def ids_everywhere(api: Api) -> dict[str, set[int]]:
    """The session ids that each list knows."""
    names = {item["interface"]: item["id"] for item in api.get("/subscribers")["sessions"]}
    interfaces = {item["name"] for item in api.get("/interfaces")["interfaces"]}
    return {
        "subscribers": set(names.values()),
        "qos": {item["session_id"] for item in api.get("/qos")["sessions"]},
        "routes": {item["session_id"] for item in api.get("/routing/routes")["routes"]} - {None},
        "ppp and ipoe devices": {id for name, id in names.items() if name in interfaces},
        "ifbs": {id for name, id in names.items() if f"ifb-{name}" in interfaces},
    }


def test_every_list_knows_the_same_sessions(api: Api) -> None:
    everywhere = ids_everywhere(api)
    assert len(everywhere["subscribers"]) == api.get("/subscribers/summary")["total"]
    assert all(ids == everywhere["subscribers"] for ids in everywhere.values())


def test_the_counts_agree_with_the_lists(api: Api) -> None:
    vlans = api.get("/interfaces/vlans")["vlans"]
    assert sum(vlan["session_count"] for vlan in vlans) == api.get("/subscribers/summary")["total"]
    assert [vlan["name"] for vlan in vlans] == [vlan["name"] for vlan in api.get("/demux/state")["vlans"]]
    stats = api.get("/cgnat/stats")
    assert api.get("/cgnat/sessions")["count"] == stats["vrf_steered_sessions"]
    assert stats["total_sessions"] == api.get("/system/health", None)["active_sessions"]
    assert stats["public_ip_sessions"] + stats["vrf_steered_sessions"] == stats["total_sessions"]
    summary = api.get("/subscribers/summary")
    assert api.get("/subscribers", params={"type": "dhcp"})["count"] == summary["dhcp"] > 0
    # As the filter has it, and as the records do.
    for type in ("pppoe", "PPPoE"):
        assert api.get("/subscribers", params={"type": type})["count"] == summary["pppoe"] > 0


def test_bgp_announces_every_session(api: Api) -> None:
    peers = api.get("/routing/bgp/summary")["ipv4Unicast"]["peers"]
    assert {peer["pfxSnt"] for peer in peers.values()} == {api.get("/subscribers/summary")["total"]}


def test_a_disconnected_session_is_gone_from_every_list(api: Api, sessions: Iterator[dict[str, Any]]) -> None:
    id = next(sessions)["id"]
    detail = api.get(f"/subscribers/{id}")
    vlan = detail["access_interface"]
    before = {item["name"]: item["session_count"] for item in api.get("/demux/state")["vlans"]}[vlan]
    answer = api.send("DELETE", f"/subscribers/{id}")
    assert answer.json() == {"status": "ok", "data": {"message": f"Session {id} disconnected"}}
    assert all(id not in ids for ids in ids_everywhere(api).values())
    assert id not in {item["id"] for item in api.get("/cgnat/sessions")["sessions"]}
    after = {item["name"]: item["session_count"] for item in api.get("/demux/state")["vlans"]}[vlan]
    assert after == before - 1
    assert api.send("GET", f"/subscribers/{id}").status_code == 404
    assert api.send("DELETE", f"/subscribers/{id}").status_code == 404


def test_a_rate_change_shows_in_the_list_the_detail_and_qos(
    api: Api, sessions: Iterator[dict[str, Any]]
) -> None:
    id = next(sessions)["id"]
    rates = {"rate_down": "1.5 Gbps", "rate_up": "64000"}
    answer = api.send("PUT", f"/subscribers/{id}/rate", json=rates)
    bps = {"rate_down_bps": 1_500_000_000, "rate_up_bps": 64_000}
    assert answer.json()["data"] == {
        "message": f"Rate change requested for session {id}",
        **rates,
        **bps,
    }
    assert bps.items() <= api.get(f"/subscribers/{id}").items()
    qos = {item["session_id"]: item for item in api.get("/qos")["sessions"]}[id]
    assert bps.items() <= qos.items()
    item = {item["id"]: item for item in api.get("/subscribers")["sessions"]}[id]
    assert (item["rate_down"], item["rate_up"]) == (1_500_000_000, 64_000)


def test_a_refused_rate_changes_nothing(api: Api, sessions: Iterator[dict[str, Any]]) -> None:
    before = next(sessions)
    body = {"rate_down": "1gbit", "rate_up": "nonsense"}
    assert api.send("PUT", f"/subscribers/{before['id']}/rate", json=body).status_code == 400
    after = api.get("/subscribers", params={"username": before["username"]})["sessions"]
    assert after == [before]


def test_a_rate_of_one_direction_leaves_the_other(api: Api, sessions: Iterator[dict[str, Any]]) -> None:
    before = next(sessions)
    answer = api.send("PUT", f"/subscribers/{before['id']}/rate", json={"rate_up": "5mbit"})
    assert answer.json()["data"] == {
        "message": f"Rate change requested for session {before['id']}",
        "rate_up": "5mbit",
        "rate_down_bps": before["rate_down"],
        "rate_up_bps": 5_000_000,
    }


def test_the_former_rate_returns_by_itself(api: Api, sessions: Iterator[dict[str, Any]]) -> None:
    before = next(sessions)
    path = f"/subscribers/{before['id']}"
    began = time.time()
    answer = api.send("PUT", f"{path}/rate", json={"rate_down": "300mbit", "expires_in": 2})
    data, detail = answer.json()["data"], api.get(path)
    assert began + 2 <= data["rate_expires_at"] <= time.time() + 3
    if detail["rate_expires_at"] is not None:
        assert detail["rate_expires_at"] == data["rate_expires_at"]
        assert (detail["rate_down_bps"], detail["former_rate_down_bps"]) == (300_000_000, before["rate_down"])
    wait_for("the former rate", lambda: api.get(path)["rate_down_bps"] == before["rate_down"])
    assert time.time() >= began + 2
    record = wait_for(
        "the record of the return",
        lambda: [
            record
            for record in api.get("/audit", "admin", params={"action": "subscribers.return_rate"})["records"]
            if record["before"]["id"] == before["id"]
        ],
    )[0]
    assert (record["user"], record["after"]["rate_down_bps"]) == ("core", before["rate_down"])


def test_a_rate_may_be_for_until_a_time(api: Api, sessions: Iterator[dict[str, Any]]) -> None:
    path = f"/subscribers/{next(sessions)['id']}/rate"
    until = datetime.now(UTC).replace(microsecond=0) + timedelta(hours=1)
    elsewhere = until.astimezone(timezone(timedelta(hours=2))).isoformat()
    for spelled in (until.strftime("%Y-%m-%dT%H:%M:%SZ"), elsewhere, str(int(until.timestamp()))):
        answer = api.send("PUT", path, json={"rate_down": "300mbit", "until": spelled})
        assert answer.json()["data"]["rate_expires_at"] == until.timestamp()
        assert api.get(path.removesuffix("/rate"))["rate_expires_at"] == until.timestamp()
        assert api.send("PUT", path, json={"rate_down": "200mbit"}).ok
        assert api.get(path.removesuffix("/rate"))["rate_expires_at"] is None


@pytest.mark.parametrize(
    ("time", "path", "message"),
    [
        ({"expires_in": 0}, "expires_in", "must be 1 to 31622400"),
        ({"expires_in": 31_622_401}, "expires_in", "must be 1 to 31622400"),
        ({"expires_in": "1h"}, "expires_in", "must be an integer"),
        ({"until": "2020-01-01T00:00:00Z"}, "until", "must be in the next 366 days"),
        ({"until": "9999-01-01T00:00:00Z"}, "until", "must be in the next 366 days"),
        ({"until": "2027-01-01T00:00:00"}, "until", "must be epoch seconds, or a time with its offset"),
        ({"until": "tomorrow"}, "until", "must be epoch seconds, or a time with its offset"),
        (
            {"until": "2027-01-01T00:00:00Z", "expires_in": 60},
            "until",
            "must not be given with expires_in",
        ),
    ],
)
def test_a_time_that_makes_no_sense_is_refused(
    api: Api, sessions: Iterator[dict[str, Any]], time: dict[str, Any], path: str, message: str
) -> None:
    before = next(sessions)
    refused = api.send("PUT", f"/subscribers/{before['id']}/rate", json={"rate_down": "1m", **time})
    assert refused.status_code == 400
    (problem,) = refused.json()["errors"]
    assert problem["path"] == path
    assert problem["message"].startswith(message)
    assert api.get(f"/subscribers/{before['id']}")["rate_down_bps"] == before["rate_down"]


@pytest.mark.parametrize("name", ["username", "ip_address", "interface"])
def test_a_filter_finds_the_one(api: Api, sessions: Iterator[dict[str, Any]], name: str) -> None:
    wanted = next(sessions)
    assert api.get("/subscribers", params={name: wanted[name]})["sessions"] == [wanted]


def test_a_mac_address_is_found_in_any_usual_spelling(api: Api, sessions: Iterator[dict[str, Any]]) -> None:
    wanted = next(sessions)
    assert re.fullmatch("[0-9a-f]{2}(:[0-9a-f]{2}){5}", wanted["mac_address"])
    bare = wanted["mac_address"].replace(":", "")
    for separator, digits in ((":", 2), ("-", 2), (".", 4), ("-", 4), ("", 12)):
        spelled = separator.join(bare[at : at + digits] for at in range(0, 12, digits))
        for query in (spelled, spelled.upper()):
            assert api.get("/subscribers", params={"mac_address": query})["sessions"] == [wanted]


@pytest.mark.parametrize(
    "spelled",
    [
        lambda session: session["username"][3:20].upper(),
        lambda session: session["mac_address"].replace(":", "-").upper(),
        lambda session: session["mac_address"][9:],
        lambda session: session["ip_address"],
        lambda session: session["ip_address"] + "/32",
        lambda session: session["acct_session_id"][:8].upper(),
        lambda session: session["ppp_interface"],
        lambda session: str(session["id"]),
    ],
    ids=["username", "MAC address", "part of it", "address", "prefix", "accounting id", "interface", "id"],
)
def test_a_search_finds_a_session_by_what_is_known_of_it(
    api: Api, spelled: Callable[[dict[str, Any]], str]
) -> None:
    session = api.get("/subscribers/12")
    found = api.get("/subscribers", params={"search": spelled(session), "limit": "5"})
    assert [one["id"] for one in found["sessions"]] == [12]


def test_a_search_by_vlan_finds_all_on_it_of_a_type_in_any_order(api: Api) -> None:
    vlan = api.get("/subscribers/12")["inner_vlan_id"]
    all_of_type = api.get("/subscribers", params={"type": "pppoe"})["sessions"]
    expected = [one["id"] for one in all_of_type if one["inner_vlan_id"] == vlan]
    query = {"search": str(vlan), "type": "pppoe", "sort": "-id"}
    found = [one["id"] for one in api.get("/subscribers", params=query)["sessions"]]
    assert set(expected) <= set(found)
    assert found == sorted(found, reverse=True)


def test_a_search_for_nothing_or_for_too_much_is_refused(api: Api) -> None:
    for text in ("", "x" * 257):
        refused = api.send("GET", "/subscribers", params={"search": text})
        assert_invalid(refused, "search")
        assert refused.json()["errors"][0]["message"] == "must have 1 to 256 characters"


@pytest.fixture(scope="module")
def dual_stack(api: Api) -> dict[str, Any]:
    """A session with an IPv6 address, a prefix, and a delegated one."""
    found: list[dict[str, Any]] = api.get("/subscribers")["sessions"]
    return next(session for session in found if session["delegated_prefixes"])


@pytest.mark.parametrize("where", ["ipv6_address", "ipv6_prefix", "delegated_prefixes"])
def test_an_ipv6_address_finds_the_session_with_it_or_with_its_network(
    api: Api, dual_stack: dict[str, Any], where: str
) -> None:
    network = IPv6Network(dual_stack[where][0] if where == "delegated_prefixes" else dual_stack[where])
    last = network.broadcast_address
    for spelled in (str(last), str(last).upper(), IPv6Address(last).exploded):
        assert api.get("/subscribers", params={"ip_address": spelled})["sessions"] == [dual_stack]
    beyond = {"ip_address": str(last + (1 << 80))}
    assert api.get("/subscribers", params=beyond)["sessions"] != [dual_stack]


def test_a_session_has_its_ipv6_networks_vlans_and_source_in_list_and_detail(
    api: Api, dual_stack: dict[str, Any]
) -> None:
    assert IPv6Address(dual_stack["ipv6_address"]) in IPv6Network(dual_stack["ipv6_prefix"])
    tags = [tag for tag in (dual_stack["outer_vlan_id"], dual_stack["inner_vlan_id"]) if tag is not None]
    assert dual_stack["access_interface"].split(".")[1:] == [str(tag) for tag in tags]
    assert dual_stack["source"] == "lab"
    detail = api.get(f"/subscribers/{dual_stack['id']}")
    names = ("ipv6_address", "ipv6_prefix", "delegated_prefixes", "outer_vlan_id", "inner_vlan_id", "source")
    assert {name: detail[name] for name in names} == {name: dual_stack[name] for name in names}


def test_a_delegated_prefix_is_routed_to_the_session(api: Api, dual_stack: dict[str, Any]) -> None:
    routes = {route["dst"]: route for route in api.get("/routing/routes")["routes"]}
    for network in (dual_stack["ipv6_prefix"], *dual_stack["delegated_prefixes"]):
        route = routes[network]
        assert (route["dev"], route["session_id"]) == (dual_stack["interface"], dual_stack["id"])


def test_a_filter_that_can_be_no_address_is_refused(api: Api) -> None:
    for name, kind, texts in (
        ("mac_address", "a MAC", ("02:00:00:00:00", "02:00:00:00:00:0g", "02:00:00-00:00:06", "")),
        ("ip_address", "an IP", ("100.64.0", "100.64.0.05", "2001:db8::/64", "2001:db8::1%ppp0", "alice")),
    ):
        for path in ("/subscribers", "/subscribers?limit=1"):
            for text in texts:
                answer = api.send("GET", path, params={name: text})
                assert_invalid(answer, name)
                assert f"must be {kind} address, such as " in answer.text


def test_filters_must_all_hold(api: Api, sessions: Iterator[dict[str, Any]]) -> None:
    one, other = next(sessions), next(sessions)
    query = {"username": one["username"], "ip_address": other["ip_address"]}
    assert api.get("/subscribers", params=query) == {"sessions": [], "count": 0}


def test_an_access_interface_is_disconnected_after_a_dry_run(
    api: Api, sessions: Iterator[dict[str, Any]]
) -> None:
    interface = api.get(f"/subscribers/{next(sessions)['id']}")["access_interface"]
    there = api.get("/subscribers", params={"interface": interface})["sessions"]
    body = {"interface": interface, "dry_run": True}
    preview = api.send("POST", "/subscribers/disconnect-by-interface", json=body).json()["data"]
    assert preview["sessions"] == there
    assert preview["count"] == len(there) > 1
    assert api.get("/subscribers", params={"interface": interface})["sessions"] == there
    body = {"interface": interface}
    data = api.send("POST", "/subscribers/disconnect-by-interface", json=body).json()["data"]
    assert data == {"message": f"{len(there)} sessions disconnected on {interface}", "count": len(there)}
    assert api.get("/subscribers", params={"interface": interface})["count"] == 0
    assert not {item["id"] for item in there} & ids_everywhere(api)["subscribers"]


def test_an_interface_without_sessions_disconnects_none_and_an_unknown_one_is_404(api: Api) -> None:
    path = "/subscribers/disconnect-by-interface"
    names = {one["type"]: one["name"] for one in api.get("/interfaces")["interfaces"]}
    for kind in ("loopback", "trunk", "other", "ppp", "ifb"):
        answer = api.send("POST", path, json={"interface": names[kind]})
        assert (answer.status_code, "0 sessions" in answer.json()["data"]["message"]) == (200, True)
    for dry_run in (False, True):
        answer = api.send("POST", path, json={"interface": "trunk0.4094", "dry_run": dry_run})
        assert (answer.status_code, answer.json()["message"]) == (404, "No such interface")


def test_the_list_comes_whole_and_sorted_as_asked(api: Api) -> None:
    data = api.get("/subscribers")
    assert set(data) == {"sessions", "count"}
    assert data["count"] == len(data["sessions"]) == api.get("/subscribers/summary")["total"]
    for field in ("id", "username", "started_at", "interface"):
        for sign in ("", "-"):
            found = api.get("/subscribers", params={"sort": sign + field})["sessions"]
            values = [item[field] for item in found]
            assert values == sorted(values, reverse=bool(sign))


@pytest.mark.parametrize("path", ["/subscribers", "/subscribers?type=pppoe"])
def test_a_list_has_another_etag_after_a_change(
    api: Api, sessions: Iterator[dict[str, Any]], path: str
) -> None:
    known = api.send("GET", path)
    headers = {"If-None-Match": known.headers["ETag"]}
    assert api.send("GET", path, headers=headers).status_code == 304
    session = next(one for one in sessions if one["type"] == "PPPoE")
    rates = {"rate_down": "123mbit", "rate_up": "45mbit"}
    assert api.send("PUT", f"/subscribers/{session['id']}/rate", json=rates).ok
    changed = api.send("GET", path, headers=headers)
    assert changed.status_code == 200
    shown = {one["id"]: one["rate_down"] for one in changed.json()["data"]["sessions"]}
    assert shown[session["id"]] == 123_000_000
    assert changed.headers["ETag"] != known.headers["ETag"]


def test_a_page_or_a_search_has_no_etag(api: Api) -> None:
    for query in ("limit=10", "username=nobody"):
        assert "ETag" not in api.send("GET", f"/subscribers?{query}").headers

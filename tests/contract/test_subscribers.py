"""Sessions as a client sees them: found, shaped and ended, and the same in every list."""

import re
import time
from collections.abc import Iterator
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


def test_the_lists_and_the_counts_agree(api: Api) -> None:
    everywhere = ids_everywhere(api)
    summary, stats = api.get("/subscribers/summary"), api.get("/cgnat/stats")
    total = summary["total"]
    assert len(everywhere["subscribers"]) == total
    assert all(ids == everywhere["subscribers"] for ids in everywhere.values())
    vlans = api.get("/interfaces/vlans")["vlans"]
    assert sum(vlan["session_count"] for vlan in vlans) == total
    assert [vlan["name"] for vlan in vlans] == [vlan["name"] for vlan in api.get("/demux/state")["vlans"]]
    assert api.get("/cgnat/sessions")["count"] == stats["vrf_steered_sessions"]
    assert stats["total_sessions"] == api.get("/system/health", None)["active_sessions"] == total
    assert stats["public_ip_sessions"] + stats["vrf_steered_sessions"] == total
    assert api.get("/subscribers", params={"type": "dhcp"})["count"] == summary["dhcp"] > 0
    # As the filter has it, and as the records do.
    for type in ("pppoe", "PPPoE"):
        assert api.get("/subscribers", params={"type": type})["count"] == summary["pppoe"] > 0
    peers = api.get("/routing/bgp/summary")["ipv4Unicast"]["peers"]
    assert {peer["pfxSnt"] for peer in peers.values()} == {total}


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
    # A rate of one direction leaves the other, and one that is refused leaves both.
    answer = api.send("PUT", f"/subscribers/{id}/rate", json={"rate_up": "5mbit"})
    assert answer.json()["data"] == {
        "message": f"Rate change requested for session {id}",
        "rate_up": "5mbit",
        "rate_down_bps": 1_500_000_000,
        "rate_up_bps": 5_000_000,
    }
    body = {"rate_down": "1gbit", "rate_up": "nonsense"}
    assert api.send("PUT", f"/subscribers/{id}/rate", json=body).status_code == 400
    assert api.get(f"/subscribers/{id}")["rate_down_bps"] == 1_500_000_000


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
    path = f"/subscribers/{next(sessions)['id']}"
    until = datetime.now(UTC).replace(microsecond=0) + timedelta(hours=1)
    elsewhere = until.astimezone(timezone(timedelta(hours=2))).isoformat()
    for spelled in (elsewhere, str(int(until.timestamp()))):
        answer = api.send("PUT", f"{path}/rate", json={"rate_down": "300mbit", "until": spelled})
        assert answer.json()["data"]["rate_expires_at"] == until.timestamp()
        assert api.get(path)["rate_expires_at"] == until.timestamp()
        assert api.send("PUT", f"{path}/rate", json={"rate_down": "200mbit"}).ok
        assert api.get(path)["rate_expires_at"] is None
    for name, value, message in (
        ("expires_in", 0, "must be 1 to 31622400"),
        ("expires_in", 31_622_401, "must be 1 to 31622400"),
        ("until", "2020-01-01T00:00:00Z", "must be in the next 366 days"),
        ("until", "9999-01-01T00:00:00Z", "must be in the next 366 days"),
        ("until", "2027-01-01T00:00:00", "must be epoch seconds, or a time with its offset"),
        ("until", elsewhere, "must not be given with expires_in"),
    ):
        more = {"expires_in": 60} if value == elsewhere else {}
        refused = api.send("PUT", f"{path}/rate", json={"rate_down": "1m", name: value, **more})
        assert_invalid(refused, name)
        assert refused.json()["errors"][0]["message"].startswith(message)
    assert api.get(path)["rate_down_bps"] == 200_000_000


def test_a_session_is_found_by_each_filter(api: Api, sessions: Iterator[dict[str, Any]]) -> None:
    wanted, other = next(sessions), next(sessions)
    assert re.fullmatch("[0-9a-f]{2}(:[0-9a-f]{2}){5}", wanted["mac_address"])
    dashes = wanted["mac_address"].replace(":", "-").upper()
    query = {name: wanted[name] for name in ("username", "ip_address", "interface")}
    for name, text in [*query.items(), ("mac_address", dashes), ("search", dashes)]:
        assert api.get("/subscribers", params={name: text})["sessions"] == [wanted], name
    assert api.get("/subscribers", params=query)["sessions"] == [wanted]
    query["ip_address"] = other["ip_address"]
    assert api.get("/subscribers", params=query) == {"sessions": [], "count": 0}
    for name, text, message in (
        ("mac_address", "02:00:00:00:00", "must be a MAC address, such as "),
        ("ip_address", "100.64.0.05", "must be an IP address, such as "),
        ("search", "", "must have 1 to 256 characters"),
        ("search", "x" * 257, "must have 1 to 256 characters"),
    ):
        refused = api.send("GET", "/subscribers", params={name: text})
        assert_invalid(refused, name)
        assert message in refused.text


def test_a_session_has_its_ipv6_networks_vlans_and_source_in_lists_and_detail(api: Api) -> None:
    session = next(one for one in api.get("/subscribers")["sessions"] if one["delegated_prefixes"])
    assert IPv6Address(session["ipv6_address"]) in IPv6Network(session["ipv6_prefix"])
    tags = [tag for tag in (session["outer_vlan_id"], session["inner_vlan_id"]) if tag is not None]
    assert session["access_interface"].split(".")[1:] == [str(tag) for tag in tags]
    assert session["source"] == "lab"
    detail = api.get(f"/subscribers/{session['id']}")
    names = ("ipv6_address", "ipv6_prefix", "delegated_prefixes", "outer_vlan_id", "inner_vlan_id", "source")
    assert {name: detail[name] for name in names} == {name: session[name] for name in names}
    routes = {route["dst"]: route for route in api.get("/routing/routes")["routes"]}
    for network in (session["ipv6_prefix"], *session["delegated_prefixes"]):
        assert (routes[network]["dev"], routes[network]["session_id"]) == (
            session["interface"],
            session["id"],
        )
        last = IPv6Network(network).broadcast_address
        assert api.get("/subscribers", params={"ip_address": last.exploded})["sessions"] == [session]
        assert api.get("/subscribers", params={"ip_address": last + (1 << 80)})["sessions"] != [session]


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
    path = "/subscribers/disconnect-by-interface"
    answer = api.send("POST", path, json={"interface": "lo"})
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
def test_a_list_has_another_etag_after_a_change_and_a_page_none(
    api: Api, sessions: Iterator[dict[str, Any]], path: str
) -> None:
    known = api.send("GET", path)
    headers = {"If-None-Match": known.headers["ETag"]}
    assert api.send("GET", path, headers=headers).status_code == 304
    session = next(one for one in sessions if one["type"] == "PPPoE")
    assert api.send("PUT", f"/subscribers/{session['id']}/rate", json={"rate_down": "123mbit"}).ok
    changed = api.send("GET", path, headers=headers)
    assert changed.status_code == 200
    shown = {one["id"]: one["rate_down"] for one in changed.json()["data"]["sessions"]}
    assert shown[session["id"]] == 123_000_000
    assert changed.headers["ETag"] != known.headers["ETag"]
    for query in ("limit=10", "username=nobody"):
        assert "ETag" not in api.send("GET", f"/subscribers?{query}").headers

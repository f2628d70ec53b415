"""What a commit changes, it changes at once and without a restart: a stack whose subscribers stay, and one
where they come and go."""

import json
from collections.abc import Callable, Iterator
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path
from typing import Any

import jwt
import pytest
import requests

from tests.support.documents import SECRET_HASH
from tests.support.rendered import rendered as files_of
from tests.support.stack import Api, call_core, running_stack, wait_for

CONFIG = "/system/config"


@pytest.fixture(scope="module")
def still_api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    with running_stack(tmp_path_factory.mktemp("still"), sessions=200) as (api, _):
        yield api


@pytest.fixture(scope="module")
def lively_api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    with running_stack(tmp_path_factory.mktemp("lively"), sessions=200, arrivals=40) as (api, _):
        yield api


@pytest.fixture
def still(still_api: Api) -> Iterator[Api]:
    """A gateway whose 200 subscribers stay, with its first configuration; at the test's end, too."""
    yield still_api
    go_back(still_api)


@pytest.fixture
def lively(lively_api: Api) -> Iterator[Api]:
    """A gateway where 40 subscribers a second come and as many go; otherwise as `still`."""
    yield lively_api
    go_back(lively_api)


def core(api: Api, method: str, **parameters: Any) -> Any:
    """What the core itself answers at its socket."""
    return call_core(Path(api.environment["CORE_SOCKET"]), method, **parameters)


def go_back(api: Api) -> None:
    """Has the first configuration run again, whatever the API may do in the one that runs."""
    archived = core(api, "ListArchive")["revisions"]
    if archived:
        assert archived[-1]["author"] == "factory"
        core(api, "RollbackCandidate", revision=len(archived))
        core(api, "CommitCandidate", author="tests")


def setting(path: str, value: Any) -> dict[str, Any]:
    return {"op": "set", "path": path, "value": value}


def deleting(path: str) -> dict[str, Any]:
    return {"op": "delete", "path": path}


def commit(api: Api, *operations: dict[str, Any], **body: Any) -> None:
    """Edits and commits; when it returns, nobody has asked the API anything since the commit's answer."""
    edited = api.send("POST", f"{CONFIG}/edit", json={"operations": operations})
    assert edited.status_code == 200, edited.text
    committed = api.send("POST", f"{CONFIG}/commit", json=body)
    assert committed.status_code == 200, committed.text
    assert committed.json()["data"]["committed"]


def everywhere(api: Api, method: str, path: str, token: str | None = None, **more: Any) -> set[int]:
    """The statuses of a request on enough connections of their own that each of two workers had some."""
    headers = {"Connection": "close", **({"Authorization": f"Bearer {token}"} if token else {})}
    with requests.Session() as session:
        session.trust_env = False
        session.verify = api.session.verify
        url = f"{api.url}{path}" if path == "/metrics" else f"{api.url}/api/v1{path}"
        return {
            session.request(method, url, headers=headers, timeout=30, **more).status_code for _ in range(12)
        }


def claims(token: str) -> dict[str, Any]:
    read: dict[str, Any] = jwt.decode(token, options={"verify_signature": False})
    return read


def lifetime(api: Api) -> int:
    """How long a new token lives, in seconds; each asked for on a connection of its own."""
    another = Api(api.environment)
    with another.session:
        token = claims(another.new_token("operator"))
    seconds: int = token["exp"] - token["iat"]
    return seconds


def bring_forward(api: Api) -> None:
    """Has the commit that waits for a confirmation return soon, for any users that the API still has."""
    assert core(api, "CommitCandidate", author="console", confirm_seconds=1)["committed"] is False


def rendered(api: Api) -> dict[str, str]:
    """The files that services get of what runs, by name."""
    folder = Path(api.environment["CORE_SOCKET"]).parent / "configuration"
    runs = json.loads((folder / "state.json").read_text())["running"]
    return files_of(json.loads((folder / "revisions" / str(runs) / "configuration.json").read_text()))


def sessions(api: Api) -> dict[int, dict[str, Any]]:
    return {item["id"]: item for item in api.get("/subscribers")["sessions"]}


def steered(api: Api) -> dict[int, dict[str, Any]]:
    return {item["id"]: item for item in api.get("/cgnat/sessions")["sessions"]}


def addresses(api: Api) -> dict[int, IPv4Address]:
    return {id: IPv4Address(session["ip_address"]) for id, session in sessions(api).items()}


def within(held: dict[int, IPv4Address], network: str) -> set[int]:
    return {id for id, address in held.items() if address in IPv4Network(network)}


def interfaces(api: Api, kind: str) -> list[dict[str, Any]]:
    return [item for item in api.get("/interfaces")["interfaces"] if item["type"] == kind]


def vlans(api: Api) -> dict[str, dict[str, Any]]:
    return {vlan["name"]: vlan for vlan in api.get("/demux/state")["vlans"]}


def newcomers(api: Api, known: int) -> list[dict[str, Any]]:
    """Ten or more sessions that came after one."""

    def found() -> list[dict[str, Any]]:
        new = [session for id, session in sessions(api).items() if id > known]
        return new if len(new) >= 10 else []

    new: list[dict[str, Any]] = wait_for("ten new sessions", found, 20)
    return new


# The API itself


def test_a_new_user_can_log_in_at_once(still: Api) -> None:
    commit(still, setting("api.users.carol", {"password_hash": SECRET_HASH, "role": "operator"}))
    answer = still.log_in("carol", "secret")
    assert answer.status_code == 200
    assert everywhere(still, "GET", "/qos/profiles", answer.json()["access_token"]) == {200}


def test_a_removed_user_is_nobody_at_once(still: Api) -> None:
    token = still.new_token("operator")
    commit(still, deleting("api.users.operator"))
    assert everywhere(still, "GET", "/qos/profiles", token) == {401}
    assert still.log_in("operator", still.environment["OPERATOR_PASSWORD"]).status_code == 401


def test_a_user_who_got_another_role_has_to_log_in_again(still: Api) -> None:
    token = still.new_token("operator")
    commit(still, setting("api.users.operator.role", "admin"))
    assert everywhere(still, "GET", "/qos/profiles", token) == {401}
    promoted = still.new_token("operator")
    assert claims(promoted)["role"] == "admin"
    assert everywhere(still, "GET", f"{CONFIG}/compare", promoted) == {200}


def test_a_new_password_is_the_only_one_at_once(still: Api) -> None:
    commit(still, setting("api.users.operator.password_hash", SECRET_HASH))
    assert still.log_in("operator", "secret").status_code == 200
    assert still.log_in("operator", still.environment["OPERATOR_PASSWORD"]).status_code == 401


def test_a_disabled_api_answers_503_at_once_until_the_core_is_told_otherwise(still: Api) -> None:
    token = still.token("admin")
    commit(still, setting("api.enabled", False))
    login = {"json": {"username": "admin", "password": still.environment["ADMIN_PASSWORD"]}}
    assert everywhere(still, "GET", CONFIG, token) == {503}
    assert everywhere(still, "POST", f"{CONFIG}/commit", token) == {503}
    assert everywhere(still, "POST", "/auth/login", **login) == {503}
    for path in ("/health", "/system/health", "/system/version", "/metrics"):
        assert everywhere(still, "GET", path) == {200}
    edit = {"action": "set", "path": "api.enabled", "value_json": "true"}
    core(still, "EditCandidate", edits=[edit])
    core(still, "CommitCandidate", author="console")
    assert everywhere(still, "GET", CONFIG, token) == {200}


def test_new_tokens_live_as_long_as_configured_at_once(still: Api) -> None:
    assert lifetime(still) == 3600
    commit(still, setting("api.token_lifetime", 120))
    assert {lifetime(still) for _ in range(4)} == {120}


# Names, and what the services read


def test_the_host_name_is_in_the_configuration_and_in_the_services_files(still: Api) -> None:
    commit(still, setting("system.hostname", "bng7.example.net"))
    assert still.get(CONFIG)["system"]["hostname"] == "bng7.example.net"
    assert "\nac-name=bng7.example.net\n" in rendered(still)["accel-ppp.conf"]


def test_with_a_radius_server_its_files_take_the_place_of_the_local_subscribers(still: Api) -> None:
    assert "chap-secrets" in rendered(still)
    commit(still, setting("radius", {"server": "192.0.2.9", "secret": "between-us"}))
    files = rendered(still)
    assert "chap-secrets" not in files
    assert "\n192.0.2.9 between-us\n" in files["radius-servers"]


# Shaping


def test_new_sessions_have_the_new_rates_and_old_ones_keep_theirs(lively: Api) -> None:
    old = max(sessions(lively))
    commit(lively, setting("qos.default_down", "222mbit"), setting("qos.default_up", "11mbit"))
    new = max(sessions(lively))
    assert {(s["rate_down"], s["rate_up"]) for s in newcomers(lively, new)} == {(222_000_000, 11_000_000)}
    stayed = [session for id, session in sessions(lively).items() if id <= old]
    assert stayed
    assert {(s["rate_down"], s["rate_up"]) for s in stayed} == {(100_000_000, 20_000_000)}


# CGNAT


def test_without_cgnat_nothing_is_steered_and_everybody_stays(still: Api) -> None:
    before = sessions(still)
    assert steered(still)
    commit(still, setting("cgnat.enabled", False))
    assert steered(still) == {}
    assert interfaces(still, "vrf") == []
    assert {route["table"] for route in still.get("/routing/routes")["routes"]} == {"main"}
    stats = still.get("/cgnat/stats")
    assert (stats["vrf_steered_sessions"], stats["total_sessions"]) == (0, len(before))
    assert sessions(still) == before
    assert not any(still.get(f"/subscribers/{id}")["vrf_steered"] for id in before)
    assert "svc_vrf_steered_sessions 0.0\n" in still.send("GET", "/metrics", None).text
    assert "vrf " not in rendered(still)["frr.conf"]


def test_with_cgnat_again_the_same_sessions_are_steered(still: Api) -> None:
    before = steered(still)
    commit(still, setting("cgnat.enabled", False))
    commit(still, setting("cgnat.enabled", True))
    assert steered(still) == before
    assert [item["name"] for item in interfaces(still, "vrf")] == ["cgnat"]


def test_steered_sessions_follow_the_vrf_and_the_handoff(still: Api) -> None:
    before = steered(still)
    changed = {
        "vrf_name": "nat7",
        "vrf_table": 777,
        "handoff_interface": "uplink0",
        "handoff_gateway": "10.255.7.2",
    }
    commit(still, *(setting(f"cgnat.{name}", value) for name, value in changed.items()))
    now = steered(still)
    assert set(now) == set(before)
    assert now == {id: {**session, **changed} for id, session in before.items()}
    assert [item["name"] for item in interfaces(still, "vrf")] == ["nat7"]
    masters = {item["name"]: item["master"] for item in interfaces(still, "other")}
    assert (masters["uplink0"], masters["cgnat0"]) == ("nat7", None)
    routes = [route for route in still.get("/routing/routes")["routes"] if route["table"] != "main"]
    assert {route["table"] for route in routes} == {"777"}
    assert {route["session_id"] for route in routes if route["session_id"]} == set(before)
    (default,) = [route for route in routes if route["dst"] == "0.0.0.0/0"]
    assert (default["gateway"], default["dev"]) == ("10.255.7.2", "uplink0")


@pytest.mark.parametrize("source_range", ["100.64.0.0/27", "198.18.0.0/15", "10.0.0.0/8"])
def test_steered_are_the_sessions_of_the_source_range(still: Api, source_range: str) -> None:
    before = addresses(still)
    commit(still, setting("cgnat.source_range", source_range))
    assert addresses(still) == before
    expected = within(before, source_range)
    assert set(steered(still)) == expected
    assert still.get("/cgnat/stats")["vrf_steered_sessions"] == len(expected)
    details = {id: still.get(f"/subscribers/{id}")["vrf_steered"] for id in before}
    assert {id for id, is_steered in details.items() if is_steered} == expected


def test_new_sessions_have_addresses_of_the_new_source_range(lively: Api) -> None:
    commit(lively, setting("cgnat.source_range", "100.96.0.0/16"))
    known = max(sessions(lively))
    came = newcomers(lively, known)
    now = {session["id"]: IPv4Address(session["ip_address"]) for session in came}
    assert within(now, "100.64.0.0/10") == within(now, "100.96.0.0/16") != set()
    listed = steered(lively)
    assert all(IPv4Address(item["ip_address"]) in IPv4Network("100.96.0.0/16") for item in listed.values())


# Demux


def test_a_disconnected_vlan_stays_until_the_new_idle_timeout(still: Api) -> None:
    name = next(name for name in vlans(still) if name.startswith("trunk0."))
    still.send("POST", "/subscribers/disconnect-by-interface", json={"interface": name})
    assert vlans(still)[name]["state"] == "idle"
    others = set(vlans(still)) - {name}
    commit(still, setting("demux.idle_timeout", 1))
    wait_for("the idle VLAN to go", lambda: name not in vlans(still), 10)
    assert set(vlans(still)) == others
    assert name not in {vlan["name"] for vlan in still.get("/interfaces/vlans")["vlans"]}


def test_without_a_trunk_its_sessions_and_vlans_are_gone_and_others_stay(still: Api) -> None:
    known = sessions(still)
    access = {id: still.get(f"/subscribers/{id}")["access_interface"] for id in known}
    gone = {id for id, interface in access.items() if interface.startswith("trunk1.")}
    left = {name: vlan for name, vlan in vlans(still).items() if vlan["trunk"] == "trunk0"}
    assert gone
    assert gone != set(known)
    assert still.send("POST", f"{CONFIG}/set", json={"path": "demux.trunks", "value": ["trunk0"]}).ok
    impact = {"services": [], "sessions_dropped": len(gone)}
    impact |= {"sessions": sorted(gone)[:100], "sessions_held": 0}
    assert still.get(f"{CONFIG}/compare", "admin")["impact"] == impact
    committed = still.send("POST", f"{CONFIG}/commit", json={"max_sessions_dropped": len(gone)})
    assert committed.json()["data"]["impact"] == impact
    assert sessions(still) == {id: session for id, session in known.items() if id not in gone}
    assert vlans(still) == left
    assert still.get("/subscribers/summary")["total"] == len(known) - len(gone)
    assert still.send("GET", f"/subscribers/{min(gone)}").status_code == 404
    shown = still.get("/interfaces")["interfaces"]
    assert not any((item["parent"] or "").startswith("trunk1") for item in shown)
    assert "trunk1" in {item["name"] for item in shown}
    assert {item["session_id"] for item in still.get("/qos")["sessions"]} == set(known) - gone
    routes = still.get("/routing/routes")["routes"]
    assert {route["session_id"] for route in routes} - {None} == set(known) - gone


def test_a_commit_that_would_end_more_sessions_than_allowed_is_409_and_changes_nothing(still: Api) -> None:
    assert still.send("POST", f"{CONFIG}/set", json={"path": "demux.trunks", "value": ["trunk1"]}).ok
    known, compared = sessions(still), still.get(f"{CONFIG}/compare", "admin")
    dropped, running = compared["impact"]["sessions_dropped"], still.get(CONFIG)
    refused = still.send("POST", f"{CONFIG}/commit", json={"max_sessions_dropped": dropped - 1})
    assert (refused.status_code, refused.json()["status"]) == (409, "error")
    assert str(dropped) in refused.json()["message"]
    assert str(dropped - 1) in refused.json()["message"]
    assert (sessions(still), still.get(CONFIG)) == (known, running)
    assert still.get(f"{CONFIG}/compare", "admin") == compared


def test_a_trunk_that_is_no_interface_any_more_is_not_listed(still: Api) -> None:
    commit(still, setting("demux.trunks", ["trunk0"]), setting("interfaces.trunks", ["trunk0", "trunk9"]))
    assert [item["name"] for item in interfaces(still, "trunk")] == ["trunk0", "trunk9"]


def test_a_new_profile_shows_and_new_vlans_are_of_its_range(lively: Api) -> None:
    before = set(vlans(lively))
    commit(
        lively,
        setting("demux.vlan_profiles.pppoe.vlan_range", "500-503"),
        setting("demux.vlan_profiles.ipoe.vlan_range", "600-601"),
        setting("demux.vlan_profiles.ipoe.outer_vlan_range", "700"),
    )
    profiles = {profile["name"]: profile for profile in lively.get("/demux/config")["vlan_profiles"]}
    assert profiles["pppoe"]["vlan_range"] == "500-503"
    assert (profiles["ipoe"]["vlan_range"], profiles["ipoe"]["outer_vlan_range"]) == ("600-601", "700")
    known = max(sessions(lively))
    newcomers(lively, known)
    made = [vlan for name, vlan in vlans(lively).items() if name not in before]
    tags = {(vlan["outer_vlan_id"], vlan["vlan_id"]) for vlan in made}
    assert tags
    assert tags <= {*((None, id) for id in range(500, 504)), (700, 600), (700, 601)}


def test_a_new_overhead_profile_is_that_of_new_sessions(lively: Api) -> None:
    profiles = {profile["name"] for profile in lively.get("/qos/profiles")["profiles"]}
    other = next(iter(sorted(profiles - {"pppoe_ethernet", "ipoe_qinq"})))
    commit(
        lively,
        setting("demux.vlan_profiles.pppoe.overhead_profile", other),
        setting("demux.vlan_profiles.ipoe.overhead_profile", other),
    )
    known = max(sessions(lively))
    newcomers(lively, known)
    shaped = {item["session_id"]: item["overhead_profile"] for item in lively.get("/qos")["sessions"]}
    assert {profile for id, profile in shaped.items() if id > known} == {other}


def test_over_the_new_limit_no_vlan_comes_and_the_refusals_are_counted(lively: Api) -> None:
    commit(
        lively,
        setting("demux.rate_limits.max_vlans", 1),
        setting("demux.vlan_profiles.pppoe.vlan_range", "510-513"),
        setting("demux.vlan_profiles.ipoe.vlan_range", "610-613"),
    )
    assert lively.get("/demux/config")["rate_limits"]["max_vlans"] == 1
    there, refused = set(vlans(lively)), lively.get("/demux/state")["rate_limited_total"]
    wait_for("refused VLANs", lambda: lively.get("/demux/state")["rate_limited_total"] >= refused + 10, 20)
    assert set(vlans(lively)) == there


def test_faster_than_the_new_limit_no_vlan_comes(lively: Api) -> None:
    before = set(vlans(lively))
    commit(
        lively,
        setting("demux.rate_limits", {"vlans_per_second": 1, "burst": 2, "max_vlans": 16384}),
        setting("demux.vlan_profiles.pppoe.vlan_range", "520-599"),
        setting("demux.vlan_profiles.ipoe.vlan_range", "620-699"),
    )
    refused = lively.get("/demux/state")["rate_limited_total"]
    wait_for("refused VLANs", lambda: lively.get("/demux/state")["rate_limited_total"] >= refused + 10, 20)
    made = sorted(vlan["created_at"] for name, vlan in vlans(lively).items() if name not in before)
    assert made
    assert len(made) <= 2 + made[-1] - made[0] + 1


# BGP


def test_without_bgp_the_summary_is_empty(still: Api) -> None:
    assert still.get("/routing/bgp/summary") != {}
    commit(still, deleting("bgp"))
    assert still.get("/routing/bgp/summary") == {}
    assert "bgp" not in {route["protocol"] for route in still.get("/routing/routes")["routes"]}
    assert "router bgp" not in rendered(still)["frr.conf"]


def test_a_new_neighbor_is_in_the_summary(still: Api) -> None:
    before = still.get("/routing/bgp/summary")["ipv4Unicast"]
    commit(still, setting('bgp.neighbors."10.255.9.2"', {"remote_as": 65009, "description": "core9"}))
    summary = still.get("/routing/bgp/summary")["ipv4Unicast"]
    assert set(summary["peers"]) == {*before["peers"], "10.255.9.2"}
    assert summary["peers"]["10.255.9.2"]["remoteAs"] == 65009
    assert summary["totalPeers"] == before["totalPeers"] + 1
    assert "\n neighbor 10.255.9.2 remote-as 65009\n" in rendered(still)["frr.conf"]


# And back


def test_what_an_unconfirmed_commit_changed_comes_back_with_its_return(still: Api) -> None:
    def seen() -> list[Any]:
        look: list[Callable[[], Any]] = [
            lambda: still.get(CONFIG),
            lambda: steered(still),
            lambda: [item["name"] for item in interfaces(still, "vrf")],
            lambda: sorted(still.get("/routing/bgp/summary").get("ipv4Unicast", {}).get("peers", {})),
            lambda: still.get("/demux/config"),
            lambda: still.get("/routing/routes"),
            lambda: lifetime(still),
            lambda: rendered(still),
        ]
        return [ask() for ask in look]

    before = seen()
    commit(
        still,
        setting("system.hostname", "mistaken"),
        setting("cgnat.enabled", False),
        setting("demux.rate_limits.burst", 7),
        setting("api.token_lifetime", 60),
        deleting("bgp"),
        confirm_seconds=600,
    )
    assert all(now != was for now, was in zip(seen(), before, strict=True))
    bring_forward(still)
    # The configuration is back a moment before its effects are.
    wait_for("the return", lambda: seen() == before)


def test_users_that_an_unconfirmed_commit_took_away_come_back_with_its_return_and_log_in_again(
    still: Api,
) -> None:
    admin, operator = still.token("admin"), still.new_token("operator")
    commit(
        still,
        setting("api.users.carol", {"password_hash": SECRET_HASH, "role": "admin"}),
        deleting("api.users.admin"),
        deleting("api.users.operator"),
        confirm_seconds=600,
    )
    assert everywhere(still, "GET", CONFIG, admin) == {401}
    bring_forward(still)
    wait_for("the return", lambda: still.log_in("carol", "secret").status_code == 401, 10)
    # A deletion ends tokens for good.
    assert everywhere(still, "GET", CONFIG, admin) == everywhere(still, "GET", CONFIG, operator) == {401}
    still.forget_tokens()
    assert everywhere(still, "GET", CONFIG, still.token("admin")) == {200}
    assert everywhere(still, "GET", CONFIG, still.token("operator")) == {200}

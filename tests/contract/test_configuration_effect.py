"""What a commit changes, it changes at once and without a restart."""

from collections.abc import Iterator
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path
from typing import Any

import jwt
import pytest
import requests

from tests.support.documents import SECRET_HASH
from tests.support.stack import Api, call_core, running_stack, wait_for

CONFIG = "/system/config"


@pytest.fixture(scope="module")
def still_api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    with running_stack(tmp_path_factory.mktemp("still"), sessions=200) as (api, _):
        yield api


@pytest.fixture
def still(still_api: Api) -> Iterator[Api]:
    """A gateway whose 200 subscribers stay, with its first configuration; at the end of the test, too."""
    yield still_api
    archived = core(still_api, "ListArchive")["revisions"]
    if archived:
        core(still_api, "RollbackCandidate", revision=len(archived))
        core(still_api, "CommitCandidate", author="tests")


def core(api: Api, method: str, **parameters: Any) -> Any:
    """What the core itself answers at its socket, whatever the API may do."""
    return call_core(Path(api.environment["CORE_SOCKET"]), method, **parameters)


def setting(path: str, value: Any) -> dict[str, Any]:
    return {"op": "set", "path": path, "value": value}


def deleting(path: str) -> dict[str, Any]:
    return {"op": "delete", "path": path}


def commit(api: Api, *operations: dict[str, Any], **body: Any) -> None:
    """Edits and commits; when it returns, the API has had no other request since the commit's."""
    for step, sent in (("edit", {"operations": operations}), ("commit", body)):
        answer = api.send("POST", f"{CONFIG}/{step}", json=sent)
        assert answer.status_code == 200, answer.text


def everywhere(api: Api, method: str, path: str, token: str | None = None, **more: Any) -> set[int]:
    """The statuses of a request on so many connections that each of two workers had some."""
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


def sessions(api: Api) -> dict[int, dict[str, Any]]:
    return {item["id"]: item for item in api.get("/subscribers")["sessions"]}


def steered(api: Api) -> dict[int, dict[str, Any]]:
    return {item["id"]: item for item in api.get("/cgnat/sessions")["sessions"]}


# The API itself


def test_changes_of_users_count_at_once_in_all_workers(still: Api) -> None:
    former = still.new_token("operator")
    commit(
        still,
        setting("api.users.carol", {"password_hash": SECRET_HASH, "role": "operator"}),
        setting("api.users.operator.role", "admin"),
    )
    carol = still.log_in("carol", "secret").json()["access_token"]
    assert everywhere(still, "GET", "/qos/profiles", carol) == {200}
    # A user with another role has to log in again.
    assert everywhere(still, "GET", "/qos/profiles", former) == {401}
    promoted = still.new_token("operator")
    assert claims(promoted)["role"] == "admin"
    assert everywhere(still, "GET", f"{CONFIG}/compare", promoted) == {200}
    commit(still, deleting("api.users.carol"))
    hash = {"path": "api.users.operator.password_hash", "value": SECRET_HASH}
    assert still.send("POST", f"{CONFIG}/set", token=promoted, json=hash).ok
    assert still.send("POST", f"{CONFIG}/commit", token=promoted).json()["data"]["author"] == "operator"
    assert everywhere(still, "GET", "/qos/profiles", carol) == {401}
    assert still.log_in("carol", "secret").status_code == 401
    assert still.log_in("operator", "secret").status_code == 200
    assert still.log_in("operator", still.environment["OPERATOR_PASSWORD"]).status_code == 401


def test_a_disabled_api_answers_503_at_once_until_the_core_enables_it(still: Api) -> None:
    token = still.token("admin")
    commit(still, setting("api.enabled", False))
    login = {"json": {"username": "admin", "password": still.environment["ADMIN_PASSWORD"]}}
    assert everywhere(still, "GET", CONFIG, token) == {503}
    assert everywhere(still, "POST", f"{CONFIG}/commit", token) == {503}
    assert everywhere(still, "POST", "/auth/login", **login) == {503}
    for path in ("/health", "/system/health", "/system/version", "/metrics"):
        assert everywhere(still, "GET", path) == {200}
    core(still, "EditCandidate", edits=[{"action": "set", "path": "api.enabled", "value_json": "true"}])
    core(still, "CommitCandidate", author="console")
    assert everywhere(still, "GET", CONFIG, token) == {200}


# The gateway


def test_cgnat_follows_the_configuration_and_every_session_stays(still: Api) -> None:
    before, all_sessions = steered(still), sessions(still)
    changed = {"vrf_name": "nat7", "vrf_table": 777, "handoff_gateway": "10.255.7.2"}
    network = "100.64.0.0/27"
    commit(
        still,
        *(setting(f"cgnat.{name}", value) for name, value in changed.items()),
        setting("cgnat.source_range", network),
    )
    expected = {
        id: {**session, **changed}
        for id, session in before.items()
        if IPv4Address(session["ip_address"]) in IPv4Network(network)
    }
    assert steered(still) == expected != {}
    assert still.get("/cgnat/stats")["vrf_steered_sessions"] == len(expected) < len(before)
    commit(still, setting("cgnat.enabled", False))
    assert steered(still) == {}
    stats = still.get("/cgnat/stats")
    assert (stats["vrf_steered_sessions"], stats["total_sessions"]) == (0, len(all_sessions))
    # A scrape is up to a second old.
    none = "svc_vrf_steered_sessions 0.0\n"
    wait_for("a scrape without them", lambda: none in still.send("GET", "/metrics", None).text)
    assert sessions(still) == all_sessions


def test_without_a_trunk_its_sessions_are_gone_from_all_lists_and_others_stay(still: Api) -> None:
    known = sessions(still)
    access = {id: still.get(f"/subscribers/{id}")["access_interface"] for id in known}
    gone = {id for id, interface in access.items() if interface.startswith("trunk1.")}
    assert set() != gone != set(known)
    assert still.send("POST", f"{CONFIG}/set", json={"path": "demux.trunks", "value": ["trunk0"]}).ok
    impact = {"services": [], "sessions_dropped": len(gone)}
    impact |= {"sessions": sorted(gone)[:100], "sessions_held": 0}
    compared, running = still.get(f"{CONFIG}/compare", "admin"), still.get(CONFIG)
    assert compared["impact"] == impact
    refused = still.send("POST", f"{CONFIG}/commit", json={"max_sessions_dropped": len(gone) - 1})
    assert (refused.status_code, refused.json()["status"]) == (409, "error")
    assert f"{len(gone)} sessions" in refused.json()["message"]
    assert str(len(gone) - 1) in refused.json()["message"]
    assert (sessions(still), still.get(CONFIG)) == (known, running)
    assert still.get(f"{CONFIG}/compare", "admin") == compared
    committed = still.send("POST", f"{CONFIG}/commit", json={"max_sessions_dropped": len(gone)})
    assert committed.json()["data"]["impact"] == impact
    assert sessions(still) == {id: session for id, session in known.items() if id not in gone}
    assert {vlan["trunk"] for vlan in still.get("/demux/state")["vlans"]} == {"trunk0"}
    assert still.send("GET", f"/subscribers/{min(gone)}").status_code == 404
    for path, key in (("/qos", "sessions"), ("/routing/routes", "routes")):
        assert {item["session_id"] for item in still.get(path)[key]} - {None} == set(known) - gone


def test_an_unconfirmed_commit_and_its_return_change_all_that_follows_the_configuration(still: Api) -> None:
    def seen() -> list[Any]:
        peers = still.get("/routing/bgp/summary").get("ipv4Unicast", {}).get("peers", {})
        token = claims(still.new_token("operator"))
        trunks = [item["name"] for item in still.get("/interfaces")["interfaces"] if item["type"] == "trunk"]
        demux = still.get("/demux/config")
        return [still.get(CONFIG), steered(still), sorted(peers), demux, trunks, token["exp"] - token["iat"]]

    before, admin = seen(), still.token("admin")
    commit(
        still,
        setting("interfaces.trunks", ["trunk0", "trunk1", "trunk9"]),
        setting("cgnat.enabled", False),
        setting("demux.rate_limits.burst", 7),
        setting("api.token_lifetime", 60),
        setting("api.users.carol", {"password_hash": SECRET_HASH, "role": "admin"}),
        deleting("api.users.admin"),
        setting('bgp.neighbors."10.255.9.2"', {"remote_as": 65009}),
        confirm_seconds=600,
    )
    assert everywhere(still, "GET", CONFIG, admin) == {401}
    assert all(now != was for now, was in zip(seen(), before, strict=True))
    # The API does not know admin now, who could have confirmed.
    assert core(still, "CommitCandidate", author="console", confirm_seconds=1)["committed"] is False
    # The configuration is back a moment before its effects are.
    wait_for("the return", lambda: seen() == before)
    assert still.log_in("carol", "secret").status_code == 401
    # The deletion of a user ends tokens for good.
    assert everywhere(still, "GET", CONFIG, admin) == {401}
    still.forget_tokens()
    assert everywhere(still, "GET", CONFIG, still.token("admin")) == {200}

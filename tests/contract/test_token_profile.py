"""The alternative profile: plain HTTP, one token, seven paths; a real gunicorn before a real core."""

import copy
import hmac
import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import requests

from gateway_api.auth.tokens import is_static_token
from gateway_api.base.settings import TOKEN as PROFILE
from gateway_api.base.settings import Settings
from gateway_api.serving import configuration
from gateway_api.serving.configuration import BadListenAddress, ProfileOff, choose_address, read_address
from gateway_api.web.app import create_app
from gateway_api.web.records import Committed, Configuration, Message, make_list_record
from gateway_api.web.routes.token_profile import format_uptime
from gateway_api.web.services import WorkerServices
from gateway_contract.base.errors import CoreAbsent, CoreUnavailable
from gateway_contract.base.logs import MASK
from gateway_contract.base.texts import format_rate
from gateway_contract.core.configuration import DiscardCandidate, Edit
from gateway_contract.core.network import ListVlans, VlansReply
from gateway_contract.core.sessions import Health, SessionDetail, SetSessionRate
from gateway_contract.core_client import CoreClient
from gateway_contract.varlink.client import Client
from tests.support.documents import SECRET_HASH
from tests.support.records import OF_A_PAGE, assert_is
from tests.support.requests import NOBODY, assert_civil, assert_invalid
from tests.support.routes import ANY_ROLE, Route
from tests.support.stack import free_port, running_core, wait_for

ROOT = Path(__file__).parents[2]
GUNICORN = (str(Path(sys.executable).parent / "gunicorn"), "--config", "python:gateway_api.serving.token")
#: EX_CONFIG of sysexits.h.
STATUS_OF_OFF = 78
TOKEN = "only-for-tests.0123456789~!"
HASHES = [SECRET_HASH, SECRET_HASH[:-1] + "a"]
UNREACHABLE = {"status": "error", "message": "Core daemon unreachable"}

ROUTES = (
    Route("GET", "/subscribers", ANY_ROLE),
    Route("GET", "/subscribers/{id}", ANY_ROLE),
    Route("DELETE", "/subscribers/{id}", ANY_ROLE, data=Message),
    Route("GET", "/vlans", ANY_ROLE, data=make_list_record(ListVlans), paged=VlansReply),
    Route("GET", "/config", ANY_ROLE, data=Configuration),
    Route("PUT", "/config", ANY_ROLE, data=Committed),
    Route("GET", "/system/status", ANY_ROLE),
)


@dataclass
class Profile:
    """A running API of this profile, and the core behind it."""

    url: str
    socket: Path
    log: Path
    core: Client = field(init=False)
    daemon: CoreClient = field(init=False)

    def __post_init__(self) -> None:
        self.core = Client(self.socket, timeout=5)
        self.daemon = CoreClient(self.core).with_origin("admin")

    def send(self, method: str, path: str, token: str | None = TOKEN, **more: Any) -> requests.Response:
        headers = {"Connection": "close", **more.pop("headers", {})}
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
        session = requests.Session()
        session.trust_env = False
        with session:
            answer = session.request(method, f"{self.url}{path}", headers=headers, timeout=20, **more)
        if answer.status_code < 500:
            assert_civil(answer)
        return answer

    def request(self, route: Route, token: str | None = TOKEN, id: object = 1) -> requests.Response:
        """The request of a route as it would work."""
        body = {"json": self.get("/config")} if route.method == "PUT" and token == TOKEN else {}
        return self.send(route.method, route.path.replace("{id}", str(id)), token, **body)

    def get(self, path: str, **more: Any) -> Any:
        """The data of a GET that must succeed."""
        answer = self.send("GET", path, **more)
        assert answer.status_code == 200, answer.text
        return answer.json()["data"]

    def put(self, document: Any, **more: Any) -> requests.Response:
        return self.send("PUT", "/config", json=document, **more)

    def commit(self, *edits: Edit) -> None:
        """As a client with another way to the core would."""
        self.daemon.edit(edits, None)
        self.daemon.commit()

    def stored(self) -> Any:
        """The document that runs, as it is on the core's disk."""
        folder = self.socket.parent / "configuration"
        running = json.loads((folder / "state.json").read_text())["running"]
        return json.loads((folder / "revisions" / str(running) / "configuration.json").read_text())


def factory_document(**api: Any) -> dict[str, Any]:
    """With two users, secrets, and `api` settings besides."""
    document: dict[str, Any] = json.loads((ROOT / "etc" / "factory.json").read_text())
    document["radius"]["secret"] = "between-us"
    users = [
        {"username": name, "password_hash": hash, "role": "admin"}
        for name, hash in zip(("alice", "bob"), HASHES, strict=True)
    ]
    document["api"] |= {"users": users, **api}
    return document


def environment(core_socket: Path, runtime: Path, **more: str) -> dict[str, str]:
    return {
        "GATEWAY_CORE_SOCKET": str(core_socket),
        "GATEWAY_API_TOKEN_RUNTIME": str(runtime),
        "GATEWAY_API_TOKEN_AUDIT": str(runtime / "audit"),
        **more,
    }


def settings_of(core_socket: Path, **more: str) -> Settings:
    return Settings.from_environment(environment(core_socket, core_socket.parent, **more), PROFILE)


@contextmanager
def running_profile(folder: Path, **more: str) -> Iterator[tuple[Profile, "subprocess.Popen[bytes]"]]:
    """A core and the profile before it; and the process of the core, which may be ended."""
    port = free_port()
    factory = folder / "factory.json"
    factory.write_text(json.dumps(factory_document(auth_token=TOKEN, listen_port=port)))
    made = Profile(f"http://127.0.0.1:{port}/api/v1", folder / "core.sock", folder / "log")
    with made.log.open("wb") as log, running_core(made.socket, factory, "--sessions", "300") as core:
        process = subprocess.Popen(
            GUNICORN, env=environment(made.socket, folder, **more), stdout=log, stderr=subprocess.STDOUT
        )
        try:
            wait_for("the profile to answer", lambda: process.poll() is None and answers(made))
            yield made, core
        finally:
            made.core.close()
            process.terminate()
            assert process.wait(10) == 0


def answers(profile: Profile) -> bool:
    try:
        return profile.send("GET", "/system/status").ok
    except requests.ConnectionError:
        return False


@pytest.fixture(scope="module")
def profile(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Profile]:
    with running_profile(tmp_path_factory.mktemp("profile")) as (made, _):
        yield made


@pytest.fixture
def sections(profile: Profile) -> Iterator[dict[str, Any]]:
    """What GET /config shows; afterwards, it runs again."""
    before = profile.stored()
    yield copy.deepcopy(profile.get("/config"))
    profile.daemon.call(DiscardCandidate())
    profile.daemon.replace(before, None)


# The table


def test_the_application_has_exactly_the_seven_routes(tmp_path: Path) -> None:
    app = create_app(WorkerServices(settings_of(tmp_path / "none")))
    there = {
        (method, rule.rule.replace("<", "{").replace(">", "}"))
        for rule in app.url_map.iter_rules()
        for method in (rule.methods or set()) - {"HEAD"}
    }
    assert there == {(route.method, f"/api/v1{route.path}") for route in ROUTES}
    assert len(ROUTES) == 7


@pytest.mark.parametrize("route", ROUTES, ids=str)
def test_with_the_token_every_path_answers_as_the_schemas_say(profile: Profile, route: Route) -> None:
    answer = profile.request(route, id=17 if route.method == "DELETE" else 1)
    assert answer.status_code == 200
    assert set(answer.json()) == {"status", "data"}
    if route.data is not None:
        assert_is(route.data, answer.json()["data"])
    assert not OF_A_PAGE & set(answer.json()["data"])


# The token


@pytest.mark.parametrize("token", [None, "", TOKEN[:-1] + "x"], ids=["none", "empty", "another"])
def test_without_the_token_it_is_401_and_nothing_is_said_of_the_request(
    profile: Profile, token: str | None
) -> None:
    for route in ROUTES:
        path = route.path.replace("{id}", "abc")
        answer = profile.send(route.method, path, token, params={"typo": "x"}, data=b"{")
        assert (answer.status_code, answer.json()) == (401, NOBODY)
        assert answer.headers["WWW-Authenticate"] == "Bearer"


def test_what_only_the_other_profile_has_is_404_and_a_wrong_method_405(profile: Profile) -> None:
    for path in ("/", "/auth/login", "/system/config"):
        assert {profile.send("GET", path, token).status_code for token in (TOKEN, None)} == {404}
    answer = profile.send("POST", "/config")
    assert (answer.status_code, {"GET", "PUT"} <= set(answer.headers["Allow"].split(", "))) == (405, True)


def test_only_the_token_is_the_token_and_they_are_compared_in_constant_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert is_static_token(TOKEN, TOKEN)
    for presented in ("", TOKEN[:-1], f"{TOKEN}x", TOKEN.upper(), MASK, "\u0661"):
        assert not is_static_token(presented, TOKEN)
    compared = []
    monkeypatch.setattr(hmac, "compare_digest", lambda *both: compared.append(both) or True)
    assert is_static_token("é", TOKEN)
    assert compared == [("é".encode(), TOKEN.encode())]


@pytest.mark.usefixtures("sections")
def test_another_token_counts_from_the_next_request_on_and_without_one_the_profile_is_off(
    profile: Profile,
) -> None:
    profile.commit(Edit("set", "api.auth_token", "quite-another-token"))
    for _ in range(4):
        assert profile.send("GET", "/system/status").status_code == 401
        assert profile.send("GET", "/system/status", "quite-another-token").status_code == 200
    sections = profile.get("/config", token="quite-another-token")
    del sections["api"]["auth_token"]
    assert profile.put(sections, token="quite-another-token").status_code == 200
    reason = "The running configuration has no api.auth_token"
    for token in (TOKEN, "", "None", None):
        for route in ROUTES:
            answer = profile.send(route.method, route.path, token)
            assert (answer.status_code, answer.json()) == (503, {"status": "error", "message": reason})
    profile.commit(Edit("set", "api.auth_token", TOKEN), Edit("set", "api.enabled", False))
    assert profile.send("GET", "/system/status").status_code == 503


# Sessions and VLANs


def test_the_list_and_a_session_are_those_of_the_core_in_texts(profile: Profile) -> None:
    profile.daemon.call_raw(SetSessionRate(3, 1_500_000, 999))
    data, now = profile.get("/subscribers"), time.time()
    reply = profile.core.call("org.gatewayapi.core.ListSessions")
    held = {record["id"]: record for record in json.loads(bytes(reply))["sessions"]}
    assert [item["id"] for item in data["subscribers"]] == list(held)
    assert data["count"] == len(held) > 200
    for item in data["subscribers"]:
        record = held[item["id"]]
        assert item.pop("uptime") in {format_uptime(record["started_at"], now - age) for age in range(5)}
        expected = {name: record[name] for name in ("id", "username", "ip_address", "interface")}
        speeds = {f"speed_{way}": format_rate(record[f"rate_{way}"]) for way in ("down", "up")}
        assert list(item.items()) == list((expected | speeds).items())
    detail = profile.get("/subscribers/3")
    assert set(detail) == {*SessionDetail.__struct_fields__, "speed_down", "speed_up", "uptime"}
    assert (detail["speed_down"], detail["speed_up"]) == ("1.5 Mbit/s", "999 bit/s")
    assert detail["uptime"] in {format_uptime(detail["started_at"], now + age) for age in range(5)}
    for query in ({"username": detail["username"]}, {"search": "id:3", "limit": "1"}):
        (found,) = profile.get("/subscribers", params=query)["subscribers"]
        assert (found["id"], found["speed_down"], found["speed_up"]) == (3, "1.5 Mbit/s", "999 bit/s")
    page = profile.get("/subscribers", params={"limit": "97"})
    assert set(page) == {"subscribers", "count", *OF_A_PAGE}
    status = profile.get("/system/status")
    assert set(status) == {*Health.__struct_fields__, "uptime", "core_reachable"}
    assert (status["active_sessions"], status["core_reachable"]) == (len(held), True)
    assert status["uptime"] == format_uptime(0, status["uptime_seconds"])


def audited(profile: Profile, method: str, result: str) -> list[dict[str, Any]]:
    """Such records of the profile's audit log, the oldest first."""
    found = []
    for path in sorted((profile.log.parent / "audit").glob("*.sqlite")):
        with closing(sqlite3.connect(path)) as connection:
            if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'record'").fetchone():
                # The service has made the file this moment, and makes its tables next.
                continue
            rows = connection.execute("SELECT record FROM record ORDER BY number")
            found += [json.loads(record) for (record,) in rows]
    return [one for one in found if (one["method"], one["result"]) == (method, result)]


def test_a_disconnected_session_is_gone_and_stands_in_the_audit_log_as_a_wrong_token_does(
    profile: Profile,
) -> None:
    username = profile.get("/subscribers/21")["username"]
    answer = profile.send("DELETE", "/subscribers/21")
    assert answer.json()["data"] == {"message": "Session 21 disconnected"}
    *_, record = audited(profile, "DELETE", "done")
    assert (record["user"], record["status"]) == ("static token", 200)
    assert record["before"]["username"] == username
    for method in ("GET", "DELETE"):
        answer = profile.send(method, "/subscribers/21")
        assert (answer.status_code, answer.json()["status"]) == (404, "error")
    profile.send("DELETE", "/subscribers/1", token="not-the-token-at-all")
    # Such requests are counted, and written a little later.
    wait_for("it", lambda: any(one["status"] == 401 for one in audited(profile, "DELETE", "refused")))
    written = b"".join(file.read_bytes() for file in (profile.log.parent / "audit").iterdir())
    written += profile.log.read_bytes()
    assert not [text for text in (TOKEN.encode(), b"not-the-token-at-all", b"Traceback") if text in written]


# The configuration


def test_the_configuration_is_shown_without_its_secrets_and_may_be_sent_back(profile: Profile) -> None:
    shown = profile.send("GET", "/config")
    data = shown.json()["data"]
    assert data["api"]["auth_token"] == data["radius"]["secret"] == MASK
    assert not [secret for secret in (TOKEN, "between-us", *HASHES) if secret in shown.text]
    answer = profile.put(data)
    assert answer.status_code == 200
    assert (answer.json()["data"]["committed"], answer.headers["ETag"]) == (False, shown.headers["ETag"])


def test_a_configuration_replaces_the_one_that_runs_in_one_commit(
    profile: Profile, sections: dict[str, Any]
) -> None:
    before = profile.stored()
    sections["system"]["hostname"] = "bng9"
    sections["api"]["users"].reverse()
    del sections["bgp"]
    seen = profile.send("GET", "/config").headers["ETag"]
    answer = profile.put(sections, headers={"If-Match": seen})
    assert answer.status_code == 200, answer.text
    data = answer.json()["data"]
    assert (data["committed"], data["author"], data["archived_revision"]) == (True, "static token", 1)
    assert profile.get("/config") == sections
    after = profile.stored()
    assert (after["radius"], after["api"]["auth_token"]) == (before["radius"], TOKEN)
    assert after["api"]["users"] == list(reversed(before["api"]["users"]))
    *_, record = audited(profile, "PUT", "done")
    assert record["after"]["committed_at"] == data["committed_at"]
    assert '+ system.hostname = "bng9"' in record["before"]["diff"]
    refused = profile.put(sections, headers={"If-Match": seen})
    assert (refused.status_code, refused.headers["ETag"]) == (412, answer.headers["ETag"])
    assert profile.put(sections, headers={"If-Match": "*"}).status_code == 200


def test_what_is_staged_is_neither_mixed_in_nor_lost(profile: Profile, sections: dict[str, Any]) -> None:
    profile.daemon.edit([Edit("set", "system.hostname", "staged")], None)
    diff = profile.daemon.compare(None).diff
    sections["qos"]["default_down"] = "1gbit"
    answer = profile.put(sections)
    assert (answer.status_code, "staged" in answer.json()["message"]) == (409, True)
    assert profile.daemon.compare(None).diff == diff != ""
    profile.daemon.call(DiscardCandidate())
    assert profile.put(sections).status_code == 200


def test_a_body_that_only_the_core_has_no_room_for_is_400(profile: Profile) -> None:
    whole = b'{"a": "' + b"x" * ((1 << 20) - 20) + b'"}'
    assert_invalid(profile.send("PUT", "/config", data=whole), "")


def test_a_wrong_value_is_400_and_named_and_changes_nothing(profile: Profile) -> None:
    before = profile.send("GET", "/config")
    sections = before.json()["data"]
    sections["api"]["auth_token"] = "with a space in it"
    answer = profile.put(sections)
    assert_invalid(answer, "api.auth_token")
    assert "with a space" not in answer.text
    after = profile.send("GET", "/config")
    assert (after.headers["ETag"], after.content) == (before.headers["ETag"], before.content)


# Whether and where it listens


@pytest.mark.parametrize(
    ("listen", "place", "is_loopback"),
    [(None, "127.0.0.1:8080", True), ("::1", "[::1]:9001", True), ("0.0.0.0", "0.0.0.0:9001", False)],
)
@pytest.mark.usefixtures("sections")
def test_it_listens_where_the_configuration_says_beyond_loopback_only_when_told_to(
    profile: Profile, listen: str | None, place: str, is_loopback: bool
) -> None:
    if listen is None:
        profile.commit(Edit("delete", "api.listen_port"))
    else:
        profile.commit(Edit("set", "api.listen_address", listen), Edit("set", "api.listen_port", 9001))
    assert read_address(settings_of(profile.socket, GATEWAY_API_TOKEN_BEYOND_LOOPBACK="yes")) == place
    for allowed in ({}, {"GATEWAY_API_TOKEN_BEYOND_LOOPBACK": "no"}):
        settings = settings_of(profile.socket, **allowed)
        if is_loopback:
            assert read_address(settings) == place
        else:
            with pytest.raises(BadListenAddress, match="plain HTTP would show the token"):
                read_address(settings)
    profile.commit(Edit("delete", "api.auth_token"))
    with pytest.raises(ProfileOff, match=r"no api\.auth_token"):
        read_address(settings_of(profile.socket))


@pytest.mark.parametrize("error", [BadListenAddress("not loopback"), CoreUnavailable("no reply")])
def test_a_reload_that_finds_no_address_keeps_the_last_one_but_a_start_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    found = Mock(side_effect=[error, "127.0.0.1:9001", error, ProfileOff("no token")])
    monkeypatch.setattr(configuration, "read_address", found)
    monkeypatch.setattr(configuration, "_current_address", None)
    settings = settings_of(tmp_path / "none")
    with pytest.raises(type(error)):
        choose_address(settings)
    assert [choose_address(settings) for _ in range(2)] == ["127.0.0.1:9001"] * 2
    with pytest.raises(ProfileOff):
        choose_address(settings)


def test_a_process_that_must_not_listen_ends_with_a_sentence_and_is_not_started_again(
    profile: Profile, tmp_path: Path
) -> None:
    def refusal(core_socket: Path, **more: str) -> tuple[int, str]:
        ended = subprocess.run(
            GUNICORN,
            env=environment(core_socket, tmp_path, **more),
            capture_output=True,
            text=True,
            check=False,
        )
        (line,) = ended.stderr.splitlines()
        return ended.returncode, line

    status, said = refusal(profile.socket, GATEWAY_API_TOKEN_BEYOND_LOOPBACK="perhaps")
    assert status == STATUS_OF_OFF
    assert said.startswith("the alternative profile is off: GATEWAY_API_TOKEN_BEYOND_LOOPBACK must be yes")
    unit = (ROOT / "systemd" / "gateway-api-token.service").read_text()
    assert f"\nRestartPreventExitStatus={STATUS_OF_OFF}\n" in unit
    # Without a core, systemd tries again.
    status, said = refusal(tmp_path / "none.sock")
    assert status == 1
    assert said.startswith("cannot start the alternative profile: cannot call org.gatewayapi.core")


def test_a_reload_listens_at_the_new_address_if_it_can_be_bound_also_after_the_core_has_gone(
    tmp_path: Path,
) -> None:
    with running_profile(tmp_path, GATEWAY_API_TOKEN_BEYOND_LOOPBACK="yes") as (profile, core):
        (parent,) = re.findall(r"Listening at: \S+ \((\d+)\)", profile.log.read_text())

        def reload(said: str) -> None:
            os.kill(int(parent), signal.SIGHUP)
            wait_for(said, lambda: said in profile.log.read_text())

        profile.commit(Edit("set", "api.listen_address", "192.0.2.1"))
        reload("cannot listen at 192.0.2.1")
        assert answers(profile)
        port = free_port()
        profile.commit(Edit("delete", "api.listen_address"), Edit("set", "api.listen_port", port))
        os.kill(int(parent), signal.SIGHUP)
        profile.url = f"http://127.0.0.1:{port}/api/v1"
        wait_for("an answer at the other port", lambda: answers(profile))
        core.terminate()
        core.wait(10)
        reload(f"still listening at 127.0.0.1:{port}: cannot call")
        for route in ROUTES:
            answer = profile.send(route.method, route.path.replace("{id}", "1"), json={})
            assert (answer.status_code, answer.json()) == (500, {**UNREACHABLE, "hint": CoreAbsent.HINT})
            assert profile.send(route.method, route.path, None).status_code == 401
        assert profile.send("GET", "/nope", None).status_code == 404

"""The alternative profile: plain HTTP, one token, seven paths; a real gunicorn before a real core."""

import copy
import hmac
import json
import os
import re
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import pytest
import requests
from msgspec import Meta, Struct

from gateway_api.auth.tokens import is_token
from gateway_api.base.errors import CoreAbsent, CoreUnavailable
from gateway_api.base.logs import MASK
from gateway_api.base.settings import TOKEN as PROFILE
from gateway_api.base.settings import BadSetting, Settings
from gateway_api.base.texts import rate_text
from gateway_api.core_client.commands import Daemon
from gateway_api.serving.configuration import Off, address
from gateway_api.web.app import create_app
from gateway_api.web.records import Committed, Configuration, Message, listing
from gateway_api.web.routes.token_profile import uptime
from gateway_api.web.services import WorkerParts
from gateway_api.wire.contract import ListReply, PagedMethod
from gateway_api.wire.core.configuration import DiscardCandidate, Edit
from gateway_api.wire.core.network import ListVlans, VlansReply
from gateway_api.wire.core.sessions import AssignedAddress, Health, SessionDetail, SetSessionRate
from gateway_api.wire.varlink.client import Client
from tests.contract.test_audit import kept_in
from tests.package.test_units import command, service
from tests.support.documents import SECRET_HASH
from tests.support.records import OF_A_PAGE, assert_is
from tests.support.requests import NOBODY, assert_civil, assert_invalid
from tests.support.routes import ANY_ROLE, Route
from tests.support.stack import free_port, running_core, wait_for
from tests.torture.test_core_faults import UNREACHABLE, assert_unreachable_within_5_s, faulty_core

ROOT = Path(__file__).parents[2]
#: EX_CONFIG of sysexits.h.
STATUS_OF_OFF = 78
TOKEN = "only-for-tests.0123456789~!"
HASHES = [SECRET_HASH, SECRET_HASH[:-1] + "a"]
NO_TOKEN = "The running configuration has no api.auth_token"

Speed = Annotated[str, Meta(pattern=r"^[0-9]+(\.[0-9]*[1-9])? [kMG]?bit/s\Z")]
Uptime = Annotated[str, Meta(pattern=r"^([1-9][0-9]*d )?[012][0-9]:[0-5][0-9]:[0-5][0-9]\Z")]


class Subscriber(Struct):
    """An item of the list."""

    id: int
    username: str
    ip_address: AssignedAddress
    interface: str
    speed_down: Speed
    speed_up: Speed
    uptime: Uptime


class SubscribersReply(ListReply, frozen=True):
    """A page of the list."""

    subscribers: tuple[Subscriber, ...]


class ListSubscribers(PagedMethod[SubscribersReply], frozen=True):
    """The list."""


class SubscriberDetail(SessionDetail, frozen=True, kw_only=True):
    speed_down: Speed
    speed_up: Speed
    uptime: Uptime


class StatusReply(Health, frozen=True):
    uptime: Uptime
    core_reachable: bool


ROUTES = (
    Route("GET", "/subscribers", ANY_ROLE, data=listing(ListSubscribers), paged=SubscribersReply),
    Route("GET", "/subscribers/{id}", ANY_ROLE, data=SubscriberDetail),
    Route("DELETE", "/subscribers/{id}", ANY_ROLE, data=Message),
    Route("GET", "/vlans", ANY_ROLE, data=listing(ListVlans), paged=VlansReply),
    Route("GET", "/config", ANY_ROLE, data=Configuration),
    Route("PUT", "/config", ANY_ROLE, data=Committed),
    Route("GET", "/system/status", ANY_ROLE, data=StatusReply),
)
LISTS = [route for route in ROUTES if route.paged is not None]

named = pytest.mark.parametrize("route", ROUTES, ids=str)


@dataclass
class Profile:
    """A running API of this profile, and the core behind it."""

    url: str
    socket: Path
    factory: Path
    log: Path
    core: Client = field(init=False)
    daemon: Daemon = field(init=False)

    def __post_init__(self) -> None:
        self.core = Client(self.socket, timeout=5)
        self.daemon = Daemon(self.core).by("admin")

    def send(self, method: str, path: str, token: str | None = TOKEN, **more: Any) -> requests.Response:
        headers = {"Connection": "close", **more.pop("headers", {})}
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
        session = requests.Session()
        session.trust_env = False
        with session:
            return session.request(method, f"{self.url}{path}", headers=headers, timeout=20, **more)

    def get(self, path: str, **more: Any) -> Any:
        """The data of a GET that must succeed."""
        answer = self.send("GET", path, **more)
        assert answer.status_code == 200, answer.text
        assert_civil(answer)
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
    document["api"]["users"] = [
        {"username": name, "password_hash": hash, "role": "admin"}
        for name, hash in zip(("alice", "bob"), HASHES, strict=True)
    ]
    document["api"].update(api)
    return document


def settings_of(core_socket: Path, *, beyond_loopback: bool = False) -> Settings:
    runtime = core_socket.parent
    return Settings(
        core_socket, runtime, b"", audit=runtime / "audit", profile=PROFILE, beyond_loopback=beyond_loopback
    )


def gunicorn(core_socket: Path, runtime: Path, **environment: str) -> dict[str, Any]:
    """What `subprocess` takes to start the profile as its unit does."""
    return {
        "args": command("gateway-api-token.service", runtime),
        "env": {
            "GATEWAY_CORE_SOCKET": str(core_socket),
            "GATEWAY_API_TOKEN_RUNTIME": str(runtime),
            "GATEWAY_API_TOKEN_AUDIT": str(runtime / "audit"),
            **environment,
        },
    }


@contextmanager
def running_profile(folder: Path, **environment: str) -> Iterator[tuple[Profile, "subprocess.Popen[bytes]"]]:
    """A core and the profile before it; and the process of the core, which may be ended."""
    port = free_port()
    factory = folder / "factory.json"
    factory.write_text(json.dumps(factory_document(auth_token=TOKEN, listen_port=port)))
    made = Profile(f"http://127.0.0.1:{port}/api/v1", folder / "core.sock", factory, folder / "log")
    with made.log.open("wb") as log, running_core(made.socket, factory, "--sessions", "300") as core:
        process = subprocess.Popen(
            **gunicorn(made.socket, folder, **environment), stdout=log, stderr=subprocess.STDOUT
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


@pytest.fixture(scope="module")
def lone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Profile]:
    """One whose core has gone."""
    with running_profile(tmp_path_factory.mktemp("lone")) as (made, core):
        core.terminate()
        core.wait(10)
        yield made


@pytest.fixture
def sections(profile: Profile) -> Iterator[dict[str, Any]]:
    """What GET /config shows; afterwards, it runs again."""
    before = profile.stored()
    shown: dict[str, Any] = profile.get("/config")
    yield copy.deepcopy(shown)
    profile.daemon.reply(DiscardCandidate())
    profile.daemon.replace(before, None)


def send(profile: Profile, route: Route, id: object = 1, **more: Any) -> requests.Response:
    """The request of a route as it would work, unless `more` says otherwise."""
    if route.method == "PUT" and "data" not in more:
        more.setdefault("json", profile.get("/config"))
    answer = profile.send(route.method, route.path.replace("{id}", str(id)), **more)
    assert_civil(answer)
    return answer


# The table


def test_the_application_has_exactly_the_seven_routes(tmp_path: Path) -> None:
    app = create_app(WorkerParts.from_settings(settings_of(tmp_path / "none")))
    there = {
        (method, re.sub(r"<(\w+)>", r"{\1}", rule.rule))
        for rule in app.url_map.iter_rules()
        for method in rule.methods or ()
        if method != "HEAD"
    }
    assert there == {(route.method, f"/api/v1{route.path}") for route in ROUTES}
    assert len(ROUTES) == 7


@named
def test_with_the_token_everything_answers_as_the_schemas_say(profile: Profile, route: Route) -> None:
    answer = send(profile, route, id=17 if route.method == "DELETE" else 1)
    assert answer.status_code == 200
    assert set(answer.json()) == {"status", "data"}
    assert route.data is not None
    assert_is(route.data, answer.json()["data"])
    if route.paged is not None:
        assert not OF_A_PAGE & set(answer.json()["data"])


def test_what_only_the_other_profile_has_is_404(profile: Profile) -> None:
    for path in (
        "/",
        "/auth/login",
        "/health",
        "/system/config",
        "/system/version",
        "/qos",
        "/webhooks",
        "/config/",
    ):
        for token in (TOKEN, None):
            answer = profile.send("GET", path, token)
            assert_civil(answer)
            assert answer.status_code == 404


@named
def test_a_wrong_method_is_405_and_names_the_right_ones(profile: Profile, route: Route) -> None:
    for method in ("POST", "PATCH", "OPTIONS", "TRACE", "BREW"):
        answer = profile.send(method, route.path.replace("{id}", "1"))
        assert_civil(answer)
        assert answer.status_code == 405
        assert route.method in answer.headers["Allow"]


# Who may


@named
def test_without_a_token_it_is_401_and_nothing_is_said_of_the_request(profile: Profile, route: Route) -> None:
    path = route.path.replace("{id}", "abc")
    answer = profile.send(route.method, path, None, params={"typo": "x"}, data=b"{")
    assert_civil(answer)
    assert (answer.status_code, answer.json()) == (401, NOBODY)
    assert answer.headers["WWW-Authenticate"] == "Bearer"


@named
def test_with_another_token_it_is_401(profile: Profile, route: Route) -> None:
    answer = send(profile, route, token=TOKEN[:-1] + "x")
    assert (answer.status_code, answer.json()) == (401, NOBODY)


def test_a_scheme_may_be_spelled_in_any_case(profile: Profile) -> None:
    headers = {"Authorization": f"bEARER  {TOKEN} "}
    assert profile.send("GET", "/system/status", None, headers=headers).status_code == 200


def test_tokens_are_compared_in_constant_time(monkeypatch: pytest.MonkeyPatch) -> None:
    compared = []

    def compare(one: bytes, other: bytes) -> bool:
        compared.append((one, other))
        return True

    monkeypatch.setattr(hmac, "compare_digest", compare)
    assert is_token("é", TOKEN)
    assert compared == [("é".encode(), TOKEN.encode())]


@pytest.mark.parametrize(
    "presented",
    ["", TOKEN[:-1], f"{TOKEN}x", f"{TOKEN} {TOKEN}", TOKEN.upper(), MASK, TOKEN + "\0", "\u0661", "\xff"],
)
def test_only_the_token_is_the_token(presented: str) -> None:
    assert not is_token(presented, TOKEN)
    assert is_token(TOKEN, TOKEN)


def test_another_token_counts_from_the_next_request_on(profile: Profile, sections: dict[str, Any]) -> None:
    profile.commit(Edit("set", "api.auth_token", "quite-another-token"))
    for _ in range(4):
        assert profile.send("GET", "/system/status").status_code == 401
        assert profile.send("GET", "/system/status", "quite-another-token").status_code == 200


@pytest.mark.parametrize("edit", [Edit("delete", "api.auth_token"), Edit("set", "api.auth_token", None)])
def test_without_a_token_in_the_configuration_nobody_is_let_in(
    profile: Profile, sections: dict[str, Any], edit: Edit
) -> None:
    profile.commit(edit)
    for token in (TOKEN, "", "None", "null", None):
        for route in ROUTES:
            answer = profile.send(route.method, route.path.replace("{id}", "1"), token)
            assert (answer.status_code, answer.json()) == (503, {"status": "error", "message": NO_TOKEN})
            assert answer.headers["X-Request-ID"]


def test_a_disabled_api_is_off_in_this_profile_too(profile: Profile, sections: dict[str, Any]) -> None:
    profile.commit(Edit("set", "api.enabled", False))
    for route in ROUTES:
        assert profile.send(route.method, route.path.replace("{id}", "1")).status_code == 503


# Sessions and VLANs


def records_of_core(profile: Profile) -> dict[int, Any]:
    reply = profile.core.call("org.gatewayapi.core.ListSessions")
    return {record["id"]: record for record in json.loads(bytes(reply))["sessions"]}


def test_the_list_is_the_core_s_in_texts(profile: Profile) -> None:
    data = profile.get("/subscribers")
    now, held = time.time(), records_of_core(profile)
    assert [item["id"] for item in data["subscribers"]] == list(held)
    assert data["count"] == len(held) > 200
    for item in data["subscribers"]:
        record = held[item["id"]]
        assert list(item) == [
            "id", "username", "ip_address", "interface", "speed_down", "speed_up", "uptime",
        ]  # fmt: skip
        assert [item[name] for name in ("username", "ip_address", "interface")] == [
            record[name] for name in ("username", "ip_address", "interface")
        ]
        assert item["speed_down"] == rate_text(record["rate_down"])
        assert item["speed_up"] == rate_text(record["rate_up"])
        assert item["uptime"] in {uptime(record["started_at"], now - age) for age in range(5)}


def test_one_session_is_the_other_profile_s_record_in_texts_besides(profile: Profile) -> None:
    (listed,) = profile.get("/subscribers", params={"limit": "1"})["subscribers"]
    detail = profile.get(f"/subscribers/{listed['id']}")
    assert_is(SubscriberDetail, detail)
    for name in ("id", "username", "ip_address", "speed_down", "speed_up"):
        assert detail[name] == listed[name]
    assert detail["speed_down"] == rate_text(detail["rate_down_bps"])


def test_rates_that_change_show(profile: Profile) -> None:
    daemon = Daemon(profile.core)
    for down, up, texts in (
        (1_000_000_000, 64_000, ("1 Gbit/s", "64 kbit/s")),
        (1_500_000, 999, ("1.5 Mbit/s", "999 bit/s")),
    ):
        daemon.raw(SetSessionRate(3, down, up))
        shown = profile.get("/subscribers/3")
        assert (shown["speed_down"], shown["speed_up"]) == texts
        found = profile.get("/subscribers", params={"username": shown["username"]})["subscribers"]
        assert (found[0]["speed_down"], found[0]["speed_up"]) == texts


def test_a_disconnected_session_is_gone(profile: Profile) -> None:
    answer = profile.send("DELETE", "/subscribers/21")
    assert answer.json()["data"] == {"message": "Session 21 disconnected"}
    for method in ("GET", "DELETE"):
        answer = profile.send(method, "/subscribers/21")
        assert (answer.status_code, answer.json()["message"]) == (404, "No such session")
    assert 21 not in records_of_core(profile)


def test_an_id_that_is_no_session_s_is_404(profile: Profile) -> None:
    for id in ("0", "abc", "99999999", "summary"):
        for method in ("GET", "DELETE"):
            answer = profile.send(method, f"/subscribers/{id}")
            assert_civil(answer)
            assert answer.status_code == 404


@pytest.mark.parametrize("route", LISTS, ids=str)
def test_the_pages_together_are_the_whole(profile: Profile, route: Route) -> None:
    name = route.path.removeprefix("/")
    whole, pages, query = profile.get(route.path), [], {"limit": "97"}
    while True:
        page = profile.get(route.path, params=query)
        assert route.paged is not None
        assert_is(route.paged, page)
        pages += [item["id" if name == "subscribers" else "name"] for item in page[name]]
        if page["next_cursor"] is None:
            break
        query["cursor"] = page["next_cursor"]
    assert pages == [item["id" if name == "subscribers" else "name"] for item in whole[name]]


def test_the_status_is_the_core_s(profile: Profile) -> None:
    status = profile.get("/system/status")
    assert status["active_sessions"] == len(records_of_core(profile))
    assert status["uptime"] == uptime(0, status["uptime_seconds"])
    assert status["core_reachable"] is True


# The configuration


def test_the_configuration_is_shown_without_its_secrets(profile: Profile) -> None:
    answer = profile.send("GET", "/config")
    data = answer.json()["data"]
    assert data["api"]["auth_token"] == data["radius"]["secret"] == MASK
    assert [user["password_hash"] for user in data["api"]["users"]] == [MASK, MASK]
    for secret in (TOKEN, "between-us", *HASHES):
        assert secret not in answer.text


def test_what_is_shown_can_be_sent_back_and_changes_nothing(profile: Profile) -> None:
    shown = profile.send("GET", "/config")
    answer = profile.put(shown.json()["data"])
    assert answer.status_code == 200
    assert answer.json()["data"]["committed"] is False
    assert answer.json()["data"]["message"] == "Nothing to commit"
    assert answer.headers["ETag"] == shown.headers["ETag"]


def test_a_configuration_replaces_the_one_that_runs_in_one_commit(
    profile: Profile, sections: dict[str, Any]
) -> None:
    before = profile.stored()
    sections["system"]["hostname"] = "bng9"
    sections["qos"]["default_down"] = "1gbit"
    sections["api"]["users"].reverse()
    del sections["bgp"]
    answer = profile.put(sections)
    data = answer.json()["data"]
    assert answer.status_code == 200, answer.text
    assert_is(Committed, data)
    assert (data["committed"], data["author"], data["archived_revision"]) == (True, "static token", 1)
    assert profile.get("/config") == sections
    after = profile.stored()
    assert after["radius"] == before["radius"]
    assert after["api"]["auth_token"] == TOKEN
    assert after["api"]["users"] == list(reversed(before["api"]["users"]))
    archived = profile.daemon.archived(1)
    assert b"bng1" in bytes(archived["configuration"])
    assert TOKEN.encode() not in bytes(archived["configuration"])


def test_a_wrong_value_is_400_and_named_and_changes_nothing(profile: Profile) -> None:
    for name, value in (
        ("auth_token", "x" * 15),
        ("auth_token", "with a space in it"),
        ("auth_token", "é" * 20),
        ("auth_token", "x" * 257),
        ("auth_token", ""),
        ("listen_address", "localhost"),
        ("listen_address", "fe80::1%lo"),
        ("listen_address", "224.0.0.1"),
        ("listen_port", 0),
        ("listen_port", "8080"),
    ):
        before = profile.send("GET", "/config")
        sections = before.json()["data"]
        sections["api"][name] = value
        answer = profile.put(sections)
        assert_civil(answer)
        assert_invalid(answer, f"api.{name}")
        assert str(value) not in answer.text or len(str(value)) < 10
        after = profile.send("GET", "/config")
        assert (after.headers["ETag"], after.content) == (before.headers["ETag"], before.content)


def test_a_rate_that_has_lost_its_unit_is_400(profile: Profile) -> None:
    sections = profile.send("GET", "/config").json()["data"]
    answer = profile.put({**sections, "qos": {**sections["qos"], "default_up": "10"}})
    assert_invalid(answer, "qos.default_up")
    assert "10 bit/s: is the unit missing?" in answer.text


def test_a_body_that_only_the_core_has_no_room_for_is_400(profile: Profile) -> None:
    whole = b'{"a": "' + b"x" * ((1 << 20) - 20) + b'"}'
    answer = profile.send("PUT", "/config", data=whole)
    assert_civil(answer)
    assert_invalid(answer, "")


def test_what_somebody_has_staged_is_neither_mixed_in_nor_lost(
    profile: Profile, sections: dict[str, Any]
) -> None:
    profile.daemon.edit([Edit("set", "system.hostname", "staged")], None)
    diff = profile.daemon.compare(None).diff
    sections["qos"]["default_down"] = "1gbit"
    answer = profile.put(sections)
    assert_civil(answer)
    assert answer.status_code == 409
    assert "staged" in answer.json()["message"]
    assert profile.daemon.compare(None).diff == diff != ""
    assert profile.get("/config")["qos"]["default_down"] != "1gbit"
    profile.daemon.reply(DiscardCandidate())
    assert profile.put(sections).status_code == 200


def test_an_entity_tag_that_is_not_right_any_more_is_412(profile: Profile, sections: dict[str, Any]) -> None:
    seen = profile.send("GET", "/config").headers["ETag"]
    sections["qos"]["default_down"] = "1gbit"
    first = profile.put(sections, headers={"If-Match": seen})
    assert first.status_code == 200
    sections["qos"]["default_down"] = "2gbit"
    second = profile.put(sections, headers={"If-Match": seen})
    assert_civil(second)
    assert (second.status_code, second.headers["ETag"]) == (412, first.headers["ETag"])
    assert profile.put(sections, headers={"If-Match": "*"}).status_code == 200


def test_of_two_at_once_who_have_seen_the_same_one_is_told_so(
    profile: Profile, sections: dict[str, Any]
) -> None:
    from concurrent.futures import ThreadPoolExecutor

    seen = profile.send("GET", "/config").headers["ETag"]

    def put(number: int) -> int:
        wanted = {**sections, "system": {"hostname": f"bng{100 + number}"}}
        return profile.put(wanted, headers={"If-Match": seen}).status_code

    with ThreadPoolExecutor(8) as pool:
        assert sorted(pool.map(put, range(8))) == [200, *[412] * 7]


def test_without_its_token_the_configuration_turns_the_profile_off(
    profile: Profile, sections: dict[str, Any]
) -> None:
    del sections["api"]["auth_token"]
    assert profile.put(sections).status_code == 200
    assert profile.send("GET", "/config").status_code == 503


def test_the_token_is_nowhere_in_the_log(profile: Profile) -> None:
    profile.send("GET", "/vlans", headers={"X-Request-ID": "the-last-one"})
    wait_for("its line", lambda: "request_id=the-last-one" in profile.log.read_text())
    assert TOKEN not in profile.log.read_text()
    assert "Traceback" not in profile.log.read_text()


# A core that is away, or faulty


def test_without_a_core_it_is_500(lone: Profile) -> None:
    for route in ROUTES:
        began = time.monotonic()
        path = route.path.replace("{id}", "1")
        answer = lone.send(route.method, path, json={})
        assert (answer.status_code, answer.json()) == (500, {**UNREACHABLE, "hint": CoreAbsent.HINT})
        assert time.monotonic() - began < 5
        assert lone.send(route.method, path, None).status_code == 401
        assert lone.send(route.method, path, "").status_code == 401
    assert lone.send("GET", "/nope", None).status_code == 404


@pytest.mark.parametrize("fault", ["hangup", "hang", "wrongshape"])
def test_a_faulty_core_lets_nobody_in(lone: Profile, fault: str) -> None:
    with faulty_core(lone, fault):
        assert_unreachable_within_5_s(partial(lone.send, "GET", "/subscribers"))


@pytest.mark.parametrize("fault", ["hangup", "wrongshape"])
def test_a_faulty_core_after_the_access_check_is_500(lone: Profile, profile: Profile, fault: str) -> None:
    with faulty_core(lone, fault, "--access", str(profile.socket)):
        for route in ROUTES:
            if route.method == "DELETE" and fault == "wrongshape":
                continue  # Its answer is empty: nothing to be wrong.
            path = route.path.replace("{id}", "1")
            assert_unreachable_within_5_s(partial(lone.send, route.method, path, json={}))


def test_a_replacement_is_sent_once_even_when_its_answer_never_comes(
    lone: Profile, profile: Profile, tmp_path: Path
) -> None:
    count = tmp_path / "count"
    access = ("--access", str(profile.socket), "--count", str(count))
    with faulty_core(lone, "hangup", *access):
        assert lone.put({}).json() == UNREACHABLE
    assert count.read_bytes().count(b"ReplaceConfiguration") == 1


# Whether and where it listens


@pytest.fixture
def settings(profile: Profile) -> Settings:
    return settings_of(profile.socket)


def test_it_listens_where_the_configuration_says(
    profile: Profile, sections: dict[str, Any], settings: Settings
) -> None:
    profile.commit(Edit("delete", "api.listen_port"))
    assert address(settings) == "127.0.0.1:8080"
    profile.commit(Edit("set", "api.listen_address", "::1"), Edit("set", "api.listen_port", "9000"))
    assert address(settings) == "[::1]:9000"


@pytest.mark.parametrize("listen", ["0.0.0.0", "::", "192.0.2.1", "2001:db8::1", "127.0.0.1"])
def test_it_listens_beyond_loopback_only_when_told_to(
    profile: Profile, sections: dict[str, Any], settings: Settings, listen: str
) -> None:
    profile.commit(Edit("set", "api.listen_address", listen), Edit("set", "api.listen_port", 9001))
    if listen != "127.0.0.1":
        with pytest.raises(Off, match="plain HTTP would show the token"):
            address(settings)
    there = f"[{listen}]" if ":" in listen else listen
    assert address(settings_of(profile.socket, beyond_loopback=True)) == f"{there}:9001"


def test_a_token_that_is_not_there_keeps_it_off(
    profile: Profile, sections: dict[str, Any], settings: Settings
) -> None:
    profile.commit(Edit("delete", "api.auth_token"))
    with pytest.raises(Off, match=r"no api\.auth_token"):
        address(settings)


@pytest.mark.parametrize("fault", ["hangup", "wrongshape"])
def test_a_faulty_core_says_no_address(lone: Profile, fault: str) -> None:
    with faulty_core(lone, fault), pytest.raises(CoreUnavailable):
        address(settings_of(lone.socket, beyond_loopback=True))


@pytest.mark.parametrize(("text", "beyond"), [("yes", True), ("no", False), ("", False), (None, False)])
def test_only_the_setting_yes_allows_addresses_beyond_loopback(text: str | None, beyond: bool) -> None:
    environment = {} if text is None else {"GATEWAY_API_TOKEN_BEYOND_LOOPBACK": text}
    assert Settings.from_environment(environment, PROFILE).beyond_loopback is beyond


@pytest.mark.parametrize("text", ["true", "1", "YES", "yes "])
def test_what_is_neither_yes_nor_no_is_a_bad_setting(text: str) -> None:
    with pytest.raises(BadSetting, match="GATEWAY_API_TOKEN_BEYOND_LOOPBACK"):
        Settings.from_environment({"GATEWAY_API_TOKEN_BEYOND_LOOPBACK": text}, PROFILE)


def refusal(core_socket: Path, runtime: Path, **environment: str) -> tuple[int, str]:
    """The status and the one sentence with which gunicorn ends that isn't to listen."""
    ended = subprocess.run(
        **gunicorn(core_socket, runtime, **environment),
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert "Traceback" not in ended.stderr
    assert "Listening" not in ended.stderr
    (line,) = ended.stderr.splitlines()
    return ended.returncode, line


def test_a_process_that_is_not_to_listen_ends_with_a_sentence_and_for_good(
    profile: Profile, sections: dict[str, Any], tmp_path: Path
) -> None:
    status, said = refusal(profile.socket, tmp_path, GATEWAY_API_TOKEN_BEYOND_LOOPBACK="perhaps")
    assert (status, "BEYOND_LOOPBACK must be yes or no" in said) == (STATUS_OF_OFF, True)
    profile.commit(Edit("set", "api.listen_address", "192.0.2.1"))
    status, said = refusal(profile.socket, tmp_path)
    assert (status, "192.0.2.1 is not a loopback address" in said) == (STATUS_OF_OFF, True)
    profile.commit(Edit("delete", "api.auth_token"))
    status, said = refusal(profile.socket, tmp_path)
    assert status == STATUS_OF_OFF
    assert said == "the alternative profile is off: the running configuration has no api.auth_token"


def test_without_a_core_to_ask_it_ends_to_be_started_again(tmp_path: Path) -> None:
    status, said = refusal(tmp_path / "none.sock", tmp_path)
    assert status == 1
    assert said.startswith("cannot start the alternative profile: cannot call org.gatewayapi.core")


def test_the_unit_tells_systemd_when_it_listens(
    profile: Profile, sections: dict[str, Any], tmp_path: Path
) -> None:
    profile.commit(Edit("set", "api.listen_port", free_port()))
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(str(tmp_path / "notify"))
        systemd.settimeout(30)
        environment = {"NOTIFY_SOCKET": str(tmp_path / "notify")}
        process = subprocess.Popen(**gunicorn(profile.socket, tmp_path, **environment))
        try:
            assert systemd.recv(1000).startswith(b"READY=1")
        finally:
            process.terminate()
    assert process.wait(10) == 0


def reload(profile: Profile) -> None:
    parent = int(re.findall(r"Listening at: \S+ \((\d+)\)", profile.log.read_text())[-1])
    os.kill(parent, signal.SIGHUP)


def test_a_reload_listens_where_the_configuration_says_now(tmp_path: Path) -> None:
    with running_profile(tmp_path) as (profile, _):
        port = free_port()
        profile.commit(Edit("set", "api.listen_port", port))
        reload(profile)
        profile.url = f"http://127.0.0.1:{port}/api/v1"
        wait_for("an answer at the other port", lambda: answers(profile))


def test_a_reload_without_a_core_to_ask_goes_on_where_it_listens(lone: Profile) -> None:
    booted = lone.log.read_text().count("Booting worker")
    reload(lone)
    wait_for("the reload", lambda: "still listening at" in lone.log.read_text())
    wait_for("new workers", lambda: lone.log.read_text().count("Booting worker") == booted + 2)
    wait_for("an answer", lambda: lone.send("GET", "/system/status").status_code == 500)


def test_a_reload_at_an_address_that_is_not_allowed_goes_on_where_it_listens(tmp_path: Path) -> None:
    with running_profile(tmp_path) as (profile, _):
        profile.commit(Edit("set", "api.listen_address", "192.0.2.1"))
        reload(profile)
        wait_for("the reload", lambda: "192.0.2.1 is not a loopback address" in profile.log.read_text())
        assert answers(profile)


@pytest.mark.parametrize(
    ("address", "reason"),
    [("192.0.2.1", "Cannot assign requested address"), ("0.0.0.0", "Address already in use")],
)
def test_a_reload_at_an_address_that_cannot_be_bound_goes_on_where_it_listens(
    tmp_path: Path, address: str, reason: str
) -> None:
    with running_profile(tmp_path, GATEWAY_API_TOKEN_BEYOND_LOOPBACK="yes") as (profile, _):
        profile.commit(Edit("set", "api.listen_address", address))
        reload(profile)
        wait_for("the reload", lambda: f"{reason}; a restart may help" in profile.log.read_text())
        assert answers(profile)


def test_the_unit_is_started_again_but_for_what_only_an_operator_changes() -> None:
    unit = service("gateway-api-token.service")
    assert unit["RestartPreventExitStatus"] == str(STATUS_OF_OFF)
    assert unit["UnsetEnvironment"] == "SVC_API_SECRET"
    text = (ROOT / "systemd" / "gateway-api-token.service").read_text()
    assert "\nStartLimitIntervalSec=0\n" in text
    assert "\nWantedBy=multi-user.target" in text


# Its page of the reference

PAGE = (ROOT / "docs/reference/token-profile.md").read_text()
LINES = "".join(re.findall(r"^```bash\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL))


def test_every_endpoint_has_a_line_in_the_reference() -> None:
    for route in ROUTES:
        path = re.escape("$API" + route.path.replace("{id}", "$SESSION"))
        option = "" if route.method == "GET" else f".*-X {route.method}"
        assert re.search(rf"^curl{option}.*{path}(?=[\"?]|$)", LINES, re.MULTILINE), route


def test_every_line_of_the_reference_works_when_pasted(
    profile: Profile, sections: dict[str, Any], tmp_path: Path
) -> None:
    script = 'curl() { command curl --silent --show-error --fail-with-body "$@"; echo; }\n' + LINES
    script = script.replace("http://127.0.0.1:8080/api/v1", profile.url)
    ended = subprocess.run(
        ["bash", "-eu", "-o", "pipefail"],
        input=script,
        env={**os.environ, "API_TOKEN": TOKEN},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout[-2000:] + ended.stderr
    assert '"committed":true' in ended.stdout


def audited(profile: Profile, **wanted: str) -> list[dict[str, Any]]:
    """The records of the profile's audit log that have these values, the oldest first."""
    folder = profile.log.parent / "audit"
    lines = [json.loads(record) for path in sorted(folder.glob("*.sqlite")) for record in kept_in(path)]
    return [one for one in lines if wanted.items() <= one.items()]


def test_a_disconnect_is_in_the_audit_log_with_the_session_that_it_ended(profile: Profile) -> None:
    session = profile.get("/subscribers")["subscribers"][0]
    assert profile.send("DELETE", f"/subscribers/{session['id']}").ok
    *_, record = audited(profile, path=f"/api/v1/subscribers/{session['id']}", method="DELETE", result="done")
    assert (record["user"], record["status"]) == ("static token", 200)
    assert record["before"]["username"] == session["username"]


def test_a_whole_configuration_is_in_the_audit_log_with_its_revision(profile: Profile) -> None:
    document = profile.get("/config")
    document["system"]["hostname"] = "audited"
    answered = profile.put(document).json()["data"]
    *_, record = audited(profile, path="/api/v1/config", method="PUT", result="done")
    assert record["after"]["committed_at"] == answered["committed_at"]
    assert record["after"]["changes"] == 1
    assert '+ system.hostname = "audited"' in record["before"]["diff"]


def test_a_wrong_token_is_in_the_audit_log_and_no_token_ever_is(profile: Profile) -> None:
    profile.send("DELETE", "/subscribers/1", token="not-the-token-at-all")
    wanted = {"route": "/api/v1/subscribers/{id}", "method": "DELETE", "result": "refused"}
    # Such requests are counted, and written a little later.
    *_, record = wait_for("the record", lambda: audited(profile, **wanted))
    assert (record["user"], record["status"]) == (None, 401)
    written = b"".join(file.read_bytes() for file in (profile.log.parent / "audit").iterdir())
    assert TOKEN.encode() not in written
    assert b"not-the-token-at-all" not in written

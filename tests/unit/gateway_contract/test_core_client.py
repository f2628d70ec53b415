"""What the API's side makes of the core daemon's answers, good and bad."""

import threading
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gateway_contract.base.errors import (
    CoreAbsent,
    CoreLacksMethod,
    CoreUnavailable,
    Invalid,
    ListTooLarge,
    NotFound,
    Problem,
    StillConnected,
)
from gateway_contract.contract import Page
from gateway_contract.core.configuration import GetConfiguration, ReplaceCandidate
from gateway_contract.core.health import ListFaults
from gateway_contract.core.interface import CORE, REQUIRED
from gateway_contract.core.network import GetBgpSummary, GetDemuxState, ListVlans
from gateway_contract.core.sessions import GetHealth
from gateway_contract.core.traffic import WatchTraffic
from gateway_contract.core_client import CoreClient, ListParts
from gateway_contract.varlink.client import Client
from gateway_contract.varlink.dispatcher import Dispatcher, Handler, Identity, ServedInterface
from gateway_contract.varlink.protocol import ErrorReply
from gateway_contract.varlink.server import Server

Ask = Callable[[CoreClient], Any]

#: A question of each kind, by the method that it calls.
QUESTIONS: dict[str, Ask] = {
    "GetHealth": lambda daemon: daemon.call(GetHealth()),
    "CheckAccess": lambda daemon: daemon.check_access(["alice"]),
    "GetLogin": lambda daemon: daemon.get_login("alice"),
    "GetApiSettings": lambda daemon: daemon.get_settings(),
    "GetSessionsVersion": lambda daemon: daemon.get_sessions_version(),
    "ListSessions": lambda daemon: daemon.list_sessions({}, None, None),
    "GetSession": lambda daemon: daemon.get_session(7),
    "DisconnectSession": lambda daemon: daemon.disconnect_session(7),
    "DisconnectInterface": lambda daemon: daemon.disconnect_interface("ppp0", dry_run=True),
    "SetSessionRate": lambda daemon: daemon.set_session_rate(7, rate_down_bps=1000, rate_up_bps=2000),
    "GetConfiguration": lambda daemon: daemon.get_sections(GetConfiguration()),
    "ListVlans": lambda daemon: daemon.call_list(ListVlans()),
    "GetBgpSummary": lambda daemon: daemon.call_fields(GetBgpSummary(), "summary"),
    "GetDemuxState": lambda daemon: daemon.call_list(GetDemuxState()),
}


class Core:
    """A core that answers everything with the same thing, and remembers what it was asked."""

    def __init__(self, path: Path) -> None:
        self.answer: Any = {}
        self.error: ErrorReply | None = None
        self.asked: list[tuple[str, dict[str, Any]]] = []
        methods = {name: Handler(dict[str, Any], self._handler(name)) for name in QUESTIONS}
        identity = Identity("vendor", "product", "1.0", "urn:example")
        self.server = Server(path, Dispatcher(identity, [ServedInterface(CORE.name, methods, lambda: "")]))

    def _handler(self, name: str) -> Callable[[dict[str, Any]], Any]:
        def handle(parameters: dict[str, Any]) -> Any:
            self.asked.append((name, parameters))
            if self.error is not None:
                raise self.error
            return self.answer

        return handle


@pytest.fixture
def core(tmp_path: Path) -> Iterator[Core]:
    made = Core(tmp_path / "core.sock")
    thread = threading.Thread(target=made.server.serve_forever)
    thread.start()
    yield made
    made.server.close()
    thread.join(10)


@pytest.fixture
def daemon(core: Core, tmp_path: Path) -> Iterator[CoreClient]:
    client = Client(tmp_path / "core.sock", timeout=5)
    yield CoreClient(client)
    client.close()


def plain(listed: ListParts) -> dict[str, Any]:
    """The fields of a list, with all its records in one."""
    records = [record for array in listed.arrays for record in msgspec.json.decode(array)]
    others = {name: msgspec.json.decode(value) for name, value in listed.others.items()}
    return {listed.name: records, **others}


class Parts:
    """A reply in parts."""

    def __init__(self, *parts: dict[str, Any]) -> None:
        self._parts = parts

    def parts(self) -> Iterator[Any]:
        return iter(self._parts)

    def whole(self) -> Any:
        raise AssertionError("the call is not for more")


def test_the_record_of_a_session_is_the_bytes_that_the_core_sent(core: Core, daemon: CoreClient) -> None:
    core.answer = {"session": msgspec.Raw(b'{"id": 7, "rate":1.0}')}
    assert bytes(daemon.get_session(7)) == b'{"id": 7, "rate":1.0}'
    assert core.asked == [("GetSession", {"id": 7})]


@pytest.mark.parametrize("name", [f"{CORE.name}.InternalError", "org.varlink.service.InterfaceNotFound", ""])
def test_an_error_of_the_core_is_core_unavailable_after_one_call(
    core: Core, daemon: CoreClient, name: str
) -> None:
    core.error = ErrorReply.of(name)
    for method in QUESTIONS:
        core.asked.clear()
        with pytest.raises(CoreUnavailable):
            QUESTIONS[method](daemon)
        assert [name for name, _ in core.asked] == [method]


@pytest.mark.parametrize("name", ["MethodNotFound", "MethodNotImplemented"])
def test_a_core_that_lacks_a_method_is_unavailable_or_done_without_or_the_method_is_named(
    core: Core, daemon: CoreClient, name: str
) -> None:
    core.error = ErrorReply.of(f"org.varlink.service.{name}")
    for method in sorted(QUESTIONS.keys() & {one.__name__ for one in REQUIRED}):
        with pytest.raises(CoreUnavailable, match=f"lacks the method {method}, which every") as caught:
            QUESTIONS[method](daemon)
        assert not isinstance(caught.value, CoreLacksMethod)
    assert daemon.get_sessions_version() is None
    assert daemon.get_dependencies() == ()
    with pytest.raises(CoreLacksMethod, match="lacks the method ListFaults"):
        daemon.call_list(ListFaults())
    with pytest.raises(CoreLacksMethod, match="lacks the method WatchTraffic"):
        daemon.require_method(WatchTraffic(7))
    # It has a method whatever it replies to it.
    core.error = ErrorReply.of("org.varlink.service.ExpectedMore")
    daemon.require_method(GetHealth())


@pytest.mark.parametrize(
    ("parameters", "path"),
    [
        ({"parameter": "sort"}, "sort"),
        ({"parameter": "page.limit"}, "limit"),
        ({"parameter": ["id"]}, ""),
        ({}, ""),
    ],
)
def test_an_invalid_parameter_is_named_as_the_request_names_it(
    core: Core, daemon: CoreClient, parameters: Any, path: str
) -> None:
    core.error = ErrorReply.of("org.varlink.service.InvalidParameter", **parameters)
    with pytest.raises(Invalid) as caught:
        daemon.list_sessions({}, "x", None)
    assert caught.value.problems == (Problem(path, "invalid", "is invalid"),)


def test_a_document_that_is_nested_too_deeply_is_refused_as_a_whole(daemon: CoreClient) -> None:
    document: dict[str, Any] = {}
    for _ in range(20_000):
        document = {"system": document}
    with pytest.raises(Invalid, match="must not be nested as deeply"):
        daemon.call(ReplaceCandidate(document))


def test_an_invalid_cursor_and_an_unknown_session_are_told_in_words(core: Core, daemon: CoreClient) -> None:
    core.error = ErrorReply.of(f"{CORE.name}.SessionNotFound", id=7)
    with pytest.raises(NotFound, match="No such session"):
        daemon.get_session(7)
    core.error = ErrorReply.of("org.varlink.service.InvalidParameter", parameter="page.cursor")
    with pytest.raises(Invalid, match="cursor: must be what the last page gave as next_cursor"):
        daemon.list_sessions({}, None, Page(10, "x"))


def test_an_invalid_parameter_that_no_client_gave_is_core_unavailable(core: Core, daemon: CoreClient) -> None:
    core.error = ErrorReply.of("org.varlink.service.InvalidParameter", parameter="usernames")
    for method in ("GetHealth", "GetApiSettings", "CheckAccess", "GetLogin"):
        with pytest.raises(CoreUnavailable):
            QUESTIONS[method](daemon)


def test_an_answer_without_its_fields_is_core_unavailable(core: Core, daemon: CoreClient) -> None:
    for method in QUESTIONS:
        for answer in ({}, {"count": 1, "total": 1}, []):
            core.answer = answer
            with pytest.raises(CoreUnavailable):
                QUESTIONS[method](daemon)


HEALTH = {
    "uptime_seconds": 5, "active_sessions": 7, "stale_sessions": 0,
    "unavailable_sources": [], "product": "p", "version": "1",
}  # fmt: skip
ALICE = {"username": "alice", "role": "admin", "generation": "1"}


SETTINGS = {
    "enabled": True, "listen_address": "127.0.0.1", "listen_port": 8080, "denied_networks": [],
    "receivers": [], "history": {"days": 1, "mebibytes": 16},
}  # fmt: skip
LOGIN = {"token_lifetime": 60, "user": ALICE, "password_hash": "x", "highest_cost": 4}
#: A question, a good answer, and fields that make it a bad one.
SHAPES: dict[str, tuple[Ask, dict[str, Any], list[dict[str, Any]]]] = {
    "health": (
        lambda daemon: daemon.call(GetHealth()),
        # A newer core has more fields.
        {**HEALTH, "new": [1]},
        [{"uptime_seconds": each} for each in ("5", None, 1.5, msgspec.Raw(b"1" * 5000))],
    ),
    "access": (
        lambda daemon: daemon.check_access(["alice"]),
        {"enabled": True, "users": [ALICE]},
        [
            *({"users": each} for each in (None, {}, ["alice"])),
            *({"users": [{**ALICE, **each}]} for each in ({"role": "root"}, {"generation": ""})),
            *({"users": [{key: ALICE[key] for key in ALICE if key != lacking}]} for lacking in ALICE),
        ],
    ),
    "login": (
        lambda daemon: daemon.get_login("alice"),
        LOGIN,
        [{"highest_cost": 3}, {"highest_cost": 32}, {"user": {}}, {"token_lifetime": None}],
    ),
    "settings": (
        lambda daemon: daemon.get_settings(),
        SETTINGS,
        [
            *({"auth_token": each} for each in ("", "x" * 15, 1)),
            *({"listen_port": each} for each in (0, 65536)),
            *({"listen_address": None}, {"enabled": "yes"}),
        ],
    ),
    "configuration": (
        lambda daemon: daemon.get_sections(GetConfiguration()),
        {"configuration": {}, "etag": "x"},
        [{"configuration": []}, {"etag": 1}, {"etag": None}],
    ),
    "disconnect": (
        lambda daemon: daemon.disconnect_interface("ppp0", dry_run=False),
        {"sessions": []},
        [{"sessions": {}}],
    ),
    "list": (
        lambda daemon: daemon.call_list(ListVlans()),
        {"vlans": [], "count": 0},
        [{"vlans": each} for each in (None, {}, "[]")],
    ),
}


@pytest.mark.parametrize("name", SHAPES)
def test_an_answer_of_another_shape_is_core_unavailable(core: Core, daemon: CoreClient, name: str) -> None:
    ask, good, wrong = SHAPES[name]
    for fields in wrong:
        core.answer = {**good, **fields}
        with pytest.raises(CoreUnavailable):
            ask(daemon)
    core.answer = good
    ask(daemon)


def test_a_text_that_is_no_user_s_name_is_not_sent(core: Core, daemon: CoreClient) -> None:
    core.answer = {"token_lifetime": 60, "enabled": True, "users": []}
    for name in ("\ud800", "a\0", "x" * 257):
        core.asked.clear()
        assert daemon.get_login(name).user is None
        assert daemon.check_access([name, "al.ice", "x" * 256]).users == ()
        names = ["al.ice", "x" * 256]
        assert core.asked == [("GetLogin", {"username": ""}), ("CheckAccess", {"usernames": names})]


def test_a_core_that_is_not_there_is_absent(tmp_path: Path) -> None:
    with pytest.raises(CoreAbsent):
        CoreClient(Client(tmp_path / "nothing.sock", timeout=1)).call(GetHealth())


def test_sessions_that_are_still_connected_are_counted_with_the_reason(
    core: Core, daemon: CoreClient
) -> None:
    bob = {"id": 7, "username": "bob", "ip_address": None}
    core.error = ErrorReply.of(
        f"{CORE.name}.SessionsConnected", connected=2, ended=[bob, bob], reason="accel-ppp does not reply"
    )
    with pytest.raises(StillConnected, match="2 of 4 sessions are still connected: accel-ppp does not reply"):
        daemon.disconnect_interface("trunk0.100", dry_run=False)


def test_a_list_is_asked_for_whole_or_by_its_cursor_filter_and_order(core: Core, daemon: CoreClient) -> None:
    for records, ask in (
        ("sessions", lambda page: daemon.list_sessions({"username": "alice"}, "-id", page)),
        ("vlans", lambda page: daemon.call_list(ListVlans(page=page))),
    ):
        core.answer = {records: [], "count": 0, "total": 9, "next_cursor": "b"}
        assert plain(ask(Page(5, "a"))) == core.answer
        assert plain(ask(None)) == {records: [], "count": 0}
    page = {"page": {"limit": 5, "cursor": "a"}}
    filtered = {"filter": {"username": "alice"}, "sort": "-id"}
    assert [asked for _, asked in core.asked] == [{**filtered, **page}, filtered, page, {}]


def test_a_whole_list_has_the_records_or_the_error_of_all_its_parts(core: Core, daemon: CoreClient) -> None:
    parts: list[Any] = [[1, 2], msgspec.Raw(b"[ \n]"), [3]]
    core.answer = Parts(
        *({"vlans": part, "count": count, "total": 3} for part, count in zip(parts, (2, 0, 1), strict=True))
    )
    listed = daemon.call_list(ListVlans())
    assert plain(listed) == {"vlans": [1, 2, 3], "count": 3}
    # A part without records leaves nothing.
    assert [bytes(array) for array in listed.arrays] == [b"[1,2]", b"[3]"]

    def broken() -> Iterator[Any]:
        yield from [{"vlans": [1], "count": 1}] * 2
        raise ErrorReply.of(f"{CORE.name}.ReplyTooLarge")

    core.answer.parts = broken
    with pytest.raises(ListTooLarge):
        daemon.call_list(ListVlans())


def test_a_list_has_the_default_of_what_a_core_leaves_out(core: Core, daemon: CoreClient) -> None:
    core.answer = {"vlans": [], "count": 0, "total": 9}
    assert plain(daemon.call_list(ListVlans(page=Page(5)))) == {**core.answer, "next_cursor": None}
    core.answer = {"vlans": [], "count": 0, "rate_limited_total": 3}
    assert plain(daemon.call_list(GetDemuxState())) == {**core.answer, "refusals": []}
    # And no default of the total of a page.
    with pytest.raises(CoreUnavailable):
        daemon.call_list(ListVlans(page=Page(5)))


SESSION = {
    "id": 7, "session_type": "PPPoE", "state": "active", "username": "alice", "source": "lab",
    "mac_address": "02:00:00:00:00:07", "ip_address": "100.64.0.7", "access_interface": "trunk0.1000",
    "ppp_interface": "ppp7", "rate_down_bps": 50_000_000, "rate_up_bps": 10_000_000,
    "overhead_profile": "none", "vrf_steered": False, "acct_session_id": "ed2f89d94a2f20aa",
    "started_at": 1_795_271_513, "delegated_prefixes": [], "faults": [],
    **dict.fromkeys(("bytes_in", "bytes_out", "packets_in", "packets_out"), 5),
    **dict.fromkeys(("gateway", "ipv6_address", "ipv6_prefix", "outer_vlan_id", "inner_vlan_id")),
}  # fmt: skip


def test_a_session_that_ended_is_told_by_what_a_record_keeps_of_it(core: Core, daemon: CoreClient) -> None:
    core.answer = {"session": SESSION}
    ended = msgspec.to_builtins(daemon.disconnect_session(7))
    kept = ("id", "session_type", "username", "ip_address", "access_interface")
    assert ended == {name: SESSION[name] for name in (*kept, "rate_down_bps", "rate_up_bps", "started_at")}


def test_a_command_of_a_request_tells_its_user_and_an_id_of_its_own(core: Core, daemon: CoreClient) -> None:
    core.answer = {"session": SESSION}
    by_alice = daemon.with_origin("alice", map(str, count(1)).__next__)
    for _ in range(2):
        by_alice.disconnect_session(7)
    daemon.disconnect_session(7)
    assert core.asked == [
        ("DisconnectSession", {"id": 7, "author": "alice", "request_id": "1"}),
        ("DisconnectSession", {"id": 7, "author": "alice", "request_id": "2"}),
        ("DisconnectSession", {"id": 7}),
    ]

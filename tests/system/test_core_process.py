"""The core daemon as a process, called by varlink's own Python client."""

import ast
import json
import re
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import varlink
from varlink import scanner

from gateway_api.base.logs import MASK
from tests.support.documents import SECRET_HASH
from tests.support.stack import running_core, wait_for

INTERFACE = "org.gatewayapi.core"
FILE = Path(__file__).parents[2] / "gateway_api" / "wire" / f"{INTERFACE}.varlink"

PARSED = scanner.Interface(FILE.read_text())
MEMBERS: dict[str, Any] = PARSED.members

WEBHOOKS = {
    "denied_networks": ["192.0.2.0/24"],
    "receivers": [{"url": "http://127.0.0.1:9/", "events": ["session.up"]}],
}
#: A whole configuration, as a client sends it back that has read it.
REPLACEMENT = {
    **json.loads((FILE.parents[2] / "etc" / "factory.json").read_text()),
    "system": {"hostname": "bng3"},
    "radius": {"secret": MASK},
    "api": {
        "enabled": True,
        "users": [{"username": "admin", "password_hash": MASK, "role": "admin"}],
        "webhooks": WEBHOOKS,
    },
}

#: One call for every method of the interface file, in an order that leaves something for the next.
CALLS: dict[str, dict[str, Any]] = {
    "GetHealth": {},
    "GetStatistics": {},
    "GetSessionsVersion": {},
    "ListSessions": {"filter": {"type": "pppoe"}, "sort": "-username", "page": {"limit": 5}},
    "GetSession": {"id": 1},
    "SetSessionRate": {"id": 1, "rate_down_bps": 7_000_000, "rate_up_bps": 600_000},
    "DisconnectInterface": {"interface": "trunk0.1000", "dry_run": True},
    "DisconnectSession": {"id": 2},
    "ListTalkers": {"limit": 5},
    # It lasts until it is cancelled.
    "StartRateJob": {"filter": {"type": "pppoe"}, "rate_up_bps": 600_000, "per_second": 1},
    "StartDisconnectJob": {"filter": {"username": "nobody"}},
    "ListJobs": {},
    "GetJob": {"id": 1},
    "CancelJob": {"id": 1},
    "GetConfiguration": {},
    "CheckAccess": {"usernames": ["admin", "nobody"]},
    "GetLogin": {"username": "admin"},
    "GetDependencies": {},
    "EndTokens": {"username": "admin"},
    "GetApiSettings": {},
    "EditCandidate": {"edits": [{"action": "set", "path": "qos.default_up", "value_json": '"25mbit"'}]},
    "GetCandidate": {},
    "CompareConfiguration": {},
    "CommitCandidate": {"author": "admin", "comment": "faster", "confirm_seconds": 600},
    "ConfirmCommit": {},
    "DiscardCandidate": {},
    "ReplaceConfiguration": {"configuration": REPLACEMENT, "author": "admin"},
    "ListArchive": {},
    "GetArchivedRevision": {"revision": 1},
    "ReplaceCandidate": {"configuration": REPLACEMENT},
    # At last, and to what was before the last edit: who calls them all again has something to commit.
    "RollbackCandidate": {"revision": 2},
    "AmendConfiguration": {
        "edits": [{"action": "set", "path": "qos.default_down", "value_json": '"77mbit"'}],
        "author": "root",
        "action": "rescue.enable",
    },
    "RestoreRevision": {"revision": 1, "author": "root"},
    "ListChanges": {"after_sequence": 0},
    "ResolveCalls": {"request_ids": ["8d1f0c7be45a4c3d9a6e21b0f3c58e77"]},
    "ListInterfaces": {},
    "ListVlans": {"page": {"limit": 5}},
    "ListQos": {},
    "ListOverheadProfiles": {},
    "GetBgpSummary": {},
    "ListRoutes": {"page": {"limit": 50}},
    "ListCgnatSessions": {},
    "GetDemuxState": {},
    "ListFaults": {"page": {"limit": 5}},
}


#: The fields of a session that are no counters.
STAYS = ("id", "session_type", "username", "ip_address", "rate_down_bps", "rate_up_bps", "started_at")


def methods() -> list[str]:
    return [name for name, member in MEMBERS.items() if isinstance(member, scanner._Method)]


def spelled(declared: Any) -> str:
    """A type that the package parsed, as the interface file writes it."""
    if isinstance(declared, scanner._Maybe):
        return "?" + spelled(declared.element_type)
    if isinstance(declared, scanner._Array):
        return "[]" + spelled(declared.element_type)
    if isinstance(declared, scanner._CustomType):
        return str(declared.name)
    if isinstance(declared, scanner._Object):
        return "object"
    return {bool: "bool", int: "int", str: "string"}[type(declared)]


def declared_fields(declared: Any) -> list[tuple[str, str]]:
    return [(name, spelled(field)) for name, field in declared.fields.items()]


def faults(declared: Any, value: Any, place: str) -> list[str]:
    """Where a value isn't of its type; records have to have all of their fields and no others."""
    if isinstance(declared, scanner._Maybe):
        return [] if value is None else faults(declared.element_type, value, place)
    if isinstance(declared, scanner._Array):
        if not isinstance(value, list):
            return [place]
        return [f for item in value for f in faults(declared.element_type, item, f"{place}[]")]
    if isinstance(declared, scanner._CustomType):
        return faults(MEMBERS[declared.name].type, value, place)
    if isinstance(declared, scanner._Object):
        return [] if isinstance(value, dict) else [place]
    if isinstance(declared, scanner._Enum):
        return [] if value in declared.fields else [f"{place}: {value!r}"]
    if isinstance(declared, scanner._Struct):
        if not isinstance(value, dict) or set(value) != set(declared.fields):
            return [f"{place}: {value}"]
        return [f for n, field in declared.fields.items() for f in faults(field, value[n], f"{place}.{n}")]
    return [] if type(value) is type(declared) else [f"{place}: {value!r}"]


@contextmanager
def connection(path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX) as made:
        made.settimeout(60)
        made.connect(str(path))
        yield made


@contextmanager
def client(path: Path, interface: str = INTERFACE) -> Iterator[Any]:
    """varlink's client, with a method for every method of the interface that the daemon describes."""
    with varlink.Client.new_with_address(f"unix:{path}") as made, connection(path) as to_daemon:
        yield made.open(interface, connection=to_daemon)


def raw_call(path: Path, method: str, parameters: dict[str, Any]) -> dict[str, Any]:
    """The reply, field by field as it came. varlink's client would leave out what it doesn't know."""
    with connection(path) as to_daemon:
        to_daemon.sendall(json.dumps({"method": method, "parameters": parameters}).encode() + b"\0")
        received = b""
        while not received.endswith(b"\0"):
            received += to_daemon.recv(1 << 16)
        reply: dict[str, Any] = json.loads(received[:-1])
        return reply


def command_line(path: Path, method: str, parameters: str) -> tuple[str, str]:
    """What `varlink call` writes: the reply, and the error."""
    done = subprocess.run(
        [sys.executable, "-m", "varlink.cli", "call", f"unix:{path}/{method}", parameters],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return done.stdout, done.stderr


def error_of(call: Callable[[], Any]) -> tuple[str, dict[str, Any]]:
    with pytest.raises(varlink.VarlinkError) as raised:
        call()
    return raised.value.error(), raised.value.parameters()


def answers(path: Path) -> bool:
    with suppress(OSError), client(path) as core:
        return "uptime_seconds" in core.GetHealth()
    return False


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The socket of a core with 60 sessions and some faults, for the tests that leave most of them."""
    folder = tmp_path_factory.mktemp("core")
    document = json.loads((FILE.parents[2] / "etc" / "factory.json").read_text())
    document["api"]["users"] = [{"username": "admin", "password_hash": SECRET_HASH, "role": "admin"}]
    document["radius"]["secret"] = "between-us"
    document["api"]["webhooks"] = WEBHOOKS
    with core_of(folder, document, "--sessions", "60", module="tests.support.faulty_core") as _:
        with client(folder / "core") as core:
            edit = {"action": "set", "path": "system.hostname", "value_json": '"bng2"'}
            core.EditCandidate(edits=[edit])
            core.CommitCandidate(author="admin")
        yield folder / "core"


@contextmanager
def core_of(
    folder: Path, document: dict[str, Any], *arguments: str, **more: str
) -> Iterator["subprocess.Popen[bytes]"]:
    """A core at the socket `core` in the folder, which answers."""
    configure(folder, document)
    with running_core(folder / "core", folder / "factory.json", *arguments, **more) as process:
        wait_for("the core to answer", lambda: answers(folder / "core"))
        yield process


def configure(folder: Path, document: dict[str, Any]) -> None:
    (folder / "factory.json").write_text(json.dumps(document))


def command(folder: Path, *arguments: str) -> list[str]:
    return [
        *(sys.executable, "-m", "gateway_api.cli.core", "lab", "--socket", str(folder / "core")),
        *("--configuration", str(folder / "configuration")),
        *("--factory", str(folder / "factory.json"), *arguments),
    ]


def started(folder: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """A core that is expected to end by itself. The last of two equal arguments counts."""
    return subprocess.run(
        command(folder, *arguments), capture_output=True, text=True, timeout=60, check=False
    )


def newer(core: Any, known: int) -> list[int]:
    """The ids of sessions that came after one."""
    return [session["id"] for session in core.ListSessions().get("sessions", []) if session["id"] > known]


# What the daemon answers


def test_there_is_a_call_for_every_method() -> None:
    streams = ("SubscribeEvents", "SubscribeFailedSignOns", "WatchTraffic")
    assert sorted([*CALLS, *streams]) == sorted(methods())


def test_the_package_s_client_can_follow_events(shared: Path) -> None:
    declared = MEMBERS["SubscribeEvents"].out_type
    with client(shared) as core:
        before = next(iter(core.SubscribeEvents(_more=True)))
    with client(shared) as core:
        core.DisconnectSession(id=50)
    with client(shared) as core:
        place = {"boot_id": before["boot_id"], "after_sequence": before["newest"]}
        reply = next(iter(core.SubscribeEvents(_more=True, **place)))
    # varlink's client leaves out what is null.
    fields = dict.fromkeys(MEMBERS["SessionEvent"].type.fields)
    reply["events"] = [{**fields, **event} for event in reply["events"]]
    assert faults(declared, reply, "SubscribeEvents") == []
    assert [(event["event"], event["id"]) for event in reply["events"]] == [("session.down", 50)]


@pytest.mark.parametrize(
    ("method", "parameters"),
    [("SubscribeEvents", {}), ("SubscribeFailedSignOns", {}), ("WatchTraffic", {"id": 1})],
)
def test_events_are_for_callers_who_take_more_than_one_reply(
    shared: Path, method: str, parameters: dict[str, Any]
) -> None:
    reply = raw_call(shared, f"{INTERFACE}.{method}", parameters)
    assert reply["error"] == "org.varlink.service.ExpectedMore"


@pytest.mark.parametrize("method", CALLS)
def test_the_reply_of_a_method_has_exactly_the_fields_of_the_file(shared: Path, method: str) -> None:
    reply = raw_call(shared, f"{INTERFACE}.{method}", CALLS[method])
    assert "error" not in reply
    assert faults(MEMBERS[method].out_type, reply.get("parameters", {}), method) == []


@pytest.mark.parametrize("method", CALLS)
def test_the_package_s_client_can_call_a_method(shared: Path, method: str) -> None:
    # Another session than the raw calls disconnect, and the job after those that they start.
    parameters = {**CALLS[method], **({"id": 3} if method in ("DisconnectSession", "CancelJob") else {})}
    with client(shared) as core:
        reply = getattr(core, method)(**parameters)
    assert set(reply) <= set(MEMBERS[method].out_type.fields)


def test_the_package_s_command_line_can_call_a_method(shared: Path) -> None:
    reply, error = command_line(shared, f"{INTERFACE}.GetSession", '{"id": 1}')
    assert json.loads(reply)["session"]["id"] == 1
    assert error == ""


def test_the_package_s_command_line_shows_an_error(shared: Path) -> None:
    _, error = command_line(shared, f"{INTERFACE}.GetSession", '{"id": 99999}')
    assert ast.literal_eval(error) == {"error": f"{INTERFACE}.SessionNotFound", "parameters": {"id": 99999}}


def test_the_lists_that_are_checked_are_not_empty(shared: Path) -> None:
    with client(shared) as core:
        for method, parameters in CALLS.items():
            declared = MEMBERS[method].out_type.fields
            lists = [name for name, of in declared.items() if spelled(of).startswith("[]")]
            if lists:
                reply = getattr(core, method)(**parameters)
                # The outcome of a call is in one list of three.
                required = any if method == "ResolveCalls" else all
                assert required(reply[name] for name in lists), method


def test_a_whole_list_has_as_many_records_as_it_says(shared: Path) -> None:
    with client(shared) as core:
        for method in methods():
            declared = MEMBERS[method].out_type.fields
            if "total" in declared:
                whole = getattr(core, method)()
                # The first array: another one beside it is of the whole.
                records_field = next(name for name, of in declared.items() if spelled(of).startswith("[]"))
                assert whole["count"] == whole["total"] == len(whole[records_field]) > 0, method
                assert "next_cursor" not in whole, method


@pytest.mark.parametrize(
    "method", [name for name in CALLS if "page" in MEMBERS[name].in_type.fields and name != "ListSessions"]
)
def test_the_pages_of_a_list_are_the_whole_of_it(shared: Path, method: str) -> None:
    declared = MEMBERS[method].out_type.fields
    field = next(name for name, of in declared.items() if spelled(of).startswith("[]"))

    def without_counters(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [{name: value for name, value in record.items() if name != "stats"} for record in found]

    with client(shared) as core:
        whole = getattr(core, method)()[field]
        seen: list[dict[str, Any]] = []
        page: dict[str, Any] = {"limit": 7}
        while page:
            reply = getattr(core, method)(page=page)
            seen += reply[field]
            assert len(seen) <= len(whole)
            page = {"limit": 7, "cursor": reply["next_cursor"]} if reply.get("next_cursor") else {}
    assert without_counters(seen) == without_counters(whole)


def test_a_disconnected_session_is_gone_when_the_answer_comes(shared: Path) -> None:
    with client(shared) as core:
        last = core.ListSessions(sort="-id", page={"limit": 1})["sessions"][0]["id"]
        before = core.GetStatistics()["active_sessions"]
        session = core.GetSession(last)["session"]
        ended = core.DisconnectSession(last)["session"]
        assert {name: ended[name] for name in STAYS} == {name: session[name] for name in STAYS}
        assert ended["bytes_in"] >= session["bytes_in"]
        assert error_of(lambda: core.GetSession(last))[0] == f"{INTERFACE}.SessionNotFound"
        assert core.GetStatistics()["active_sessions"] == before - 1


def test_a_dry_run_says_who_would_be_disconnected_and_disconnects_nobody(shared: Path) -> None:
    with client(shared) as core:
        interface = core.GetSession(1)["session"]["access_interface"]
        before = core.ListSessions()
        found = core.DisconnectInterface(interface=interface, dry_run=True)["sessions"]
        assert 1 in {session["id"] for session in found}
        assert core.ListSessions() == before


def test_a_rate_change_shows_when_the_answer_comes(shared: Path) -> None:
    with client(shared) as core:
        was = core.GetSession(5)["session"]
        changed = core.SetSessionRate(id=5, rate_down_bps=123_000, rate_up_bps=45_000)
        session = core.GetSession(5)["session"]
    assert (session["rate_down_bps"], session["rate_up_bps"]) == (123_000, 45_000)
    for told, seen in ((changed["before"], was), (changed["after"], session)):
        assert {name: told[name] for name in STAYS} == {name: seen[name] for name in STAYS}


def test_the_configuration_comes_without_its_secrets(shared: Path) -> None:
    with client(shared) as core:
        configuration = core.GetConfiguration()["configuration"]
    assert configuration["radius"]["secret"] == MASK
    assert configuration["api"]["users"] == [{"username": "admin", "password_hash": MASK, "role": "admin"}]


def test_access_is_checked_without_hashes(shared: Path) -> None:
    with client(shared) as core:
        access = core.CheckAccess(usernames=["nobody", "admin", ""])
        assert core.CheckAccess(usernames=["nobody"]) == {"enabled": True, "users": []}
    (generation,) = (user.pop("generation") for user in access["users"])
    assert re.fullmatch("[0-9a-f]{16}", generation)
    assert access == {"enabled": True, "users": [{"username": "admin", "role": "admin"}]}


def test_a_login_gets_the_hash_of_one_user_and_the_highest_cost_of_all(shared: Path) -> None:
    with client(shared) as core:
        known, unknown = core.GetLogin(username="admin"), core.GetLogin(username="nobody")
        (user,) = core.CheckAccess(usernames=["admin"])["users"]
    expected = {"token_lifetime": 3600, "user": user, "password_hash": SECRET_HASH, "highest_cost": 4}
    assert known == expected
    assert unknown == {"token_lifetime": 3600, "highest_cost": 4}


def test_the_denied_networks_are_those_of_the_configuration(shared: Path) -> None:
    with client(shared) as core:
        assert core.GetApiSettings()["denied_networks"] == ["192.0.2.0/24"]


def test_several_clients_are_served_at_once(shared: Path) -> None:
    with client(shared) as one, client(shared) as other:
        assert other.GetHealth()["product"] == one.GetHealth()["product"] == "Subscriber Gateway"


@pytest.mark.parametrize(
    ("method", "more"),
    [
        ("GetSession", {}),
        ("DisconnectSession", {}),
        ("SetSessionRate", {"rate_down_bps": 1000, "rate_up_bps": 1000}),
    ],
)
@pytest.mark.parametrize("id", [99999, 0, -1, 2**70])
def test_an_unknown_session_is_named_by_its_id(
    shared: Path, method: str, more: dict[str, Any], id: int
) -> None:
    with client(shared) as core:
        error = error_of(lambda: getattr(core, method)(id=id, **more))
    assert error == (f"{INTERFACE}.SessionNotFound", {"id": id})


@pytest.mark.parametrize("dry_run", [False, True])
def test_an_unknown_interface_is_named(shared: Path, dry_run: bool) -> None:
    with client(shared) as core:
        error = error_of(lambda: core.DisconnectInterface(interface="nowhere0", dry_run=dry_run))
    assert error == (f"{INTERFACE}.InterfaceNotFound", {"interface": "nowhere0"})


@pytest.mark.parametrize(
    ("method", "parameters", "named"),
    [
        ("GetSession", {}, "id"),
        ("GetSession", {"id": "1"}, "id"),
        ("GetSession", {"id": True}, "id"),
        ("GetSession", {"id": None}, "id"),
        ("GetSession", {"id": 1.5}, "id"),
        ("GetSession", {"id": 1, "verbose": True}, "verbose"),
        ("GetHealth", {"verbose": True}, "verbose"),
        ("DisconnectInterface", {"interface": "trunk0.1000"}, "dry_run"),
        ("DisconnectInterface", {"interface": "trunk0.1000", "dry_run": "no"}, "dry_run"),
        ("SetSessionRate", {"id": 1, "rate_down_bps": 0, "rate_up_bps": 1}, "rate_down_bps"),
        ("SetSessionRate", {"id": 1, "rate_down_bps": 1, "rate_up_bps": -1}, "rate_up_bps"),
        ("SetSessionRate", {"id": 1, "rate_down_bps": 400_000_000_001, "rate_up_bps": 1}, "rate_down_bps"),
        ("CommitCandidate", {"author": "alice", "confirm_seconds": 0}, "confirm_seconds"),
        ("CommitCandidate", {"author": "alice", "confirm_seconds": 86_401}, "confirm_seconds"),
        ("CommitCandidate", {"author": "alice", "max_sessions_dropped": -1}, "max_sessions_dropped"),
        ("ListSessions", {"sort": "gateway"}, "sort"),
        ("ListSessions", {"filter": {"type": "PPPoE"}}, "filter.type"),
        ("ListSessions", {"filter": {"vlan": 5}}, "filter.vlan"),
        ("ListSessions", {"filter": []}, "filter"),
        ("ListSessions", {"page": {"limit": 0}}, "page.limit"),
        ("ListSessions", {"page": {"limit": 10001}}, "page.limit"),
        ("ListSessions", {"page": {}}, "page.limit"),
        ("ListSessions", {"page": {"limit": 5, "cursor": "garbage"}}, "page.cursor"),
        ("ListRoutes", {"page": {"limit": "5"}}, "page.limit"),
        ("GetDemuxState", {"page": {"limit": 0}}, "page.limit"),
    ],
)
def test_a_parameter_that_is_refused_is_named(
    shared: Path, method: str, parameters: dict[str, Any], named: str
) -> None:
    reply = raw_call(shared, f"{INTERFACE}.{method}", parameters)
    assert reply == {"error": "org.varlink.service.InvalidParameter", "parameters": {"parameter": named}}


def test_a_refused_rate_change_changes_nothing(shared: Path) -> None:
    with client(shared) as core:
        before = core.ListQos()
        parameters = {"id": 1, "rate_down_bps": 5_000_000, "rate_up_bps": 0}
        assert "InvalidParameter" in error_of(lambda: core.SetSessionRate(**parameters))[0]
        assert core.ListQos() == before


@pytest.mark.parametrize("method", ["Nothing", "getHealth", "", "_describe"])
def test_a_method_that_the_interface_lacks_is_not_found(shared: Path, method: str) -> None:
    reply = raw_call(shared, f"{INTERFACE}.{method}", {})
    assert reply == {"error": "org.varlink.service.MethodNotFound", "parameters": {"method": method}}


@pytest.mark.parametrize("interface", ["org.example.absent", "org.gatewayapi", f"{INTERFACE}.more"])
def test_an_interface_that_is_not_served_is_not_found(shared: Path, interface: str) -> None:
    reply = raw_call(shared, f"{interface}.GetHealth", {})
    assert reply["error"] == "org.varlink.service.InterfaceNotFound"
    assert reply["parameters"] == {"interface": interface}


def test_a_refused_call_leaves_the_connection_open(shared: Path) -> None:
    with client(shared) as core:
        assert error_of(lambda: core.GetSession(99999))[0] == f"{INTERFACE}.SessionNotFound"
        assert core.GetSession(1)["session"]["id"] == 1


def test_the_daemon_says_what_it_is_and_which_interfaces_it_has(shared: Path) -> None:
    with client(shared, "org.varlink.service") as service:
        info = service.GetInfo()
    assert set(info) == {"vendor", "product", "version", "url", "interfaces"}
    assert sorted(info["interfaces"]) == [INTERFACE, "org.varlink.service"]
    assert "Subscriber Gateway" in info["product"]


def test_the_daemon_describes_its_interface_with_the_very_file(shared: Path) -> None:
    with client(shared, "org.varlink.service") as service:
        assert service.GetInterfaceDescription(INTERFACE)["description"] == FILE.read_text()


def test_the_daemon_describes_what_every_service_has(shared: Path) -> None:
    own = Path(varlink.__file__).parent / "org.varlink.service.varlink"
    with client(shared, "org.varlink.service") as service:
        described = scanner.Interface(service.GetInterfaceDescription("org.varlink.service")["description"])
    theirs = scanner.Interface(own.read_text())
    for name, member in theirs.members.items():
        sides = ("in_type", "out_type") if isinstance(member, scanner._Method) else ("type",)
        for side in sides:
            ours = declared_fields(getattr(described.members[name], side))
            assert ours == declared_fields(getattr(member, side)), name


def test_the_description_of_an_interface_that_is_not_served_is_not_found(shared: Path) -> None:
    with client(shared, "org.varlink.service") as service:
        error = error_of(lambda: service.GetInterfaceDescription("org.example.absent"))
    assert error == ("org.varlink.service.InterfaceNotFound", {"interface": "org.example.absent"})


# The process


def test_only_owner_and_group_may_use_the_socket(shared: Path) -> None:
    assert stat.S_ISSOCK(shared.stat().st_mode)
    assert stat.S_IMODE(shared.stat().st_mode) == 0o660


def test_a_second_core_at_a_socket_is_refused_and_the_first_goes_on(shared: Path, tmp_path: Path) -> None:
    second = started(shared.parent, "--configuration", str(tmp_path))
    assert second.returncode == 1
    assert second.stderr.endswith(f'"cannot start the core daemon: another process serves {shared}"\n')
    assert answers(shared)


def test_the_socket_of_a_core_that_stands_still_is_not_taken_over(
    tmp_path: Path, document: dict[str, Any]
) -> None:
    with core_of(tmp_path, document) as first:
        first.send_signal(signal.SIGSTOP)
        second = started(tmp_path, "--configuration", str(tmp_path / "other"))
        first.send_signal(signal.SIGCONT)
        assert second.returncode == 1
        assert "another process serves" in second.stderr
        assert answers(tmp_path / "core")


def test_the_socket_of_a_core_that_was_killed_is_taken_over(tmp_path: Path, document: dict[str, Any]) -> None:
    with core_of(tmp_path, document) as first:
        first.kill()
        first.wait(60)
        assert (tmp_path / "core").exists()
        assert not answers(tmp_path / "core")
        with core_of(tmp_path, document):
            assert answers(tmp_path / "core")


def test_a_file_that_is_no_socket_is_not_taken_over(tmp_path: Path, document: dict[str, Any]) -> None:
    configure(tmp_path, document)
    (tmp_path / "core").write_text("precious")
    with subprocess.Popen(command(tmp_path), stderr=subprocess.DEVNULL) as process:
        try:
            wait_for("its end or an answer", lambda: process.poll() is not None or answers(tmp_path / "core"))
        finally:
            process.terminate()
    assert (tmp_path / "core").exists()
    assert (tmp_path / "core").read_text() == "precious"


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGINT])
def test_a_core_ends_within_moments_and_removes_its_socket(
    tmp_path: Path, document: dict[str, Any], end: signal.Signals
) -> None:
    with core_of(tmp_path, document) as process, client(tmp_path / "core") as core:
        assert core.GetHealth()
        began = time.monotonic()
        process.send_signal(end)
        assert process.wait(60) == 0
        # Less than a connection may be waited for.
        assert time.monotonic() - began < 10
        assert not (tmp_path / "core").exists()


def test_a_core_goes_on_when_everybody_was_disconnected(tmp_path: Path, document: dict[str, Any]) -> None:
    with (
        core_of(tmp_path, document, "--sessions", "3", "--arrivals", "50") as process,
        client(tmp_path / "core") as core,
    ):
        known = 3
        for _ in range(5):
            for vlan in core.ListVlans()["vlans"]:
                core.DisconnectInterface(interface=vlan["name"], dry_run=False)
            known = max(wait_for("arrivals", lambda known=known: newer(core, known), 10))
        assert process.poll() is None


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (None, "cannot read the configuration"),
        ("{", "cannot read the configuration"),
        ('{"system": {"hostname": "bng1"}}', "interfaces: is required"),
    ],
)
def test_a_core_without_a_valid_configuration_says_why_and_does_not_start(
    tmp_path: Path, content: str | None, sentence: str
) -> None:
    if content is not None:
        (tmp_path / "factory.json").write_text(content)
    core = started(tmp_path)
    assert core.returncode == 1
    assert 'message="cannot start the core daemon: ' in core.stderr
    assert sentence in core.stderr
    assert core.stderr.count("\n") == 1
    assert not (tmp_path / "core").exists()


def test_a_core_whose_folder_is_missing_says_why_and_does_not_start(
    tmp_path: Path, document: dict[str, Any]
) -> None:
    configure(tmp_path, document)
    core = started(tmp_path, "--socket", str(tmp_path / "absent" / "core"))
    assert core.returncode == 1
    assert re.search(r'^time=.* message="cannot start the core daemon: .+"\n\Z', core.stderr, re.MULTILINE)


@pytest.mark.parametrize(
    "arguments",
    [("--sessions", "-1"), ("--sessions", "200001"), ("--sessions", "x"), ("--arrivals", "nan")],
    ids="=".join,
)
def test_an_argument_out_of_range_is_refused(tmp_path: Path, arguments: tuple[str, str]) -> None:
    core = started(tmp_path, *arguments)
    assert core.returncode == 2
    assert f"Invalid value for '{arguments[0]}'" in core.stderr

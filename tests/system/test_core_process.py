"""The core daemon as a process, called by varlink's own Python client."""

import json
import re
import signal
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import varlink
from varlink import scanner

from gateway_contract.base.logs import MASK
from gateway_contract.varlink.client import Client
from tests.support.documents import SECRET_HASH, valid_document
from tests.support.stack import PATIENCE, call_core, running_core, wait_for

INTERFACE = "org.gatewayapi.core"
FILE = Path(__file__).parents[2] / "gateway_contract" / f"{INTERFACE}.varlink"

PARSED = scanner.Interface(FILE.read_text())
MEMBERS: dict[str, Any] = PARSED.members

WEBHOOKS = {
    "denied_networks": ["192.0.2.0/24"],
    "receivers": [{"url": "http://127.0.0.1:9/", "events": ["session.up"]}],
}
#: A whole configuration, as a client sends it back that has read it.
REPLACEMENT = {
    **json.loads((FILE.parents[1] / "etc" / "factory.json").read_text()),
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
    "CancelJob": {"id": 2},
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


def methods() -> list[str]:
    return [name for name, member in MEMBERS.items() if isinstance(member, scanner._Method)]


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
        made.settimeout(PATIENCE)
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


def answers(path: Path) -> bool:
    with suppress(OSError), client(path) as core:
        return "uptime_seconds" in core.GetHealth()
    return False


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The socket of a core with 60 sessions and some faults, for the tests that leave most of them."""
    folder = tmp_path_factory.mktemp("core")
    document = json.loads((FILE.parents[1] / "etc" / "factory.json").read_text())
    document["api"]["users"] = [{"username": "admin", "password_hash": SECRET_HASH, "role": "admin"}]
    document["radius"]["secret"] = "between-us"
    document["api"]["webhooks"] = WEBHOOKS
    with core_of(folder, document, "--sessions", "60", module="tests.support.faulty_core") as _:
        with client(folder / "core") as core:
            edit = {"action": "set", "path": "system.hostname", "value_json": '"bng2"'}
            core.EditCandidate(edits=[edit])
            core.CommitCandidate(author="admin")
            core.StartDisconnectJob(filter={"username": "nobody"})
        yield folder / "core"


@contextmanager
def core_of(
    folder: Path, document: dict[str, Any], *arguments: str, **more: str
) -> Iterator["subprocess.Popen[bytes]"]:
    """A core at the socket `core` in the folder, which answers."""
    (folder / "factory.json").write_text(json.dumps(document))
    with running_core(folder / "core", folder / "factory.json", *arguments, **more) as process:
        wait_for("the core to answer", lambda: answers(folder / "core"))
        yield process


def started(folder: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """A core that is expected to end by itself. The last of two equal arguments counts."""
    command = [
        *(sys.executable, "-m", "gateway_core", "lab", "--socket", str(folder / "core")),
        *("--configuration", str(folder / "configuration")),
        *("--factory", str(folder / "factory.json"), *arguments),
    ]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)


# What the daemon answers


def test_the_reply_of_each_method_has_exactly_the_fields_of_the_file(shared: Path) -> None:
    streams = ("SubscribeEvents", "SubscribeFailedSignOns", "WatchTraffic")
    assert sorted([*CALLS, *streams]) == sorted(methods())
    for method, parameters in CALLS.items():
        answer = raw_call(shared, f"{INTERFACE}.{method}", parameters)
        assert "error" not in answer, method
        reply, declared = answer.get("parameters", {}), MEMBERS[method].out_type
        assert faults(declared, reply, method) == []
        lists = [reply[name] for name, of in declared.fields.items() if isinstance(of, scanner._Array)]
        # The outcome of a call is in one list of three.
        required = any if method == "ResolveCalls" else all
        assert not lists or required(lists), method


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


@pytest.mark.parametrize("method", [name for name in methods() if "total" in MEMBERS[name].out_type.fields])
def test_the_pages_of_a_list_are_the_whole_of_it(shared: Path, method: str) -> None:
    declared = MEMBERS[method].out_type.fields
    # The first array: another one beside it is of the whole.
    field = next(name for name, of in declared.items() if isinstance(of, scanner._Array))

    def without_counters(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [{name: value for name, value in record.items() if name != "stats"} for record in found]

    with client(shared) as core:
        whole = getattr(core, method)()
        assert whole["count"] == whole["total"] == len(whole[field]) > 0
        assert "next_cursor" not in whole
        seen: list[dict[str, Any]] = []
        page: dict[str, Any] = {"limit": 7}
        while page:
            reply = getattr(core, method)(page=page)
            seen += reply[field]
            assert len(seen) <= len(whole[field])
            page = {"limit": 7, "cursor": reply["next_cursor"]} if reply.get("next_cursor") else {}
    assert without_counters(seen) == without_counters(whole[field])


def test_what_the_api_requires_of_its_users_has_the_hash_of_one_alone(shared: Path) -> None:
    with client(shared) as core:
        configuration = core.GetConfiguration()["configuration"]
        access = core.CheckAccess(usernames=["nobody", "admin", ""])
        known, unknown = core.GetLogin(username="admin"), core.GetLogin(username="nobody")
    assert configuration["radius"]["secret"] == MASK
    assert configuration["api"]["users"] == [{"username": "admin", "password_hash": MASK, "role": "admin"}]
    (user,) = access["users"]
    assert re.fullmatch("[0-9a-f]{16}", user["generation"])
    assert access["enabled"]
    assert {**user, "generation": ""} == {"username": "admin", "role": "admin", "generation": ""}
    expected = {"token_lifetime": 3600, "user": user, "password_hash": SECRET_HASH, "highest_cost": 4}
    assert known == expected
    assert unknown == {"token_lifetime": 3600, "highest_cost": 4}


def test_what_does_not_exist_is_named_and_the_connection_stays_open(shared: Path) -> None:
    rates = {"rate_down_bps": 1000, "rate_up_bps": 1000}
    with client(shared) as core:
        for method, name, value, more in (
            ("GetSession", "id", 99999, {}),
            ("DisconnectSession", "id", -1, {}),
            ("SetSessionRate", "id", 2**70, rates),
            ("DisconnectInterface", "interface", "nowhere0", {"dry_run": True}),
            ("DisconnectInterface", "interface", "nowhere0", {"dry_run": False}),
        ):
            with pytest.raises(varlink.VarlinkError) as raised:
                getattr(core, method)(**{name: value}, **more)
            kind = "Session" if name == "id" else "Interface"
            assert raised.value.error() == f"{INTERFACE}.{kind}NotFound"
            assert raised.value.parameters() == {name: value}


@pytest.mark.parametrize(
    ("method", "parameters", "named"),
    [
        ("GetSession", {}, "id"),
        ("GetSession", {"id": 1, "verbose": True}, "verbose"),
        ("DisconnectInterface", {"interface": "trunk0.1000"}, "dry_run"),
        ("SetSessionRate", {"id": 1, "rate_down_bps": 0, "rate_up_bps": 1}, "rate_down_bps"),
        ("SetSessionRate", {"id": 1, "rate_down_bps": 400_000_000_001, "rate_up_bps": 1}, "rate_down_bps"),
        ("CommitCandidate", {"author": "alice", "confirm_seconds": 86_401}, "confirm_seconds"),
        ("CommitCandidate", {"author": "alice", "max_sessions_dropped": -1}, "max_sessions_dropped"),
        ("ListSessions", {"sort": "gateway"}, "sort"),
        ("ListSessions", {"filter": {"vlan": 5}}, "filter.vlan"),
        ("ListSessions", {"page": {"limit": 10001}}, "page.limit"),
        ("ListSessions", {"page": {"limit": 5, "cursor": "garbage"}}, "page.cursor"),
    ],
)
def test_a_parameter_that_is_refused_is_named(
    shared: Path, method: str, parameters: dict[str, Any], named: str
) -> None:
    reply = raw_call(shared, f"{INTERFACE}.{method}", parameters)
    assert reply == {"error": "org.varlink.service.InvalidParameter", "parameters": {"parameter": named}}


# The process


def test_the_socket_of_a_core_that_stands_still_is_not_taken_over(
    tmp_path: Path, document: dict[str, Any]
) -> None:
    with core_of(tmp_path, document) as first:
        first.send_signal(signal.SIGSTOP)
        second = started(tmp_path, "--configuration", str(tmp_path / "other"))
        first.send_signal(signal.SIGCONT)
        assert second.returncode == 1
        said = f'"cannot start the core daemon: another process serves {tmp_path / "core"}"\n'
        assert second.stderr.endswith(said)
        assert answers(tmp_path / "core")


def test_the_socket_of_a_core_that_was_killed_is_taken_over(tmp_path: Path, document: dict[str, Any]) -> None:
    with core_of(tmp_path, document) as first:
        first.kill()
        first.wait(60)
        assert (tmp_path / "core").exists()
        assert not answers(tmp_path / "core")
        with core_of(tmp_path, document):
            assert answers(tmp_path / "core")


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGINT])
def test_a_core_ends_and_removes_its_socket(
    tmp_path: Path, document: dict[str, Any], end: signal.Signals
) -> None:
    with core_of(tmp_path, document) as process, client(tmp_path / "core") as core:
        assert core.GetHealth()
        # A connection is open.
        process.send_signal(end)
        assert process.wait(PATIENCE) == 0
        assert not (tmp_path / "core").exists()


@pytest.mark.parametrize(
    ("content", "arguments", "status", "sentence"),
    [
        (None, (), 1, "cannot read the configuration"),
        ("{", (), 1, "cannot read the configuration"),
        ('{"system": {"hostname": "bng1"}}', (), 1, "interfaces: is required"),
        (json.dumps(valid_document()), ("--socket", "/absent/core"), 1, "No such file or directory"),
        ("{", ("--sessions", "200001"), 2, "Invalid value for '--sessions'"),
        ("{", ("--arrivals", "nan"), 2, "Invalid value for '--arrivals'"),
    ],
)
def test_a_core_that_cannot_start_says_why(
    tmp_path: Path, content: str | None, arguments: tuple[str, ...], status: int, sentence: str
) -> None:
    if content is not None:
        (tmp_path / "factory.json").write_text(content)
    core = started(tmp_path, *arguments)
    assert core.returncode == status
    assert sentence in core.stderr
    assert status == 2 or core.stderr.count('message="cannot start the core daemon: ') == 1
    assert not (tmp_path / "core").exists()


# Changes that the API didn't make.


FACTORY = Path(__file__).parents[2] / "etc" / "factory.json"


@contextmanager
def core(folder: Path) -> Iterator[tuple[Client, Any]]:
    started = running_core(folder / "core", FACTORY, "--users", str(folder / "users"), "--sessions", "5")
    with started as process, closing(Client(folder / "core", timeout=10)) as client:
        yield client, process


def changes(client: Client) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(bytes(client.call(f"{INTERFACE}.ListChanges", {})))["changes"]
    return found


def commit(client: Client, hostname: str, **more: Any) -> None:
    edit = {"action": "set", "path": "system.hostname", "value_json": f'"{hostname}"'}
    client.call(f"{INTERFACE}.EditCandidate", {"edits": [edit], "request_id": "of-the-api"})
    client.call(f"{INTERFACE}.CommitCandidate", {"author": "alice", **more})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    users = [{"username": "admin", "password_hash": SECRET_HASH, "role": "admin"}]
    (tmp_path / "users").write_text(json.dumps(users))
    return tmp_path


def test_a_commit_that_was_not_noted_before_a_crash_is_noted_at_the_next_start(folder: Path) -> None:
    with core(folder) as (client, process):
        commit(client, "bng2")
        noted = changes(client)
        assert [change["action"] for change in noted] == ["configuration.commit"]
        process.send_signal(signal.SIGKILL)
        process.wait(60)
    (folder / "core").unlink()
    # As if it had ended between the two.
    (file,) = (folder / "configuration" / "changes").iterdir()
    file.write_bytes(b"")
    for _ in range(2):
        with core(folder) as (client, _):
            assert changes(client) == noted


@pytest.mark.parametrize("of_the_api", [True, False])
def test_a_core_that_has_ended_leaves_files_that_version_0_1_0_reads(folder: Path, of_the_api: bool) -> None:
    with core(folder) as (client, _):
        commit(client, "bng2", **({"request_id": "of-the-api"} if of_the_api else {}))
        assert "change" in json.loads((folder / "configuration" / "state.json").read_text())
    state = json.loads((folder / "configuration" / "state.json").read_text())
    assert state["change"] is None
    with closing(sqlite3.connect(folder / "configuration" / "changes" / "changes.sqlite")) as log:
        notes = [json.loads(note) for (note,) in log.execute("SELECT note FROM change")]
    # The fields of that version.
    known = {"id", "at", "action", "user", "process", "author", "comment", "before", "after"}
    assert [note.keys() - known for note in notes] == [set()] * (not of_the_api)


MEGABIT = 1_000_000


def test_the_former_rate_returns_after_a_restart_of_the_core(
    tmp_path: Path, document: dict[str, Any]
) -> None:
    socket, factory = tmp_path / "core.sock", tmp_path / "factory.json"
    factory.write_text(json.dumps(document))

    def rates(id: int) -> tuple[int, int]:
        session = call_core(socket, "GetSession", id=id)["session"]
        return session["rate_down_bps"] // MEGABIT, session["rate_up_bps"] // MEGABIT

    with running_core(socket, factory, "--sessions", "20") as core:
        # No default: the core cannot know them but from its disk.
        call_core(socket, "SetSessionRate", id=7, rate_down_bps=50 * MEGABIT, rate_up_bps=5 * MEGABIT)
        call_core(socket, "SetSessionRate", id=7, rate_down_bps=300 * MEGABIT, expires_in=5)
        call_core(socket, "SetSessionRate", id=8, rate_down_bps=300 * MEGABIT, expires_in=3600)
        core.kill()
        core.wait()
    with running_core(socket, factory, "--sessions", "20"):
        # A busy machine may have taken 5 s until now.
        assert rates(7) in ((300, 5), (50, 5))
        assert rates(8) == (300, 20)
        wait_for("the former rates", lambda: rates(7) == (50, 5))
        assert rates(8) == (300, 20)

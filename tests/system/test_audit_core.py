"""What is changed at the core by anybody but the API is in the audit log, too: each change once, whatever is
killed or stopped meanwhile."""

import json
import os
import shutil
import signal
import socket
import sqlite3
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest

from gateway_api.audit.core_changes import record_new
from gateway_api.audit.log import AuditLog
from gateway_api.audit.record import gap as gap_record
from gateway_api.audit.trail import LogPlace
from gateway_api.core.records.changes import Caller, Note
from gateway_api.core.records.changes import ChangeLog as Noted
from gateway_api.core_client.commands import Daemon
from gateway_api.wire.core.configuration import ChangeRecord, ChangesReply, ListChanges
from gateway_api.wire.varlink.client import Client
from tests.contract.test_audit import Gateway, children, kept_in
from tests.support.documents import SECRET_HASH
from tests.support.pools import Here
from tests.support.relay import Relay, relayed
from tests.support.stack import Api, call_core, running_api, running_core, running_stack, wait_for

RATES = {"rate_down_bps": 5_000_000, "rate_up_bps": 1_000_000}
TEXTS = {"rate_down": "50 mbit", "rate_up": "10 mbit"}
NOW = 1_700_000_000
HOSTNAME = {"action": "set", "path": "system.hostname"}


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    state = tmp_path_factory.mktemp("foreign")
    with running_stack(state, sessions=300) as (api, process):
        yield Gateway(api, state, process)


def core(gateway: Gateway, method: str, **parameters: Any) -> Any:
    """As somebody at the core's socket."""
    return call_core(Path(gateway.api.environment["CORE_SOCKET"]), method, **parameters)


def stage(gateway: Gateway, hostname: str) -> None:
    core(gateway, "EditCandidate", edits=[{**HOSTNAME, "value_json": f'"{hostname}"'}])


def foreign(gateway: Gateway, **query: Any) -> list[dict[str, Any]]:
    """The records of what the API didn't do, the newest first."""
    return [record for record in gateway.records(**query) if record["role"] == "system"]


def told(gateway: Gateway, action: str, number: int = 1) -> dict[str, Any]:
    """The newest of so many records of an action, once they are there."""
    wait_for(action, lambda: len(foreign(gateway, action=action)) >= number, 20)
    records = foreign(gateway, action=action)
    assert len(records) == number
    return records[0]


def counted(gateway: Gateway) -> int:
    """How many foreign changes are recorded; all that happened are, once no more come."""
    return len(foreign(gateway))


def test_a_session_that_is_ended_at_the_core_is_recorded_with_who_did_it(gateway: Gateway) -> None:
    before = gateway.api.get("/subscribers/7")
    began = time.time()
    core(gateway, "DisconnectSession", id=7)
    record = told(gateway, "subscribers.disconnect")
    assert (record["user"], record["result"], record["address"]) == ("root", "done", None)
    assert str(os.getpid()) in record["message"]
    assert began - 1 <= record["at"] <= time.time() + 1
    for name in ("id", "username", "ip_address", "access_interface", "rate_down_bps"):
        assert record["before"][name] == before[name]


def test_rates_and_interfaces_that_are_changed_at_the_core_are_recorded(gateway: Gateway) -> None:
    core(gateway, "SetSessionRate", id=8, **RATES)
    record = told(gateway, "subscribers.change_rate")
    assert record["before"]["id"] == 8
    assert record["after"] == RATES
    assert f"socket ({record['before']['username']}, " in record["message"]
    interface = gateway.api.get("/subscribers/8")["access_interface"]
    core(gateway, "DisconnectInterface", interface=interface, dry_run=True)
    core(gateway, "DisconnectInterface", interface=interface, dry_run=False)
    record = told(gateway, "subscribers.disconnect_by_interface")
    assert record["before"]["interface"] == interface
    assert 8 in [session["id"] for session in record["before"]["sessions"]]


def test_a_commit_at_the_core_is_recorded_with_its_author_and_what_it_changed(gateway: Gateway) -> None:
    stage(gateway, "console")
    assert 'system.hostname = "console"' in told(gateway, "configuration.edit_all")["after"]["diff"]
    core(gateway, "CommitCandidate", author="alice", comment="by hand")
    record = told(gateway, "configuration.commit")
    assert record["user"] == "root"
    assert record["body"] == {"author": "alice", "comment": "by hand"}
    assert '+ system.hostname = "console"' in record["before"]["diff"]
    assert (record["after"]["changes"], record["after"]["sessions_dropped"]) == (1, 0)


def test_a_secret_that_is_set_at_the_core_is_in_no_record_and_no_file_of_the_log(gateway: Gateway) -> None:
    secret = "correct-horse-battery"
    edit = {"action": "set", "path": "radius.secret", "value_json": f'"{secret}"'}
    number = counted(gateway)
    core(gateway, "EditCandidate", edits=[edit])
    core(gateway, "DiscardCandidate")
    wait_for("both records", lambda: counted(gateway) == number + 2, 20)
    assert secret not in gateway.text()
    kept = gateway.state / "configuration" / "changes"
    assert [path for path in kept.iterdir() if secret.encode() in path.read_bytes()] == []


def test_what_fails_or_changes_nothing_at_the_core_is_not_recorded(gateway: Gateway) -> None:
    number = counted(gateway)
    with pytest.raises(Exception, match="SessionNotFound"):
        core(gateway, "DisconnectSession", id=99_999)
    core(gateway, "DiscardCandidate")
    core(gateway, "SetSessionRate", id=9, **RATES)
    wait_for("the record", lambda: counted(gateway) > number, 20)
    assert counted(gateway) == number + 1


def test_an_unconfirmed_commit_of_the_api_that_returns_is_recorded_once(gateway: Gateway) -> None:
    hostname = gateway.api.get("/system/config")["system"]["hostname"]
    gateway.ask("POST", "/system/config/set", json={"path": "system.hostname", "value": "for-a-while"})
    commits = len(foreign(gateway, action="configuration.commit"))
    assert gateway.ask("POST", "/system/config/commit", json={"confirm_seconds": 1}).ok
    record = told(gateway, "configuration.return")
    assert record["user"] == "core"
    assert record["body"] == {"author": "core", "comment": "not confirmed in time"}
    assert f'+ system.hostname = "{hostname}"' in record["before"]["diff"]
    assert len(foreign(gateway, action="configuration.commit")) == commits


def test_the_changes_of_the_api_are_recorded_once_and_as_its_own(gateway: Gateway) -> None:
    number = counted(gateway)
    done = [
        gateway.ask("PUT", "/subscribers/11/rate", json={"rate_down": "7 mbit", "rate_up": "1 mbit"}),
        gateway.ask("DELETE", "/subscribers/11"),
        gateway.ask("POST", "/subscribers/disconnect-by-interface", json={"interface": "trunk0.1000"}),
        gateway.ask("POST", "/system/config/set", json={"path": "system.hostname", "value": "by-api"}),
        gateway.ask("POST", "/system/config/commit", json={"confirm_seconds": 600}),
        gateway.ask("POST", "/system/config/confirm"),
        gateway.ask("POST", "/system/config/rollback", json={"revision": 1}),
        gateway.ask("POST", "/system/config/discard"),
    ]
    for answer in done:
        assert answer.ok, answer.text
        assert len(gateway.records_of(answer)) == 1
    # One of somebody else's comes after them, or they were still under way.
    core(gateway, "SetSessionRate", id=12, **RATES)
    wait_for("a later record", lambda: counted(gateway) > number, 20)
    assert counted(gateway) == number + 1


# While something is down


@dataclass
class Apart:
    """A core and an API that are started and ended apart from each other; `state` is that of a stack."""

    folder: Path
    state: Path

    @property
    def socket(self) -> Path:
        return self.folder / "core"

    @contextmanager
    def core(self) -> Iterator[int]:
        with running_core(self.socket, self.folder / "factory.json", "--sessions", "500") as process:
            yield process.pid

    @contextmanager
    def api(self) -> Iterator[int]:
        """The arbiter, which has two workers."""
        with running_api(self.socket, self.state):
            (arbiter,) = (
                pid
                for pid in children(os.getpid())
                if b"gateway_api.serving.users" in Path(f"/proc/{pid}/cmdline").read_bytes()
            )
            yield arbiter

    def change(self, *ids: int) -> None:
        for id in ids:
            call_core(self.socket, "SetSessionRate", id=id, **RATES)

    def noted(self) -> list[int]:
        """The numbers of all changes that the core tells of."""
        with closing(Client(self.socket, timeout=10)) as client:
            daemon = Daemon(client)
            name = daemon.reply(ListChanges(None, 0)).log
            found: list[int] = []
            while changes := daemon.reply(ListChanges(name, len(found))).changes:
                found += [change.sequence for change in changes]
        return found

    def recorded(self) -> list[int]:
        """The numbers in the audit log, in the order of the records."""
        path = self.state / "alone" / "audit" / "known.sqlite"
        try:
            records = [json.loads(record) for record in kept_in(path)] if path.exists() else []
        except sqlite3.OperationalError:
            # It is being made.
            return []
        told = [record["request_id"] for record in records if record["role"] == "system"]
        return [int(name.rpartition("-")[2]) for name in told]


@pytest.fixture
def apart(tmp_path: Path, gateway: Gateway) -> Iterator[Apart]:
    document = json.loads((Path(__file__).parents[2] / "etc" / "factory.json").read_text())
    document["api"]["users"] = [{"username": "admin", "password_hash": SECRET_HASH, "role": "admin"}]
    (tmp_path / "factory.json").write_text(json.dumps(document))
    for name in ("certificate.pem", "key.pem", "secret"):
        shutil.copy(gateway.state / name, tmp_path / name)
    yield Apart(tmp_path, tmp_path)


def test_what_is_changed_while_the_api_is_down_is_recorded_when_it_is_back(apart: Apart) -> None:
    with apart.core():
        apart.change(1, 2, 3)
    with apart.core():
        with apart.api():
            wait_for("the changes from before", lambda: apart.recorded() == [1, 2, 3], 20)
        apart.change(4)
        with apart.api():
            wait_for("the change from meanwhile", lambda: apart.recorded() == [1, 2, 3, 4], 20)


@pytest.mark.slow
def test_each_change_is_recorded_once_whoever_is_killed(apart: Apart) -> None:
    random = Random(4711)
    for number in range(6):
        with apart.core() as core_process, apart.api() as arbiter:
            apart.change(*range(1, 6))
            time.sleep(random.uniform(0, 1.5))
            match number % 3:
                case 0:
                    for worker in children(arbiter):
                        os.kill(worker, signal.SIGKILL)
                case 1:
                    os.kill(arbiter, signal.SIGKILL)
                case _:
                    os.kill(core_process, signal.SIGKILL)
                    continue
            apart.change(*range(6, 9))
    with apart.core(), apart.api():
        apart.change(9)
        noted = apart.noted()
        wait_for("the last record", lambda: noted[-1] in apart.recorded(), 20)
        assert apart.recorded() == noted == list(range(1, len(noted) + 1))
        assert len(noted) >= 6 * 5 + 4 * 3 + 1


def test_workers_that_are_forked_while_records_are_written_can_write_theirs(gateway: Gateway) -> None:
    number = counted(gateway)
    for _ in range(5):
        for worker in gateway.workers:
            os.kill(worker, signal.SIGKILL)
        for _ in range(10):
            core(gateway, "SetSessionRate", id=12, **RATES)
    # The connections to workers that are gone.
    gateway.api.session.close()
    wait_for("all records", lambda: counted(gateway) >= number + 50, 30)
    assert counted(gateway) == number + 50
    assert len(gateway.records_of(gateway.ask("PUT", "/subscribers/12/rate", json=TEXTS))) == 1


# A change of the API whose reply is lost


@pytest.fixture
def relay(apart: Apart) -> Iterator[Relay]:
    with relayed(apart.folder / "relay", apart.socket) as made:
        yield made


@contextmanager
def api_behind(relay: Relay, apart: Apart, gateway: Gateway) -> Iterator[Api]:
    with running_api(apart.folder / "relay", apart.state, workers=1) as url:
        made = Api({**gateway.api.environment, "GATEWAY_URL": url, "ADMIN_PASSWORD": "secret"})
        made.token("admin")
        staged = made.send("POST", "/system/config/set", "admin", json=STAGED)
        assert staged.status_code == 200
        yield made


STAGED = {"path": "system.hostname", "value": "after"}
#: A client may send the same id with each request.
SAME = {"X-Request-ID": "the-same"}


def commits(apart: Apart) -> list[dict[str, Any]]:
    """The records of commits as they are in the audit log, the oldest first."""
    records = map(json.loads, kept_in(apart.state / "alone" / "audit" / "known.sqlite"))
    return [record for record in records if record["action"] == "configuration.commit"]


def lose_commit(api: Api, apart: Apart) -> None:
    """Sends a commit whose reply the relay loses."""
    lost = api.send("POST", "/system/config/commit", "admin", headers=SAME)
    assert lost.status_code == 500
    assert [record["result"] for record in commits(apart)] == ["unanswered"]


def hostname(apart: Apart) -> str:
    return str(call_core(apart.socket, "GetConfiguration")["configuration"]["system"]["hostname"])


@pytest.mark.parametrize("is_made", [False, True])
def test_the_record_of_a_commit_says_what_a_killed_core_says_when_it_is_back(
    apart: Apart, relay: Relay, gateway: Gateway, is_made: bool
) -> None:
    with ExitStack() as first:
        process = first.enter_context(apart.core())

        def kill(core: socket.socket, call: bytes) -> None:
            if is_made:
                core.sendall(call)
                # The reply.
                core.recv(1 << 20)
            os.kill(process, signal.SIGKILL)

        with api_behind(relay, apart, gateway) as api:
            relay.lose_reply("CommitCandidate", kill)
            lose_commit(api, apart)
            first.close()
            with apart.core():
                assert (hostname(apart) == "after") is is_made
                expected = "done" if is_made else "failed"
                wait_for("the outcome", lambda: [each["result"] for each in commits(apart)] == [expected])
                (record,) = api.get("/audit", "admin", params={"action": "configuration.commit"})["records"]
                assert (record["result"], record["status"]) == (expected, 500)
                assert record["message"] == (
                    f"The core's reply was lost: the change was {'' if is_made else 'not '}made"
                )
                # A later commit with the same X-Request-ID has a record of its own.
                again = api.send("POST", "/system/config/commit", "admin", headers=SAME)
                assert again.status_code == 200
                assert [each["result"] for each in commits(apart)] == [expected, "done"]


def test_the_record_of_a_commit_at_a_stopped_core_says_what_became_of_it(
    apart: Apart, relay: Relay, gateway: Gateway
) -> None:
    with apart.core() as process, api_behind(relay, apart, gateway) as api:

        def stop(core: socket.socket, call: bytes) -> None:
            os.kill(process, signal.SIGSTOP)
            core.sendall(call)

        relay.lose_reply("CommitCandidate", stop)
        lose_commit(api, apart)
        os.kill(process, signal.SIGCONT)
        wait_for("the outcome", lambda: commits(apart)[0]["call_id"] is None)
        # It reads the commit and the question about it in any order.
        assert commits(apart)[0]["result"] == ("done" if hostname(apart) == "after" else "failed")


def test_the_record_of_a_change_of_a_session_says_what_the_core_says(
    apart: Apart, relay: Relay, gateway: Gateway
) -> None:
    with apart.core(), api_behind(relay, apart, gateway) as api:
        relay.lose_reply("DisconnectSession", lambda core, call: (core.sendall(call), core.recv(1 << 20)))
        assert api.send("DELETE", "/subscribers/7", "admin").status_code == 500

        def results() -> list[str]:
            found = api.get("/audit", "admin", params={"action": "subscribers.disconnect"})
            return [record["result"] for record in found["records"]]

        wait_for("the outcome", lambda: results() == ["done"])


# The follower alone


class Scripted(Daemon):
    """A core's log that holds what a test wants."""

    def __init__(self, name: str, *held: int) -> None:
        self.name = name
        self.held = held

    def reply(self, call: Any, *, timeout: float | None = None) -> Any:
        after = call.after_sequence if call.log == self.name else 0
        changes = [ChangeRecord(n, NOW, "subscribers.disconnect", "root", 1) for n in self.held if n > after]
        return ChangesReply(self.name, min(self.held, default=1), max(self.held, default=0), changes[:100])


def followed(folder: Path, log: Daemon) -> list[tuple[str, str, str]]:
    """Action, request id and message of all records, once a new process has found nothing more."""
    while record_new(log, AuditLog(folder, 1 << 20, Here())):
        pass
    records = (json.loads(record) for record in kept_in(folder / "known.sqlite"))
    return [(record["action"], record["request_id"], record["message"]) for record in records]


def names(folder: Path, log: Daemon) -> list[str]:
    return [name for _, name, _ in followed(folder, log)]


def test_a_process_that_ended_is_followed_by_one_that_goes_on_where_it_was(tmp_path: Path) -> None:
    assert names(tmp_path, Scripted("log", 1)) == ["core-log-1"]
    for _ in range(2):
        assert names(tmp_path, Scripted("log", 1, 2, 3)) == ["core-log-1", "core-log-2", "core-log-3"]


def test_records_that_have_made_room_for_newer_ones_are_not_written_again(tmp_path: Path) -> None:
    assert names(tmp_path, Scripted("log", 1, 2)) == ["core-log-1", "core-log-2"]
    with closing(sqlite3.connect(tmp_path / "known.sqlite", isolation_level=None)) as connection:
        connection.execute("DELETE FROM record")
    assert names(tmp_path, Scripted("log", 1, 2, 3)) == ["core-log-3"]


def test_a_request_id_that_a_client_chose_is_not_taken_for_a_change(tmp_path: Path) -> None:
    log = AuditLog(tmp_path, 1 << 20, Here())
    log.add(gap_record(NOW, "x", role="admin", request_id="core-log-99"))
    assert names(tmp_path, Scripted("log", 1))[1:] == ["core-log-1"]


def test_a_change_that_another_process_recorded_meanwhile_is_recorded_once(tmp_path: Path) -> None:
    class Overtaken(Scripted):
        def changes(self, log: str | None, sequence: int) -> ChangesReply:
            names(tmp_path, Scripted("log", 1, 2))
            return super().changes(log, sequence)

    record_new(Overtaken("log", 1, 2), AuditLog(tmp_path, 1 << 20, Here()))
    assert names(tmp_path, Scripted("log", 1, 2, 3)) == ["core-log-1", "core-log-2", "core-log-3"]
    assert AuditLog(tmp_path, 1 << 20, Here()).place() == LogPlace("log", 3)


def test_changes_that_the_core_does_not_hold_any_more_are_said_to_be_lost(tmp_path: Path) -> None:
    followed(tmp_path, Scripted("log", 1))
    *_, gap, last = followed(tmp_path, Scripted("log", 5))
    assert gap[:2] == ("audit.gap", "core-log-4")
    assert gap[2].startswith("3 changes at the core")
    assert last[1] == "core-log-5"
    assert len(followed(tmp_path, Scripted("log", 5))) == 3


def test_another_core_s_log_is_followed_from_its_beginning(tmp_path: Path) -> None:
    followed(tmp_path, Scripted("one", 1, 2, 3))
    assert names(tmp_path, Scripted("two", 1))[3:] == ["core-two-1"]


class Kept(Daemon):
    """What the core itself keeps in a folder, told without a socket."""

    def __init__(self, folder: Path) -> None:
        self._kept = Noted(folder, "log")

    def add(self, *actions: str) -> None:
        for action in actions:
            self._kept.add(Note.of(Caller(action), NOW))

    def reply(self, call: Any, *, timeout: float | None = None) -> Any:
        """Of ListChanges, the one method that is called."""
        kept = self._kept.after(call.log, call.after_sequence)
        return msgspec.convert(msgspec.to_builtins(kept), ChangesReply)


WENT_BACK = (
    "audit.gap",
    "core-log-2",
    "The core's log of changes went back from 4 to 2: changes may be missing",
)
BEFORE = [("a.a", "core-log-1"), ("b.b", "core-log-2"), ("c.c", "core-log-3"), ("d.d", "core-log-4")]


@pytest.fixture
def restored(tmp_path: Path) -> Kept:
    """The log of a core that was restored from a backup with two changes. Four had been recorded."""
    folder, backup = tmp_path / "core", tmp_path / "backup"
    Kept(folder).add("a.a", "b.b")
    shutil.copytree(folder, backup)
    (log := Kept(folder)).add("c.c", "d.d")
    followed(tmp_path, log)
    shutil.rmtree(folder)
    shutil.copytree(backup, folder)
    return Kept(folder)


def test_a_core_s_log_that_went_back_is_said_to_have_and_followed_from_there(
    tmp_path: Path, restored: Kept
) -> None:
    assert followed(tmp_path, restored)[4:] == [WENT_BACK]
    restored.add("e.e", "f.f", "g.g")
    found = followed(tmp_path, restored)
    assert found[4] == WENT_BACK
    later = [("e.e", "core-log-3"), ("f.f", "core-log-4"), ("g.g", "core-log-5")]
    assert [record[:2] for record in found] == [*BEFORE, WENT_BACK[:2], *later]


def test_a_log_that_went_back_is_recorded_once(tmp_path: Path, restored: Kept) -> None:
    for _ in range(3):
        assert followed(tmp_path, restored)[4:] == [WENT_BACK]
    restored.add("e.e")
    for _ in range(3):
        names = [record[:2] for record in followed(tmp_path, restored)]
        assert names == [*BEFORE, WENT_BACK[:2], ("e.e", "core-log-3")]


def test_a_log_of_the_same_name_that_lost_all_changes_is_said_to_have_gone_back(tmp_path: Path) -> None:
    followed(tmp_path, Scripted("log", 1, 2))
    *_, gap = followed(tmp_path, Scripted("log"))
    assert gap[:2] == ("audit.gap", "core-log-0")
    assert names(tmp_path, Scripted("log", 1))[3:] == ["core-log-1"]

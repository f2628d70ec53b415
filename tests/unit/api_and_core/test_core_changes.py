"""Changes that the audit log learns of from the core: of other clients, and calls whose reply was lost."""

import json
import shutil
import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from gateway_api.audit.log import AuditLog, LogPosition, record_new_changes, resolve_calls
from gateway_api.audit.record import Filter, make_gap
from gateway_contract.base.logs import MASK
from gateway_contract.contract import Nothing
from gateway_contract.core.configuration import (
    ChangeRecord,
    ChangesReply,
    ConfirmCommit,
    GetCandidate,
    ResolveCalls,
)
from gateway_contract.core_client import CoreClient
from gateway_contract.varlink.dispatcher import Handler
from gateway_contract.varlink.protocol import ErrorReply
from gateway_core.records.changes import MAX_CHANGES, Caller, ChangeLog, Note
from gateway_core.service.core import Outcomes
from tests.support.audit import kept_in
from tests.support.pools import Here

NOW = 1_700_000_000


class Scripted(CoreClient):
    """A core's log that holds what a test wants."""

    def __init__(self, name: str, *held: int) -> None:
        self.name = name
        self.held = held

    def call(self, call: Any, *, timeout: float | None = None) -> Any:
        after = call.after_sequence if call.log == self.name else 0
        changes = [ChangeRecord(n, NOW, "subscribers.disconnect", "root", 1) for n in self.held if n > after]
        return ChangesReply(self.name, min(self.held, default=1), max(self.held, default=0), changes[:2])


def audit_log(folder: Path) -> AuditLog:
    """That of a new process."""
    return AuditLog(folder, 1 << 20, Here())


def followed(folder: Path, log: CoreClient) -> list[tuple[str, str, str]]:
    """Action, request id and message of all records, once a new process has found nothing more."""
    while record_new_changes(log, audit_log(folder)):
        pass
    records = (json.loads(record) for record in kept_in(folder / "known.sqlite"))
    return [(record["action"], record["request_id"], record["message"]) for record in records]


def names(folder: Path, log: CoreClient) -> list[str]:
    return [name for _, name, _ in followed(folder, log)]


def test_a_process_that_ended_is_followed_by_one_that_goes_on_where_it_was(tmp_path: Path) -> None:
    assert names(tmp_path, Scripted("log", 1)) == ["core-log-1"]
    for _ in range(2):
        assert names(tmp_path, Scripted("log", 1, 2, 3, 4)) == [f"core-log-{n}" for n in range(1, 5)]


def test_records_that_have_made_room_for_newer_ones_are_not_written_again(tmp_path: Path) -> None:
    names(tmp_path, Scripted("log", 1, 2))
    with closing(sqlite3.connect(tmp_path / "known.sqlite", isolation_level=None)) as connection:
        connection.execute("DELETE FROM record")
    assert names(tmp_path, Scripted("log", 1, 2, 3)) == ["core-log-3"]


def test_a_request_id_that_a_client_chose_is_not_taken_for_a_change(tmp_path: Path) -> None:
    audit_log(tmp_path).add(make_gap(NOW, "x", role="admin", request_id="core-log-99"))
    assert names(tmp_path, Scripted("log", 1))[1:] == ["core-log-1"]


def test_a_change_that_another_process_recorded_meanwhile_is_recorded_once(tmp_path: Path) -> None:
    class Overtaken(Scripted):
        def call(self, call: Any, *, timeout: float | None = None) -> Any:
            names(tmp_path, Scripted("log", 1, 2))
            return super().call(call)

    record_new_changes(Overtaken("log", 1, 2), audit_log(tmp_path))
    assert names(tmp_path, Scripted("log", 1, 2, 3)) == ["core-log-1", "core-log-2", "core-log-3"]
    assert audit_log(tmp_path).read_position() == LogPosition("log", 3)


def test_changes_that_the_core_no_longer_holds_are_recorded_as_lost(tmp_path: Path) -> None:
    followed(tmp_path, Scripted("log", 1))
    *_, gap, last = followed(tmp_path, Scripted("log", 5))
    assert gap[:2] == ("audit.gap", "core-log-4")
    assert gap[2].startswith("3 changes at the core")
    assert last[1] == "core-log-5"
    assert len(followed(tmp_path, Scripted("log", 5))) == 3


def test_the_log_of_another_core_is_followed_from_its_beginning(tmp_path: Path) -> None:
    followed(tmp_path, Scripted("one", 1, 2, 3))
    *_, first = followed(tmp_path, Scripted("two", 1))
    assert first[:2] == ("subscribers.disconnect", "core-two-1")


class RealLog(CoreClient):
    """The core's own log in a folder, without a socket."""

    def __init__(self, folder: Path) -> None:
        self._log = ChangeLog(folder, "log")

    def add(self, *actions: str) -> None:
        for action in actions:
            self._log.add(Note.of(Caller(action), NOW))

    def call(self, call: Any, *, timeout: float | None = None) -> Any:
        """Of ListChanges, the one method that is called."""
        return msgspec.convert(
            msgspec.to_builtins(self._log.read_after(call.log, call.after_sequence)), ChangesReply
        )


def test_a_log_that_was_restored_from_a_backup_is_recorded_to_have_gone_back_once(tmp_path: Path) -> None:
    folder, backup = tmp_path / "core", tmp_path / "backup"
    RealLog(folder).add("a.a", "b.b")
    shutil.copytree(folder, backup)
    (log := RealLog(folder)).add("c.c", "d.d")
    before = followed(tmp_path, log)
    assert [record[:2] for record in before][2:] == [("c.c", "core-log-3"), ("d.d", "core-log-4")]
    shutil.rmtree(folder)
    shutil.copytree(backup, folder)
    restored = RealLog(folder)
    message = "The core's log of changes went back from 4 to 2: changes may be missing"
    for _ in range(2):
        assert followed(tmp_path, restored)[4:] == [("audit.gap", "core-log-2", message)]
    restored.add("e.e", "f.f")
    for _ in range(2):
        later = [record[:2] for record in followed(tmp_path, restored)[5:]]
        assert later == [("e.e", "core-log-3"), ("f.f", "core-log-4")]


def test_a_log_of_the_same_name_that_lost_all_changes_is_recorded_to_have_gone_back(tmp_path: Path) -> None:
    followed(tmp_path, Scripted("log", 1, 2))
    *_, gap = followed(tmp_path, Scripted("log"))
    assert gap[:2] == ("audit.gap", "core-log-0")
    assert names(tmp_path, Scripted("log", 1))[3:] == ["core-log-1"]


@pytest.mark.parametrize(
    ("process", "author", "by"),
    [(1, None, "By process 1 at the core's socket"), (None, "core", "By the core itself")],
)
def test_a_record_of_a_change_has_its_process_or_its_author(
    tmp_path: Path, process: int | None, author: str | None, by: str
) -> None:
    class One(Scripted):
        def call(self, call: Any, *, timeout: float | None = None) -> Any:
            before = {"id": 7, "username": "alice", "secret": "hidden"}
            change = ChangeRecord(1, NOW, "a.b", "root", process, author, "why", before=before, after=None)
            return ChangesReply("log", 1, 1, [change])

    followed(tmp_path, One("log"))
    (text,) = kept_in(tmp_path / "known.sqlite")
    record = json.loads(text)
    assert (record["user"], record["role"], record["at"]) == ("root", "system", NOW)
    assert record["message"] == f"{by} (alice)"
    assert record["body"] == (author and {"author": author, "comment": "why"})
    assert record["before"] == {"id": 7, "username": "alice", "secret": MASK}


# Calls whose reply was lost.


LISTS = ("done", "failed", "unknown")


@pytest.fixture
def changes(tmp_path: Path) -> ChangeLog:
    return ChangeLog(tmp_path / "changes", "log")


@pytest.fixture
def outcomes(changes: ChangeLog) -> Outcomes:
    return Outcomes(changes)


def change(outcomes: Outcomes, id: str | None, make: Callable[[], object] = int) -> Any:
    """Calls a method that changes something by `make`."""

    def confirm(_: ConfirmCommit) -> Nothing:
        make()
        return Nothing()

    handler = outcomes.record(Handler(ConfirmCommit, confirm))
    return handler.handler(ConfirmCommit(request_id=id))


def told(outcomes: Outcomes, *ids: str) -> dict[str, str]:
    """The outcome of each call, unless it runs."""
    reply = msgspec.to_builtins(outcomes.resolve_calls(ResolveCalls(ids)))
    return {id: name for name in LISTS for id in reply[name]}


def fails() -> None:
    raise ErrorReply.of("a.b.Failed")


def test_a_call_that_runs_has_no_outcome_yet(outcomes: Outcomes) -> None:
    runs, goes_on = threading.Event(), threading.Event()

    def make() -> None:
        runs.set()
        goes_on.wait(60)

    thread = threading.Thread(target=change, args=(outcomes, "1f", make))
    thread.start()
    assert runs.wait(60)
    assert told(outcomes, "1f") == {}
    goes_on.set()
    thread.join(60)
    assert told(outcomes, "1f") == {"1f": "done"}


def test_a_call_that_comes_after_it_was_told_to_be_unknown_is_refused(outcomes: Outcomes) -> None:
    assert told(outcomes, "1f") == {"1f": "unknown"}
    made: list[str] = []
    with pytest.raises(ErrorReply, match="StepFailed"):
        change(outcomes, "1f", lambda: made.append("1f"))
    assert (made, told(outcomes, "1f")) == ([], {"1f": "unknown"})


def test_a_done_call_is_known_after_a_restart(tmp_path: Path, outcomes: Outcomes) -> None:
    change(outcomes, "1f")
    with pytest.raises(ErrorReply):
        change(outcomes, "2f", fails)
    assert told(outcomes, "1f", "2f") == {"1f": "done", "2f": "failed"}
    again = Outcomes(ChangeLog(tmp_path / "changes", "log"))
    assert told(again, "1f", "2f") == {"1f": "done", "2f": "unknown"}


def test_the_newest_calls_are_kept_on_disk(tmp_path: Path, changes: ChangeLog) -> None:
    changes.add_calls(*map(str, range(MAX_CHANGES)))
    changes.add_calls("last")
    again = ChangeLog(tmp_path / "changes", "log")
    assert again.find_calls(["0", "1", "last"]) == {"1", "last"}


def test_what_has_no_id_or_only_reads_is_served_as_it_is(outcomes: Outcomes, tmp_path: Path) -> None:
    change(outcomes, None)
    assert not (tmp_path / "changes").exists()
    handler = Handler(GetCandidate, int)
    assert outcomes.record(handler) is handler


def resolved(folder: Path, outcomes: Outcomes, action: str) -> tuple[str, str | None]:
    """Result and call of the record of a lost change, once the API has asked the core for its outcome."""
    log = AuditLog(folder, 1 << 20, Here())
    lost = make_gap(1.0, "", user="admin", role="admin")
    log.add(msgspec.structs.replace(lost, action=action, result="unanswered", call_id="1f"))
    core: Any = SimpleNamespace(call=outcomes.resolve_calls)
    resolve_calls(core, log)
    (text,) = log.read(Filter(), None).records
    log.close()
    record = json.loads(bytes(text))
    return record["result"], record["call_id"]


@pytest.mark.parametrize(
    ("action", "result"),
    [
        ("configuration.commit", "failed"),
        ("subscribers.disconnect", "unanswered"),
        ("jobs.change_rates", "unanswered"),
    ],
)
def test_the_record_of_a_call_that_a_new_core_does_not_know_has_failed_unless_it_changes_sessions(
    tmp_path: Path, outcomes: Outcomes, action: str, result: str
) -> None:
    assert resolved(tmp_path, outcomes, action) == (result, None)


@pytest.mark.parametrize(("make", "result"), [(int, "done"), (fails, "failed")])
def test_the_record_of_a_call_that_the_core_knows_has_its_outcome(
    tmp_path: Path, outcomes: Outcomes, make: Callable[[], object], result: str
) -> None:
    with suppress(ErrorReply):
        change(outcomes, "1f", make)
    assert resolved(tmp_path, outcomes, "subscribers.disconnect") == (result, None)

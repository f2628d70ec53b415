"""Changes at the core by other clients than the API: each is recorded once, whatever is lost meanwhile."""

import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gateway_api.audit.log import AuditLog, LogPlace, record_new_changes
from gateway_api.audit.record import make_gap as gap_record
from gateway_contract.base.logs import MASK
from gateway_contract.core.configuration import ChangeRecord, ChangesReply
from gateway_contract.core_client import CoreClient
from gateway_core.records.changes import Caller, ChangeLog, Note
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
    audit_log(tmp_path).add(gap_record(NOW, "x", role="admin", request_id="core-log-99"))
    assert names(tmp_path, Scripted("log", 1))[1:] == ["core-log-1"]


def test_a_change_that_another_process_recorded_meanwhile_is_recorded_once(tmp_path: Path) -> None:
    class Overtaken(Scripted):
        def call(self, call: Any, *, timeout: float | None = None) -> Any:
            names(tmp_path, Scripted("log", 1, 2))
            return super().call(call)

    record_new_changes(Overtaken("log", 1, 2), audit_log(tmp_path))
    assert names(tmp_path, Scripted("log", 1, 2, 3)) == ["core-log-1", "core-log-2", "core-log-3"]
    assert audit_log(tmp_path).read_place() == LogPlace("log", 3)


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

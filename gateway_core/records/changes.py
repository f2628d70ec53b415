"""Log of the changes that were not made through the API. The API reads the log, and records the changes in
the audit log.

The API records its own changes, and sends an id with each call. The log stores each change by a call without
an id, and each change by the core itself. For a call with an id, the log stores only the id: the API asks for
the id after the API has lost the reply.
"""

import json
import logging
import pwd
import secrets
import sqlite3
import threading
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, Self

import msgspec

from gateway_contract.base.databases import Database
from gateway_contract.base.errors import StepFailed
from gateway_contract.base.texts import shorten_json
from gateway_contract.core.configuration import ChangeRecord, ChangesReply
from gateway_contract.varlink.protocol import Peer

_log = logging.getLogger(__name__)

_SCHEMA = """
CREATE TABLE IF NOT EXISTS change (sequence INTEGER PRIMARY KEY, note TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS call (number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE);
CREATE TABLE IF NOT EXISTS settled (one INTEGER PRIMARY KEY CHECK (one = 1), id TEXT NOT NULL);
"""
#: Changes no row if the id is already that of the last note of `add_once`.
_UPDATE_LAST_NOTE_ID = """
INSERT INTO settled VALUES (1, :id) ON CONFLICT DO UPDATE SET id = :id WHERE id <> :id
"""
_DELETE_OLD_CALLS = "DELETE FROM call WHERE number <= (SELECT max(number) FROM call) - ?"
_DELETE_OLD_CHANGES = "DELETE FROM change WHERE sequence <= (SELECT max(sequence) FROM change) - ?"

#: The number of newest changes, and of newest calls, that the log keeps.
MAX_CHANGES = 4096
#: Seconds to wait for a backup that reads the database.
_BACKUP_WAIT_SECONDS = 5.0
_CHANGES_PER_REPLY = 100
#: Characters of a value before or after a change, as JSON.
_MAX_VALUE_LENGTH = 2048


class Caller(msgspec.Struct, frozen=True):
    """Caller of a change: the name of the `action`, the calling process (None for the core itself), and the
    id that the API gave to the `call`."""

    action: str
    peer: Peer | None = None
    call: str | None = None


class Note(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Note of a change. The `id` is unique; `before` and `after` contain no secrets.

    `user` is a number. The name of the user is looked up only for a reply, because the look-up can be slow.
    If the note has the id of a `call`, the log stores only this id. Version 0.1.0 cannot read a note with the
    field `call`, so a note without the id of a call is stored without the field.
    """

    id: str
    at: int
    action: str
    user: int | None
    process: int | None
    author: str | None = None
    comment: str | None = None
    before: Any = None
    after: Any = None
    call: str | None = None

    @classmethod
    def of(
        cls, caller: Caller, at: float, before: Any = None, after: Any = None, **commit: str | None
    ) -> Self:
        """Return the note of a change that a caller made at the time `at`, in epoch seconds. `commit`
        contains the author and the comment if the change is a commit."""
        user, process = (caller.peer.user, caller.peer.process) if caller.peer else (None, None)
        before, after = _limit_length(before), _limit_length(after)
        id = secrets.token_hex(8)
        return cls(
            id, int(at), caller.action, user, process, before=before, after=after, call=caller.call, **commit
        )


class ChangeLog:
    """Log of changes in a folder, which the first change creates. `name` identifies the log. Thread-safe.

    A change that cannot be written to disk stays in memory, and the next call of any method writes it.
    """

    def __init__(self, folder: Path, name: str) -> None:
        self._path = folder / "changes.sqlite"
        self._database = Database(self._path, "log of changes", _SCHEMA, timeout=_BACKUP_WAIT_SECONDS)
        self._name = name
        self._lock = threading.Lock()
        #: The highest number of a change so far.
        self._newest_sequence = 0
        #: Notes that are not on disk yet, and whether each one came by `add_once`.
        self._unwritten: list[tuple[Note, bool]] = []
        #: The number of unwritten changes at the last log line about them.
        self._logged_count = 0
        self._is_unreadable = False
        #: Ids of calls that are not on disk yet. One write takes the ids of all threads that wait for it.
        self._unwritten_calls: list[str] = []
        self._calls_lock = threading.Lock()

    def flush(self) -> bool:
        """Write the changes that are not on disk yet. Return True if all changes are on disk."""
        with self._lock:
            self._write()
            with self._calls_lock:
                return not (self._unwritten or self._unwritten_calls)

    def add(self, note: Note) -> None:
        """Add a change to the log."""
        with self._lock:
            self._unwritten.append((note, False))
            self._write()

    def add_once(self, note: Note) -> None:
        """Add a change that the caller also stores elsewhere. After a crash, the caller does not know whether
        the log has the change, so a change equal to the last change that this method added is ignored."""
        if note.call is not None:
            self.add_calls(note.call)
            return
        with self._lock:
            self._unwritten.append((note, True))
            self._write()

    def add_calls(self, *ids: str) -> None:
        """Add the ids of calls that succeeded."""
        with self._calls_lock:
            self._unwritten_calls = [*self._unwritten_calls, *ids][-MAX_CHANGES:]
        with self._lock:
            self._write()

    def find_calls(self, ids: Sequence[str]) -> set[str]:
        """Return those of the `ids` whose calls succeeded. The log forgets old ids. Raises StepFailed if the
        log cannot be read."""
        with self._lock:
            self._write()
            with self._calls_lock:
                unwritten_ids = set(ids) & set(self._unwritten_calls)
            ids_json = json.dumps(list(ids))
            select = "SELECT id FROM call WHERE id IN (SELECT value FROM json_each(?))"
            try:
                rows = self._database.use(
                    lambda connection: connection.execute(select, (ids_json,)).fetchall()
                )
            except (OSError, sqlite3.Error) as error:
                raise StepFailed("read the log of changes", str(error)) from error
            return unwritten_ids | {id for (id,) in rows}

    def read_after(self, name: str | None, sequence: int) -> ChangesReply:
        """Return the changes on disk that follow the number `sequence`. If `name` is not the name of this
        log, return all changes on disk. Raises StepFailed if the log cannot be read."""
        with self._lock:
            self._write()
            try:
                reply = self._read(sequence if name == self._name else 0)
            except (OSError, sqlite3.Error) as error:
                # Once: the API asks each second.
                if not self._is_unreadable:
                    _log.error("cannot read the log of changes, the audit log lacks its changes: %s", error)
                self._is_unreadable = True
                raise StepFailed("read the log of changes", str(error)) from error
            self._is_unreadable = False
            return reply

    def _read(self, after: int) -> ChangesReply:
        if not (self._path.exists() and self._path.stat().st_size):
            # Nothing was written to it, perhaps because the disk was full.
            return ChangesReply(self._name, self._newest_sequence + 1, self._newest_sequence, ())

        def read(connection: sqlite3.Connection) -> tuple[int, int, list[tuple[int, str]]]:
            bounds = "SELECT coalesce(min(sequence), :after + 1), max(coalesce(max(sequence), 0), :after)"
            oldest, newest = connection.execute(
                f"{bounds} FROM change", {"after": self._newest_sequence}
            ).fetchone()
            rows = connection.execute(
                "SELECT sequence, note FROM change WHERE sequence > ? ORDER BY sequence LIMIT ?",
                (after, _CHANGES_PER_REPLY),
            )
            return oldest, newest, rows.fetchall()

        oldest, self._newest_sequence, rows = self._database.use(read)
        return ChangesReply(
            self._name, oldest, self._newest_sequence, tuple(_read_change(*row) for row in rows)
        )

    def _write(self) -> None:
        with self._calls_lock:
            calls = list(self._unwritten_calls)
        if not (self._unwritten or calls):
            return
        try:
            self._newest_sequence = self._database.use(partial(self._insert, calls))
        except (OSError, sqlite3.Error) as error:
            number = len(self._unwritten) + len(calls)
            if number != self._logged_count and self._unwritten:
                last, _ = self._unwritten[-1]
                text = "cannot log %d changes on disk, they stay in memory; the last change is %s by %s: %s"
                _log.critical(text, number, last.action, _look_up_user_name(last.user), error)
            elif number != self._logged_count:
                _log.error("cannot log %d changes of the API on disk, they stay in memory: %s", number, error)
            self._logged_count = number
        else:
            self._unwritten.clear()
            with self._calls_lock:
                self._unwritten_calls = [id for id in self._unwritten_calls if id not in calls]
            self._logged_count = 0

    def _insert(self, calls: Sequence[str], connection: sqlite3.Connection) -> int:
        """Write calls and the unwritten notes, and return the highest sequence number. In a new file, the
        numbers continue after the last assigned number."""
        connection.executemany("INSERT OR IGNORE INTO call (id) VALUES (?)", ((id,) for id in calls))
        connection.execute(_DELETE_OLD_CALLS, (MAX_CHANGES,))
        (highest,) = connection.execute("SELECT coalesce(max(sequence), 0) FROM change").fetchone()
        newest = max(int(highest), self._newest_sequence)
        for note, is_once in self._unwritten:
            if is_once and not connection.execute(_UPDATE_LAST_NOTE_ID, {"id": note.id}).rowcount:
                continue
            newest += 1
            text = msgspec.json.encode(note).decode()
            connection.execute("INSERT INTO change VALUES (?, ?)", (newest, text))
        connection.execute(_DELETE_OLD_CHANGES, (MAX_CHANGES,))
        return newest


def _read_change(sequence: int, text: str) -> ChangeRecord:
    fields = msgspec.structs.asdict(msgspec.json.decode(text, type=Note))
    del fields["id"], fields["call"]
    return ChangeRecord(sequence, **{**fields, "user": _look_up_user_name(fields["user"])})


def _look_up_user_name(user: int | None) -> str:
    if user is None:
        return "core"
    try:
        return pwd.getpwuid(user).pw_name
    except KeyError:
        return f"user {user}"


def _limit_length(value: Any) -> Any:
    encodable_value = msgspec.to_builtins(value)
    return shorten_json(encodable_value, json.dumps(encodable_value), _MAX_VALUE_LENGTH)

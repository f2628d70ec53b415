"""The log of changes that did not come through the API, for the API to record later.

The API records its own changes, and sends an id with each call. A change without an id is noted here, as are
the changes that the core makes by itself. Of a call with an id, only the id is noted: the API asks for it
when it has lost the reply. Any thread may call.
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
from typing import Any

import msgspec

from gateway_contract.base.databases import Database
from gateway_contract.base.errors import StepFailed
from gateway_contract.base.texts import shorten_json
from gateway_contract.core.configuration import ChangeRecord, ChangesReply
from gateway_contract.varlink.protocol import Peer

_log = logging.getLogger(__name__)

_SCHEMA = """
BEGIN IMMEDIATE;
CREATE TABLE IF NOT EXISTS change (sequence INTEGER PRIMARY KEY, note TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS call (number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE);
CREATE TABLE IF NOT EXISTS settled (one INTEGER PRIMARY KEY CHECK (one = 1), id TEXT NOT NULL);
COMMIT;
"""
#: Changes no row if the id is that of the last one.
_SETTLE = """
INSERT INTO settled VALUES (1, :id) ON CONFLICT DO UPDATE SET id = :id WHERE id <> :id
"""
_DELETE_OLD_CALLS = "DELETE FROM call WHERE number <= (SELECT max(number) FROM call) - ?"
_DELETE_OLD = "DELETE FROM change WHERE sequence <= (SELECT max(sequence) FROM change) - ?"

#: The newest changes that are kept, and the newest calls.
HELD = 4096
#: Seconds to wait for a backup that reads the database.
_PATIENCE = 5.0
#: Changes in one reply.
_AT_ONCE = 100
#: The most characters that what was before, and what is now, take as JSON.
_MOST = 2048


class Caller(msgspec.Struct, frozen=True):
    """The process that changes something, or the core itself without a `peer`; and the name of the change. A
    change of the API has the id of its `call`."""

    action: str
    peer: Peer | None = None
    call: str | None = None


class Note(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A change. The `id` is unique; `before` and `after` have no secrets. `user` is a number. Its name is
    looked up later, in the reply: the look-up can be slow, and a change is under way here. With the id of a
    `call`, that id is all that is kept of the change."""

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
    ) -> "Note":
        """`at` is epoch seconds. `commit` has the author and the comment of a commit."""
        user, process = (caller.peer.user, caller.peer.process) if caller.peer else (None, None)
        before, after = _bounded(before), _bounded(after)
        id = secrets.token_hex(8)
        return cls(
            id, int(at), caller.action, user, process, before=before, after=after, call=caller.call, **commit
        )


class ChangeLog:
    """The changes in a folder, which is created with the first. `name` identifies the log of one core."""

    def __init__(self, folder: Path, name: str) -> None:
        self._path = folder / "changes.sqlite"
        self._database = Database(self._path, "log of changes", _prepare, _PATIENCE)
        self._name = name
        self._lock = threading.Lock()
        #: The newest number, as far as it was read or given.
        self._newest = 0
        #: Notes that are not on disk yet, and whether each is to be settled.
        self._waiting: list[tuple[Note, bool]] = []
        #: Of these, the number that the log has told of. Each call tries again.
        self._told = 0
        self._is_unreadable = False
        #: Calls that are not on disk yet. One write takes those of all threads that wait for it.
        self._calls: list[str] = []
        self._calls_lock = threading.Lock()

    def add(self, note: Note) -> None:
        """Keep a change. If the disk fails, the next call of any method tries again."""
        with self._lock:
            self._waiting.append((note, False))
            self._write()

    def settle(self, note: Note) -> None:
        """Keep a change that is also on disk elsewhere, unless it is the last settled one: after a crash it
        is unknown whether it was kept."""
        if note.call is not None:
            self.add_calls(note.call)
            return
        with self._lock:
            self._waiting.append((note, True))
            self._write()

    def add_calls(self, *ids: str) -> None:
        """Keep the ids of calls that were done. If the disk fails, the next call of any method tries
        again."""
        with self._calls_lock:
            self._calls = [*self._calls, *ids][-HELD:]
        with self._lock:
            self._write()

    def calls_among(self, ids: Sequence[str]) -> set[str]:
        """Return the calls that were done, of those that are kept. Raises StepFailed."""
        with self._lock:
            self._write()
            with self._calls_lock:
                found = set(ids) & set(self._calls)
            wanted = json.dumps(list(ids))
            select = "SELECT id FROM call WHERE id IN (SELECT value FROM json_each(?))"
            try:
                rows = self._database.use(lambda connection: connection.execute(select, (wanted,)).fetchall())
            except (OSError, sqlite3.Error) as error:
                raise StepFailed("read the log of changes", str(error)) from error
            return found | {id for (id,) in rows}

    def after(self, name: str | None, sequence: int) -> ChangesReply:
        """Return the changes after a sequence number of the log of that name, as far as they are held; for
        another name, all that are held. Only changes on disk. Raises StepFailed."""
        with self._lock:
            self._write()
            start = sequence if name == self._name else 0
            try:
                reply = self._read(start)
            except (OSError, sqlite3.Error) as error:
                # The API asks each second.
                if not self._is_unreadable:
                    _log.error("cannot read the log of changes: %s", error)
                self._is_unreadable = True
                raise StepFailed("read the log of changes", str(error)) from error
            self._is_unreadable = False
            return reply

    def _read(self, start: int) -> ChangesReply:
        if not (self._path.exists() and self._path.stat().st_size):
            # Nothing was written to it, perhaps because the disk was full.
            return ChangesReply(self._name, self._newest + 1, self._newest, ())

        def read(connection: sqlite3.Connection) -> tuple[int, int, list[tuple[int, str]]]:
            bounds = "SELECT coalesce(min(sequence), :after + 1), max(coalesce(max(sequence), 0), :after)"
            oldest, newest = connection.execute(f"{bounds} FROM change", {"after": self._newest}).fetchone()
            rows = connection.execute(
                "SELECT sequence, note FROM change WHERE sequence > ? ORDER BY sequence LIMIT ?",
                (start, _AT_ONCE),
            )
            return oldest, newest, rows.fetchall()

        oldest, self._newest, rows = self._database.use(read)
        return ChangesReply(self._name, oldest, self._newest, tuple(_change(*row) for row in rows))

    def _write(self) -> None:
        with self._calls_lock:
            calls = list(self._calls)
        if not (self._waiting or calls):
            return
        try:
            self._newest = self._database.use(partial(self._insert, calls))
        except (OSError, sqlite3.Error) as error:
            number = len(self._waiting) + len(calls)
            if number != self._told and self._waiting:
                last, _ = self._waiting[-1]
                text = "cannot note %d changes, the last of which is %s by %s: %s"
                _log.critical(text, number, last.action, _name(last.user), error)
            elif number != self._told:
                _log.error("cannot note %d changes of the API: %s", number, error)
            self._told = number
        else:
            self._waiting.clear()
            with self._calls_lock:
                self._calls = [id for id in self._calls if id not in calls]
            self._told = 0

    def _insert(self, calls: Sequence[str], connection: sqlite3.Connection) -> int:
        """Return the newest number: above those that were given, also in a new file."""
        connection.executemany("INSERT OR IGNORE INTO call (id) VALUES (?)", ((id,) for id in calls))
        connection.execute(_DELETE_OLD_CALLS, (HELD,))
        (held,) = connection.execute("SELECT coalesce(max(sequence), 0) FROM change").fetchone()
        newest = max(int(held), self._newest)
        for note, settles in self._waiting:
            if settles and not connection.execute(_SETTLE, {"id": note.id}).rowcount:
                continue
            newest += 1
            text = msgspec.json.encode(note).decode()
            connection.execute("INSERT INTO change VALUES (?, ?)", (newest, text))
        connection.execute(_DELETE_OLD, (HELD,))
        return newest


def _prepare(connection: sqlite3.Connection) -> None:
    # One file at rest, which a backup can copy. EXTRA syncs the folder when the journal is removed.
    connection.execute("PRAGMA journal_mode = DELETE").fetchall()
    connection.execute("PRAGMA synchronous = EXTRA")
    connection.executescript(_SCHEMA)


def _change(sequence: int, text: str) -> ChangeRecord:
    note = msgspec.json.decode(text, type=Note)
    told = {name: held for name, held in msgspec.structs.asdict(note).items() if name not in ("id", "call")}
    return ChangeRecord(sequence, **{**told, "user": _name(note.user)})


def _name(user: int | None) -> str:
    if user is None:
        return "core"
    try:
        return pwd.getpwuid(user).pw_name
    except KeyError:
        return f"user {user}"


def _bounded(value: Any) -> Any:
    plain = msgspec.to_builtins(value)
    return shorten_json(plain, json.dumps(plain), _MOST)

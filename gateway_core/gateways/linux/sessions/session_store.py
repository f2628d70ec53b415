"""Store of the sessions on disk, for a restart of the core. Each key of a source has an integer id: ids
ascend, and no id is used twice.

    sessions.sqlite              the sessions, and the next id
    session-ids-below-2000000    an empty file: all ids ever given are below this number

The second file is for a damaged database: the new one begins at its number. A name without content cannot be
damaged, and it changes once in a million ids. A clock gives no such bound: it may be years off.
"""

import re
import sqlite3
import threading
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from gateway_contract.base import durable
from gateway_contract.base.databases import Database
from gateway_core.configuration.store import disk_step
from gateway_core.gateways.linux.entries import EntryReader, UnreadableEntry

#: Ids that damage costs, at most. Readers of JSON know integers below 2**53: room for nine billion times.
ID_STEP = 1_000_000
#: Wait for a backup that reads the database. A client that changes a rate waits too, and the API for 3 s.
_LOCK_SECONDS = 1.0

#: Steps that fail with the disk.
GIVE_IDS, STORE = "give ids to sessions", "store sessions"

#: Reader of rows here, and of their records in `lifecycle`.
STORED_SESSIONS = EntryReader(
    "core", "session", "the sessions on disk", "such a session starts anew, with another id"
)

_DATABASE = "sessions.sqlite"
_BOUND_PREFIX = "session-ids-below-"
_BOUND_PATTERN = re.compile(_BOUND_PREFIX + "([1-9][0-9]{0,15})", re.ASCII)
_SCHEMA = """
CREATE TABLE IF NOT EXISTS session (
    id INTEGER PRIMARY KEY, source TEXT NOT NULL, name BLOB NOT NULL,
    record BLOB NOT NULL, announced INTEGER NOT NULL, UNIQUE (source, name)
);
CREATE TABLE IF NOT EXISTS next (one INTEGER PRIMARY KEY CHECK (one = 1), id INTEGER NOT NULL);
"""
_INSERT = "INSERT OR {} INTO session VALUES (?, ?, ?, ?, ?)"
_UPDATE = "UPDATE session SET record = ?, announced = ? WHERE id = ?"
_DELETE = "DELETE FROM session WHERE id = ?"


class SessionKey(NamedTuple):
    """Key of a session: the name of its source, and the name that the source has for the session."""

    source: str
    name: str


class StoredSession(NamedTuple):
    """Row of a session. `announced` is True after its session_up."""

    id: int
    record: bytes
    announced: bool


class SessionStore:
    """Sessions in a folder that only one process uses. Thread-safe.

    A key keeps its id until it is released; if it comes back, it gets a new one. What a method has done is on
    disk. All methods but `close` raise StepFailed, and the next call tries again.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._database = Database(
            folder / _DATABASE, "store of sessions", _SCHEMA, timeout=_LOCK_SECONDS, restore=self._restore
        )
        self._lock = threading.Lock()
        #: As on disk, unless the disk failed.
        self._rows: dict[SessionKey, StoredSession] = {}

    def claim(self, records: Mapping[SessionKey, bytes]) -> dict[SessionKey, int]:
        """Return the ids of keys. Keys without an id get the next ids in the order given, with their records,
        not announced. The others keep what they have."""
        with self._lock, self._usable(GIVE_IDS):
            if new := {key: record for key, record in records.items() if key not in self._rows}:
                self._rows |= self._database.use(partial(self._give_ids, new))
            return {key: self._rows[key].id for key in records}

    def write(
        self,
        *,
        announced: Collection[SessionKey] = (),
        records: Mapping[SessionKey, bytes] = MappingProxyType({}),
        released: Iterable[SessionKey] = (),
    ) -> None:
        """Mark keys as announced, replace records, and release keys, in one transaction. Unknown keys are
        ignored."""
        with self._lock, self._usable(STORE):
            changed = {
                key: row._replace(
                    announced=row.announced or key in announced, record=records.get(key, row.record)
                )
                for key in {*announced, *records}
                if (row := self._rows.get(key)) is not None
            }
            gone = [key for key in dict.fromkeys(released) if key in self._rows]
            if changed or gone:
                ids = [self._rows[key].id for key in gone]
                self._database.use(partial(_write, changed=changed.values(), gone=ids))
                self._rows |= changed
                for key in gone:
                    del self._rows[key]

    def read_all(self) -> dict[SessionKey, StoredSession]:
        """Return all sessions by key, in the order of their ids."""
        with self._lock, self._usable("read the sessions"):
            return dict(self._rows)

    def close(self) -> None:
        """Close the database. A later call opens it again."""
        with self._lock:
            self._database.close()

    @contextmanager
    def _usable(self, step: str) -> Iterator[None]:
        with disk_step(step):
            self._database.open()
            yield

    def _give_ids(
        self, new: Mapping[SessionKey, bytes], connection: sqlite3.Connection
    ) -> dict[SessionKey, StoredSession]:
        ((first,),) = connection.execute("SELECT id FROM next")
        next_id = first + len(new)
        # First, or a database that is damaged now would lead to a new one that gives these ids again.
        self._raise_bound(next_id)
        rows = {key: StoredSession(first + n, new[key], announced=False) for n, key in enumerate(new)}
        connection.executemany(_INSERT.format("ABORT"), map(_to_row, rows.items()))
        connection.execute("UPDATE next SET id = ?", (next_id,))
        return rows

    def _restore(self, connection: sqlite3.Connection) -> None:
        self._prepare_ids(connection)
        query = "SELECT id, source, name, record, announced FROM session ORDER BY id"
        rows = connection.execute(query).fetchall()
        found = dict(STORED_SESSIONS.read(rows, _parse_row, place=self._folder))
        # An unreadable row that stayed would block its key when the session starts anew.
        lost = {id for id, *_ in rows} - {row.id for row in found.values()}
        connection.executemany(_DELETE, ((id,) for id in lost))
        self._rows = found

    def _prepare_ids(self, connection: sqlite3.Connection) -> None:
        bound = max(self._bounds(), default=0)
        connection.execute("INSERT OR IGNORE INTO next VALUES (1, ?)", (max(bound, 1),))
        # The bound is at most ID_STEP above the next id, unless the database is an older one from a
        # backup.
        connection.execute("UPDATE next SET id = ? WHERE id < ?", (bound, bound - ID_STEP))
        ((next_id,),) = connection.execute("SELECT id FROM next")
        self._raise_bound(next_id)
        # Rows are in memory if the database was damaged while it was in use.
        connection.executemany(_INSERT.format("IGNORE"), map(_to_row, self._rows.items()))

    def _raise_bound(self, next_id: int) -> None:
        """Make sure that a name on disk bounds all ids below `next_id`."""
        bounds = self._bounds()
        if next_id <= max(bounds, default=0):
            return
        durable.write(self._folder / f"{_BOUND_PREFIX}{-(-next_id // ID_STEP) * ID_STEP}", b"")
        durable.sync(self._folder)
        for path in bounds.values():
            path.unlink()

    def _bounds(self) -> dict[int, Path]:
        found = ((_BOUND_PATTERN.fullmatch(path.name), path) for path in self._folder.iterdir())
        return {int(name[1]): path for name, path in found if name}


def _write(connection: sqlite3.Connection, changed: Iterable[StoredSession], gone: Iterable[int]) -> None:
    connection.executemany(_UPDATE, ((row.record, row.announced, row.id) for row in changed))
    connection.executemany(_DELETE, ((id,) for id in gone))


def _to_row(item: tuple[SessionKey, StoredSession]) -> tuple[int, str, bytes, bytes, bool]:
    (source, name), row = item
    # Names come from the network. SQLite refuses text with a half of a surrogate pair.
    return row.id, source, name.encode(errors="surrogatepass"), row.record, row.announced


def _parse_row(row: tuple[Any, ...]) -> tuple[SessionKey, StoredSession]:
    """Return the session of a row, with its key. Raises UnreadableEntry."""
    # SQLite stores a value of any type in any column.
    id, source, name, record, announced = row
    if not (isinstance(source, str) and isinstance(name, bytes) and isinstance(record, bytes)):
        raise UnreadableEntry(f"the row of session {id} has values of other types")
    try:
        text = name.decode(errors="surrogatepass")
    except UnicodeDecodeError as error:
        raise UnreadableEntry(f"the row of session {id} has no readable key") from error
    return SessionKey(source, text), StoredSession(id, record, bool(announced))

"""Store of the sessions on disk, for a restart of the core. Each session key has an integer id. Ids ascend,
and no id is used twice.

sessions.sqlite              the sessions, and the next id
session-ids-below-2000000    an empty file: all ids that were ever assigned are below this number

The second file is used if the database is damaged: the ids of the new database start at the number in the
file's name. An empty file has no content that could be damaged, and the name changes once in a million ids. A
timestamp would be no safe bound, because the clock may be wrong by years.
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

#: Maximum number of ids that are lost when the database is damaged. JSON readers accept integers below 2**53,
#: enough for nine billion such losses.
BOUND_STEP = 1_000_000
#: Maximum wait for a backup that reads the database. A client that changes a rate waits meanwhile, and the
#: API waits 3 s for the reply.
_MAX_LOCK_SECONDS = 1.0

#: Names of the steps that fail when the disk fails.
GIVE_IDS_STEP, STORE_STEP = "give ids to sessions", "store sessions"

#: Reader of the rows of this module, and of their records in `lifecycle`.
STORED_SESSION_READER = EntryReader(
    "core", "session", "the sessions on disk", "these sessions start again with new ids"
)

_DATABASE_NAME = "sessions.sqlite"
_BOUND_PREFIX = "session-ids-below-"
_BOUND_PATTERN = re.compile(_BOUND_PREFIX + "([1-9][0-9]{0,15})", re.ASCII)
_SCHEMA = """
CREATE TABLE IF NOT EXISTS session (
    id INTEGER PRIMARY KEY, source TEXT NOT NULL, name BLOB NOT NULL,
    record BLOB NOT NULL, announced INTEGER NOT NULL, UNIQUE (source, name)
);
CREATE TABLE IF NOT EXISTS next (one INTEGER PRIMARY KEY CHECK (one = 1), id INTEGER NOT NULL);
"""
_INSERT_SQL = "INSERT OR {} INTO session VALUES (?, ?, ?, ?, ?)"
_UPDATE_SQL = "UPDATE session SET record = ?, announced = ? WHERE id = ?"
_DELETE_SQL = "DELETE FROM session WHERE id = ?"


class SessionKey(NamedTuple):
    """Key of a session: the name of the source, and the source's own name for the session."""

    source: str
    name: str


class StoredSession(NamedTuple):
    """Database row of a session. `announced` is True after the event session_up of the session was added to
    the journal."""

    id: int
    record: bytes
    announced: bool


class SessionStore:
    """Store of sessions in a folder that only one process uses. Thread-safe.

    A key keeps its id until the key is released. A key that is claimed again gets a new id. A method that
    changes the store returns when the changes are on disk. All methods except `close` raise StepFailed if the
    disk fails; the next call uses the disk again.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._database = Database(
            folder / _DATABASE_NAME,
            "store of sessions",
            _SCHEMA,
            timeout=_MAX_LOCK_SECONDS,
            restore=self._restore,
        )
        self._lock = threading.Lock()
        #: Copy of the rows on disk; may differ after the disk has failed.
        self._rows: dict[SessionKey, StoredSession] = {}

    def claim(self, records: Mapping[SessionKey, bytes]) -> dict[SessionKey, int]:
        """Return the id of each key. Keys without an id are stored with the given records, as not announced,
        and get the next ids in the order of `records`. Keys that have an id keep the id and the stored
        record."""
        with self._lock, self._open_database(GIVE_IDS_STEP):
            if new_records := {key: record for key, record in records.items() if key not in self._rows}:
                self._rows |= self._database.use(partial(self._assign_ids, new_records))
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
        with self._lock, self._open_database(STORE_STEP):
            changed_rows = {
                key: row._replace(
                    announced=row.announced or key in announced, record=records.get(key, row.record)
                )
                for key in {*announced, *records}
                if (row := self._rows.get(key)) is not None
            }
            released_keys = [key for key in dict.fromkeys(released) if key in self._rows]
            if changed_rows or released_keys:
                ids = [self._rows[key].id for key in released_keys]
                self._database.use(partial(_write, changed=changed_rows.values(), released_ids=ids))
                self._rows |= changed_rows
                for key in released_keys:
                    del self._rows[key]

    def read_all(self) -> dict[SessionKey, StoredSession]:
        """Return a map from key to stored session, in the order of the ids."""
        with self._lock, self._open_database("read the sessions"):
            return dict(self._rows)

    def close(self) -> None:
        """Close the database. The next call of another method opens the database again."""
        with self._lock:
            self._database.close()

    @contextmanager
    def _open_database(self, step: str) -> Iterator[None]:
        with disk_step(step):
            self._database.open()
            yield

    def _assign_ids(
        self, new_records: Mapping[SessionKey, bytes], connection: sqlite3.Connection
    ) -> dict[SessionKey, StoredSession]:
        ((first_id,),) = connection.execute("SELECT id FROM next")
        next_id = first_id + len(new_records)
        # First the bound: if the database is damaged after this, the new database must not reuse
        # these ids.
        self._raise_bound(next_id)
        rows = {
            key: StoredSession(first_id + n, new_records[key], announced=False)
            for n, key in enumerate(new_records)
        }
        connection.executemany(_INSERT_SQL.format("ABORT"), map(_to_row, rows.items()))
        connection.execute("UPDATE next SET id = ?", (next_id,))
        return rows

    def _restore(self, connection: sqlite3.Connection) -> None:
        self._prepare_ids(connection)
        query = "SELECT id, source, name, record, announced FROM session ORDER BY id"
        rows = connection.execute(query).fetchall()
        readable_rows = dict(STORED_SESSION_READER.read(rows, _parse_row, place=self._folder))
        # An unreadable row must be deleted: it would block its key when the session starts again.
        unreadable_ids = {id for id, *_ in rows} - {row.id for row in readable_rows.values()}
        connection.executemany(_DELETE_SQL, ((id,) for id in unreadable_ids))
        self._rows = readable_rows

    def _prepare_ids(self, connection: sqlite3.Connection) -> None:
        bound = max(self._find_bounds(), default=0)
        connection.execute("INSERT OR IGNORE INTO next VALUES (1, ?)", (max(bound, 1),))
        # The bound is at most BOUND_STEP above the next id, unless the database is an older one from a
        # backup.
        connection.execute("UPDATE next SET id = ? WHERE id < ?", (bound, bound - BOUND_STEP))
        ((next_id,),) = connection.execute("SELECT id FROM next")
        self._raise_bound(next_id)
        # `_rows` is not empty if the database was damaged while it was in use.
        connection.executemany(_INSERT_SQL.format("IGNORE"), map(_to_row, self._rows.items()))

    def _raise_bound(self, next_id: int) -> None:
        """Ensure that the number in the name of the bound file is at least `next_id`."""
        bounds = self._find_bounds()
        if next_id <= max(bounds, default=0):
            return
        durable.write(self._folder / f"{_BOUND_PREFIX}{-(-next_id // BOUND_STEP) * BOUND_STEP}", b"")
        durable.sync(self._folder)
        for path in bounds.values():
            path.unlink()

    def _find_bounds(self) -> dict[int, Path]:
        names_and_paths = ((_BOUND_PATTERN.fullmatch(path.name), path) for path in self._folder.iterdir())
        return {int(match[1]): path for match, path in names_and_paths if match}


def _write(
    connection: sqlite3.Connection, changed: Iterable[StoredSession], released_ids: Iterable[int]
) -> None:
    connection.executemany(_UPDATE_SQL, ((row.record, row.announced, row.id) for row in changed))
    connection.executemany(_DELETE_SQL, ((id,) for id in released_ids))


def _to_row(item: tuple[SessionKey, StoredSession]) -> tuple[int, str, bytes, bytes, bool]:
    (source, name), row = item
    # Names come from the network. SQLite refuses text with a half of a surrogate pair.
    return row.id, source, name.encode(errors="surrogatepass"), row.record, row.announced


def _parse_row(row: tuple[Any, ...]) -> tuple[SessionKey, StoredSession]:
    """Parse a database row into a key and a stored session. Raises UnreadableEntry if a column has a wrong
    type or value."""
    # SQLite stores a value of any type in any column.
    id, source, name, record, announced = row
    if not (isinstance(source, str) and isinstance(name, bytes) and isinstance(record, bytes)):
        raise UnreadableEntry(f"the row of session {id} has values of other types")
    try:
        text = name.decode(errors="surrogatepass")
    except UnicodeDecodeError as error:
        raise UnreadableEntry(f"the row of session {id} has no readable key") from error
    return SessionKey(source, text), StoredSession(id, record, bool(announced))

"""Our integer ids of sessions on disk: one for each key of a source, ascending, none used twice.

    identities.sqlite         the ids in use, and the next one
    identities-below-2000000  an empty file: all ids ever given are below this number

The second one is for a damaged database: the new one begins at its number. It is a name without content, so
there is nothing in it to damage, and it changes once in a million ids. A clock gives no such bound: it may be
years off.
"""

import logging
import re
import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, TypeVar

from gateway_api.base import durable
from gateway_api.base.errors import GatewayApiError

T = TypeVar("T")

#: The ids that damage costs, at most. Readers of JSON know integers below 2**53, so there is room for nine
#: thousand million times.
STEP = 1_000_000
#: Seconds to wait for a backup that reads the database.
_PATIENCE = 5.0

_DATABASE = "identities.sqlite"
_BOUND = re.compile(r"identities-below-([1-9][0-9]{0,15})", re.ASCII)
_SCHEMA = """
BEGIN IMMEDIATE;
CREATE TABLE IF NOT EXISTS identity (
    id INTEGER PRIMARY KEY, source TEXT NOT NULL, name BLOB NOT NULL, UNIQUE (source, name)
);
CREATE TABLE IF NOT EXISTS next (one INTEGER PRIMARY KEY CHECK (one = 1), id INTEGER NOT NULL);
COMMIT;
"""
_INSERT = "INSERT OR {} INTO identity VALUES (?, ?, ?)"

_log = logging.getLogger(__name__)


class IdentitiesUnavailable(GatewayApiError):
    """The disk failed: no id was given, or none was released. The text is for the log."""


class Key(NamedTuple):
    """A session as its source knows it: the name of the source, and its own key of the session."""

    source: str
    name: str


class Identities:
    """The ids in a folder that only one process uses. A key keeps its id until it is released; if it comes
    back, it gets a new one. What a method returns is on disk. Any thread may call. All methods but `close`
    raise IdentitiesUnavailable, and the next call tries again."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._path = folder / _DATABASE
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None
        #: As on disk, unless there is no connection.
        self._ids: dict[Key, int] = {}

    def claim(self, keys: Iterable[Key]) -> dict[Key, int]:
        """The ids of keys. Those without one get the next ids in the order given, in one transaction."""
        wanted = dict.fromkeys(keys)
        with self._lock, self._usable("give ids to sessions"):
            if new := [key for key in wanted if key not in self._ids]:
                self._ids |= self._written(self._give, new)
            return {key: self._ids[key] for key in wanted}

    def release(self, keys: Iterable[Key]) -> None:
        """Forgets keys, in one transaction. An unknown key is no error."""
        with self._lock, self._usable("release the ids of sessions"):
            if gone := [key for key in dict.fromkeys(keys) if key in self._ids]:
                self._written(self._forget, gone)
                for key in gone:
                    del self._ids[key]

    def known(self) -> dict[Key, int]:
        """All keys with their ids, of this moment."""
        with self._lock, self._usable("read the ids of sessions"):
            return dict(self._ids)

    def close(self) -> None:
        """Closes the database. A later call opens it again."""
        with self._lock:
            self._close()

    @contextmanager
    def _usable(self, verb: str) -> Iterator[None]:
        try:
            if self._connection is None:
                self._open()
            yield
        except (OSError, sqlite3.Error) as error:
            # It is unknown whether the transaction is on disk: the next call reads it.
            self._close()
            raise IdentitiesUnavailable(f"cannot {verb}: {error}") from error

    def _written(self, write: Callable[[sqlite3.Connection, list[Key]], T], keys: list[Key]) -> T:
        """The result of one transaction. A damaged database is replaced by one with what is in memory."""
        try:
            return self._transaction(write, keys)
        except sqlite3.DatabaseError as error:
            if not durable.is_damaged(error):
                raise
        self._close()
        self._open()
        return self._transaction(write, keys)

    def _transaction(self, write: Callable[[sqlite3.Connection, list[Key]], T], keys: list[Key]) -> T:
        assert self._connection is not None  # noqa: S101 - `_usable` opened it
        with self._connection as connection:
            connection.execute("BEGIN IMMEDIATE")
            return write(connection, keys)

    def _give(self, connection: sqlite3.Connection, keys: list[Key]) -> dict[Key, int]:
        ((first,),) = connection.execute("SELECT id FROM next")
        following = first + len(keys)
        # Before the ids are on disk, or damage now would make the new database give them again.
        self._raise_bound(following)
        ids = dict(zip(keys, range(first, following), strict=True))
        connection.executemany(_INSERT.format("ABORT"), map(_row, ids.items()))
        connection.execute("UPDATE next SET id = ?", (following,))
        return ids

    def _forget(self, connection: sqlite3.Connection, keys: list[Key]) -> None:
        connection.executemany("DELETE FROM identity WHERE id = ?", ((self._ids[key],) for key in keys))

    def _open(self) -> None:
        durable.make_folder(self._folder)
        if not durable.is_whole(self._path):
            aside = durable.set_aside(self._path)
            _log.error("began new ids of sessions: the database is damaged, and is now %s", aside)
        connection = durable.database(self._path, timeout=_PATIENCE)
        try:
            # One file at rest, which a backup can copy. EXTRA syncs the folder when the journal is removed.
            connection.execute("PRAGMA journal_mode = DELETE").fetchall()
            connection.execute("PRAGMA synchronous = EXTRA")
            connection.executescript(_SCHEMA)
            with connection:
                connection.execute("BEGIN IMMEDIATE")
                self._begin(connection)
            rows = connection.execute("SELECT id, source, name FROM identity ORDER BY id")
            self._ids = {Key(source, _text(name)): id for id, source, name in rows}
        except BaseException:
            connection.close()
            raise
        self._connection = connection

    def _begin(self, connection: sqlite3.Connection) -> None:
        bound = max(self._bounds(), default=0)
        connection.execute("INSERT OR IGNORE INTO next VALUES (1, ?)", (max(bound, 1),))
        # The bound is at most STEP above the next id. A database that is further below came from a backup.
        connection.execute("UPDATE next SET id = ? WHERE id < ?", (bound, bound - STEP))
        ((following,),) = connection.execute("SELECT id FROM next")
        self._raise_bound(following)
        # Some are in memory if the database was damaged while it was in use.
        connection.executemany(_INSERT.format("IGNORE"), map(_row, self._ids.items()))

    def _raise_bound(self, following: int) -> None:
        """Makes sure that a name on disk bounds all ids below `following`."""
        bounds = self._bounds()
        if following <= max(bounds, default=0):
            return
        durable.write(self._folder / f"identities-below-{-(-following // STEP) * STEP}", b"")
        durable.sync(self._folder)
        for path in bounds.values():
            path.unlink()

    def _bounds(self) -> dict[int, Path]:
        found = ((_BOUND.fullmatch(path.name), path) for path in self._folder.iterdir())
        return {int(name[1]): path for name, path in found if name}

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _row(item: tuple[Key, int]) -> tuple[int, str, bytes]:
    (source, name), id = item
    # A source takes names from the network. SQLite refuses text with a half of a surrogate pair.
    return id, source, name.encode(errors="surrogatepass")


def _text(name: bytes) -> str:
    return name.decode(errors="surrogatepass")

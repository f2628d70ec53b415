"""SQLite files: how they are opened, and what becomes of damaged ones. Each store has its own pragmas, since
each has its own reason to be more or less durable.

A process that forks must not use one: SQLite's locks belong to the process that opened the file.
"""

import fcntl
import logging
import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import TypeVar

from gateway_contract.base import durable

T = TypeVar("T")

_log = logging.getLogger(__name__)

_MODE = 0o600
#: What SQLite adds to the name of a database for its other files. The database comes last: a new one must not
#: find the log of the old one.
_SUFFIXES = ("-wal", "-shm", "-journal", "")


class DatabaseFile(sqlite3.Connection):
    """A connection without implicit transactions. `path` and `inode` are those of the file that it opened."""

    path: Path
    inode: int

    @property
    def is_current(self) -> bool:
        """False if the file was removed or replaced: what is written now would be lost."""
        with suppress(FileNotFoundError):
            return self.path.stat().st_ino == self.inode
        return False


def connect(
    path: Path,
    *pragmas: str,
    timeout: float,
    schema: str = "",
    prepare: Callable[[sqlite3.Connection], object] = lambda _: None,
    mode: int = _MODE,
) -> DatabaseFile:
    """Open a database, or make one. It waits `timeout` seconds for locks of other processes. `schema` makes
    tables, and `prepare` puts rows in them. Raises OSError and sqlite3.Error."""
    with suppress(FileExistsError):
        # SQLite's other files get the mode of this one. An existing file must not be opened here: closing it
        # would release SQLite's locks of this process (fcntl(2)).
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
        try:
            os.fchmod(descriptor, mode)
        finally:
            os.close(descriptor)
        durable.sync(path.parent)
    connection = sqlite3.connect(
        path, timeout=timeout, isolation_level=None, check_same_thread=False, factory=DatabaseFile
    )
    try:
        for text in pragmas:
            connection.execute(f"PRAGMA {text}").fetchall()
        connection.executescript(schema)
        prepare(connection)
        connection.path, connection.inode = path, path.stat().st_ino
    except BaseException:
        connection.close()
        raise
    return connection


def connect_by(query: str, path: Path, timeout: float) -> sqlite3.Connection:
    """Open an existing database as the query says, such as `mode=ro` (https://sqlite.org/uri.html). Raises
    sqlite3.Error."""
    address = f"{path.absolute().as_uri()}?{query}"
    return sqlite3.connect(address, uri=True, timeout=timeout, isolation_level=None)


def connect_to_read(path: Path, timeout: float, timeout_alone: float) -> sqlite3.Connection:
    """Open an existing database for readers, also where the disk is full or the folder belongs to another
    user. `timeout_alone` is the wait for other processes where the connection must be the only one. Raises
    sqlite3.Error."""
    connection = connect_by("mode=ro", path, timeout)
    try:
        connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone()
    except sqlite3.OperationalError:
        connection.close()
        # No process has it open, and SQLite cannot make the files that processes share.
        if path.with_name(f"{path.name}-wal").exists():
            return _connect_alone(path, timeout_alone)
        return connect_by("mode=ro&immutable=1", path, timeout)
    return connection


def _connect_alone(path: Path, timeout: float) -> sqlite3.Connection:
    """After a power cut, for a write-ahead log without its index: SQLite makes the index in memory for the
    only connection, and needs no space (https://sqlite.org/wal.html#noshm)."""
    connection = connect_by("mode=rw", path, timeout)
    try:
        connection.execute("PRAGMA locking_mode = EXCLUSIVE").fetchone()
        connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone()
    except BaseException:
        connection.close()
        raise
    return connection


def pragma(connection: sqlite3.Connection, name: str) -> int:
    (value,) = connection.execute(f"PRAGMA {name}").fetchone()
    return int(value)


def kind_of(error: sqlite3.Error) -> int:
    """Return the primary result code of SQLite, such as SQLITE_FULL; 0 for an error of the module sqlite3."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


def is_damaged(error: sqlite3.Error) -> bool:
    return kind_of(error) in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def is_whole(path: Path) -> bool:
    """Return True if SQLite can read the whole database, or there is none. Raises sqlite3.Error."""
    if not path.exists():
        return True
    try:
        with closing(sqlite3.connect(path)) as connection:
            return ("ok",) in connection.execute("PRAGMA quick_check(1)")
    except sqlite3.DatabaseError as error:
        if not is_damaged(error):
            raise
        return False


def set_aside(path: Path) -> Path:
    """Rename a database with SQLite's other files, and return its new path. Raises OSError."""
    aside = path.with_name(f"{path.name}.damaged")
    for suffix in _SUFFIXES:
        with suppress(FileNotFoundError):
            path.with_name(path.name + suffix).rename(aside.with_name(aside.name + suffix))
    durable.sync(path.parent)
    return aside


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Excludes other processes that prepare a file in the folder. Raises OSError."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


class Damaged(sqlite3.DatabaseError):
    """A file that SQLite can read, but not all of it, or with other tables than its owner makes."""

    sqlite_errorcode = sqlite3.SQLITE_CORRUPT


def check(connection: sqlite3.Connection) -> None:
    """Read the whole database. Raises Damaged."""
    if ("ok",) not in connection.execute("PRAGMA quick_check(1)"):
        raise Damaged("the check of the file failed")


def opened(path: Path, what: str, open: Callable[[], T]) -> T:
    """Open the file at `path` with `open`, and return its result. A damaged one is set aside, and `open` is
    called again; the log says so, with `what` the file is. Raises OSError and sqlite3.Error."""
    try:
        return open()
    except sqlite3.DatabaseError as error:
        if not is_damaged(error):
            raise
        begin_anew(path, what)
        return open()


class Database:
    """A file that one process owns, and that begins anew when it is damaged or removed. It opens with its
    first use. For one thread at a time.

    `prepare` gets each new connection: it makes tables, and puts in them what its owner has in memory. So
    nothing is lost with a file that is damaged or removed while it is in use. `what` the file is, is for the
    log. Connections wait `timeout` seconds for other processes that read.
    """

    def __init__(
        self, path: Path, what: str, prepare: Callable[[sqlite3.Connection], None], timeout: float
    ) -> None:
        self._path = path
        self._what = what
        self._prepare = prepare
        self._timeout = timeout
        self._connection: DatabaseFile | None = None

    def use(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Return the result of `work` in one transaction, which is on disk. If the file is damaged, `work` is
        called again with a new one. Raises OSError and sqlite3.Error: then it is unknown what is on disk, and
        the next use opens the file again."""
        try:
            return self._transaction(work)
        except sqlite3.DatabaseError as error:
            self.close()
            if not is_damaged(error):
                raise
            begin_anew(self._path, self._what)
            return self._transaction(work)

    def open(self) -> sqlite3.Connection:
        """Return the connection: a new one if there is none, or if its file was removed. Raises OSError and
        sqlite3.Error."""
        if self._connection is not None and not self._connection.is_current:
            _log.error("began a new %s: %s was removed or replaced", self._what, self._path)
            self.close()
        if self._connection is None:
            durable.make_folder(self._path.parent)
            self._connection = opened(self._path, self._what, self._opened)
        return self._connection

    def close(self) -> None:
        """The next use opens the file again."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _transaction(self, work: Callable[[sqlite3.Connection], T]) -> T:
        try:
            with self.open() as connection:
                connection.execute("BEGIN IMMEDIATE")
                return work(connection)
        except (OSError, sqlite3.Error):
            self.close()
            raise

    def _opened(self) -> DatabaseFile:
        return connect(self._path, timeout=self._timeout, prepare=self._check)

    def _check(self, connection: sqlite3.Connection) -> None:
        check(connection)
        self._prepare(connection)


def begin_anew(path: Path, what: str) -> None:
    """Set a damaged file aside, so that the next opening makes a new one. The log says so, with `what` the
    file is. Raises OSError."""
    _log.error("began a new %s: the old one is damaged, and is now %s", what, set_aside(path))

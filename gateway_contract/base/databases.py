"""SQLite files: how they are opened and checked, what becomes of damaged ones, and how their write-ahead logs
are emptied. Each store has its own pragmas, since each has its own reason to be more or less durable.

A process that forks must not use an SQLite file: SQLite's locks belong to the process that opened the file.
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
#: Pragmas for one file at rest, which a backup can copy. EXTRA syncs the folder when the journal is removed:
#: after a commit, a power cut must not bring the journal back.
ONE_FILE = ("journal_mode = DELETE", "synchronous = EXTRA")
#: What SQLite adds to the name of a database for its other files. The database comes last: a new one must not
#: find the log of the old one.
_SUFFIXES = ("-wal", "-shm", "-journal", "")


class Damaged(sqlite3.DatabaseError):
    """A file that SQLite can read, but not all of it, or with other tables than its owner makes."""

    sqlite_errorcode = sqlite3.SQLITE_CORRUPT


class DatabaseFile(sqlite3.Connection):
    """Connection without implicit transactions. `path` and `inode` are those of the file that it opened."""

    path: Path
    inode: int

    @property
    def is_current(self) -> bool:
        """False if the file was removed or replaced: what is written now would be lost."""
        with suppress(FileNotFoundError):
            return self.path.stat().st_ino == self.inode
        return False

    @property
    def used_pages(self) -> int:
        """Pages of the file that hold data."""
        return self.read_pragma("page_count") - self.read_pragma("freelist_count")

    @property
    def log_bytes(self) -> int:
        """Size of SQLite's write-ahead log."""
        return self.path.with_name(f"{self.path.name}-wal").stat().st_size

    def read_pragma(self, name: str) -> int:
        """Return the value of a pragma that is a number."""
        (value,) = self.execute(f"PRAGMA {name}").fetchone()
        return int(value)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Commit at the end of the block, or roll back after an exception."""
        with self:
            self.execute("BEGIN IMMEDIATE")
            yield

    def empty_log(self, wait_ms: int) -> tuple[bool, bool]:
        """Empty the write-ahead log. By itself, SQLite does so only in a moment without a reader of the log,
        which may never come. Wait at most `wait_ms` for the readers of now; new ones do not read the log.
        Return whether the log is empty, and whether another process empties it: SQLite has no wait for that.
        """
        timeout = self.read_pragma("busy_timeout")
        self.execute(f"PRAGMA busy_timeout = {wait_ms}")
        failed, pages, _ = self.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        self.execute(f"PRAGMA busy_timeout = {timeout}")
        return not failed, bool(failed) and pages < 0


def connect(
    path: Path,
    *pragmas: str,
    timeout: float,
    schema: str = "",
    prepare: Callable[[DatabaseFile], object] = lambda _: None,
    mode: int = _MODE,
) -> DatabaseFile:
    """Open a database, or make one. The connection waits `timeout` seconds for locks of other processes.
    `schema` makes tables, and `prepare` puts rows in them. Raises OSError and sqlite3.Error."""
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
    user. `timeout_alone` is the wait in seconds for other processes where the connection must be the only
    one. Raises sqlite3.Error."""
    connection = connect_by("mode=ro", path, timeout)
    try:
        _read(connection)
    except sqlite3.OperationalError:
        connection.close()
        # No process has it open, and SQLite cannot make the files that processes share.
        if not path.with_name(f"{path.name}-wal").exists():
            return connect_by("mode=ro&immutable=1", path, timeout)
        # After a power cut, for a write-ahead log without its index: SQLite makes the index in memory for the
        # only connection, and needs no space (https://sqlite.org/wal.html#noshm).
        connection = connect_by("mode=rw", path, timeout_alone)
        try:
            connection.execute("PRAGMA locking_mode = EXCLUSIVE").fetchone()
            _read(connection)
        except BaseException:
            connection.close()
            raise
    return connection


def _read(connection: sqlite3.Connection) -> None:
    connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone()


@contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """Exclude other processes that prepare a file in the folder. Raises OSError."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def get_result_code(error: sqlite3.Error) -> int:
    """Return the primary result code of SQLite, such as SQLITE_FULL; 0 for an error of the module sqlite3."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


def is_damaged(error: sqlite3.Error) -> bool:
    """Return True if the error says that the file is damaged, or is no database."""
    return get_result_code(error) in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def check(connection: sqlite3.Connection) -> None:
    """Read the whole database. Raises Damaged."""
    if ("ok",) not in connection.execute("PRAGMA quick_check(1)"):
        raise Damaged("the check of the file failed")


def is_whole(path: Path) -> bool:
    """Return True if SQLite can read the whole database, or there is none. Raises sqlite3.Error."""
    if not path.exists():
        return True
    try:
        with closing(sqlite3.connect(path)) as connection:
            check(connection)
    except sqlite3.DatabaseError as error:
        if not is_damaged(error):
            raise
        return False
    return True


def repair_and_retry(work: Callable[[], T], repair: Callable[[], object]) -> T:
    """Return the result of `work`. If the file turns out to be damaged, call `repair`, and `work` again."""
    try:
        return work()
    except sqlite3.DatabaseError as error:
        if not is_damaged(error):
            raise
    repair()
    return work()


def begin_anew(path: Path, what: str) -> Path:
    """Rename a damaged database with SQLite's other files, so that the next opening makes a new one, and
    return its new path. The log says so, with `what` as the name of the file. Raises OSError."""
    aside = path.with_name(f"{path.name}.damaged")
    for suffix in _SUFFIXES:
        with suppress(FileNotFoundError):
            path.with_name(path.name + suffix).rename(aside.with_name(aside.name + suffix))
    durable.sync(path.parent)
    _log.error("began a new %s: the old one is damaged, and is now %s", what, aside)
    return aside


class Database:
    """File that one process owns, and that begins anew when it is damaged or removed. Its first use opens it.
    For one thread at a time.

    `what` names the file in the log. Connections wait `timeout` seconds for other processes that read.
    `restore` gets each new connection, in a transaction, and puts in the tables what the owner has in memory.
    So nothing is lost with a file that is damaged or removed while it is in use.
    """

    def __init__(
        self,
        path: Path,
        what: str,
        schema: str,
        *,
        timeout: float,
        pragmas: tuple[str, ...] = ONE_FILE,
        restore: Callable[[sqlite3.Connection], None] = lambda _: None,
    ) -> None:
        self._path = path
        self._what = what
        self._schema = schema
        self._timeout = timeout
        self._pragmas = pragmas
        self._restore = restore
        self._connection: DatabaseFile | None = None

    def use(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Return the result of `work` in one transaction, which is on disk. If the file is damaged, `work` is
        called again with a new file. Raises OSError and sqlite3.Error: then it is unknown what is on disk,
        and the next use opens the file again."""
        return repair_and_retry(lambda: self._transact(work), self._begin_anew)

    def open(self) -> DatabaseFile:
        """Return the connection: a new one if there is none, or if its file was removed. Raises OSError and
        sqlite3.Error."""
        if self._connection is not None and not self._connection.is_current:
            _log.error("began a new %s: the file %s was removed or replaced", self._what, self._path)
            self.close()
        if self._connection is None:
            durable.make_folder(self._path.parent)
            self._connection = repair_and_retry(self._connect, self._begin_anew)
        return self._connection

    def close(self) -> None:
        """Close the connection. The next use opens the file again."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _transact(self, work: Callable[[sqlite3.Connection], T]) -> T:
        try:
            connection = self.open()
            with connection.transaction():
                return work(connection)
        except (OSError, sqlite3.Error):
            self.close()
            raise

    def _connect(self) -> DatabaseFile:
        schema = f"BEGIN IMMEDIATE; {self._schema}; COMMIT"
        return connect(
            self._path, *self._pragmas, timeout=self._timeout, schema=schema, prepare=self._prepare
        )

    def _prepare(self, connection: DatabaseFile) -> None:
        check(connection)
        with connection.transaction():
            self._restore(connection)

    def _begin_anew(self) -> None:
        begin_anew(self._path, self._what)

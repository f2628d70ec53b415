"""SQLite files: opening, checking, replacement of damaged files, and emptying of write-ahead logs. Each store
sets its own pragmas, because the stores need different degrees of durability.

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

_FILE_MODE = 0o600
#: Pragmas for one file at rest, which a backup can copy. EXTRA syncs the folder when the journal is removed:
#: after a commit, a power cut must not bring the journal back.
SINGLE_FILE_PRAGMAS = ("journal_mode = DELETE", "synchronous = EXTRA")
#: Suffixes of SQLite's files for a database. The database itself is last: a new database must not find the
#: log of the old database.
_FILE_SUFFIXES = ("-wal", "-shm", "-journal", "")


class Damaged(sqlite3.DatabaseError):
    """Error of a file that SQLite cannot read completely, or whose tables are not the tables of its owner."""

    sqlite_errorcode = sqlite3.SQLITE_CORRUPT


class DatabaseFile(sqlite3.Connection):
    """Connection to an SQLite file, without implicit transactions. `path` and `inode` identify the file that
    the connection opened."""

    path: Path
    inode: int

    @property
    def is_current(self) -> bool:
        """True if the opened file still exists at its path. If False, the file was removed or replaced, and
        writes through this connection would be lost."""
        with suppress(FileNotFoundError):
            return self.path.stat().st_ino == self.inode
        return False

    @property
    def used_pages(self) -> int:
        """Number of pages of the file that contain data."""
        return self.read_pragma("page_count") - self.read_pragma("freelist_count")

    @property
    def log_bytes(self) -> int:
        """Size of SQLite's write-ahead log, in bytes."""
        return self.path.with_name(f"{self.path.name}-wal").stat().st_size

    def read_pragma(self, name: str) -> int:
        """Return the value of the pragma `name`, which must be an integer."""
        (value,) = self.execute(f"PRAGMA {name}").fetchone()
        return int(value)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Run the with block in a transaction. Commit at the end of the block, or roll back after an
        exception."""
        with self:
            self.execute("BEGIN IMMEDIATE")
            yield

    def empty_log(self, wait_ms: int) -> tuple[bool, bool]:
        """Empty the write-ahead log. (SQLite itself empties the log only when no connection reads it, which
        may never happen.) Wait at most `wait_ms` milliseconds for the present readers of the log. Return two
        booleans: whether the log is empty, and whether another process is emptying the log at the moment."""
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
    mode: int = _FILE_MODE,
) -> DatabaseFile:
    """Open a database, and create the file if it is missing. `pragmas` are executed first, then `schema`,
    which creates tables, then `prepare`, which inserts rows. The connection waits at most `timeout` seconds
    for locks of other processes. Raises OSError if the file cannot be created, and sqlite3.Error if the
    database cannot be used."""
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


def connect_with_query(query: str, path: Path, timeout: float) -> sqlite3.Connection:
    """Open an existing database with the parameters of a URI query, such as `mode=ro`
    (https://sqlite.org/uri.html). Raises sqlite3.Error if the database cannot be opened."""
    address = f"{path.absolute().as_uri()}?{query}"
    return sqlite3.connect(address, uri=True, timeout=timeout, isolation_level=None)


def connect_to_read(path: Path, timeout: float, timeout_alone: float) -> sqlite3.Connection:
    """Open an existing database for reading, even if the disk is full or the folder belongs to another user.
    Wait at most `timeout` seconds for locks of other processes. If SQLite can read the database only without
    other connections, wait at most `timeout_alone` seconds until they are closed. Raises sqlite3.Error if the
    database cannot be read."""
    connection = connect_with_query("mode=ro", path, timeout)
    try:
        _read(connection)
    except sqlite3.OperationalError:
        connection.close()
        # No process has it open, and SQLite cannot make the files that processes share.
        if not path.with_name(f"{path.name}-wal").exists():
            return connect_with_query("mode=ro&immutable=1", path, timeout)
        # After a power cut, for a write-ahead log without its index: SQLite makes the index in memory for the
        # only connection, and needs no space (https://sqlite.org/wal.html#noshm).
        connection = connect_with_query("mode=rw", path, timeout_alone)
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
    """Lock a folder during the with block, against other processes that prepare a file in the folder. Raises
    OSError if the folder cannot be opened."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def get_result_code(error: sqlite3.Error) -> int:
    """Return the primary result code of SQLite for an error, such as SQLITE_FULL. Return 0 if the error comes
    from the module sqlite3 itself."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


def is_damaged(error: sqlite3.Error) -> bool:
    """Return True if the error says that the file is damaged or is not a database."""
    return get_result_code(error) in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def check(connection: sqlite3.Connection) -> None:
    """Check the whole database. Raises Damaged if SQLite finds a fault."""
    if ("ok",) not in connection.execute("PRAGMA quick_check(1)"):
        raise Damaged("the check of the file failed")


def is_whole(path: Path) -> bool:
    """Return True if SQLite can read the whole database, or if the file does not exist. Return False if the
    file is damaged. Raises sqlite3.Error for any other error."""
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
    """Return the result of `work`. If `work` fails because the file is damaged, call `repair`, and call
    `work` again."""
    try:
        return work()
    except sqlite3.DatabaseError as error:
        if not is_damaged(error):
            raise
    repair()
    return work()


def begin_anew(path: Path, what: str) -> Path:
    """Rename a damaged database and SQLite's other files of this database, so that the next opening creates a
    new database. Return the new path of the damaged file. `what` names the database in the log line. Raises
    OSError if a file cannot be renamed."""
    damaged_path = path.with_name(f"{path.name}.damaged")
    for suffix in _FILE_SUFFIXES:
        with suppress(FileNotFoundError):
            path.with_name(path.name + suffix).rename(damaged_path.with_name(damaged_path.name + suffix))
    durable.sync(path.parent)
    _log.error("began a new %s, the damaged file was moved to %s", what, damaged_path)
    return damaged_path


class Database:
    """Database file of one process. A file that is damaged or removed is replaced by a new file. The first
    use opens the file. Only one thread at a time may use the object.

    `what` names the database in the log. Connections wait at most `timeout` seconds for other processes that
    read. `restore` is called with each new connection in a transaction, and inserts the rows that the owner
    has in memory. So no row is lost if the file is damaged or removed while the file is in use.
    """

    def __init__(
        self,
        path: Path,
        what: str,
        schema: str,
        *,
        timeout: float,
        pragmas: tuple[str, ...] = SINGLE_FILE_PRAGMAS,
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
        """Call `work` in one transaction, and return its result when the transaction is on disk. If the file
        is damaged, call `work` again with a new file. Raises OSError or sqlite3.Error if the transaction
        fails: the content on disk is then unknown, and the next use opens the file again."""
        return repair_and_retry(lambda: self._transact(work), self._begin_anew)

    def open(self) -> DatabaseFile:
        """Return the connection. Open a new connection if there is none, or if the file was removed. Raises
        OSError or sqlite3.Error if the file cannot be opened."""
        if self._connection is not None and not self._connection.is_current:
            _log.error("began a new %s, because the file %s was removed or replaced", self._what, self._path)
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

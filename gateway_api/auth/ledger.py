"""The login ledger: revoked tokens and failed logins. All workers share the ledger, which survives a power
cut and a reboot.

The ledger is an SQLite database, so that a killed worker leaves no partial write. Each ledger has a random
name, which every token contains. A new ledger lacks the revocations of the old ledger, so tokens with another
ledger's name are rejected. A ledger file that replaces the file in use, for example a backup, may
lack revocations, too: its ledger gets a new name, so older tokens are rejected.
"""

import logging
import mmap
import os
import secrets
import sqlite3
import struct
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import msgspec

from gateway_contract.base import databases, durable
from gateway_contract.base.databases import DatabaseFile
from gateway_contract.base.errors import LedgerUnavailable
from gateway_contract.base.process import ThreadPool, run_on_thread

T = TypeVar("T")

_SCHEMA = """
CREATE TABLE IF NOT EXISTS ledger (one INTEGER PRIMARY KEY CHECK (one = 1), name TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS revoked (
    number INTEGER PRIMARY KEY,
    jti TEXT NOT NULL UNIQUE,
    expires INTEGER NOT NULL
);
CREATE TABLE IF NOT EXISTS failure (
    client BLOB PRIMARY KEY,
    count INTEGER NOT NULL,
    last REAL NOT NULL
) WITHOUT ROWID;
"""
_OPEN_TIMEOUT_SECONDS = 5.0
#: Wait for a lock, which is held while the disk syncs. Before a synced write, only a thread of the worker
#: waits, and before another write, the whole worker.
_LOCK_TIMEOUT_SYNCED_MS = 500
_LOCK_TIMEOUT_MS = 50

#: Space of the disk that is kept for a start on a full disk.
_RESERVED_BYTES = 128 << 10
#: Tokens of which a worker remembers that they are not revoked.
_MAX_REMEMBERED_TOKENS = 10_000
_LOOKUP_ERROR_TEXT = "Cannot look up whether the token was revoked"
#: Revocations that are kept even if the clock says that they have expired: the clock may be wrong.
_MIN_KEPT_REVOCATIONS = 100_000

#: The name of the file in the log.
_LOG_NAME = "login ledger"
_NO_SPACE_ERROR_CODES = {sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN}
# A table with other columns, or a missing one, gives ERROR.
_DAMAGE_ERROR_CODES = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR}
#: Errors of a connection that a new connection may not have.
_REOPEN_ERROR_CODES = {*_DAMAGE_ERROR_CODES, sqlite3.SQLITE_READONLY}

_log = logging.getLogger(__name__)


class LedgerFile(NamedTuple):
    """Name and inode of the file of the ledger in use. Before the first ledger is opened, the name is empty
    and the inode is 0. `begun_at` is the time, in epoch seconds, at which a new ledger last replaced a
    damaged, removed or exchanged ledger; 0 if no ledger was replaced."""

    name: str
    inode: int
    begun_at: float


class SharedState:
    """State of the ledger, which all workers of one API share in memory that forked processes inherit.
    `stamp` changes with each revocation and with each new ledger."""

    _STAMP_BYTES = 8
    _FILE_STRUCT = struct.Struct("=16sQd")

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, self._STAMP_BYTES + self._FILE_STRUCT.size)

    @property
    def stamp(self) -> bytes:
        return self._memory[: self._STAMP_BYTES]

    def renew_stamp(self) -> None:
        """Change the stamp to a new random value."""
        # Random: two processes that write at the same time must not write the same stamp.
        self._memory[: self._STAMP_BYTES] = secrets.token_bytes(self._STAMP_BYTES)

    @property
    def file(self) -> LedgerFile:
        name, inode, begun_at = self._FILE_STRUCT.unpack(self._memory[self._STAMP_BYTES :])
        return LedgerFile(name.rstrip(b"\0").decode(), inode, begun_at)

    def set_file(self, file: LedgerFile) -> None:
        """Set the file of the ledger in use for all workers, and change the stamp."""
        self._memory[self._STAMP_BYTES :] = self._FILE_STRUCT.pack(
            file.name.encode(), file.inode, file.begun_at
        )
        self.renew_stamp()


#: The state of the API whose arbiter has imported this module.
SHARED = SharedState()


def open_ledger(path: Path, *, synced: bool = True) -> DatabaseFile:
    """Open the ledger and return a connection, which must not be used after a fork. With `synced`, a write
    returns when the data is on disk. Without `synced`, the data reaches the disk later, and the wait for a
    lock is shorter. Raises OSError or sqlite3.Error if the ledger cannot be opened or is damaged."""
    pragmas = ("journal_mode = WAL", "synchronous = FULL")
    ledger = databases.connect(
        path, *pragmas, timeout=_OPEN_TIMEOUT_SECONDS, schema=_SCHEMA, prepare=_prepare_tables
    )
    if not synced:
        ledger.execute("PRAGMA synchronous = NORMAL")
    timeout = _LOCK_TIMEOUT_SYNCED_MS if synced else _LOCK_TIMEOUT_MS
    ledger.execute(f"PRAGMA busy_timeout = {timeout}")
    return ledger


def _prepare_tables(ledger: sqlite3.Connection) -> None:
    databases.check(ledger)
    try:
        if ledger.execute("SELECT name FROM ledger").fetchone() is None:
            ledger.execute("INSERT OR IGNORE INTO ledger VALUES (1, ?)", (_make_name(),))
        ledger.execute("SELECT number, jti, expires FROM revoked LIMIT 1")
        ledger.execute("SELECT client, count, last FROM failure LIMIT 1")
    except sqlite3.DatabaseError as error:
        if databases.get_result_code(error) in _DAMAGE_ERROR_CODES:
            raise databases.Damaged(str(error)) from error
        raise


def _make_name() -> str:
    return secrets.token_hex(8)


def read_name(ledger: sqlite3.Connection) -> str:
    """Return the name of an open ledger."""
    (name,) = ledger.execute("SELECT name FROM ledger").fetchone()
    return str(name)


def _open_shared(path: Path, shared: SharedState, clock: Callable[[], float]) -> DatabaseFile:
    """Open the ledger that all workers use, and return a connection. If the file is damaged, begin a new
    ledger. If the file was removed or replaced, give the ledger a new name, so that the tokens of the old
    ledger are rejected. Raises OSError or sqlite3.Error if the ledger cannot be opened."""
    with databases.lock_folder(path.parent):
        former_file = shared.file
        begun_at = former_file.begun_at
        try:
            if former_file.name and path.exists() and not path.stat().st_size:
                # SQLite would make tables in it, and wait for workers that have it open.
                raise databases.Damaged("the file is empty")
            ledger = open_ledger(path)
        except sqlite3.DatabaseError as error:
            # A full disk or a lock does not break a ledger.
            if not databases.is_damaged(error):
                raise
            databases.begin_anew(path, _LOG_NAME)
            ledger, begun_at = open_ledger(path), clock()
        try:
            file = LedgerFile(read_name(ledger), ledger.inode, begun_at)
            if former_file.name and (former_file.name, former_file.inode) != (file.name, file.inode):
                # The file may lack some of the revocations.
                file = LedgerFile(_make_name(), file.inode, clock())
                ledger.execute("UPDATE ledger SET name = ?", (file.name,))
            if file.begun_at != former_file.begun_at:
                _log.error(
                    "the %s %s is new, tokens of the old ledger are rejected: all users must log in again",
                    _LOG_NAME,
                    path,
                )
            if file != former_file:
                shared.set_file(file)
        except BaseException:
            ledger.close()
            raise
        return ledger


def prepare_ledger(path: Path, shared: SharedState = SHARED, clock: Callable[[], float] = time.time) -> None:
    """Create the ledger if the file does not exist, and reserve disk space so that the ledger can be opened
    on a full disk. If the file is damaged, begin a new ledger. Raises OSError or sqlite3.Error if the ledger
    cannot be created or opened."""
    reserve = path.with_name(f"{path.name}.reserve")
    try:
        _open_shared(path, shared, clock).close()
    except sqlite3.OperationalError as error:
        # SQLite needs space for two more files.
        if databases.get_result_code(error) not in _NO_SPACE_ERROR_CODES or not reserve.exists():
            raise
        reserve.unlink()
        _open_shared(path, shared, clock).close()
        _log.error("the disk of the login ledger is full, used the reserved space to start: free some space")
        return
    _reserve_space(reserve)


def _reserve_space(reserve: Path) -> None:
    try:
        if not reserve.exists() or reserve.stat().st_size < _RESERVED_BYTES:
            durable.replace(reserve, bytes(_RESERVED_BYTES))
    except OSError as error:
        _log.warning(
            "cannot reserve space for the login ledger, the API may not start on a full disk: %s", error
        )


class Ledger:
    """Access of one worker to the ledger. The first use opens the file. The file is opened again after the
    file was removed, replaced or damaged, or after a write failed. Only one thread may use an object of this
    class; the greenlets of this thread may share the object. Synced writes run on a thread of `pool`. Methods
    raise OSError or sqlite3.Error if the ledger cannot be opened, read or written."""

    def __init__(
        self,
        path: Path,
        pool: ThreadPool,
        shared: SharedState = SHARED,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._path = path
        self._pool = pool
        self.shared = shared
        self._clock = clock
        #: Held during a synced write, and while the connections are replaced.
        self._writing = threading.Lock()
        self._synced: DatabaseFile | None = None
        self._reader: DatabaseFile | None = None
        #: The name of the ledger when it was opened.
        self._name = ""

    @property
    def name(self) -> str:
        """The name of the ledger in use."""
        self._get_reader()
        return self.shared.file.name

    @property
    def last_name(self) -> str:
        """The name of the ledger in use. If the ledger cannot be opened, the name of the ledger that was last
        in use."""
        try:
            return self.name
        except (OSError, sqlite3.Error):
            return self.shared.file.name

    @property
    def is_writable(self) -> bool:
        return os.access(self._path, os.W_OK)

    def check(self) -> None:
        """Check that the ledger can be read. Open the ledger if necessary. Raises OSError or sqlite3.Error if
        the ledger cannot be opened or read."""
        self.execute("SELECT name FROM ledger")

    def execute(self, statement: str, values: Sequence[Any] | Mapping[str, Any] = ()) -> list[Any]:
        """Execute a statement and return its rows. This method does not wait until written data is on disk,
        so a power cut can lose the data."""
        ledger = self._get_reader()
        try:
            return ledger.execute(statement, values).fetchall()
        except sqlite3.DatabaseError as error:
            if databases.get_result_code(error) not in _REOPEN_ERROR_CODES:
                raise
        return self._reopen(ledger).execute(statement, values).fetchall()

    def write(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Call `work` with a connection and return the result of `work`. Written data is on disk when this
        method returns. If the connection fails, `work` is called once more, with a new connection."""
        with self._writing:
            try:
                return run_on_thread(self._pool, work, self._get_synced_connection())
            except sqlite3.DatabaseError as error:
                if databases.get_result_code(error) not in _REOPEN_ERROR_CODES:
                    raise
            _, synced = self._open()
            return run_on_thread(self._pool, work, synced)

    def close(self) -> None:
        """Close the connections to the ledger. The next use of the ledger opens new connections."""
        for ledger in (self._reader, self._synced):
            if ledger is not None:
                ledger.close()
        self._reader = self._synced = None

    def _get_reader(self) -> DatabaseFile:
        ledger = self._reader
        return ledger if ledger is not None and self._is_in_use(ledger) else self._reopen(ledger)

    def _get_synced_connection(self) -> DatabaseFile:
        ledger = self._synced
        return ledger if ledger is not None and self._is_in_use(ledger) else self._open()[1]

    def _is_in_use(self, ledger: DatabaseFile) -> bool:
        return self._name == self.shared.file.name and ledger.is_current

    def _reopen(self, former: DatabaseFile | None) -> DatabaseFile:
        with self._writing:
            if self._reader is not None and self._reader is not former:
                # Another greenlet has opened the ledger again.
                return self._reader
            reader, _ = self._open()
            return reader

    def _open(self) -> tuple[DatabaseFile, DatabaseFile]:
        # Both first: as long as a process has one connection of a time when the disk was read-only, SQLite
        # makes new ones read-only, too.
        self.close()
        synced = _open_shared(self._path, self.shared, self._clock)
        try:
            reader = open_ledger(self._path, synced=False)
        except BaseException:
            synced.close()
            raise
        self._reader, self._synced, self._name = reader, synced, self.shared.file.name
        return reader, synced


class Revocations:
    """The revoked tokens of a ledger. `clock` returns epoch seconds. At least the newest `min_kept`
    revocations are kept, even after the tokens have expired. Each worker remembers the tokens that it found
    not revoked. The next revocation in any worker clears this memory."""

    def __init__(
        self, ledger: Ledger, clock: Callable[[], float], min_kept: int = _MIN_KEPT_REVOCATIONS
    ) -> None:
        self._ledger = ledger
        self._clock = clock
        self._min_kept = min_kept
        #: Tokens that were not revoked when the stamp had this value.
        self._valid: set[str] = set()
        self._valid_at = b""

    def revoke(self, jti: str, expires: int) -> None:
        """Revoke a token in every worker, and return when the revocation is on disk. `jti` is the id of the
        token, and `expires` is the expiry time of the token in epoch seconds. Raises LedgerUnavailable if the
        ledger cannot be written."""
        try:
            self._ledger.write(partial(self._write, jti, expires))
        except (OSError, sqlite3.Error) as error:
            raise LedgerUnavailable("Cannot store the logout: the token is still valid", error) from error

    def is_revoked(self, jti: str, ledger: str) -> bool:
        """Return True if the token with the id `jti` was revoked, or if the token belongs to another ledger
        than the ledger in use. `ledger` is the name of the ledger in the token. Raises LedgerUnavailable if
        the ledger cannot be read."""
        # Read before the look-up, which misses a revocation of the moment after the look-up.
        stamp = self._ledger.shared.stamp
        if stamp != self._valid_at or len(self._valid) >= _MAX_REMEMBERED_TOKENS:
            self._valid.clear()
            self._valid_at = stamp
        if jti in self._valid and ledger == self._read_name():
            return False
        if self.find_revoked({jti: ledger}):
            return True
        self._valid.add(jti)
        return False

    def find_revoked(self, tokens: Mapping[str, str]) -> set[str]:
        """Return the ids of the tokens that were revoked or that belong to another ledger than the ledger in
        use. `tokens` maps the id of each token to the name of the ledger in the token. Raises
        LedgerUnavailable if the ledger cannot be read."""
        wanted = msgspec.json.encode(list(tokens)).decode()
        try:
            rows = self._ledger.execute(
                "SELECT jti FROM revoked WHERE jti IN (SELECT value FROM json_each(?))", (wanted,)
            )
        except (OSError, sqlite3.Error) as error:
            raise LedgerUnavailable(_LOOKUP_ERROR_TEXT, error) from error
        # Read after the look-up, which may have put a new ledger in the place of a damaged one.
        name = self._read_name()
        return {jti for (jti,) in rows} | {jti for jti, ledger in tokens.items() if ledger != name}

    def _read_name(self) -> str:
        try:
            return self._ledger.name
        except (OSError, sqlite3.Error) as error:
            raise LedgerUnavailable(_LOOKUP_ERROR_TEXT, error) from error

    def _write(self, jti: str, expires: int, ledger: sqlite3.Connection) -> None:
        try:
            ledger.execute("INSERT OR IGNORE INTO revoked (jti, expires) VALUES (?, ?)", (jti, expires))
        finally:
            # After the row is written: a worker looks for the row when it sees another stamp. Also after an
            # error: the row may have been written.
            self._ledger.shared.renew_stamp()
        try:
            ledger.execute(
                "DELETE FROM revoked WHERE number <= (SELECT max(number) FROM revoked) - ? AND expires < ?",
                (self._min_kept, self._clock()),
            )
        except sqlite3.Error as error:
            _log.warning("cannot delete expired revocations from the login ledger, the file grows: %s", error)

"""The ledger: what all workers know of logins, after a power cut or a reboot too.

It is a SQLite database in the service's state folder: SQLite's locks work across processes, and a writer that
is killed leaves nothing half done. Each ledger has a random name, which is in every token. A new ledger does
not know which tokens were revoked before, so tokens with another name are rejected.
"""

import logging
import secrets
import sqlite3
import threading
from collections.abc import Callable, Iterable
from contextlib import closing
from pathlib import Path

import msgspec

from gateway_api.base import durable
from gateway_api.base.errors import LedgerUnavailable
from gateway_api.base.process import ThreadPool

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
_OPEN_TIMEOUT = 5.0
# A lock is held for as long as the disk takes to sync. A thread waits for one before a synced write, and the
# whole worker before any other.
_LOCK_TIMEOUT_SYNCED_MS = 500
_LOCK_TIMEOUT_MS = 50

#: Bytes that are kept for a start on a full disk.
_RESERVED = 128 << 10

_NO_SPACE = {sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN}
# ERROR is what a table of another shape gives.
_BROKEN = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR}

_log = logging.getLogger(__name__)


def open_ledger(path: Path, *, synced: bool = True) -> sqlite3.Connection:
    """A connection for this process alone: one made before a fork must not be used after it. What is written
    is on the disk before a write returns if it is to be `synced`. Otherwise it is there soon after, and the
    write hardly waits for a lock."""
    # SQLite gives its other files the mode of this one.
    path.touch(mode=0o600)
    ledger = sqlite3.connect(path, timeout=_OPEN_TIMEOUT, isolation_level=None, check_same_thread=False)
    ledger.execute("PRAGMA journal_mode = WAL")
    ledger.execute("PRAGMA synchronous = FULL")
    ledger.executescript(_SCHEMA)
    if ledger.execute("SELECT name FROM ledger").fetchone() is None:
        ledger.execute("INSERT OR IGNORE INTO ledger VALUES (1, ?)", (secrets.token_hex(8),))
    if not synced:
        ledger.execute("PRAGMA synchronous = NORMAL")
    timeout = _LOCK_TIMEOUT_SYNCED_MS if synced else _LOCK_TIMEOUT_MS
    ledger.execute(f"PRAGMA busy_timeout = {timeout}")
    return ledger


def name_of(ledger: sqlite3.Connection) -> str:
    """Random, of this ledger alone."""
    (name,) = ledger.execute("SELECT name FROM ledger").fetchone()
    return str(name)


def prepare_ledger(path: Path) -> None:
    """Makes sure that there is a ledger to open, on a full disk, too. One that is broken is begun anew, under
    another name: without it the service would not start, and everybody has to log in again. Raises OSError
    and sqlite3.Error."""
    reserve = path.with_name(f"{path.name}.reserve")
    try:
        _prepare(path)
    except sqlite3.OperationalError as error:
        # SQLite makes two more files beside the one that it opens.
        if error.sqlite_errorcode & 0xFF not in _NO_SPACE or not reserve.exists():
            raise
        reserve.unlink()
        _prepare(path)
        _log.error("the disk of the login ledger is full: used the space that was kept for a start")
        return
    _keep_space(reserve)


def _prepare(path: Path) -> None:
    try:
        with closing(open_ledger(path)) as ledger:
            (verdict,) = ledger.execute("PRAGMA quick_check(1)").fetchone()
            ledger.execute("SELECT number, jti, expires FROM revoked LIMIT 1")
            ledger.execute("SELECT client, count, last FROM failure LIMIT 1")
    except sqlite3.DatabaseError as error:
        # A full disk or a lock says nothing of the ledger; the low byte is the kind of error.
        if error.sqlite_errorcode & 0xFF not in _BROKEN:
            raise
        verdict = str(error)
    if verdict != "ok":
        _log.error("began a new ledger, the old one is broken, and all tokens have ended: %s", verdict)
        remove_ledger(path)
        open_ledger(path).close()


def _keep_space(reserve: Path) -> None:
    try:
        if not reserve.exists() or reserve.stat().st_size < _RESERVED:
            durable.replace(reserve, bytes(_RESERVED))
    except OSError as error:
        _log.warning("cannot keep space for the login ledger: %s", error)


def remove_ledger(path: Path) -> None:
    """With what SQLite keeps beside it. Raises OSError."""
    for suffix in ("", "-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)


#: Rows that stay whatever the clock says: it may be wrong, and what has expired by it may hold again.
_KEPT = 100_000


class Revocations:
    """`ledger` is for reading, and `synced` for writing, on a thread of `pool`: a disk may take its time.
    `clock` gives epoch seconds."""

    def __init__(
        self,
        ledger: sqlite3.Connection,
        synced: sqlite3.Connection,
        pool: ThreadPool,
        clock: Callable[[], float],
        kept: int = _KEPT,
    ) -> None:
        self._ledger = ledger
        self._synced = synced
        self._pool = pool
        self._clock = clock
        self._kept = kept
        self._writing = threading.Lock()

    def revoke(self, jti: str, expires: int) -> None:
        """From now on, in every worker, and on the disk before this returns. Raises LedgerUnavailable."""
        with self._writing:
            error = self._pool.apply(self._write, (jti, expires))
        if error is not None:
            raise LedgerUnavailable("Cannot store the logout: the token is still valid", error)

    def is_revoked(self, jti: str) -> bool:
        """Raises LedgerUnavailable."""
        return bool(self.among([jti]))

    def among(self, jtis: Iterable[str]) -> set[str]:
        """Which of these tokens were given back. Raises LedgerUnavailable."""
        wanted = msgspec.json.encode(list(jtis)).decode()
        try:
            rows = self._ledger.execute(
                "SELECT jti FROM revoked WHERE jti IN (SELECT value FROM json_each(?))", (wanted,)
            )
            return {jti for (jti,) in rows}
        except sqlite3.Error as error:
            raise LedgerUnavailable("Cannot look up whether the token was revoked", error) from error

    def _write(self, jti: str, expires: int) -> sqlite3.Error | None:
        # Given back, not raised: gevent prints what a function on a thread raises.
        try:
            self._synced.execute("INSERT OR IGNORE INTO revoked (jti, expires) VALUES (?, ?)", (jti, expires))
        except sqlite3.Error as error:
            return error
        try:
            self._synced.execute(
                "DELETE FROM revoked WHERE number <= (SELECT max(number) FROM revoked) - ? AND expires < ?",
                (self._kept, self._clock()),
            )
        except sqlite3.Error as error:
            # They only take space.
            _log.warning("cannot remove expired rows from the ledger: %s", error)
        return None

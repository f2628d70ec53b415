"""What all workers must know of logins at once, and still after a power cut or a reboot.

SQLite in the service's state folder: its locks work across processes and a killed writer leaves nothing half
done. Each ledger has a name of its own, which every token carries: one that was begun anew doesn't know which
tokens were revoked before, so all of those have to be refused.
"""

import logging
import secrets
import sqlite3
from contextlib import closing
from pathlib import Path

from gateway_api.base import durable

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

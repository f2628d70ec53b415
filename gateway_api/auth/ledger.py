"""What all workers must know of logins at once, and still after one of them was killed.

SQLite in the service's runtime folder: its locks work across processes and a killed writer leaves
nothing half done. Nothing here has to survive a power cut, so nothing waits for a disk.
"""

import logging
import sqlite3
from contextlib import closing
from pathlib import Path

_SCHEMA = """
CREATE TABLE IF NOT EXISTS revoked (jti TEXT PRIMARY KEY, expires INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS failure (
    username TEXT NOT NULL,
    address TEXT NOT NULL,
    count INTEGER NOT NULL,
    last REAL NOT NULL,
    PRIMARY KEY (username, address)
) WITHOUT ROWID;
"""
_OPEN_TIMEOUT = 5.0
# A worker waits for a lock with everything else it does; nobody holds one for longer than a write.
_LOCK_TIMEOUT_MS = 500

# ERROR is what a table of another shape gives.
_BROKEN = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR}

_log = logging.getLogger(__name__)


def open_ledger(path: Path) -> sqlite3.Connection:
    """A connection for this process alone: one made before a fork must not be used after it."""
    # SQLite gives its other files the mode of this one.
    path.touch(mode=0o600)
    ledger = sqlite3.connect(path, timeout=_OPEN_TIMEOUT, isolation_level=None, check_same_thread=False)
    ledger.execute("PRAGMA journal_mode = WAL")
    ledger.execute("PRAGMA synchronous = OFF")
    ledger.executescript(_SCHEMA)
    ledger.execute(f"PRAGMA busy_timeout = {_LOCK_TIMEOUT_MS}")
    return ledger


def prepare_ledger(path: Path) -> None:
    """Makes sure that there is a ledger to open. One that a power cut broke is begun anew: without it
    the service would not start, and what it knew is worth an hour at most."""
    try:
        with closing(open_ledger(path)) as ledger:
            (verdict,) = ledger.execute("PRAGMA quick_check(1)").fetchone()
            ledger.execute("SELECT jti, expires FROM revoked LIMIT 1")
            ledger.execute("SELECT username, address, count, last FROM failure LIMIT 1")
    except sqlite3.DatabaseError as error:
        # A full disk or a lock says nothing of the ledger; the low byte is the kind of error.
        if error.sqlite_errorcode & 0xFF not in _BROKEN:
            raise
        verdict = str(error)
    if verdict != "ok":
        _log.error("began a new ledger, the old one is broken: %s", verdict)
        for suffix in ("", "-wal", "-shm"):
            path.with_name(path.name + suffix).unlink(missing_ok=True)

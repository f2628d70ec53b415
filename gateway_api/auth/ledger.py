"""What all workers must know of logins at once, and still after one of them was killed.

SQLite in the service's runtime folder: its locks work across processes and a killed writer leaves
nothing half done. Nothing here has to survive a power cut, so nothing waits for a disk.
"""

import sqlite3
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
_LOCK_TIMEOUT = 2.0


def open_ledger(path: Path) -> sqlite3.Connection:
    """A connection for this process alone: one made before a fork must not be used after it."""
    ledger = sqlite3.connect(path, timeout=_LOCK_TIMEOUT, isolation_level=None, check_same_thread=False)
    ledger.execute("PRAGMA journal_mode = WAL")
    ledger.execute("PRAGMA synchronous = OFF")
    ledger.executescript(_SCHEMA)
    path.chmod(0o600)
    return ledger

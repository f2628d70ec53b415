"""The ledger: revoked tokens and failed logins, for all workers, also after a power cut or a reboot.

It is a SQLite database, so that a killed worker leaves no part of a write. Each ledger has a random name,
which is in every token. A new ledger lacks the revocations of the old one, so tokens with another name are
rejected."""

import logging
import mmap
import secrets
import sqlite3
import threading
from collections.abc import Callable, Iterable
from contextlib import closing
from pathlib import Path

import msgspec

from gateway_api.base import databases, durable
from gateway_api.base.errors import LedgerUnavailable
from gateway_api.base.process import ThreadPool, on_thread

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
# A lock is held while the disk syncs. A thread waits for it before a synced write, but the whole worker
# before another write.
_LOCK_TIMEOUT_SYNCED_MS = 500
_LOCK_TIMEOUT_MS = 50

#: Bytes that are kept for a start on a full disk.
_RESERVED = 128 << 10
#: The most tokens of which a worker knows that they are not revoked.
_KNOWN = 10_000
#: Rows that are kept even if the clock says that they have expired: it may be wrong.
_KEPT = 100_000

_NO_SPACE = {sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN}
# A table with other columns gives ERROR.
_BROKEN = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR}

#: Another value after each revocation, for all processes that are forked after the import. The values are
#: random: two that write at the same time must not write the same one.
_STAMP = 8
_stamp = mmap.mmap(-1, _STAMP)

_log = logging.getLogger(__name__)


def open_ledger(path: Path, *, synced: bool = True) -> sqlite3.Connection:
    """A connection, not to be used after a fork. With `synced`, a write returns when it is on disk. Otherwise
    it is there soon after, and waits less for a lock."""
    pragmas = ("journal_mode = WAL", "synchronous = FULL")
    ledger = databases.connect(path, *pragmas, timeout=_OPEN_TIMEOUT, schema=_SCHEMA, prepare=_give_name)
    if not synced:
        ledger.execute("PRAGMA synchronous = NORMAL")
    timeout = _LOCK_TIMEOUT_SYNCED_MS if synced else _LOCK_TIMEOUT_MS
    ledger.execute(f"PRAGMA busy_timeout = {timeout}")
    return ledger


def _give_name(ledger: sqlite3.Connection) -> None:
    if ledger.execute("SELECT name FROM ledger").fetchone() is None:
        ledger.execute("INSERT OR IGNORE INTO ledger VALUES (1, ?)", (secrets.token_hex(8),))


def name_of(ledger: sqlite3.Connection) -> str:
    (name,) = ledger.execute("SELECT name FROM ledger").fetchone()
    return str(name)


def prepare_ledger(path: Path) -> None:
    """Makes a ledger that can be opened, also on a full disk. A broken one is replaced by one with another
    name, and all users have to log in again. Raises OSError and sqlite3.Error."""
    reserve = path.with_name(f"{path.name}.reserve")
    try:
        _prepare(path)
    except sqlite3.OperationalError as error:
        # SQLite needs two more files.
        if databases.kind_of(error) not in _NO_SPACE or not reserve.exists():
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
        # A full disk or a lock does not break a ledger.
        if databases.kind_of(error) not in _BROKEN:
            raise
        verdict = str(error)
    if verdict != "ok":
        _log.error("began a new ledger, the old one is broken, and all tokens have ended: %s", verdict)
        databases.remove(path)
        open_ledger(path).close()


def _keep_space(reserve: Path) -> None:
    try:
        if not reserve.exists() or reserve.stat().st_size < _RESERVED:
            durable.replace(reserve, bytes(_RESERVED))
    except OSError as error:
        _log.warning("cannot keep space for the login ledger: %s", error)


class Revocations:
    """Reads from `ledger`, and writes to `synced` on a thread of `pool`. `clock` gives epoch seconds. At
    least `kept` revocations stay. A token that was found not to be revoked is looked up again after the next
    revocation in any worker."""

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
        #: Tokens that were not revoked when the stamp had this value.
        self._valid: set[str] = set()
        self._valid_at = b""

    def revoke(self, jti: str, expires: int) -> None:
        """Revokes a token in every worker. It is on disk when this returns. Raises LedgerUnavailable."""
        try:
            with self._writing:
                on_thread(self._pool, self._write, jti, expires)
        except sqlite3.Error as error:
            raise LedgerUnavailable("Cannot store the logout: the token is still valid", error) from error

    def is_revoked(self, jti: str) -> bool:
        """Raises LedgerUnavailable."""
        # Before the look-up, which may miss a revocation of the moment after it.
        stamp = _stamp[:]
        if stamp != self._valid_at or len(self._valid) >= _KNOWN:
            self._valid.clear()
            self._valid_at = stamp
        if jti in self._valid:
            return False
        if self.among([jti]):
            return True
        self._valid.add(jti)
        return False

    def among(self, jtis: Iterable[str]) -> set[str]:
        """The tokens that are revoked. Raises LedgerUnavailable."""
        wanted = msgspec.json.encode(list(jtis)).decode()
        try:
            rows = self._ledger.execute(
                "SELECT jti FROM revoked WHERE jti IN (SELECT value FROM json_each(?))", (wanted,)
            )
            return {jti for (jti,) in rows}
        except sqlite3.Error as error:
            raise LedgerUnavailable("Cannot look up whether the token was revoked", error) from error

    def _write(self, jti: str, expires: int) -> None:
        try:
            self._synced.execute("INSERT OR IGNORE INTO revoked (jti, expires) VALUES (?, ?)", (jti, expires))
        finally:
            # After the row, which a worker looks for when it sees another stamp. Also after an error: the row
            # may be there.
            _stamp[:] = secrets.token_bytes(_STAMP)
        try:
            self._synced.execute(
                "DELETE FROM revoked WHERE number <= (SELECT max(number) FROM revoked) - ? AND expires < ?",
                (self._kept, self._clock()),
            )
        except sqlite3.Error as error:
            _log.warning("cannot remove expired rows from the ledger: %s", error)

"""Tokens that were given back before their time."""

import logging
import sqlite3
import threading
from collections.abc import Callable, Iterable

import msgspec

from gateway_api.base.errors import LedgerUnavailable
from gateway_api.base.threads import ThreadPool

#: Rows that stay whatever the clock says: it may be wrong, and what has expired by it may hold again.
_KEPT = 100_000

_log = logging.getLogger(__name__)


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

"""Tokens that were given back before their time."""

import sqlite3
from collections.abc import Callable


class Revocations:
    """`clock` gives epoch seconds."""

    def __init__(self, ledger: sqlite3.Connection, clock: Callable[[], float]) -> None:
        self._ledger = ledger
        self._clock = clock

    def revoke(self, jti: str, expires: int) -> None:
        """From now on, in every worker; forgotten when the token would have expired anyway."""
        self._ledger.execute("DELETE FROM revoked WHERE expires < ?", (self._clock(),))
        self._ledger.execute("INSERT OR IGNORE INTO revoked VALUES (?, ?)", (jti, expires))

    def is_revoked(self, jti: str) -> bool:
        return self._ledger.execute("SELECT 1 FROM revoked WHERE jti = ?", (jti,)).fetchone() is not None

    def all(self) -> set[str]:
        """Every token that was given back: to look many up at once."""
        return {jti for (jti,) in self._ledger.execute("SELECT jti FROM revoked")}

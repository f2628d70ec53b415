"""Slows down those who guess passwords.

It counts by user and address together: by user alone, anyone could lock the operator out.
"""

import sqlite3
from collections.abc import Callable
from math import ceil

from gateway_api.errors import TooManyAttempts

#: The failure that begins the pauses.
_FIRST_PAUSED = 5
_LONGEST_PAUSE = 300.0
#: After so long without a failure, seconds, all is forgotten.
_FORGET = 900.0


class Throttle:
    """From the fifth failure in a row on there is a pause, 1 s, doubled by each further one up to 5 minutes.

    `clock` gives epoch seconds.
    """

    def __init__(self, ledger: sqlite3.Connection, clock: Callable[[], float]) -> None:
        self._ledger = ledger
        self._clock = clock

    def check(self, username: str, address: str) -> None:
        """Raises TooManyAttempts while the pause lasts."""
        row = self._ledger.execute(
            "SELECT count, last FROM failure WHERE username = ? AND address = ?", (username, address)
        ).fetchone()
        if row is None:
            return
        failures, last = row
        since = self._clock() - last
        if since < 0:
            # The clock was stepped back: the pause begins anew, or it would last until the clock is
            # again where it was.
            self._ledger.execute(
                "UPDATE failure SET last = ? WHERE username = ? AND address = ?",
                (self._clock(), username, address),
            )
            since = 0.0
        if failures < _FIRST_PAUSED or since > _FORGET:
            return
        pause = min(_LONGEST_PAUSE, 2.0 ** min(failures - _FIRST_PAUSED, 16))
        if since < pause:
            raise TooManyAttempts(max(1, ceil(pause - since)))

    def failed(self, username: str, address: str) -> None:
        now = self._clock()
        self._ledger.execute("DELETE FROM failure WHERE last < ?", (now - _FORGET,))
        self._ledger.execute(
            "INSERT INTO failure VALUES (?, ?, 1, ?)"
            " ON CONFLICT DO UPDATE SET count = count + 1, last = excluded.last",
            (username, address, now),
        )

    def succeeded(self, username: str, address: str) -> None:
        self._ledger.execute("DELETE FROM failure WHERE username = ? AND address = ?", (username, address))

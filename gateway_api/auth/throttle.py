"""Slows down those who guess passwords.

It counts by user and network together: by user alone, anyone could lock the operator out.
"""

from collections.abc import Callable
from math import ceil

from gateway_api.auth.failures import Failures
from gateway_api.base.errors import TooManyAttempts

#: The failure that begins the pauses.
_FIRST_PAUSED = 5
_LONGEST_PAUSE = 300.0
#: After so long without a failure, seconds, all is forgotten.
_FORGET = 900.0


class Throttle:
    """From the fifth failure in a row on there is a pause, 1 s, doubled by each further one up to 5 minutes.

    `clock` gives epoch seconds.
    """

    def __init__(self, failures: Failures, clock: Callable[[], float]) -> None:
        self._failures = failures
        self._clock = clock

    def check(self, username: str, address: str) -> None:
        """Raises TooManyAttempts while the pause lasts."""
        client = self._failures.client(username, address)
        failed = self._failures.of(client)
        if not failed.count:
            return
        since = self._clock() - failed.last
        if since < 0:
            # The clock was stepped back: the pause begins anew, or it would last until the clock is
            # again where it was.
            self._failures.restart(client, self._clock())
            since = 0.0
        if failed.count < _FIRST_PAUSED or since > _FORGET:
            return
        pause = min(_LONGEST_PAUSE, 2.0 ** min(failed.count - _FIRST_PAUSED, 16))
        if since < pause:
            raise TooManyAttempts(max(1, ceil(pause - since)))

    def failed(self, username: str, address: str) -> None:
        now = self._clock()
        self._failures.forget(now - _FORGET)
        self._failures.add(self._failures.client(username, address), now)

    def succeeded(self, username: str, address: str) -> None:
        self._failures.clear(self._failures.client(username, address))

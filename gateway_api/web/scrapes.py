"""What Prometheus gets, made at most once a second in a worker, however many ask for it.

To add up what the workers counted takes 10 to 25 ms of the interpreter, and no token is needed to ask. If it
were done for each request, a few clients that ask without a pause would leave no time for anybody else.
"""

import threading
from collections.abc import Callable

#: Seconds for which later scrapes get the same text. Prometheus scrapes every 5 to 60.
KEPT = 1.0


class Scrapes:
    """`make` gives the text; `clock` gives monotonic seconds."""

    def __init__(self, make: Callable[[], str], clock: Callable[[], float]) -> None:
        self._make = make
        self._clock = clock
        self._one_at_a_time = threading.Lock()
        self._text = ""
        self._made_at: float | None = None

    def latest(self) -> str:
        """The text, made now or within the last second. Scrapes that arrive meanwhile wait for it."""
        with self._one_at_a_time:
            if self._made_at is None or self._clock() - self._made_at >= KEPT:
                self._text = self._make()
                # When it is done, not when it was begun: a core that hangs makes it take seconds, and those
                # who waited would go through that one after the other.
                self._made_at = self._clock()
            return self._text

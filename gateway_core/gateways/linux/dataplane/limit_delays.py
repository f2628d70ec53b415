"""How long new sessions had no limit, as a histogram."""

import threading
from bisect import bisect_left
from itertools import accumulate

from gateway_contract.core.health import DelayCount, LimitDelays

#: Seconds: dense around the second within which a limit is to be there.
_BOUNDS = (0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


class DelayHistogram:
    """Any thread may call."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        #: By the bound that a delay does not exceed; those beyond all come last.
        self._sessions = [0] * (len(_BOUNDS) + 1)
        self._seconds = 0.0

    def observe(self, seconds: float) -> None:
        with self._lock:
            self._sessions[bisect_left(_BOUNDS, seconds)] += 1
            self._seconds += seconds

    def now(self) -> LimitDelays:
        with self._lock:
            sessions, seconds = list(accumulate(self._sessions)), self._seconds
        # Without the last, which is the number of all.
        counts = tuple(map(DelayCount, _BOUNDS, sessions))
        return LimitDelays(counts, sessions[-1], seconds)

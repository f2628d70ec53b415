"""When a receiver that fails in a row is left in peace, and for how long."""

import math

#: Failures in a row that begin a pause.
FAILURES = 3
#: Seconds of the first pause, and of the longest.
SHORTEST, LONGEST = 5.0, 300.0


class Pause:
    """One receiver's. Times are monotonic seconds."""

    def __init__(self) -> None:
        self._failures = 0
        #: How long this one is, 0 for none.
        self._seconds = 0.0
        #: Until when no first attempt is made; then one, the probe, whose failure makes a longer pause.
        self.until = -math.inf

    def __bool__(self) -> bool:
        """Whether it lasts: until an attempt succeeds."""
        return bool(self._seconds)

    def end(self) -> None:
        """An attempt succeeded, whichever."""
        self._failures, self._seconds, self.until = 0, 0.0, -math.inf

    def failed(self, now: float, *, probe: bool) -> float | None:
        """An attempt failed. The seconds of the pause that this begins; None if it begins none."""
        self._failures += 1
        if self._failures < FAILURES or (self and not probe):
            return None
        self._seconds = min(2 * self._seconds, LONGEST) or SHORTEST
        self.until = now + self._seconds
        return self._seconds

"""A reading of the kernel that several requests share."""

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")

#: Seconds that it serves further requests. 20,000 links take a quarter of one to read.
_FRESH = 1.0


class Reading(Generic[T]):
    """A result of `read` of at most a second ago. Callers at the same time wait for one reading. `clock`
    gives steady seconds. Any thread may call."""

    def __init__(self, read: Callable[[], T], clock: Callable[[], float]) -> None:
        self._read = read
        self._clock = clock
        self._lock = threading.Lock()
        self._held: tuple[float, T] | None = None

    def now(self) -> T:
        """Raises what `read` raises."""
        with self._lock:
            at = self._clock()
            if self._held is None or at - self._held[0] >= _FRESH:
                self._held = at, self._read()
            return self._held[1]

    def forget(self) -> None:
        """After a change: the next caller gets another reading."""
        with self._lock:
            self._held = None

"""What is kept while it is used."""

import threading
from collections.abc import Callable


class Disuse:
    """Calls `forget` when nobody has called `used` for so many seconds, and at most twice as many. Any thread
    may call."""

    def __init__(self, seconds: float, forget: Callable[[], None]) -> None:
        self._seconds = seconds
        self._forget = forget
        self._lock = threading.Lock()
        self._is_used = False
        self._waits = False

    def used(self) -> None:
        with self._lock:
            self._is_used = True
            if not self._waits:
                self._wait()

    def _wait(self) -> None:
        self._waits = True
        timer = threading.Timer(self._seconds, self._look)
        timer.daemon = True
        timer.start()

    def _look(self) -> None:
        with self._lock:
            was_used, self._is_used = self._is_used, False
            if was_used:
                self._wait()
                return
            self._waits = False
        self._forget()

"""A timer that ends what nobody uses."""

import logging
import threading
from collections.abc import Callable
from contextvars import Context

_log = logging.getLogger(__name__)


class IdleTimer:
    """Calls `forget` when nobody has called `used` for so many seconds, and at most twice as many. Any thread
    may call."""

    def __init__(self, seconds: float, forget: Callable[[], None]) -> None:
        self._seconds = seconds
        self._forget = forget
        self._lock = threading.Lock()
        self._is_used = False
        self._waits = False

    def restart(self) -> None:
        with self._lock:
            self._is_used = True
            if not self._waits:
                self._wait()

    def _wait(self) -> None:
        timer = threading.Timer(self._seconds, self._look)
        timer.daemon = True
        try:
            # Not in the context of a request: its greenlet would keep the application, and at the end of the
            # process the databases would not be closed.
            Context().run(timer.start)
        except RuntimeError as error:
            # The next use tries again.
            _log.error("cannot start a timer: %s", error)
            return
        self._waits = True

    def _look(self) -> None:
        with self._lock:
            was_used, self._is_used, self._waits = self._is_used, False, False
            if was_used:
                self._wait()
        if not was_used:
            self._forget()

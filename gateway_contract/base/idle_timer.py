"""Timer that calls a function after a time without use."""

import logging
import threading
from collections.abc import Callable
from contextvars import Context

_log = logging.getLogger(__name__)


class IdleTimer:
    """Timer that calls `forget` when `restart` was not called for `seconds` seconds. The call of `forget`
    comes at the latest after twice this time. Thread-safe."""

    def __init__(self, seconds: float, forget: Callable[[], None]) -> None:
        self._seconds = seconds
        self._forget = forget
        self._lock = threading.Lock()
        self._is_used = False
        self._is_running = False

    def restart(self) -> None:
        with self._lock:
            self._is_used = True
            if not self._is_running:
                self._start()

    def _start(self) -> None:
        timer = threading.Timer(self._seconds, self._check)
        timer.daemon = True
        try:
            # Not in the context of a request: its greenlet would keep the application, and at the end of the
            # process the databases would not be closed.
            Context().run(timer.start)
        except RuntimeError as error:
            # The next use tries again.
            _log.error("cannot start an idle timer, unused data stays in memory for longer: %s", error)
            return
        self._is_running = True

    def _check(self) -> None:
        with self._lock:
            was_used, self._is_used, self._is_running = self._is_used, False, False
            if was_used:
                self._start()
        if not was_used:
            self._forget()

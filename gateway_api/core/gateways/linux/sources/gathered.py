"""An action that serves many requests at a time."""

import logging
import threading
from collections.abc import Callable

from gateway_api.base.errors import GatewayApiError

#: Seconds between two attempts, after several failed.
_LONGEST_PAUSE = 60.0

_log = logging.getLogger(__name__)


class Gathered:
    """Runs `action` on a thread of its own `pause` seconds after the first request: for all that came until
    then. After an error, which it logs, it runs again, each time after twice the pause."""

    def __init__(self, action: Callable[[], None], pause: float) -> None:
        self._action = action
        self._pause = pause
        self._requested = threading.Event()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def request(self) -> None:
        self._requested.set()

    def close(self) -> None:
        """Ends the thread. What was requested since the last run is not done."""
        self._closed.set()
        self._requested.set()
        self._thread.join()

    def _run(self) -> None:
        pause = self._pause
        while True:
            self._requested.wait()
            if self._closed.wait(pause):
                return
            # Before the action: it may miss what is requested while it runs.
            self._requested.clear()
            try:
                self._action()
                pause = self._pause
            except GatewayApiError as error:
                pause = min(pause * 2, _LONGEST_PAUSE)
                _log.warning("trying again in %g s: %s", pause, error)
                self._requested.set()

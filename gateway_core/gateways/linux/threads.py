"""The threads of the gateway: a crew, with which it stands and falls, and an action that many may request."""

import logging
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import NoReturn

from gateway_contract.base.errors import GatewayApiError


class Crew:
    """Threads whose errors come to one place. Any thread may start others."""

    def __init__(self) -> None:
        #: The errors that ended threads, in their order.
        self.failures: SimpleQueue[BaseException] = SimpleQueue()

    def start(self, work: Callable[[], object], name: str | None = None) -> threading.Thread:
        """Works on a thread of its own, which does not keep the process from its end."""

        def guarded() -> None:
            try:
                work()
            except BaseException as error:  # noqa: BLE001 - `wait` raises it
                self.failures.put(error)

        thread = threading.Thread(target=guarded, name=name, daemon=True)
        thread.start()
        return thread

    def wait(self) -> NoReturn:
        """Raises the first error of a thread."""
        raise self.failures.get()


#: Seconds between two attempts, after several failed.
_LONGEST_PAUSE = 60.0

_log = logging.getLogger(__name__)


class Debounced:
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
        """End the thread. What was requested since the last run is not done."""
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

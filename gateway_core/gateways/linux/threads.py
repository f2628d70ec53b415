"""Threads of the gateway: a group of threads whose first error ends the gateway, and a debounced action."""

import logging
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import NoReturn

from gateway_contract.base.errors import GatewayApiError


class ThreadGroup:
    """Group of threads whose first error ends the gateway. Thread-safe.

    `failures` contains the errors that ended threads, in order.
    """

    def __init__(self) -> None:
        self.failures: SimpleQueue[BaseException] = SimpleQueue()

    def start(self, work: Callable[[], object], name: str | None = None) -> threading.Thread:
        """Start and return a daemon thread that runs `work`. An error of `work` ends the gateway."""

        def run_guarded() -> None:
            try:
                work()
            except BaseException as error:  # noqa: BLE001 - `wait` raises it
                self.failures.put(error)

        thread = threading.Thread(target=run_guarded, name=name, daemon=True)
        thread.start()
        return thread

    def wait(self) -> NoReturn:
        """Wait until an error has ended a thread, and raise the error."""
        raise self.failures.get()


#: Maximum time until the next attempt after repeated failures.
_MAX_PAUSE_SECONDS = 60.0

_log = logging.getLogger(__name__)


class DebouncedAction:
    """Action that runs on its own thread, `pause` seconds after a request. All requests during the pause
    cause only one run. A GatewayApiError of the action is logged as a failure of `step` (a verb and an
    object), and the action runs again after twice the pause."""

    def __init__(self, step: str, action: Callable[[], None], pause: float) -> None:
        self._step = step
        self._action = action
        self._pause = pause
        self._request_event = threading.Event()
        self._close_event = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def request(self) -> None:
        """Request a run of the action after the pause."""
        self._request_event.set()

    def close(self) -> None:
        """Stop the thread of the action, and wait until the thread has ended. Pending requests are
        dropped."""
        self._close_event.set()
        self._request_event.set()
        self._thread.join()

    def _run(self) -> None:
        pause = self._pause
        while True:
            self._request_event.wait()
            if self._close_event.wait(pause):
                return
            # Before the action: a request during the action needs another run.
            self._request_event.clear()
            try:
                self._action()
                pause = self._pause
            except GatewayApiError as error:
                pause = min(pause * 2, _MAX_PAUSE_SECONDS)
                _log.warning("cannot %s, trying again in %g s: %s", self._step, pause, error)
                self._request_event.set()

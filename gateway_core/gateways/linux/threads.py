"""Threads of the gateway: a crew that ends the gateway with its first error, and an action on request."""

import logging
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import NoReturn

from gateway_contract.base.errors import GatewayApiError


class Crew:
    """Threads whose errors end the gateway. Thread-safe.

    `failures` has the errors that ended threads, in their order.
    """

    def __init__(self) -> None:
        self.failures: SimpleQueue[BaseException] = SimpleQueue()

    def start(self, work: Callable[[], object], name: str | None = None) -> threading.Thread:
        """Run a function on a daemon thread."""

        def guarded() -> None:
            try:
                work()
            except BaseException as error:  # noqa: BLE001 - `wait` raises it
                self.failures.put(error)

        thread = threading.Thread(target=guarded, name=name, daemon=True)
        thread.start()
        return thread

    def wait(self) -> NoReturn:
        """Wait for the first error of a thread, and raise it."""
        raise self.failures.get()


#: Time until the next attempt, after several have failed.
_MAX_PAUSE_SECONDS = 60.0

_log = logging.getLogger(__name__)


class DebouncedAction:
    """Action that runs on a thread of its own `pause` seconds after the first request, once for all requests
    until then. After a GatewayApiError, which is logged, it runs again after twice the pause."""

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
        """End the thread, without the action for requests since the last run."""
        self._closed.set()
        self._requested.set()
        self._thread.join()

    def _run(self) -> None:
        pause = self._pause
        while True:
            self._requested.wait()
            if self._closed.wait(pause):
                return
            # Before the action, which may miss a request while it runs.
            self._requested.clear()
            try:
                self._action()
                pause = self._pause
            except GatewayApiError as error:
                pause = min(pause * 2, _MAX_PAUSE_SECONDS)
                _log.warning("an action failed, trying again in %g s: %s", pause, error)
                self._requested.set()

"""The threads of the gateway, which stands and falls with each of them."""

import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import NoReturn


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

"""How many whole lists a worker asks the core for at a time.

A list of 200,000 sessions takes 40 MB, several times over while it is made, handed on and sent. Without a
bound, 32 readers take gigabytes of the core and of the workers, and nobody else gets the processor.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from gateway_api.errors import TooManyLists

#: In a worker. The core makes one of 200,000 sessions in half a second, and others wait for it meanwhile.
AT_ONCE = 1
#: Seconds that one more waits for its turn. With the access check before it and the call after it, a request
#: has its response within 5 s.
PATIENCE = 0.5
#: Seconds after which it is worth another try.
_RETRY_AFTER = 1


class WholeLists:
    """Turns at asking for one."""

    def __init__(self, at_once: int = AT_ONCE, patience: float = PATIENCE) -> None:
        self._turns = threading.BoundedSemaphore(at_once)
        self._patience = patience

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Has it until the end of the block. Raises TooManyLists when no turn comes in time."""
        if not self._turns.acquire(timeout=self._patience):
            raise TooManyLists(_RETRY_AFTER)
        try:
            yield
        finally:
            self._turns.release()

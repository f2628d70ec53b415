"""Times to compare: what measures them waits for the tests of the run's other processes, and they for it."""

import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TypeVar

T = TypeVar("T")

_TRIES = 4

_LOCK = os.open(__file__, os.O_RDONLY | os.O_CLOEXEC)


def beside_others() -> AbstractContextManager[None]:
    """A test runs in the block, and others beside it."""
    return _locked(fcntl.LOCK_SH)


def alone() -> AbstractContextManager[None]:
    """No other test runs during the block. The rest of the test may run beside another that measures."""
    # The kernel gives up the shared lock first, so that two of them do not wait for each other: flock(2).
    return _locked(fcntl.LOCK_EX)


@contextmanager
def _locked(kind: int) -> Iterator[None]:
    fcntl.flock(_LOCK, kind)
    try:
        yield
    finally:
        fcntl.flock(_LOCK, fcntl.LOCK_UN)


def within(seconds: float, act: Callable[[], T]) -> T:
    """What `act` returns. At its best it takes less than that: a wait that is too long comes each time, and a
    pause of a busy machine does not."""
    took: list[float] = []
    while not took or (min(took) >= seconds and len(took) < _TRIES):
        began = time.monotonic()
        returned = act()
        took.append(time.monotonic() - began)
    assert min(took) < seconds, took
    return returned


def seconds_of_a_loop() -> float:
    """Of the processor: how fast it is, to compare an emulated one with this machine's."""
    found = []
    for _ in range(5):
        began = time.process_time()
        sum(number * number for number in range(200_000))
        found.append(time.process_time() - began)
    return min(found)

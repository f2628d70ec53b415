"""Times to compare: what measures them waits for the tests of the run's other processes, and they for it."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager

_LOCK = os.open(__file__, os.O_RDONLY | os.O_CLOEXEC)


@contextmanager
def beside_others() -> Iterator[None]:
    """A test runs in the block, and others beside it."""
    fcntl.flock(_LOCK, fcntl.LOCK_SH)
    try:
        yield
    finally:
        fcntl.flock(_LOCK, fcntl.LOCK_UN)


@contextmanager
def alone() -> Iterator[None]:
    """No other test runs during the block. What this one does after it may disturb none that measures."""
    # The kernel gives up the shared lock first, so that two of them do not wait for each other: flock(2).
    fcntl.flock(_LOCK, fcntl.LOCK_EX)
    try:
        yield
    finally:
        fcntl.flock(_LOCK, fcntl.LOCK_UN)

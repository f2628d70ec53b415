"""The arbiter's signals to a worker that has just begun.

Between the fork and `init_signals`, a worker has the handlers of the arbiter: a stop would have no effect,
and the arbiter would kill the worker at the end of its patience. So these signals wait until the worker has
its own handlers.
"""

import os
import signal
from functools import partial

_OF_WORKERS = {signal.SIGTERM, signal.SIGINT, signal.SIGQUIT, signal.SIGUSR1}


def hold_at_fork() -> None:
    """To be called once, in the arbiter. Each worker calls `take`."""
    # Another arbiter may have started this one (SIGUSR2), by a fork.
    take()
    hold = partial(signal.pthread_sigmask, signal.SIG_BLOCK, _OF_WORKERS)
    os.register_at_fork(before=hold, after_in_parent=take)


def take() -> None:
    """Unblocks the signals. Those that wait arrive now."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _OF_WORKERS)

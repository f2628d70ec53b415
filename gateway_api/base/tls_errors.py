"""Functions that empty the error queue that OpenSSL keeps for each thread."""

import functools
import ssl
from collections.abc import Callable
from contextlib import suppress
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

_context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)


def clear_error_queue() -> None:
    """Empty the error queue of this thread after a failed call of OpenSSL.

    Python 3.13 leaves the error of a failed system call in the queue:
    https://github.com/python/cpython/issues/148594. On any connection, the next call that has to wait would
    fail with this error, so a client that goes away would end another client's request. Python has no
    function that empties the queue, but a handshake empties the queue when it begins."""
    with suppress(ssl.SSLWantReadError):
        _context.wrap_bio(ssl.MemoryBIO(), ssl.MemoryBIO(), server_side=True).do_handshake()


def clear_errors_after(call: Callable[P, T]) -> Callable[P, T]:
    """Return a function that makes a call of OpenSSL and returns its result. If the call fails, the function
    empties the error queue, and raises the error of the call."""

    @functools.wraps(call)
    def call_and_clear(*arguments: P.args, **keywords: P.kwargs) -> T:
        try:
            return call(*arguments, **keywords)
        except OSError:
            clear_error_queue()
            raise

    return call_and_clear

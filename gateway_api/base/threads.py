"""Work that would block all requests of a worker, on threads of its own."""

from collections.abc import Callable
from typing import Any, Protocol


class ThreadPool(Protocol):
    """Runs a function on a thread, while the caller's other greenlets go on (gevent's ThreadPool)."""

    def apply(self, function: Callable[..., Any], args: tuple[Any, ...]) -> Any: ...

"""Work that would hold up everybody else in a worker."""

from collections.abc import Callable
from typing import Any, Protocol


class Pool(Protocol):
    """Runs a function on a thread of its own, and meanwhile lets others go on (gevent's ThreadPool)."""

    def apply(self, function: Callable[..., Any], args: tuple[Any, ...]) -> Any: ...

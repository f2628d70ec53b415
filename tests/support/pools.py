"""Pools of threads, for code that blocks."""

from collections.abc import Callable
from typing import Any


class Here:
    """A pool that runs what it is given at once."""

    def apply(self, function: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        return function(*args)

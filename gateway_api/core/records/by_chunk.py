"""Results that are made of each chunk of a snapshot, once per change."""

from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

from gateway_api.base.idle_timer import IdleTimer
from gateway_api.core.records.orders import SortedSnapshot

T = TypeVar("T")
V = TypeVar("V")

#: Seconds that it is kept for the next request, and at most twice as many.
_KEPT = 30.0


class ByChunk(Generic[T, V]):
    """The values that `make` returns for the chunks of a list. Any thread may call. `kept` is in seconds."""

    def __init__(self, make: Callable[[list[T]], V], kept: float = _KEPT) -> None:
        self._make = make
        #: By the id of a chunk, which the pair keeps from another chunk.
        self._values: dict[int, tuple[list[T], V]] = {}
        self._idle = IdleTimer(kept, self._forget)

    def of(self, things: SortedSnapshot[T]) -> Iterator[tuple[list[T], V]]:
        """The chunks in order, each with its value."""
        known, values = self._values, {}
        for chunk in things.chunks:
            pair = known.get(id(chunk)) or (chunk, self._make(chunk))
            values[id(chunk)] = pair
            yield pair
        self._values = values
        self._idle.used()

    def _forget(self) -> None:
        self._values = {}

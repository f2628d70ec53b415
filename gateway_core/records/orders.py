"""Things in the order of their keys, for lists that are read while the things come, change and go.

An order is a list of chunks. A change makes other chunks and leaves the former ones, so a snapshot is free.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping
from itertools import chain, islice
from typing import Any, Generic, NamedTuple, TypeVar

from gateway_contract.base.idle_timer import IdleTimer

I = TypeVar("I", bound=Hashable)  # noqa: E741 - an id
T = TypeVar("T")
V = TypeVar("V")

#: The most things in a chunk, which a change copies; with less than the least, it joins its neighbour.
_MOST, _LEAST = 512, 128
# One call to sort all of 200,000 things would hold the interpreter lock for a tenth of a second.
_RUN = 16384
#: With more changes than this part of all things, to sort all of them costs less.
_PART = 16
_FEW = 64
#: Seconds that a result is kept for the next request, and at most twice as many.
_KEPT = 30.0


class SortedSnapshot(Collection[T]):
    """Things of one moment, in order. `key` in its methods gives the keys of that order."""

    def __init__(self, chunks: list[list[T]], size: int) -> None:
        #: Never changed: a chunk in two snapshots has the same things.
        self.chunks = chunks
        self._size = size

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[T]:
        return chain.from_iterable(self.chunks)

    def __reversed__(self) -> Iterator[T]:
        return _backwards(self.chunks)

    def __contains__(self, thing: object) -> bool:
        return any(thing in chunk for chunk in self.chunks)

    def above(self, bound: Any, key: Callable[[T], Any]) -> Iterator[T]:
        """The things with a key above, ascending."""
        number = bisect_right(self.chunks, bound, key=lambda chunk: key(chunk[-1]))
        if number == len(self.chunks):
            return iter(())
        chunk = self.chunks[number]
        first = bisect_right(chunk, bound, key=key)
        return chain(chunk[first:], chain.from_iterable(self.chunks[number + 1 :]))

    def below(self, bound: Any, key: Callable[[T], Any]) -> Iterator[T]:
        """The things with a key below, descending."""
        number = bisect_left(self.chunks, bound, key=lambda chunk: key(chunk[0])) - 1
        if number < 0:
            return iter(())
        chunk = self.chunks[number]
        end = bisect_left(chunk, bound, key=key)
        return chain(reversed(chunk[:end]), _backwards(self.chunks[:number]))


class Order(Generic[T]):
    """Things by their keys, no two of which are equal. Not for several threads at once."""

    def __init__(self, key: Callable[[T], Any], things: Iterable[T] = ()) -> None:
        self._key = key
        in_order = _in_order(things, key)
        self._chunks = [in_order[start : start + _MOST] for start in range(0, len(in_order), _MOST)]
        self._size = len(in_order)

    def now(self) -> SortedSnapshot[T]:
        return SortedSnapshot(self._chunks, self._size)

    def add(self, thing: T) -> None:
        number, place = self._place(thing)
        chunk = self._chunks[number] if self._chunks else []
        self._put(number, number + 1, [*chunk[:place], thing, *chunk[place:]])
        self._size += 1

    def remove(self, thing: T) -> None:
        """The thing must be there."""
        number, place = self._place(thing)
        first, chunk = number, self._chunks[number]
        left = chunk[:place] + chunk[place + 1 :]
        if len(left) < _LEAST and number:
            first, left = number - 1, self._chunks[number - 1] + left
        self._put(first, number + 1, left)
        self._size -= 1

    def replace(self, before: T, after: T) -> None:
        """The thing `before` must be there."""
        if self._key(before) != self._key(after):
            self.remove(before)
            self.add(after)
            return
        number, place = self._place(before)
        chunk = self._chunks[number]
        self._put(number, number + 1, [*chunk[:place], after, *chunk[place + 1 :]])

    def _place(self, thing: T) -> tuple[int, int]:
        """Return the chunk of a thing, and where it is or would be in it."""
        key, last = self._key(thing), len(self._chunks) - 1
        if last < 0:
            return 0, 0
        number = min(last, bisect_left(self._chunks, key, key=lambda chunk: self._key(chunk[-1])))
        return number, bisect_left(self._chunks[number], key, key=self._key)

    def _put(self, first: int, end: int, things: list[T]) -> None:
        """Replace the chunks from `first` to before `end` by chunks of these things."""
        middle = len(things) // 2 if len(things) > _MOST else 0
        parts = [part for part in (things[:middle], things[middle:]) if part]
        self._chunks = [*self._chunks[:first], *parts, *self._chunks[end:]]


class Ordering(NamedTuple, Generic[T]):
    """The `key` of an order, and which things are in it: all if `belongs` is None."""

    key: Callable[[T], Any]
    belongs: Callable[[T], Any] | None = None


class Orders(Generic[I, T]):
    """The orders of a table's things by id. An order exists from the first time that it is read. It follows
    when it is read again, or is forgotten after many changes: one that nobody reads costs next to nothing.

    Not for several threads at once."""

    def __init__(self, things: Mapping[I, T]) -> None:
        self._things = things
        self._orders: dict[Ordering[T], Order[T]] = {}
        #: By id, what each order has of the things that have changed since; None for those that it lacks.
        self._former: dict[Ordering[T], dict[I, T | None]] = {}

    def changed(self, id: I, before: T | None) -> None:
        """The thing with the id was `before`, or was not there."""
        most, outgrown = _FEW + len(self._things) // _PART, None
        for ordering, former in self._former.items():
            former.setdefault(id, before)
            if len(former) > most:
                outgrown = ordering
        if outgrown is not None:
            del self._orders[outgrown], self._former[outgrown]

    def forget(self) -> None:
        """All things have changed."""
        self._orders.clear()
        self._former.clear()

    def now(self, ordering: Ordering[T]) -> SortedSnapshot[T]:
        order = self._orders.get(ordering)
        if order is None:
            things: Iterable[T] = self._things.values()
            order = Order(ordering.key, filter(ordering.belongs, things) if ordering.belongs else things)
            self._orders[ordering], self._former[ordering] = order, {}
        elif former := self._former[ordering]:
            self._follow(order, former, ordering.belongs)
            former.clear()
        return order.now()

    def _follow(
        self, order: Order[T], former: Mapping[I, T | None], belongs: Callable[[T], Any] | None
    ) -> None:
        for id, before in former.items():
            after = self._things.get(id)
            if belongs is not None:
                before = before if before is not None and belongs(before) else None
                after = after if after is not None and belongs(after) else None
            if before is None and after is not None:
                order.add(after)
            elif before is not None and after is None:
                order.remove(before)
            elif before is not None and after is not None:
                order.replace(before, after)


def _in_order(things: Iterable[T], key: Callable[[T], Any]) -> list[T]:
    rest = iter(things)
    runs = iter(lambda: sorted(islice(rest, _RUN), key=key), [])
    # Timsort merges what is sorted already.
    return sorted(chain.from_iterable(runs), key=key)


class ByChunk(Generic[T, V]):
    """The values that `make` returns for the chunks of a list, once per change. Any thread may call. `kept`
    is in seconds."""

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


def _backwards(chunks: list[list[T]]) -> Iterator[T]:
    return chain.from_iterable(map(reversed, reversed(chunks)))

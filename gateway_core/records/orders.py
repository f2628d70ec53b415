"""Sorted collections whose snapshots cost nothing, for lists that are read while items are added, changed and
removed.

A collection is a list of chunks. A change makes new chunks and leaves the former chunks unchanged, so a
snapshot copies nothing.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping
from itertools import chain, islice
from typing import Any, Generic, NamedTuple, TypeVar

from gateway_contract.base.idle_timer import IdleTimer

I = TypeVar("I", bound=Hashable)  # noqa: E741 - an id
T = TypeVar("T")
V = TypeVar("V")

#: Items in a chunk. A change copies its chunk; a chunk with less than the minimum joins its neighbour.
_MAX_CHUNK_SIZE, _MIN_CHUNK_SIZE = 512, 128
#: Items that one call sorts: sorting 200,000 at once holds the interpreter lock for a tenth of a second.
_MAX_SORTED_AT_ONCE = 16384
#: Maximum number of changes of a view: `_MIN_CHANGE_LIMIT`, and a sixteenth of all items. After more changes,
#: sorting all items again costs less.
_CHANGE_LIMIT_DIVISOR, _MIN_CHANGE_LIMIT = 16, 64
#: Seconds for which the values of chunks are kept after their last use; at most twice as long.
_KEEP_SECONDS = 30.0


class SortedSnapshot(Collection[T]):
    """Sorted items at one moment. The argument `key` of the methods is the sort key function of the items."""

    def __init__(self, chunks: list[list[T]], size: int) -> None:
        #: Never changed: a chunk in two snapshots has the same items.
        self.chunks = chunks
        self._size = size

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[T]:
        return chain.from_iterable(self.chunks)

    def __reversed__(self) -> Iterator[T]:
        return _iterate_backwards(self.chunks)

    def __contains__(self, item: object) -> bool:
        return any(item in chunk for chunk in self.chunks)

    def iterate_above(self, bound: Any, key: Callable[[T], Any]) -> Iterator[T]:
        """Yield the items whose key is greater than `bound`, in ascending order."""
        number = bisect_right(self.chunks, bound, key=lambda chunk: key(chunk[-1]))
        if number == len(self.chunks):
            return iter(())
        chunk = self.chunks[number]
        start = bisect_right(chunk, bound, key=key)
        return chain(chunk[start:], chain.from_iterable(self.chunks[number + 1 :]))

    def iterate_below(self, bound: Any, key: Callable[[T], Any]) -> Iterator[T]:
        """Yield the items whose key is less than `bound`, in descending order."""
        number = bisect_left(self.chunks, bound, key=lambda chunk: key(chunk[0])) - 1
        if number < 0:
            return iter(())
        chunk = self.chunks[number]
        end = bisect_left(chunk, bound, key=key)
        return chain(reversed(chunk[:end]), _iterate_backwards(self.chunks[:number]))


def _iterate_backwards(chunks: list[list[T]]) -> Iterator[T]:
    return chain.from_iterable(map(reversed, reversed(chunks)))


class SortedItems(Generic[T]):
    """Items sorted by their keys, which are unique. Only one thread at a time may use the object."""

    def __init__(self, key: Callable[[T], Any], items: Iterable[T] = ()) -> None:
        self._key = key
        iterator = iter(items)
        sorted_runs = iter(lambda: sorted(islice(iterator, _MAX_SORTED_AT_ONCE), key=key), [])
        # Timsort merges runs that are sorted already.
        sorted_items = sorted(chain.from_iterable(sorted_runs), key=key)
        size = _MAX_CHUNK_SIZE
        self._chunks = [sorted_items[start : start + size] for start in range(0, len(sorted_items), size)]
        self._size = len(sorted_items)

    def snapshot(self) -> SortedSnapshot[T]:
        return SortedSnapshot(self._chunks, self._size)

    def add(self, item: T) -> None:
        number, place = self._find_place(item)
        chunk = self._chunks[number] if self._chunks else []
        self._replace_chunks(number, number + 1, [*chunk[:place], item, *chunk[place:]])
        self._size += 1

    def remove(self, item: T) -> None:
        """Remove an item, which must be present."""
        number, place = self._find_place(item)
        first, chunk = number, self._chunks[number]
        remaining_items = chunk[:place] + chunk[place + 1 :]
        if len(remaining_items) < _MIN_CHUNK_SIZE and number:
            first, remaining_items = number - 1, self._chunks[number - 1] + remaining_items
        self._replace_chunks(first, number + 1, remaining_items)
        self._size -= 1

    def _find_place(self, item: T) -> tuple[int, int]:
        """Return the number of the chunk that contains an item, and the index of the item in the chunk. If
        the item is missing, return the place where it belongs."""
        key, last = self._key(item), len(self._chunks) - 1
        if last < 0:
            return 0, 0
        number = min(last, bisect_left(self._chunks, key, key=lambda chunk: self._key(chunk[-1])))
        return number, bisect_left(self._chunks[number], key, key=self._key)

    def _replace_chunks(self, first: int, end: int, items: list[T]) -> None:
        """Replace the chunks with the numbers from `first` up to, but not including, `end` by chunks with the
        given items."""
        middle = len(items) // 2 if len(items) > _MAX_CHUNK_SIZE else 0
        parts = [part for part in (items[:middle], items[middle:]) if part]
        self._chunks = [*self._chunks[:first], *parts, *self._chunks[end:]]


class Ordering(NamedTuple, Generic[T]):
    """Order of items by their `key`. The order includes only items for which `belongs` returns True. If
    `belongs` is None, the order includes all items."""

    key: Callable[[T], Any]
    belongs: Callable[[T], Any] | None = None

    def has(self, item: T | None) -> bool:
        return item is not None and (self.belongs is None or bool(self.belongs(item)))


class SortedViews(Generic[I, T]):
    """Sorted views of a table of items by id, with one view for each ordering. Only one thread at a time may
    use the object.

    The first snapshot of an ordering creates the view. Each later snapshot applies the changes since the
    snapshot before. After many changes without a snapshot, the view is dropped, so a view that is not read
    costs almost nothing.
    """

    def __init__(self, table: Mapping[I, T]) -> None:
        self._table = table
        self._views: dict[Ordering[T], SortedItems[T]] = {}
        #: For each view, by id, the item that the view still has in place of a changed item; None if the view
        #: does not have the item.
        self._outdated: dict[Ordering[T], dict[I, T | None]] = {}

    def note_change(self, id: I, before: T | None) -> None:
        """Record that the item with an id changes. `before` is the former item, or None for a new item."""
        limit, ordering_to_drop = _MIN_CHANGE_LIMIT + len(self._table) // _CHANGE_LIMIT_DIVISOR, None
        for ordering, outdated in self._outdated.items():
            outdated.setdefault(id, before)
            if len(outdated) > limit:
                ordering_to_drop = ordering
        if ordering_to_drop is not None:
            del self._views[ordering_to_drop], self._outdated[ordering_to_drop]

    def drop_all(self) -> None:
        """Drop all views. Must be called after a change of all items."""
        self._views.clear()
        self._outdated.clear()

    def snapshot(self, ordering: Ordering[T]) -> SortedSnapshot[T]:
        view = self._views.get(ordering)
        if view is None:
            view = SortedItems(ordering.key, filter(ordering.has, self._table.values()))
            self._views[ordering], self._outdated[ordering] = view, {}
        for id, before in self._outdated[ordering].items():
            if before is not None and ordering.has(before):
                view.remove(before)
            after = self._table.get(id)
            if after is not None and ordering.has(after):
                view.add(after)
        self._outdated[ordering].clear()
        return view.snapshot()


class ChunkValues(Generic[T, V]):
    """Values that `make` returns for the chunks of a snapshot. Each value is computed only once.
    Thread-safe."""

    def __init__(self, make: Callable[[list[T]], V], keep_seconds: float = _KEEP_SECONDS) -> None:
        self._make = make
        #: By the `id()` of a chunk. The pair keeps the chunk, so no other chunk gets the same `id()`.
        self._values: dict[int, tuple[list[T], V]] = {}
        self._idle_timer = IdleTimer(keep_seconds, self._forget)

    def iterate(self, snapshot: SortedSnapshot[T]) -> Iterator[tuple[list[T], V]]:
        """Yield each chunk of a snapshot with its value, in order."""
        former_values, values = self._values, {}
        for chunk in snapshot.chunks:
            pair = former_values.get(id(chunk)) or (chunk, self._make(chunk))
            values[id(chunk)] = pair
            yield pair
        self._values = values
        self._idle_timer.restart()

    def _forget(self) -> None:
        self._values = {}

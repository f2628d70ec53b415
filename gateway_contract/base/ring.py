"""Ring buffers whose items are numbered from 1 on, without holes."""

from typing import Generic, TypeVar

T = TypeVar("T")


class Ring(Generic[T]):
    """Ring buffer of at most `size` items. The first item gets the number after `newest`. For one thread at a
    time."""

    def __init__(self, size: int, newest: int = 0) -> None:
        self._size = size
        self._first = newest + 1
        self._items: list[T] = []
        #: The number of the last item.
        self.newest = newest

    @property
    def oldest(self) -> int:
        """The number of the first item that is kept; one more than `newest` in an empty ring."""
        return max(self._first, self.newest - self._size + 1)

    def add(self, item: T) -> None:
        """Add an item. In a full ring, it replaces the oldest one."""
        self.newest += 1
        place = (self.newest - self._first) % self._size
        if place < len(self._items):
            self._items[place] = item
        else:
            self._items.append(item)

    def after(self, number: int, limit: int) -> list[T] | None:
        """Return at most `limit` items after a number; None if some are no longer kept, or the number is not
        given yet."""
        if not self.oldest - 1 <= number <= self.newest:
            return None
        last = min(self.newest, number + limit)
        return [self._items[(n - self._first) % self._size] for n in range(number + 1, last + 1)]

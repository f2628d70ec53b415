"""Ring buffers whose items are numbered from 1 without gaps."""

from typing import Generic, TypeVar

T = TypeVar("T")


class Ring(Generic[T]):
    """Ring buffer of at most `size` items. The first added item gets the number `newest` + 1. Only one thread
    at a time may use the object."""

    def __init__(self, size: int, newest: int = 0) -> None:
        self._size = size
        self._first = newest + 1
        self._items: list[T] = []
        #: The number of the last item.
        self.newest = newest

    @property
    def oldest(self) -> int:
        """Number of the oldest item in the ring; `newest` + 1 if the ring is empty."""
        return max(self._first, self.newest - self._size + 1)

    def add(self, item: T) -> None:
        """Add an item. In a full ring, the new item replaces the oldest item."""
        self.newest += 1
        place = (self.newest - self._first) % self._size
        if place < len(self._items):
            self._items[place] = item
        else:
            self._items.append(item)

    def after(self, number: int, limit: int) -> list[T] | None:
        """Return at most `limit` items that follow the item with this number. Return None if some of these
        items are no longer in the ring, or if no item has this number yet."""
        if not self.oldest - 1 <= number <= self.newest:
            return None
        last = min(self.newest, number + limit)
        return [self._items[(n - self._first) % self._size] for n in range(number + 1, last + 1)]

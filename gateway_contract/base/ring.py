"""The last of many things, numbered from 1 on without holes."""

from typing import Generic, TypeVar

T = TypeVar("T")


class Ring(Generic[T]):
    """Holds at most `held` items. The first one gets the number after `newest`. Not for several threads at
    once."""

    def __init__(self, held: int, newest: int = 0) -> None:
        self._held = held
        self._first = newest + 1
        self._items: list[T] = []
        #: The number of the last item.
        self.newest = newest

    @property
    def oldest(self) -> int:
        """The number of the first item that is held; one more than the newest if none is."""
        return max(self._first, self.newest - self._held + 1)

    def add(self, item: T) -> None:
        """The oldest makes room for it, where there is none."""
        self.newest += 1
        place = (self.newest - self._first) % self._held
        if place < len(self._items):
            self._items[place] = item
        else:
            self._items.append(item)

    def after(self, number: int, most: int) -> list[T] | None:
        """Return the items after one, at most so many; None when some of them are not held, or not there
        yet."""
        if not self.oldest - 1 <= number <= self.newest:
            return None
        last = min(self.newest, number + most)
        return [self._items[(n - self._first) % self._held] for n in range(number + 1, last + 1)]

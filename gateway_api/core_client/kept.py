"""Values that were made for a request, and serve the next ones."""

import threading
from collections.abc import Hashable
from typing import Generic, NamedTuple, TypeVar

from gateway_api.base.disuse import Disuse

T = TypeVar("T")


class _Kept(NamedTuple, Generic[T]):
    version: str
    size: int
    thing: T


class Kept(Generic[T]):
    """The last thing of each key, all of one version: at most `most` bytes of them, or only the last one.
    After so many `seconds` without a request, and at most twice as many, there are none. Any thread may
    call."""

    def __init__(self, most: int, seconds: float) -> None:
        self._most = most
        self._lock = threading.Lock()
        #: Those that were used last are at the end.
        self._things: dict[Hashable, _Kept[T]] = {}
        self._disuse = Disuse(seconds, self._forget)

    def __len__(self) -> int:
        return len(self._things)

    def get(self, key: Hashable, version: str) -> T | None:
        """The thing of this version, or None."""
        with self._lock:
            held = self._things.get(key)
            if held is None or held.version != version:
                return None
            self._things[key] = self._things.pop(key)
        self._disuse.used()
        return held.thing

    def put(self, key: Hashable, version: str, thing: T, size: int) -> None:
        """Keeps a thing of so many bytes."""
        with self._lock:
            # Nobody requests another version again.
            self._things = {other: held for other, held in self._things.items() if held.version == version}
            self._things.pop(key, None)
            self._things[key] = _Kept(version, size, thing)
            while len(self._things) > 1 and sum(held.size for held in self._things.values()) > self._most:
                del self._things[next(iter(self._things))]
        self._disuse.used()

    def _forget(self) -> None:
        with self._lock:
            self._things.clear()

"""Ids by what an operator may know of their things."""

from collections import Counter
from collections.abc import Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


class Index(Generic[K]):
    """Ids by a key. Most keys have one id, and 200,000 sets of one would take 40 MB."""

    def __init__(self) -> None:
        self._ids: dict[K, int | set[int]] = {}

    def add(self, key: K, id: int) -> None:
        held = self._ids.get(key)
        if held is None:
            self._ids[key] = id
        elif isinstance(held, int):
            self._ids[key] = {held, id}
        else:
            held.add(id)

    def remove(self, key: K, id: int) -> None:
        held = self._ids[key]
        if isinstance(held, int):
            del self._ids[key]
            return
        held.remove(id)
        if not held:
            del self._ids[key]

    def ids(self, key: K) -> list[int]:
        """In ascending order."""
        held = self._ids.get(key)
        if held is None:
            return []
        return [held] if isinstance(held, int) else sorted(held)


class NetworkIndex(Index[int]):
    """Ids by IPv6 network, as `ipv6.network` makes it. A search takes one step for each length of prefix that
    is in use."""

    def __init__(self) -> None:
        super().__init__()
        self._lengths: Counter[int] = Counter()

    def add(self, key: int, id: int) -> None:
        super().add(key, id)
        self._lengths[key.bit_length()] += 1

    def remove(self, key: int, id: int) -> None:
        super().remove(key, id)
        length = key.bit_length()
        self._lengths[length] -= 1
        if not self._lengths[length]:
            del self._lengths[length]

    def around(self, network: int) -> list[int]:
        """The ids of the networks that contain an address or network, in ascending order."""
        bits = network.bit_length()
        lengths = [length for length in self._lengths if length <= bits]
        return sorted({id for length in lengths for id in self.ids(network >> bits - length)})

    def inside(self, network: int) -> list[int]:
        """The networks that are a part of a network, and not the same. If there is a longer prefix than its
        own, it reads all networks, while others may change them."""
        bits = network.bit_length()
        found: list[int] = []
        for longer in [length - bits for length in list(self._lengths) if length > bits]:
            # Of one length, all that are inside are in one range. No network of another length is in it.
            first, behind = network << longer, network + 1 << longer
            found += [key for key in list(self._ids) if first <= key < behind]
        return found

"""What is handed out and comes back: addresses and unit numbers."""

import heapq
from collections import deque
from collections.abc import Callable
from ipaddress import IPv4Network


class AddressPool:
    """The host addresses of a network, less the first, which is the gateway's.

    An address that came back is the last to go out again, so that a subscriber who left isn't
    mistaken for the one who came.
    """

    def __init__(self, network: IPv4Network) -> None:
        self.gateway = str(network.network_address + 1)
        self._network = network
        self._unused = iter(range(2, max(2, network.num_addresses - 1)))
        self._returned: deque[str] = deque()

    def take(self, in_use: Callable[[str], bool]) -> str | None:
        """An address that nobody has; None when all are out."""
        for host in self._unused:
            address = str(self._network.network_address + host)
            if not in_use(address):
                return address
        while self._returned:
            address = self._returned.popleft()
            if not in_use(address):
                return address
        return None

    def give_back(self, address: str) -> None:
        self._returned.append(address)


class UnitPool:
    """Numbers from 0 up, the lowest free one first, as the kernel numbers ppp devices."""

    def __init__(self) -> None:
        self._next = 0
        self._returned: list[int] = []

    def take(self) -> int:
        if self._returned:
            return heapq.heappop(self._returned)
        self._next += 1
        return self._next - 1

    def give_back(self, unit: int) -> None:
        heapq.heappush(self._returned, unit)

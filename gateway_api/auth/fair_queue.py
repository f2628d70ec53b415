"""A queue that is fair to addresses: the next place goes to the address that was served longest ago.

One address cannot fill the queue: when it is full, the address with the most places, or the one served last,
loses its newest place.
"""

import threading
from collections import Counter, OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count

from gateway_api.base.errors import TooManyAttempts
from gateway_api.base.texts import client_network

#: Seconds after which a rejected client should try again.
_RETRY_AFTER = 2
#: Addresses whose last turn is remembered.
_REMEMBERED = 1024


class _Ticket:
    def __init__(self, address: str) -> None:
        self.address = address
        #: Lost to another address. `called` is set then, too.
        self.given_up = False
        self.called = threading.Event()


class FairQueue:
    """Holds `most` clients, including the one that is served, and `most_from_one` of one address."""

    def __init__(self, most: int, most_from_one: int) -> None:
        self._most = most
        self._most_from_one = most_from_one
        self._lock = threading.Lock()
        #: In order of arrival.
        self._waiting: list[_Ticket] = []
        self._served: _Ticket | None = None
        #: When each address was served last, as a rising number.
        self._last: OrderedDict[str, int] = OrderedDict()
        self._numbers = count(1)

    @contextmanager
    def turn(self, address: str) -> Iterator[None]:
        """Waits for a turn, which lasts until the end of the block. Raises TooManyAttempts if the queue is
        full."""
        ticket = self._join(client_network(address))
        try:
            ticket.called.wait()
            if ticket.given_up:
                raise TooManyAttempts(_RETRY_AFTER)
            yield
        finally:
            self._leave(ticket)

    def _join(self, address: str) -> _Ticket:
        with self._lock:
            queue = self._waiting if self._served is None else [*self._waiting, self._served]
            places = Counter(ticket.address for ticket in queue)
            if places[address] >= self._most_from_one:
                raise TooManyAttempts(_RETRY_AFTER)
            if len(queue) >= self._most:
                self._make_room(places, address)
            ticket = _Ticket(address)
            self._waiting.append(ticket)
            self._call()
        return ticket

    def _make_room(self, places: Counter[str], address: str) -> None:
        def had(whose: str, more: int) -> tuple[int, int]:
            return places[whose] + more, self._last.get(whose, 0)

        # The newest ticket of an address: max returns the first one.
        newest = max(reversed(self._waiting), key=lambda ticket: had(ticket.address, 0), default=None)
        if newest is None or had(newest.address, 0) <= had(address, 1):
            raise TooManyAttempts(_RETRY_AFTER)
        newest.given_up = True
        self._waiting.remove(newest)
        newest.called.set()

    def _leave(self, ticket: _Ticket) -> None:
        with self._lock:
            if ticket is self._served:
                self._served = None
                self._last[ticket.address] = next(self._numbers)
                self._last.move_to_end(ticket.address)
                if len(self._last) > _REMEMBERED:
                    self._last.popitem(last=False)
            elif ticket in self._waiting:
                self._waiting.remove(ticket)
            self._call()

    def _call(self) -> None:
        if self._served is None and self._waiting:
            # The oldest ticket of an address: min returns the first one.
            self._served = min(self._waiting, key=lambda ticket: self._last.get(ticket.address, 0))
            self._waiting.remove(self._served)
            self._served.called.set()

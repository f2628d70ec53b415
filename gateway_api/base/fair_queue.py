"""A queue that is fair to clients: the next place goes to the one that was served longest ago.

One client cannot fill the queue: when it is full, the client with the most places, or the one served last,
loses its newest place. A client is a user or an address, as the owner names it.
"""

import threading
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count

from gateway_api.base.errors import GatewayApiError

#: Clients whose last turn is remembered.
_REMEMBERED = 1024


class _Ticket:
    def __init__(self, client: str) -> None:
        self.client = client
        #: Lost to another client. `called` is set then, too.
        self.given_up = False
        self.called = threading.Event()


class FairQueue:
    """Holds `most` places, including those that are served, and `most_from_one` of one client. `at_once` are
    served at a time, of different clients. `full` makes the error for a client that gets no turn."""

    def __init__(
        self, most: int, most_from_one: int, full: Callable[[], GatewayApiError], at_once: int = 1
    ) -> None:
        self._most = most
        self._most_from_one = most_from_one
        self._full = full
        self._at_once = at_once
        self._lock = threading.Lock()
        #: In order of arrival.
        self._waiting: list[_Ticket] = []
        self._served: list[_Ticket] = []
        #: When each client was served last, as a rising number.
        self._last: OrderedDict[str, int] = OrderedDict()
        self._numbers = count(1)

    @property
    def is_serving(self) -> bool:
        """Whether a client has its turn. Without the lock, so that any native thread may look."""
        return bool(self._served)

    @property
    def has_waiting(self) -> bool:
        """Whether a client waits. As `is_serving`."""
        return bool(self._waiting)

    @contextmanager
    def turn(self, client: str, timeout: float | None = None) -> Iterator[None]:
        """Waits for a turn, at most `timeout` seconds. It lasts until the end of the block. Raises the error
        of `full` if the queue is full, and after the timeout."""
        ticket = self._join(client)
        try:
            if not ticket.called.wait(timeout) or ticket.given_up:
                raise self._full()
            yield
        finally:
            self._leave(ticket)

    def _join(self, client: str) -> _Ticket:
        with self._lock:
            queue = [*self._waiting, *self._served]
            places = Counter(ticket.client for ticket in queue)
            if places[client] >= self._most_from_one:
                raise self._full()
            if len(queue) >= self._most:
                self._make_room(places, client)
            ticket = _Ticket(client)
            self._waiting.append(ticket)
            self._call()
        return ticket

    def _make_room(self, places: Counter[str], client: str) -> None:
        def had(whose: str, more: int) -> tuple[int, int]:
            return places[whose] + more, self._last.get(whose, 0)

        # The newest ticket of a client: max returns the first one.
        newest = max(reversed(self._waiting), key=lambda ticket: had(ticket.client, 0), default=None)
        if newest is None or had(newest.client, 0) <= had(client, 1):
            raise self._full()
        newest.given_up = True
        self._waiting.remove(newest)
        newest.called.set()

    def _leave(self, ticket: _Ticket) -> None:
        with self._lock:
            if ticket in self._served:
                self._served.remove(ticket)
                self._last[ticket.client] = next(self._numbers)
                self._last.move_to_end(ticket.client)
                if len(self._last) > _REMEMBERED:
                    self._last.popitem(last=False)
            elif ticket in self._waiting:
                self._waiting.remove(ticket)
            self._call()

    def _call(self) -> None:
        while len(self._served) < self._at_once:
            served = {ticket.client for ticket in self._served}
            free = [ticket for ticket in self._waiting if ticket.client not in served]
            if not free:
                return
            # The oldest ticket of a client: min returns the first one.
            called = min(free, key=lambda ticket: self._last.get(ticket.client, 0))
            self._waiting.remove(called)
            self._served.append(called)
            called.called.set()

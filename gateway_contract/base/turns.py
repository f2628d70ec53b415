"""Fair turns: no greenlet occupies a worker, and no client occupies a queue."""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

#: Maximum number of clients whose last turn a queue remembers.
_MAX_REMEMBERED_CLIENTS = 1024


def give_way() -> None:
    """Let other greenlets run, including greenlets whose sockets have become ready."""
    # gevent's `sleep(0)` would switch only to greenlets that are ready, and not poll the sockets.
    time.sleep(1e-9)


class FairQueue:
    """Queue in which each client, a user or an address, gets a fair share of turns.

    The queue has `max_places` places, and at most `max_places_per_client` places for one client. A running
    turn keeps its place. At most `max_running_turns` turns run at the same time, each for another client. The
    next turn goes to the client whose last turn ended longest ago.

    When the queue is full, a new client takes a place from the client that has the most places: the newest
    place of this client. If several clients have the most places, the client with the latest turn loses the
    place. `make_full_error` makes the error for a client that gets no turn.
    """

    def __init__(
        self,
        max_places: int,
        max_places_per_client: int,
        make_full_error: Callable[[], Exception],
        max_running_turns: int = 1,
    ) -> None:
        self._max_places = max_places
        self._max_places_per_client = max_places_per_client
        self._make_full_error = make_full_error
        self._max_running_turns = max_running_turns
        self._condition = threading.Condition()
        #: The client of each waiting place, in order of arrival. Any native thread may check whether it is
        #: empty.
        self.waiting: dict[object, str] = {}
        self.served: dict[object, str] = {}
        #: The end of each client's last turn, in monotonic seconds; the latest is last.
        self._last_turns: dict[str, float] = {}

    @contextmanager
    def turn(self, client: str, timeout: float | None = None) -> Iterator[None]:
        """Wait for a turn of the client, at most `timeout` seconds. The turn lasts until the end of the with
        block. Raises the result of `make_full_error` if the queue is full, or after the timeout."""
        place = object()
        with self._condition:
            self._make_room(client)
            self.waiting[place] = client
            try:
                self._condition.wait_for(
                    lambda: place is self._choose_next() or place not in self.waiting, timeout
                )
                if place is not self._choose_next():
                    raise self._make_full_error()
                self.served[place] = client
            finally:
                self.waiting.pop(place, None)
                self._condition.notify_all()
        try:
            yield
        finally:
            with self._condition:
                del self.served[place]
                self._last_turns.pop(client, None)
                self._last_turns[client] = time.monotonic()
                if len(self._last_turns) > _MAX_REMEMBERED_CLIENTS:
                    del self._last_turns[next(iter(self._last_turns))]
                self._condition.notify_all()

    def _choose_next(self) -> object | None:
        startable = [place for place, client in self.waiting.items() if client not in self.served.values()]
        if len(self.served) == self._max_running_turns:
            return None
        # The oldest place of a client: min returns the first one.
        return min(startable, key=lambda place: self._last_turns.get(self.waiting[place], 0.0), default=None)

    def _make_room(self, client: str) -> None:
        places = Counter([*self.waiting.values(), *self.served.values(), client])
        if places[client] <= self._max_places_per_client and places.total() <= self._max_places:
            return
        shares = {each: (places[each], self._last_turns.get(each, 0.0)) for each in places}
        # The newest place of a client: max returns the first one.
        newest = max(reversed(self.waiting), key=lambda place: shares[self.waiting[place]], default=None)
        if (
            places[client] > self._max_places_per_client
            or newest is None
            or shares[self.waiting[newest]] <= shares[client]
        ):
            raise self._make_full_error()
        del self.waiting[newest]
        self._condition.notify_all()

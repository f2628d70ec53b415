"""Messages that wait for a first attempt, held once for all queues; and the pause of a receiver that fails.

A queue keeps only its place in the backlog. So a message costs the same however many receivers are dead, and
to drop messages is to move a number.
"""

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import Protocol

from gateway_api.hub.message import Message

#: Messages between two looks at which of them nobody waits for any more.
_TIDY = 1000


class Follower(Protocol):
    """A queue, as the backlog sees it. Both methods are called with the lock held."""

    #: The number of the last message that it took or dropped.
    place: int
    #: Whether it is to be woken when a message comes.
    listens: bool

    def wake(self) -> None: ...

    def make_room(self) -> None: ...


class Backlog:
    """Messages by number, from 1 on. `clock` gives monotonic seconds. Queues share the `lock`: what doesn't
    take it is called with it held."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self.lock = threading.Lock()
        self._followers: list[Follower] = []
        self._held: deque[tuple[float, Message]] = deque()
        self._untidy = 0
        #: The number of the last message.
        self.newest = 0

    def offer(self, messages: Iterable[Message]) -> None:
        """Takes messages in their order, if anybody follows. Takes the lock."""
        with self.lock:
            if not self._followers:
                return
            now, before = self._clock(), len(self._held)
            self._held.extend((now, message) for message in messages)
            added = len(self._held) - before
            self.newest += added
            for follower in self._followers:
                if follower.listens:
                    follower.wake()
            self._untidy += added
            if self._untidy >= _TIDY:
                self._tidy()

    def join(self, follower: Follower) -> None:
        """It follows from now on. Takes the lock."""
        with self.lock:
            follower.place = self.newest
            self._followers.append(follower)

    def leave(self, follower: Follower) -> None:
        if follower in self._followers:
            self._followers.remove(follower)
            self._tidy()

    def get(self, number: int) -> tuple[float, Message]:
        """When a message came, and the message. It must be there: after some follower's place."""
        return self._held[number - self.newest - 1]

    def _tidy(self) -> None:
        self._untidy = 0
        for follower in self._followers:
            follower.make_room()
        wanted = self.newest - min((one.place for one in self._followers), default=self.newest)
        while len(self._held) > wanted:
            self._held.popleft()


#: Failures in a row that begin a pause.
FAILURES = 3
#: Seconds of the first pause, and of the longest.
SHORTEST, LONGEST = 5.0, 300.0


class Pause:
    """One receiver's. Times are monotonic seconds."""

    def __init__(self) -> None:
        self._failures = 0
        #: How long this one is, 0 for none.
        self._seconds = 0.0
        #: Until when no first attempt is made; then one, the probe, whose failure makes a longer pause.
        self.until = -math.inf

    def __bool__(self) -> bool:
        """Whether it lasts: until an attempt succeeds."""
        return bool(self._seconds)

    def end(self) -> None:
        """An attempt succeeded, whichever."""
        self._failures, self._seconds, self.until = 0, 0.0, -math.inf

    def failed(self, now: float, *, probe: bool) -> float | None:
        """An attempt failed. The seconds of the pause that this begins; None if it begins none."""
        self._failures += 1
        if self._failures < FAILURES or (self and not probe):
            return None
        self._seconds = min(2 * self._seconds, LONGEST) or SHORTEST
        self.until = now + self._seconds
        return self._seconds

"""Messages that wait for a first attempt, held once for all queues; and the pause of a receiver that fails.

A queue keeps only its place in the backlog. So a message takes the same memory however many receivers are
dead, and to drop messages is to move a number.
"""

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import Protocol

from gateway_api.hub.message import WebhookMessage

#: After so many messages, the backlog frees those that no queue needs.
_TIDY = 1000


class Follower(Protocol):
    """A queue, as the backlog sees it. The lock is held when the backlog calls it."""

    #: The number of the last message that it took or dropped.
    place: int
    #: Whether `wake` is called when a message arrives.
    listens: bool

    def wake(self) -> None: ...

    def make_room(self) -> None:
        """Drops messages if too many wait."""


class Backlog:
    """Messages by number, from 1 on. `clock` gives monotonic seconds. Its queues share the `lock`; methods
    that do not acquire it require that the caller holds it."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self.lock = threading.Lock()
        self._followers: list[Follower] = []
        self._held: deque[tuple[float, WebhookMessage]] = deque()
        self._untidy = 0
        #: The number of the last message.
        self.newest = 0

    def offer(self, messages: Iterable[WebhookMessage]) -> None:
        """Adds messages in their order, if there is a queue. Acquires the lock."""
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
        """Adds a queue, which gets messages from now on. Acquires the lock."""
        with self.lock:
            follower.place = self.newest
            self._followers.append(follower)

    def leave(self, follower: Follower) -> None:
        if follower in self._followers:
            self._followers.remove(follower)
            self._tidy()

    def get(self, number: int) -> tuple[float, WebhookMessage]:
        """The arrival of a message in seconds, and the message. Its number is after some queue's place."""
        return self._held[number - self.newest - 1]

    def _tidy(self) -> None:
        self._untidy = 0
        for follower in self._followers:
            follower.make_room()
        wanted = self.newest - min((one.place for one in self._followers), default=self.newest)
        while len(self._held) > wanted:
            self._held.popleft()


#: Failures in a row that begin a pause.
_FAILURES = 3
#: Seconds of the first pause, and of the longest: within the longest, the hub finds a receiver that is back.
_SHORTEST, _LONGEST = 5.0, 15.0


class Pause:
    """The pause of one receiver, which the first success ends. Times are monotonic seconds."""

    def __init__(self) -> None:
        self.end()

    def end(self) -> None:
        """After an attempt that succeeded."""
        self._failures = 0
        #: Its length, 0 without a pause.
        self._seconds = 0.0
        #: No first attempt is made until then. The next one is the probe: its failure begins another pause,
        #: which is longer.
        self.until = -math.inf

    def failed(self, now: float, *, probe: bool) -> float | None:
        """After an attempt that failed. Returns the length of the pause that begins, None if none does."""
        self._failures += 1
        if self._failures < _FAILURES or (self._seconds and not probe):
            return None
        self._seconds = min(2 * self._seconds, _LONGEST) or _SHORTEST
        self.until = now + self._seconds
        return self._seconds

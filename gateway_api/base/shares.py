"""Shares of a worker's time, by connection.

A client whose next request is there already would keep the event loop for itself: gevent looks for what other
clients have sent only when nothing else is left to do. So each request waits for its turn, one request begins
after each look at the sockets, and the connection that used the least time comes first. That is start-time
fair queueing (P. Goyal, H. M. Vin, H. Cheng, SIGCOMM 1996), with seconds for bytes.

Internals of gevent, read in 26.9: a timer of 0 seconds fires after the next look at the sockets, while the
callback of `sleep(0)` comes before it.
"""

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from heapq import heapify, heappop, heappush
from itertools import count
from typing import Any

import gevent
import greenlet

#: Seconds after which a connection waits for another turn, where it reads or sends more.
TURN = 0.001
#: The same for a request that has waited for the core or a disk. A short one ends before that.
_TURN_OF_LONG = TURN / 2
#: The most that a request takes that shares an exchange.
_SHORT = TURN
#: It waits for others that take up to half a turn, or up to so many times its own time.
_ALIKE = 2
#: What a second of such a request costs after its first half a turn: short requests come first. While a long
#: one waits, it takes time of the core, the disk and threads, which its share does not show. A short one that
#: takes a little more than half a turn once must not wait for four.
_PRICE_OF_LONG = 4
#: The weight of the latest new connection in what one costs.
_LATEST = 1 / 8


class Share:
    """The turns of one connection. `began` is where the turn began, by the time of the shares."""

    __slots__ = ("_has_request", "_shares", "began", "cost", "is_new", "spent", "used")

    def __init__(self, shares: "Shares", began: float) -> None:
        self._shares = shares
        self.began = began
        #: Seconds of the loop, since its turn began.
        self.used = 0.0
        #: Until the end of its first turn.
        self.is_new = True
        #: Seconds of the loop that the request before this one took. Of a first one nobody knows.
        self.cost = math.inf
        #: Seconds of the loop, in former turns of this request.
        self.spent = 0.0
        self._has_request = False

    def begin_request(self) -> None:
        """Waits for the turn of a request. One that came with a new connection has the first turn: a new
        connection pays for all that a client with a connection for each request costs."""
        is_first, self._has_request = not self._has_request, True
        if not is_first:
            self.cost = self.spent + self._shares.used_by(self)
        if not is_first or not self.is_new or self.used:
            self.wait()
        self.spent = 0.0

    def wait(self, price: float = 1) -> None:
        """Waits for the next turn, and pays `price` for each second of this one after the first half a turn
        of the request. To be called in the greenlet of the connection, which has this share."""
        self._shares.wait(self, price)

    def pause(self, after: float = TURN, price: float = 1) -> None:
        """Waits for the next turn, as `wait`, if this one took so many seconds."""
        if self._shares.used_by(self) >= after:
            self.wait(price)

    def gather(self, expects: bool) -> bool:
        """As the function of this name."""
        return self._shares.gather(expects, max(TURN / 2, _ALIKE * self.cost))


def pause() -> None:
    """Lets requests that have used less time go first. To be called in a request that has waited for the core
    or a disk, before it goes on."""
    share: Share | None = getattr(gevent.getcurrent(), "share", None)
    if share is not None:
        share.pause(_TURN_OF_LONG, _PRICE_OF_LONG)


def is_short() -> bool:
    """Whether this request may share an exchange, as the one before it took little time. One of no connection
    may, too."""
    share: Share | None = getattr(gevent.getcurrent(), "share", None)
    return share is None or share.cost <= _SHORT


def gather(expects: bool) -> bool:
    """If a short request has the next turn, lets it begin, and goes on when it waits for something else. If
    nobody waits for a turn and the caller `expects` it, looks at the sockets first. False when there is none.
    To be called in a request that can share work with it."""
    share: Share | None = getattr(gevent.getcurrent(), "share", None)
    return share is not None and share.gather(expects)


class Shares:
    """The shares of all connections of a worker. `clock` gives seconds of the processor: a request that other
    processes hold up would otherwise pay for their time, and wait once more."""

    def __init__(self, clock: Callable[[], float] = time.thread_time) -> None:
        self._clock = clock
        self._hub = gevent.get_hub()
        self._next = self._hub.loop.timer(0)
        self._queue: list[tuple[float, int, Share, Any]] = []
        self._numbers = count()
        #: Greenlets that go on after the next turn.
        self._gathering: list[Any] = []
        #: The time of the shares: the place of the latest turn.
        self._now = 0.0
        #: When the current greenlet began to run, by the clock.
        self._since = clock()
        #: Seconds of a connection's first turn, on average.
        self._first_turn = 0.0
        greenlet.settrace(self._switched)

    @contextmanager
    def share(self) -> Iterator[Share]:
        """The share of the current greenlet, which is that of a new connection. Waits for its first turn."""
        share = Share(self, self._now)
        gevent.getcurrent().share = share
        # The turn counts before it begins. Otherwise a client with a new connection for each request would
        # always come first: a handshake takes as long as several requests.
        self._wait(share, self._first_turn)
        try:
            yield share
        finally:
            if share.is_new:
                self._first_has_ended(share)

    def wait(self, share: Share, price: float) -> None:
        if share.is_new:
            self._first_has_ended(share)
        used = self.used_by(share)
        first = min(used, max(_TURN_OF_LONG - share.spent, 0))
        share.spent += used
        share.began += first + price * (used - first)
        self._wait(share)

    def used_by(self, share: Share) -> float:
        """Seconds that the current greenlet, which has this share, used of its turn."""
        return share.used + self._clock() - self._since

    def gather(self, expects: bool, longest: float) -> bool:
        """Lets a request begin that takes so many seconds at most."""
        if expects and not self._queue:
            self._until_turn()
            # The timer of the turn comes before what that look has found.
            gevent.sleep(0)
        if not self._queue or self._queue[0][2].cost > min(longest, _SHORT):
            return False
        self._until_turn()
        return True

    def _until_turn(self) -> None:
        """Goes on after the next turn."""
        self._next.start(self._turn)
        gathering = gevent.getcurrent()
        self._gathering.append(gathering)
        try:
            self._hub.switch()
        except BaseException:
            # Its greenlet is killed.
            if gathering in self._gathering:
                self._gathering.remove(gathering)
            raise

    def _first_has_ended(self, share: Share) -> None:
        share.is_new = False
        self._first_turn += (self.used_by(share) - self._first_turn) * _LATEST

    def _wait(self, share: Share, ahead: float = 0.0) -> None:
        share.began = max(self._now, share.began)
        place = (share.began + ahead, next(self._numbers), share, gevent.getcurrent())
        heappush(self._queue, place)
        if len(self._queue) == 1:
            self._next.start(self._turn)
        try:
            self._hub.switch()
        except BaseException:
            # Its greenlet is killed.
            if place in self._queue:
                self._queue.remove(place)
                heapify(self._queue)
            raise

    def _turn(self) -> None:
        # Not the one whose turn it is, which may gather, too.
        gathering, self._gathering = self._gathering, []
        if self._queue:
            # With a new connection too, the time of the shares goes on: others would wait for ever behind
            # such.
            self._now, _, share, waiting = heappop(self._queue)
            share.used = 0.0
            if self._queue:
                self._next.start(self._turn)
            waiting.switch()
        # Also when the one whose turn it was has been killed.
        for each in gathering:
            each.switch()

    def _switched(self, event: str, switch: tuple[Any, Any]) -> None:
        before: Share | None = getattr(switch[0], "share", None)
        if before is None and getattr(switch[1], "share", None) is None:
            # Of thousands of streams, one after the other: a look at the clock takes longer than the switch.
            return
        now = self._clock()
        if before is not None:
            before.used += now - self._since
        self._since = now

"""Who is connected, what each is waited for, and for how long.

A connection ends when its client is waited for too long, and earlier when others need its place: whoever has
kept us waiting longest makes room. So nobody who comes is turned away for those who hold connections, and
health is answered from wherever it is asked. This module has never seen a socket.
"""

import heapq
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import Enum

from gateway_api.base.client_network import client_network
from gateway_api.base.errors import GatewayApiError


class Phase(Enum):
    """What a connection is at; the value completes the sentence "it did not ... in time"."""

    HANDSHAKE = "finish its TLS handshake"
    HEAD = "send the head of a request"
    IDLE = "send another request"
    BODY = "send a request's body"
    ANSWER = "take its answer"
    #: It waits for us.
    WORK = "wait"
    #: It takes events for as long as it likes; what it takes them in is the stream's business.
    STREAM = "stream"


@dataclass(frozen=True)
class Limits:
    """Seconds until a client must have done its part, and bytes per second of an answer that give it more;
    how many connections, of one address and in all, and how many bytes of answers may wait for clients, those
    of one answer that several take counted once. So many more connections are for this machine's own clients
    where the others wait for us."""

    handshake: float = 10.0
    head: float = 10.0
    idle: float = 30.0
    body: float = 20.0
    answer: float = 10.0
    rate: int = 32 << 10
    of_one_address: int = 1024
    in_all: int = 4096
    for_loopback: int = 64
    waiting_bytes: int = 128 << 20

    def within(self, places: int) -> "Limits":
        """The same for so many connections, those for this machine's own clients included."""
        reserve = min(self.for_loopback, places // 8)
        return replace(self, in_all=places - reserve, for_loopback=reserve)


class NoRoom(GatewayApiError):
    """All places are taken by requests that wait for us."""


class Connection:
    """One client's. `end` makes whoever waits for the client find the connection closed."""

    __slots__ = ("_body_until", "_table", "address", "deadline", "end", "phase", "since", "waiting")

    def __init__(self, table: "Connections", address: str, end: Callable[[], None]) -> None:
        self._table = table
        self.address = address
        self.end = end
        #: Until when the request at hand must have a body; it gets no more time by sending some.
        self._body_until: float | None = None
        #: What its client is to take.
        self.waiting: bytes | None = None
        self.is_at(Phase.HANDSHAKE, table.limits.handshake)

    def is_at(self, phase: Phase, seconds: float | None = None) -> None:
        """The phase begins, and ends in so many seconds."""
        self.phase = phase
        self.since = self._table.clock()
        self.deadline = None if seconds is None else self.since + seconds

    @contextmanager
    def next_request(self) -> Iterator[None]:
        """While the head of a request is waited for."""
        first = self.phase is Phase.HANDSHAKE
        limits = self._table.limits
        self.is_at(Phase.HEAD if first else Phase.IDLE, limits.head if first else limits.idle)
        self._body_until = None
        try:
            yield
        finally:
            self.is_at(Phase.WORK)

    @contextmanager
    def reading(self) -> Iterator[None]:
        """While bytes of the client are waited for, of whatever."""
        if self.phase is not Phase.WORK:
            yield
            return
        if self._body_until is None:
            self._body_until = self._table.clock() + self._table.limits.body
        self.is_at(Phase.BODY)
        self.deadline = self._body_until
        try:
            yield
        finally:
            self.is_at(Phase.WORK)

    @contextmanager
    def writing(self, data: bytes) -> Iterator[None]:
        """While the client takes these bytes."""
        if self.phase is not Phase.WORK:
            yield
            return
        limits = self._table.limits
        self.is_at(Phase.ANSWER, limits.answer + len(data) / limits.rate)
        self.waiting = data
        self._table.holds(data)
        try:
            yield
        finally:
            self._table.lets_go(self)
            self.is_at(Phase.WORK)

    def is_stream(self) -> None:
        """It is one from now on."""
        self.is_at(Phase.STREAM)
        self._table.is_stream(self)


class Connections:
    """Those of one worker. `clock` gives monotonic seconds."""

    def __init__(self, clock: Callable[[], float], limits: Limits = Limits()) -> None:
        self.clock = clock
        self.limits = limits
        self._of_address: defaultdict[str, set[Connection]] = defaultdict(set)
        self._all: set[Connection] = set()
        self._streams: set[Connection] = set()
        self._waiting_bytes = 0
        #: How many clients take the same bytes, by the id of these.
        self._takers: Counter[int] = Counter()
        #: How many there was no room for, since that was last asked.
        self._turned_away = 0

    def __len__(self) -> int:
        """How many there are, the streams included."""
        return len(self._all) + len(self._streams)

    def admit(self, address: str, end: Callable[[], None]) -> Connection:
        """A new one, which others make room for. Raises NoRoom when none of them can."""
        whose = client_network(address)
        if len(self._of_address[whose]) >= self.limits.of_one_address:
            self._make_room(self._of_address[whose])
        if len(self._all) >= self.limits.in_all:
            self._make_room(self._all)
        reserve = self.limits.for_loopback if _is_loopback(whose) else 0
        if len(self._all) >= self.limits.in_all + reserve:
            self._turned_away += 1
            raise NoRoom
        connection = Connection(self, whose, end)
        self._of_address[whose].add(connection)
        self._all.add(connection)
        return connection

    def leave(self, connection: Connection) -> None:
        """It is closed."""
        self._forget(connection)
        self._streams.discard(connection)

    def sweep(self) -> Counter[Phase]:
        """Ends those that are past their deadlines; how many, and what each did not do."""
        now = self.clock()
        late = [one for one in self._all if one.deadline is not None and now >= one.deadline]
        found = Counter(one.phase for one in late)
        self._end(late)
        return found

    def turned_away(self) -> int:
        """How many there was no room for since this was last asked."""
        number, self._turned_away = self._turned_away, 0
        return number

    def end_unasked(self, idle: float, new: float) -> None:
        """Ends those that have asked nothing for so long: after an answer, and since they came."""
        now = self.clock()
        patience = {Phase.IDLE: idle, Phase.HANDSHAKE: new, Phase.HEAD: new}
        self._end([one for one in self._all if now - one.since >= patience.get(one.phase, math.inf)])

    def end_all(self) -> None:
        """Ends every one."""
        self._end([*self._all, *self._streams])

    def holds(self, data: bytes) -> None:
        """One more client is to take these bytes."""
        if not self._takers[id(data)]:
            self._waiting_bytes += len(data)
        self._takers[id(data)] += 1
        while self._waiting_bytes > self.limits.waiting_bytes:
            slow = [one for one in self._all if one.phase is Phase.ANSWER]
            if len({id(one.waiting) for one in slow}) < 2:
                # A single answer is what it is.
                return
            slowest = min(slow, key=_since)
            # Now, not when its greenlet gets to it: the next one to look would end another.
            self.lets_go(slowest)
            self._end([slowest])

    def lets_go(self, connection: Connection) -> None:
        """What its client was to take no more waits for it."""
        data, connection.waiting = connection.waiting, None
        if data is None:
            return
        self._takers[id(data)] -= 1
        if not self._takers[id(data)]:
            del self._takers[id(data)]
            self._waiting_bytes -= len(data)

    def is_stream(self, connection: Connection) -> None:
        """It is one from now on, and counts as none of the others."""
        self._forget(connection)
        self._streams.add(connection)

    def _make_room(self, among: set[Connection]) -> None:
        # Several at a time: to look for one would cost as much.
        share = max(1, len(among) // 16)
        waited_for = (one for one in among if one.phase not in (Phase.WORK, Phase.STREAM))
        self._end(heapq.nsmallest(share, waited_for, key=_since))

    def _end(self, connections: list[Connection]) -> None:
        for one in connections:
            self.leave(one)
            one.end()

    def _forget(self, connection: Connection) -> None:
        self._all.discard(connection)
        of_address = self._of_address[connection.address]
        of_address.discard(connection)
        if not of_address:
            del self._of_address[connection.address]


def _since(connection: Connection) -> float:
    return connection.since


def _is_loopback(network: str) -> bool:
    return network.startswith("127.") or network == client_network("::1")

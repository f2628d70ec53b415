"""The connections of a worker, and the deadlines of their clients.

A connection ends when its client misses a deadline, and earlier when others need its place: then the client
that we have waited for longest loses it. So no new client is rejected for clients that do nothing, and health
has a response for every address.
"""

import heapq
import logging
import math
from collections import Counter, defaultdict
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from enum import Enum
from operator import attrgetter

from gateway_contract.base.errors import GatewayApiError
from gateway_contract.base.texts import identify_client

_log = logging.getLogger(__name__)

_SINCE = attrgetter("since")
#: Inside another wait.
_NO_WAIT = nullcontext()


class Phase(Enum):
    """The phase of a connection. The value completes the sentence "it did not ... in time"."""

    HANDSHAKE = "finish its TLS handshake"
    HEADER = "send the header of a request"
    IDLE = "send another request"
    BODY = "send a request's body"
    RESPONSE = "receive its response"
    #: The client waits for us.
    WORK = "wait"
    #: The client receives events, without an end; the stream has its own limits.
    STREAM = "stream"


@dataclass(frozen=True)
class Limits:
    """The limits for the clients of a worker."""

    #: Seconds of each phase. A response has more, by its size.
    handshake: float = 10.0
    header: float = 10.0
    idle: float = 30.0
    body: float = 20.0
    response: float = 10.0
    #: Bytes of a response per additional second.
    rate: int = 32 << 10
    #: Connections, without streams.
    of_one_address: int = 1024
    in_all: int = 4096
    #: In addition, for clients on this machine while all others wait for us.
    for_loopback: int = 64
    #: Bytes of responses in memory. One response for several clients counts once.
    waiting_bytes: int = 128 << 20

    def within(self, places: int) -> "Limits":
        """Return the limits for this number of connections, those for loopback included."""
        reserve = min(self.for_loopback, places // 8)
        return replace(self, in_all=places - reserve, for_loopback=reserve)


class NoRoom(GatewayApiError):
    """All connections have requests in progress."""


class Connection:
    """The connection of one client. `end` closes it at once."""

    __slots__ = ("_body_until", "_table", "address", "deadline", "end", "phase", "since", "waiting")

    def __init__(self, table: "Connections", address: str, end: Callable[[], None]) -> None:
        self._table = table
        self.address = address
        self.end = end
        #: The deadline of the request's body, which pieces of it do not extend.
        self._body_until: float | None = None
        #: Bytes of a response that the client has not received yet.
        self.waiting: bytes | None = None
        self.begin(Phase.HANDSHAKE, table.limits.handshake)

    def begin(self, phase: Phase, seconds: float | None = None) -> None:
        self.phase = phase
        self.since = self._table.clock()
        self.deadline = None if seconds is None else self.since + seconds

    def next_request(self) -> AbstractContextManager[None]:
        """During the wait for the header of a request."""
        self._body_until = None
        if self.phase is Phase.HANDSHAKE:
            self.begin(Phase.HEADER, self._table.limits.header)
        else:
            self.begin(Phase.IDLE, self._table.limits.idle)
        return self

    def reading(self) -> AbstractContextManager[None]:
        """During the wait for bytes of a body."""
        if self.phase is not Phase.WORK:
            return _NO_WAIT
        now = self._table.clock()
        if self._body_until is None:
            self._body_until = now + self._table.limits.body
        self.begin(Phase.BODY, self._body_until - now)
        return self

    def writing(self, data: bytes) -> AbstractContextManager[None]:
        """While the client receives these bytes."""
        if self.phase is not Phase.WORK:
            return _NO_WAIT
        limits = self._table.limits
        self.waiting = data
        self.begin(Phase.RESPONSE, limits.response + len(data) / limits.rate)
        self._table.hold(data)
        return self

    def __enter__(self) -> None:
        """Wait for the client, since a call of one of the three above. A generator for each wait would take
        more time than all that it does."""

    def __exit__(self, *error: object) -> None:
        self._table.release(self)
        self.begin(Phase.WORK)

    def is_stream(self) -> None:
        """Begin a stream, the last response of a connection."""
        self.begin(Phase.STREAM)
        self._table.is_stream(self)


class Connections:
    """All connections of a worker. `clock` gives monotonic seconds."""

    def __init__(self, clock: Callable[[], float], limits: Limits = Limits()) -> None:
        self.clock = clock
        self.limits = limits
        self._of_address: defaultdict[str, set[Connection]] = defaultdict(set)
        self._all: set[Connection] = set()
        self._streams: set[Connection] = set()
        self._waiting_bytes = 0
        #: The number of clients that receive the same bytes, by the id of the bytes.
        self._receivers: Counter[int] = Counter()
        self._rejected = 0

    def __len__(self) -> int:
        """Return the number of connections, streams included."""
        return len(self._all) + len(self._streams)

    def admit(self, address: str, end: Callable[[], None]) -> Connection:
        """Return a new connection, which may end others. Raises NoRoom."""
        network = identify_client(address)
        if len(self._of_address[network]) >= self.limits.of_one_address:
            self._make_room(self._of_address[network])
        if len(self._all) >= self.limits.in_all:
            self._make_room(self._all)
        reserve = self.limits.for_loopback if _is_loopback(network) else 0
        if len(self._all) >= self.limits.in_all + reserve:
            self._rejected += 1
            raise NoRoom
        connection = Connection(self, network, end)
        self._of_address[network].add(connection)
        self._all.add(connection)
        return connection

    def leave(self, connection: Connection) -> None:
        """Remove a connection that is closed."""
        self._forget(connection)
        self._streams.discard(connection)

    def sweep(self) -> Counter[Phase]:
        """End connections past their deadlines. Return the number in each phase."""
        now = self.clock()
        late = [one for one in self._all if one.deadline is not None and now >= one.deadline]
        found = Counter(one.phase for one in late)
        self._end(late)
        return found

    def rejected(self) -> int:
        """Return the number of rejected connections since the last call."""
        number, self._rejected = self._rejected, 0
        return number

    def end_unasked(self, idle: float, new: float) -> None:
        """End connections without a request for so many seconds, after a response or after their start."""
        now = self.clock()
        patience = {Phase.IDLE: idle, Phase.HANDSHAKE: new, Phase.HEADER: new}
        self._end([one for one in self._all if now - one.since >= patience.get(one.phase, math.inf)])

    def end_all(self) -> None:
        self._end([*self._all, *self._streams])

    def hold(self, data: bytes) -> None:
        """One more client receives these bytes. Too many bytes end the slowest clients."""
        if not self._receivers[id(data)]:
            self._waiting_bytes += len(data)
        self._receivers[id(data)] += 1
        while self._waiting_bytes > self.limits.waiting_bytes:
            slow = [one for one in self._all if one.phase is Phase.RESPONSE]
            if len({id(one.waiting) for one in slow}) < 2:
                # A single response may be larger than the limit.
                return
            slowest = min(slow, key=_SINCE)
            # Now, not when its greenlet runs: until then, this loop would end more than it needs to.
            self.release(slowest)
            self._end([slowest])

    def release(self, connection: Connection) -> None:
        """End `hold` for the connection."""
        data, connection.waiting = connection.waiting, None
        if data is None:
            return
        self._receivers[id(data)] -= 1
        if not self._receivers[id(data)]:
            del self._receivers[id(data)]
            self._waiting_bytes -= len(data)

    def is_stream(self, connection: Connection) -> None:
        """Count the connection as a stream, without a deadline."""
        self._forget(connection)
        self._streams.add(connection)

    def _make_room(self, among: set[Connection]) -> None:
        # Several at a time: the search for one takes as long.
        share = max(1, len(among) // 16)
        waited_for = (one for one in among if one.phase not in (Phase.WORK, Phase.STREAM))
        self._end(heapq.nsmallest(share, waited_for, key=_SINCE))

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


def _is_loopback(network: str) -> bool:
    return network.startswith("127.") or network == identify_client("::1")

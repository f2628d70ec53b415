"""Connections of a worker, with their sockets and the deadlines of their clients.

A worker closes a connection when the client misses a deadline. If a worker has too many connections, the
worker first closes the connections whose clients have let the worker wait for the longest time. So idle
clients never cause the rejection of a new client, and a health check succeeds from every address.

The following internals of gevent were checked against gevent 26.9: `_sock` of a socket, and `SSLSocket` as
the `sslsocket_class` of a TLS context. gunicorn reads and writes through `recv` and `sendall` only.
"""

import heapq
import logging
import math
import ssl
import struct
from collections import Counter, defaultdict
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from enum import Enum
from operator import attrgetter
from typing import Any, cast

from gevent import socket
from gevent.ssl import SSLSocket

from gateway_api.base import tls_errors
from gateway_contract.base.errors import GatewayApiError
from gateway_contract.base.texts import identify_client
from gateway_contract.base.turns import give_way

_log = logging.getLogger(__name__)

#: Maximum bytes that are sent or read at once. They take 0.1 ms, or 0.3 ms with TLS.
_MAX_PIECE_BYTES = 64 << 10
#: Maximum bytes of a response in the kernel that are not sent yet.
_MAX_KERNEL_BYTES = 64 << 10
#: Context of a wait inside another wait.
_NO_WAIT = nullcontext()


class Phase(Enum):
    """Phase of a connection. The value completes the sentence "the clients did not ... in time"."""

    HANDSHAKE = "finish its TLS handshake"
    HEADER = "send the header of a request"
    IDLE = "send another request"
    BODY = "send a request's body"
    RESPONSE = "receive its response"
    #: The client waits for the worker.
    WORK = "wait"
    #: The client receives events, without an end; the stream has its own limits.
    STREAM = "stream"


@dataclass(frozen=True)
class Limits:
    """Limits for the clients of a worker."""

    #: Time limit of each phase, in seconds. A long response has more time.
    handshake: float = 10.0
    header: float = 10.0
    idle: float = 30.0
    body: float = 20.0
    response: float = 10.0
    #: Bytes of a response for which its time limit grows by a second.
    rate: int = 32 << 10
    #: Maximum numbers of connections, without streams.
    max_per_address: int = 1024
    max_connections: int = 4096
    #: Additional connections for clients on this machine, while all other connections wait for the worker.
    loopback_reserve: int = 64
    #: Maximum bytes of responses in memory. A response that several clients share counts once.
    max_unsent_bytes: int = 128 << 20

    def limit_to(self, places: int) -> "Limits":
        """Return the same limits, but with at most `places` connections in total. The total includes the
        connections that are reserved for loopback."""
        reserve = min(self.loopback_reserve, places // 8)
        return replace(self, max_connections=places - reserve, loopback_reserve=reserve)


class NoRoom(GatewayApiError):
    """Rejection of a new connection, because all other connections have requests in progress."""


class Connection:
    """Connection of one client. `end` is a function that closes the connection at once."""

    __slots__ = ("_body_deadline", "_table", "address", "deadline", "end", "phase", "since", "unsent")

    def __init__(self, table: "Connections", address: str, end: Callable[[], None]) -> None:
        self._table = table
        self.address = address
        self.end = end
        #: Deadline of the whole body of a request.
        self._body_deadline: float | None = None
        #: Bytes of a response that the client has not received yet.
        self.unsent: bytes | None = None
        self.begin(Phase.HANDSHAKE, table.limits.handshake)

    def begin(self, phase: Phase, seconds: float | None = None) -> None:
        self.phase = phase
        self.since = self._table.clock()
        self.deadline = None if seconds is None else self.since + seconds

    def wait_for_request(self) -> AbstractContextManager[None]:
        """Begin the wait for the header of a request. Return the context in which the caller must wait."""
        self._body_deadline = None
        if self.phase is Phase.HANDSHAKE:
            self.begin(Phase.HEADER, self._table.limits.header)
        else:
            self.begin(Phase.IDLE, self._table.limits.idle)
        return self

    def wait_for_body(self) -> AbstractContextManager[None]:
        """Begin the wait for a piece of a request's body. Return a context manager: the caller must
        wait inside its block."""
        if self.phase is not Phase.WORK:
            return _NO_WAIT
        now = self._table.clock()
        if self._body_deadline is None:
            self._body_deadline = now + self._table.limits.body
        self.begin(Phase.BODY, self._body_deadline - now)
        return self

    def wait_for_receiver(self, data: bytes) -> AbstractContextManager[None]:
        """Begin the wait until the client has received the given bytes. Return the context in which the
        caller must wait."""
        if self.phase is not Phase.WORK:
            return _NO_WAIT
        limits = self._table.limits
        self.unsent = data
        self.begin(Phase.RESPONSE, limits.response + len(data) / limits.rate)
        self._table.hold(data)
        return self

    def __enter__(self) -> None:
        """Do nothing, because a method such as `wait_for_body` has already begun the wait. A context manager
        made of a generator would take more time."""

    def __exit__(self, *error: object) -> None:
        self._table.release(self)
        self.begin(Phase.WORK)

    def begin_stream(self) -> None:
        """Begin a stream of events, which has no deadline. The stream is the last response of the
        connection."""
        self.begin(Phase.STREAM)
        self._table.count_as_stream(self)


class Connections:
    """All connections of a worker. `clock` gives monotonic seconds."""

    def __init__(self, clock: Callable[[], float], limits: Limits = Limits()) -> None:
        self.clock = clock
        self.limits = limits
        self._by_address: defaultdict[str, set[Connection]] = defaultdict(set)
        self._all: set[Connection] = set()
        self._streams: set[Connection] = set()
        self._unsent_bytes = 0
        #: Number of clients that receive the same bytes, by the id of the bytes.
        self._receivers: Counter[int] = Counter()
        self._rejected = 0

    def __len__(self) -> int:
        """Return the number of connections, including streams."""
        return len(self._all) + len(self._streams)

    def admit(self, address: str, end: Callable[[], None]) -> Connection:
        """Add and return the connection of a new client. `address` is the address of the client, and `end`
        closes the connection at once. If there is no room, end connections that wait for their clients.
        Raises NoRoom if there is still no room."""
        network = identify_client(address)
        if len(self._by_address[network]) >= self.limits.max_per_address:
            self._make_room(self._by_address[network])
        if len(self._all) >= self.limits.max_connections:
            self._make_room(self._all)
        is_loopback = network.startswith("127.") or network == identify_client("::1")
        reserve = self.limits.loopback_reserve if is_loopback else 0
        if len(self._all) >= self.limits.max_connections + reserve:
            self._rejected += 1
            raise NoRoom
        connection = Connection(self, network, end)
        self._by_address[network].add(connection)
        self._all.add(connection)
        return connection

    def remove(self, connection: Connection) -> None:
        """Remove a closed connection."""
        self._forget(connection)
        self._streams.discard(connection)

    def end_overdue(self) -> Counter[Phase]:
        """End the connections that are past their deadlines. Return a map from phase to the number of
        connections that were ended in this phase."""
        now = self.clock()
        overdue = [each for each in self._all if each.deadline is not None and now >= each.deadline]
        phases = Counter(each.phase for each in overdue)
        self._end(overdue)
        return phases

    def take_rejection_count(self) -> int:
        """Return the number of connections that were rejected since the last call."""
        number, self._rejected = self._rejected, 0
        return number

    def end_without_request(self, idle: float, new: float) -> None:
        """End the connections that have waited too long for a request: for `idle` seconds since the last
        response, or for `new` seconds if there was no request yet."""
        now = self.clock()
        waits = {Phase.IDLE: idle, Phase.HANDSHAKE: new, Phase.HEADER: new}
        self._end([each for each in self._all if now - each.since >= waits.get(each.phase, math.inf)])

    def end_all(self) -> None:
        self._end([*self._all, *self._streams])

    def hold(self, data: bytes) -> None:
        """Count one more client that receives the given bytes. If too many bytes are unsent, disconnect the
        slowest clients."""
        if not self._receivers[id(data)]:
            self._unsent_bytes += len(data)
        self._receivers[id(data)] += 1
        while self._unsent_bytes > self.limits.max_unsent_bytes:
            slow = [each for each in self._all if each.phase is Phase.RESPONSE]
            if len({id(each.unsent) for each in slow}) < 2:
                # A single response may be larger than the limit.
                return
            slowest = min(slow, key=attrgetter("since"))
            # Released now: if only its greenlet released the bytes, this loop would end too many connections.
            self.release(slowest)
            self._end([slowest])

    def release(self, connection: Connection) -> None:
        """Decrement the number of clients that receive the same bytes as this connection. `hold` has
        incremented this number."""
        data, connection.unsent = connection.unsent, None
        if data is None:
            return
        self._receivers[id(data)] -= 1
        if not self._receivers[id(data)]:
            del self._receivers[id(data)]
            self._unsent_bytes -= len(data)

    def count_as_stream(self, connection: Connection) -> None:
        self._forget(connection)
        self._streams.add(connection)

    def _make_room(self, among: set[Connection]) -> None:
        # Several connections at a time, because the search for a single connection takes as long.
        share = max(1, len(among) // 16)
        waits = (each for each in among if each.phase not in (Phase.WORK, Phase.STREAM))
        self._end(heapq.nsmallest(share, waits, key=attrgetter("since")))

    def _end(self, connections: list[Connection]) -> None:
        for connection in connections:
            self.remove(connection)
            connection.end()

    def _forget(self, connection: Connection) -> None:
        self._all.discard(connection)
        same_address = self._by_address[connection.address]
        same_address.discard(connection)
        if not same_address:
            del self._by_address[connection.address]


class _WatchedSocket:
    """Socket of a client. Tells the connection of the client when a wait begins and ends."""

    #: None during the TLS handshake, before the socket has a connection.
    connection: Connection | None = None
    #: Body of the last request. The view may have read nothing of it.
    body: Any = None

    def recv(self, size: int, *more: Any) -> bytes:
        with self.connection.wait_for_body() if self.connection else nullcontext():
            # gunicorn reads up to a megabyte of a body, and copies the remaining bytes for each piece.
            return cast(bytes, super().recv(min(size, _MAX_PIECE_BYTES), *more))  # type: ignore[misc]

    def sendall(self, data: bytes) -> None:
        with self.connection.wait_for_receiver(data) if self.connection else nullcontext():
            for start in range(0, len(data), _MAX_PIECE_BYTES):
                if start:
                    # Otherwise a fast client would block all other requests.
                    give_way()
                piece = memoryview(data)[start : start + _MAX_PIECE_BYTES]
                # gevent's `sendall` looks up the size of the kernel's buffer first. Most responses are short.
                sent: int = self.send(piece)  # type: ignore[attr-defined]
                if sent < len(piece):
                    super().sendall(piece[sent:])  # type: ignore[misc]


class PlainSocket(_WatchedSocket, socket.socket):  # type: ignore[misc]
    """Socket of a client without TLS: a TCP or Unix socket."""


class TlsSocket(_WatchedSocket, SSLSocket):  # type: ignore[misc]
    """Socket of a client over TLS."""

    do_handshake = tls_errors.clear_errors_after(SSLSocket.do_handshake)
    read = tls_errors.clear_errors_after(SSLSocket.read)
    send = tls_errors.clear_errors_after(SSLSocket.send)


def watch_socket(client: socket.socket, context: ssl.SSLContext | None) -> PlainSocket | TlsSocket:
    """Return a watched socket that replaces an accepted socket. Must be called before the TLS handshake.
    Return a `TlsSocket` if `context` is a TLS context, or a `PlainSocket` if `context` is None."""
    if client.family != socket.AF_UNIX:
        # The kernel would buffer megabytes for a client that does not read, and no deadline would notice.
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, _MAX_KERNEL_BYTES)
    if context is None:
        return PlainSocket(client.family, client.type, client.proto, fileno=client.detach())
    return cast(TlsSocket, context.wrap_socket(client, server_side=True, do_handshake_on_connect=False))


def close_at_once(client: PlainSocket | TlsSocket) -> None:
    """Close a connection at once, and drop the bytes that are not sent yet: the kernel would keep these bytes
    for minutes if the client does not read. TLS is not closed first, because this would also need a client
    that reads."""
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    try:
        # gevent's own shutdown raises in the greenlet that waits, where it would look like a fault.
        client._sock.shutdown(socket.SHUT_RDWR)
    except OSError as error:
        _log.debug("cannot shut down a connection that is already closed: %s", error)

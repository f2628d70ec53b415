"""Reads links, addresses, routes, rules and qdiscs of the kernel in bulk, and tells when they change.

Each call has a socket of its own: any thread may read, and no call meets the rest of another's reply. The
namespace is that of the calling thread.
"""

import errno
import os
import select
import socket
import struct
from collections.abc import Callable, Hashable, Iterable, Iterator
from enum import Enum, auto
from typing import Any, Self, TypeVar

from gateway_api.core.gateways.linux.netlink import messages as nl
from gateway_api.core.gateways.linux.netlink.fib import RouteEntry, Rule, route, rule
from gateway_api.core.gateways.linux.netlink.links import Address, Link, link, link_address
from gateway_api.core.gateways.linux.netlink.messages import KernelError, NoDevice
from gateway_api.core.gateways.linux.netlink.qdiscs import (
    HtbClass,
    PacketFilter,
    Qdisc,
    htb_class,
    packet_filter,
    qdisc,
)

T = TypeVar("T")

# Types of requests (linux/rtnetlink.h).
_GET_LINK, _GET_ADDRESS, _GET_ROUTE, _GET_RULE = 18, 22, 26, 34
_GET_QDISC, _GET_CLASS, _GET_FILTER = 38, 42, 46

_SOL_NETLINK, _STRICT = 270, 12
#: The kernel fills 32 KiB at most, unless one message is larger.
_DATAGRAM = 1 << 18
#: A dump that changes interrupted is read again, so many times in all.
_ATTEMPTS = 4
_SEQUENCE = 1

_LINK = struct.Struct("=BxHiII")
_LINK_NAME = 3
_ADDRESS = struct.Struct("=BBBBI")
_FIB = struct.Struct("=8BI")
_ROUTE_TABLE = 15
_TC = struct.Struct("=BxxxiIII")
#: The handle of the ingress qdisc, which is the parent of its filters.
INGRESS_HANDLE = 0xFFFF0000


class Reader:
    """Reads what the kernel has now. Raises KernelError."""

    def links(self) -> dict[int, Link]:
        """All links, by index."""
        body = _LINK.pack(socket.AF_UNSPEC, 0, 0, 0, 0)
        found = _dump("read the links", _GET_LINK, body, link, lambda link: link.index)
        return {link.index: link for link in found}

    def link(self, name: str) -> Link:
        """Raises NoDevice for an unknown name."""
        step = f"find the link {name}"
        body = _LINK.pack(socket.AF_UNSPEC, 0, 0, 0, 0)
        try:
            replies = _ask(step, _GET_LINK, 0, body + nl.attribute(_LINK_NAME, name.encode() + b"\0"))
        except KernelError as error:
            # A name that no link can have is one that no link has.
            if error.code in {errno.ENODEV, errno.ERANGE, errno.EINVAL}:
                raise NoDevice(step, "there is none", error.code) from None
            raise
        return link(replies[0])

    def addresses(self) -> list[Address]:
        """All IPv4 and IPv6 addresses."""
        return [
            found
            for family in (socket.AF_INET, socket.AF_INET6)
            for found in _dump(
                "read the addresses", _GET_ADDRESS, _ADDRESS.pack(family, 0, 0, 0, 0), link_address
            )
        ]

    def routes(self, tables: Iterable[int]) -> list[RouteEntry]:
        """The IPv4 and IPv6 routes of the tables, without the entries of the cache. A table that does not
        exist has none."""
        return [
            found
            for table in tables
            for family in (socket.AF_INET, socket.AF_INET6)
            for found in _routes(family, table)
        ]

    def rules(self) -> list[Rule]:
        """The IPv4 policy rules."""
        return _dump("read the policy rules", _GET_RULE, _FIB.pack(socket.AF_INET, *bytes(7), 0), rule)

    def qdiscs(self) -> list[Qdisc]:
        """The qdiscs of all devices."""
        return _dump("read the qdiscs", _GET_QDISC, _TC.pack(0, 0, 0, 0, 0), qdisc)

    def qdisc(self, ifindex: int, parent: int) -> Qdisc | None:
        """The qdisc at a place of a device. None without one, or for the kernel's invisible default."""
        step = f"read a qdisc of link {ifindex}"
        try:
            # Without an echo, the kernel sends it only to listeners for events.
            replies = _ask(step, _GET_QDISC, nl.ECHO, _TC.pack(0, ifindex, 0, parent, 0))
        except KernelError as error:
            if error.code == errno.ENOENT:
                return None
            raise
        return qdisc(replies[0]) if replies else None

    def classes(self, ifindex: int) -> list[HtbClass]:
        """The HTB classes of a device; none for a device that is gone."""
        body = _TC.pack(0, ifindex, 0, 0, 0)
        found = _dump(f"read the classes of link {ifindex}", _GET_CLASS, body, htb_class)
        return [each for each in found if each is not None]

    def ingress_filters(self, ifindex: int) -> list[PacketFilter]:
        """The filters of a device's ingress qdisc; none without the qdisc."""
        body = _TC.pack(0, ifindex, 0, INGRESS_HANDLE, 0)
        try:
            found = _dump(f"read the filters of link {ifindex}", _GET_FILTER, body, packet_filter)
        except KernelError as error:
            if error.code in {errno.ENODEV, errno.ENOENT, errno.EINVAL}:
                return []
            raise
        return [each for each in found if each is not None]


def _routes(family: int, table: int) -> list[RouteEntry]:
    body = _FIB.pack(family, *bytes(7), 0) + nl.attribute(_ROUTE_TABLE, struct.pack("=I", table))
    try:
        return _dump(f"read the routes of table {table}", _GET_ROUTE, body, route)
    except KernelError as error:
        if error.code == errno.ENOENT:
            return []
        raise


def _itself(entry: Any) -> Any:
    return entry


def _dump(
    step: str, type: int, body: bytes, parse: Callable[[bytes], T], key: Callable[[T], Hashable] = _itself
) -> list[T]:
    """All entries that the kernel has. When changes interrupt each attempt, the entries of all attempts: no
    entry that stays is missing, but one that went may be there, as in any list a moment later."""
    found: dict[Hashable, T] = {}
    for _ in range(_ATTEMPTS):
        bodies, interrupted = _exchange(step, type, nl.DUMP, body)
        if not interrupted:
            return [parse(each) for each in bodies]
        for each in bodies:
            parsed = parse(each)
            found[key(parsed)] = parsed
    return list(found.values())


def _ask(step: str, type: int, flags: int, body: bytes) -> list[bytes]:
    """The replies to a question about one thing."""
    return _exchange(step, type, flags | nl.ACK, body)[0]


def _exchange(step: str, type: int, flags: int, body: bytes) -> tuple[list[bytes], bool]:
    """The bodies of the replies, and whether a change interrupted them."""
    try:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as kernel:
            # So that the kernel filters by table, and refuses what it doesn't understand.
            kernel.setsockopt(_SOL_NETLINK, _STRICT, 1)
            kernel.send(nl.request(type, flags, _SEQUENCE, body))
            return _replies(step, kernel)
    except OSError as error:
        kind = NoDevice if error.errno == errno.ENODEV else KernelError
        raise kind(step, error.strerror, error.errno) from error


def _replies(step: str, kernel: socket.socket) -> tuple[list[bytes], bool]:
    bodies: list[bytes] = []
    interrupted = 0
    while True:
        data, _, how, (sender, _) = kernel.recvmsg(_DATAGRAM)
        if how & socket.MSG_TRUNC:
            raise KernelError(step, f"a reply has more than {_DATAGRAM} bytes")
        if sender != 0:
            # Another process may send to the socket.
            continue
        for type, flags, _, body in nl.messages(data):
            interrupted |= flags & nl.INTERRUPTED
            if type in {nl.DONE, nl.ERROR}:
                code = nl.error_code(body)
                if code:
                    raise OSError(code, os.strerror(code))
                return bodies, bool(interrupted)
            bodies.append(body)


class Changed(Enum):
    """What to read again."""

    LINKS = auto()
    ADDRESSES = auto()
    ROUTES = auto()


EVERYTHING = frozenset(Changed)

# Of linux/rtnetlink.h: links, IPv4 addresses and routes, IPv6 addresses and routes.
_GROUPS = 0x1 | 0x10 | 0x40 | 0x100 | 0x400
#: By the type of a message, which is one of four in a row. A link that goes down takes its IPv4 routes along,
#: and the kernel sends no message for them.
_CHANGED = {
    16 >> 2: frozenset({Changed.LINKS, Changed.ROUTES}),
    20 >> 2: frozenset({Changed.ADDRESSES}),
    24 >> 2: frozenset({Changed.ROUTES}),
}
_EVENT_BUFFER = 1 << 22
#: Datagrams in one trigger, so that a flood of events doesn't hold it back.
_AT_ONCE = 1000
_FORCE_BUFFER = 33


class Watcher:
    """Tells that something changed: a trigger to read it, not the change itself. It listens from the start,
    so that a change after the first reading is never lost. One thread iterates, any may `close`; the block
    ends after the iteration."""

    def __init__(self) -> None:
        self._wake = os.eventfd(0)
        self._events = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE)
        self._events.setblocking(False)
        try:
            # Above the limit of net.core.rmem_max, which needs CAP_NET_ADMIN.
            self._events.setsockopt(socket.SOL_SOCKET, _FORCE_BUFFER, _EVENT_BUFFER)
        except PermissionError:
            self._events.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _EVENT_BUFFER)
        self._events.bind((0, _GROUPS))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
        self._events.close()
        os.close(self._wake)

    def __iter__(self) -> Iterator[frozenset[Changed]]:
        """Waits, and yields what changed since the last time; ends after `close`."""
        with select.epoll() as waiting:
            waiting.register(self._wake, select.EPOLLIN)
            waiting.register(self._events, select.EPOLLIN)
            while self._wake not in dict(waiting.poll()):
                changed = self._changed()
                if changed:
                    yield changed

    def close(self) -> None:
        """Ends the iteration."""
        os.eventfd_write(self._wake, 1)

    def _changed(self) -> frozenset[Changed]:
        changed: frozenset[Changed] = frozenset()
        try:
            for _ in range(_AT_ONCE):
                changed |= events(self._events.recv(_DATAGRAM))
        except BlockingIOError:
            pass
        except OSError as error:
            if error.errno != errno.ENOBUFS:
                raise KernelError("watch the links", error.strerror, error.errno) from error
            self._recover()
            return EVERYTHING
        return changed

    def _recover(self) -> None:
        """Empties the queue after the kernel dropped events. It goes on to drop them, without another error,
        until the queue is empty: only what is read after that is complete."""
        try:
            while True:
                self._events.recv(1)
        except BlockingIOError:
            pass


def events(data: bytes) -> frozenset[Changed]:
    """What the events of a datagram are about."""
    found = [_CHANGED.get(type >> 2, frozenset()) for type, _, _, _ in nl.messages(data)]
    return frozenset().union(*found)

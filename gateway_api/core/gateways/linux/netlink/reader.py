"""Reads links, addresses, routes, rules and qdiscs of the kernel in bulk, and tells when they change.

Any thread may read. The namespace is that of the calling thread.
"""

import errno
import os
import select
import socket
import struct
import threading
from collections.abc import Iterable, Iterator
from enum import Enum, auto
from typing import Self

from gateway_api.core.gateways.linux.netlink import messages as nl
from gateway_api.core.gateways.linux.netlink.dumps import DATAGRAM, ask, dump
from gateway_api.core.gateways.linux.netlink.entries import (
    FibEntry,
    LinkEntry,
    QdiscEntry,
    fib_entry,
    link_entry,
    qdisc_entry,
)
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
from gateway_api.core.gateways.linux.netlink.statistics import device_statistics

# Types of requests (linux/rtnetlink.h).
_GET_LINK, _GET_ADDRESS, _GET_ROUTE, _GET_RULE = 18, 22, 26, 34
_GET_QDISC, _GET_CLASS, _GET_FILTER = 38, 42, 46

_ANY_LINK = struct.pack("=BxHiII", socket.AF_UNSPEC, 0, 0, 0, 0)
_LINK_NAME, _EXTENT = 3, 29
#: RTEXT_FILTER_SKIP_STATS of linux/rtnetlink.h.
_WITHOUT_STATISTICS = struct.pack("=I", 8)
_ADDRESS = struct.Struct("=BBBBI")
_FIB = struct.Struct("=8BI")
_ROUTE_DEVICE, _ROUTE_TABLE = 4, 15
_TC = struct.Struct("=BxxxiIII")
#: The handle of the ingress qdisc, which is the parent of its filters.
INGRESS_HANDLE = 0xFFFF0000


class Reader:
    """Reads what the kernel has now. Raises KernelError."""

    def links(self) -> dict[int, Link]:
        """All links, by index."""
        found = dump("read the links", _GET_LINK, _ANY_LINK, link, lambda link: link.index)
        return {link.index: link for link in found}

    def link(self, name: str) -> Link:
        """Raises NoDevice for an unknown name."""
        step = f"find the link {name}"
        try:
            replies = ask(step, _GET_LINK, 0, _ANY_LINK + nl.attribute(_LINK_NAME, name.encode() + b"\0"))
        except KernelError as error:
            # A name that no link can have is one that no link has.
            if error.code in {errno.ENODEV, errno.ERANGE, errno.EINVAL}:
                raise NoDevice(step, "there is none", error.code) from None
            raise
        return link(replies[0])

    #: The counters of all links, by name.
    statistics = staticmethod(device_statistics)

    def link_entries(self) -> dict[str, LinkEntry]:
        """All links by name, as entries."""
        body = _ANY_LINK + nl.attribute(_EXTENT, _WITHOUT_STATISTICS)
        found = dump("read the links", _GET_LINK, body, link_entry, lambda link: link.ifindex)
        return {link.name: link for link in found}

    def qdisc_entries(self) -> list[QdiscEntry]:
        """The qdiscs of all devices, as entries."""
        return dump("read the qdiscs", _GET_QDISC, _TC.pack(0, 0, 0, 0, 0), qdisc_entry)

    def fib_entries(
        self, family: int, protocol: int, table: int | None = None, ifindex: int | None = None
    ) -> list[FibEntry]:
        """The routes of a protocol, as entries: of all tables or one, over all devices or one. Protocol 0 is
        any."""
        body = _FIB.pack(family, 0, 0, 0, 0, protocol, 0, 0, 0)
        for type, value in ((_ROUTE_TABLE, table), (_ROUTE_DEVICE, ifindex)):
            if value is not None:
                body += nl.attribute(type, struct.pack("=I", value))
        try:
            return dump("read the routes", _GET_ROUTE, body, fib_entry)
        except KernelError as error:
            # There is no such table.
            if error.code == errno.ENOENT:
                return []
            raise

    def addresses(self) -> list[Address]:
        """All IPv4 and IPv6 addresses."""
        return [
            found
            for family in (socket.AF_INET, socket.AF_INET6)
            for found in dump(
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
        return dump("read the policy rules", _GET_RULE, _FIB.pack(socket.AF_INET, *bytes(7), 0), rule)

    def qdiscs(self) -> list[Qdisc]:
        """The qdiscs of all devices."""
        return dump("read the qdiscs", _GET_QDISC, _TC.pack(0, 0, 0, 0, 0), qdisc)

    def qdisc(self, ifindex: int, parent: int) -> Qdisc | None:
        """The qdisc at a place of a device. None without one, or for the kernel's invisible default."""
        step = f"read a qdisc of link {ifindex}"
        try:
            # Without an echo, the kernel sends it only to listeners for events.
            replies = ask(step, _GET_QDISC, nl.ECHO, _TC.pack(0, ifindex, 0, parent, 0))
        except KernelError as error:
            if error.code == errno.ENOENT:
                return None
            raise
        return qdisc(replies[0]) if replies else None

    def classes(self, ifindex: int) -> list[HtbClass]:
        """The HTB classes of a device; none for a device that is gone."""
        body = _TC.pack(0, ifindex, 0, 0, 0)
        found = dump(f"read the classes of link {ifindex}", _GET_CLASS, body, htb_class)
        return [each for each in found if each is not None]

    def ingress_filters(self, ifindex: int) -> list[PacketFilter]:
        """The filters of a device's ingress qdisc; none without the qdisc."""
        body = _TC.pack(0, ifindex, 0, INGRESS_HANDLE, 0)
        try:
            found = dump(f"read the filters of link {ifindex}", _GET_FILTER, body, packet_filter)
        except KernelError as error:
            if error.code in {errno.ENODEV, errno.ENOENT, errno.EINVAL}:
                return []
            raise
        return [each for each in found if each is not None]


def _routes(family: int, table: int) -> list[RouteEntry]:
    body = _FIB.pack(family, *bytes(7), 0) + nl.attribute(_ROUTE_TABLE, struct.pack("=I", table))
    try:
        return dump(f"read the routes of table {table}", _GET_ROUTE, body, route)
    except KernelError as error:
        if error.code == errno.ENOENT:
            return []
        raise


class Changed(Enum):
    """What to read again."""

    LINKS = auto()
    ADDRESSES = auto()
    ROUTES = auto()
    #: Classes and filters too.
    QDISCS = auto()
    #: IPv4 policy rules.
    RULES = auto()


EVERYTHING = frozenset(Changed)

# Groups of linux/rtnetlink.h.
_GROUPS = {
    Changed.LINKS: 0x1,
    Changed.QDISCS: 0x8,
    Changed.ADDRESSES: 0x10 | 0x100,
    Changed.ROUTES: 0x40 | 0x400,
    Changed.RULES: 0x80,
}
#: By the type of a message, which is one of four in a row. A link that goes down takes its IPv4 routes along,
#: and the kernel sends no message for them.
_CHANGED = {
    16 >> 2: frozenset({Changed.LINKS, Changed.ROUTES}),
    20 >> 2: frozenset({Changed.ADDRESSES}),
    24 >> 2: frozenset({Changed.ROUTES}),
    32 >> 2: frozenset({Changed.RULES}),
    36 >> 2: frozenset({Changed.QDISCS}),
    40 >> 2: frozenset({Changed.QDISCS}),
    44 >> 2: frozenset({Changed.QDISCS}),
}
_QDISCS = frozenset({36 >> 2, 40 >> 2, 44 >> 2})
_EVENT_BUFFER = 1 << 22
#: Datagrams in one trigger, so that a flood of events doesn't hold it back.
_AT_ONCE = 1000
_FORCE_BUFFER = 33


class Watcher:
    """Tells that something `wanted` changed: a trigger to read it, not the change itself. It listens from the
    start, so that a change after the first reading is never lost. One thread iterates, any may `close`; the
    block ends after the iteration."""

    def __init__(self, wanted: frozenset[Changed] = EVERYTHING) -> None:
        self._wake = os.eventfd(0)
        self._events = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE)
        self._events.setblocking(False)
        try:
            # Above the limit of net.core.rmem_max, which needs CAP_NET_ADMIN.
            self._events.setsockopt(socket.SOL_SOCKET, _FORCE_BUFFER, _EVENT_BUFFER)
        except PermissionError:
            self._events.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _EVENT_BUFFER)
        self._events.bind((0, sum(_GROUPS[each] for each in wanted)))
        self._lock = threading.Lock()
        self._shaped: set[int] = set()

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

    def shaped(self) -> set[int]:
        """Indexes of the devices whose qdiscs, classes or filters changed since the last call. The kernel may
        have dropped some events. Any thread may call."""
        with self._lock:
            shaped, self._shaped = self._shaped, set()
        return shaped

    def _changed(self) -> frozenset[Changed]:
        changed: frozenset[Changed] = frozenset()
        try:
            for _ in range(_AT_ONCE):
                data = self._events.recv(DATAGRAM)
                found = events(data)
                changed |= found
                if Changed.QDISCS in found:
                    with self._lock:
                        self._shaped.update(_shaped_in(data))
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


def _shaped_in(data: bytes) -> Iterator[int]:
    """Indexes of the devices of the qdiscs, classes and filters in a datagram of events."""
    for type, _, _, body in nl.messages(data):
        if type >> 2 in _QDISCS:
            yield nl.unpacked(_TC, body)[1]

"""Reads links, addresses, routes, rules and qdiscs of the kernel in bulk.

Any thread may read. The namespace is that of the calling thread.
"""

import errno
import socket
import struct
from collections.abc import Iterable

from gateway_api.core.gateways.linux.kernel import messages as nl
from gateway_api.core.gateways.linux.kernel.dumps import ask, dump
from gateway_api.core.gateways.linux.kernel.entries import (
    FibEntry,
    LinkEntry,
    QdiscEntry,
    fib_entry,
    link_entry,
    qdisc_entry,
)
from gateway_api.core.gateways.linux.kernel.fib import RouteEntry, Rule, route, rule
from gateway_api.core.gateways.linux.kernel.links import Address, Link, link, link_address
from gateway_api.core.gateways.linux.kernel.messages import KernelError, NoDevice
from gateway_api.core.gateways.linux.kernel.qdiscs import (
    HtbClass,
    PacketFilter,
    Qdisc,
    htb_class,
    packet_filter,
    qdisc,
)
from gateway_api.core.gateways.linux.kernel.statistics import device_statistics

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


class KernelReader:
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
            # Without an echo, the kernel sends the reply to listeners for events alone.
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

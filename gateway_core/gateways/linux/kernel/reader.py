"""Reads links, addresses, routes, rules and qdiscs of the kernel in bulk.

Any thread may read. The namespace is that of the calling thread.
"""

import errno
import socket
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from gateway_contract.core.network import InterfaceStats
from gateway_core.gateways.linux.kernel import messages as nl
from gateway_core.gateways.linux.kernel import rtnetlink as rt
from gateway_core.gateways.linux.kernel.exchange import ask, dump
from gateway_core.gateways.linux.kernel.fib import FibEntry, RouteEntry, Rule, fib_entry, route, rule
from gateway_core.gateways.linux.kernel.links import (
    Address,
    Link,
    LinkEntry,
    link,
    link_address,
    link_entry,
    names,
    statistics,
)
from gateway_core.gateways.linux.kernel.messages import KernelError, NoDevice
from gateway_core.gateways.linux.kernel.qdiscs import (
    INGRESS_HANDLE,
    PacketFilter,
    Qdisc,
    QdiscEntry,
    packet_filter,
    qdisc,
    qdisc_entry,
)

T = TypeVar("T")

_ANY_LINK = rt.IFINFOMSG.pack(socket.AF_UNSPEC, 0, 0, 0, 0)
_64_BIT_COUNTERS = rt.IF_STATS_MSG.pack(socket.AF_UNSPEC, 0, 0, 1 << (rt.IFLA_STATS_LINK_64 - 1))


class KernelReader:
    """Reads what the kernel has now. Raises KernelError."""

    def links(self) -> dict[int, Link]:
        """Return all links, by index."""
        found = dump("read the links", rt.RTM_GETLINK, _ANY_LINK, link, lambda link: link.index)
        return {link.index: link for link in found}

    def link(self, name: str) -> Link:
        """Raises NoDevice for an unknown name."""
        (found,) = self.links_named([name])
        if found is None:
            raise NoDevice(f"find the link {name}", "there is none", errno.ENODEV)
        return found

    def links_named(self, names: Sequence[str]) -> list[Link | None]:
        """Return the links of names, None for each that is unknown, or cannot be read."""
        bodies = [_ANY_LINK + nl.text_attribute(rt.IFLA_IFNAME, name) for name in names]
        # A name that no link can have is one that no link has.
        unknown = {errno.ENODEV, errno.ERANGE, errno.EINVAL}
        return ask("find a link", rt.RTM_GETLINK, 0, bodies, link, unknown)

    def statistics(self) -> dict[str, tuple[int, InterfaceStats]]:
        """Return the index and the counters of all links, by name. The dump of statistics takes a tenth of
        the time of one of the links, each of which has 1,400 bytes, but has no names."""
        step = "read the counters"
        found = dict(dump(step, rt.RTM_GETSTATS, _64_BIT_COUNTERS, statistics, lambda one: one[0]))
        try:
            return {name: (index, found[index]) for index, name in names(found).items()}
        except OSError as error:
            raise KernelError(step, error.strerror, error.errno) from error

    def link_entries(self) -> dict[str, LinkEntry]:
        """Return all links by name, as entries."""
        body = _ANY_LINK + nl.u32_attribute(rt.IFLA_EXT_MASK, rt.RTEXT_FILTER_SKIP_STATS)
        found = dump("read the links", rt.RTM_GETLINK, body, link_entry, lambda link: link.ifindex)
        return {link.name: link for link in found}

    def qdisc_entries(self) -> list[QdiscEntry]:
        """Return the qdiscs of all devices, as entries."""
        return dump("read the qdiscs", rt.RTM_GETQDISC, rt.TCMSG.pack(0, 0, 0, 0, 0), qdisc_entry)

    def fib_entries(
        self, family: int, protocol: int, table: int | None = None, ifindex: int | None = None
    ) -> list[FibEntry]:
        """Return the routes of a protocol, as entries: of all tables or one, over all devices or one.
        Protocol 0 is any."""
        body = rt.RTMSG.pack(family, 0, 0, 0, 0, protocol, 0, 0, 0)
        for type, value in ((rt.RTA_TABLE, table), (rt.RTA_OIF, ifindex)):
            if value is not None:
                body += nl.u32_attribute(type, value)
        return _routes("read the routes", body, fib_entry)

    def addresses(self) -> list[Address]:
        """Return all IPv4 and IPv6 addresses."""
        return [
            found
            for family in (socket.AF_INET, socket.AF_INET6)
            for found in dump(
                "read the addresses", rt.RTM_GETADDR, rt.IFADDRMSG.pack(family, 0, 0, 0, 0), link_address
            )
        ]

    def routes(self, tables: Iterable[int]) -> list[RouteEntry]:
        """Return the IPv4 and IPv6 routes of the tables, without the entries of the cache. A table that does
        not exist has none."""
        return [
            found
            for table in tables
            for family in (socket.AF_INET, socket.AF_INET6)
            for found in _routes(
                f"read the routes of table {table}",
                rt.RTMSG.pack(family, *bytes(7), 0) + nl.u32_attribute(rt.RTA_TABLE, table),
                route,
            )
        ]

    def rules(self) -> list[Rule]:
        """Return the IPv4 policy rules."""
        return dump(
            "read the policy rules", rt.RTM_GETRULE, rt.RTMSG.pack(socket.AF_INET, *bytes(7), 0), rule
        )

    def qdiscs(self, places: Sequence[tuple[int, int]]) -> list[Qdisc | None]:
        """Return the qdiscs at places: the index of a device, and the parent. None for each without one, or
        without the device, and for the kernel's invisible default."""
        bodies = [rt.TCMSG.pack(0, ifindex, 0, parent, 0) for ifindex, parent in places]
        # Without an echo, the kernel sends the reply to listeners for events alone.
        return ask("read a qdisc", rt.RTM_GETQDISC, nl.ECHO, bodies, qdisc, {errno.ENOENT, errno.ENODEV})

    def ingress_filters(self, ifindex: int) -> list[PacketFilter]:
        """Return the filters of a device's ingress qdisc; none without the qdisc."""
        body = rt.TCMSG.pack(0, ifindex, 0, INGRESS_HANDLE, 0)
        try:
            found = dump(f"read the filters of link {ifindex}", rt.RTM_GETTFILTER, body, packet_filter)
        except KernelError as error:
            if error.code in {errno.ENODEV, errno.ENOENT, errno.EINVAL}:
                return []
            raise
        return [each for each in found if each is not None]


def _routes(step: str, body: bytes, parse: Callable[[bytes], T]) -> list[T]:
    try:
        return dump(step, rt.RTM_GETROUTE, body, parse)
    except KernelError as error:
        # There is no such table.
        if error.code == errno.ENOENT:
            return []
        raise

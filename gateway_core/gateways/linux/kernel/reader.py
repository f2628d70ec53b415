"""Reader of the kernel's links, addresses, routes, policy rules and qdiscs."""

import errno
import socket
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from gateway_contract.core.network import InterfaceStats
from gateway_core.gateways.linux.kernel import fib, links, qdiscs
from gateway_core.gateways.linux.kernel import netlink as nl
from gateway_core.gateways.linux.kernel import rtnetlink as rt
from gateway_core.gateways.linux.kernel.netlink import KernelError, NoDevice, dump, query

T = TypeVar("T")

_FAMILIES = (socket.AF_INET, socket.AF_INET6)
_ANY_LINK_HEADER = rt.IFINFOMSG.pack(socket.AF_UNSPEC, 0, 0, 0, 0)
_COUNTERS_HEADER = rt.IF_STATS_MSG.pack(socket.AF_UNSPEC, 0, 0, 1 << (rt.IFLA_STATS_LINK_64 - 1))


class KernelReader:
    """Reader of the network state in the namespace of the calling thread. Thread-safe. All methods raise
    KernelError if the kernel refuses a query."""

    def read_links(self) -> dict[int, links.Link]:
        """Return a map from interface index to link, for all links."""
        all_links = dump(
            "read the links", rt.RTM_GETLINK, _ANY_LINK_HEADER, links.parse_link, lambda link: link.index
        )
        return {link.index: link for link in all_links}

    def find_link(self, name: str) -> links.Link:
        """Return the link with this name. Raises NoDevice if no link has the name."""
        (link,) = self.find_links([name])
        if link is None:
            raise NoDevice(f"find the link {name}", "there is none", errno.ENODEV)
        return link

    def find_links(self, names: Sequence[str]) -> list[links.Link | None]:
        """Return the link of each name, in the order of `names`; None if no link has the name, or if the link
        is unreadable."""
        bodies = [_ANY_LINK_HEADER + nl.pack_text(rt.IFLA_IFNAME, name) for name in names]
        # An invalid name, such as one that is too long, counts as a name without a link.
        absent_codes = {errno.ENODEV, errno.ERANGE, errno.EINVAL}
        return query("find a link", rt.RTM_GETLINK, 0, bodies, links.parse_link, absent_codes)

    def read_statistics(self) -> dict[str, tuple[int, InterfaceStats]]:
        """Return a map from link name to interface index and counters, for all links. A dump of the
        statistics takes a tenth of the time of a dump of the links, but does not contain the names."""
        step, parse = "read the counters", links.parse_statistics
        stats_of_index = dict(dump(step, rt.RTM_GETSTATS, _COUNTERS_HEADER, parse, lambda entry: entry[0]))
        try:
            return {
                name: (index, stats_of_index[index])
                for index, name in links.find_device_names(stats_of_index).items()
            }
        except OSError as error:
            raise KernelError(step, error.strerror, error.errno) from error

    def read_link_entries(self) -> dict[str, links.LinkEntry]:
        """Return a map from link name to link entry, for all links."""
        body = _ANY_LINK_HEADER + nl.pack_u32(rt.IFLA_EXT_MASK, rt.RTEXT_FILTER_SKIP_STATS)
        parse = links.parse_link_entry
        entries = dump("read the links", rt.RTM_GETLINK, body, parse, lambda link: link.ifindex)
        return {link.name: link for link in entries}

    def read_qdisc_entries(self) -> list[qdiscs.QdiscEntry]:
        """Return the entries of all qdiscs, on all devices."""
        body = rt.TCMSG.pack(0, 0, 0, 0, 0)
        return dump("read the qdiscs", rt.RTM_GETQDISC, body, qdiscs.parse_qdisc_entry)

    def read_fib_entries(
        self, family: int, protocol: int, table: int | None = None, ifindex: int | None = None
    ) -> list[fib.FibEntry]:
        """Return the routes of an address family that have this routing protocol. If `protocol` is 0, return
        the routes of all protocols. `table` and `ifindex` select the routes of one table or device; None
        selects all tables or devices."""
        body = rt.RTMSG.pack(family, 0, 0, 0, 0, protocol, 0, 0, 0)
        for type, value in ((rt.RTA_TABLE, table), (rt.RTA_OIF, ifindex)):
            if value is not None:
                body += nl.pack_u32(type, value)
        return _dump_routes("read the routes", body, fib.parse_fib_entry)

    def read_addresses(self) -> list[links.Address]:
        """Return all IPv4 and IPv6 addresses."""
        bodies = [rt.IFADDRMSG.pack(family, 0, 0, 0, 0) for family in _FAMILIES]
        dumps = (dump("read the addresses", rt.RTM_GETADDR, body, links.parse_address) for body in bodies)
        return [address for addresses in dumps for address in addresses]

    def read_routes(self, tables: Iterable[int]) -> list[fib.RouteEntry]:
        """Return the IPv4 and IPv6 routes of the tables, without cached routes. A table that does not exist
        has no routes."""
        routes: list[fib.RouteEntry] = []
        for table in tables:
            for family in _FAMILIES:
                body = rt.RTMSG.pack(family, *bytes(7), 0) + nl.pack_u32(rt.RTA_TABLE, table)
                routes += _dump_routes(f"read the routes of table {table}", body, fib.parse_route)
        return routes

    def read_rules(self) -> list[fib.PolicyRule]:
        """Return the IPv4 policy rules."""
        body = rt.RTMSG.pack(socket.AF_INET, *bytes(7), 0)
        return dump("read the policy rules", rt.RTM_GETRULE, body, fib.parse_rule)

    def find_qdiscs(self, places: Sequence[tuple[int, int]]) -> list[qdiscs.Qdisc | None]:
        """Return the qdisc at each place. A place is an interface index and a parent. The result is None for
        a place without a device or qdisc, and for the kernel's invisible default qdisc."""
        bodies = [rt.TCMSG.pack(0, ifindex, 0, parent, 0) for ifindex, parent in places]
        absent_codes, parse = {errno.ENOENT, errno.ENODEV}, qdiscs.parse_qdisc
        # Without the flag ECHO, the kernel sends the reply only to event listeners.
        return query("read a qdisc", rt.RTM_GETQDISC, nl.ECHO, bodies, parse, absent_codes)

    def read_filters(self, ifindex: int) -> list[qdiscs.PacketFilter]:
        """Return the filters of a device's ingress qdisc; an empty list without an ingress qdisc."""
        step = f"read the filters of link {ifindex}"
        body = rt.TCMSG.pack(0, ifindex, 0, qdiscs.INGRESS_HANDLE, 0)
        try:
            filters = dump(step, rt.RTM_GETTFILTER, body, qdiscs.parse_filter)
        except KernelError as error:
            if error.code in {errno.ENODEV, errno.ENOENT, errno.EINVAL}:
                return []
            raise
        return [each for each in filters if each is not None]


def _dump_routes(step: str, body: bytes, parse: Callable[[bytes], T]) -> list[T]:
    try:
        return dump(step, rt.RTM_GETROUTE, body, parse)
    except KernelError as error:
        # The table does not exist.
        if error.code == errno.ENOENT:
            return []
        raise

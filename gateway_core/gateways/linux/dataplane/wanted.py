"""Records to compare: what the kernel must have for each session, and what it has."""

from collections.abc import Iterator, Mapping, Sequence, Set
from ipaddress import IPv4Address, IPv6Address, IPv6Network
from typing import NamedTuple

from gateway_contract.contract import Record
from gateway_contract.core.network import OverheadProfile
from gateway_core.gateways.linux.kernel.fib import MAIN_TABLE, FibEntry, Rule
from gateway_core.gateways.linux.kernel.links import LinkEntry
from gateway_core.gateways.linux.kernel.qdiscs import QdiscEntry

_HOST = 32


class WantedSession(Record, frozen=True):
    """The state that the kernel must have for a session."""

    session_id: int
    #: The session's own, such as `ppp0`.
    device: str
    ifb: str
    #: The VLAN that the session arrived on. For DHCP, it may be the device.
    access_interface: str
    #: Bits per second; 0 is no limit.
    rate_down: int
    rate_up: int
    profile: OverheadProfile
    address: IPv4Address | None
    #: False where the kernel adds the host route with the address of the device, as for PPPoE. It is ours to
    #: repair all the same.
    sets_host_route: bool
    #: The gateway's own address towards the subscriber.
    gateway: IPv4Address | None
    #: Prefixes that are delegated to the session.
    delegated: tuple[IPv6Network, ...] = ()
    #: The /64 on the device, with the gateway's own address in it, where they are the core's to set.
    prefix: IPv6Network | None = None
    ipv6_gateway: IPv6Address | None = None

    def host_route(self, ifindex: int) -> FibEntry | None:
        """In the main table; None for a session without an IPv4 address."""
        if self.address is None:
            return None
        source = None if self.gateway is None else self.gateway.packed
        return FibEntry(MAIN_TABLE, self.address.packed, _HOST, ifindex, None, source)

    def prefixes(self) -> Iterator[IPv6Network]:
        """The prefixes that have a route."""
        if self.prefix is not None:
            yield self.prefix
        yield from self.delegated

    def prefix_routes(self, ifindex: int) -> Iterator[FibEntry]:
        for prefix in self.prefixes():
            yield FibEntry(MAIN_TABLE, prefix.network_address.packed, prefix.prefixlen, ifindex, None, None)


class RouteState(NamedTuple):
    """The routes that the kernel has, of those that may belong to sessions."""

    #: Those that the core added.
    own: Set[FibEntry]
    #: In the main table, by others: the index of the device, by destination and its length. Of several routes
    #: to one, the first, by which the kernel sends: two PPPoE sessions with one address have two.
    others: Mapping[tuple[bytes, int], int]

    def has(self, route: FibEntry) -> bool:
        """In the main table, a route of others to the same device is as good."""
        return route in self.own or (
            route.table == MAIN_TABLE and self.others.get((route.destination, route.length)) == route.ifindex
        )


class KernelState(NamedTuple):
    """The state of the kernel, as far as a comparison looks at it."""

    links: Mapping[str, LinkEntry]
    qdiscs: frozenset[QdiscEntry]
    routes: RouteState
    rules: Sequence[Rule]
    #: Of the configuration at that time.
    revision: int


NOT_READ = KernelState({}, frozenset(), RouteState(frozenset(), {}), (), 0)

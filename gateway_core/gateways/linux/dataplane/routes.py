"""Routes of sessions and of their pool in the kernel, and the policy rule that steers them: read, added and
removed."""

import errno
import socket
from collections.abc import Iterable, Sequence, Set
from ipaddress import IPv4Address, IPv4Network, IPv6Network

from gateway_contract.configuration import Cgnat
from gateway_contract.core.health import FaultKind
from gateway_core.gateways.linux.dataplane.fault_register import Outcome, Place
from gateway_core.gateways.linux.dataplane.wanted import RouteState
from gateway_core.gateways.linux.kernel import fib, netlink
from gateway_core.gateways.linux.kernel import rtnetlink as rt
from gateway_core.gateways.linux.kernel.fib import MAIN_TABLE, OWN_PROTOCOL, FibEntry, Rule
from gateway_core.gateways.linux.kernel.netlink import KernelChange, KernelError, NoDevice
from gateway_core.gateways.linux.kernel.reader import KernelReader

_FAMILIES = (socket.AF_INET, socket.AF_INET6)
#: Whose routes to a session are as good as ours. Not those of routing daemons, which may have a million.
_OTHERS = (
    (socket.AF_INET, rt.RTPROT_KERNEL),
    (socket.AF_INET, rt.RTPROT_BOOT),
    (socket.AF_INET, rt.RTPROT_STATIC),
    (socket.AF_INET6, rt.RTPROT_BOOT),
    (socket.AF_INET6, rt.RTPROT_STATIC),
)
#: Of the rule that steers: before the main table (32766), behind local addresses (0) and VRFs (1000).
_PRIORITY = 1500
_HOST = 32
#: Devices whose routes are read one by one.
_FEW = 8
_ANY = bytes(4)
_EVERYTHING = IPv4Network("0.0.0.0/0")
_TO_APPLIANCE = "0.0.0.0/0"
_STEER = "steer by"


class SessionRoutes:
    """Any thread may call. Methods raise KernelError."""

    def __init__(self, reader: KernelReader) -> None:
        self._reader = reader

    def read(self) -> RouteState:
        """Return all routes that may be those of sessions."""
        others = [
            entry
            for family, protocol in _OTHERS
            for entry in self._reader.read_fib_entries(family, protocol, table=MAIN_TABLE)
        ]
        return _state(self.own(), others)

    def own(self) -> set[FibEntry]:
        """Return the routes that the core added."""
        return {
            entry for family in _FAMILIES for entry in self._reader.read_fib_entries(family, OWN_PROTOCOL)
        }

    def add(self, routes: Sequence[FibEntry], known: RouteState | None = None) -> list[int | None]:
        """Add routes to sessions, in place of those to elsewhere. For each, None if it was there, else the
        error number, 0 for none. What is there may be `known`."""
        codes: list[int | None] = list(netlink.try_changes("add routes", list(map(fib.add_route, routes))))
        present = [number for number, code in enumerate(codes) if code == errno.EEXIST]
        devices = {routes[number].ifindex for number in present}
        # For those on one device, the kernel goes through the routes of all.
        whole = self.read() if known is None and len(devices) > _FEW else known
        found = {index: whole or self._on_device(index) for index in devices}
        others = []
        for number in present:
            if found[routes[number].ifindex].has(routes[number]):
                codes[number] = None
            else:
                others.append(number)
        replaced = netlink.try_changes(
            "replace routes", [fib.replace_route(routes[number]) for number in others]
        )
        for number, code in zip(others, replaced, strict=True):
            codes[number] = code
        return codes

    def replace(self, routes: Iterable[FibEntry]) -> list[KernelError]:
        """Put routes, in place of those to elsewhere. Return what the kernel refuses, NoDevice for a device
        that is gone."""
        routes = list(routes)
        codes = netlink.try_changes("replace routes", [fib.replace_route(route) for route in routes])
        return [
            KernelError.of(f"add the route to {destination(route)}", code)
            for route, code in zip(routes, codes, strict=True)
            if code
        ]

    def remove(self, routes: Iterable[FibEntry]) -> list[FibEntry]:
        """Remove routes of ours, and return those that were there."""
        routes = list(routes)
        codes = netlink.try_changes("remove routes", [fib.delete_route(route) for route in routes])
        return [route for route, code in zip(routes, codes, strict=True) if code == 0]

    def _on_device(self, ifindex: int) -> RouteState:
        own, found = (
            {
                entry
                for family in _FAMILIES
                for entry in self._reader.read_fib_entries(family, protocol, ifindex=ifindex)
            }
            for protocol in (OWN_PROTOCOL, 0)
        )
        return _state(own, found - own)


def surplus(found: Set[FibEntry], expected: Set[FibEntry]) -> list[FibEntry]:
    """Routes that are not expected. To delete one without a gateway or source would delete one with them."""
    kept = {(route.table, route.destination, route.length, route.ifindex) for route in expected}
    return [
        route
        for route in found - expected
        if (route.table, route.destination, route.length, route.ifindex) not in kept
    ]


def unreachable(table: int, network: IPv4Network | IPv6Network) -> FibEntry:
    """Packets to the network are refused where no other route of the table has the address."""
    return FibEntry(
        table, network.network_address.packed, network.prefixlen, 0, None, None, is_unreachable=True
    )


def destination(route: FibEntry) -> str:
    """As text, with the length of the prefix. An unreachable one says so, as `ip route` does."""
    family = socket.AF_INET if len(route.destination) == 4 else socket.AF_INET6
    type = "unreachable " if route.is_unreachable else ""
    return f"{type}{socket.inet_ntop(family, route.destination)}/{route.length}"


def _state(own: Set[FibEntry], others: Iterable[FibEntry]) -> RouteState:
    in_main: dict[tuple[bytes, int], int] = {}
    for entry in others:
        if entry.table == MAIN_TABLE:
            in_main.setdefault((entry.destination, entry.length), entry.ifindex)
    return RouteState(own, in_main)


class PoolRoutes:
    """The unreachable routes of `cgnat.source_range` and of further pools, those of IPv6 too, in the main
    table: they refuse packets to addresses of subscribers that have no session. One thread calls at a time.

    The rest of the network sends the whole pool here. Without the route, a packet to an address without a
    session would leave by the default route, and come back, until its TTL is over. Each route to a session is
    more specific, and each other route to the pool has a better metric.
    """

    def __init__(self) -> None:
        self._pools: Sequence[IPv4Network | IPv6Network] = ()

    def configure(self, *pools: IPv4Network | IPv6Network) -> None:
        """Replace the pools, and change nothing in the kernel."""
        self._pools = pools

    def routes(self) -> set[FibEntry]:
        """None before the first configuration."""
        return {unreachable(MAIN_TABLE, pool) for pool in self._pools}

    def settle(self, own_routes: Set[FibEntry]) -> Outcome:
        """Add the routes, but those that the kernel has. Raises KernelError."""
        missing = self.routes() - own_routes
        return _made(
            FaultKind.POOL,
            "add the route",
            [(destination(route), fib.replace_route(route)) for route in missing],
        )


class Steering:
    """Steers sessions to a CGNAT appliance, by one policy rule and a routing table; by a second rule while a
    commit of another range waits for its confirmation. The caller sees that one thread calls at a time.

    `ip rule from SOURCE_RANGE lookup TABLE`: what comes from an address of the range goes by the table. The
    table has the route to the appliance, and a host route for each steered session: a packet from one of them
    to another, or from an address of the gateway in the range, must not go to the appliance. Nor must one to
    an address of the range without a session, which the appliance would send back: for these, the route to
    the range is unreachable. While the route to the appliance is missing, an unreachable default route keeps
    packets from the main table: shared addresses must not leave the provider's network (RFC 6598 section 4).
    The links stay as they are: to enslave one to a VRF would take it down and up.

    The kernel compares each packet with all rules, one after the other. A rule `iif DEVICE` for each of
    10,000 sessions would add 55 us to every packet. This one rule adds nothing that can be measured, and the
    table finds a host route by the bits of the address.
    """

    def __init__(self, reader: KernelReader) -> None:
        self._reader = reader
        #: None while nothing is steered.
        self._cgnat: Cgnat | None = None

    def host_route(self, address: IPv4Address, ifindex: int) -> FibEntry | None:
        """Return the route of a session, None for one that is not steered."""
        cgnat = self._cgnat
        if cgnat is None or not any(address in network for network in cgnat.source_ranges):
            return None
        return FibEntry(cgnat.vrf_table, address.packed, _HOST, ifindex, None, None)

    def configure(self, cgnat: Cgnat) -> int | None:
        """Replace the configuration, and change nothing in the kernel. Return the table that is not in use
        any more, None without one."""
        before, self._cgnat = self._cgnat, cgnat if cgnat.enabled else None
        if before is None or (cgnat.enabled and cgnat.vrf_table == before.vrf_table):
            return None
        return before.vrf_table

    def routes(self) -> set[FibEntry]:
        """Return the routes of no session, without the one to the appliance if its interface is gone."""
        if self._cgnat is None:
            return set()
        try:
            return {self._handoff(self._cgnat), *_unreachable(self._cgnat)}
        except NoDevice:
            return set(_unreachable(self._cgnat))

    def settle(self, rules: Iterable[Rule], own_routes: Set[FibEntry]) -> Outcome:
        """Make the rule and the routes of no session, of those that the kernel has, what they must be. Rules
        of another life, or another configuration, go after the new one is there, and not if it is refused."""
        cgnat, failed = self._cgnat, dict[Place, KernelError]()
        ours = [rule for rule in rules if (rule.priority, rule.protocol) == (_PRIORITY, OWN_PROTOCOL)]
        missing: list[tuple[str, KernelChange]] = []
        wanted: list[Rule] = []
        if cgnat is not None:
            # Before the rule: a packet for which the table has no route would go by the main table.
            routes = [*_unreachable(cgnat)]
            try:
                routes.insert(0, self._handoff(cgnat))
            except NoDevice as error:
                failed[Place(FaultKind.STEERING, _TO_APPLIANCE)] = error
            missing += [
                (destination(route), fib.replace_route(route)) for route in routes if route not in own_routes
            ]
            wanted = [
                Rule(_PRIORITY, cgnat.vrf_table, str(network), None, OWN_PROTOCOL)
                for network in cgnat.source_ranges
            ]
            missing += [(_name(rule), fib.add_rule(rule)) for rule in wanted if rule not in ours]
        unwanted = [(_name(rule), fib.delete_rule(rule)) for rule in ours if rule not in wanted]
        made, refused = _made(FaultKind.STEERING, _STEER, missing)
        if not refused:
            _, refused = _made(FaultKind.STEERING, _STEER, unwanted)
        return Outcome(made, {**failed, **refused})

    def _handoff(self, cgnat: Cgnat) -> FibEntry:
        """Return the route to the appliance. Raises NoDevice, also while the interface is down: the kernel
        takes no route on it then, and says the same as for a wrong gateway."""
        link = self._reader.find_link(cgnat.handoff_interface)
        if not link.is_up:
            raise NoDevice(f"{_STEER} {_TO_APPLIANCE}", f"{link.name} is down", errno.ENETDOWN)
        return FibEntry(cgnat.vrf_table, _ANY, 0, link.index, cgnat.handoff_gateway.packed, None)


def _made(kind: FaultKind, verb: str, changes: Sequence[tuple[str, KernelChange]]) -> Outcome:
    """Make changes of named objects. What is there already, or gone, is neither changed nor failed."""
    codes = (
        netlink.try_changes(f"{verb} {changes[0][0]}", [change for _, change in changes]) if changes else []
    )
    places = [(Place(kind, name), code) for (name, _), code in zip(changes, codes, strict=True)]
    return Outcome(
        tuple(place for place, code in places if not code),
        {
            place: KernelError.of(f"{verb} {place.object}", code)
            for place, code in places
            if code not in {0, errno.EEXIST, errno.ENOENT}
        },
    )


def _unreachable(cgnat: Cgnat) -> list[FibEntry]:
    return [unreachable(cgnat.vrf_table, network) for network in (_EVERYTHING, *cgnat.source_ranges)]


def _name(rule: Rule) -> str:
    return f"from {rule.source or 'all'} lookup {rule.table}"

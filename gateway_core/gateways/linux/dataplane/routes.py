"""Routes of sessions and of their pools, and the policy rules that steer sessions to a CGNAT appliance."""

import errno
import socket
from collections.abc import Iterable, Mapping, Sequence, Set
from ipaddress import IPv4Address, IPv4Network, IPv6Network
from typing import NamedTuple

from gateway_contract.configuration import Cgnat
from gateway_contract.core.health import FaultKind
from gateway_core.gateways.linux.dataplane.fault_register import Outcome, Place
from gateway_core.gateways.linux.kernel import fib
from gateway_core.gateways.linux.kernel import rtnetlink as rt
from gateway_core.gateways.linux.kernel.fib import MAIN_TABLE, OWN_PROTOCOL, FibEntry, Rule
from gateway_core.gateways.linux.kernel.netlink import KernelChange, KernelError, NoDevice, try_changes
from gateway_core.gateways.linux.kernel.reader import KernelReader

_FAMILIES = (socket.AF_INET, socket.AF_INET6)
#: Families and protocols of others whose routes to a session are as good as the core's. Not those of routing
#: daemons, which may have a million routes.
_FOREIGN_ROUTES = (
    (socket.AF_INET, rt.RTPROT_KERNEL),
    (socket.AF_INET, rt.RTPROT_BOOT),
    (socket.AF_INET, rt.RTPROT_STATIC),
    (socket.AF_INET6, rt.RTPROT_BOOT),
    (socket.AF_INET6, rt.RTPROT_STATIC),
)
#: Priority of the rules that steer: before the main table (32766), after local addresses (0), VRFs (1000).
_RULE_PRIORITY = 1500
#: Devices whose routes are read one by one.
_MAX_SINGLE_DEVICES = 8
_DEFAULT_NETWORK = IPv4Network("0.0.0.0/0")


class RouteState(NamedTuple):
    """Routes that the kernel has, of those that may belong to sessions."""

    #: Those that the core added.
    own: Set[FibEntry]
    #: Those of others in the main table: the index of the device, by destination and its length. Of several
    #: routes to one, the first, by which the kernel sends: two PPPoE sessions with one address have two.
    others: Mapping[tuple[bytes, int], int]

    @classmethod
    def of(cls, own: Set[FibEntry], others: Iterable[FibEntry]) -> "RouteState":
        devices: dict[tuple[bytes, int], int] = {}
        for entry in others:
            if entry.table == MAIN_TABLE:
                devices.setdefault((entry.destination, entry.length), entry.ifindex)
        return cls(own, devices)

    def has(self, route: FibEntry) -> bool:
        """Return True if the core has the route, or others have one to the same device in the main table."""
        return route in self.own or (
            route.table == MAIN_TABLE and self.others.get((route.destination, route.length)) == route.ifindex
        )


class SessionRoutes:
    """Routes of sessions in the kernel. Thread-safe. Methods raise KernelError."""

    def __init__(self, reader: KernelReader) -> None:
        self._reader = reader

    def read(self) -> RouteState:
        """Return all routes that may belong to sessions."""
        others = [
            entry
            for family, protocol in _FOREIGN_ROUTES
            for entry in self._reader.read_fib_entries(family, protocol, table=MAIN_TABLE)
        ]
        return RouteState.of(self.read_own(), others)

    def read_own(self) -> set[FibEntry]:
        """Return the routes that the core added."""
        return {entry for each in _FAMILIES for entry in self._reader.read_fib_entries(each, OWN_PROTOCOL)}

    def add(self, routes: Sequence[FibEntry], known: RouteState | None = None) -> list[int | None]:
        """Add routes to sessions, in place of those to elsewhere. Return for each the error number, 0 for
        none, and None if the route was there. The routes in the kernel may be `known`."""
        codes: list[int | None] = list(try_changes("add routes", list(map(fib.add_route, routes))))
        present = [number for number, code in enumerate(codes) if code == errno.EEXIST]
        devices = {routes[number].ifindex for number in present}
        # For the routes on one device, the kernel goes through the routes of all.
        state = self.read() if known is None and len(devices) > _MAX_SINGLE_DEVICES else known
        states = {index: state or self._read_device(index) for index in devices}
        others = []
        for number in present:
            if states[routes[number].ifindex].has(routes[number]):
                codes[number] = None
            else:
                others.append(number)
        replaced = try_changes("replace routes", [fib.replace_route(routes[number]) for number in others])
        for number, code in zip(others, replaced, strict=True):
            codes[number] = code
        return codes

    def replace(self, routes: Iterable[FibEntry]) -> list[KernelError]:
        """Put routes in place of those to elsewhere, and return the refusals of the kernel."""
        routes = list(routes)
        codes = try_changes("replace routes", [fib.replace_route(route) for route in routes])
        return [
            KernelError.of(f"add the route to {format_destination(route)}", code)
            for route, code in zip(routes, codes, strict=True)
            if code
        ]

    def remove(self, routes: Iterable[FibEntry]) -> list[FibEntry]:
        """Remove routes of the core, and return those that were there."""
        routes = list(routes)
        codes = try_changes("remove routes", [fib.delete_route(route) for route in routes])
        return [route for route, code in zip(routes, codes, strict=True) if code == 0]

    def _read_device(self, ifindex: int) -> RouteState:
        own, all_routes = (
            {
                entry
                for family in _FAMILIES
                for entry in self._reader.read_fib_entries(family, protocol, ifindex=ifindex)
            }
            for protocol in (OWN_PROTOCOL, 0)
        )
        return RouteState.of(own, all_routes - own)


def find_surplus(found: Set[FibEntry], expected: Set[FibEntry]) -> list[FibEntry]:
    """Return the routes that are not expected, without those that differ from an expected one in gateway or
    source alone: to delete such a route would delete the expected one."""
    kept = {(route.table, route.destination, route.length, route.ifindex) for route in expected}
    return [
        route
        for route in found - expected
        if (route.table, route.destination, route.length, route.ifindex) not in kept
    ]


def format_destination(route: FibEntry) -> str:
    """Return the destination with the length of its prefix, and "unreachable" before it as in `ip route`."""
    family = socket.AF_INET if len(route.destination) == 4 else socket.AF_INET6
    type = "unreachable " if route.is_unreachable else ""
    return f"{type}{socket.inet_ntop(family, route.destination)}/{route.length}"


def make_unreachable(table: int, networks: Iterable[IPv4Network | IPv6Network]) -> list[FibEntry]:
    """Return a route to each network that refuses packets for which the table has no other route."""
    return [
        FibEntry(table, each.network_address.packed, each.prefixlen, 0, None, None, is_unreachable=True)
        for each in networks
    ]


def add_pool_routes(routes: Set[FibEntry], own_routes: Set[FibEntry]) -> Outcome:
    """Add the unreachable routes of pools to the main table, without those that are there: they refuse
    packets to addresses of subscribers that have no session. Raises KernelError.

    The rest of the network sends the whole pool here. Without the route, a packet to an address without a
    session would leave by the default route, and come back, until its TTL is over. Each route to a session is
    more specific, and each other route to the pool has a better metric."""
    missing = [(format_destination(route), fib.replace_route(route)) for route in routes - own_routes]
    return _apply(FaultKind.POOL, "add the route", missing)


class Steering:
    """Steering of sessions to a CGNAT appliance, by a routing table and one policy rule; two while a commit
    of another range waits for its confirmation. One thread calls at a time.

    `ip rule from SOURCE_RANGE lookup TABLE`: packets from an address of the range go by the table. The table
    has the route to the appliance, and a host route for each steered session: a packet from one of them to
    another, or from an address of the gateway in the range, must not go to the appliance. Nor must one to an
    address of the range without a session, which the appliance would send back: for these, the route to the
    range is unreachable. While the route to the appliance is missing, an unreachable default route keeps
    packets from the main table: shared addresses must not leave the provider's network (RFC 6598 section 4).
    The links stay as they are: to enslave one to a VRF would take it down and up.

    The kernel compares each packet with all rules, one after the other. A rule `iif DEVICE` for each of
    10,000 sessions would add 55 us to every packet. One rule adds nothing that can be measured, and the table
    finds a host route by the bits of the address.
    """

    def __init__(self, reader: KernelReader) -> None:
        self._reader = reader
        #: None while nothing is steered.
        self._cgnat: Cgnat | None = None

    def make_host_route(self, address: IPv4Address, ifindex: int) -> FibEntry | None:
        """Return the route of a session in the table; None for a session that is not steered."""
        cgnat = self._cgnat
        if cgnat is None or not any(address in network for network in cgnat.source_ranges):
            return None
        return FibEntry(cgnat.vrf_table, address.packed, address.max_prefixlen, ifindex, None, None)

    def configure(self, cgnat: Cgnat) -> int | None:
        """Replace the configuration, not yet in the kernel. Return the table that is no longer in use."""
        before, self._cgnat = self._cgnat, cgnat if cgnat.enabled else None
        if before is None or (cgnat.enabled and cgnat.vrf_table == before.vrf_table):
            return None
        return before.vrf_table

    def list_routes(self) -> set[FibEntry]:
        """Return the routes of no session; without the one to the appliance if its interface is gone."""
        return set(self._find_routes()[0])

    def repair(self, rules: Iterable[Rule], own_routes: Set[FibEntry]) -> Outcome:
        """Make the rules, and the routes of no session, what they must be. The kernel has `rules` and
        `own_routes`. Former rules go after the new ones are there, and stay if a new one is refused."""
        routes, error = self._find_routes()
        failed = {} if error is None else {Place(FaultKind.STEERING, str(_DEFAULT_NETWORK)): error}
        ours = [rule for rule in rules if (rule.priority, rule.protocol) == (_RULE_PRIORITY, OWN_PROTOCOL)]
        wanted: list[Rule] = []
        if self._cgnat is not None:
            table, ranges = self._cgnat.vrf_table, map(str, self._cgnat.source_ranges)
            wanted = [Rule(_RULE_PRIORITY, table, each, None, OWN_PROTOCOL) for each in ranges]
        # Routes first: a packet for which the table has no route would go by the main table.
        missing = [
            (format_destination(route), fib.replace_route(route))
            for route in routes
            if route not in own_routes
        ]
        missing += [(_format_rule(rule), fib.add_rule(rule)) for rule in wanted if rule not in ours]
        changed, refused = _apply(FaultKind.STEERING, "steer by", missing)
        if not refused:
            surplus = [(_format_rule(rule), fib.delete_rule(rule)) for rule in ours if rule not in wanted]
            _, refused = _apply(FaultKind.STEERING, "steer by", surplus)
        return Outcome(changed, {**failed, **refused})

    def _find_routes(self) -> tuple[list[FibEntry], NoDevice | None]:
        """Return the routes of no session, and the error without the one to the appliance. While the
        interface is down, the kernel takes no route on it, and reports the same error as for a wrong
        gateway."""
        cgnat = self._cgnat
        if cgnat is None:
            return [], None
        unreachable = make_unreachable(cgnat.vrf_table, (_DEFAULT_NETWORK, *cgnat.source_ranges))
        try:
            link = self._reader.find_link(cgnat.handoff_interface)
        except NoDevice as error:
            return unreachable, error
        if not link.is_up:
            step = f"steer by {_DEFAULT_NETWORK}"
            return unreachable, NoDevice(step, f"{link.name} is down", errno.ENETDOWN)
        gateway = cgnat.handoff_gateway.packed
        return [FibEntry(cgnat.vrf_table, bytes(4), 0, link.index, gateway, None), *unreachable], None


def _apply(kind: FaultKind, verb: str, changes: Sequence[tuple[str, KernelChange]]) -> Outcome:
    """Make changes of named objects. One that is there already, or gone, is no change and no failure."""
    codes = try_changes(f"{verb} {changes[0][0]}", [change for _, change in changes]) if changes else []
    places = [(Place(kind, name), code) for (name, _), code in zip(changes, codes, strict=True)]
    return Outcome(
        tuple(place for place, code in places if not code),
        {
            place: KernelError.of(f"{verb} {place.object}", code)
            for place, code in places
            if code not in {0, errno.EEXIST, errno.ENOENT}
        },
    )


def _format_rule(rule: Rule) -> str:
    return f"from {rule.source or 'all'} lookup {rule.table}"

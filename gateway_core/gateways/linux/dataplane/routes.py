"""Routes of sessions and of their pools, and the policy rules that steer sessions to a CGNAT appliance."""

import errno
import socket
from collections.abc import Iterable, Mapping, Sequence, Set
from ipaddress import IPv4Address, IPv4Network, IPv6Network
from typing import NamedTuple

from gateway_contract.configuration import Cgnat
from gateway_contract.core.health import FaultKind
from gateway_core.gateways.linux.dataplane.fault_register import Outcome, PlanePart
from gateway_core.gateways.linux.kernel import fib
from gateway_core.gateways.linux.kernel import rtnetlink as rt
from gateway_core.gateways.linux.kernel.fib import MAIN_TABLE, OWN_PROTOCOL, FibEntry, PolicyRule
from gateway_core.gateways.linux.kernel.netlink import KernelChange, KernelError, NoDevice, try_changes
from gateway_core.gateways.linux.kernel.reader import KernelReader

_ADDRESS_FAMILIES = (socket.AF_INET, socket.AF_INET6)
#: Families and protocols of other programs whose routes to a session replace the routes of the core. Routing
#: daemons are left out, because they may have a million routes.
_FOREIGN_PROTOCOLS = (
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
    """Routes in the kernel that may belong to sessions."""

    #: Routes that the core added.
    own_routes: Set[FibEntry]
    #: Routes that other programs or the kernel added to the main table: the device index by destination and
    #: prefix length. If a destination has several routes, as two PPPoE sessions with one address have, the
    #: first route counts, because the kernel uses it.
    foreign_devices: Mapping[tuple[bytes, int], int]

    @classmethod
    def of(cls, own_routes: Set[FibEntry], foreign_routes: Iterable[FibEntry]) -> "RouteState":
        devices: dict[tuple[bytes, int], int] = {}
        for entry in foreign_routes:
            if entry.table == MAIN_TABLE:
                devices.setdefault((entry.destination, entry.length), entry.ifindex)
        return cls(own_routes, devices)

    def has(self, route: FibEntry) -> bool:
        """Return True if the kernel has the route. A route in the main table that another program added
        counts if its destination and device are the same."""
        return route in self.own_routes or (
            route.table == MAIN_TABLE
            and self.foreign_devices.get((route.destination, route.length)) == route.ifindex
        )


class SessionRoutes:
    """Manager of the routes of sessions in the kernel. Thread-safe. Methods raise KernelError if the kernel
    cannot be reached."""

    def __init__(self, reader: KernelReader) -> None:
        self._reader = reader

    def read(self) -> RouteState:
        """Return the routes in the kernel that may belong to sessions."""
        others = [
            entry
            for family, protocol in _FOREIGN_PROTOCOLS
            for entry in self._reader.read_fib_entries(family, protocol, table=MAIN_TABLE)
        ]
        return RouteState.of(self.read_own(), others)

    def read_own(self) -> set[FibEntry]:
        """Return the routes in the kernel that the core added."""
        return {
            entry for each in _ADDRESS_FAMILIES for entry in self._reader.read_fib_entries(each, OWN_PROTOCOL)
        }

    def add(self, routes: Sequence[FibEntry], known_routes: RouteState | None = None) -> list[int | None]:
        """Add routes, and replace routes that have the same destination but another device. Return one value
        for each route: 0 for success, the error number of a refusal, or None if the route existed before.
        `known_routes` are the routes in the kernel, or None if the caller has not read the routes."""
        codes: list[int | None] = list(try_changes("add routes", list(map(fib.add_route, routes))))
        present = [number for number, code in enumerate(codes) if code == errno.EEXIST]
        devices = {routes[number].ifindex for number in present}
        # For the routes on one device, the kernel goes through the routes of all.
        state = self.read() if known_routes is None and len(devices) > _MAX_SINGLE_DEVICES else known_routes
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
        """Add or replace routes. Return an error for each route that the kernel refuses."""
        routes = list(routes)
        codes = try_changes("replace routes", [fib.replace_route(route) for route in routes])
        return [
            KernelError.of(f"add the route to {format_destination(route)}", code)
            for route, code in zip(routes, codes, strict=True)
            if code
        ]

    def remove(self, routes: Iterable[FibEntry]) -> list[FibEntry]:
        """Remove routes that the core added from the kernel. Return the routes that were removed."""
        routes = list(routes)
        codes = try_changes("remove routes", [fib.delete_route(route) for route in routes])
        return [route for route, code in zip(routes, codes, strict=True) if code == 0]

    def _read_device(self, ifindex: int) -> RouteState:
        own, all_routes = (
            {
                entry
                for family in _ADDRESS_FAMILIES
                for entry in self._reader.read_fib_entries(family, protocol, ifindex=ifindex)
            }
            for protocol in (OWN_PROTOCOL, 0)
        )
        return RouteState.of(own, all_routes - own)


def find_surplus(routes: Set[FibEntry], expected: Set[FibEntry]) -> list[FibEntry]:
    """Return the routes in `routes` that are not in `expected`. A route that differs from an expected route
    only in gateway or source is left out, because the kernel would delete the expected route instead."""
    kept = {(route.table, route.destination, route.length, route.ifindex) for route in expected}
    return [
        route
        for route in routes - expected
        if (route.table, route.destination, route.length, route.ifindex) not in kept
    ]


def format_destination(route: FibEntry) -> str:
    """Return the destination of a route in the notation of `ip route`, such as `192.0.2.0/24` or `unreachable
    192.0.2.0/24`."""
    family = socket.AF_INET if len(route.destination) == 4 else socket.AF_INET6
    type = "unreachable " if route.is_unreachable else ""
    return f"{type}{socket.inet_ntop(family, route.destination)}/{route.length}"


def make_unreachable_routes(table: int, networks: Iterable[IPv4Network | IPv6Network]) -> list[FibEntry]:
    """Return one unreachable route for each network. The kernel refuses a packet to the network if the table
    has no more specific route for the packet."""
    return [
        FibEntry(table, each.network_address.packed, each.prefixlen, 0, None, None, is_unreachable=True)
        for each in networks
    ]


def add_pool_routes(routes: Set[FibEntry], own_routes: Set[FibEntry]) -> Outcome:
    """Add the unreachable routes of pools that are missing in the main table. `routes` are the routes of all
    pools, and `own_routes` are the routes in the kernel that the core added. These routes refuse packets to
    subscriber addresses without a session. Raises KernelError if the kernel cannot be reached.

    The rest of the provider's network routes a whole pool to the gateway. Without the unreachable route, a
    packet to an address without a session would loop between the gateway and its default router until the TTL
    expires. The route of a session is more specific than the unreachable route, and any other route to the
    pool has a better metric."""
    missing = [(format_destination(route), fib.replace_route(route)) for route in routes - own_routes]
    return _apply_changes(FaultKind.POOL, "add the route", missing)


class Steering:
    """Steering of sessions to a CGNAT appliance, by a routing table and one policy rule for each source
    range. There are two ranges while a commit of a new range waits for its confirmation. Not thread-safe.

    `ip rule from SOURCE_RANGE lookup TABLE` makes the kernel route packets with a source address in the range
    by the table. The table has the default route to the appliance, and a host route for each steered session,
    so that packets between two subscribers, or from the gateway to a subscriber, do not go to the appliance.
    The table also has an unreachable route to the range, because the appliance would send back a packet to an
    address without a session. While the route to the appliance is missing, an unreachable default route keeps
    packets out of the main table: shared addresses must not leave the provider's network (RFC 6598 section
    4). Links are not enslaved to a VRF, because that would take each link down and up.

    The kernel compares each packet with all rules, one after the other. A rule `iif DEVICE` for each of
    10,000 sessions would add 55 us to every packet. One rule adds no measurable time, and the lookup of a
    host route does not depend on the number of sessions.
    """

    def __init__(self, reader: KernelReader) -> None:
        self._reader = reader
        #: None while nothing is steered.
        self._cgnat: Cgnat | None = None

    def make_host_route(self, address: IPv4Address, ifindex: int) -> FibEntry | None:
        """Return the host route of a session in the steering table, or None if the session is not steered."""
        cgnat = self._cgnat
        if cgnat is None or not any(address in network for network in cgnat.source_ranges):
            return None
        return FibEntry(cgnat.vrf_table, address.packed, address.max_prefixlen, ifindex, None, None)

    def configure(self, cgnat: Cgnat) -> int | None:
        """Set the configuration. The next `repair` applies the configuration to the kernel. Return the former
        routing table if the new configuration does not use this table, or None."""
        before, self._cgnat = self._cgnat, cgnat if cgnat.enabled else None
        if before is None or (cgnat.enabled and cgnat.vrf_table == before.vrf_table):
            return None
        return before.vrf_table

    def list_routes(self) -> set[FibEntry]:
        """Return the steering routes that belong to no session. The route to the appliance is left out while
        the interface to the appliance is missing or down."""
        return set(self._find_routes()[0])

    def repair(self, rules: Iterable[PolicyRule], own_routes: Set[FibEntry]) -> Outcome:
        """Add the missing steering rules and routes, and remove the former rules. `rules` are the current
        rules in the kernel, and `own_routes` are the current routes that the core added. The former rules
        stay if the kernel refuses a new rule or route."""
        routes, error = self._find_routes()
        failed = {} if error is None else {PlanePart(FaultKind.STEERING, str(_DEFAULT_NETWORK)): error}
        ours = [rule for rule in rules if (rule.priority, rule.protocol) == (_RULE_PRIORITY, OWN_PROTOCOL)]
        wanted: list[PolicyRule] = []
        if self._cgnat is not None:
            table, ranges = self._cgnat.vrf_table, map(str, self._cgnat.source_ranges)
            wanted = [PolicyRule(_RULE_PRIORITY, table, each, None, OWN_PROTOCOL) for each in ranges]
        # Routes first: a packet for which the table has no route would go by the main table.
        missing = [
            (format_destination(route), fib.replace_route(route))
            for route in routes
            if route not in own_routes
        ]
        missing += [(_format_rule(rule), fib.add_rule(rule)) for rule in wanted if rule not in ours]
        changed, refused = _apply_changes(FaultKind.STEERING, "steer by", missing)
        if not refused:
            surplus = [(_format_rule(rule), fib.delete_rule(rule)) for rule in ours if rule not in wanted]
            _, refused = _apply_changes(FaultKind.STEERING, "steer by", surplus)
        return Outcome(changed, {**failed, **refused})

    def _find_routes(self) -> tuple[list[FibEntry], NoDevice | None]:
        """Return the steering routes that belong to no session, and None. If the interface to the appliance
        is missing or down, leave out the route to the appliance, and return the reason in place of None. A
        down interface must be detected here, because the kernel reports the same error for a down interface
        as for a wrong gateway."""
        cgnat = self._cgnat
        if cgnat is None:
            return [], None
        unreachable = make_unreachable_routes(cgnat.vrf_table, (_DEFAULT_NETWORK, *cgnat.source_ranges))
        try:
            link = self._reader.find_link(cgnat.handoff_interface)
        except NoDevice as error:
            return unreachable, error
        if not link.is_up:
            step = f"steer by {_DEFAULT_NETWORK}"
            return unreachable, NoDevice(step, f"{link.name} is down", errno.ENETDOWN)
        gateway = cgnat.handoff_gateway.packed
        return [FibEntry(cgnat.vrf_table, bytes(4), 0, link.index, gateway, None), *unreachable], None


def _apply_changes(kind: FaultKind, verb: str, changes: Sequence[tuple[str, KernelChange]]) -> Outcome:
    """Make changes of named objects, and return the outcome. `changes` contains the name of each object with
    its change. `verb` begins the error text, such as `steer by`. An object that already exists, or is already
    removed, counts neither as changed nor as failed."""
    codes = try_changes(f"{verb} {changes[0][0]}", [change for _, change in changes]) if changes else []
    parts = [(PlanePart(kind, name), code) for (name, _), code in zip(changes, codes, strict=True)]
    return Outcome(
        tuple(part for part, code in parts if not code),
        {
            part: KernelError.of(f"{verb} {part.object}", code)
            for part, code in parts
            if code not in {0, errno.EEXIST, errno.ENOENT}
        },
    )


def _format_rule(rule: PolicyRule) -> str:
    return f"from {rule.source or 'all'} lookup {rule.table}"

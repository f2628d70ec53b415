"""Routes of sessions and of their pool in the kernel: read, added and removed."""

import errno
import socket
from collections.abc import Iterable, Iterator, Set
from ipaddress import IPv4Network

from gateway_api.core.gateways.linux.dataplane.fault_register import Outcome, Place
from gateway_api.core.gateways.linux.dataplane.wanted import RouteState
from gateway_api.core.gateways.linux.kernel import exchange, fib
from gateway_api.core.gateways.linux.kernel import rtnetlink as rt
from gateway_api.core.gateways.linux.kernel.fib import MAIN_TABLE, OWN_PROTOCOL, FibEntry
from gateway_api.core.gateways.linux.kernel.messages import NoDevice
from gateway_api.core.gateways.linux.kernel.reader import KernelReader
from gateway_api.wire.core.faults import FaultKind

_FAMILIES = (socket.AF_INET, socket.AF_INET6)
#: Whose routes to a session are as good as ours. Not those of routing daemons, which may have a million.
_OTHERS = (
    (socket.AF_INET, rt.RTPROT_KERNEL),
    (socket.AF_INET, rt.RTPROT_BOOT),
    (socket.AF_INET, rt.RTPROT_STATIC),
    (socket.AF_INET6, rt.RTPROT_BOOT),
    (socket.AF_INET6, rt.RTPROT_STATIC),
)


class SessionRoutes:
    """Any thread may call. Methods raise KernelError."""

    def __init__(self, reader: KernelReader) -> None:
        self._reader = reader

    def read(self) -> RouteState:
        """All routes that may be those of sessions."""
        others = [
            entry
            for family, protocol in _OTHERS
            for entry in self._reader.fib_entries(family, protocol, table=MAIN_TABLE)
        ]
        return _state(self.own(), others)

    def own(self) -> set[FibEntry]:
        """The routes that the core added."""
        return {entry for family in _FAMILIES for entry in self._reader.fib_entries(family, OWN_PROTOCOL)}

    def add(
        self, device: str, ifindex: int, wanted: Iterable[tuple[Place, FibEntry]]
    ) -> Iterator[tuple[Place, int]]:
        """Adds routes over a device, in place of those to elsewhere. Gives error numbers, 0 for none, of
        those that were missing or different. Raises NoDevice."""
        wanted = list(wanted)
        step = f"add the routes on {device}"
        codes = exchange.make(step, [fib.add_route(route) for _, route in wanted])
        present: RouteState | None = None
        for (place, route), code in zip(wanted, codes, strict=True):
            if code == errno.EEXIST:
                present = present or self._on_device(ifindex)
                if present.has(route):
                    continue
                (code,) = exchange.make(step, [fib.replace_route(route)])
            if code == errno.ENODEV:
                raise NoDevice(step, "it is gone", code)
            yield place, code

    def replace(self, routes: Iterable[FibEntry]) -> None:
        """Puts routes, in place of those to elsewhere. What the kernel refuses stays missing."""
        exchange.make("replace routes", [fib.replace_route(route) for route in routes])

    def remove(self, routes: Iterable[FibEntry]) -> list[FibEntry]:
        """Removes routes of ours, and returns those that were there."""
        routes = list(routes)
        codes = exchange.make("remove routes", [fib.delete_route(route) for route in routes])
        return [route for route, code in zip(routes, codes, strict=True) if code == 0]

    def _on_device(self, ifindex: int) -> RouteState:
        own, found = (
            {
                entry
                for family in _FAMILIES
                for entry in self._reader.fib_entries(family, protocol, ifindex=ifindex)
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


def unreachable(table: int, network: IPv4Network) -> FibEntry:
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
    in_main = {
        (entry.destination, entry.length, entry.ifindex) for entry in others if entry.table == MAIN_TABLE
    }
    return RouteState(own, in_main)


class PoolRoute:
    """The unreachable route of `cgnat.source_range` in the main table: it refuses packets to addresses of
    subscribers that have no session. One thread calls at a time.

    The rest of the network sends the whole range here. Without the route, a packet to an address without a
    session would leave by the default route, and come back, until its TTL is over. Each route to a session is
    more specific, and each other route to the range has a better metric.
    """

    def __init__(self) -> None:
        self._pool: IPv4Network | None = None

    def configure(self, pool: IPv4Network) -> None:
        """Replaces the pool, and changes nothing in the kernel."""
        self._pool = pool

    def routes(self) -> set[FibEntry]:
        """None before the first configuration."""
        return set() if self._pool is None else {unreachable(MAIN_TABLE, self._pool)}

    def settle(self, own_routes: Set[FibEntry]) -> Outcome:
        """Adds the route, unless it is among those that the kernel has. Raises KernelError."""
        missing = list(self.routes() - own_routes)
        places = [Place(FaultKind.POOL, destination(route)) for route in missing]
        codes = exchange.make("refuse what has no session", list(map(fib.replace_route, missing)))
        outcome = dict(zip(places, codes, strict=True))
        return Outcome(
            tuple(place for place, code in outcome.items() if not code),
            {
                place: exchange.refusal(f"add the route {place.object}", code)
                for place, code in outcome.items()
                if code
            },
        )

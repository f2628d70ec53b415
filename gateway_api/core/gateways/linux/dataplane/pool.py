"""The route of the pool: refuses packets to addresses of subscribers that have no session.

The rest of the network sends the whole range here. Without the route, a packet to an address without a
session would leave by the default route, and come back, until its TTL is over. Each route to a session is
more specific, and each other route to the range has a better metric.
"""

from collections.abc import Set
from ipaddress import IPv4Network

from gateway_api.core.gateways.linux.dataplane.findings import Outcome, Place
from gateway_api.core.gateways.linux.dataplane.routes import destination, unreachable
from gateway_api.core.gateways.linux.kernel import exchange, fib
from gateway_api.core.gateways.linux.kernel.fib import MAIN_TABLE, FibEntry
from gateway_api.wire.core.faults import FaultKind


class PoolRoute:
    """The unreachable route of `cgnat.source_range` in the main table. One thread calls at a time."""

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

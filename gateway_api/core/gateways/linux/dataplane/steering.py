"""Steers sessions to a CGNAT appliance, by one policy rule and a routing table.

`ip rule from SOURCE_RANGE lookup TABLE`: what comes from an address of the range goes by the table. The
table has the route to the appliance, and a host route for each steered session: a packet from one of them to
another, or from an address of the gateway in the range, must not go to the appliance. Nor must one to an
address of the range without a session, which the appliance would send back: for these, the route to the range
is unreachable. While the route to the appliance is missing, an unreachable default route keeps packets from
the main table: shared addresses must not leave the provider's network (RFC 6598 section 4). The links stay as
they are: to enslave one to a VRF would take it down and up.

The kernel compares each packet with all rules, one after the other. A rule `iif DEVICE` for each of 10,000
sessions would add 55 us to every packet. This one rule adds nothing that can be measured, and the table finds
a host route by the bits of the address.
"""

import errno
from collections.abc import Iterable, Set
from ipaddress import IPv4Address, IPv4Network

from gateway_api.core.gateways.linux.dataplane.fault_register import Outcome, Place
from gateway_api.core.gateways.linux.dataplane.routes import destination, unreachable
from gateway_api.core.gateways.linux.kernel import exchange, fib
from gateway_api.core.gateways.linux.kernel.fib import OWN_PROTOCOL, FibEntry, Rule
from gateway_api.core.gateways.linux.kernel.messages import KernelChange, KernelError, NoDevice
from gateway_api.core.gateways.linux.kernel.reader import KernelReader
from gateway_api.wire.configuration import Cgnat
from gateway_api.wire.core.faults import FaultKind

#: Of the rule: before the main table (32766), behind local addresses (0) and VRFs (1000).
_PRIORITY = 1500
_HOST = 32
_ANY = bytes(4)
_EVERYTHING = IPv4Network("0.0.0.0/0")
_TO_APPLIANCE = "0.0.0.0/0"


class Steering:
    """Steers sessions as the configuration says. The caller takes care that one thread calls at a time."""

    def __init__(self, reader: KernelReader) -> None:
        self._reader = reader
        #: None while nothing is steered.
        self._cgnat: Cgnat | None = None

    def host_route(self, address: IPv4Address, ifindex: int) -> FibEntry | None:
        """The route of a session, None for one that is not steered."""
        cgnat = self._cgnat
        if cgnat is None or address not in cgnat.source_range:
            return None
        return FibEntry(cgnat.vrf_table, address.packed, _HOST, ifindex, None, None)

    def configure(self, cgnat: Cgnat) -> int | None:
        """Replaces the configuration, and changes nothing in the kernel. Returns the table that is not in use
        any more, None without one."""
        before, self._cgnat = self._cgnat, cgnat if cgnat.enabled else None
        if before is None or (cgnat.enabled and cgnat.vrf_table == before.vrf_table):
            return None
        return before.vrf_table

    def routes(self) -> set[FibEntry]:
        """The routes of no session, without the one to the appliance if its interface is gone."""
        if self._cgnat is None:
            return set()
        try:
            return {self._handoff(self._cgnat), *_unreachable(self._cgnat)}
        except NoDevice:
            return set(_unreachable(self._cgnat))

    def settle(self, rules: Iterable[Rule], own_routes: Set[FibEntry]) -> Outcome:
        """Makes the rule and the routes of no session, of those that the kernel has, what they must be. Rules
        of another life, or another configuration, go after the new one is there."""
        cgnat, failed = self._cgnat, dict[Place, KernelError]()
        ours = [rule for rule in rules if (rule.priority, rule.protocol) == (_PRIORITY, OWN_PROTOCOL)]
        missing: list[tuple[str, KernelChange]] = []
        wanted: Rule | None = None
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
            wanted = Rule(_PRIORITY, cgnat.vrf_table, str(cgnat.source_range), None, OWN_PROTOCOL)
            if wanted not in ours:
                missing.append((_name(wanted), fib.add_rule(wanted)))
        unwanted = [(_name(rule), fib.delete_rule(rule)) for rule in ours if rule != wanted]
        codes = exchange.make("steer", [change for _, change in (*missing, *unwanted)])
        made = zip(missing, codes, strict=False)
        changed = [Place(FaultKind.STEERING, name) for (name, _), code in made if not code]
        for (name, _), code in zip((*missing, *unwanted), codes, strict=True):
            if code not in {0, errno.EEXIST, errno.ENOENT}:
                failed[Place(FaultKind.STEERING, name)] = exchange.refusal(f"steer by {name}", code)
        return Outcome(tuple(changed), failed)

    def _handoff(self, cgnat: Cgnat) -> FibEntry:
        """The route to the appliance. Raises NoDevice."""
        index = self._reader.link(cgnat.handoff_interface).index
        return FibEntry(cgnat.vrf_table, _ANY, 0, index, cgnat.handoff_gateway.packed, None)


def _unreachable(cgnat: Cgnat) -> tuple[FibEntry, FibEntry]:
    table = cgnat.vrf_table
    return unreachable(table, _EVERYTHING), unreachable(table, cgnat.source_range)


def _name(rule: Rule) -> str:
    return f"from {rule.source or 'all'} lookup {rule.table}"

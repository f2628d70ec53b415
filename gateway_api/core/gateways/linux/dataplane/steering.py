"""Steers sessions to a CGNAT appliance, by one policy rule and a routing table.

`ip rule from SOURCE_RANGE lookup TABLE`: what comes from an address of the range goes by the table. The
table has the route to the appliance, and a host route for each steered session: a packet from one of them to
another, or from an address of the gateway in the range, must not go to the appliance. The links stay as they
are: to enslave one to a VRF would take it down and up.

The kernel compares each packet with all rules, one after the other. A rule `iif DEVICE` for each of 10,000
sessions would add 55 us to every packet. This one rule adds nothing that can be measured, and the table finds
a host route by the bits of the address.
"""

import errno
from collections.abc import Iterable, Set
from ipaddress import IPv4Address

from gateway_api.core.configuration.sections import Cgnat
from gateway_api.core.gateways.linux.dataplane.findings import Outcome, Place
from gateway_api.core.gateways.linux.netlink import changes
from gateway_api.core.gateways.linux.netlink.entries import FibEntry
from gateway_api.core.gateways.linux.netlink.fib import OWN_PROTOCOL, Rule
from gateway_api.core.gateways.linux.netlink.messages import KernelError, NoDevice
from gateway_api.core.gateways.linux.netlink.reader import Reader
from gateway_api.wire.core.faults import FaultKind

#: Of the rule: before the main table (32766), behind local addresses (0) and VRFs (1000).
_PRIORITY = 1500
_DEFAULT_ROUTE = "0.0.0.0/0"
_HOST = 32


class Steering:
    """Steers sessions as the configuration says. The caller takes care that one thread calls at a time."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._cgnat: Cgnat | None = None

    def host_route(self, address: IPv4Address, ifindex: int) -> FibEntry | None:
        """The route of a session, None for one that is not steered."""
        cgnat = self._cgnat
        if cgnat is None or not cgnat.enabled or address not in cgnat.source_range:
            return None
        return FibEntry(cgnat.vrf_table, address.packed, _HOST, ifindex, None, None)

    def configure(self, cgnat: Cgnat) -> int | None:
        """Replaces the configuration, and changes nothing in the kernel. Returns the table that is not in use
        any more, None without one."""
        before, self._cgnat = self._cgnat, cgnat
        if before is None or not before.enabled:
            return None
        return None if cgnat.enabled and cgnat.vrf_table == before.vrf_table else before.vrf_table

    def handoff(self) -> FibEntry | None:
        """The route to the appliance. Raises NoDevice."""
        cgnat = self._cgnat
        if cgnat is None or not cgnat.enabled:
            return None
        index = self._reader.link(cgnat.handoff_interface).index
        return FibEntry(cgnat.vrf_table, bytes(4), 0, index, cgnat.handoff_gateway.packed, None)

    def settle(self, rules: Iterable[Rule], own_routes: Set[FibEntry]) -> Outcome:
        """Makes the rule and the route to the appliance, of those that the kernel has, what they must be.
        Rules of another life, or another configuration, go after the new one is there."""
        failed: dict[Place, KernelError] = {}
        wanted: list[tuple[str, changes.Change]] = []
        if self._cgnat is None:
            return Outcome((), failed)
        try:
            handoff = self.handoff()
        except NoDevice as error:
            failed[Place(FaultKind.STEERING, _DEFAULT_ROUTE)] = error
        else:
            if handoff is not None and handoff not in own_routes:
                wanted.append((_DEFAULT_ROUTE, changes.replace_route(handoff)))
        ours = [rule for rule in rules if (rule.priority, rule.protocol) == (_PRIORITY, OWN_PROTOCOL)]
        rule = self._rule()
        if rule is not None and rule not in ours:
            wanted.append((_name(rule), changes.add_rule(rule)))
        missing = len(wanted)
        wanted += [(_name(each), changes.delete_rule(each)) for each in ours if each != rule]
        codes = changes.make("steer", [change for _, change in wanted])
        made = zip(wanted[:missing], codes, strict=False)
        changed = [Place(FaultKind.STEERING, name) for (name, _), code in made if not code]
        for (name, _), code in zip(wanted, codes, strict=True):
            if code not in {0, errno.EEXIST, errno.ENOENT}:
                failed[Place(FaultKind.STEERING, name)] = changes.refusal(f"steer by {name}", code)
        return Outcome(tuple(changed), failed)

    def _rule(self) -> Rule | None:
        cgnat = self._cgnat
        if cgnat is None or not cgnat.enabled:
            return None
        return Rule(_PRIORITY, cgnat.vrf_table, str(cgnat.source_range), None, OWN_PROTOCOL)


def _name(rule: Rule) -> str:
    return f"from {rule.source or 'all'} lookup {rule.table}"

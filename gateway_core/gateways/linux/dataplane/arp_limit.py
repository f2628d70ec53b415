"""How many ARP requests the kernel takes from a line: the table `arp gateway` of nftables.

The kernel keeps a neighbour for the sender of each request (RFC 826), whatever address that has. One table of
neighbours is for all lines: while it is full, the kernel reaches no new neighbour on any. The limit of
neighbour discovery is a rule of the packet filter. The table stays when the core ends.
"""

from collections.abc import Callable, Mapping

from gateway_core.gateways.linux.dataplane.nftables import Nft
from gateway_core.gateways.linux.dataplane.own_table import OwnTable
from gateway_core.gateways.linux.kernel.links import SUBSCRIBERS

TABLE = "arp gateway"
#: The name of a set of lines. Neighbours that the kernel does not use stay for five seconds at least.
LINES = "lines"
LINES_SET = "{ type ifname; flags dynamic,timeout; timeout 1m; size 65535; }"
#: True for packets of a line beyond its limit. A power cut may bring all devices of a line back at once.
IS_FLOOD = (
    f"iifgroup {SUBSCRIBERS} update @{LINES} {{ iifname limit rate over 100/second burst 500 packets }}"
)
_RULES = f"""\
add table {TABLE}
add set {TABLE} {LINES} {LINES_SET}
add chain {TABLE} input {{ type filter hook input priority filter; policy accept; }}
add rule {TABLE} input {IS_FLOOD} drop
"""


class ArpLimit(OwnTable):
    """Keeps the table in the kernel, from the first look on. `wall` gives epoch seconds."""

    def __init__(self, wall: Callable[[], float], nft: Nft | None = None) -> None:
        super().__init__(TABLE, wall, nft)

    def _renew(self) -> None:
        self._load(self._removal + _RULES)

    def _count(self, packets: Mapping[str, int]) -> None:
        """The table has no counters."""

"""How the addresses of `cgnat.source_range` are shared out, where the gateway itself gives them.

    the first                  the network's own
    the second                 of the gateway: `Cgnat.subscriber_gateway`
    from the seventeenth       PPPoE: blocks, one for each VLAN with a pppoe-server
    the second half            DHCP: one range for all VLANs, without the network's last address

accel-ppp has the whole range: where it runs, it serves both types.

Of `subscribers.ipv6_range`, accel-ppp has the first half. Of the second half, each session with an address of
`cgnat.source_range` has the /64 with its place: 2 n for place n of PPPoE, 2 n + 1 for place n of DHCP. Where
the half has too few, the last places have none.
"""

from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass, replace
from ipaddress import IPv4Address, IPv4Network, IPv6Network

from gateway_contract.configuration import Configuration
from gateway_contract.core.sessions import SessionType

#: Most addresses of a block: so many sessions a VLAN can have at once. Where the range has no room for such a
#: block for each VLAN in use, all have smaller ones.
BLOCK = 16


@dataclass(frozen=True)
class SharedRange:
    """The shares of a network. `fixed` addresses are those of local subscribers: no block with one of them is
    given to a VLAN, and DHCP gives none of them away."""

    network: IPv4Network
    fixed: frozenset[IPv4Address] = frozenset()
    #: Addresses of a block, a power of two.
    block: int = BLOCK

    @classmethod
    def of(cls, configuration: Configuration, vlans: int = 1, block: int = BLOCK) -> "SharedRange":
        """With blocks for so many VLANs of PPPoE, as large as possible, but not larger than `block`."""
        fixed = (one.ip_address for one in configuration.subscribers.local)
        network = configuration.cgnat.source_range
        shared = cls(network, frozenset(address for address in fixed if address is not None), block)
        while shared.block > 1 and shared.number_of_blocks < vlans:
            shared = replace(shared, block=shared.block // 2)
        return shared

    @property
    def number_of_blocks(self) -> int:
        places = (int(address) - int(self.network.network_address) for address in self.fixed)
        fixed = {place // self.block for place in places if BLOCK <= place < self._half}
        return max(self._half - BLOCK, 0) // self.block - len(fixed)

    @property
    def dhcp(self) -> tuple[IPv4Address, IPv4Address]:
        """The first and the last address."""
        return self.network.network_address + self._half, self.network.broadcast_address - 1

    def is_of_subscriber(self, address: IPv4Address) -> bool:
        """Return True for an address of the network that is neither its own nor the gateway's."""
        return self.network[1] < address < self.network.broadcast_address

    def has(self, address: IPv4Address, type: SessionType) -> bool:
        """Return True for an address that is shared out for a session type: no session of the other one gets
        it."""
        first, last = self.dhcp
        if type is SessionType.DHCP:
            return first <= address <= last and address not in self.fixed
        return self.network[1] < address < first or address in self.fixed

    def has_block(self, first: IPv4Address) -> bool:
        """Return True if a block that begins there is one for a VLAN."""
        place = int(first) - int(self.network.network_address)
        fits = place % self.block == 0 and BLOCK <= place <= self._half - self.block
        return fits and not self._is_fixed(first)

    def free_block(self, taken: Container[IPv4Address]) -> IPv4Address | None:
        """Return the lowest one that is not among those taken, by its first address."""
        return next((first for first in self._blocks() if first not in taken), None)

    @property
    def _half(self) -> int:
        return self.network.num_addresses // 2

    def _blocks(self) -> Iterator[IPv4Address]:
        start = self.network.network_address
        blocks = (start + place for place in range(BLOCK, self._half, self.block))
        return (first for first in blocks if self.has_block(first))

    def _is_fixed(self, first: IPv4Address) -> bool:
        return any(first + place in self.fixed for place in range(self.block))


#: Of the prefix of a session.
_PREFIX = 64


def halves(network: IPv6Network) -> tuple[IPv6Network, IPv6Network]:
    """Return the half of accel-ppp, and that of the other sources."""
    first, second = network.subnets()
    return first, second


def prefix_of(address: IPv4Address, network: IPv4Network, half: IPv6Network) -> IPv6Network | None:
    """Return the /64 in a half of the IPv6 range for the session with an address; None if there is none."""
    place = int(address) - int(network.network_address)
    dhcp = network.num_addresses // 2
    number = 2 * place if place < dhcp else 2 * (place - dhcp) + 1
    if address not in network or number >= 1 << (_PREFIX - half.prefixlen):
        return None
    return IPv6Network((int(half.network_address) + (number << (128 - _PREFIX)), _PREFIX))


class SessionPrefixes:
    """The prefixes of sessions by a configuration. Any thread may call."""

    def __init__(self) -> None:
        self._shared: tuple[IPv4Network, IPv6Network] | None = None

    def configure(self, configuration: Configuration) -> Callable[[], None]:
        """Return a function that puts the former ones back."""
        before, network = self._shared, configuration.subscribers.ipv6_range
        self._shared = None if network is None else (configuration.cgnat.source_range, halves(network)[1])

        def put_back() -> None:
            self._shared = before

        return put_back

    def __call__(self, address: str | None) -> IPv6Network | None:
        """None for a session without an IPv4 address too."""
        shared = self._shared
        if shared is None or address is None:
            return None
        return prefix_of(IPv4Address(address), *shared)

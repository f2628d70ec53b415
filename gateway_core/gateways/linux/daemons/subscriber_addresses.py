"""Shares of `cgnat.source_range`, for gateways on which pppoe-server and dnsmasq assign the addresses of
subscribers.

first address              network address
second address             the gateway: `Cgnat.subscriber_gateway`
from the 17th address      PPPoE: one block for each VLAN with a pppoe-server
second half                DHCP: one range for all VLANs, without the broadcast address

If accel-ppp is a source, accel-ppp uses the whole range, because it serves both PPPoE and DHCP.

accel-ppp uses the first half of `subscribers.ipv6_range`. In the second half, the IPv4 address of a session
determines its /64: the n-th PPPoE address has the /64 number 2 n, and the n-th DHCP address has the /64
number 2 n + 1. If the half has too few /64 prefixes, the last addresses have no prefix.
"""

from collections.abc import Callable, Container
from dataclasses import dataclass, replace
from ipaddress import IPv4Address, IPv4Network, IPv6Network

from gateway_contract.configuration import Configuration
from gateway_contract.core.sessions import SessionType

#: Most addresses of a block: so many sessions a VLAN can have at once. Where the range has no room for such a
#: block for each VLAN in use, all have smaller ones.
MAX_BLOCK_SIZE = 16
#: Length of the prefix of a session.
_SESSION_PREFIX_LENGTH = 64


@dataclass(frozen=True)
class SharedRange:
    """Shares of a network. `fixed_addresses` are the fixed addresses of local subscribers, which are excluded
    from DHCP and from the blocks of VLANs. `block_size` is the number of addresses in a block, a power of
    two."""

    network: IPv4Network
    fixed_addresses: frozenset[IPv4Address] = frozenset()
    block_size: int = MAX_BLOCK_SIZE

    @classmethod
    def of(
        cls, configuration: Configuration, vlan_count: int = 1, block_size: int = MAX_BLOCK_SIZE
    ) -> "SharedRange":
        """Return the shares of `cgnat.source_range`, with one block for each PPPoE VLAN. `vlan_count` is the
        number of these VLANs. Blocks are as large as possible, but have at most `block_size` addresses."""
        fixed_addresses = frozenset(
            each.ip_address for each in configuration.subscribers.local if each.ip_address
        )
        shared = cls(configuration.cgnat.source_range, fixed_addresses, block_size)
        while shared.block_size > 1 and shared.block_count < vlan_count:
            shared = replace(shared, block_size=shared.block_size // 2)
        return shared

    @property
    def block_count(self) -> int:
        places = map(self._get_offset, self.fixed_addresses)
        excluded_blocks = {
            place // self.block_size for place in places if MAX_BLOCK_SIZE <= place < self._half_size
        }
        return max(self._half_size - MAX_BLOCK_SIZE, 0) // self.block_size - len(excluded_blocks)

    @property
    def dhcp_range(self) -> tuple[IPv4Address, IPv4Address]:
        """First and last address of the DHCP range."""
        return self.network.network_address + self._half_size, self.network.broadcast_address - 1

    def is_subscriber_address(self, address: IPv4Address) -> bool:
        """Return True if a subscriber may have the address: the network, gateway and broadcast addresses are
        excluded."""
        return self.network[1] < address < self.network.broadcast_address

    def has_address(self, address: IPv4Address, type: SessionType) -> bool:
        """Return True if `address` belongs to the share of the session type `type`. Sessions of the other
        type never get such an address."""
        first, last = self.dhcp_range
        if type is SessionType.DHCP:
            return first <= address <= last and address not in self.fixed_addresses
        return self.network[1] < address < first or address in self.fixed_addresses

    def has_block(self, first: IPv4Address) -> bool:
        """Return True if a block for a VLAN may begin at the address `first`. Return False if the block would
        contain a fixed address."""
        place = self._get_offset(first)
        fits = place % self.block_size == 0 and MAX_BLOCK_SIZE <= place <= self._half_size - self.block_size
        return fits and not any(first + offset in self.fixed_addresses for offset in range(self.block_size))

    def find_free_block(self, used_blocks: Container[IPv4Address]) -> IPv4Address | None:
        """Return the first address of the lowest free block, or None if no block is free. `used_blocks`
        contains the first address of each block in use."""
        start = self.network.network_address
        blocks = (start + place for place in range(MAX_BLOCK_SIZE, self._half_size, self.block_size))
        return next((first for first in blocks if first not in used_blocks and self.has_block(first)), None)

    @property
    def _half_size(self) -> int:
        return self.network.num_addresses // 2

    def _get_offset(self, address: IPv4Address) -> int:
        return int(address) - int(self.network.network_address)


class SessionPrefixes:
    """IPv6 prefixes of sessions. The IPv4 address of a session determines its prefix. Thread-safe."""

    def __init__(self) -> None:
        #: The source range, and the half of the IPv6 range for its sessions.
        self._networks: tuple[IPv4Network, IPv6Network] | None = None

    def configure(self, configuration: Configuration) -> Callable[[], None]:
        """Set the configuration, and return a function that restores the former configuration."""
        former, network = self._networks, configuration.subscribers.ipv6_range
        self._networks = (
            None if network is None else (configuration.cgnat.source_range, [*network.subnets()][1])
        )

        def restore() -> None:
            self._networks = former

        return restore

    def __call__(self, address: str | None) -> IPv6Network | None:
        """Return the /64 of the session with the IPv4 address `address`. Return None if the address has no
        /64."""
        networks = self._networks
        if networks is None or address is None or (parsed := IPv4Address(address)) not in networks[0]:
            return None
        network, half = networks
        place, half_size = int(parsed) - int(network.network_address), network.num_addresses // 2
        number = 2 * place if place < half_size else 2 * (place - half_size) + 1
        if number >= 1 << (_SESSION_PREFIX_LENGTH - half.prefixlen):
            return None
        return IPv6Network(
            (int(half.network_address) + (number << (128 - _SESSION_PREFIX_LENGTH)), _SESSION_PREFIX_LENGTH)
        )

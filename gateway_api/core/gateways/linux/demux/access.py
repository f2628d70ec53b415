"""Which source serves which VLAN."""

import errno
from collections.abc import Callable, Mapping, Sequence
from ipaddress import IPv4Address

from gateway_api.core.gateways.linux.kernel.exchange import change
from gateway_api.core.gateways.linux.kernel.links import add_address, proxy_arp
from gateway_api.core.gateways.linux.kernel.reader import KernelReader
from gateway_api.core.gateways.linux.sources.source import Source, SourceRefused
from gateway_api.wire.core.sessions import SessionType


class AccessLines:
    """Hands each VLAN to the source of its session type; see `VlanServer` of the demux. `address` returns the
    gateway's in the networks of the subscribers."""

    def __init__(
        self,
        sources: Mapping[SessionType, Source],
        reader: KernelReader,
        address: Callable[[], IPv4Address],
    ) -> None:
        self._sources = sources
        self._reader = reader
        self._address = address

    def serve(self, interfaces: Sequence[str], type: SessionType) -> None:
        """Raises SourceUnavailable, KernelError, and SourceRefused, also without a source of the type."""
        source = self._sources.get(type)
        if source is None:
            raise SourceRefused(f"no source of this gateway serves {type}")
        if type is SessionType.DHCP:
            for interface in interfaces:
                index = self._reader.link(interface).index
                # A DHCP server offers addresses only where the gateway has its own. With /32, many links can.
                # One of a former `cgnat.source_range` stays until the VLAN goes: subscribers use it until
                # they renew.
                address = self._address()
                step = f"add {address} to {interface}"
                change(step, add_address(index, address), accept={errno.EEXIST})
                # Subscribers have the netmask of the whole range, and ask for each other by ARP. The kernel
                # answers for those that have a session, and for no other address of the range.
                change(f"answer ARP on {interface}", proxy_arp(index))
        source.serve(interfaces, type)

    def release(self, interface: str) -> None:
        """Raises SourceUnavailable and SourceRefused."""
        for source in dict.fromkeys(self._sources.values()):
            source.release(interface)

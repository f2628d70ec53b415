"""Links and their addresses, from messages of the kernel (rtnetlink(7); linux/if_link.h and if_addr.h)."""

import socket
import struct

from gateway_api.core.gateways.linux.kernel.messages import (
    MalformedMessage,
    address,
    attributes,
    text,
    u32,
    unpacked,
)
from gateway_api.wire.contract import Record
from gateway_api.wire.core.network import AddressFamily, AdminState, InterfaceStats, VlanProtocol

_LINK = struct.Struct("=BxHiII")
_ADDRESS = struct.Struct("=BBBBI")
_COUNTERS = struct.Struct("=8Q")
_U16 = struct.Struct("=H")
_PROTOCOL = struct.Struct("!H")

# Attributes of a link.
_MAC, _NAME, _MTU, _PARENT, _MASTER, _OPERSTATE, _INFO, _STATS64, _PARENT_NAMESPACE = (
    1,
    3,
    4,
    5,
    10,
    16,
    18,
    23,
    37,
)
_KIND, _DATA = 1, 2
_VLAN_ID, _VLAN_PROTOCOL = 1, 5
# Attributes of an address: with a peer, _ADDRESS_OF is the peer's.
_ADDRESS_OF, _LOCAL = 1, 2

#: The kind of an IFB, as `ip link add ... type` says it.
IFB = "ifb"
_ETHERNET = 1
_UP = 1
_PROTOCOLS = {0x8100: VlanProtocol.DOT1Q, 0x88A8: VlanProtocol.DOT1AD}
#: RFC 2863 ifOperStatus, in the kernel's order.
_OPERSTATES = ("unknown", "notpresent", "down", "lowerlayerdown", "testing", "dormant", "up")
_FAMILIES: dict[int, AddressFamily] = {
    socket.AF_INET: AddressFamily.INET,
    socket.AF_INET6: AddressFamily.INET6,
}


class VlanTag(Record, frozen=True):
    """The tag that a VLAN device adds."""

    protocol: VlanProtocol
    id: int


class Link(Record, frozen=True):
    """A network device. `parent` and `master` are indexes in the same namespace."""

    index: int
    name: str
    #: As `ip link add ... type` says it; None for hardware.
    kind: str | None
    #: None for a device without one, as ppp.
    mac_address: str | None
    #: The length of a packet includes an Ethernet header.
    has_ethernet_header: bool
    admin_state: AdminState
    oper_state: str
    mtu: int
    parent: int | None
    master: int | None
    vlan: VlanTag | None
    stats: InterfaceStats

    @property
    def is_up(self) -> bool:
        return self.admin_state == AdminState.UP


class Address(Record, frozen=True):
    """An address of a link."""

    ifindex: int
    family: AddressFamily
    address: str
    prefix_length: int
    #: The other end of a point-to-point link.
    peer: str | None


def link(body: bytes) -> Link:
    """The link of an RTM_NEWLINK."""
    _, type, index, flags, _ = unpacked(_LINK, body)
    found = attributes(body, _LINK.size)
    if _NAME not in found:
        raise MalformedMessage("a link has no name")
    info = attributes(found.get(_INFO, b""))
    kind = text(info[_KIND]) if _KIND in info else None
    mac, operstate = found.get(_MAC, b""), found.get(_OPERSTATE, b"\0")
    # The parent of a veth is its peer.
    carried = kind != "veth" and _PARENT_NAMESPACE not in found
    return Link(
        index=index,
        name=text(found[_NAME]),
        kind=kind,
        mac_address=mac.hex(":") if len(mac) == 6 else None,
        has_ethernet_header=type == _ETHERNET,
        admin_state=AdminState.UP if flags & _UP else AdminState.DOWN,
        oper_state=_OPERSTATES[operstate[0]] if operstate and operstate[0] < len(_OPERSTATES) else "unknown",
        mtu=u32(found.get(_MTU)) or 0,
        parent=(u32(found.get(_PARENT)) or None) if carried else None,
        master=u32(found.get(_MASTER)) or None,
        vlan=_vlan(attributes(info.get(_DATA, b""))) if kind == "vlan" else None,
        stats=stats(found.get(_STATS64)),
    )


def is_ifb(body: bytes) -> bool:
    """True for the IFB of an RTM_NEWLINK or RTM_DELLINK."""
    info = attributes(body, _LINK.size).get(_INFO, b"")
    return text(attributes(info).get(_KIND, b"")) == IFB


def link_address(body: bytes) -> Address:
    """The address of an RTM_NEWADDR."""
    family, prefix_length, _, _, index = unpacked(_ADDRESS, body)
    found = attributes(body, _ADDRESS.size)
    other = found.get(_ADDRESS_OF)
    own = found.get(_LOCAL, other)
    if family not in _FAMILIES or own is None:
        raise MalformedMessage("an address has no family or value")
    return Address(
        ifindex=index,
        family=_FAMILIES[family],
        address=address(family, own),
        prefix_length=prefix_length,
        peer=address(family, other) if other is not None and other != own else None,
    )


def _vlan(found: dict[int, bytes]) -> VlanTag:
    (id,) = unpacked(_U16, found.get(_VLAN_ID, b""))
    (protocol,) = unpacked(_PROTOCOL, found.get(_VLAN_PROTOCOL, b""))
    if protocol not in _PROTOCOLS:
        raise MalformedMessage("a VLAN has an unknown protocol")
    return VlanTag(_PROTOCOLS[protocol], id)


def stats(data: bytes | None) -> InterfaceStats:
    """The counters of a struct rtnl_link_stats64; zeros without one."""
    if data is None:
        return InterfaceStats()
    rx_packets, tx_packets, rx_bytes, tx_bytes, rx_errors, tx_errors, rx_dropped, tx_dropped = unpacked(
        _COUNTERS, data
    )
    return InterfaceStats(
        rx_bytes, rx_packets, rx_errors, rx_dropped, tx_bytes, tx_packets, tx_errors, tx_dropped
    )

"""Links, addresses, counters and neighbours: parsers of the kernel's messages, and messages that change links
and addresses.

A function that adds, sets or deletes returns a message for `netlink.change`. The docstring of the function
names the error number with which the kernel refuses the message.
"""

import errno
import fcntl
import socket
import struct
from collections.abc import Iterable
from ipaddress import IPv4Address, IPv6Address
from typing import NamedTuple

from gateway_contract.contract import Record
from gateway_contract.core.network import AddressFamily, AdminState, InterfaceStats, VlanProtocol
from gateway_core.gateways.linux.kernel import netlink as nl
from gateway_core.gateways.linux.kernel import rtnetlink as rt
from gateway_core.gateways.linux.kernel.netlink import KernelChange, MalformedMessage, change, dump

#: Kind of an IFB device, as in `ip link add ... type ifb`.
IFB = "ifb"
#: Group (linux/if_link.h, IFLA_GROUP) of the thousands of links that the gateway creates for subscribers.
#: `packaging/udev.rules` makes udev, systemd and networkd ignore links of this group.
SUBSCRIBER_GROUP = 0x47415400
#: Group of a new link for which no other group is set.
DEFAULT_GROUP = 0
#: MTU of an IFB. Below 1280, the kernel switches IPv6 off on the device (RFC 8200 section 5). With IPv6, the
#: kernel adds routes for each device as siblings of one node, and walks all siblings for each new route:
#: after 10,000 devices, 10,000 more took 154 s instead of 2 s. The MTU does not limit redirected packets.
_IFB_MTU = 1279

_U16_STRUCT = struct.Struct("=H")
_ETHERTYPE_STRUCT = struct.Struct("!H")
_ETHERTYPE_OF_PROTOCOL = {VlanProtocol.DOT1Q: rt.ETH_P_8021Q, VlanProtocol.DOT1AD: rt.ETH_P_8021AD}
VLAN_PROTOCOL_OF_ETHERTYPE = {ethertype: protocol for protocol, ethertype in _ETHERTYPE_OF_PROTOCOL.items()}
#: RFC 2863 ifOperStatus, in the kernel's order.
_OPER_STATES = ("unknown", "notpresent", "down", "lowerlayerdown", "testing", "dormant", "up")
_FAMILY_OF_NUMBER: dict[int, AddressFamily] = {
    socket.AF_INET: AddressFamily.INET,
    socket.AF_INET6: AddressFamily.INET6,
}
#: Neighbour tables (linux/neighbour.h). All network namespaces share the table of a family.
_NEIGHBOUR_TABLE_NAMES: dict[int, str] = {socket.AF_INET: "arp_cache", socket.AF_INET6: "ndisc_cache"}
#: ioctl of netdevice(7) that returns the device name of an interface index.
_SIOCGIFNAME = 0x8910
_IFREQ_STRUCT = struct.Struct("16si20x")


class VlanTag(Record, frozen=True):
    """VLAN tag that a VLAN device adds to outgoing packets."""

    protocol: VlanProtocol
    id: int


class Link(Record, frozen=True):
    """Network device. `parent` and `master` are interface indexes in the same network namespace."""

    index: int
    name: str
    #: Kind as in `ip link add ... type KIND`; None for hardware.
    kind: str | None
    #: None for a device without a MAC address, such as ppp.
    mac_address: str | None
    #: True if the length of a packet on the device includes an Ethernet header.
    has_ethernet_header: bool
    admin_state: AdminState
    oper_state: str
    mtu: int
    parent: int | None
    master: int | None
    vlan: VlanTag | None
    stats: InterfaceStats
    group: int = DEFAULT_GROUP

    @property
    def is_up(self) -> bool:
        return self.admin_state == AdminState.UP


class LinkEntry(NamedTuple):
    """Fields of a link that are needed to compare thousands of links. Parsing all fields of a link takes five
    times as long."""

    ifindex: int
    name: str
    is_up: bool
    has_ethernet_header: bool


class Address(Record, frozen=True):
    """IPv4 or IPv6 address of a link."""

    ifindex: int
    family: AddressFamily
    address: str
    prefix_length: int


def parse_link(body: bytes) -> Link:
    """Parse an RTM_NEWLINK message into a link. Raises MalformedMessage if `body` is malformed."""
    _, type, index, flags, _ = nl.unpack(rt.IFINFOMSG, body)
    attributes = nl.split_attributes(body, rt.IFINFOMSG.size)
    if rt.IFLA_IFNAME not in attributes:
        raise MalformedMessage("a link has no name")
    info = nl.split_attributes(attributes.get(rt.IFLA_LINKINFO, b""))
    kind = nl.parse_text(info[rt.IFLA_INFO_KIND]) if rt.IFLA_INFO_KIND in info else None
    mac, operstate = attributes.get(rt.IFLA_ADDRESS, b""), attributes.get(rt.IFLA_OPERSTATE, b"\0")
    # IFLA_LINK of a veth is the peer device, not a parent.
    has_parent = kind != "veth" and rt.IFLA_LINK_NETNSID not in attributes
    return Link(
        index=index,
        name=nl.parse_text(attributes[rt.IFLA_IFNAME]),
        kind=kind,
        mac_address=mac.hex(":") if len(mac) == 6 else None,
        has_ethernet_header=type == rt.ARPHRD_ETHER,
        admin_state=AdminState.UP if flags & rt.IFF_UP else AdminState.DOWN,
        oper_state=_OPER_STATES[operstate[0]]
        if operstate and operstate[0] < len(_OPER_STATES)
        else "unknown",
        mtu=nl.parse_u32(attributes.get(rt.IFLA_MTU)) or 0,
        parent=(nl.parse_u32(attributes.get(rt.IFLA_LINK)) or None) if has_parent else None,
        master=nl.parse_u32(attributes.get(rt.IFLA_MASTER)) or None,
        vlan=_parse_tag(nl.split_attributes(info.get(rt.IFLA_INFO_DATA, b""))) if kind == "vlan" else None,
        stats=_parse_stats(attributes.get(rt.IFLA_STATS64)),
        group=nl.parse_u32(attributes.get(rt.IFLA_GROUP)) or 0,
    )


def parse_link_entry(body: bytes) -> LinkEntry:
    """Parse an RTM_NEWLINK message into a link entry. Raises MalformedMessage if `body` is malformed."""
    _, type, index, flags, _ = nl.unpack(rt.IFINFOMSG, body)
    name = nl.find_text(body, rt.IFINFOMSG.size, rt.IFLA_IFNAME)
    return LinkEntry(index, name, bool(flags & rt.IFF_UP), type == rt.ARPHRD_ETHER)


def is_ifb(body: bytes) -> bool:
    """Return True if the device of an RTM_NEWLINK or RTM_DELLINK message is an IFB."""
    info = nl.split_attributes(body, rt.IFINFOMSG.size).get(rt.IFLA_LINKINFO, b"")
    return nl.parse_text(nl.split_attributes(info).get(rt.IFLA_INFO_KIND, b"")) == IFB


def parse_address(body: bytes) -> Address:
    """Parse an RTM_NEWADDR message into an address. Raises MalformedMessage if `body` is malformed."""
    family, prefix_length, _, _, index = nl.unpack(rt.IFADDRMSG, body)
    attributes = nl.split_attributes(body, rt.IFADDRMSG.size)
    # On a point-to-point link, IFA_ADDRESS is the peer's address.
    own_address = attributes.get(rt.IFA_LOCAL, attributes.get(rt.IFA_ADDRESS))
    if family not in _FAMILY_OF_NUMBER or own_address is None:
        raise MalformedMessage("an address has no family or value")
    return Address(
        ifindex=index,
        family=_FAMILY_OF_NUMBER[family],
        address=nl.parse_address(family, own_address),
        prefix_length=prefix_length,
    )


def parse_statistics(body: bytes) -> tuple[int, InterfaceStats]:
    """Parse an RTM_NEWSTATS message into the index and the counters of a device. Raises MalformedMessage if
    `body` is malformed."""
    attributes = nl.split_attributes(body, rt.IF_STATS_MSG.size)
    return nl.unpack(rt.IF_STATS_MSG, body)[2], _parse_stats(attributes.get(rt.IFLA_STATS_LINK_64))


def find_device_names(indexes: Iterable[int]) -> dict[int, str]:
    """Return a map from interface index to device name. Devices that no longer exist are left out. Raises
    OSError if the kernel refuses the query for another reason."""
    name_of_index = {}
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as ioctl_socket:
        for index in indexes:
            try:
                reply = fcntl.ioctl(ioctl_socket, _SIOCGIFNAME, _IFREQ_STRUCT.pack(b"", index))
            except OSError as error:
                if error.errno not in {errno.ENODEV, errno.ENXIO}:
                    raise
            else:
                name_of_index[index] = nl.parse_text(reply[:16])
    return name_of_index


def add_vlan(name: str, parent: int, tag: VlanTag, group: int) -> KernelChange:
    """Add a VLAN device on the parent device, and set the VLAN device up. EEXIST: the name or the tag is
    already used."""
    ethertype = _ETHERTYPE_STRUCT.pack(_ETHERTYPE_OF_PROTOCOL[tag.protocol])
    data = nl.pack_attribute(rt.IFLA_VLAN_ID, _U16_STRUCT.pack(tag.id)) + nl.pack_attribute(
        rt.IFLA_VLAN_PROTOCOL, ethertype
    )
    info = nl.pack_text(rt.IFLA_INFO_KIND, "vlan") + nl.pack_attribute(rt.IFLA_INFO_DATA, data)
    body = rt.IFINFOMSG.pack(0, 0, 0, rt.IFF_UP, rt.IFF_UP) + nl.pack_text(rt.IFLA_IFNAME, name)
    body += nl.pack_u32(rt.IFLA_LINK, parent) + nl.pack_u32(rt.IFLA_GROUP, group)
    body += nl.pack_attribute(rt.IFLA_LINKINFO, info)
    return KernelChange(rt.RTM_NEWLINK, nl.CREATE | nl.EXCLUSIVE, body)


def add_ifb(name: str) -> KernelChange:
    """Add an IFB in SUBSCRIBER_GROUP, down and without IPv6. EEXIST: the name is already used."""
    body = rt.IFINFOMSG.pack(0, 0, 0, 0, 0) + nl.pack_text(rt.IFLA_IFNAME, name)
    body += nl.pack_u32(rt.IFLA_MTU, _IFB_MTU) + nl.pack_u32(rt.IFLA_GROUP, SUBSCRIBER_GROUP)
    body += nl.pack_attribute(rt.IFLA_LINKINFO, nl.pack_text(rt.IFLA_INFO_KIND, IFB))
    return KernelChange(rt.RTM_NEWLINK, nl.CREATE | nl.EXCLUSIVE, body)


def set_up(ifindex: int) -> KernelChange:
    """Set a link up. ENODEV: the link does not exist."""
    return KernelChange(rt.RTM_SETLINK, 0, rt.IFINFOMSG.pack(0, 0, ifindex, rt.IFF_UP, rt.IFF_UP))


def set_down(ifindex: int) -> KernelChange:
    """Set a link down. ENODEV: the link does not exist."""
    return KernelChange(rt.RTM_SETLINK, 0, rt.IFINFOMSG.pack(0, 0, ifindex, 0, rt.IFF_UP))


def set_group(ifindex: int, group: int) -> KernelChange:
    """Move a link into a group, whose links `delete_group` can delete in one step."""
    return _change_link(ifindex, nl.pack_u32(rt.IFLA_GROUP, group))


def delete_group(group: int) -> KernelChange:
    """Delete all links of a group. ENODEV: the group has no links."""
    body = rt.IFINFOMSG.pack(0, 0, 0, 0, 0) + nl.pack_u32(rt.IFLA_GROUP, group)
    return KernelChange(rt.RTM_DELLINK, 0, body)


def enable_proxy_arp(ifindex: int) -> KernelChange:
    """Enable proxy ARP on a device (`proxy_arp` of ip-sysctl): the kernel answers ARP requests for addresses
    that are reachable over another device. The setting is made by netlink, because the core's service cannot
    write to /proc/sys."""
    setting = nl.pack_attribute(rt.IFLA_INET_CONF, nl.pack_u32(rt.IPV4_DEVCONF_PROXY_ARP, 1))
    return _change_link(
        ifindex, nl.pack_attribute(rt.IFLA_AF_SPEC, nl.pack_attribute(socket.AF_INET, setting))
    )


def add_address(ifindex: int, address: IPv4Address) -> KernelChange:
    """Add an IPv4 address with prefix length 32. EEXIST: the link already has the address."""
    body = rt.IFADDRMSG.pack(socket.AF_INET, address.max_prefixlen, 0, rt.RT_SCOPE_UNIVERSE, ifindex)
    body += nl.pack_attribute(rt.IFA_LOCAL, address.packed) + nl.pack_attribute(
        rt.IFA_ADDRESS, address.packed
    )
    return KernelChange(rt.RTM_NEWADDR, nl.CREATE | nl.EXCLUSIVE, body)


def add_ipv6_gateway(ifindex: int, address: IPv6Address) -> KernelChange:
    """Add an IPv6 address with prefix length 64, without duplicate address detection and without the kernel's
    prefix route. EEXIST: the link already has the address."""
    return KernelChange(rt.RTM_NEWADDR, nl.CREATE | nl.EXCLUSIVE, _pack_ipv6_gateway(ifindex, address))


def delete_ipv6_gateway(ifindex: int, address: IPv6Address) -> KernelChange:
    """Delete an IPv6 address with prefix length 64. EADDRNOTAVAIL: the link does not have the address."""
    return KernelChange(rt.RTM_DELADDR, 0, _pack_ipv6_gateway(ifindex, address))


def _pack_ipv6_gateway(ifindex: int, address: IPv6Address) -> bytes:
    body = rt.IFADDRMSG.pack(socket.AF_INET6, 64, 0, rt.RT_SCOPE_UNIVERSE, ifindex)
    body += nl.pack_attribute(rt.IFA_LOCAL, address.packed) + nl.pack_attribute(
        rt.IFA_ADDRESS, address.packed
    )
    return body + nl.pack_u32(rt.IFA_FLAGS, rt.IFA_F_NODAD | rt.IFA_F_NOPREFIXROUTE)


def _change_link(ifindex: int, attributes: bytes) -> KernelChange:
    return KernelChange(rt.RTM_SETLINK, 0, rt.IFINFOMSG.pack(0, 0, ifindex, 0, 0) + attributes)


def _parse_tag(attributes: dict[int, bytes]) -> VlanTag:
    (id,) = nl.unpack(_U16_STRUCT, attributes.get(rt.IFLA_VLAN_ID, b""))
    (ethertype,) = nl.unpack(_ETHERTYPE_STRUCT, attributes.get(rt.IFLA_VLAN_PROTOCOL, b""))
    if ethertype not in VLAN_PROTOCOL_OF_ETHERTYPE:
        raise MalformedMessage("a VLAN has an unknown protocol")
    return VlanTag(VLAN_PROTOCOL_OF_ETHERTYPE[ethertype], id)


def _parse_stats(data: bytes | None) -> InterfaceStats:
    """Parse a struct rtnl_link_stats64 into counters; all zero if `data` is None."""
    if data is None:
        return InterfaceStats()
    rx_packets, tx_packets, rx_bytes, tx_bytes, rx_errors, tx_errors, rx_dropped, tx_dropped = nl.unpack(
        rt.LINK_STATS64, data
    )
    return InterfaceStats(
        rx_bytes, rx_packets, rx_errors, rx_dropped, tx_bytes, tx_packets, tx_errors, tx_dropped
    )


def read_thresholds(family: int) -> tuple[int, ...] | None:
    """Return the three thresholds of a family's neighbour table (`gc_thresh1` to `gc_thresh3` of ip-sysctl).

    Up to the first threshold, the kernel removes no neighbour. Above the second threshold, unused neighbours
    are removed within seconds. Above the third threshold, no neighbour can be added. Return None if the
    kernel has no table for the family, for example on a machine without IPv6. Raises KernelError if the
    thresholds cannot be read.
    """
    thresholds = dump(
        "read the neighbour tables", rt.RTM_GETNEIGHTBL, rt.NDTMSG.pack(family, 0), _parse_thresholds
    )
    return next(filter(None, thresholds), None)


def raise_thresholds(neighbour_count: int) -> bool:
    """Raise the thresholds of each neighbour table, so that the kernel keeps `neighbour_count` entries and
    allows four times as many. A higher existing threshold stays. Return False if no threshold was changed.
    Raises KernelError if the kernel refuses the change; the code is ENOENT outside the initial network
    namespace."""
    is_changed = False
    minimum = (neighbour_count, 2 * neighbour_count, 4 * neighbour_count)
    for family, name in _NEIGHBOUR_TABLE_NAMES.items():
        current = read_thresholds(family)
        target = current and tuple(map(max, current, minimum))
        if target and target != current:
            body = rt.NDTMSG.pack(family, 0) + nl.pack_text(rt.NDTA_NAME, name)
            for number, value in enumerate(target, rt.NDTA_THRESH1):
                body += nl.pack_u32(number, value)
            change("raise the thresholds of the neighbour tables", KernelChange(rt.RTM_SETNEIGHTBL, 0, body))
            is_changed = True
    return is_changed


def _parse_thresholds(body: bytes) -> tuple[int, ...] | None:
    """Parse an RTM_NEWNEIGHTBL message into the thresholds of the table; None if the message has only the
    settings of one device."""
    attributes = nl.split_attributes(body, rt.NDTMSG.size)
    values = [nl.parse_u32(attributes.get(number)) for number in range(rt.NDTA_THRESH1, rt.NDTA_THRESH1 + 3)]
    present_values = tuple(value for value in values if value is not None)
    return present_values if len(present_values) == len(values) else None


def has_device(name: str) -> bool:
    """Return True if the network namespace of the calling thread has a link with this name."""
    try:
        socket.if_nametoindex(name)
    except OSError:
        return False
    return True

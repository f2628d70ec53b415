"""Links, their addresses, counters and neighbours: read from messages of the kernel, and changed."""

import errno
import fcntl
import socket
import struct
from collections.abc import Iterable
from ipaddress import IPv4Address, IPv6Address
from typing import NamedTuple

from gateway_contract.contract import Record
from gateway_contract.core.network import AddressFamily, AdminState, InterfaceStats, VlanProtocol
from gateway_core.gateways.linux.kernel import messages as nl
from gateway_core.gateways.linux.kernel import rtnetlink as rt
from gateway_core.gateways.linux.kernel.exchange import change, dump
from gateway_core.gateways.linux.kernel.messages import KernelChange, MalformedMessage

#: The kind of an IFB, as `ip link add ... type` says it.
IFB = "ifb"
#: The group (linux/if_link.h, IFLA_GROUP) of links that the gateway makes for subscribers, thousands of them.
#: By it, `packaging/udev.rules` has udev, systemd and networkd leave them alone.
SUBSCRIBERS = 0x47415400
#: The group of a link that nobody put into another one.
DEFAULT_GROUP = 0
#: The MTU of an IFB: below 1280, IPv6 is off (RFC 8200 section 5). The routes that IPv6 adds for each device
#: are siblings of one node, which the kernel walks for each further one: after 10,000 devices, 10,000 more
#: took 154 s instead of 2. What is redirected to a device is not held to its MTU.
_WITHOUT_IPV6 = 1279

_U16 = struct.Struct("=H")
_ETHERTYPE = struct.Struct("!H")
_ETHERTYPES = {VlanProtocol.DOT1Q: rt.ETH_P_8021Q, VlanProtocol.DOT1AD: rt.ETH_P_8021AD}
VLAN_PROTOCOLS = {ethertype: protocol for protocol, ethertype in _ETHERTYPES.items()}
#: RFC 2863 ifOperStatus, in the kernel's order.
_OPERSTATES = ("unknown", "notpresent", "down", "lowerlayerdown", "testing", "dormant", "up")
_FAMILIES: dict[int, AddressFamily] = {
    socket.AF_INET: AddressFamily.INET,
    socket.AF_INET6: AddressFamily.INET6,
}
#: Of neighbours (linux/neighbour.h). The kernel has one for each family, for all network namespaces.
_TABLES: dict[int, str] = {socket.AF_INET: "arp_cache", socket.AF_INET6: "ndisc_cache"}
#: netdevice(7): the name of an index.
_SIOCGIFNAME = 0x8910
_IFREQ = struct.Struct("16si20x")


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
    group: int = DEFAULT_GROUP

    @property
    def is_up(self) -> bool:
        return self.admin_state == AdminState.UP


class LinkEntry(NamedTuple):
    """The fields of a link that a comparison of tens of thousands needs: to parse all takes five times as
    long."""

    ifindex: int
    name: str
    is_up: bool
    has_ethernet_header: bool


class Address(Record, frozen=True):
    """An address of a link."""

    ifindex: int
    family: AddressFamily
    address: str
    prefix_length: int


def link(body: bytes) -> Link:
    """Return the link of an RTM_NEWLINK."""
    _, type, index, flags, _ = nl.unpacked(rt.IFINFOMSG, body)
    found = nl.attributes(body, rt.IFINFOMSG.size)
    if rt.IFLA_IFNAME not in found:
        raise MalformedMessage("a link has no name")
    info = nl.attributes(found.get(rt.IFLA_LINKINFO, b""))
    kind = nl.text(info[rt.IFLA_INFO_KIND]) if rt.IFLA_INFO_KIND in info else None
    mac, operstate = found.get(rt.IFLA_ADDRESS, b""), found.get(rt.IFLA_OPERSTATE, b"\0")
    # The parent of a veth is its peer.
    carried = kind != "veth" and rt.IFLA_LINK_NETNSID not in found
    return Link(
        index=index,
        name=nl.text(found[rt.IFLA_IFNAME]),
        kind=kind,
        mac_address=mac.hex(":") if len(mac) == 6 else None,
        has_ethernet_header=type == rt.ARPHRD_ETHER,
        admin_state=AdminState.UP if flags & rt.IFF_UP else AdminState.DOWN,
        oper_state=_OPERSTATES[operstate[0]] if operstate and operstate[0] < len(_OPERSTATES) else "unknown",
        mtu=nl.u32(found.get(rt.IFLA_MTU)) or 0,
        parent=(nl.u32(found.get(rt.IFLA_LINK)) or None) if carried else None,
        master=nl.u32(found.get(rt.IFLA_MASTER)) or None,
        vlan=_vlan(nl.attributes(info.get(rt.IFLA_INFO_DATA, b""))) if kind == "vlan" else None,
        stats=_stats(found.get(rt.IFLA_STATS64)),
        group=nl.u32(found.get(rt.IFLA_GROUP)) or 0,
    )


def link_entry(body: bytes) -> LinkEntry:
    """Return the link of an RTM_NEWLINK."""
    _, type, index, flags, _ = nl.unpacked(rt.IFINFOMSG, body)
    name = nl.first_text(body, rt.IFINFOMSG.size, rt.IFLA_IFNAME)
    return LinkEntry(index, name, bool(flags & rt.IFF_UP), type == rt.ARPHRD_ETHER)


def is_ifb(body: bytes) -> bool:
    """Return True for the IFB of an RTM_NEWLINK or RTM_DELLINK."""
    info = nl.attributes(body, rt.IFINFOMSG.size).get(rt.IFLA_LINKINFO, b"")
    return nl.text(nl.attributes(info).get(rt.IFLA_INFO_KIND, b"")) == IFB


def link_address(body: bytes) -> Address:
    """Return the address of an RTM_NEWADDR."""
    family, prefix_length, _, _, index = nl.unpacked(rt.IFADDRMSG, body)
    found = nl.attributes(body, rt.IFADDRMSG.size)
    # With a peer, IFA_ADDRESS is the peer's.
    own = found.get(rt.IFA_LOCAL, found.get(rt.IFA_ADDRESS))
    if family not in _FAMILIES or own is None:
        raise MalformedMessage("an address has no family or value")
    return Address(
        ifindex=index,
        family=_FAMILIES[family],
        address=nl.address(family, own),
        prefix_length=prefix_length,
    )


def statistics(body: bytes) -> tuple[int, InterfaceStats]:
    """Return the index of a device and its counters, of an RTM_NEWSTATS."""
    found = nl.attributes(body, rt.IF_STATS_MSG.size)
    return nl.unpacked(rt.IF_STATS_MSG, body)[2], _stats(found.get(rt.IFLA_STATS_LINK_64))


def names(indexes: Iterable[int]) -> dict[int, str]:
    """Return the names of the devices that there still are. Raises OSError."""
    found = {}
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as names:
        for index in indexes:
            try:
                named = fcntl.ioctl(names, _SIOCGIFNAME, _IFREQ.pack(b"", index))
            except OSError as error:
                if error.errno not in {errno.ENODEV, errno.ENXIO}:
                    raise
            else:
                found[index] = nl.text(named[:16])
    return found


def add_vlan(name: str, parent: int, tag: VlanTag, group: int) -> KernelChange:
    """Make a VLAN device in a group, on the link with this index, and set it up. Refused with EEXIST if the
    name or the tag is taken."""
    ethertype = _ETHERTYPE.pack(_ETHERTYPES[tag.protocol])
    data = nl.attribute(rt.IFLA_VLAN_ID, _U16.pack(tag.id)) + nl.attribute(rt.IFLA_VLAN_PROTOCOL, ethertype)
    info = _info("vlan") + nl.attribute(rt.IFLA_INFO_DATA, data)
    body = rt.IFINFOMSG.pack(0, 0, 0, rt.IFF_UP, rt.IFF_UP) + nl.text_attribute(rt.IFLA_IFNAME, name)
    body += nl.u32_attribute(rt.IFLA_LINK, parent) + nl.u32_attribute(rt.IFLA_GROUP, group)
    body += nl.attribute(rt.IFLA_LINKINFO, info)
    return KernelChange(rt.RTM_NEWLINK, nl.CREATE | nl.EXCLUSIVE, body)


def add_ifb(name: str) -> KernelChange:
    """Make an IFB of SUBSCRIBERS, which is down, and has no IPv6. Refused with EEXIST if the name is
    taken."""
    body = rt.IFINFOMSG.pack(0, 0, 0, 0, 0) + nl.text_attribute(rt.IFLA_IFNAME, name)
    body += nl.u32_attribute(rt.IFLA_MTU, _WITHOUT_IPV6) + nl.u32_attribute(rt.IFLA_GROUP, SUBSCRIBERS)
    body += nl.attribute(rt.IFLA_LINKINFO, _info(IFB))
    return KernelChange(rt.RTM_NEWLINK, nl.CREATE | nl.EXCLUSIVE, body)


def set_up(ifindex: int) -> KernelChange:
    return KernelChange(rt.RTM_SETLINK, 0, rt.IFINFOMSG.pack(0, 0, ifindex, rt.IFF_UP, rt.IFF_UP))


def set_down(ifindex: int) -> KernelChange:
    return KernelChange(rt.RTM_SETLINK, 0, rt.IFINFOMSG.pack(0, 0, ifindex, 0, rt.IFF_UP))


def set_group(ifindex: int, group: int) -> KernelChange:
    """Put a link into a group, which `delete_group` removes in one step."""
    return _set(ifindex, nl.u32_attribute(rt.IFLA_GROUP, group))


def delete_group(group: int) -> KernelChange:
    """Remove the links of a group. Refused with ENODEV if there are none."""
    body = rt.IFINFOMSG.pack(0, 0, 0, 0, 0) + nl.u32_attribute(rt.IFLA_GROUP, group)
    return KernelChange(rt.RTM_DELLINK, 0, body)


def proxy_arp(ifindex: int) -> KernelChange:
    """Has the kernel answer ARP requests on a device for addresses that it reaches by another (ip-sysctl).
    The service of the core cannot write to /proc/sys."""
    setting = nl.attribute(rt.IFLA_INET_CONF, nl.u32_attribute(rt.IPV4_DEVCONF_PROXY_ARP, 1))
    return _set(ifindex, nl.attribute(rt.IFLA_AF_SPEC, nl.attribute(socket.AF_INET, setting)))


def add_address(ifindex: int, address: IPv4Address) -> KernelChange:
    """With /32. Refused with EEXIST if the link has it."""
    body = rt.IFADDRMSG.pack(socket.AF_INET, address.max_prefixlen, 0, rt.RT_SCOPE_UNIVERSE, ifindex)
    body += nl.attribute(rt.IFA_LOCAL, address.packed) + nl.attribute(rt.IFA_ADDRESS, address.packed)
    return KernelChange(rt.RTM_NEWADDR, nl.CREATE | nl.EXCLUSIVE, body)


def add_router(ifindex: int, address: IPv6Address) -> KernelChange:
    """With /64, usable at once, and without a route of the kernel's own. Refused with EEXIST if the link has
    it."""
    return KernelChange(rt.RTM_NEWADDR, nl.CREATE | nl.EXCLUSIVE, _router(ifindex, address))


def delete_router(ifindex: int, address: IPv6Address) -> KernelChange:
    """Refused with EADDRNOTAVAIL if the link does not have it."""
    return KernelChange(rt.RTM_DELADDR, 0, _router(ifindex, address))


def _router(ifindex: int, address: IPv6Address) -> bytes:
    body = rt.IFADDRMSG.pack(socket.AF_INET6, 64, 0, rt.RT_SCOPE_UNIVERSE, ifindex)
    body += nl.attribute(rt.IFA_LOCAL, address.packed) + nl.attribute(rt.IFA_ADDRESS, address.packed)
    return body + nl.u32_attribute(rt.IFA_FLAGS, rt.IFA_F_NODAD | rt.IFA_F_NOPREFIXROUTE)


def _info(kind: str) -> bytes:
    return nl.text_attribute(rt.IFLA_INFO_KIND, kind)


def _set(ifindex: int, attributes: bytes) -> KernelChange:
    return KernelChange(rt.RTM_SETLINK, 0, rt.IFINFOMSG.pack(0, 0, ifindex, 0, 0) + attributes)


def _vlan(found: dict[int, bytes]) -> VlanTag:
    (id,) = nl.unpacked(_U16, found.get(rt.IFLA_VLAN_ID, b""))
    (ethertype,) = nl.unpacked(_ETHERTYPE, found.get(rt.IFLA_VLAN_PROTOCOL, b""))
    if ethertype not in VLAN_PROTOCOLS:
        raise MalformedMessage("a VLAN has an unknown protocol")
    return VlanTag(VLAN_PROTOCOLS[ethertype], id)


def _stats(data: bytes | None) -> InterfaceStats:
    """Zeros without a struct rtnl_link_stats64."""
    if data is None:
        return InterfaceStats()
    rx_packets, tx_packets, rx_bytes, tx_bytes, rx_errors, tx_errors, rx_dropped, tx_dropped = nl.unpacked(
        rt.LINK_STATS64, data
    )
    return InterfaceStats(
        rx_bytes, rx_packets, rx_errors, rx_dropped, tx_bytes, tx_packets, tx_errors, tx_dropped
    )


class Thresholds(NamedTuple):
    """Numbers of neighbours (`gc_thresh` of ip-sysctl): up to the first, all stay; above the second, those
    not in use go within seconds; above the third, no new one is reached."""

    first: int
    second: int
    third: int


def thresholds(family: int) -> Thresholds | None:
    """Return the thresholds of a table; None where the kernel does without IPv6. Raises KernelError."""
    found = dump("read the neighbour tables", rt.RTM_GETNEIGHTBL, rt.NDTMSG.pack(family, 0), _thresholds)
    return next(filter(None, found), None)


def raise_thresholds(neighbours: int) -> bool:
    """Has each table keep so many neighbours, and reach four times as many. A higher threshold stays. False
    if all were as high. Raises KernelError: ENOENT, where the network namespace is not the first."""
    is_changed = False
    wanted = Thresholds(neighbours, 2 * neighbours, 4 * neighbours)
    for family, name in _TABLES.items():
        now = thresholds(family)
        higher = now and Thresholds(*map(max, now, wanted))
        if higher and higher != now:
            body = rt.NDTMSG.pack(family, 0) + nl.text_attribute(rt.NDTA_NAME, name)
            for number, value in enumerate(higher, rt.NDTA_THRESH1):
                body += nl.u32_attribute(number, value)
            change("raise the thresholds of the neighbour tables", KernelChange(rt.RTM_SETNEIGHTBL, 0, body))
            is_changed = True
    return is_changed


def _thresholds(body: bytes) -> Thresholds | None:
    """None for the settings of a device."""
    found = nl.attributes(body, rt.NDTMSG.size)
    values = [nl.u32(found.get(number)) for number in range(rt.NDTA_THRESH1, rt.NDTA_THRESH1 + 3)]
    known = [value for value in values if value is not None]
    return Thresholds(*known) if len(known) == len(values) else None


def is_device(name: str) -> bool:
    """Return whether the network namespace of the calling thread has a link of this name."""
    try:
        socket.if_nametoindex(name)
    except OSError:
        return False
    return True

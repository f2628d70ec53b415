"""The core's contract for the network: interfaces, VLANs, shaping, and routes."""

from typing import Annotated, Any

from gateway_contract.contract import (
    Enumeration,
    Failure,
    ListReply,
    Method,
    Record,
    SelectingMethod,
    about,
    count,
)
from gateway_contract.core import sessions
from gateway_contract.core.health import RefusalCount
from gateway_contract.core.sessions import IPV4, IPV6, MAC, RateExpiresAt, about_ipv4, about_vlan

_ADDRESS = f"^({IPV4}|{IPV6})$"
_PREFIX = f"^({IPV4}|{IPV6})/[0-9]{{1,3}}$"


class AddressFamily(Enumeration):
    """The family of an address."""

    INET = "inet", "IPv4."
    INET6 = "inet6", "IPv6."


class InterfaceType(Enumeration):
    """The type of an interface."""

    TRUNK = "trunk", "A port that carries subscribers."
    LOOPBACK = "loopback", "The loopback interface."
    VLAN = "vlan", "A VLAN sub-interface of a trunk."
    PPP = "ppp", "The interface of a PPPoE session."
    IFB = "ifb", "The device that shapes what a session sends."
    VRF = "vrf", "A routing domain."
    OTHER = "other", "Anything else, such as an uplink."


class AdminState(Enumeration):
    """The state that an interface is configured to have."""

    UP = "up", "Enabled."
    DOWN = "down", "Disabled."


class VlanProtocol(Enumeration):
    """The protocol of the outer tag."""

    DOT1Q = "802.1Q", "One tag."
    DOT1AD = "802.1ad", "A service tag, with the subscriber's tag inside (QinQ)."


class DemuxState(Enumeration):
    """The state of a VLAN in the demux component."""

    ACTIVE = "active", "The VLAN has sessions."
    IDLE = "idle", "The VLAN has none, and is removed after the idle timeout."


Overhead = Annotated[int, count("Bytes added to each packet.", 50)]
Mpu = Annotated[int, count("Least bytes counted for a packet.", 84)]
OperState = Annotated[str, about("Operational state (RFC 2863).", "up")]


# Interfaces and VLANs


class InterfaceAddress(Record, frozen=True):
    """An address of an interface."""

    family: Annotated[AddressFamily, about("Address family.", "inet")]
    address: Annotated[str, about("IPv4 or IPv6 address.", "10.255.0.1")]
    prefix_length: Annotated[int, about("Bits of the network.", 30, minimum=0, maximum=128)]


class InterfaceStats(Record, frozen=True):
    """The counters of an interface, since the interface came up."""

    rx_bytes: Annotated[int, count("Bytes received.", 58248942780)] = 0
    rx_packets: Annotated[int, count("Packets received.", 145622356)] = 0
    rx_errors: Annotated[int, count("Packets received with errors.", 0)] = 0
    rx_dropped: Annotated[int, count("Packets received and dropped.", 0)] = 0
    tx_bytes: Annotated[int, count("Bytes sent.", 291244714181)] = 0
    tx_packets: Annotated[int, count("Packets sent.", 242703928)] = 0
    tx_errors: Annotated[int, count("Packets that could not be sent.", 0)] = 0
    tx_dropped: Annotated[int, count("Packets dropped instead of sent.", 0)] = 0


class Interface(Record, frozen=True):
    """An interface of the system."""

    ifindex: Annotated[int, about("Number in the kernel.", 2)]
    name: Annotated[str, about("Interface name.", "trunk0")]
    type: Annotated[InterfaceType, about("Type of the interface.", "trunk")]
    mac_address: Annotated[str | None, about("MAC address, null for none.", "06:00:00:00:00:02", pattern=MAC)]
    mtu: Annotated[int, about("Largest packet, bytes.", 1600)]
    admin_state: Annotated[AdminState, about("Configured state.", "up")]
    oper_state: OperState
    parent: Annotated[str | None, about("Interface that carries it, null when none does.", None, "trunk0")]
    master: Annotated[str | None, about("VRF or bridge that it belongs to, null when none.", None, "cgnat")]
    addresses: Annotated[tuple[InterfaceAddress, ...], about("Its addresses.")]
    stats: Annotated[InterfaceStats, about("Its counters.")]


class InterfacesReply(ListReply, frozen=True):
    """A list of interfaces."""

    interfaces: Annotated[tuple[Interface, ...], about("The interfaces.")]


class ListInterfaces(SelectingMethod[InterfacesReply], frozen=True):
    """List all interfaces of the system."""


class Vlan(Record, frozen=True):
    """A VLAN sub-interface that the demux component has created."""

    name: Annotated[str, about("Interface name.", "trunk0.1000")]
    trunk: Annotated[str, about("Trunk interface that carries it.", "trunk0")]
    vlan_id: Annotated[int, about_vlan("VLAN id; the inner one of two.", 1000)]
    outer_vlan_id: sessions.OuterVlanId
    protocol: Annotated[VlanProtocol, about("Protocol of the outer tag.", "802.1Q")]
    oper_state: OperState
    session_count: Annotated[int, count("Sessions on it.", 27)]
    created_at: Annotated[int, count("When it was made, Unix epoch seconds.", 1795270980)]


class VlansReply(ListReply, frozen=True):
    """A list of VLANs."""

    vlans: Annotated[tuple[Vlan, ...], about("The VLANs.")]


class ListVlans(SelectingMethod[VlansReply], frozen=True):
    """List the VLAN sub-interfaces that the demux component has created."""


# Shaping


class SessionQos(Record, frozen=True):
    """The shaping of one session."""

    session_id: sessions.SessionId
    username: sessions.Username
    interface: Annotated[str, about("Shaped interface.", "ppp5")]
    ifb_device: Annotated[str | None, about("Upstream IFB device, null without one.", "ifb-ppp5")]
    rate_down_bps: sessions.RateDown
    rate_up_bps: sessions.RateUp
    overhead_profile: sessions.ProfileName
    overhead: Overhead
    mpu: Mpu
    qdisc: Annotated[str, about("Queueing discipline.", "tbf")]
    rate_expires_at: RateExpiresAt = None


class QosReply(ListReply, frozen=True):
    """A list of sessions with their shaping."""

    sessions: Annotated[tuple[SessionQos, ...], about("The sessions.")]


class ListQos(SelectingMethod[QosReply], frozen=True):
    """List the shaping of all sessions."""


class OverheadProfile(Record, frozen=True):
    """The number of bytes that a type of access line adds to each packet."""

    name: sessions.ProfileName
    overhead: Overhead
    mpu: Mpu
    description: Annotated[str, about("What it is for.", "PPPoE over Ethernet with one VLAN tag")]


# What an access line adds to each IP packet, as the `overhead` and `mpu` of tc(8): preamble 8, Ethernet
# header 14, checksum 4 and inter-frame gap 12 make 38; a VLAN tag is 4, PPPoE with PPP is 8 (RFC 2516). The
# least frame, with preamble and gap, takes 84 bytes of the line.
_ETHERNET, _VLAN, _PPPOE, _LEAST = 38, 4, 8, 84

OVERHEAD_PROFILES = {
    name: OverheadProfile(name, overhead, mpu, description)
    for name, overhead, mpu, description in (
        ("none", 0, 0, "IP packets as they are"),
        ("pppoe_ethernet", _ETHERNET + _VLAN + _PPPOE, _LEAST, "PPPoE over Ethernet with one VLAN tag"),
        ("pppoe_qinq", _ETHERNET + 2 * _VLAN + _PPPOE, _LEAST, "PPPoE over Ethernet with two VLAN tags"),
        ("ipoe_ethernet", _ETHERNET + _VLAN, _LEAST, "IP over Ethernet with one VLAN tag"),
        ("ipoe_qinq", _ETHERNET + 2 * _VLAN, _LEAST, "IP over Ethernet with two VLAN tags"),
    )
}


class OverheadProfilesReply(Record, frozen=True):
    """A list of overhead profiles."""

    profiles: Annotated[tuple[OverheadProfile, ...], about("The profiles.")]
    count: Annotated[int, count("Number of records in this reply.", 1)]


class ListOverheadProfiles(Method[OverheadProfilesReply], frozen=True):
    """List the overhead profiles that sessions can have."""


# Routing


class BgpSummaryReply(Record, frozen=True):
    summary: Annotated[dict[str, Any], about("As FRR prints it for show bgp summary json; {} without BGP.")]


class GetBgpSummary(Method[BgpSummaryReply], frozen=True):
    """Return the routing daemon's summary of its BGP neighbours."""


class Route(Record, frozen=True):
    """A route in the kernel. The fields have the names of `ip -j route` (iproute2)."""

    dst: Annotated[
        str,
        about("Destination; 0.0.0.0/0 and ::/0 are the default routes.", "100.64.0.5/32", pattern=_PREFIX),
    ]
    gateway: Annotated[
        str | None, about("Next hop, null when there is none.", None, "10.255.0.2", pattern=_ADDRESS)
    ]
    dev: Annotated[str, about("Interface.", "ppp5")]
    protocol: Annotated[str, about("Origin of the route.", "kernel")]
    scope: Annotated[str, about("How far it reaches.", "link")]
    type: Annotated[str, about("Kind of route.", "unicast")]
    table: Annotated[str, about("Routing table.", "100")]
    metric: Annotated[int | None, about("Lower is preferred; null for the kernel's own.", None, 20)]
    prefsrc: Annotated[
        str | None, about("Source address to prefer, null for any.", "100.64.0.1", pattern=_ADDRESS)
    ]
    session_id: Annotated[int | None, about("Session that it belongs to, null for others.", 7)]


class RoutesReply(ListReply, frozen=True):
    """A list of routes."""

    routes: Annotated[tuple[Route, ...], about("The routes.")]


class ListRoutes(SelectingMethod[RoutesReply], frozen=True):
    """List the routes of the kernel, including the routes to subscribers."""


class CgnatSession(Record, frozen=True):
    """A session whose address is in `cgnat.source_range`. Its traffic is steered through the CGNAT VRF."""

    id: sessions.SessionId
    type: sessions.Type
    username: sessions.Username
    ip_address: sessions.AssignedAddress
    interface: sessions.SessionInterface
    vrf_name: Annotated[str, about("VRF that it goes through.", "cgnat")]
    vrf_table: Annotated[int, about("Routing table of the VRF.", 100)]
    handoff_interface: Annotated[str, about("Interface towards the CGNAT appliance.", "cgnat0")]
    handoff_gateway: Annotated[str, about_ipv4("Address of the CGNAT appliance.", "10.255.1.2")]
    started_at: sessions.StartedAt


class CgnatSessionsReply(ListReply, frozen=True):
    """A list of sessions that are steered to the CGNAT."""

    sessions: Annotated[tuple[CgnatSession, ...], about("The sessions.")]


class ListCgnatSessions(SelectingMethod[CgnatSessionsReply], frozen=True):
    """List the sessions that are steered through the CGNAT VRF."""


class DemuxVlan(Vlan, frozen=True):
    """A VLAN with its state in the demux component."""

    state: Annotated[DemuxState, about("active with sessions, idle without.", "active")]


class DemuxReply(ListReply, frozen=True):
    """A list of VLANs, and the number of VLANs that were not created because of the limits."""

    vlans: Annotated[tuple[DemuxVlan, ...], about("The VLANs.")]
    rate_limited_total: Annotated[int, count("New VLANs refused by the limits.", 0)]
    refusals: Annotated[
        tuple[RefusalCount, ...], about("First frames and DHCP requests that were refused, by reason.")
    ] = ()


class GetDemuxState(SelectingMethod[DemuxReply], frozen=True):
    """List the VLANs that the demux component manages."""


class ReplyTooLargeError(Failure, frozen=True):
    """Refusal of a whole list: the list is too large for one reply. Pages of the list are possible."""

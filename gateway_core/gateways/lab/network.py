"""Interfaces, routes and BGP neighbours of the lab, as Linux and FRR would show them.

`usage` is the current usage of the traffic model.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from ipaddress import IPv4Address, IPv4Network
from typing import Any

from gateway_contract.configuration import Bgp, BgpNeighbor, Cgnat, Configuration
from gateway_contract.core.network import (
    AddressFamily,
    AdminState,
    Interface,
    InterfaceAddress,
    InterfaceStats,
    InterfaceType,
    Route,
)
from gateway_core.gateways.lab.access import LabSession, ManagedVlan
from gateway_core.gateways.lab.traffic import Traffic
from gateway_core.sessions.session import Session

LOOPBACK_IFINDEX = 1

_ETHERNET_MTU = 1500
#: Room for two VLAN tags and PPPoE around a subscriber's full packet.
_TRUNK_MTU = 1600
#: RFC 2516 section 7: PPPoE takes 8 bytes of the 1500.
_PPPOE_MTU = 1492
#: MAC addresses of link types without carrier detection. Linux reports the state of these links as "unknown".
_MAC_OF_TYPE_WITHOUT_CARRIER = {InterfaceType.LOOPBACK: "00:00:00:00:00:00", InterfaceType.PPP: None}
#: Memory that FRR 8.4.4 on Debian 12 uses for a route and for a peer.
_RIB_ENTRY_BYTES, _PEER_BYTES = 192, 741_464
#: Number of prefixes that a BGP neighbour announces: only the default route.
_PREFIXES_RECEIVED = 1
_KEEPALIVE_SECONDS = 60
#: Default metrics of IPv6 routes: of routes that the kernel adds, and of all other routes
#: (linux/ipv6_route.h).
_KERNEL_METRIC, _STATIC_METRIC = 256, 1024

_make_route = partial(
    Route, gateway=None, type="unicast", table="main", metric=None, prefsrc=None, session_id=None
)


def list_fixed_interfaces(
    configuration: Configuration,
    ifindex_of: Mapping[str, int],
    traffic_of_trunk: Mapping[str, Traffic],
    usage: int,
) -> Iterator[Interface]:
    """Yield the interfaces that belong to neither a VLAN nor a session."""
    ipv4 = InterfaceAddress(AddressFamily.INET, "127.0.0.1", 8)
    ipv6 = InterfaceAddress(AddressFamily.INET6, "::1", 128)
    yield _make_interface(
        LOOPBACK_IFINDEX, "lo", InterfaceType.LOOPBACK, InterfaceStats(), mtu=65536, addresses=(ipv4, ipv6)
    )
    interfaces, cgnat = configuration.interfaces, configuration.cgnat
    for name in interfaces.trunks:
        stats = traffic_of_trunk.get(name, Traffic()).compute_stats(usage)
        yield _make_interface(ifindex_of[name], name, InterfaceType.TRUNK, stats, mtu=_TRUNK_MTU)
    for name in interfaces.uplinks:
        stats = InterfaceStats()
        # The first uplink leads to the network. The lab simulates no traffic on the others.
        if name == interfaces.uplinks[0]:
            access_stats = sum(traffic_of_trunk.values(), Traffic()).compute_stats(usage)
            # The uplink sends the packets that subscribers send.
            stats = InterfaceStats(
                rx_bytes=access_stats.tx_bytes,
                rx_packets=access_stats.tx_packets,
                tx_bytes=access_stats.rx_bytes,
                tx_packets=access_stats.rx_packets,
            )
        master = cgnat.vrf_name if cgnat.enabled and name == cgnat.handoff_interface else None
        addresses = _list_uplink_addresses(configuration, name)
        yield _make_interface(
            ifindex_of[name], name, InterfaceType.OTHER, stats, master=master, addresses=addresses
        )
    if cgnat.enabled:
        ifindex = ifindex_of[cgnat.vrf_name]
        yield _make_interface(ifindex, cgnat.vrf_name, InterfaceType.VRF, InterfaceStats(), mtu=65575)


def make_vlan_interface(vlan: ManagedVlan, usage: int) -> Interface:
    stats = vlan.traffic.compute_stats(usage)
    return _make_interface(
        vlan.ifindex, vlan.access_vlan.name, InterfaceType.VLAN, stats, parent=vlan.access_vlan.trunk
    )


def make_session_interface(session: LabSession, usage: int) -> Interface:
    """Return the Interface of a session's device: a ppp device, or for DHCP a device on top of the VLAN."""
    pppoe = session.is_pppoe
    type, mtu = (InterfaceType.PPP, _PPPOE_MTU) if pppoe else (InterfaceType.OTHER, _ETHERNET_MTU)
    gateways = () if session.gateway is None else (session.gateway,)
    return _make_interface(
        session.ifindex, session.interface, type, session.traffic.compute_stats(usage), mtu=mtu,
        parent=session.access_interface,
        addresses=tuple(InterfaceAddress(AddressFamily.INET, gateway, 32) for gateway in gateways),
    )  # fmt: skip


def make_ifb_interface(session: LabSession, usage: int) -> Interface:
    """Return the Interface of the IFB to which the upstream packets of a session are redirected for
    shaping."""
    access_stats = session.traffic.compute_stats(usage)
    stats = InterfaceStats(rx_bytes=access_stats.rx_bytes, rx_packets=access_stats.rx_packets)
    return _make_interface(session.ifindex + 1, session.ifb_device, InterfaceType.IFB, stats)


def list_network_routes(configuration: Configuration) -> Iterator[Route]:
    """Yield the routes of the gateway that do not belong to a session."""
    bgp, cgnat = configuration.bgp, configuration.cgnat
    uplinks = configuration.interfaces.uplinks
    if bgp is not None and uplinks:
        dev = uplinks[0]
        peers = _list_ipv4_peers(bgp)
        for peer in peers:
            network = str(_find_transfer_network(peer))
            yield _make_route(dst=network, dev=dev, protocol="kernel", scope="link")
        if peers:
            gateway = str(peers[0])
            yield _make_route(
                dst="0.0.0.0/0", gateway=gateway, dev=dev, protocol="bgp", scope="global", metric=20
            )
    if cgnat.enabled:
        dev, gateway, table = cgnat.handoff_interface, str(cgnat.handoff_gateway), str(cgnat.vrf_table)
        network = str(_find_transfer_network(cgnat.handoff_gateway))
        yield _make_route(dst=network, dev=dev, protocol="kernel", scope="link", table=table)
        yield _make_route(
            dst="0.0.0.0/0", gateway=gateway, dev=dev, protocol="static", scope="global", table=table
        )


def make_session_route(cgnat: Cgnat, session: Session) -> Route:
    """Return the host route of a session, in the routing table that the session's packets use."""
    return _make_route(
        dst=f"{session.summary.ip_address}/32",
        dev=session.interface,
        # With pppd, the kernel adds the route for the peer's address; with DHCP, the daemon adds the route.
        protocol="kernel" if session.is_pppoe else "static",
        scope="link",
        table=str(cgnat.vrf_table) if session.vrf_steered else "main",
        prefsrc=session.gateway,
        session_id=session.id,
    )


def make_prefix_route(session: Session) -> Route:
    """Return the route to the IPv6 network of a session's interface."""
    return _make_route(
        dst=str(session.summary.ipv6_prefix), dev=session.interface, protocol="kernel", scope="global",
        metric=_KERNEL_METRIC, session_id=session.id,
    )  # fmt: skip


def make_delegated_route(session: Session) -> Route:
    """Return the route to the IPv6 network behind a session's router."""
    return _make_route(
        dst=session.summary.delegated_prefixes[0], dev=session.interface, protocol="static", scope="global",
        metric=_STATIC_METRIC, session_id=session.id,
    )  # fmt: skip


def make_bgp_summary(bgp: Bgp | None, sessions: int, uptime: int, started: int) -> dict[str, Any]:
    """Return the output of FRR 8.4's `show bgp summary json`. All neighbours have been up for `uptime`
    seconds, since `started` (epoch seconds), and receive a host route for each session."""
    if bgp is None:
        return {}
    summary: dict[str, Any] = {}
    for version, family in ((4, "ipv4Unicast"), (6, "ipv6Unicast")):
        if neighbors := [each for each in bgp.neighbors if each.address.version == version]:
            summary[family] = _make_family_summary(bgp, neighbors, sessions, uptime, started)
    return summary


def _make_family_summary(
    bgp: Bgp, neighbors: Sequence[BgpNeighbor], sessions: int, uptime: int, started: int
) -> dict[str, Any]:
    peers = {
        str(neighbor.address): {
            "hostname": neighbor.description or str(neighbor.address),
            "remoteAs": neighbor.remote_as,
            "localAs": bgp.as_number,
            "version": 4,
            "msgRcvd": 2 + uptime // _KEEPALIVE_SECONDS,
            "msgSent": 2 + uptime // _KEEPALIVE_SECONDS,
            "tableVersion": 0,
            "outq": 0,
            "inq": 0,
            "peerUptime": _format_duration(uptime),
            "peerUptimeMsec": uptime * 1000,
            "peerUptimeEstablishedEpoch": started,
            "pfxRcd": _PREFIXES_RECEIVED,
            "pfxSnt": sessions,
            "state": "Established",
            "peerState": "OK",
            "connectionsEstablished": 1,
            "connectionsDropped": 0,
            "desc": neighbor.description,
            "idType": f"ipv{neighbor.address.version}",
        }
        for neighbor in neighbors
    }
    entries = sessions + _PREFIXES_RECEIVED
    return {
        "routerId": str(bgp.router_id),
        "as": bgp.as_number,
        "vrfId": 0,
        "vrfName": "default",
        "tableVersion": entries,
        "ribCount": entries,
        "ribMemory": entries * _RIB_ENTRY_BYTES,
        "peerCount": len(peers),
        "peerMemory": len(peers) * _PEER_BYTES,
        "peers": peers,
        "failedPeers": 0,
        "displayedPeers": len(peers),
        "totalPeers": len(peers),
        "dynamicPeers": 0,
        "bestPath": {"multiPathRelax": "false"},
    }


def _list_uplink_addresses(configuration: Configuration, name: str) -> tuple[InterfaceAddress, ...]:
    """Return the gateway's addresses on the uplink `name`: one address in the transfer network of each BGP
    peer."""
    peers: list[IPv4Address] = []
    if configuration.bgp is not None and name == configuration.interfaces.uplinks[0]:
        peers += _list_ipv4_peers(configuration.bgp)
    if configuration.cgnat.enabled and name == configuration.cgnat.handoff_interface:
        peers.append(configuration.cgnat.handoff_gateway)
    addresses = (
        next(host for host in _find_transfer_network(peer).hosts() if host != peer) for peer in peers
    )
    return tuple(InterfaceAddress(AddressFamily.INET, str(address), 30) for address in addresses)


def _list_ipv4_peers(bgp: Bgp) -> list[IPv4Address]:
    return [each.address for each in bgp.neighbors if isinstance(each.address, IPv4Address)]


def _find_transfer_network(peer: IPv4Address) -> IPv4Network:
    """Return the /30 network that contains the gateway and a BGP peer."""
    return IPv4Network((peer, 30), strict=False)


def _format_duration(seconds: int) -> str:
    """Return a duration in the format of FRR: 04:05:06 up to a day, 3d04h05m up to a week, then 02w3d04h."""
    minutes, hours, days = seconds // 60, seconds // 3600, seconds // 86400
    if not days:
        return f"{hours:02d}:{minutes % 60:02d}:{seconds % 60:02d}"
    if days < 7:
        return f"{days}d{hours % 24:02d}h{minutes % 60:02d}m"
    return f"{days // 7:02d}w{days % 7}d{hours % 24:02d}h"


def _make_interface(
    ifindex: int,
    name: str,
    type: InterfaceType,
    stats: InterfaceStats,
    *,
    mtu: int = _ETHERNET_MTU,
    parent: str | None = None,
    master: str | None = None,
    addresses: tuple[InterfaceAddress, ...] = (),
) -> Interface:
    # A locally administered address that differs from the addresses of the subscribers.
    own_address = (6 << 40 | ifindex).to_bytes(6).hex(":")
    return Interface(
        ifindex=ifindex,
        name=name,
        type=type,
        mac_address=_MAC_OF_TYPE_WITHOUT_CARRIER.get(type, own_address),
        mtu=mtu,
        admin_state=AdminState.UP,
        oper_state="unknown" if type in _MAC_OF_TYPE_WITHOUT_CARRIER else "up",
        parent=parent,
        master=master,
        addresses=addresses,
        stats=stats,
    )

"""Routes and BGP neighbours of the lab, derived from its sessions and its configuration."""

from collections.abc import Iterator
from ipaddress import IPv4Address
from typing import Any

from gateway_api.core.configuration.sections import Bgp, Cgnat, Configuration
from gateway_api.core.session import Session
from gateway_api.wire.core.network import Route

#: FRR 8.4.4 on Debian 12 gives a RIB entry about this many bytes.
_RIB_ENTRY_BYTES = 192
_PEER_BYTES = 741_464
#: The default route.
_PREFIXES_RECEIVED = 1
_KEEPALIVE_SECONDS = 60


def network_routes(configuration: Configuration) -> Iterator[Route]:
    """The routes that belong to no session."""
    bgp, cgnat = configuration.bgp, configuration.cgnat
    uplinks = configuration.interfaces.uplinks
    if bgp is not None and uplinks:
        for neighbor in bgp.neighbors:
            network = f"{_transfer_network(neighbor.address)}/30"
            yield _route(network, uplinks[0], "kernel", "link")
        if bgp.neighbors:
            gateway = str(bgp.neighbors[0].address)
            yield _route("0.0.0.0/0", uplinks[0], "bgp", "global", gateway=gateway, metric=20)
    if cgnat.enabled:
        network = f"{_transfer_network(cgnat.handoff_gateway)}/30"
        yield _route(network, cgnat.handoff_interface, "kernel", "link", table=str(cgnat.vrf_table))
        yield _route(
            "0.0.0.0/0", cgnat.handoff_interface, "static", "global",
            gateway=str(cgnat.handoff_gateway), table=str(cgnat.vrf_table),
        )  # fmt: skip


def session_route(cgnat: Cgnat, session: Session) -> Route:
    """The host route of a session, in the table that its packets use."""
    return _route(
        f"{session.summary.ip_address}/32",
        session.interface,
        # pppd has the kernel make the route with the peer's address; for DHCP the daemon does it.
        "kernel" if session.is_pppoe else "static",
        "link",
        table=str(cgnat.vrf_table) if session.vrf_steered else "main",
        prefsrc=session.gateway,
        session_id=session.id,
    )


def bgp_summary(bgp: Bgp | None, sessions: int, uptime: int, started: int) -> dict[str, Any]:
    """As FRR 8.4's `show bgp summary json`. All neighbours are up since `started` (epoch seconds), and
    receive a host route for each session."""
    if bgp is None or not bgp.neighbors:
        return {}
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
            "peerUptime": _frr_duration(uptime),
            "peerUptimeMsec": uptime * 1000,
            "peerUptimeEstablishedEpoch": started,
            "pfxRcd": _PREFIXES_RECEIVED,
            "pfxSnt": sessions,
            "state": "Established",
            "peerState": "OK",
            "connectionsEstablished": 1,
            "connectionsDropped": 0,
            "desc": neighbor.description,
            "idType": "ipv4",
        }
        for neighbor in bgp.neighbors
    }
    entries = sessions + _PREFIXES_RECEIVED
    return {
        "ipv4Unicast": {
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
    }


def own_address(peer: IPv4Address) -> str:
    """The gateway's address in the /30 of a peer's address."""
    network = _transfer_network(peer)
    return str(network + 1 if network + 1 != peer else network + 2)


def _transfer_network(peer: IPv4Address) -> IPv4Address:
    return IPv4Address(int(peer) & ~3)


def _frr_duration(seconds: int) -> str:
    # As FRR: hh:mm:ss for a day, then 3d04h05m, then 02w3d04h.
    minutes, hours, days = seconds // 60, seconds // 3600, seconds // 86400
    if not days:
        return f"{hours:02d}:{minutes % 60:02d}:{seconds % 60:02d}"
    if days < 7:
        return f"{days}d{hours % 24:02d}h{minutes % 60:02d}m"
    return f"{days // 7:02d}w{days % 7}d{hours % 24:02d}h"


def _route(
    dst: str,
    dev: str,
    protocol: str,
    scope: str,
    *,
    gateway: str | None = None,
    table: str = "main",
    metric: int | None = None,
    prefsrc: str | None = None,
    session_id: int | None = None,
) -> Route:
    return Route(
        dst=dst,
        gateway=gateway,
        dev=dev,
        protocol=protocol,
        scope=scope,
        type="unicast",
        table=table,
        metric=metric,
        prefsrc=prefsrc,
        session_id=session_id,
    )

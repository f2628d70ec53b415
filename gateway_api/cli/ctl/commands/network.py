"""Interfaces, VLANs, shaping, routes, BGP, CGNAT and the demux, as the gateway has them."""

from collections.abc import Callable
from typing import Any

import click

from gateway_api.cli.ctl.command import command
from gateway_api.cli.ctl.invocation import reads
from gateway_api.cli.ctl.lists import list_options, listing
from gateway_api.cli.ctl.results import Importance, ResultList, Sheet, ShownColumn, WholeRecord
from gateway_api.cli.ctl.texts import plain, size
from gateway_api.client.gateway import Record, RemoteGateway
from gateway_api.wire.core.faults import ListFaults
from gateway_api.wire.core.network import (
    GetDemuxState,
    ListCgnatSessions,
    ListInterfaces,
    ListQos,
    ListRoutes,
    ListVlans,
)


def _addresses(value: Any) -> str:
    return plain([f"{each['address']}/{each['prefix_length']}" for each in value or ()])


def _counter(name: str) -> Callable[[Record], str]:
    return lambda record: size((record.get("stats") or {}).get(name))


_NAME = ShownColumn("name", importance=Importance.IDENTITY)
_INTERFACES = (
    ShownColumn("ifindex", importance=Importance.LOW),
    _NAME,
    ShownColumn("type", importance=Importance.HIGH),
    ShownColumn("oper_state", importance=Importance.HIGH),
    ShownColumn("mtu", importance=Importance.LOW),
    ShownColumn("mac_address"),
    ShownColumn("parent"),
    ShownColumn("addresses", value=_addresses, importance=Importance.HIGH, wraps=True),
    WholeRecord("rx_bytes", value=_counter("rx_bytes")),
    WholeRecord("tx_bytes", value=_counter("tx_bytes")),
    ShownColumn("admin_state", importance=Importance.WIDE),
    ShownColumn("master", importance=Importance.WIDE),
)
_VLANS = (
    _NAME,
    ShownColumn("trunk"),
    ShownColumn("outer_vlan_id"),
    ShownColumn("vlan_id"),
    ShownColumn("protocol", importance=Importance.LOW),
    ShownColumn("oper_state", importance=Importance.HIGH),
    ShownColumn("session_count", importance=Importance.HIGH),
    ShownColumn("created_at"),
)
_QOS = (
    ShownColumn("session_id", importance=Importance.IDENTITY),
    ShownColumn("username", importance=Importance.IDENTITY),
    ShownColumn("interface"),
    ShownColumn("ifb_device", "IFB"),
    ShownColumn("rate_down_bps", "Down", importance=Importance.HIGH),
    ShownColumn("rate_up_bps", "Up", importance=Importance.HIGH),
    ShownColumn("overhead_profile"),
    ShownColumn("qdisc", importance=Importance.LOW),
    ShownColumn("overhead", importance=Importance.WIDE),
    ShownColumn("mpu", importance=Importance.WIDE),
    ShownColumn("rate_expires_at", importance=Importance.WIDE),
)
_PROFILES = (
    _NAME,
    ShownColumn("overhead"),
    ShownColumn("mpu"),
    ShownColumn("description", wraps=True),
)
_ROUTES = (
    ShownColumn("dst", importance=Importance.IDENTITY),
    ShownColumn("gateway", importance=Importance.HIGH),
    ShownColumn("dev", importance=Importance.HIGH),
    ShownColumn("protocol"),
    ShownColumn("table", importance=Importance.HIGH),
    ShownColumn("metric", importance=Importance.LOW),
    ShownColumn("session_id"),
    ShownColumn("scope", importance=Importance.WIDE),
    ShownColumn("type", importance=Importance.WIDE),
    ShownColumn("prefsrc", "Source address", importance=Importance.WIDE),
)
_CGNAT = (
    ShownColumn("id", importance=Importance.IDENTITY),
    ShownColumn("type", importance=Importance.LOW),
    ShownColumn("username", importance=Importance.IDENTITY),
    ShownColumn("ip_address", importance=Importance.HIGH),
    ShownColumn("interface"),
    ShownColumn("vrf_name"),
    ShownColumn("handoff_interface", "Handoff"),
    ShownColumn("handoff_gateway"),
    ShownColumn("started_at"),
    ShownColumn("vrf_table", importance=Importance.WIDE),
)
_DEMUX = (*_VLANS, ShownColumn("state", "Demux", importance=Importance.HIGH))
_NEIGHBOURS = (
    ShownColumn("address", "Neighbour", importance=Importance.IDENTITY),
    ShownColumn("family", importance=Importance.LOW),
    ShownColumn("hostname", "Host", importance=Importance.LOW),
    ShownColumn("remoteAs", "AS", importance=Importance.HIGH),
    ShownColumn("state", importance=Importance.IDENTITY),
    ShownColumn("peerUptime", "Uptime", importance=Importance.HIGH),
    ShownColumn("pfxRcd", "Prefixes in"),
    ShownColumn("pfxSnt", "Prefixes out"),
    ShownColumn("desc", "Description", wraps=True),
)
_FAULTS = (
    ShownColumn("kind", importance=Importance.IDENTITY),
    ShownColumn("object", importance=Importance.IDENTITY),
    ShownColumn("session_id", importance=Importance.HIGH),
    ShownColumn("reason", importance=Importance.IDENTITY, wraps=True),
    ShownColumn("since"),
)


@command()
@reads
@list_options(ListInterfaces)
def interfaces(gateway: RemoteGateway, **query: Any) -> ResultList:
    """Lists the interfaces of the gateway."""
    return listing(gateway, "/interfaces", "interfaces", _INTERFACES, **query)


@command()
@reads
@list_options(ListVlans)
def vlans(gateway: RemoteGateway, **query: Any) -> ResultList:
    """Lists the VLANs that the demux has made."""
    return listing(gateway, "/interfaces/vlans", "vlans", _VLANS, **query)


@command()
@reads
@click.option("--profiles", is_flag=True, help="Lists the overhead profiles instead.")
@list_options(ListQos)
def qos(gateway: RemoteGateway, profiles: bool, **query: Any) -> ResultList:
    """Lists the shapers of the sessions."""
    if profiles:
        return ResultList(gateway.get("/qos/profiles")["profiles"], _PROFILES)
    return listing(gateway, "/qos", "sessions", _QOS, **query)


@command()
@reads
@list_options(ListRoutes)
def routes(gateway: RemoteGateway, **query: Any) -> ResultList:
    """Lists the routes of the kernel."""
    return listing(gateway, "/routing/routes", "routes", _ROUTES, **query)


@command()
@reads
def bgp(gateway: RemoteGateway) -> ResultList:
    """Lists the BGP neighbours, as FRR shows them."""
    families = gateway.get("/routing/bgp/summary")
    return ResultList(
        [
            {"address": address, "family": family, **peer}
            for family, about in families.items()
            for address, peer in about.get("peers", {}).items()
        ],
        _NEIGHBOURS,
    )


@command()
@reads
@click.option("--stats", is_flag=True, help="Counts the sessions instead.")
@list_options(ListCgnatSessions)
def cgnat(gateway: RemoteGateway, stats: bool, **query: Any) -> ResultList | Sheet:
    """Lists the sessions that are steered to the CGNAT appliance."""
    if stats:
        return Sheet(gateway.get("/cgnat/stats"))
    return listing(gateway, "/cgnat/sessions", "sessions", _CGNAT, **query)


@command()
@reads
@click.option("--config", is_flag=True, help="Shows the demux section of the running configuration instead.")
@list_options(GetDemuxState)
def demux(gateway: RemoteGateway, config: bool, **query: Any) -> ResultList | Sheet:
    """Lists the VLANs of the demux with their state."""
    if config:
        return Sheet(gateway.get("/demux/config"))
    return listing(gateway, "/demux/state", "vlans", _DEMUX, **query)


@command()
@reads
@list_options(ListFaults)
def faults(gateway: RemoteGateway, **query: Any) -> ResultList:
    """Lists what the gateway could not repair in the data plane."""
    return listing(gateway, "/system/faults", "faults", _FAULTS, **query)

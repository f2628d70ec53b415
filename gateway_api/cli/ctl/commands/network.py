"""Interfaces, VLANs, shaping, routes, BGP, CGNAT and the demux, as the gateway has them."""

from typing import Any

import click

from gateway_api.cli.ctl.gateway import Gateway, Record
from gateway_api.cli.ctl.invocation import reads
from gateway_api.cli.ctl.lists import list_options, listing
from gateway_api.cli.ctl.results import Column, Listing, Sheet, Whole
from gateway_api.cli.ctl.texts import moment, plain, rate


def _addresses(value: Any) -> str:
    return plain([f"{each['address']}/{each['prefix_length']}" for each in value or ()])


def _traffic(record: Record) -> str:
    stats = record.get("stats") or {}
    return f"{stats.get('rx_bytes', 0)} / {stats.get('tx_bytes', 0)}"


_INTERFACES = (
    Column("ifindex", "INDEX"),
    Column("name"),
    Column("type"),
    Column("oper_state", "STATE"),
    Column("mtu"),
    Column("mac_address"),
    Column("parent"),
    Column("addresses", value=_addresses),
    Whole("stats", "BYTES IN / OUT", _traffic),
)
_VLANS = (
    Column("name"),
    Column("trunk"),
    Column("outer_vlan_id", "OUTER"),
    Column("vlan_id", "VLAN"),
    Column("protocol"),
    Column("oper_state", "STATE"),
    Column("session_count", "SESSIONS"),
    Column("created_at", "SINCE", moment),
)
_QOS = (
    Column("session_id", "SESSION"),
    Column("username"),
    Column("interface"),
    Column("ifb_device", "IFB"),
    Column("rate_down_bps", "DOWN", rate),
    Column("rate_up_bps", "UP", rate),
    Column("overhead_profile"),
    Column("qdisc"),
)
_PROFILES = (Column("name"), Column("overhead"), Column("mpu"), Column("description"))
_ROUTES = (
    Column("dst", "DESTINATION"),
    Column("gateway"),
    Column("dev", "INTERFACE"),
    Column("protocol"),
    Column("table"),
    Column("metric"),
    Column("session_id", "SESSION"),
)
_CGNAT = (
    Column("id"),
    Column("type"),
    Column("username"),
    Column("ip_address", "ADDRESS"),
    Column("interface"),
    Column("vrf_name", "VRF"),
    Column("handoff_interface", "HANDOFF"),
    Column("handoff_gateway", "NEXT HOP"),
    Column("started_at", "SINCE", moment),
)
_DEMUX = (*_VLANS[:6], Column("state", "DEMUX"), *_VLANS[6:])
_NEIGHBOURS = (
    Column("address", "NEIGHBOUR"),
    Column("family"),
    Column("hostname", "HOST"),
    Column("remoteAs", "AS"),
    Column("state"),
    Column("peerUptime", "UPTIME"),
    Column("pfxRcd", "PREFIXES IN"),
    Column("pfxSnt", "PREFIXES OUT"),
    Column("desc", "DESCRIPTION"),
)
_FAULTS = (
    Column("kind"),
    Column("object"),
    Column("session_id", "SESSION"),
    Column("reason"),
    Column("since", value=moment),
)


@click.command()
@reads
@list_options
def interfaces(gateway: Gateway, **query: Any) -> Listing:
    """Lists the interfaces of the gateway."""
    return listing(gateway, "/interfaces", "interfaces", _INTERFACES, **query)


@click.command()
@reads
@list_options
def vlans(gateway: Gateway, **query: Any) -> Listing:
    """Lists the VLANs that the demux has made."""
    return listing(gateway, "/interfaces/vlans", "vlans", _VLANS, **query)


@click.command()
@reads
@click.option("--profiles", is_flag=True, help="Lists the overhead profiles instead.")
@list_options
def qos(gateway: Gateway, profiles: bool, **query: Any) -> Listing:
    """Lists the shapers of the sessions."""
    if profiles:
        return Listing(gateway.get("/qos/profiles")["profiles"], _PROFILES)
    return listing(gateway, "/qos", "sessions", _QOS, **query)


@click.command()
@reads
@list_options
def routes(gateway: Gateway, **query: Any) -> Listing:
    """Lists the routes of the kernel."""
    return listing(gateway, "/routing/routes", "routes", _ROUTES, **query)


@click.command()
@reads
def bgp(gateway: Gateway) -> Listing:
    """Lists the BGP neighbours, as FRR shows them."""
    families = gateway.get("/routing/bgp/summary")
    return Listing(
        [
            {"address": address, "family": family, **peer}
            for family, about in families.items()
            for address, peer in about.get("peers", {}).items()
        ],
        _NEIGHBOURS,
    )


@click.command()
@reads
@click.option("--stats", is_flag=True, help="Counts the sessions instead.")
@list_options
def cgnat(gateway: Gateway, stats: bool, **query: Any) -> Listing | Sheet:
    """Lists the sessions that are steered to the CGNAT appliance."""
    if stats:
        return Sheet(gateway.get("/cgnat/stats"))
    return listing(gateway, "/cgnat/sessions", "sessions", _CGNAT, **query)


@click.command()
@reads
@click.option("--config", is_flag=True, help="Shows the demux section of the running configuration instead.")
@list_options
def demux(gateway: Gateway, config: bool, **query: Any) -> Listing | Sheet:
    """Lists the VLANs of the demux with their state."""
    if config:
        return Sheet(gateway.get("/demux/config"))
    return listing(gateway, "/demux/state", "vlans", _DEMUX, **query)


@click.command()
@reads
@list_options
def faults(gateway: Gateway, **query: Any) -> Listing:
    """Lists what the gateway could not repair in the data plane."""
    return listing(gateway, "/system/faults", "faults", _FAULTS, **query)

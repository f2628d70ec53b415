"""Interfaces, VLANs, shaping, routes, BGP, CGNAT and the demux, as the gateway has them."""

from typing import Any

import click

from gateway_api.cli.ctl.gateway import Record, RemoteGateway
from gateway_api.cli.ctl.invocation import reads
from gateway_api.cli.ctl.lists import list_options, listing
from gateway_api.cli.ctl.results import ResultList, Sheet, ShownColumn, WholeRecord
from gateway_api.cli.ctl.texts import moment, plain, rate


def _addresses(value: Any) -> str:
    return plain([f"{each['address']}/{each['prefix_length']}" for each in value or ()])


def _traffic(record: Record) -> str:
    stats = record.get("stats") or {}
    return f"{stats.get('rx_bytes', 0)} / {stats.get('tx_bytes', 0)}"


_INTERFACES = (
    ShownColumn("ifindex", "INDEX"),
    ShownColumn("name"),
    ShownColumn("type"),
    ShownColumn("oper_state", "STATE"),
    ShownColumn("mtu"),
    ShownColumn("mac_address"),
    ShownColumn("parent"),
    ShownColumn("addresses", value=_addresses),
    WholeRecord("stats", "BYTES IN / OUT", _traffic),
)
_VLANS = (
    ShownColumn("name"),
    ShownColumn("trunk"),
    ShownColumn("outer_vlan_id", "OUTER"),
    ShownColumn("vlan_id", "VLAN"),
    ShownColumn("protocol"),
    ShownColumn("oper_state", "STATE"),
    ShownColumn("session_count", "SESSIONS"),
    ShownColumn("created_at", "SINCE", moment),
)
_QOS = (
    ShownColumn("session_id", "SESSION"),
    ShownColumn("username"),
    ShownColumn("interface"),
    ShownColumn("ifb_device", "IFB"),
    ShownColumn("rate_down_bps", "DOWN", rate),
    ShownColumn("rate_up_bps", "UP", rate),
    ShownColumn("overhead_profile"),
    ShownColumn("qdisc"),
)
_PROFILES = (ShownColumn("name"), ShownColumn("overhead"), ShownColumn("mpu"), ShownColumn("description"))
_ROUTES = (
    ShownColumn("dst", "DESTINATION"),
    ShownColumn("gateway"),
    ShownColumn("dev", "INTERFACE"),
    ShownColumn("protocol"),
    ShownColumn("table"),
    ShownColumn("metric"),
    ShownColumn("session_id", "SESSION"),
)
_CGNAT = (
    ShownColumn("id"),
    ShownColumn("type"),
    ShownColumn("username"),
    ShownColumn("ip_address", "ADDRESS"),
    ShownColumn("interface"),
    ShownColumn("vrf_name", "VRF"),
    ShownColumn("handoff_interface", "HANDOFF"),
    ShownColumn("handoff_gateway", "NEXT HOP"),
    ShownColumn("started_at", "SINCE", moment),
)
_DEMUX = (*_VLANS[:6], ShownColumn("state", "DEMUX"), *_VLANS[6:])
_NEIGHBOURS = (
    ShownColumn("address", "NEIGHBOUR"),
    ShownColumn("family"),
    ShownColumn("hostname", "HOST"),
    ShownColumn("remoteAs", "AS"),
    ShownColumn("state"),
    ShownColumn("peerUptime", "UPTIME"),
    ShownColumn("pfxRcd", "PREFIXES IN"),
    ShownColumn("pfxSnt", "PREFIXES OUT"),
    ShownColumn("desc", "DESCRIPTION"),
)
_FAULTS = (
    ShownColumn("kind"),
    ShownColumn("object"),
    ShownColumn("session_id", "SESSION"),
    ShownColumn("reason"),
    ShownColumn("since", value=moment),
)


@click.command()
@reads
@list_options
def interfaces(gateway: RemoteGateway, **query: Any) -> ResultList:
    """Lists the interfaces of the gateway."""
    return listing(gateway, "/interfaces", "interfaces", _INTERFACES, **query)


@click.command()
@reads
@list_options
def vlans(gateway: RemoteGateway, **query: Any) -> ResultList:
    """Lists the VLANs that the demux has made."""
    return listing(gateway, "/interfaces/vlans", "vlans", _VLANS, **query)


@click.command()
@reads
@click.option("--profiles", is_flag=True, help="Lists the overhead profiles instead.")
@list_options
def qos(gateway: RemoteGateway, profiles: bool, **query: Any) -> ResultList:
    """Lists the shapers of the sessions."""
    if profiles:
        return ResultList(gateway.get("/qos/profiles")["profiles"], _PROFILES)
    return listing(gateway, "/qos", "sessions", _QOS, **query)


@click.command()
@reads
@list_options
def routes(gateway: RemoteGateway, **query: Any) -> ResultList:
    """Lists the routes of the kernel."""
    return listing(gateway, "/routing/routes", "routes", _ROUTES, **query)


@click.command()
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


@click.command()
@reads
@click.option("--stats", is_flag=True, help="Counts the sessions instead.")
@list_options
def cgnat(gateway: RemoteGateway, stats: bool, **query: Any) -> ResultList | Sheet:
    """Lists the sessions that are steered to the CGNAT appliance."""
    if stats:
        return Sheet(gateway.get("/cgnat/stats"))
    return listing(gateway, "/cgnat/sessions", "sessions", _CGNAT, **query)


@click.command()
@reads
@click.option("--config", is_flag=True, help="Shows the demux section of the running configuration instead.")
@list_options
def demux(gateway: RemoteGateway, config: bool, **query: Any) -> ResultList | Sheet:
    """Lists the VLANs of the demux with their state."""
    if config:
        return Sheet(gateway.get("/demux/config"))
    return listing(gateway, "/demux/state", "vlans", _DEMUX, **query)


@click.command()
@reads
@list_options
def faults(gateway: RemoteGateway, **query: Any) -> ResultList:
    """Lists what the gateway could not repair in the data plane."""
    return listing(gateway, "/system/faults", "faults", _FAULTS, **query)

"""Interfaces, VLANs, shaping, routes, BGP, CGNAT, the demux and faults, as the gateway has them."""

from collections.abc import Callable
from typing import Any

from gateway_contract.core.health import ListFaults
from gateway_contract.core.network import (
    GetDemuxState,
    ListCgnatSessions,
    ListInterfaces,
    ListQos,
    ListRoutes,
    ListVlans,
)
from gatewayctl.client.gateway import Record, RemoteGateway
from gatewayctl.command import command
from gatewayctl.invocation import reads
from gatewayctl.lists import Instead, ListCommand
from gatewayctl.results import Importance, ResultList, Sheet, ShownColumn, WholeRecord
from gatewayctl.texts import plain, size


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


_PROFILES_INSTEAD = Instead(
    "--profiles",
    "Lists the overhead profiles instead.",
    lambda gateway: ResultList(gateway.get("/qos/profiles")["profiles"], _PROFILES),
)
_STATS_INSTEAD = Instead(
    "--stats", "Counts the sessions instead.", lambda gateway: Sheet(gateway.get("/cgnat/stats"))
)
_CONFIG_INSTEAD = Instead(
    "--config",
    "Shows the demux section of the running configuration instead.",
    lambda gateway: Sheet(gateway.get("/demux/config")),
)

interfaces = ListCommand(
    "interfaces", "Lists the interfaces of the gateway.", "/interfaces", ListInterfaces, _INTERFACES
).command()
vlans = ListCommand(
    "vlans", "Lists the VLANs that the demux has made.", "/interfaces/vlans", ListVlans, _VLANS
).command()
qos = ListCommand(
    "qos", "Lists the shapers of the sessions.", "/qos", ListQos, _QOS, _PROFILES_INSTEAD
).command()
routes = ListCommand(
    "routes", "Lists the routes of the kernel.", "/routing/routes", ListRoutes, _ROUTES
).command()
cgnat = ListCommand(
    "cgnat", "Lists the sessions that are steered to the CGNAT appliance.", "/cgnat/sessions",
    ListCgnatSessions, _CGNAT, _STATS_INSTEAD,
).command()  # fmt: skip
demux = ListCommand(
    "demux", "Lists the VLANs of the demux with their state.", "/demux/state", GetDemuxState, _DEMUX,
    _CONFIG_INSTEAD,
).command()  # fmt: skip
faults = ListCommand(
    "faults", "Lists what the gateway could not repair in the data plane.", "/system/faults", ListFaults,
    _FAULTS,
).command()  # fmt: skip

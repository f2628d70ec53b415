"""Commands that list interfaces, VLANs, shapers, routes, BGP neighbours, CGNAT, the demux and faults."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import click

from gateway_client.gateway import Record, RemoteGateway
from gateway_contract.contract import Method, get_list_field
from gateway_contract.core.health import ListFaults
from gateway_contract.core.network import (
    GetDemuxState,
    ListCgnatSessions,
    ListInterfaces,
    ListQos,
    ListRoutes,
    ListVlans,
)
from gatewayctl import cli
from gatewayctl.completion import complete_condition, complete_order, get_fields
from gatewayctl.results import HIGH, IDENTITY, LOW, WIDE, Column, Result, ResultList, Sheet, add_wide_columns
from gatewayctl.texts import format_size, format_value


class Alternative(NamedTuple):
    """Flag of a list command that shows another result instead of the list. `read` returns this result."""

    flag: str
    help: str
    read: Callable[[RemoteGateway], Result]


def create_list_command(
    name: str,
    help: str,
    path: str,
    method: type[Method[Any]],
    columns: Sequence[Column],
    *,
    alternative: Alternative | None = None,
    hidden: Iterable[str] = (),
) -> cli.CliCommand:
    """Return a command that shows the list at a path of the API, with options for filters, order and length.
    `method` is the core's method for this list. A field of the records without a column becomes a column of
    `-o wide`, unless the field is in `hidden`."""
    fields = get_fields(method)
    all_columns = add_wide_columns(columns, fields, hidden)

    @click.option(
        "--filter", "filters", metavar="FIELD=VALUE", multiple=True, callback=cli.parse_filters,
        type=complete_condition(fields),
        help="Only records with this value, such as type=trunk; all filters must match.",
    )  # fmt: skip
    @click.option(
        "--sort", metavar="FIELD", type=complete_order(fields),
        help="A field of the records; -FIELD for descending order.",
    )  # fmt: skip
    @cli.create_limit_option()
    @cli.read_command
    def read_list(gateway: RemoteGateway, limit: int | None, filters: Record, **query: Any) -> Result:
        if alternative and query.pop("alternative"):
            return alternative.read(gateway)
        records = gateway.list_records(path, get_list_field(method), {**filters, **query}, limit)
        return ResultList(records, all_columns)

    if alternative:
        flag = click.option(alternative.flag, "alternative", is_flag=True, help=alternative.help)
        read_list = flag(read_list)
    return cli.command(name, help=help)(read_list)


def _format_addresses(record: Record) -> str:
    addresses = record["addresses"] or ()
    return format_value([f"{each['address']}/{each['prefix_length']}" for each in addresses])


def _format_counter(name: str) -> Callable[[Record], str]:
    return lambda record: format_size((record.get("stats") or {}).get(name))


_INTERFACE_COLUMNS = (
    Column("ifindex", LOW), Column("name", IDENTITY), Column("type", HIGH), Column("oper_state", HIGH),
    Column("mtu", LOW), Column("mac_address"), Column("parent"),
    Column("addresses", HIGH, value=_format_addresses, can_wrap=True),
    Column("rx_bytes", value=_format_counter("rx_bytes")),
    Column("tx_bytes", value=_format_counter("tx_bytes")),
    Column("admin_state", WIDE), Column("master", WIDE),
)  # fmt: skip
_VLAN_COLUMNS = (
    Column("name", IDENTITY), Column("trunk"), Column("outer_vlan_id"), Column("vlan_id"),
    Column("protocol", LOW), Column("oper_state", HIGH), Column("session_count", HIGH), Column("created_at"),
)  # fmt: skip
_SHAPER_COLUMNS = (
    Column("session_id", IDENTITY), Column("username", IDENTITY), Column("interface"),
    Column("ifb_device", title="IFB"), Column("rate_down_bps", HIGH, "Down"),
    Column("rate_up_bps", HIGH, "Up"), Column("overhead_profile"), Column("qdisc", LOW),
    Column("overhead", WIDE), Column("mpu", WIDE), Column("rate_expires_at", WIDE),
)  # fmt: skip
_PROFILE_COLUMNS = (
    Column("name", IDENTITY), Column("overhead"), Column("mpu"), Column("description", can_wrap=True),
)  # fmt: skip
_ROUTE_COLUMNS = (
    Column("dst", IDENTITY), Column("gateway", HIGH), Column("dev", HIGH), Column("protocol"),
    Column("table", HIGH), Column("metric", LOW), Column("session_id"), Column("scope", WIDE),
    Column("type", WIDE), Column("prefsrc", WIDE, "Source address"),
)  # fmt: skip
_CGNAT_COLUMNS = (
    Column("id", IDENTITY), Column("type", LOW), Column("username", IDENTITY), Column("ip_address", HIGH),
    Column("interface"), Column("vrf_name"), Column("handoff_interface", title="Handoff"),
    Column("handoff_gateway"), Column("started_at"), Column("vrf_table", WIDE),
)  # fmt: skip
_DEMUX_COLUMNS = (*_VLAN_COLUMNS, Column("state", HIGH, "Demux"))
_NEIGHBOUR_COLUMNS = (
    Column("address", IDENTITY, "Neighbour"), Column("family", LOW), Column("hostname", LOW, "Host"),
    Column("remoteAs", HIGH, "AS"), Column("state", IDENTITY), Column("peerUptime", HIGH, "Uptime"),
    Column("pfxRcd", title="Prefixes in"), Column("pfxSnt", title="Prefixes out"),
    Column("desc", title="Description", can_wrap=True),
)  # fmt: skip
_FAULT_COLUMNS = (
    Column("kind", IDENTITY), Column("object", IDENTITY), Column("session_id", HIGH),
    Column("reason", IDENTITY, can_wrap=True), Column("since"),
)  # fmt: skip


@cli.command()
@cli.read_command
def bgp(gateway: RemoteGateway) -> ResultList:
    """List the BGP neighbours, as FRR shows them."""
    families = gateway.get("/routing/bgp/summary")
    neighbours = [
        {"address": address, "family": family, **peer}
        for family, about in families.items()
        for address, peer in about.get("peers", {}).items()
    ]
    return ResultList(neighbours, _NEIGHBOUR_COLUMNS)


interfaces = create_list_command(
    "interfaces", "List the interfaces of the gateway.", "/interfaces", ListInterfaces, _INTERFACE_COLUMNS
)
vlans = create_list_command(
    "vlans", "List the VLANs that the demux has made.", "/interfaces/vlans", ListVlans, _VLAN_COLUMNS
)
qos = create_list_command(
    "qos", "List the shapers of the sessions.", "/qos", ListQos, _SHAPER_COLUMNS,
    alternative=Alternative(
        "--profiles", "List the overhead profiles instead.",
        lambda gateway: ResultList(gateway.get("/qos/profiles")["profiles"], _PROFILE_COLUMNS),
    ),
)  # fmt: skip
routes = create_list_command(
    "routes", "List the routes of the kernel.", "/routing/routes", ListRoutes, _ROUTE_COLUMNS
)
cgnat = create_list_command(
    "cgnat", "List the sessions that are steered to the CGNAT appliance.", "/cgnat/sessions",
    ListCgnatSessions, _CGNAT_COLUMNS,
    alternative=Alternative(
        "--stats", "Count the sessions instead.", lambda gateway: Sheet(gateway.get("/cgnat/stats"))
    ),
)  # fmt: skip
demux = create_list_command(
    "demux", "List the VLANs of the demux with their state.", "/demux/state", GetDemuxState, _DEMUX_COLUMNS,
    alternative=Alternative(
        "--config", "Show the demux section of the running configuration instead.",
        lambda gateway: Sheet(gateway.get("/demux/config")),
    ),
)  # fmt: skip
faults = create_list_command(
    "faults", "List what the gateway could not repair in the data plane.", "/system/faults", ListFaults,
    _FAULT_COLUMNS,
)  # fmt: skip

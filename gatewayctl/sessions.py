"""Sessions as tables show them, and their paths in the API."""

from collections.abc import Sequence
from urllib.parse import quote

import click

from gateway_contract.core.sessions import SessionSummary, SessionTypeFilter
from gatewayctl.client.gateway import Record
from gatewayctl.results import Importance, ResultList, ShownColumn, WholeRecord, completed
from gatewayctl.texts import plain

#: The types of sessions, as the API takes them; in any case, as tables show PPPoE.
TYPES = click.Choice([each.value for each in SessionTypeFilter], case_sensitive=False)


def session_path(id: object) -> str:
    return f"/subscribers/{quote(str(id), safe='')}"


def address(record: Record) -> str:
    """Return the address of a session: IPv4, or else IPv6."""
    return plain(record.get("ip_address") or record.get("ipv6_address"))


_ID = ShownColumn("id", importance=Importance.IDENTITY)
_TYPE = ShownColumn("type", importance=Importance.LOW)
_USERNAME = ShownColumn("username", importance=Importance.IDENTITY)
_ADDRESS = WholeRecord("ip_address", value=address, importance=Importance.HIGH)
_INTERFACE = ShownColumn("interface")
_DETAILS = (
    ShownColumn("source", importance=Importance.WIDE),
    ShownColumn("ipv6_prefix", importance=Importance.WIDE),
    ShownColumn("delegated_prefixes", importance=Importance.WIDE),
    ShownColumn("outer_vlan_id", importance=Importance.WIDE),
    ShownColumn("inner_vlan_id", importance=Importance.WIDE),
)


def _completed(*columns: ShownColumn) -> tuple[ShownColumn, ...]:
    # The address shows the IPv6 address too.
    return completed((*columns, *_DETAILS), SessionSummary.__struct_fields__, hidden=["ipv6_address"])


#: Of a list of all sessions.
COLUMNS = _completed(
    _ID,
    _TYPE,
    _USERNAME,
    _ADDRESS,
    _INTERFACE,
    ShownColumn("rate_down", "Down"),
    ShownColumn("rate_up", "Up"),
    ShownColumn("started_at"),
    ShownColumn("mac_address", importance=Importance.WIDE),
    ShownColumn("access_interface", importance=Importance.WIDE),
    ShownColumn("state", importance=Importance.WIDE),
)
#: Of sessions that were searched for by something that tells a subscriber's device or line.
FOUND = _completed(
    _ID,
    _TYPE,
    _USERNAME,
    _ADDRESS,
    ShownColumn("interface", importance=Importance.LOW),
    ShownColumn("mac_address", importance=Importance.HIGH),
    ShownColumn("access_interface", importance=Importance.HIGH),
    ShownColumn("state", importance=Importance.LOW),
    ShownColumn("started_at"),
    ShownColumn("rate_down", "Down", importance=Importance.WIDE),
    ShownColumn("rate_up", "Up", importance=Importance.WIDE),
)
_TOUCHED = (
    _ID,
    _TYPE,
    _USERNAME,
    _ADDRESS,
    ShownColumn("mac_address", importance=Importance.HIGH),
    _INTERFACE,
)


def touched(records: Sequence[Record]) -> ResultList:
    """Return the sessions that a command is about to change or end."""
    return ResultList(records, _TOUCHED)

"""Sessions as the user names them: by an id, or by the whole username, MAC or IP address; and as tables show
them."""

import re
from collections.abc import Callable, Sequence
from typing import Any
from urllib.parse import quote

import click
from click.shell_completion import CompletionItem

from gateway_api.base.texts import ip_address, mac_address
from gateway_api.cli.ctl.completion import offered
from gateway_api.cli.ctl.failures import CommandFailure, ExitStatus
from gateway_api.cli.ctl.results import Importance, ResultList, ShownColumn, WholeRecord, completed
from gateway_api.cli.ctl.texts import line, plain
from gateway_api.client.gateway import Record, RemoteGateway
from gateway_api.wire.core.sessions import SessionSummary, SessionTypeFilter

#: The types of sessions, as the API takes them.
TYPES = click.Choice([each.value for each in SessionTypeFilter])
_ID_TEXT = re.compile("[1-9][0-9]*", re.ASCII)
#: Ids that a completion offers.
_MOST_OFFERED = 1000


def is_id(text: str) -> bool:
    return _ID_TEXT.fullmatch(text) is not None


def session_path(id: object) -> str:
    return f"/subscribers/{quote(str(id), safe='')}"


def session_id(gateway: RemoteGateway, target: str) -> int:
    """The id of the only session that a target names. Raises ClientError."""
    if is_id(target):
        return int(target)
    found = gateway.pages("/subscribers", "sessions", exactly(target))
    if not found:
        raise CommandFailure(
            ExitStatus.REFUSED,
            f"no session of {line(target)}; gatewayctl subscribers find searches for parts",
        )
    if len(found) > 1:
        ids = ", ".join(str(each["id"]) for each in found)
        raise CommandFailure(
            ExitStatus.REFUSED, f"{line(target)} has several sessions: name one by its id: {ids}"
        )
    return int(found[0]["id"])


def last_session_id(gateway: RemoteGateway, target: str) -> int:
    """The id of the last session that a target had, also of one that has ended. Raises ClientError."""
    if is_id(target):
        return int(target)
    found = gateway.pages("/subscribers/history", "sessions", exactly(target), 1)
    if not found:
        raise CommandFailure(ExitStatus.REFUSED, f"the history has no session of {line(target)}")
    return int(found[0]["id"])


def exactly(target: str) -> Record:
    """The filter of the API for a target."""
    readers: dict[str, Callable[[str], str]] = {"ip_address": ip_address, "mac_address": mac_address}
    for name, read in readers.items():
        try:
            return {name: read(target)}
        except ValueError:
            continue
    return {"username": target}


class TargetType(click.ParamType[str]):
    """A target; completed with the ids and usernames of real sessions."""

    name = "target"

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        return offered(ctx, _sessions, incomplete)


def _sessions(gateway: RemoteGateway, incomplete: str) -> list[tuple[str, str]]:
    by_id = not incomplete or incomplete.isdecimal()
    query: dict[str, Any] = {} if by_id else {"search": incomplete}
    found = gateway.get("/subscribers", **query, limit=_MOST_OFFERED)["sessions"]
    if by_id:
        return [(str(each["id"]), each["username"] or each["mac_address"] or "") for each in found]
    return [(each["username"], f"session {each['id']}") for each in found if each["username"]]


def address(record: Record) -> str:
    """The address of a session: IPv4, or else IPv6."""
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
_TOUCHED = (_ID, _TYPE, _USERNAME, _ADDRESS, _INTERFACE)


def touched(records: Sequence[Record]) -> ResultList:
    """The sessions that a command is about to change or end."""
    return ResultList(records, _TOUCHED)

"""Commands about the past: present and ended sessions, failed sign-ons, and the audit log."""

from typing import Any

import click

from gateway_client.gateway import Record, RemoteGateway
from gateway_contract.history import PastSession
from gatewayctl import cli, sessions
from gatewayctl.completion import complete_logged_value
from gatewayctl.errors import NothingFound
from gatewayctl.results import HIGH, IDENTITY, LOW, WIDE, Column, ResultList, add_wide_columns
from gatewayctl.texts import escape, format_time, format_value
from gatewayctl.times import TIME_FORMS, TimeType


def _format_end(record: Record) -> str:
    """Return the end of a session as text. If the history has a hole, return the two times between which the
    session ended."""
    if record.get("ended_before") is not None:
        return f"{format_time(record['ended_after'])} to {format_time(record['ended_before'])}"
    return format_time(record["ended_at"])


def _format_start(record: Record) -> str:
    """Return the start of a session as text, with a mark if the gateway's clock was wrong at that time."""
    mark = " (clock unset)" if record.get("clock") == "unset" else ""
    return f"{format_time(record['started_at'])}{mark}"


_SESSION_COLUMNS = add_wide_columns(
    (
        Column("id", IDENTITY), Column("username", IDENTITY),
        Column("ip_address", HIGH, value=sessions.format_address), Column("mac_address", LOW),
        Column("access_interface"), Column("started_at", HIGH, value=_format_start),
        Column("ended_at", value=_format_end), Column("duration_seconds", LOW), Column("reason", HIGH),
        Column("type", WIDE), Column("author", WIDE), Column("bytes_in", WIDE), Column("bytes_out", WIDE),
        Column("ipv6_prefix", WIDE), Column("delegated_prefixes", WIDE),
    ),
    PastSession.__struct_fields__,
    hidden=(
        # The columns of the address, the start and the end show these fields.
        "ipv6_address", "clock", "ended_after", "ended_before",
        "interface", "outer_vlan_id", "inner_vlan_id", "packets_in", "packets_out",
    ),
)  # fmt: skip
_FLAPPING_COLUMNS = (
    Column("username", IDENTITY), Column("sessions", HIGH), Column("mac_address", LOW),
    Column("access_interface"), Column("started_at", title="Last start"),
    Column("reason", title="Last reason"),
)  # fmt: skip
_SIGN_ON_COLUMNS = (
    Column("username", IDENTITY), Column("mac_address", IDENTITY), Column("access_interface"),
    Column("reason", HIGH), Column("attempts"), Column("first_at", LOW), Column("last_at", HIGH),
)  # fmt: skip
_TIMELINE_COLUMNS = (
    Column("at", IDENTITY), Column("event"), Column("session_id", LOW), Column("author", title="By"),
    Column("message", IDENTITY, can_wrap=True),
)  # fmt: skip

_since_option = click.option("--since", type=TimeType(), help=f"Only from this time on: {TIME_FORMS}.")
_until_option = click.option("--until", type=TimeType(), help="Only before this time.")
#: The history may have millions of records, and the audit log a hundred thousand.
_limit_option = cli.create_limit_option(default=100, show_default=True)


@cli.command()
@click.argument("search", metavar="[TEXT]", required=False)
@click.option("--type", type=sessions.TYPE_CHOICE, help="Only sessions of this type.")
@click.option("--username", metavar="NAME", help="Only this username.")
@click.option("--ip", "ip_address", metavar="ADDRESS", help="Only this IPv4 or IPv6 address.")
@click.option("--mac", "mac_address", metavar="ADDRESS", help="Only this MAC address, in any spelling.")
@click.option("--interface", metavar="NAME", help="Only this interface or access interface.")
@click.option("--at", type=TimeType(), help=f"Only sessions that were up at this time: {TIME_FORMS}.")
@_since_option
@_until_option
@click.option(
    "--reason", metavar="REASON", type=complete_logged_value("/subscribers/history", "sessions", "reason"),
    help="Only sessions that ended for this reason, such as lost_carrier.",
)  # fmt: skip
@_limit_option
@cli.read_command
def history(gateway: RemoteGateway, limit: int, **query: Any) -> ResultList:
    """List sessions that are up or have ended, newest first. All conditions must match.

    TEXT is a part of a username, MAC address or interface, or an address. --ip with --at finds the subscriber
    that had an address at a time. Exit status 1 if no session matches.
    """
    records = gateway.list_records("/subscribers/history", "sessions", query, limit)
    if not records:
        raise NothingFound("no session matches")
    return ResultList(records, _SESSION_COLUMNS)


@cli.command("failed-sign-ons")
@click.argument("search", metavar="[TEXT]", required=False)
@click.option("--type", type=sessions.TYPE_CHOICE, help="Only for sessions of this type.")
@click.option("--username", metavar="NAME", help="Only this username.")
@click.option("--mac", "mac_address", metavar="ADDRESS", help="Only this MAC address, in any spelling.")
@click.option("--interface", metavar="NAME", help="Only this access interface.")
@_since_option
@_until_option
@click.option(
    "--reason", metavar="REASON",
    type=complete_logged_value("/subscribers/failed-sign-ons", "failures", "reason"),
    help="Only sign-ons that failed for this reason, such as rejected.",
)  # fmt: skip
@_limit_option
@cli.read_command
def failed_sign_ons(gateway: RemoteGateway, limit: int, **query: Any) -> ResultList:
    """List failed sign-ons with their reasons, newest first. All conditions must match.

    TEXT is a part of a username, MAC address or access interface. Repeated attempts are shown as one line.
    Exit status 1 if no sign-on matches.
    """
    records = gateway.list_records("/subscribers/failed-sign-ons", "failures", query, limit)
    if not records:
        raise NothingFound("no failed sign-on matches")
    return ResultList(records, _SIGN_ON_COLUMNS)


@cli.command()
@sessions.target_argument
@_limit_option
@cli.read_command
def timeline(gateway: RemoteGateway, target: sessions.Target, limit: int) -> ResultList:
    """List the events of a subscriber and who caused them, newest first. TARGET may be offline."""
    path = f"{sessions.get_session_path(sessions.find_past_session(gateway, target)['id'])}/timeline"
    return ResultList(gateway.list_records(path, "entries", {}, limit), _TIMELINE_COLUMNS)


@cli.command()
@_since_option
@_until_option
@cli.create_limit_option("The largest number of subscribers; 20 by default.")
@cli.read_command
def flapping(gateway: RemoteGateway, **query: Any) -> ResultList:
    """List the subscribers with the most sessions in a window of time, by default the last day."""
    return ResultList(gateway.get("/subscribers/flapping", **query)["subscribers"], _FLAPPING_COLUMNS)


def _describe_change(record: Record) -> str:
    """Return the message of an audit record, or the path of the request if there is no message. For a commit,
    add the difference between the configurations."""
    message = format_value(record.get("message") or record.get("path"))
    match record:
        case {"before": {"diff": str(diff)}, "after": {"committed": True}} if diff:
            return f"{message}: {escape(', '.join(diff.splitlines()))}"
    return message


_AUDIT_COLUMNS = (
    Column("at", IDENTITY), Column("user", IDENTITY), Column("role", LOW), Column("address"),
    Column("action", HIGH), Column("result", HIGH), Column("status", LOW), Column("count", LOW),
    Column("path", IDENTITY, "Path or message", _describe_change, can_wrap=True),
)  # fmt: skip


@cli.command()
@click.option("--user", metavar="NAME", help="Only records of this user.")
@click.option(
    "--action", metavar="ACTION", type=complete_logged_value("/audit", "records", "action"),
    help="Only this action, such as subscribers.change_rate.",
)  # fmt: skip
@click.option("--route", metavar="ROUTE", help="Only this route, such as /api/v1/subscribers/{id}/rate.")
@click.option("--result", metavar="RESULT", help="Only this result: done, refused, failed or unanswered.")
@_since_option
@_until_option
@_limit_option
@cli.read_command
def audit(gateway: RemoteGateway, limit: int, **query: Any) -> ResultList:
    """List the changes and the refused requests, newest first. Requires the role admin."""
    return ResultList(gateway.list_records("/audit", "records", query, limit), _AUDIT_COLUMNS)

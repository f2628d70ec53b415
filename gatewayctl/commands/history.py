"""The past: sessions of subscribers, also those that have ended, failed sign-ons, and the audit log."""

from typing import Any

import click

from gateway_contract.history import PastSession
from gatewayctl.client.gateway import Record, RemoteGateway
from gatewayctl.command import command
from gatewayctl.completion import recent
from gatewayctl.failures import CommandFailure, ExitStatus
from gatewayctl.invocation import reads
from gatewayctl.results import Importance, ResultList, ShownColumn, WholeRecord, completed
from gatewayctl.sessions import TYPES, address, session_path
from gatewayctl.targets import Target, TargetType, find_past_session
from gatewayctl.texts import line, moment, plain
from gatewayctl.times import FORMS, TimeType

#: Records without `--limit`: the history may have millions, and the audit log a hundred thousand.
_DEFAULT_LIMIT = 100


def _end(record: Record) -> str:
    """The end of a session, or between which times the history did not see it."""
    if record.get("ended_before") is not None:
        return f"{moment(record['ended_after'])} to {moment(record['ended_before'])}"
    return moment(record["ended_at"])


def _start(record: Record) -> str:
    """The start of a session, with a mark if a clock that was ahead gave it."""
    wrong = " (clock unset)" if record.get("clock") == "unset" else ""
    return f"{moment(record['started_at'])}{wrong}"


_SESSIONS = (
    ShownColumn("id", importance=Importance.IDENTITY),
    ShownColumn("username", importance=Importance.IDENTITY),
    WholeRecord("ip_address", value=address, importance=Importance.HIGH),
    ShownColumn("mac_address", importance=Importance.LOW),
    ShownColumn("access_interface"),
    WholeRecord("started_at", value=_start, importance=Importance.HIGH),
    WholeRecord("ended_at", value=_end),
    ShownColumn("duration_seconds", importance=Importance.LOW),
    ShownColumn("reason", importance=Importance.HIGH),
    ShownColumn("type", importance=Importance.WIDE),
    ShownColumn("author", importance=Importance.WIDE),
    ShownColumn("bytes_in", importance=Importance.WIDE),
    ShownColumn("bytes_out", importance=Importance.WIDE),
    ShownColumn("ipv6_prefix", importance=Importance.WIDE),
    ShownColumn("delegated_prefixes", importance=Importance.WIDE),
)
#: The first ones are in the columns of the address, the start and the end.
_HIDDEN = (
    *("ipv6_address", "clock", "ended_after", "ended_before"),
    *("interface", "outer_vlan_id", "inner_vlan_id", "packets_in", "packets_out"),
)
_FLAPPING = (
    ShownColumn("username", importance=Importance.IDENTITY),
    ShownColumn("sessions", importance=Importance.HIGH),
    ShownColumn("mac_address", importance=Importance.LOW),
    ShownColumn("access_interface"),
    ShownColumn("started_at", "Last start"),
    ShownColumn("reason", "Last reason"),
)
_FAILURES = (
    ShownColumn("username", importance=Importance.IDENTITY),
    ShownColumn("mac_address", importance=Importance.IDENTITY),
    ShownColumn("access_interface"),
    ShownColumn("reason", importance=Importance.HIGH),
    ShownColumn("attempts"),
    ShownColumn("first_at", importance=Importance.LOW),
    ShownColumn("last_at", importance=Importance.HIGH),
)
_TIMELINE = (
    ShownColumn("at", importance=Importance.IDENTITY),
    ShownColumn("event"),
    ShownColumn("session_id", importance=Importance.LOW),
    ShownColumn("author", "By"),
    ShownColumn("message", importance=Importance.IDENTITY, wraps=True),
)

_since = click.option("--since", metavar="TIME", type=TimeType(), help=f"From then on: {FORMS}.")
_until = click.option("--until", metavar="TIME", type=TimeType(), help="Before then.")

_limit = click.option(
    "--limit", metavar="N", type=click.IntRange(1), default=_DEFAULT_LIMIT, show_default=True,
    help="The most records.",
)  # fmt: skip


@command()
@reads
@click.argument("search", metavar="[TEXT]", required=False)
@click.option("--type", type=TYPES, help="Sessions of this type.")
@click.option("--username", metavar="NAME", help="With this username.")
@click.option("--ip", "ip_address", metavar="ADDRESS", help="With this IPv4 or IPv6 address.")
@click.option("--mac", "mac_address", metavar="ADDRESS", help="With this MAC address, in any spelling.")
@click.option("--interface", metavar="NAME", help="On this interface or access interface.")
@click.option("--at", metavar="TIME", type=TimeType(), help=f"That were up then: {FORMS}.")
@_since
@_until
@click.option(
    "--reason", metavar="REASON", type=recent("/subscribers/history", "sessions", "reason"),
    help="That ended for this reason, such as lost_carrier.",
)  # fmt: skip
@_limit
def history(gateway: RemoteGateway, limit: int, **query: Any) -> ResultList:
    """Lists sessions that are up or have ended, the newest first. All conditions must match.

    TEXT is a part of a username, MAC address or interface, or an address. --ip with --at says who had an
    address at a time. Exit status 1 if there is no such session.
    """
    found = gateway.pages("/subscribers/history", "sessions", query, limit)
    if not found:
        raise CommandFailure(ExitStatus.REFUSED, "no session matches")
    return ResultList(found, completed(_SESSIONS, PastSession.__struct_fields__, _HIDDEN))


@command("failed-sign-ons")
@reads
@click.argument("search", metavar="[TEXT]", required=False)
@click.option("--type", type=TYPES, help="For sessions of this type.")
@click.option("--username", metavar="NAME", help="With this username.")
@click.option("--mac", "mac_address", metavar="ADDRESS", help="With this MAC address, in any spelling.")
@click.option("--interface", metavar="NAME", help="On this access interface.")
@_since
@_until
@click.option(
    "--reason", metavar="REASON", type=recent("/subscribers/failed-sign-ons", "failures", "reason"),
    help="That failed for this reason, such as rejected.",
)  # fmt: skip
@_limit
def failed_sign_ons(gateway: RemoteGateway, limit: int, **query: Any) -> ResultList:
    """Lists sign-ons that failed, and why, the newest first. All conditions must match.

    TEXT is a part of a username, MAC address or access interface. Attempts that follow one another are one
    line. Exit status 1 if there is no such sign-on.
    """
    found = gateway.pages("/subscribers/failed-sign-ons", "failures", query, limit)
    if not found:
        raise CommandFailure(ExitStatus.REFUSED, "no failed sign-on matches")
    return ResultList(found, _FAILURES)


@command()
@reads
@click.argument("target", type=TargetType())
@_limit
def timeline(gateway: RemoteGateway, target: Target, limit: int) -> ResultList:
    """Lists what happened to a subscriber, and who did it, the newest first. TARGET may be offline."""
    path = f"{session_path(find_past_session(gateway, target)['id'])}/timeline"
    return ResultList(gateway.pages(path, "entries", {}, limit), _TIMELINE)


@command()
@reads
@_since
@_until
@click.option("--limit", metavar="N", type=click.IntRange(1), help="The most subscribers; 20 by default.")
def flapping(gateway: RemoteGateway, **query: Any) -> ResultList:
    """Lists the subscribers with the most sessions in a window of time, by default the last day."""
    return ResultList(gateway.get("/subscribers/flapping", **query)["subscribers"], _FLAPPING)


def _what(record: Record) -> str:
    """The message of the response, with the difference that a commit made."""
    said = plain(record.get("message") or record.get("path"))
    match record:
        case {"before": {"diff": str(diff)}, "after": {"committed": True}} if diff:
            return f"{said}: {line(', '.join(diff.splitlines()))}"
        case {"action": str(action), "before": {"cut": True}} if action.endswith(".commit"):
            return f"{said}; the difference is too long for the audit log: gatewayctl config compare has it"
    return said


_AUDIT = (
    ShownColumn("at", importance=Importance.IDENTITY),
    ShownColumn("user", importance=Importance.IDENTITY),
    ShownColumn("role", importance=Importance.LOW),
    ShownColumn("address"),
    ShownColumn("action", importance=Importance.HIGH),
    ShownColumn("result", importance=Importance.HIGH),
    ShownColumn("status", importance=Importance.LOW),
    ShownColumn("count", importance=Importance.LOW),
    WholeRecord("path", "Path or message", _what, Importance.IDENTITY, wraps=True),
)


@command()
@reads
@click.option("--user", metavar="NAME", help="Records of this user.")
@click.option(
    "--action", metavar="ACTION", type=recent("/audit", "records", "action"),
    help="Of this action, such as subscribers.change_rate.",
)  # fmt: skip
@click.option("--route", metavar="ROUTE", help="Of this route, such as /api/v1/subscribers/{id}/rate.")
@click.option("--result", metavar="RESULT", help="done, refused, failed or unanswered.")
@_since
@_until
@_limit
def audit(gateway: RemoteGateway, limit: int, **query: Any) -> ResultList:
    """Lists the changes and the refused requests, the newest first. Requires the role admin."""
    return ResultList(gateway.pages("/audit", "records", query, limit), _AUDIT)

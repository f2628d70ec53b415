"""The sessions of subscribers over time, also those that have ended, and failed sign-ons."""

from typing import Any

import click

from gateway_api.cli.ctl.failures import CommandFailure, ExitStatus
from gateway_api.cli.ctl.gateway import Record, RemoteGateway
from gateway_api.cli.ctl.invocation import reads
from gateway_api.cli.ctl.results import ResultList, ShownColumn, WholeRecord
from gateway_api.cli.ctl.sessions import address
from gateway_api.cli.ctl.targets import TargetType, last_session_id, session_path
from gateway_api.cli.ctl.texts import duration, moment

#: Records without `--limit`: the history may have millions.
_DEFAULT_LIMIT = 100
_TIME = "ISO 8601 with an offset, or epoch seconds"


def _end(record: Record) -> str:
    """The end of a session, or between which times the history did not see it."""
    if record.get("ended_before") is not None:
        return f"{moment(record['ended_after'])} to {moment(record['ended_before'])}"
    return moment(record["ended_at"])


_SESSIONS = (
    ShownColumn("id"),
    ShownColumn("username"),
    WholeRecord("ip_address", "ADDRESS", address),
    ShownColumn("mac_address"),
    ShownColumn("access_interface"),
    ShownColumn("started_at", "START", moment),
    WholeRecord("ended_at", "END", _end),
    ShownColumn("duration_seconds", "DURATION", duration),
    ShownColumn("reason"),
)
_FLAPPING = (
    ShownColumn("username"),
    ShownColumn("sessions"),
    ShownColumn("mac_address"),
    ShownColumn("access_interface"),
    ShownColumn("started_at", "LAST START", moment),
    ShownColumn("reason", "LAST REASON"),
)
_FAILURES = (
    ShownColumn("username"),
    ShownColumn("mac_address"),
    ShownColumn("access_interface"),
    ShownColumn("reason"),
    ShownColumn("attempts"),
    ShownColumn("first_at", "FIRST", moment),
    ShownColumn("last_at", "LAST", moment),
)
_TIMELINE = (
    ShownColumn("at", "TIME", moment),
    ShownColumn("event"),
    ShownColumn("session_id", "SESSION"),
    ShownColumn("author", "BY"),
    ShownColumn("message"),
)

_since = click.option("--since", metavar="TIME", help=f"From then on: {_TIME}.")
_until = click.option("--until", metavar="TIME", help="Before then.")

_limit = click.option(
    "--limit", metavar="N", type=click.IntRange(1), default=_DEFAULT_LIMIT, show_default=True,
    help="The most records.",
)  # fmt: skip


@click.command()
@reads
@click.argument("search", metavar="[TEXT]", required=False)
@click.option("--type", type=click.Choice(("pppoe", "dhcp")), help="Sessions of this type.")
@click.option("--username", metavar="NAME", help="With this username.")
@click.option("--ip", "ip_address", metavar="ADDRESS", help="With this IPv4 or IPv6 address.")
@click.option("--mac", "mac_address", metavar="ADDRESS", help="With this MAC address, in any spelling.")
@click.option("--interface", metavar="NAME", help="On this interface or access interface.")
@click.option("--at", metavar="TIME", help=f"That were up then: {_TIME}.")
@_since
@_until
@click.option("--reason", metavar="REASON", help="That ended for this reason, such as lost_carrier.")
@_limit
def history(gateway: RemoteGateway, limit: int, **query: Any) -> ResultList:
    """Lists sessions that are up or have ended, the newest first. All conditions must match.

    TEXT is a part of a username, MAC address or interface, or an address. --ip with --at says who had an
    address at a time. Exit status 1 if there is no such session.
    """
    found = gateway.pages("/subscribers/history", "sessions", query, limit)
    if not found:
        raise CommandFailure(ExitStatus.REFUSED, "no session matches")
    return ResultList(found, _SESSIONS)


@click.command("failed-sign-ons")
@reads
@click.argument("search", metavar="[TEXT]", required=False)
@click.option("--type", type=click.Choice(("pppoe", "dhcp")), help="For sessions of this type.")
@click.option("--username", metavar="NAME", help="With this username.")
@click.option("--mac", "mac_address", metavar="ADDRESS", help="With this MAC address, in any spelling.")
@click.option("--interface", metavar="NAME", help="On this access interface.")
@_since
@_until
@click.option("--reason", metavar="REASON", help="That failed for this reason, such as rejected.")
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


@click.command()
@reads
@click.argument("target", type=TargetType())
@_limit
def timeline(gateway: RemoteGateway, target: str, limit: int) -> ResultList:
    """Lists what happened to a subscriber, and who did it, the newest first. TARGET may be offline."""
    path = f"{session_path(last_session_id(gateway, target))}/timeline"
    return ResultList(gateway.pages(path, "entries", {}, limit), _TIMELINE)


@click.command()
@reads
@_since
@_until
@click.option("--limit", metavar="N", type=click.IntRange(1), help="The most subscribers; 20 by default.")
def flapping(gateway: RemoteGateway, **query: Any) -> ResultList:
    """Lists the subscribers with the most sessions in a window of time, by default the last day."""
    return ResultList(gateway.get("/subscribers/flapping", **query)["subscribers"], _FLAPPING)

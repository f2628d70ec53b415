"""The rates of sessions: of one, of all that match, or of those in a file."""

from typing import Any

import click

from gateway_api.base.texts import parse_rate
from gateway_api.cli.ctl import jobs
from gateway_api.cli.ctl.command import command
from gateway_api.cli.ctl.invocation import acts, dry_run_option, yes_option
from gateway_api.cli.ctl.rate_changes import RateChanges, change_all
from gateway_api.cli.ctl.results import Report
from gateway_api.cli.ctl.targets import TargetType, session_id, session_path
from gateway_api.cli.ctl.texts import moment
from gateway_api.cli.ctl.texts import rate as shown
from gateway_api.cli.ctl.times import DurationType, TimeType
from gateway_api.client.gateway import Record, RemoteGateway


def _with_unit(ctx: click.Context, param: click.Parameter, text: str | None) -> str | None:
    """To the API, a number alone is bits per second: somebody who types 250 means another unit."""
    if text is None:
        return None
    if text.strip().replace(".", "", 1).isdecimal():
        raise click.BadParameter("must have a unit, such as 250mbit", ctx, param)
    try:
        parse_rate(text)
    except ValueError as error:
        raise click.BadParameter(str(error), ctx, param) from error
    return text


@command()
@acts
@click.argument("target", required=False, type=TargetType())
@click.option(
    "--down",
    "rate_down",
    metavar="RATE",
    callback=_with_unit,
    help="Downstream rate, such as 50mbit or 1.5gbit.",
)
@click.option("--up", "rate_up", metavar="RATE", callback=_with_unit, help="Upstream rate.")
@click.option(
    "--for", "expires_in", metavar="TIME", type=DurationType(needs_unit=True),
    help="Then the former rates return: a number with s, m, h or d, such as 1h.",
)  # fmt: skip
@click.option(
    "--until", metavar="TIME", type=TimeType(ahead=True),
    help="The same, at a time: 06:00, tomorrow 06:00, 2026-12-24, ISO 8601 or epoch seconds.",
)  # fmt: skip
@jobs.where_options
@click.option("--file", metavar="FILE", help="Rates of many sessions, as CSV; - is standard input.")
@click.option("--skip-bad", is_flag=True, help="Ignores bad lines of the file.")
@click.option("--offline-ok", is_flag=True, help="An offline subscriber is not a failure.")
@dry_run_option
@yes_option
def rate(
    gateway: RemoteGateway,
    target: str | None,
    filter: Record,
    per_second: int | None,
    file: str | None,
    skip_bad: bool,
    offline_ok: bool,
    dry_run: bool,
    yes: bool,
    **given: Any,
) -> Report:
    """Changes the rates of a session, of all sessions that match, or of those in a file.

    A rate is a number and a unit, in bits per second: bit, kbit, mbit, gbit, tbit, or k, m, g, t.

    The first line of a file names its columns: username or id, down and up. What `subscribers list -o csv`
    prints is such a file. Empty lines and lines that begin with # are ignored. All lines are checked before
    the first change: a file with a bad line, or with no newline at its end, changes nothing. The command
    shows the former and the new rates, and asks. It writes the former rates to an undo file, which --file
    takes, and tells its path. After a failed change it continues with the next; it is safe to run it again.
    """
    terms = {name: given[name] for name in ("expires_in", "until") if given[name] is not None}
    rates = {name: given[name] for name in ("rate_down", "rate_up") if given[name] is not None}
    if file is not None:
        changes = RateChanges(gateway, file, skip_bad=skip_bad, offline_ok=offline_ok)
        return change_all(gateway, changes, terms, dry_run=dry_run, yes=yes)
    if filter:
        job = jobs.Job("/subscribers/rate", {"filter": filter, **rates, **terms}, per_second)
        return job.run(gateway, "Change their rates?", dry_run=dry_run, yes=yes)
    id = session_id(gateway, str(target))
    if dry_run:
        return _foreseen(gateway, id, {**rates, **terms})
    done = gateway.send("PUT", f"{session_path(id)}/rate", {**rates, **terms})
    until = f", until {moment(done['rate_expires_at'])}" if "rate_expires_at" in done else ""
    rates_now = f"{shown(done['rate_down_bps'])} down, {shown(done['rate_up_bps'])} up{until}"
    return Report(f"{done['message']}: {rates_now}", done)


def _foreseen(gateway: RemoteGateway, id: int, change: Record) -> Report:
    """Has the gateway check the change, without making it. Raises ClientError."""
    was = gateway.get(session_path(id))
    gateway.send("POST", "/subscribers/rate", {**change, "filter": {"search": str(id)}, "dry_run": True})
    rates = {
        way: (was[f"rate_{way}_bps"], parse_rate(change[f"rate_{way}"]))
        for way in ("down", "up")
        if f"rate_{way}" in change
    }
    moves = ", ".join(f"{way} from {shown(old)} to {shown(new)}" for way, (old, new) in rates.items())
    message = f"the rates of session {id} would change: {moves}"
    return Report(message, {"message": message, "id": id})

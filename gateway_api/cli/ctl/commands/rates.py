"""The rates of sessions: of one, of all that match, or of those in a file."""

from typing import Any

import click

from gateway_api.cli.ctl import jobs
from gateway_api.cli.ctl.gateway import Record, RemoteGateway
from gateway_api.cli.ctl.invocation import acts, dry_run_option, yes_option
from gateway_api.cli.ctl.rate_changes import RateChanges, change_all
from gateway_api.cli.ctl.results import Report
from gateway_api.cli.ctl.targets import TargetType, session_id, session_path
from gateway_api.cli.ctl.texts import moment, parse_duration
from gateway_api.cli.ctl.texts import rate as shown

_ONE_OF = "Name a session or --where with --down or --up, or a --file."


def _seconds(ctx: click.Context, param: click.Parameter, text: str | None) -> int | None:
    try:
        return None if text is None else parse_duration(text)
    except ValueError as error:
        raise click.BadParameter(str(error), ctx, param) from error


def _with_unit(ctx: click.Context, param: click.Parameter, text: str | None) -> str | None:
    """To the API, a number alone is bits per second: somebody who types 250 means another unit."""
    if text is not None and text.strip().replace(".", "", 1).isdecimal():
        raise click.BadParameter("must have a unit, such as 250mbit", ctx, param)
    return text


@click.command()
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
    "--for", "expires_in", metavar="TIME", callback=_seconds,
    help="Then the former rates return: a number with s, m, h or d, such as 1h.",
)  # fmt: skip
@click.option("--until", metavar="TIME", help="The same, at a time: ISO 8601 or epoch seconds.")
@jobs.where_options
@click.option("--file", metavar="FILE", help="Rates of many sessions, as CSV; - is standard input.")
@click.option("--skip-bad", is_flag=True, help="Ignores bad lines of the file.")
@click.option("--offline-ok", is_flag=True, help="An offline subscriber is not a failure.")
@dry_run_option
@yes_option
def rate(
    gateway: RemoteGateway,
    target: str | None,
    where: Record,
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

    The first line of a file is username,down,up or id,down,up. Empty lines and lines that begin with # are
    ignored. A file with a bad line, or with no newline at its end, changes nothing. After a failed change the
    command continues with the next; it is safe to run it again.
    """
    terms = {name: given[name] for name in ("expires_in", "until") if given[name] is not None}
    rates = {name: given[name] for name in ("rate_down", "rate_up") if given[name] is not None}
    if bool(target) + bool(where) + bool(file) != 1 or bool(file) == bool(rates):
        raise click.UsageError(_ONE_OF)
    if file is not None:
        changes = RateChanges(gateway, file, skip_bad=skip_bad, offline_ok=offline_ok)
        return change_all(gateway, changes, terms, dry_run)
    if where:
        job = jobs.Job("/subscribers/rate", {"filter": where, **rates, **terms}, per_second)
        return job.run(gateway, "Change their rates?", dry_run=dry_run, yes=yes)
    id = session_id(gateway, str(target))
    if dry_run:
        message = f"the rates of session {id} would change"
        return Report(message, {"message": message, "id": id})
    done = gateway.send("PUT", f"{session_path(id)}/rate", {**rates, **terms})
    until = f", until {moment(done['rate_expires_at'])}" if "rate_expires_at" in done else ""
    rates_now = f"{shown(done['rate_down_bps'])} down, {shown(done['rate_up_bps'])} up{until}"
    return Report(f"{done['message']}: {rates_now}", done)

"""The rates of sessions: of one, or of those in a file."""

from typing import Any

import click

from gateway_api.cli.ctl.gateway import Gateway
from gateway_api.cli.ctl.invocation import acts, dry_run_option
from gateway_api.cli.ctl.rate_changes import RateChanges, change_all
from gateway_api.cli.ctl.results import Report
from gateway_api.cli.ctl.targets import TargetType, session_id, session_path

_ONE_OF = "Name a session with --down or --up, or a --file."


@click.command()
@acts
@click.argument("target", required=False, type=TargetType())
@click.option("--down", "rate_down", metavar="RATE", help="Downstream rate, such as 50mbit or 1.5gbit.")
@click.option("--up", "rate_up", metavar="RATE", help="Upstream rate.")
@click.option("--file", metavar="FILE", help="Rates of many sessions, as CSV; - is standard input.")
@click.option("--skip-bad", is_flag=True, help="Ignores bad lines of the file.")
@click.option("--offline-ok", is_flag=True, help="An offline subscriber is not a failure.")
@dry_run_option
def rate(
    gateway: Gateway,
    target: str | None,
    file: str | None,
    skip_bad: bool,
    offline_ok: bool,
    dry_run: bool,
    **given: Any,
) -> Report:
    """Changes the rates of a session, or of those in a file.

    A rate is a number and a unit, in bits per second: bit, kbit, mbit, gbit, tbit, or k, m, g, t.

    The first line of a file is username,down,up or id,down,up. Empty lines and lines that begin with # are
    ignored. A file with a bad line, or with no newline at its end, changes nothing. After a failed change the
    command continues with the next; it is safe to run it again.
    """
    rates = {name: given[name] for name in ("rate_down", "rate_up") if given[name] is not None}
    if bool(target) + bool(file) != 1 or bool(file) == bool(rates):
        raise click.UsageError(_ONE_OF)
    if file is not None:
        changes = RateChanges(gateway, file, skip_bad=skip_bad, offline_ok=offline_ok)
        return change_all(gateway, changes, dry_run)
    id = session_id(gateway, str(target))
    if dry_run:
        message = f"the rates of session {id} would change"
        return Report(message, {"message": message, "id": id})
    done = gateway.send("PUT", f"{session_path(id)}/rate", rates)
    return Report(done["message"], done)

"""Backups of the running configuration, and their restoration."""

import json
import os
import re
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from gateway_api.base import durable
from gateway_api.cli.ctl import terminal
from gateway_api.cli.ctl.candidate import Candidate, effect
from gateway_api.cli.ctl.command import SHARED, command
from gateway_api.cli.ctl.difference import Missing, filled, operations, secret_paths
from gateway_api.cli.ctl.failures import CommandFailure, ExitStatus, complain
from gateway_api.cli.ctl.invocation import acts, confirm, dry_run_option, yes_option
from gateway_api.cli.ctl.prompts import STANDARD_INPUT
from gateway_api.cli.ctl.results import Report
from gateway_api.cli.ctl.times import DurationType
from gateway_api.client.gateway import Record, RemoteGateway

_LONGEST_COMMENT = 256


@command()
@acts
@click.argument("file", required=False)
@click.pass_context
def backup(ctx: click.Context, gateway: RemoteGateway, file: str | None) -> Report | None:
    """Writes the running configuration to FILE, as JSON.

    FILE is HOSTNAME-TIME.json by default; - is standard output. The API shows no secrets, so the file has
    none: keep them elsewhere, or restore on a gateway that still runs them. Their paths are on standard
    error.
    """
    if file == STANDARD_INPUT and f"{SHARED}output" in ctx.meta:
        raise click.UsageError("--output does not go with FILE -: a backup is always JSON.", ctx)
    document = gateway.get("/system/config")
    if secrets := sorted(secret_paths(document)):
        complain(["not in the backup, because the API shows no secrets:", *(f"  {path}" for path in secrets)])
    text = json.dumps(document, indent=2, sort_keys=True, ensure_ascii=False) + "\n"
    if file == STANDARD_INPUT:
        terminal.write(text)
        return None
    path = Path(file or _name_of(document))
    try:
        durable.replace(path, text.encode())
    except OSError as error:
        raise CommandFailure(ExitStatus.REFUSED, f"cannot write {path}: {error.strerror}") from error
    return Report(f"backed up {gateway.context.url} to {path}", {"file": str(path)})


def _name_of(document: Record) -> str:
    # A host name with a slash would choose another folder.
    name = re.sub("[^A-Za-z0-9.-]", "_", str(document["system"]["hostname"])).removeprefix(".")
    return f"{name}-{datetime.now(UTC):%Y%m%dT%H%M%SZ}.json"


@command()
@acts
@click.argument("file")
@click.option("--secrets", metavar="FILE", help='JSON of paths and secrets: {"radius.secret": "..."}.')
@click.option("--leave-out", is_flag=True, help="Leaves out what has a secret that is missing.")
@click.option(
    "--discard", is_flag=True, help="Discards changes in the candidate; otherwise they are an error."
)
@click.option(
    "--within", "confirm_seconds", metavar="TIME", type=DurationType(1, 86400), default="120s",
    show_default=True, help="The time to confirm: seconds, or with a unit such as 5m.",
)  # fmt: skip
@click.option(
    "--max-dropped", "max_sessions_dropped", metavar="N", type=click.IntRange(0),
    help="Fails if more sessions would end; by default, if more would end than were shown.",
)  # fmt: skip
@dry_run_option
@yes_option
def restore(
    gateway: RemoteGateway,
    file: str,
    secrets: str | None,
    leave_out: bool,
    discard: bool,
    confirm_seconds: int,
    max_sessions_dropped: int | None,
    dry_run: bool,
    yes: bool,
) -> Report:
    """Restores the configuration of a backup.

    It makes the backup the candidate, shows the difference and how many sessions end, asks for
    confirmation, and commits with a deadline: if you do not confirm by then, or cannot, the former
    configuration returns by itself.

    The file has no secrets. Running secrets stay as they are. A secret that does not run any more, for
    example of a deleted user, must be given or left out.
    """
    document, given = _backup_in(file), _secrets_in(secrets)
    _require_known(given, document)
    candidate = Candidate(gateway)
    # A dry run leaves the changes of others where they are, so it cannot show what would follow.
    remedy = "--discard without --dry-run" if dry_run else "--discard"
    candidate.require_clean(discard=discard and not dry_run, remedy=remedy)
    steps = list(operations(filled(document, given), candidate.read("")))
    _report_missing([each.path for each in steps if isinstance(each, Missing)], leave_out=leave_out)
    changes = [each for each in steps if not isinstance(each, Missing)]
    if not changes:
        return Report("the backup runs already; nothing to restore", {"changes": 0})
    try:
        candidate.stage(changes)
        difference = candidate.read("/compare")
        shown = _shown(difference)
        if dry_run:
            return shown
        for each in shown.text.split("\n"):
            terminal.tell(each)
        confirm("Commit this?", yes=yes, otherwise="nothing was restored")
        comment = f"restored from {Path(file).name}"
        body = {
            "comment": "".join(filter(str.isprintable, comment))[:_LONGEST_COMMENT],
            "confirm_seconds": confirm_seconds,
        }
        dropped = (
            max_sessions_dropped
            if max_sessions_dropped is not None
            else (difference["impact"] or {}).get("sessions_dropped")
        )
        committed = candidate.commit(body | ({} if dropped is None else {"max_sessions_dropped": dropped}))
    finally:
        candidate.unstage()
    complain([committed["message"]])
    confirm("Keep it?", yes=yes, otherwise="not confirmed: the former configuration returns by itself")
    done = gateway.send("POST", "/system/config/confirm")
    return Report(done["message"], {**committed, "message": done["message"]})


def _shown(difference: Record) -> Report:
    kept = "running secrets stay as they are, except those shown"
    text = "\n".join([difference["diff"].rstrip("\n"), *effect(difference), kept])
    return Report(text, difference, is_diff=True)


def _backup_in(file: str) -> Record:
    document = _json_in(file)
    match document:
        case {"system": dict(), "api": dict()}:
            return dict(document)
    raise CommandFailure(ExitStatus.USAGE, f"{file} is not a backup of a configuration")


def _secrets_in(file: str | None) -> dict[str, str]:
    if file is None:
        return {}
    found = _json_in(file)
    if not isinstance(found, dict) or not all(isinstance(value, str) for value in found.values()):
        raise CommandFailure(ExitStatus.USAGE, f"{file} is not an object of paths and secrets")
    return found


def _require_known(given: Mapping[str, str], document: Record) -> None:
    for path in given.keys() - set(secret_paths(document)):
        raise CommandFailure(ExitStatus.USAGE, f"the backup has no such secret: {path}")


def _json_in(file: str) -> Any:
    """Raises ClientError for a file that cannot be read; None for other text than JSON."""
    try:
        return json.loads(sys.stdin.read() if file == STANDARD_INPUT else Path(file).read_bytes())
    except OSError as error:
        raise CommandFailure(
            ExitStatus.USAGE, f"cannot read {file}: {os.strerror(error.errno or 0)}"
        ) from error
    except ValueError:
        return None


def _report_missing(missing: list[str], *, leave_out: bool) -> None:
    """Raises ClientError unless they are to be left out."""
    paths = [f"  {path}" for path in missing]
    if missing and not leave_out:
        reason = "these secrets are missing, and do not run either; use --secrets or --leave-out:"
        raise CommandFailure(ExitStatus.REFUSED, reason, *paths)
    if missing:
        complain(["left out, because these secrets are missing:", *paths])

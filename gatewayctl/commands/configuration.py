"""The configuration: to read it, edit the candidate, and commit it; to back it up and restore it."""

import json
import os
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from tempfile import mkstemp
from typing import Any

import click

from gateway_contract.base import durable
from gateway_contract.base.texts import has_unit, parse_path
from gateway_contract.core.configuration import LONGEST_COMMENT
from gatewayctl import terminal
from gatewayctl.candidate import (
    ROOT,
    RemoteCandidate,
    effect,
    filled,
    known,
    secret_paths,
    values,
)
from gatewayctl.client.gateway import Record, RemoteGateway
from gatewayctl.command import SHARED, command, group
from gatewayctl.completion import Offered
from gatewayctl.failures import CommandFailure, ExitStatus
from gatewayctl.invocation import acts, confirm, dry_run_option, reads, yes_option
from gatewayctl.results import Importance, Report, ResultList, Sheet, ShownColumn
from gatewayctl.terminal import STANDARD_INPUT, complain, first_line
from gatewayctl.texts import NEEDS_UNIT, compact, line, moment
from gatewayctl.times import DurationType

#: More levels of JSON than any configuration has.
_LEVELS = 32
_TOO_DEEP = "it is nested too deeply"
#: The running configuration, where a revision is meant.
_RUNNING = "0"
_ARCHIVE = (
    ShownColumn("revision", importance=Importance.IDENTITY),
    ShownColumn("committed_at", importance=Importance.IDENTITY),
    ShownColumn("author"),
    ShownColumn("comment", wraps=True),
)


def _paths(gateway: RemoteGateway, incomplete: str) -> Iterable[tuple[str, str]]:
    return [(path, compact(value)) for path, value in values(gateway.get(ROOT))]


def _settable(gateway: RemoteGateway, incomplete: str) -> Iterable[tuple[str, str]]:
    """The values of the running configuration; what it leaves out, with its meaning."""
    # Not above: every command of gatewayctl would wait for it.
    from gateway_contract.configuration import ROOT as CONFIGURATION
    from gateway_contract.configuration import Object, walk

    found = dict(_paths(gateway, incomplete))
    for path, field in walk(CONFIGURATION):
        # In capitals there is no path yet: it would have the key of an item.
        if not isinstance(field.kind, Object) and path == path.lower():
            found.setdefault(path, field.meaning)
    return found.items()


path_type = Offered(_paths)
revision_type = Offered(
    lambda gateway, _: [(str(each["revision"]), each["comment"] or "") for each in _revisions(gateway)]
)
revision_option = click.option(
    "--revision",
    metavar="N",
    type=revision_type,
    help="An archived revision: 1 is the newest, 0 the running configuration.",
)


@group()
def config() -> None:
    """Reads and changes the configuration.

    Changes go to the candidate, which all users share; a commit makes it the running configuration. A PATH is
    segments joined by dots, such as qos.default_down or api.users.alice.role. A segment with other characters
    than letters, digits, _ and - has double quotes: 'bgp.neighbors."10.255.0.2".remote_as'. So has a key of
    digits: 'subscribers.local."120".password'. Put single quotes around such a path: a shell removes double
    quotes. A number without quotes is the index of an item, 0 for the first one.
    """


@config.command()
@reads
@click.argument("path", required=False, type=path_type)
@click.option("--candidate", is_flag=True, help="The candidate instead of the running configuration.")
@revision_option
def show(
    gateway: RemoteGateway, path: str | None, candidate: bool, revision: str | None
) -> ResultList | Report:
    """Shows the running configuration, or the part of it at PATH. Secrets are masked."""
    document = _document(gateway, candidate, revision)
    held = [(each, value) for each, value in values(document) if path is None or _is_below(each, path)]
    if path is not None and not held:
        # Not above: every command of gatewayctl would wait for it.
        from gateway_contract.configuration import quotes_hint

        raise CommandFailure(ExitStatus.REFUSED, f"there is nothing at {path}{quotes_hint(parse_path(path))}")
    # A key of a list may have a line break.
    text = "\n".join(line(f"{each} = {compact(value)}") for each, value in held)
    return Report(text, document if path is None else _part(held, path))


def _document(gateway: RemoteGateway, candidate: bool, revision: str | None) -> Any:
    if revision not in (None, _RUNNING):
        return gateway.get(f"{ROOT}/archive/{revision}")["configuration"]
    return gateway.get(f"{ROOT}/candidate") if candidate else gateway.get(ROOT)


def _is_below(path: str, above: str) -> bool:
    try:
        segments = parse_path(above)
    except ValueError as error:
        raise CommandFailure(ExitStatus.USAGE, f"PATH: {error}") from error
    return parse_path(path)[: len(segments)] == segments


def _part(held: Sequence[tuple[str, Any]], path: str) -> Any:
    """The value at a path, or the values below it by their paths."""
    return held[0][1] if held[0][0] == path else dict(held)


@config.command("set")
@acts
@click.argument("path", type=Offered(_settable))
@click.argument("value")
def set_(gateway: RemoteGateway, path: str, value: str) -> Report:
    """Sets a value of the candidate.

    VALUE is text, which the gateway reads as the type of the field, or JSON of a list or an object, which may
    have null in it. A rate needs its unit. To remove a value, use `config delete`: null, none, ~ and an empty
    VALUE are refused where a value may be missing. With - VALUE is the first line of standard input, so that
    no secret is on the command line.
    """
    text = first_line(STANDARD_INPUT, "value") if value == STANDARD_INPUT else value
    _require_unit(path, text)
    found = RemoteCandidate(gateway).edit({"op": "set", "path": path, "value": text})
    return Report(line(f"{found} is set in the candidate"), {"path": found})


def _require_unit(path: str, text: str) -> None:
    """Raises ClientError for a rate that is a number alone."""
    # Not above: every command of gatewayctl would wait for it.
    from gateway_contract.configuration import Rate, field_at

    with suppress(ValueError):
        if isinstance(field_at(parse_path(path)).kind, Rate) and not has_unit(text):
            raise CommandFailure(ExitStatus.USAGE, f"{path}: {NEEDS_UNIT}")


@config.command()
@acts
@click.argument("path", type=path_type)
def delete(gateway: RemoteGateway, path: str) -> Report:
    """Deletes a value of the candidate."""
    found = RemoteCandidate(gateway).edit({"op": "delete", "path": path})
    return Report(line(f"{found} is deleted in the candidate"), {"path": found})


@config.command()
@acts
@click.option(
    "--file", metavar="FILE", type=click.File("rb"), help="The whole candidate as JSON; - is standard input."
)
def edit(gateway: RemoteGateway, file: Any) -> Report:
    """Edits the candidate in your editor, all changes or none.

    VISUAL or EDITOR names the editor. It gets the candidate as JSON, with masked secrets, which stay as they
    are. A change of another user meanwhile is an error.
    """
    candidate = RemoteCandidate(gateway)
    present = candidate.read("/candidate")
    if file is not None:
        candidate.replace(_parsed(file.read()))
        return _compared(candidate.read("/compare"))
    text = _edited(json.dumps(present, indent=2, ensure_ascii=False))
    if text is None:
        return Report("nothing was changed", {"changes": 0})
    try:
        candidate.replace(_parsed(text))
    except BaseException:
        _keep(text)
        raise
    return _compared(candidate.read("/compare"))


def _edited(text: str) -> str | None:
    if not sys.stdin.isatty():
        raise CommandFailure(ExitStatus.USAGE, "no terminal for the editor: use --file")
    return click.edit(text, extension=".json")


def _keep(text: str) -> None:
    """Store what somebody has typed in the editor, and say where."""
    try:
        descriptor, path = mkstemp(prefix="gatewayctl-", suffix=".json")
        with os.fdopen(descriptor, "w") as file:
            file.write(text)
    except OSError as error:
        complain([f"cannot keep your text: {error}"])
    else:
        complain([f"your text is in {path}: correct it, then `gatewayctl config edit --file {path}`"])


def _decoded(text: str | bytes) -> Any:
    """Return the value of a JSON text. Raises ValueError, also for a value of too many levels to walk
    through."""
    try:
        document = json.loads(text)
    except RecursionError as error:
        raise ValueError(_TOO_DEEP) from error
    level = [document]
    for _ in range(_LEVELS):
        level = [
            inner
            for each in level
            if isinstance(each, dict | list)
            for inner in (each.values() if isinstance(each, dict) else each)
        ]
    if level:
        raise ValueError(_TOO_DEEP)
    return document


def _parsed(text: str | bytes) -> Record:
    """Raises ClientError."""
    try:
        document = _decoded(text)
    except ValueError as error:
        raise CommandFailure(ExitStatus.USAGE, f"the configuration is not JSON: {error}") from error
    if not isinstance(document, dict):
        raise CommandFailure(ExitStatus.USAGE, "the configuration must be an object of JSON")
    return document


@config.command()
@reads
@click.argument("revision", metavar="[FROM]", required=False, type=revision_type)
@click.argument("to", metavar="[TO]", required=False, type=revision_type)
@click.option("--revision", "former", metavar="N", type=revision_type, help="As FROM.")
def compare(gateway: RemoteGateway, revision: str | None, to: str | None, former: str | None) -> Report:
    """Shows the changes of the candidate and the effect of a commit.

    FROM and TO are archived revisions, and 0 is the running configuration. With FROM, it shows the difference
    from there to the candidate; with TO, to there.
    """
    start = revision or former
    # Without a revision, the difference is from the running configuration.
    start = None if start == _RUNNING else start
    return _compared(gateway.get(f"{ROOT}/compare", revision=start, to=to))


def _compared(difference: Record) -> Report:
    shown = [difference["diff"].rstrip("\n"), *effect(difference)] if difference["diff"] else ["no changes"]
    if deadline := difference.get("confirm_deadline"):
        shown += [f"the last commit must be confirmed until {moment(deadline)}"]
        shown += ["a commit without --confirm-within confirms it too"] if difference["diff"] else []
    return Report("\n".join(shown), difference, is_diff=bool(difference["diff"]))


@config.command()
@acts
@click.option("--comment", help="Stands in the archive.")
@click.option(
    "--confirm-within", "confirm_seconds", metavar="TIME", type=DurationType(),
    help="The former configuration returns by itself unless `config confirm` comes in time: 120, or 5m.",
)  # fmt: skip
@click.option(
    "--max-dropped", "max_sessions_dropped", metavar="N", type=int,
    help="Fails if more sessions would end; by default, if more would end than were shown.",
)  # fmt: skip
@dry_run_option
@yes_option
def commit(gateway: RemoteGateway, dry_run: bool, yes: bool, **wanted: Any) -> Report:
    """Makes the candidate the running configuration, after it has shown the changes and asked."""
    candidate = RemoteCandidate(gateway)
    difference = candidate.read("/compare")
    shown = _compared(difference)
    if dry_run or not difference["diff"]:
        return shown
    confirm("Commit this?", yes=yes, otherwise="nothing was committed", about=shown)
    if wanted["max_sessions_dropped"] is None and difference["impact"] is not None:
        wanted["max_sessions_dropped"] = difference["impact"]["sessions_dropped"]
    done = candidate.commit({name: value for name, value in wanted.items() if value is not None})
    return Report(done["message"], done)


@config.command("confirm")
@acts
def confirm_(gateway: RemoteGateway) -> Report:
    """Confirms the last commit, so that it stays."""
    done = gateway.send("POST", f"{ROOT}/confirm")
    return Report(done["message"], done)


@config.command()
@acts
@click.argument("revision", type=revision_type)
def rollback(gateway: RemoteGateway, revision: str) -> Report:
    """Copies an archived revision to the candidate. 1 is the newest; a commit then makes it run."""
    number: Any = int(revision) if revision.isdecimal() else revision
    done = gateway.send("POST", f"{ROOT}/rollback", {"revision": number})
    return Report(done["message"], done)


@config.command()
@acts
@yes_option
def discard(gateway: RemoteGateway, yes: bool) -> Report:
    """Drops all changes of the candidate, after it has shown them and asked."""
    candidate = RemoteCandidate(gateway)
    difference = candidate.read("/compare")
    if not difference["diff"]:
        return Report("no changes", {"message": "no changes"})
    shown = Report(difference["diff"], difference)
    confirm("Discard these changes?", yes=yes, otherwise="nothing was discarded", about=shown)
    candidate.discard()
    return Report("the candidate is the running configuration", {"message": "discarded"})


@config.command()
@reads
@click.argument("revision", required=False, type=revision_type)
def archive(gateway: RemoteGateway, revision: str | None) -> ResultList | Sheet:
    """Lists the running configuration, which is 0, and the archived revisions, the newest first.

    Or shows REVISION: when and by whom it was committed, and its values.
    """
    if revision is None:
        return ResultList(_revisions(gateway), _ARCHIVE)
    if revision == _RUNNING:
        return Sheet({**_revisions(gateway)[0], "configuration": gateway.get(ROOT)})
    return Sheet(gateway.get(f"{ROOT}/archive/{revision}"))


def _revisions(gateway: RemoteGateway) -> list[Record]:
    """The commits of the running configuration and of the archived ones."""
    found = gateway.get(f"{ROOT}/archive")
    return [{"revision": int(_RUNNING), **found["running"]}, *found["revisions"]]


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
    document = gateway.get(ROOT)
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
    candidate = RemoteCandidate(gateway)
    running, document = candidate.read(""), filled(document, given)
    # A dry run leaves the changes of others where they are, so it cannot show what would follow.
    remedy = "--discard without --dry-run" if dry_run else "--discard"
    candidate.require_clean(discard=discard and not dry_run, remedy=remedy)
    held = set(secret_paths(running))
    _report_missing([path for path in secret_paths(document) if path not in held], leave_out=leave_out)
    document = known(document, running)
    if document == running:
        return Report("the backup runs already; nothing to restore", {"changes": 0})
    try:
        candidate.replace(document)
        difference = candidate.read("/compare")
        shown = _shown(difference)
        if dry_run:
            return shown
        for each in shown.text.split("\n"):
            terminal.tell(each)
        confirm("Commit this?", yes=yes, otherwise="nothing was restored")
        comment = f"restored from {Path(file).name}"
        body = {
            "comment": "".join(filter(str.isprintable, comment))[:LONGEST_COMMENT],
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
    done = gateway.send("POST", f"{ROOT}/confirm")
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
    """The value in a file of JSON, None for other text. Raises ClientError if it cannot be read."""
    try:
        return _decoded(sys.stdin.buffer.read() if file == STANDARD_INPUT else Path(file).read_bytes())
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

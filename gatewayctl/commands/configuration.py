"""Commands about the configuration: read, edit and commit the candidate, back up and restore.

Functions import the definition of the configuration, because this import takes a quarter of the time of
`gatewayctl --help`, which imports this module.
"""

import json
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from gateway_client.errors import ClientError, ExitStatus, Refused
from gateway_client.gateway import Record, RemoteGateway
from gateway_contract.base import durable
from gateway_contract.base.logs import MASK
from gateway_contract.base.texts import PathSegment, Segments, format_path, has_unit, parse_path
from gateway_contract.core.configuration import MAX_COMMENT_LENGTH
from gatewayctl import cli, terminal
from gatewayctl.completion import GatewayWords
from gatewayctl.errors import CommandError
from gatewayctl.results import IDENTITY, Column, Report, ResultList, Sheet
from gatewayctl.terminal import STANDARD_INPUT, print_errors, read_first_line
from gatewayctl.texts import UNIT_RULE, count_sessions, escape, escape_lines, format_json, format_time
from gatewayctl.times import DurationType

CONFIGURATION_PATH = "/system/config"
#: A valid configuration has fewer levels of nested JSON.
_MAX_LEVELS = 32
#: The number of the running configuration among the revisions.
_RUNNING_REVISION = "0"
_REVISION_COLUMNS = (
    Column("revision", IDENTITY), Column("committed_at", IDENTITY), Column("author"),
    Column("comment", can_wrap=True),
)  # fmt: skip

#: Prefix of the path of an error in the first operation.
_OPERATION_PREFIX_PATTERN = re.compile(r"^operations\.0(\.|: )")


class RemoteCandidate:
    """Candidate of a gateway. Each change sends the ETag of the previous response, so that the gateway
    refuses the change if another user has changed the candidate in between."""

    def __init__(self, gateway: RemoteGateway) -> None:
        self._gateway = gateway
        self._etag: str | None = None
        self._is_staged = False

    def read(self, path: str) -> Any:
        """Return the document at `path` below the configuration: `/candidate`, `/compare`, or `''` for the
        running configuration. Raises ClientError if the request fails."""
        return self._request("GET", path)

    def require_clean(self, *, discard: bool, remedy: str) -> None:
        """Check that the candidate has no changes. With `discard`, discard any changes. Raises CommandError
        if the candidate has changes and `discard` is False; the error suggests the option `remedy`. Raises
        ClientError if a request fails."""
        difference = self.read("/compare")
        if not difference["diff"]:
            return
        if not discard:
            raise CommandError(
                ExitStatus.REFUSED,
                f"the candidate has these changes; commit them, discard them, or use {remedy}:",
                *escape_lines(difference["diff"].rstrip("\n")),
            )
        self.discard()

    def discard(self) -> None:
        """Discard all changes of the candidate. Raises ClientError if the request fails."""
        self._request("POST", "/discard")
        self._is_staged = False

    def edit(self, operation: Record) -> str:
        """Stage an operation in the candidate. Return the path of the operation, in which the items of lists
        have keys instead of indexes. Raises ClientError if the request fails."""
        try:
            response = self._request("POST", "/edit", {"operations": [operation]})
        except Refused as error:
            # There is only one operation, so its number is left out.
            raise Refused(*(_OPERATION_PREFIX_PATTERN.sub("", line) for line in error.lines)) from error
        self._is_staged = True
        # An older gateway does not return the path.
        return str(response["paths"][0] if response else operation["path"])

    def replace(self, document: Record) -> None:
        """Replace the candidate by a whole configuration. Masked secrets keep their present values. Raises
        ClientError if the request fails."""
        self._request("PUT", "/candidate", document)
        self._is_staged = True

    def commit(self, body: Record) -> Record:
        """Commit the candidate, and return the data of the response. `body` has the fields of the request.
        Raises ClientError if the request fails."""
        response: Record = self._request("POST", "/commit", body)
        self._is_staged = False
        return response

    def unstage(self) -> None:
        """Discard the changes of the candidate if `edit` or `replace` has staged changes that are not
        committed yet. An error is printed, not raised."""
        if not self._is_staged:
            return
        try:
            self.discard()
        except ClientError as error:
            print_errors([*error.lines, "the changes stay in the candidate"])

    def _request(self, method: str, path: str, body: Record | None = None) -> Any:
        etag = None if method == "GET" else self._etag
        answer = self._gateway.request(method, CONFIGURATION_PATH + path, body, if_match=etag)
        self._etag = answer.etag
        return answer.data


def describe_effect(difference: Record) -> list[str]:
    """Return lines about the effect of a commit on services and sessions. `difference` is the API's
    comparison of two configurations. If the candidate is invalid, there are no lines."""
    impact = difference.get("impact")
    if impact is None:
        return []
    services = [f"{each['name']}: {each['action']}" for each in impact["services"]]
    ends = f"{count_sessions(impact['sessions_dropped'])} would end"
    # An older gateway has no such field.
    if held := impact.get("sessions_held"):
        ends += f"; with a deadline, {held} of them only when the commit is confirmed"
    return [*services, ends]


def drop_unknown_secrets(wanted: Any, present: Any) -> Any:
    """Return the wanted configuration without the masked secrets that have no value in the present
    configuration. An item or section that contains such a secret is removed if the present configuration does
    not have the item or section."""
    if isinstance(wanted, dict):
        fields = present if isinstance(present, dict) else {}
        return {
            key: drop_unknown_secrets(value, fields.get(key))
            for key, value in wanted.items()
            if key in fields or not [*list_secrets(value)]
        }
    if isinstance(wanted, list):
        items = dict(_list_keyed_items(present)) if isinstance(present, list) else {}
        return [
            drop_unknown_secrets(item, items.get(key))
            for key, item in _list_keyed_items(wanted)
            if key in items or not [*list_secrets(item)]
        ]
    return present if wanted == MASK else wanted


def list_secrets(document: Any) -> Iterator[str]:
    """Return the paths of all masked secrets of a configuration document."""
    return (path for path, value in list_values(document) if value == MASK)


def fill_secrets(document: Any, secrets: Mapping[str, str], path: Segments = ()) -> Any:
    """Return the document, in which each masked secret is replaced by the value of the same path in
    `secrets`. `path` is the path of the document in the configuration."""
    if document == MASK:
        return secrets.get(format_path(path), MASK)
    if isinstance(document, dict):
        return {
            key: fill_secrets(value, secrets, (*path, PathSegment(key))) for key, value in document.items()
        }
    if isinstance(document, list):
        return [fill_secrets(item, secrets, (*path, key)) for key, item in _list_keyed_items(document)]
    return document


def list_values(document: Any, path: Segments = ()) -> Iterator[tuple[str, Any]]:
    """Yield pairs of path and value for all values of a document, as in a diff of the API: an empty object or
    a list without objects counts as one value. `path` is the path of the document in the configuration."""
    if isinstance(document, dict) and document:
        for key, value in document.items():
            yield from list_values(value, (*path, PathSegment(key)))
    elif isinstance(document, list) and any(isinstance(item, dict) for item in document):
        for key, item in _list_keyed_items(document):
            yield from list_values(item, (*path, key))
    else:
        yield format_path(path), document


def _list_keyed_items(items: list[Any]) -> list[tuple[PathSegment, Any]]:
    """Return a pair of path segment and item for each item of a list. The segment is the key of the item, or
    the index of an item without a key."""
    return [(_get_key(item, index), item) for index, item in enumerate(items)]


def _get_key(item: Any, index: int) -> PathSegment:
    from gateway_contract.configuration import KEYS

    names = (name for name in KEYS if isinstance(item, dict) and isinstance(item.get(name), str))
    return next((PathSegment(item[name]) for name in names), PathSegment(str(index), index))


def _list_paths(gateway: RemoteGateway, incomplete: str) -> Iterable[tuple[str, str]]:
    return [(path, format_json(value)) for path, value in list_values(gateway.get(CONFIGURATION_PATH))]


def _list_settable_paths(gateway: RemoteGateway, incomplete: str) -> Iterable[tuple[str, str]]:
    """Return a pair for each path that can be set. The pair has the path and the value in the running
    configuration; if there is no value, the path and the meaning of the field."""
    from gateway_contract.configuration import ROOT, Object, walk

    words = dict(_list_paths(gateway, incomplete))
    for path, field in walk(ROOT):
        # A path in capitals, such as NAME, is a template: the key of an item replaces the capitals.
        if not isinstance(field.kind, Object) and path == path.lower():
            words.setdefault(path, field.meaning)
    return words.items()


def _list_revisions(gateway: RemoteGateway) -> list[Record]:
    """Return the records of the running configuration, as revision 0, and of the archived revisions. The
    records do not contain the configurations."""
    archive = gateway.get(f"{CONFIGURATION_PATH}/archive")
    return [{"revision": int(_RUNNING_REVISION), **archive["running"]}, *archive["revisions"]]


_path_type = GatewayWords(_list_paths)
_revision_type = GatewayWords(
    lambda gateway, _: [(str(each["revision"]), each["comment"] or "") for each in _list_revisions(gateway)]
)


@cli.group()
def config() -> None:
    """Read and change the configuration.

    Changes go to the candidate, which all users share; a commit makes it the running configuration. A PATH is
    segments joined by dots, such as qos.default_down or api.users.alice.role. A segment with other characters
    than letters, digits, _ and - has double quotes: 'bgp.neighbors."10.255.0.2".remote_as'. So has a key of
    digits: 'subscribers.local."120".password'. Put single quotes around such a path: a shell removes double
    quotes. A number without quotes is the index of an item, 0 for the first one.
    """


@config.command()
@click.argument("path", required=False, type=_path_type)
@click.option("--candidate", is_flag=True, help="The candidate instead of the running configuration.")
@click.option(
    "--revision", metavar="N", type=_revision_type,
    help="An archived revision: 1 is the newest, 0 the running configuration.",
)  # fmt: skip
@cli.read_command
def show(gateway: RemoteGateway, path: str | None, candidate: bool, revision: str | None) -> Report:
    """Show the running configuration, or the part of it at PATH. Secrets are masked."""
    if revision not in (None, _RUNNING_REVISION):
        document = gateway.get(f"{CONFIGURATION_PATH}/archive/{revision}")["configuration"]
    else:
        document = gateway.get(f"{CONFIGURATION_PATH}/candidate" if candidate else CONFIGURATION_PATH)
    try:
        parent = () if path is None else parse_path(path)
    except ValueError as error:
        raise CommandError(ExitStatus.USAGE, f"PATH: {error}") from error
    values = list(list_values(document))
    if path is not None:
        values = [(each, value) for each, value in values if parse_path(each)[: len(parent)] == parent]
        document = dict(values).get(path, dict(values))
    if path is not None and not values:
        from gateway_contract.configuration import quotes_hint

        raise CommandError(ExitStatus.REFUSED, f"there is nothing at {path}{quotes_hint(parent)}")
    # A key of a list may have a line break.
    text = "\n".join(escape(f"{each} = {format_json(value)}") for each, value in values)
    return Report(text, document)


@config.command("set")
@click.argument("path", type=GatewayWords(_list_settable_paths))
@click.argument("value")
@cli.change_command
def set_(gateway: RemoteGateway, path: str, value: str) -> Report:
    """Set a value of the candidate.

    VALUE is text, which the gateway reads as the type of the field, or JSON of a list or an object, which may
    have null in it. A rate needs its unit. To remove a value, use `config delete`: null, none, ~ and an empty
    VALUE are refused where a value may be missing. With - VALUE is the first line of standard input, so that
    no secret is on the command line.
    """
    from gateway_contract.configuration import Rate, field_at

    text = read_first_line(STANDARD_INPUT, "value") if value == STANDARD_INPUT else value
    with suppress(ValueError):
        if isinstance(field_at(parse_path(path)).kind, Rate) and not has_unit(text):
            raise CommandError(ExitStatus.USAGE, f"{path}: {UNIT_RULE}")
    path = RemoteCandidate(gateway).edit({"op": "set", "path": path, "value": text})
    return Report(escape(f"{path} is set in the candidate"), {"path": path})


@config.command()
@click.argument("path", type=_path_type)
@cli.change_command
def delete(gateway: RemoteGateway, path: str) -> Report:
    """Delete a value of the candidate."""
    path = RemoteCandidate(gateway).edit({"op": "delete", "path": path})
    return Report(escape(f"{path} is deleted in the candidate"), {"path": path})


@config.command()
@click.option(
    "--file", metavar="FILE", type=click.File("rb"), help="The whole candidate as JSON; - is standard input."
)
@cli.change_command
def edit(gateway: RemoteGateway, file: Any) -> Report:
    """Edit the candidate in your editor, all changes or none.

    VISUAL or EDITOR names the editor, which gets the candidate as JSON. Masked secrets keep their values. A
    change of another user meanwhile is an error.
    """
    candidate = RemoteCandidate(gateway)
    document = candidate.read("/candidate")
    if file is not None:
        text = file.read()
    elif sys.stdin.isatty():
        text = click.edit(json.dumps(document, indent=2, ensure_ascii=False), extension=".json")
    else:
        raise CommandError(ExitStatus.USAGE, "no terminal for the editor: use --file")
    if text is None:
        return Report("nothing was changed", {"changes": 0})
    try:
        candidate.replace(parse_configuration(text))
    except BaseException:
        if file is None:
            _store_text(text)
        raise
    return _report_difference(candidate.read("/compare"))


def _store_text(text: str) -> None:
    """Store the text that the user has edited in a file, and print the path of the file."""
    from tempfile import mkstemp

    try:
        descriptor, path = mkstemp(prefix="gatewayctl-", suffix=".json")
        with os.fdopen(descriptor, "w") as file:
            file.write(text)
    except OSError as error:
        print_errors([f"cannot keep your text: {error}"])
    else:
        print_errors([f"your text is in {path}: correct it, then `gatewayctl config edit --file {path}`"])


def _parse_json(text: str | bytes) -> Any:
    """Return the value of a JSON text. Raises ValueError if the JSON is invalid, or is nested too deeply for
    recursive functions."""
    try:
        document = json.loads(text)
        is_too_deep = _has_levels(document, _MAX_LEVELS)
    except RecursionError:
        is_too_deep = True
    if is_too_deep:
        raise ValueError("it is nested too deeply")
    return document


def _has_levels(document: Any, count: int) -> bool:
    """Return True if the objects and lists of a JSON value are nested `count` levels deep or more."""
    inner = document.values() if isinstance(document, dict) else document
    is_inner = isinstance(document, dict | list)
    return is_inner and (count == 0 or any(_has_levels(each, count - 1) for each in inner))


def parse_configuration(text: str | bytes) -> Record:
    """Return a configuration from a JSON text. Raises CommandError if the text is not a configuration."""
    try:
        document = _parse_json(text)
    except ValueError as error:
        raise CommandError(ExitStatus.USAGE, f"the configuration is not JSON: {error}") from error
    if not isinstance(document, dict):
        raise CommandError(ExitStatus.USAGE, "the configuration must be an object of JSON")
    return document


@config.command()
@click.argument("revision", metavar="[FROM]", required=False, type=_revision_type)
@click.argument("to", metavar="[TO]", required=False, type=_revision_type)
@click.option("--revision", "former", metavar="N", type=_revision_type, help="The same as FROM.")
@cli.read_command
def compare(gateway: RemoteGateway, revision: str | None, to: str | None, former: str | None) -> Report:
    """Show the changes of the candidate and the effect of a commit.

    FROM and TO are archived revisions, and 0 is the running configuration. With FROM, show the difference
    from FROM to the candidate; with TO, from FROM to TO.
    """
    start = revision or former
    # Without a revision, the API compares with the running configuration.
    start = None if start == _RUNNING_REVISION else start
    return _report_difference(gateway.get(f"{CONFIGURATION_PATH}/compare", revision=start, to=to))


def _report_difference(difference: Record) -> Report:
    diff = difference["diff"].rstrip("\n")
    lines = [diff, *describe_effect(difference)] if diff else ["no changes"]
    if deadline := difference.get("confirm_deadline"):
        lines.append(f"the last commit must be confirmed until {format_time(deadline)}")
        lines += ["a commit without --confirm-within confirms it too"] if diff else []
    return Report("\n".join(lines), difference, is_diff=bool(diff))


def _report_message(response: Record) -> Report:
    return Report(response["message"], response)


@config.command()
@click.option("--comment", help="A comment for the archive.")
@click.option(
    "--confirm-within", "confirm_seconds", type=DurationType(),
    help="The former configuration returns by itself unless `config confirm` comes in time: 120, or 5m.",
)  # fmt: skip
@click.option(
    "--max-dropped", "max_sessions_dropped", metavar="N", type=int,
    help="Fail if more sessions would end; by default, if more would end than were shown.",
)  # fmt: skip
@cli.dry_run_option
@cli.yes_option
@cli.change_command
def commit(gateway: RemoteGateway, dry_run: bool, yes: bool, **fields: Any) -> Report:
    """Make the candidate the running configuration, after showing the changes and asking."""
    candidate = RemoteCandidate(gateway)
    difference = candidate.read("/compare")
    report = _report_difference(difference)
    if dry_run or not difference["diff"]:
        return report
    cli.confirm("Commit this?", yes=yes, refusal="nothing was committed", report=report)
    return _report_message(candidate.commit(_format_commit(difference, **fields)))


def _format_commit(difference: Record, **fields: Any) -> Record:
    """Return the body of a commit request with the fields that are not None. Unless a field sets another
    limit, the commit fails if more sessions would end than the difference shows."""
    impact = difference["impact"] or {}
    body = {"max_sessions_dropped": impact.get("sessions_dropped")}
    body |= {name: value for name, value in fields.items() if value is not None}
    return {name: value for name, value in body.items() if value is not None}


@config.command("confirm")
@cli.change_command
def confirm_(gateway: RemoteGateway) -> Report:
    """Confirm the last commit, so that the gateway does not return to the former configuration."""
    return _report_message(gateway.send("POST", f"{CONFIGURATION_PATH}/confirm"))


@config.command()
@click.argument("revision", type=_revision_type)
@cli.change_command
def rollback(gateway: RemoteGateway, revision: str) -> Report:
    """Copy an archived revision to the candidate. Revision 1 is the newest. Commit the candidate to make the
    revision the running configuration."""
    number: Any = int(revision) if revision.isdecimal() else revision
    return _report_message(gateway.send("POST", f"{CONFIGURATION_PATH}/rollback", {"revision": number}))


@config.command()
@cli.yes_option
@cli.change_command
def discard(gateway: RemoteGateway, yes: bool) -> Report:
    """Discard all changes of the candidate, after showing them and asking."""
    candidate = RemoteCandidate(gateway)
    difference = candidate.read("/compare")
    if not difference["diff"]:
        return Report("no changes", {"message": "no changes"})
    report = Report(difference["diff"], difference)
    cli.confirm("Discard these changes?", yes=yes, refusal="nothing was discarded", report=report)
    candidate.discard()
    return Report("the candidate is the running configuration", {"message": "discarded"})


@config.command()
@click.argument("revision", required=False, type=_revision_type)
@cli.read_command
def archive(gateway: RemoteGateway, revision: str | None) -> ResultList | Sheet:
    """List the running configuration, which is revision 0, and the archived revisions, newest first.

    With REVISION, show the time, the author and the values of the revision.
    """
    if revision is None:
        return ResultList(_list_revisions(gateway), _REVISION_COLUMNS)
    if revision == _RUNNING_REVISION:
        return Sheet({**_list_revisions(gateway)[0], "configuration": gateway.get(CONFIGURATION_PATH)})
    return Sheet(gateway.get(f"{CONFIGURATION_PATH}/archive/{revision}"))


@cli.command()
@click.argument("file", required=False)
@cli.change_command
@click.pass_context
def backup(ctx: click.Context, gateway: RemoteGateway, file: str | None) -> Report | None:
    """Write the running configuration to FILE, as JSON.

    FILE is HOSTNAME-TIME.json by default; - is standard output. The API shows no secrets, so the file
    contains no secrets: store the secrets elsewhere, or restore on a gateway that still runs them. The paths
    of the secrets are printed on standard error.
    """
    if file == STANDARD_INPUT and cli.get_shared_option(ctx, "output"):
        raise click.UsageError("--output does not go with FILE -: a backup is always JSON.", ctx)
    document = gateway.get(CONFIGURATION_PATH)
    if secrets := sorted(list_secrets(document)):
        print_errors(
            ["not in the backup, because the API shows no secrets:", *(f"  {path}" for path in secrets)]
        )
    text = json.dumps(document, indent=2, sort_keys=True, ensure_ascii=False) + "\n"
    if file == STANDARD_INPUT:
        terminal.write(text)
        return None
    # A slash in the host name would select another folder.
    name = re.sub("[^A-Za-z0-9.-]", "_", str(document["system"]["hostname"])).removeprefix(".")
    path = Path(file or f"{name}-{datetime.now(UTC):%Y%m%dT%H%M%SZ}.json")
    try:
        durable.replace(path, text.encode())
    except OSError as error:
        raise CommandError(ExitStatus.REFUSED, f"cannot write {path}: {error.strerror}") from error
    return Report(f"backed up {gateway.context.url} to {path}", {"file": str(path)})


@cli.command()
@click.argument("file")
@click.option("--secrets", metavar="FILE", help='JSON of paths and secrets: {"radius.secret": "..."}.')
@click.option("--leave-out", is_flag=True, help="Leave out items whose secret is missing.")
@click.option(
    "--discard", is_flag=True, help="Discard changes in the candidate; otherwise they are an error."
)
@click.option(
    "--within", "confirm_seconds", type=DurationType(86_400), default="120s",
    show_default=True, help="The time to confirm: seconds, or with a unit such as 5m.",
)  # fmt: skip
@click.option(
    "--max-dropped", "max_sessions_dropped", metavar="N", type=click.IntRange(0),
    help="Fail if more sessions would end; by default, if more would end than were shown.",
)  # fmt: skip
@cli.dry_run_option
@cli.yes_option
@cli.change_command
def restore(
    gateway: RemoteGateway,
    file: str,
    secrets: str | None,
    leave_out: bool,
    discard: bool,
    dry_run: bool,
    yes: bool,
    **fields: Any,
) -> Report:
    """Restore the configuration of a backup.

    The command makes the backup the candidate, shows the difference and how many sessions end, asks for
    confirmation, and commits with a deadline: if you do not confirm by then, or cannot, the former
    configuration returns by itself.

    The file has no secrets. Running secrets stay as they are. A secret that does not run any more, for
    example of a deleted user, must be given or left out.
    """
    document = _read_backup(file, secrets)
    candidate = RemoteCandidate(gateway)
    running = candidate.read("")
    # A dry run must not discard the changes of other users, so it cannot show the difference.
    remedy = "--discard without --dry-run" if dry_run else "--discard"
    candidate.require_clean(discard=discard and not dry_run, remedy=remedy)
    present = set(list_secrets(running))
    missing = [f"  {path}" for path in list_secrets(document) if path not in present]
    if missing and not leave_out:
        reason = "these secrets are missing, and do not run either; use --secrets or --leave-out:"
        raise CommandError(ExitStatus.REFUSED, reason, *missing)
    if missing:
        print_errors(["left out, because these secrets are missing:", *missing])
    document = drop_unknown_secrets(document, running)
    if document == running:
        return Report("the backup runs already; nothing to restore", {"changes": 0})
    try:
        candidate.replace(document)
        difference = candidate.read("/compare")
        note = "running secrets stay as they are, except those shown"
        text = "\n".join([difference["diff"].rstrip("\n"), *describe_effect(difference), note])
        if dry_run:
            return Report(text, difference, is_diff=True)
        for each in text.split("\n"):
            terminal.tell(each)
        cli.confirm("Commit this?", yes=yes, refusal="nothing was restored")
        comment = "".join(filter(str.isprintable, f"restored from {Path(file).name}"))[:MAX_COMMENT_LENGTH]
        commit_response = candidate.commit(_format_commit(difference, comment=comment, **fields))
    finally:
        candidate.unstage()
    print_errors([commit_response["message"]])
    cli.confirm("Keep it?", yes=yes, refusal="not confirmed: the former configuration returns by itself")
    response = gateway.send("POST", f"{CONFIGURATION_PATH}/confirm")
    return Report(response["message"], {**commit_response, "message": response["message"]})


def _read_backup(file: str, secrets_file: str | None) -> Record:
    """Return the configuration of a backup file, completed with the secrets of the secrets file. Raises
    CommandError if a file cannot be read or has the wrong content, or if the backup does not have one of the
    secrets."""
    document = _read_json(file)
    match document:
        case {"system": dict(), "api": dict()}:
            pass
        case _:
            raise CommandError(ExitStatus.USAGE, f"{file} is not a backup of a configuration")
    secrets = {} if secrets_file is None else _read_json(secrets_file)
    if not isinstance(secrets, dict) or not all(isinstance(value, str) for value in secrets.values()):
        raise CommandError(ExitStatus.USAGE, f"{secrets_file} is not an object of paths and secrets")
    for path in secrets.keys() - set(list_secrets(document)):
        raise CommandError(ExitStatus.USAGE, f"the backup has no such secret: {path}")
    filled: Record = fill_secrets(document, secrets)
    return filled


def _read_json(file: str) -> Any:
    """Return the value of a JSON file; None if the content is not JSON. Raises CommandError if the file
    cannot be read."""
    try:
        return _parse_json(sys.stdin.buffer.read() if file == STANDARD_INPUT else Path(file).read_bytes())
    except OSError as error:
        reason = os.strerror(error.errno or 0)
        raise CommandError(ExitStatus.USAGE, f"cannot read {file}: {reason}") from error
    except ValueError:
        return None

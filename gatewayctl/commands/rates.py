"""The rates of sessions: of one, of all that match, or of those in a file.

The file is CSV. Its first line names the columns: `username` or `id`, `down` and `up`, also as
`subscribers list -o csv` calls them. It is read whole before the first change: a truncated rate is another
valid rate.
"""

import os
import re
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple, cast

import click

from gateway_contract.base import durable
from gateway_contract.base.texts import has_unit, parse_rate
from gateway_contract.core.sessions import SessionSummary
from gatewayctl.client.errors import ClientError, NoResponse
from gatewayctl.client.gateway import Record, RemoteGateway
from gatewayctl.command import command
from gatewayctl.commands import jobs
from gatewayctl.failures import CommandFailure, ExitStatus, status_of
from gatewayctl.invocation import acts, confirm, dry_run_option, yes_option
from gatewayctl.results import (
    Importance,
    Report,
    ResultList,
    ShownColumn,
    WholeRecord,
    csv_line,
)
from gatewayctl.sessions import address, session_path
from gatewayctl.targets import Target, TargetType, describe_subscriber, find_session, is_id
from gatewayctl.terminal import STANDARD_INPUT, Progress, complain
from gatewayctl.texts import line, moment, rate_with_unit, sessions
from gatewayctl.texts import rate as shown
from gatewayctl.times import DurationType, TimeType

#: What may separate the cells of a line, with its name in a message.
_SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs"}
#: The columns that are read, by their names here and in a list of sessions.
_HEADS = {
    "id": "id", "username": "username", "down": "down", "rate_down": "down", "up": "up", "rate_up": "up",
}  # fmt: skip
#: A list has bits per second there, without a unit.
_IN_BITS = frozenset(("rate_down", "rate_up"))
#: A list has them beside these. The column of `--all` is not among them: ids are of one gateway.
_IGNORED = frozenset(SessionSummary.__struct_fields__) - _HEADS.keys()
_HEAD_RULE = (
    "must name the columns: username or id, down and up, as subscribers list -o csv does, separated by "
    "commas, semicolons or tabs"
)

_Cells = Mapping[str, str]


@dataclass(frozen=True)
class RateRow:
    """The rates of the sessions of a username, or of the session of an id. With both, the session must still
    be of that subscriber. Rates are in bits per second."""

    number: int
    id: int | None
    username: str | None
    down: int
    up: int

    @property
    def who(self) -> str:
        return line(self.username or f"session {self.id}")


@dataclass(frozen=True)
class BadRow:
    number: int
    reason: str


def read(file: str) -> list[RateRow | BadRow]:
    """Raises ClientError for a file that is empty or incomplete."""
    try:
        data = sys.stdin.buffer.read() if file == STANDARD_INPUT else Path(file).read_bytes()
        text = data.decode("utf-8-sig")
    except (OSError, ValueError) as error:
        raise CommandFailure(ExitStatus.USAGE, f"cannot read {file}: {error}") from error
    if not text:
        raise CommandFailure(ExitStatus.USAGE, f"{file} is empty")
    if not text.endswith("\n"):
        reason = "no newline at the end: is the file complete? Nothing was changed"
        raise CommandFailure(ExitStatus.USAGE, reason)
    return list(_rows(each.rstrip("\r") for each in text.split("\n")))


def written(sessions: Iterable[Record]) -> str:
    """The present rates of sessions of a list, as such a file."""
    lines = [csv_line(("id", "username", "down", "up"))]
    for each in sessions:
        name = each["username"] or ""
        # A cell ends with its line: the id alone names a session with such a name.
        kept = name if name.isprintable() else ""
        lines.append(csv_line((str(each["id"]), kept, f"{each['rate_down']}bit", f"{each['rate_up']}bit")))
    return "".join(f"{each}\n" for each in lines)


def _rows(texts: Iterable[str]) -> Iterator[RateRow | BadRow]:
    head: _Head | None = None
    seen: dict[int | str, int] = {}
    for number, text in enumerate(texts, 1):
        if not text.strip() or text.lstrip().startswith("#"):
            continue
        if head is None:
            head = _head(text)
            if head is None:
                # The meaning of the other lines is unknown.
                yield BadRow(number, _HEAD_RULE)
                return
            continue
        try:
            row = _row(number, head.read_row(text))
            _require_first(row, seen)
            yield row
        except ValueError as error:
            yield BadRow(number, str(error))


class _Head(NamedTuple):
    """The first line: the columns as it calls them, in small letters, and what separates the cells."""

    columns: Sequence[str]
    separator: str

    def read_row(self, text: str) -> _Cells:
        """Return the cells of a line by the names of their columns here, with the units of rates. Raises
        ValueError with the rule."""
        cells = _cells(text, self.separator)
        if cells is None or len(cells) != len(self.columns):
            separated = f"{len(self.columns)} fields separated by {_SEPARATORS[self.separator]}"
            raise ValueError(f"must have {separated}, as the first line")
        return {
            _HEADS.get(name, name): f"{cell}bit" if name in _IN_BITS and not has_unit(cell) else cell
            for name, cell in zip(self.columns, cells, strict=True)
        }


def _head(text: str) -> _Head | None:
    """Read the first line, in any case of letters; None for another line."""
    for separator in _SEPARATORS:
        columns = [cell.lower() for cell in _cells(text, separator) or ()]
        names = {_HEADS.get(column, column) for column in columns}
        is_known = {"down", "up"} <= names and {"id", "username"} & names
        if is_known and set(columns) <= _IGNORED | _HEADS.keys() and len(names) == len(columns):
            return _Head(columns, separator)
    return None


def _row(number: int, cells: _Cells) -> RateRow:
    """Raises ValueError with the column and its rule."""
    id, username = cells.get("id"), cells.get("username") or None
    if id is None and username is None:
        raise ValueError("username: is required")
    if id is not None and not is_id(id):
        raise ValueError("id: must be a session id")
    down, up = _rate(cells, "down"), _rate(cells, "up")
    return RateRow(number, None if id is None else int(id), username, down, up)


def _rate(cells: _Cells, name: str) -> int:
    try:
        return rate_with_unit(cells[name])
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from error


def _require_first(row: RateRow, seen: dict[int | str, int]) -> None:
    """Raises ValueError for a second line of the same session or subscriber."""
    key = row.username or "" if row.id is None else row.id
    if key in seen:
        raise ValueError(f"{row.who} is in line {seen[key]} already")
    seen[key] = row.number


def _cells(text: str, separator: str) -> list[str] | None:
    """Split a line into its cells (RFC 4180), without spaces around them; spaces between quotes stay. None if
    a quote is not where it belongs."""
    cell = re.compile(rf' *"(?P<quoted>(?:[^"]|"")*)" *|(?P<plain>[^"{separator}]*)')
    cells, place = [], 0
    while (found := cell.match(text, place)) is not None:
        quoted = found["quoted"]
        cells.append(found["plain"].strip() if quoted is None else quoted.replace('""', '"'))
        if found.end() == len(text):
            return cells
        if text[found.end()] != separator:
            return None
        place = found.end() + 1
    return None


#: Seconds between the attempts while the gateway does not respond.
_PAUSES = (1, 2, 4)
#: Changes that a question shows.
_MOST_SHOWN = 100
#: Undo files that are kept.
_MOST_KEPT = 100
#: All of them say what would change.
_COLUMNS = (
    ShownColumn("id", importance=Importance.IDENTITY),
    ShownColumn("username", importance=Importance.IDENTITY),
    WholeRecord("ip_address", value=address, importance=Importance.HIGH),
    ShownColumn("mac_address", importance=Importance.HIGH),
    ShownColumn("former_rate_down_bps", "Down", importance=Importance.IDENTITY),
    ShownColumn("rate_down_bps", "New down", importance=Importance.IDENTITY),
    ShownColumn("former_rate_up_bps", "Up", importance=Importance.IDENTITY),
    ShownColumn("rate_up_bps", "New up", importance=Importance.IDENTITY),
)


class FileChange(NamedTuple):
    """A line of the file, and a session as the list has it."""

    row: RateRow
    session: Record

    @property
    def record(self) -> Record:
        return {
            "id": self.session["id"],
            "username": self.session["username"],
            "ip_address": self.session.get("ip_address"),
            "ipv6_address": self.session.get("ipv6_address"),
            "mac_address": self.session.get("mac_address"),
            "rate_down_bps": self.row.down,
            "rate_up_bps": self.row.up,
            "former_rate_down_bps": self.session["rate_down"],
            "former_rate_up_bps": self.session["rate_up"],
        }


class RateChanges:
    """The changes of a file. Raises ClientError for bad lines."""

    def __init__(self, gateway: RemoteGateway, file: str, *, skip_bad: bool, offline_ok: bool) -> None:
        found = read(file)
        bad = [each for each in found if isinstance(each, BadRow)]
        complain(f"line {each.number}: {each.reason}" for each in bad)
        if bad and not skip_bad:
            count = f"{len(bad)} bad line{'' if len(bad) == 1 else 's'}"
            raise CommandFailure(ExitStatus.USAGE, f"{count}: nothing was changed; --skip-bad ignores them")
        rows = [each for each in found if isinstance(each, RateRow)]
        online = gateway.pages("/subscribers", "sessions", {}) if rows else []
        self.bad = len(bad)
        self.offline = 0
        self.offline_ok = offline_ok
        self.changes: list[FileChange] = []
        by_id, by_username = {each["id"]: each for each in online}, _by_username(online)
        for row in rows:
            self._add(row, _sessions_of(row, by_id, by_username))

    def _add(self, row: RateRow, found: Sequence[Record]) -> None:
        if not found:
            self.offline += 1
            complain([f"line {row.number}: {row.who} is not online"])
        self.changes += [FileChange(row, each) for each in found]

    @property
    def is_whole(self) -> bool:
        return self.bad == 0 and (self.offline == 0 or self.offline_ok)

    @property
    def absent(self) -> str:
        return f"{self.offline} not online, {self.bad} bad"

    def table(self, most: int | None = None) -> ResultList:
        """The former and the new rates of each session, or of the first ones."""
        return ResultList([each.record for each in self.changes[:most]], _COLUMNS)


def _by_username(online: Iterable[Record]) -> dict[str, list[Record]]:
    found: dict[str, list[Record]] = {}
    for each in online:
        found.setdefault(each["username"], []).append(each)
    return found


def _sessions_of(
    row: RateRow, by_id: Mapping[int, Record], by_username: Mapping[str, Sequence[Record]]
) -> Sequence[Record]:
    if row.id is None:
        return by_username.get(row.username or "", ())
    session = by_id.get(row.id)
    # The id may be that of another subscriber meanwhile, after a restart of the core.
    is_same = session is not None and row.username in (None, session["username"])
    return [session] if session is not None and is_same else []


def change_all(
    gateway: RemoteGateway, rates: RateChanges, terms: Record, *, dry_run: bool, yes: bool
) -> Report:
    """Shows the changes, asks, writes the undo file, and makes the changes. `terms` say how long the rates
    are valid. The status is DONE if every change of the file was made. Raises ClientError."""
    status = ExitStatus.DONE if rates.is_whole else ExitStatus.REFUSED
    if rates.changes:
        _require_allowed(gateway, rates.changes[0], terms)
    if dry_run:
        text = f"{len(rates.changes)} would change, {rates.absent}"
        record = {"message": text, "changes": [each.record for each in rates.changes]}
        return Report(text, record, status=status, table=rates.table())
    if not rates.changes:
        return _outcome(rates, 0, 0, status)
    left = len(rates.changes) - _MOST_SHOWN
    more = f"and {sessions(left)} more: --dry-run shows all\n" if left > 0 else ""
    text = f"{more}{len(rates.changes)} will change, {rates.absent}"
    about = Report(text, None, table=rates.table(_MOST_SHOWN))
    confirm("Change their rates?", yes=yes, otherwise="nothing was changed", about=about, always=True)
    undo = _undo_file(rates.changes)
    complain([f"to undo the changes: gatewayctl subscribers rate --file {undo}"])
    changed = failed = 0
    with Progress(len(rates.changes)) as progress:
        for each in rates.changes:
            try:
                _change(gateway, each, terms)
                changed += 1
            except ClientError as failure:
                complain(f"line {each.row.number}: {each.row.who}: {said}" for said in failure.lines)
                status = status_of(failure)
                if status is not ExitStatus.REFUSED:
                    complain([f"stopped at line {each.row.number}; run it again for the rest"])
                    break
                failed += 1
            progress.advance(failed=failed)
    return _outcome(rates, changed, failed, status)


def _require_allowed(gateway: RemoteGateway, change: FileChange, terms: Record) -> None:
    """Has the gateway check the user's role, and the terms, which are the same for all lines. Raises
    ClientError."""
    body = {**_body(change.row, terms), "filter": {"search": str(change.session["id"])}, "dry_run": True}
    gateway.send("POST", "/subscribers/rate", body)


def _undo_file(changes: Sequence[FileChange]) -> Path:
    """Writes the former rates to a file of the user's. Raises ClientError."""
    home = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    folder = Path(home) / "gatewayctl"
    path = folder / f"rates-before-{datetime.now(UTC):%Y%m%dT%H%M%S.%fZ}.csv"
    try:
        durable.make_folder(folder)
        durable.replace(path, written(each.session for each in changes).encode())
        for old in sorted(folder.glob("rates-before-*.csv"))[:-_MOST_KEPT]:
            old.unlink(missing_ok=True)
    except OSError as error:
        said = f"cannot write the undo file {path}: {error.strerror}; nothing was changed"
        raise CommandFailure(ExitStatus.REFUSED, said) from error
    return path


def _change(gateway: RemoteGateway, change: FileChange, terms: Record) -> None:
    """Tries again while the gateway does not respond. Raises ClientError."""
    for pause in (*_PAUSES, None):
        try:
            gateway.send("PUT", f"{session_path(change.session['id'])}/rate", _body(change.row, terms))
            return
        except NoResponse:
            if pause is None:
                raise
            time.sleep(pause)


def _body(row: RateRow, terms: Record) -> Record:
    return {"rate_down": f"{row.down}bit", "rate_up": f"{row.up}bit", **terms}


def _outcome(rates: RateChanges, changed: int, failed: int, status: ExitStatus) -> Report:
    left = len(rates.changes) - changed - failed
    text = f"{changed} changed, {failed} failed, {rates.absent}, {left} not tried"
    return Report(text, {"message": text}, status=status)


def _with_unit(ctx: click.Context, param: click.Parameter, text: str | None) -> str | None:
    if text is None:
        return None
    try:
        rate_with_unit(text)
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
    target: Target | None,
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

    The first line of a file names its columns: username or id, down and up. Commas, semicolons or tabs
    separate them. What `subscribers list -o csv` prints is such a file; only its columns rate_down and
    rate_up may be numbers without a unit. Empty lines and lines that begin with # are ignored. All lines are
    checked before the first change: a file with a bad line, or with no newline at its end, changes nothing.
    The command shows the former and the new rates, and asks. It writes the former rates to an undo file,
    which --file takes, and tells its path. After a failed change it continues with the next; it is safe to
    run it again.
    """
    terms = {name: given[name] for name in ("expires_in", "until") if given[name] is not None}
    rates = {name: given[name] for name in ("rate_down", "rate_up") if given[name] is not None}
    if file is not None:
        changes = RateChanges(gateway, file, skip_bad=skip_bad, offline_ok=offline_ok)
        return change_all(gateway, changes, terms, dry_run=dry_run, yes=yes)
    if filter:
        job = jobs.JobRequest("/subscribers/rate", {"filter": filter, **rates, **terms}, per_second)
        return job.run(gateway, "Change their rates?", dry_run=dry_run, yes=yes)
    # One of a target, a filter and a file is given.
    session = find_session(gateway, cast(Target, target))
    if dry_run:
        return _foreseen(gateway, session, {**rates, **terms})
    who = describe_subscriber(session)
    complain([f"changing the rates of session {session['id']}, {who}"])
    done = gateway.send("PUT", f"{session_path(session['id'])}/rate", {**rates, **terms})
    until = f", until {moment(done['rate_expires_at'])}" if "rate_expires_at" in done else ""
    rates_now = f"{shown(done['rate_down_bps'])} down, {shown(done['rate_up_bps'])} up{until}"
    return Report(f"{done['message']}, {who}: {rates_now}", done)


def _foreseen(gateway: RemoteGateway, was: Record, change: Record) -> Report:
    """Has the gateway check the change of a session, without making it. Raises ClientError."""
    id = was["id"]
    gateway.send("POST", "/subscribers/rate", {**change, "filter": {"search": str(id)}, "dry_run": True})
    rates = {
        way: (was[f"rate_{way}_bps"], parse_rate(change[f"rate_{way}"]))
        for way in ("down", "up")
        if f"rate_{way}" in change
    }
    moves = ", ".join(f"{way} from {shown(old)} to {shown(new)}" for way, (old, new) in rates.items())
    message = f"the rates of session {id}, {describe_subscriber(was)}, would change: {moves}"
    return Report(message, {"message": message, "id": id})

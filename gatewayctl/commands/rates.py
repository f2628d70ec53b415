"""Commands that change the rates of one session, of all sessions that match a filter, or of the sessions in a
file.

The file is CSV. The first line of the file names the columns: `username` or `id`, `down` and `up`, or the
corresponding columns of `subscribers list -o csv`. The whole file is read before the first change, because a
truncated rate is still a valid rate, but a wrong one.
"""

import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple, cast

import click

from gateway_client.errors import ClientError, ExitStatus, NoResponse
from gateway_client.gateway import Record, RemoteGateway
from gateway_contract.base import durable
from gateway_contract.base.texts import has_unit, parse_rate
from gateway_contract.core.sessions import SessionSummary
from gatewayctl import cli, sessions
from gatewayctl.commands import jobs
from gatewayctl.errors import CommandError
from gatewayctl.results import HIGH, IDENTITY, Column, Report, ResultList, format_csv_line
from gatewayctl.terminal import print_errors, read_text, show_progress
from gatewayctl.texts import count_sessions, escape, format_bps, format_time, parse_typed_rate
from gatewayctl.times import DurationType, TimeType

#: Separators of the cells of a line, with their names in messages.
_SEPARATOR_NAMES = {",": "commas", ";": "semicolons", "\t": "tabs"}
#: Fields by column name: the names in a file of rates, and the names in a list of sessions.
_FIELD_BY_COLUMN = {
    "id": "id", "username": "username", "down": "down", "rate_down": "down", "up": "up", "rate_up": "up",
}  # fmt: skip
#: Columns of a list of sessions that are bits per second, without a unit.
_BPS_COLUMNS = frozenset(("rate_down", "rate_up"))
#: Other columns of a list of sessions. `context` of --all is not accepted: an id belongs to one gateway.
_IGNORED_COLUMNS = frozenset(SessionSummary.__struct_fields__) - _FIELD_BY_COLUMN.keys()
_HEAD_RULE = (
    "must name the columns: username or id, down and up, as subscribers list -o csv does, separated by "
    "commas, semicolons or tabs"
)


@dataclass(frozen=True)
class RateRow:
    """Line of a file with rates in bits per second, either for all sessions of a username or for the session
    with an id. If the line has both, the session must belong to the username."""

    number: int
    id: int | None
    username: str | None
    down: int
    up: int

    @property
    def who(self) -> str:
        return escape(self.username or f"session {self.id}")


@dataclass(frozen=True)
class BadRow:
    """Invalid line of a file with rates, and the reason why the line is invalid."""

    number: int
    reason: str


def read_file(file: str) -> list[RateRow | BadRow]:
    """Return the lines of a file with rates, valid and invalid. Raises CommandError if the file cannot be
    read, is empty, or has no newline at its end."""
    text = read_text(file, file)
    if not text:
        raise CommandError(ExitStatus.USAGE, f"{file} is empty")
    if not text.endswith("\n"):
        reason = "no newline at the end: is the file complete? Nothing was changed"
        raise CommandError(ExitStatus.USAGE, reason)
    return list(_parse_lines(line.rstrip("\r") for line in text.split("\n")))


def format_file(records: Iterable[Record]) -> str:
    """Return the text of a file with rates. The file has the present rates of the given sessions."""
    lines = [format_csv_line(("id", "username", "down", "up"))]
    for session in records:
        name = session["username"] or ""
        # A cell cannot contain a line break, so such a name is left out: the id identifies the session.
        name = name if name.isprintable() else ""
        rates = (f"{session['rate_down']}bit", f"{session['rate_up']}bit")
        lines.append(format_csv_line((str(session["id"]), name, *rates)))
    return "".join(f"{line}\n" for line in lines)


def _parse_lines(lines: Iterable[str]) -> Iterator[RateRow | BadRow]:
    seen: dict[int | str, int] = {}
    numbered = [(number, line) for number, line in enumerate(lines, 1) if line.strip()]
    numbered = [(number, line) for number, line in numbered if not line.lstrip().startswith("#")]
    head = _parse_head(numbered[0][1]) if numbered else None
    if head is None:
        # Without a head, the meaning of the other lines is unknown.
        yield from (BadRow(number, _HEAD_RULE) for number, _ in numbered[:1])
        return
    for number, line in numbered[1:]:
        try:
            row = _parse_row(number, head.parse_cells(line))
            key = row.username or "" if row.id is None else row.id
            if key in seen:
                raise ValueError(f"{row.who} is in line {seen[key]} already")
            seen[key] = number
            yield row
        except ValueError as error:
            yield BadRow(number, str(error))


class _Head(NamedTuple):
    """First line of a file with rates: the names of the columns in lower case, and the separator of the
    cells."""

    columns: Sequence[str]
    separator: str

    def parse_cells(self, line: str) -> Mapping[str, str]:
        """Return a map from field to cell for a line of the file. Rates in the map always have a unit. Raises
        ValueError, with the broken rule as its text, if the line has the wrong number of cells."""
        cells = _split_cells(line, self.separator)
        if cells is None or len(cells) != len(self.columns):
            cell_count = f"{len(self.columns)} fields separated by {_SEPARATOR_NAMES[self.separator]}"
            raise ValueError(f"must have {cell_count}, as the first line")
        return {
            _FIELD_BY_COLUMN.get(name, name): f"{cell}bit"
            if name in _BPS_COLUMNS and not has_unit(cell)
            else cell
            for name, cell in zip(self.columns, cells, strict=True)
        }


def _parse_head(line: str) -> _Head | None:
    """Return the head that a line contains. The names may be in upper or lower case. Return None if the line
    is not a valid head."""
    for separator in _SEPARATOR_NAMES:
        columns = [cell.lower() for cell in _split_cells(line, separator) or ()]
        fields = {_FIELD_BY_COLUMN.get(column, column) for column in columns}
        is_known = {"down", "up"} <= fields and {"id", "username"} & fields
        if (
            is_known
            and set(columns) <= _IGNORED_COLUMNS | _FIELD_BY_COLUMN.keys()
            and len(fields) == len(columns)
        ):
            return _Head(columns, separator)
    return None


def _parse_row(number: int, cells: Mapping[str, str]) -> RateRow:
    """Return the row with the given cells, which are in the line `number` of the file. Raises ValueError,
    with the column and the broken rule as its text, if a cell is invalid."""
    id, username = cells.get("id"), cells.get("username") or None
    if id is None and username is None:
        raise ValueError("username: is required")
    if id is not None and not sessions.is_id(id):
        raise ValueError("id: must be a session id")
    down, up = _parse_rate(cells, "down"), _parse_rate(cells, "up")
    return RateRow(number, None if id is None else int(id), username, down, up)


def _parse_rate(cells: Mapping[str, str], name: str) -> int:
    try:
        return parse_typed_rate(cells[name])
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from error


def _split_cells(line: str, separator: str) -> list[str] | None:
    """Return the cells of a CSV line (RFC 4180) without surrounding spaces. Spaces inside quotes stay. Return
    None if a quote is in a wrong place."""
    cell = re.compile(rf' *"(?P<quoted>(?:[^"]|"")*)" *|(?P<plain>[^"{separator}]*)')
    cells, position = [], 0
    while (match := cell.match(line, position)) is not None:
        quoted = match["quoted"]
        cells.append(match["plain"].strip() if quoted is None else quoted.replace('""', '"'))
        if match.end() == len(line):
            return cells
        if line[match.end()] != separator:
            return None
        position = match.end() + 1
    return None


#: Pauses between attempts while the gateway does not respond.
_RETRY_PAUSES_SECONDS = (1, 2, 4)
#: Number of changes that are shown above a question.
_MAX_SHOWN_CHANGES = 100
_MAX_UNDO_FILES = 100
_CHANGE_COLUMNS = (
    Column("id", IDENTITY), Column("username", IDENTITY),
    Column("ip_address", HIGH, value=sessions.format_address), Column("mac_address", HIGH),
    Column("former_rate_down_bps", IDENTITY, "Down"), Column("rate_down_bps", IDENTITY, "New down"),
    Column("former_rate_up_bps", IDENTITY, "Up"), Column("rate_up_bps", IDENTITY, "New up"),
)  # fmt: skip


class RateChange(NamedTuple):
    """Change of the rates of one session that a line of the file requests."""

    row: RateRow
    session: Record

    @property
    def record(self) -> Record:
        fields = ("id", "username", "ip_address", "ipv6_address", "mac_address")
        return {
            **{name: self.session.get(name) for name in fields},
            "rate_down_bps": self.row.down,
            "rate_up_bps": self.row.up,
            "former_rate_down_bps": self.session["rate_down"],
            "former_rate_up_bps": self.session["rate_up"],
        }


def _match_sessions(gateway: RemoteGateway, rows: Sequence[RateRow]) -> list[RateChange]:
    """Return the changes for the sessions that are online. Print the username or id of each line that matches
    no session."""
    by_key: dict[object, list[Record]] = {}
    for session in gateway.list_records("/subscribers", "sessions", {}) if rows else ():
        by_key.setdefault(session["id"], []).append(session)
        by_key.setdefault(session["username"], []).append(session)
    changes = []
    for row in rows:
        matches = by_key.get(row.username if row.id is None else row.id, ())
        # After a restart of the core, the id may belong to another subscriber.
        matches = [each for each in matches if row.username in (None, each["username"])]
        changes += [RateChange(row, each) for each in matches]
        if not matches:
            print_errors([f"line {row.number}: {row.who} is not online"])
    return changes


def change_by_file(
    gateway: RemoteGateway,
    file: str,
    terms: Record,
    *,
    skip_bad: bool,
    offline_ok: bool,
    dry_run: bool,
    yes: bool,
) -> Report:
    """Show the changes that a file requests, ask for confirmation, write the undo file, and make the changes.
    `terms` are the fields that limit how long the rates are valid. With `skip_bad`, invalid lines are
    ignored. With `offline_ok`, the exit status is 0 even if some lines match no session. With `dry_run`, only
    the changes are shown. Raises ClientError before the first change if the file has an invalid line, the
    user does not agree, or the gateway refuses the changes. A later failure is only printed and counted."""
    lines = read_file(file)
    bad_rows = [each for each in lines if isinstance(each, BadRow)]
    print_errors(f"line {each.number}: {each.reason}" for each in bad_rows)
    if bad_rows and not skip_bad:
        count = f"{len(bad_rows)} bad line{'' if len(bad_rows) == 1 else 's'}"
        raise CommandError(ExitStatus.USAGE, f"{count}: nothing was changed; --skip-bad ignores them")
    rows = [each for each in lines if isinstance(each, RateRow)]
    changes = _match_sessions(gateway, rows)
    offline_count = len(rows) - len({each.row.number for each in changes})
    skip_summary = f"{offline_count} not online, {len(bad_rows)} bad"
    is_complete = not bad_rows and (not offline_count or offline_ok)
    status = ExitStatus.SUCCESS if is_complete else ExitStatus.REFUSED
    records = [each.record for each in changes]
    if changes:
        # The gateway checks the user's role, and the terms, which are the same for all lines.
        _check_change(gateway, changes[0].session["id"], _format_body(changes[0].row, terms))
    if dry_run:
        text = f"{len(changes)} would change, {skip_summary}"
        table = ResultList(records, _CHANGE_COLUMNS)
        return Report(text, {"message": text, "changes": records}, status=status, table=table)
    if changes:
        hidden_count = len(changes) - _MAX_SHOWN_CHANGES
        overflow_note = (
            f"and {count_sessions(hidden_count)} more: --dry-run shows all\n" if hidden_count > 0 else ""
        )
        table = ResultList(records[:_MAX_SHOWN_CHANGES], _CHANGE_COLUMNS)
        report = Report(f"{overflow_note}{len(changes)} will change, {skip_summary}", None, table=table)
        cli.confirm(
            "Change their rates?", yes=yes, refusal="nothing was changed", report=report, always_report=True
        )
        undo_file = _write_undo_file(changes)
        print_errors([f"to undo the changes: gatewayctl subscribers rate --file {undo_file}"])
    change_count = failure_count = 0
    with show_progress(len(changes)) as update:
        for each in changes:
            reasons = []
            try:
                _send_change(gateway, each, terms)
                change_count += 1
            except ClientError as error:
                reasons = [f"line {each.row.number}: {each.row.who}: {line}" for line in error.lines]
                status = error.status
                if status is not ExitStatus.REFUSED:
                    reasons.append(f"stopped at line {each.row.number}; run it again for the rest")
                    update(change_count + failure_count, failure_count, reasons)
                    break
                failure_count += 1
            update(change_count + failure_count, failure_count, reasons)
    untried_count = len(changes) - change_count - failure_count
    text = f"{change_count} changed, {failure_count} failed, {skip_summary}, {untried_count} not tried"
    return Report(text, {"message": text}, status=status)


def _check_change(gateway: RemoteGateway, id: object, body: Record) -> None:
    """Let the gateway validate a change of a session, as a dry run. Raises ClientError if the gateway refuses
    the change or does not respond."""
    gateway.send("POST", "/subscribers/rate", {**body, "filter": {"search": str(id)}, "dry_run": True})


def _write_undo_file(changes: Sequence[RateChange]) -> Path:
    """Write the former rates of the sessions to a file in the home directory of the user, and return the path
    of the file. Raises CommandError if the file cannot be written."""
    home = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    folder = Path(home) / "gatewayctl"
    path = folder / f"rates-before-{datetime.now(UTC):%Y%m%dT%H%M%S.%fZ}.csv"
    try:
        durable.make_folder(folder)
        durable.replace(path, format_file(each.session for each in changes).encode())
        for old in sorted(folder.glob("rates-before-*.csv"))[:-_MAX_UNDO_FILES]:
            old.unlink(missing_ok=True)
    except OSError as error:
        reason = f"cannot write the undo file {path}: {error.strerror}; nothing was changed"
        raise CommandError(ExitStatus.REFUSED, reason) from error
    return path


def _send_change(gateway: RemoteGateway, change: RateChange, terms: Record) -> None:
    """Change the rates of a session. While the gateway does not respond, retry a few times. Raises
    ClientError if the gateway refuses the change, or does not respond to the last retry."""
    for pause in (*_RETRY_PAUSES_SECONDS, None):
        try:
            path = f"{sessions.get_session_path(change.session['id'])}/rate"
            gateway.send("PUT", path, _format_body(change.row, terms))
            return
        except NoResponse:
            if pause is None:
                raise
            time.sleep(pause)


def _format_body(row: RateRow, terms: Record) -> Record:
    return {"rate_down": f"{row.down}bit", "rate_up": f"{row.up}bit", **terms}


def _require_unit(ctx: click.Context, param: click.Parameter, text: str | None) -> str | None:
    """Return the text of a rate option. Raises click.BadParameter if the rate has no unit."""
    try:
        if text is not None:
            parse_typed_rate(text)
    except ValueError as error:
        raise click.BadParameter(str(error), ctx, param) from error
    return text


def _create_rate_option(name: str, field: str, help: str) -> Callable[[cli.Decorated], cli.Decorated]:
    return click.option(name, field, metavar="RATE", callback=_require_unit, help=help)


@cli.command()
@click.argument("target", required=False, type=sessions.target_type)
@_create_rate_option("--down", "rate_down", "Downstream rate, such as 50mbit or 1.5gbit.")
@_create_rate_option("--up", "rate_up", "Upstream rate.")
@click.option(
    "--for", "expires_in", type=DurationType(needs_unit=True),
    help="The former rates return after this time: a number with s, m, h or d, such as 1h.",
)  # fmt: skip
@click.option(
    "--until", type=TimeType(is_future=True),
    help="The former rates return then: 06:00, tomorrow 06:00, 2026-12-24, ISO 8601 or epoch seconds.",
)  # fmt: skip
@jobs.where_option
@jobs.per_second_option
@click.option("--file", metavar="FILE", help="Rates of many sessions, as CSV; - is standard input.")
@click.option("--skip-bad", is_flag=True, help="Ignore bad lines of the file.")
@click.option("--offline-ok", is_flag=True, help="An offline subscriber is not a failure.")
@cli.dry_run_option
@cli.yes_option
@cli.change_command
def rate(
    gateway: RemoteGateway,
    target: sessions.Target | None,
    filter: Record,
    per_second: int | None,
    file: str | None,
    skip_bad: bool,
    offline_ok: bool,
    dry_run: bool,
    yes: bool,
    **values: Any,
) -> Report:
    """Change the rates of a session, of all sessions that match, or of those in a file.

    A rate is a number and a unit, in bits per second: bit, kbit, mbit, gbit, tbit, or k, m, g, t.

    The first line of a file names its columns: username or id, down and up. Commas, semicolons or tabs
    separate them. The output of `subscribers list -o csv` is such a file; only its columns rate_down and
    rate_up may be numbers without a unit. Empty lines and lines that begin with # are ignored. All lines are
    checked before the first change: a file with a bad line, or with no newline at its end, changes nothing.
    The command shows the former and the new rates, and asks. It writes the former rates to an undo file,
    which --file takes, and tells its path. After a failed change, the command continues with the
    next. You can safely run the command again.
    """
    terms = {name: values[name] for name in ("expires_in", "until") if values[name] is not None}
    rates = {name: values[name] for name in ("rate_down", "rate_up") if values[name] is not None}
    if file is not None:
        return change_by_file(
            gateway, file, terms, skip_bad=skip_bad, offline_ok=offline_ok, dry_run=dry_run, yes=yes
        )
    if filter:
        body = {"filter": filter, **rates, **terms}
        return jobs.run_job(
            gateway, "/subscribers/rate", body, "Change their rates?", per_second, dry_run, yes
        )
    # The usages of the command require a target here.
    session = sessions.find_session(gateway, cast(sessions.Target, target))
    if dry_run:
        return _preview_rate(gateway, session, {**rates, **terms})
    who = sessions.describe_subscriber(session)
    print_errors([f"changing the rates of session {session['id']}, {who}"])
    response = gateway.send("PUT", f"{sessions.get_session_path(session['id'])}/rate", {**rates, **terms})
    until = f", until {format_time(response['rate_expires_at'])}" if "rate_expires_at" in response else ""
    down, up = format_bps(response["rate_down_bps"]), format_bps(response["rate_up_bps"])
    return Report(f"{response['message']}, {who}: {down} down, {up} up{until}", response)


def _preview_rate(gateway: RemoteGateway, session: Record, change: Record) -> Report:
    """Return a report about a change of a session's rates, after the gateway has validated the change. Raises
    ClientError if the gateway refuses the change or does not respond."""
    id = session["id"]
    _check_change(gateway, id, change)
    moves = []
    for way in ("down", "up"):
        if f"rate_{way}" in change:
            former, new = session[f"rate_{way}_bps"], parse_rate(change[f"rate_{way}"])
            moves.append(f"{way} from {format_bps(former)} to {format_bps(new)}")
    who = sessions.describe_subscriber(session)
    message = f"the rates of session {id}, {who}, would change: {', '.join(moves)}"
    return Report(message, {"message": message, "id": id})

"""A CSV file of rates. Its first line names the columns: `username` or `id`, `down` and `up`, also as
`subscribers list -o csv` calls them.

It is read whole before the first change: a truncated rate is another valid rate.
"""

import csv
import io
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from gateway_api.base.texts import parse_rate
from gateway_api.cli.ctl.failures import CommandFailure, ExitStatus
from gateway_api.cli.ctl.prompts import STANDARD_INPUT
from gateway_api.cli.ctl.targets import is_id
from gateway_api.cli.ctl.texts import line
from gateway_api.client.gateway import Record
from gateway_api.wire.core.sessions import SessionSummary

_CELL = '( *"([^"]|"")*" *|[^",]*)'
#: csv would read a quote in the middle of a cell, or one without its end.
_LINE = re.compile(f"{_CELL}(,{_CELL})*")
#: The columns that are read, by their names here and in a list of sessions.
_COLUMNS = {
    "id": "id", "username": "username", "down": "down", "rate_down": "down", "up": "up", "rate_up": "up",
}  # fmt: skip
#: A list has them beside these. The column of `--all` is not among them: ids are of one gateway.
_IGNORED = frozenset(SessionSummary.__struct_fields__) - _COLUMNS.keys()
_HEAD_RULE = "must name the columns: username or id, down and up, as subscribers list -o csv does"

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
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("id", "username", "down", "up"))
    for each in sessions:
        name = each["username"] or ""
        # A cell loses spaces at its ends, and ends with its line: the id alone names such a session.
        kept = name if name == name.strip() and name.isprintable() else ""
        writer.writerow((each["id"], kept, f"{each['rate_down']}bit", f"{each['rate_up']}bit"))
    return text.getvalue()


def _rows(texts: Iterable[str]) -> Iterator[RateRow | BadRow]:
    head: list[str] | None = None
    seen: dict[int | str, int] = {}
    for number, text in enumerate(texts, 1):
        if not text.strip() or text.lstrip().startswith("#"):
            continue
        cells = _cells(text)
        if head is None:
            head = _head(cells)
            if head is None:
                # The meaning of the other lines is unknown.
                yield BadRow(number, _HEAD_RULE)
                return
            continue
        try:
            row = _row(number, _named(head, cells))
            _require_first(row, seen)
            yield row
        except ValueError as error:
            yield BadRow(number, str(error))


def _head(cells: Sequence[str] | None) -> list[str] | None:
    """The names of the columns, those that are read as they are called here; None for another line."""
    if cells is None or not all(cell in _COLUMNS or cell in _IGNORED for cell in cells):
        return None
    named = [_COLUMNS.get(cell, cell) for cell in cells]
    is_known = {"down", "up"} <= set(named) and {"id", "username"} & set(named)
    return named if is_known and len(set(named)) == len(named) else None


def _named(head: Sequence[str], cells: Sequence[str] | None) -> _Cells:
    """Raises ValueError with the rule."""
    if cells is None or len(cells) != len(head):
        raise ValueError(f"must have {len(head)} fields, as the first line")
    return dict(zip(head, cells, strict=True))


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
        return parse_rate(cells[name])
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from error


def _require_first(row: RateRow, seen: dict[int | str, int]) -> None:
    """Raises ValueError for a second line of the same session or subscriber."""
    key = row.username or "" if row.id is None else row.id
    if key in seen:
        raise ValueError(f"{row.who} is in line {seen[key]} already")
    seen[key] = row.number


def _cells(text: str) -> list[str] | None:
    """The cells of a line (RFC 4180, with spaces around them); None if a quote is not where it belongs."""
    if not _LINE.fullmatch(text):
        return None
    (cells,) = csv.reader([re.sub('" *(,|$)', r'"\1', text)], skipinitialspace=True)
    return [cell.strip() for cell in cells]

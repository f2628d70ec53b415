"""A CSV file of rates: `username,down,up` or `id,down,up` on its first line.

It is read whole before the first change: a truncated rate is another valid rate.
"""

import csv
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from gateway_api.cli.ctl.failures import CommandFailure, ExitStatus
from gateway_api.cli.ctl.signin import STANDARD_INPUT
from gateway_api.cli.ctl.targets import is_id
from gateway_api.cli.ctl.texts import line

_CELL = '( *"([^"]|"")*" *|[^",]*)'
#: csv would read a quote in the middle of a cell, or one without its end.
_LINE = re.compile(f"{_CELL}(,{_CELL})*")
_HEADS = (["username", "down", "up"], ["id", "down", "up"])


@dataclass(frozen=True)
class RateRow:
    """`who` is a username, or an id if `by_id`."""

    number: int
    who: str
    by_id: bool
    down: str
    up: str


@dataclass(frozen=True)
class BadRow:
    number: int
    reason: str


def read(file: str) -> list[RateRow | BadRow]:
    """Raises Failure for a file that is empty or incomplete."""
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


def _rows(texts: Iterable[str]) -> Iterator[RateRow | BadRow]:
    head: list[str] | None = None
    seen: dict[str, int] = {}
    for number, text in enumerate(texts, 1):
        if not text.strip() or text.lstrip().startswith("#"):
            continue
        cells = _cells(text)
        if head is None:
            if cells not in _HEADS:
                # The meaning of the other lines is unknown.
                yield BadRow(number, "must be username,down,up or id,down,up")
                return
            head = cells
            continue
        made = _row(number, cells, by_id=head == _HEADS[1], seen=seen)
        if isinstance(made, RateRow):
            seen[made.who] = number
        yield made


def _row(number: int, cells: list[str] | None, *, by_id: bool, seen: Mapping[str, int]) -> RateRow | BadRow:
    if cells is None or len(cells) != len(_HEADS[0]) or not all(cells):
        return BadRow(number, "must have three fields: username or id, down, up")
    who, down, up = cells
    if by_id and not is_id(who):
        return BadRow(number, "must begin with a session id")
    if who in seen:
        return BadRow(number, f"{line(who)} is in line {seen[who]} already")
    return RateRow(number, who, by_id, down, up)


def _cells(text: str) -> list[str] | None:
    """The cells of a line (RFC 4180, with spaces around them); None if a quote is not where it belongs."""
    if not _LINE.fullmatch(text):
        return None
    (cells,) = csv.reader([re.sub('" *(,|$)', r'"\1', text)], skipinitialspace=True)
    return [cell.strip() for cell in cells]

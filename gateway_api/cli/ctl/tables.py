"""Tables of records. A value is never cut.

On a terminal, columns that do not fit are left out, the least important first. If there is no room for those
that say which record it is, the records stand one under the other. Sentences wrap between words. Elsewhere a
record is one line.
"""

import unicodedata
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from gateway_api.cli.ctl.results import Importance, ShownColumn
from gateway_api.client.gateway import Record

_GAP = "  "
#: Width to which sentences wrap before a column is left out.
_COMFORT = 32


class Line(NamedTuple):
    """A line of a table; its `head` stands out."""

    head: str
    rest: str = ""


class Table(NamedTuple):
    """The lines, and the columns for which there was no room."""

    lines: Sequence[Line]
    left_out: Sequence[ShownColumn] = ()


def fitted(columns: Sequence[ShownColumn], records: Sequence[Record], width: int | None) -> Table:
    """All records with those columns that have room; with all of them without a width."""
    if width is None:
        return whole(columns, records)
    texts = _texts(columns, records)
    needs = [_need(column, cells) for column, cells in zip(columns, texts, strict=True)]
    kept = list(range(len(columns)))
    while _sum(needs[at] for at in kept) > width:
        last = max(kept, key=lambda at: (columns[at].importance, at))
        if columns[last].importance is Importance.IDENTITY:
            return Table(_one_under_the_other(columns, texts, width))
        kept.remove(last)
    widths = _spread(
        [needs[at] for at in kept],
        [max(map(width_of, (columns[at].head, *texts[at]))) for at in kept],
        width,
    )
    grid = [[columns[at].head, *texts[at]] for at in kept]
    lines = [line for row in zip(*grid, strict=True) for line in _row(row, widths)]
    head, *rows = lines
    left_out = [column for at, column in enumerate(columns) if at not in kept]
    return Table([Line(head), *(Line("", row) for row in rows)], left_out)


def whole(columns: Sequence[ShownColumn], records: Sequence[Record]) -> Table:
    """All records with all columns, each record on one line."""
    grid = [[column.head, *cells] for column, cells in zip(columns, _texts(columns, records), strict=True)]
    head, *rows = aligned(list(zip(*grid, strict=True)))
    return Table([Line(head), *(Line("", row) for row in rows)])


def listed(columns: Sequence[ShownColumn], records: Sequence[Record], width: int | None) -> Table:
    """All records, one under the other: a line for each field."""
    return Table(_one_under_the_other(columns, _texts(columns, records), width))


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows as lines with aligned columns."""
    widths = [max(map(width_of, column)) for column in zip(*rows, strict=True)]
    return [_joined(row, widths) for row in rows]


def width_of(text: str) -> int:
    """The columns that a text takes on a terminal (Unicode Standard Annex 11)."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(each) else 2 if unicodedata.east_asian_width(each) in "WF" else 1
        for each in text
    )


def _texts(columns: Sequence[ShownColumn], records: Sequence[Record]) -> list[list[str]]:
    """The texts of all records, by column."""
    return [[column.text(record) for record in records] for column in columns]


def _need(column: ShownColumn, texts: Sequence[str]) -> int:
    """The least width of a column in which no word is cut."""
    longest = max(map(width_of, texts), default=0)
    if column.wraps and longest > _COMFORT:
        words = (width_of(word) for text in texts for word in text.split(" "))
        longest = min(longest, max(_COMFORT, *words))
    return max(width_of(column.head), longest)


def _sum(widths: Iterable[int]) -> int:
    """The width of a line."""
    held = list(widths)
    return sum(held) + len(_GAP) * (len(held) - 1)


def _spread(needs: Sequence[int], wanted: Sequence[int], width: int) -> list[int]:
    """The widths of columns on a terminal: those with sentences get the room that is left."""
    widths, left = list(needs), width - _sum(needs)
    for at, most in enumerate(wanted):
        more = max(0, min(left, most - widths[at]))
        widths[at] += more
        left -= more
    return widths


def _row(row: Sequence[str], widths: Sequence[int]) -> list[str]:
    """The lines of one record."""
    wrapped = [_wrapped(text, width) for text, width in zip(row, widths, strict=True)]
    most = max(map(len, wrapped))
    return [
        _joined([lines[at] if at < len(lines) else "" for lines in wrapped], widths) for at in range(most)
    ]


def _joined(row: Sequence[str], widths: Sequence[int]) -> str:
    padded = (text + " " * (width - width_of(text)) for text, width in zip(row, widths, strict=True))
    return _GAP.join(padded).rstrip(" ")


def _wrapped(text: str, width: int) -> list[str]:
    """The lines of a text, broken between words. A longer word has a line of its own."""
    if width_of(text) <= width:
        return [text]
    lines = [""]
    for word in text.split(" "):
        longer = f"{lines[-1]} {word}" if lines[-1] else word
        if width_of(longer) <= width or not lines[-1]:
            lines[-1] = longer
        else:
            lines.append(word)
    return lines


def _one_under_the_other(
    columns: Sequence[ShownColumn], texts: Sequence[Sequence[str]], width: int | None
) -> list[Line]:
    """A line for each value, behind its label, and an empty line between two records."""
    beside = max((width_of(column.label) for column in columns), default=0) + len(_GAP)
    found: list[Line] = []
    for record in zip(*texts, strict=True):
        if found:
            found.append(Line(""))
        for column, text in zip(columns, record, strict=True):
            found += _labelled(column.label, text, beside, width)
    return found


def _labelled(label: str, text: str, beside: int, width: int | None) -> list[Line]:
    """A value behind its label; or below, if the terminal has no room for a word of it."""
    padded = label + " " * (beside - width_of(label))
    if width is None:
        return [Line(padded, text)]
    longest = max(map(width_of, text.split(" ")))
    if longest <= width - beside:
        first, *more = _wrapped(text, width - beside)
        return [Line(padded, first), *(Line(" " * beside, each) for each in more)]
    indent = _GAP if longest + len(_GAP) <= width else ""
    return [Line(label), *(Line("", indent + each) for each in _wrapped(text, width - len(indent)))]

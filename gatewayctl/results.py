"""The result of a command, for one gateway or several, and how it is shown.

A table never cuts a value. On a terminal, columns that do not fit are left out, the least important first. If
there is no room for those that say which record it is, the records stand one under the other. Sentences wrap
between words. Elsewhere a record is one line.
"""

import json
import re
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Any, NamedTuple, TypeAlias

import click
from click.shell_completion import CompletionItem

from gatewayctl import terminal
from gatewayctl.client.gateway import Record
from gatewayctl.failures import ExitStatus
from gatewayctl.terminal import complain
from gatewayctl.texts import compact, line, lines, shown

TABLE, WIDE, JSON, CSV, JSONPATH = "table", "wide", "json", "csv", "jsonpath"


@dataclass(frozen=True)
class Format:
    """`matches` are the values that the JSONPath expression selects from a document. A table has all its
    columns if it `is_wide`, or those that the user chose, by their heads or fields."""

    name: str = TABLE
    matches: Callable[[Any], Iterable[Any]] | None = None
    is_wide: bool = False
    columns: tuple[str, ...] = ()

    def text(self, document: Any, *, safe: bool) -> str:
        """Return a document in this format, which is not a table. If it is to be `safe` for a terminal, each
        value is on one line, without control characters; those of JSON are escaped when it is written."""
        guarded = line if safe else str
        if self.matches is not None:
            return "".join(f"{guarded(_bare(value))}\n" for value in self.matches(document))
        if self.name == CSV:
            return csv_text(document if isinstance(document, list) else [document], guarded)
        return json.dumps(document, indent=2, ensure_ascii=False) + "\n"

    def event(self, record: Record, *, safe: bool) -> str:
        """Return a record of an endless list: JSON on one line."""
        return self.text(record, safe=safe) if self.matches is not None else compact(record) + "\n"


class FormatType(click.ParamType[Format]):
    """The type of the option."""

    name = "format"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Format:
        if isinstance(value, Format):
            return value
        name, equals, expression = value.partition("=")
        if value == WIDE:
            return Format(TABLE, is_wide=True)
        if value in (TABLE, JSON, CSV):
            return Format(value)
        if name != JSONPATH or not equals:
            self.fail("must be table, wide, json, csv or jsonpath=EXPRESSION", param, ctx)
        # Here, as it takes time that the other formats need not spend.
        import jsonpath

        try:
            compiled = jsonpath.compile(expression)
        except jsonpath.JSONPathError as error:
            self.fail(f"{expression!r} is not a JSONPath expression (RFC 9535): {error}", param, ctx)
        return Format(JSONPATH, compiled.findall)

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        names = (TABLE, WIDE, JSON, CSV, f"{JSONPATH}=")
        return [CompletionItem(name) for name in names if name.startswith(incomplete)]


def csv_text(records: Sequence[Any], guarded: Callable[[Any], str] = str) -> str:
    """RFC 4180, with the names of all fields on the first line. Lists and objects are JSON."""
    rows = [record if isinstance(record, dict) else {"value": record} for record in records]
    names = list(dict.fromkeys(name for row in rows for name in row))
    lines = [names, *([guarded(_cell(row.get(name))) for name in names] for row in rows)]
    return "".join(f"{csv_line(each)}\r\n" for each in lines if each)


def csv_line(cells: Sequence[str]) -> str:
    """Return one line of RFC 4180, without its end. Cells with spaces at their ends are quoted, too: many
    programs remove such spaces from cells without quotes."""
    line = ",".join(_quote(cell) if _NEEDS_QUOTES.search(cell) else cell for cell in cells)
    # An empty line would be no record.
    return line or _quote("")


_NEEDS_QUOTES = re.compile(r'[",\r\n]|^\s|\s$')


def _quote(cell: str) -> str:
    doubled = cell.replace('"', '""')
    return f'"{doubled}"'


def _cell(value: Any) -> Any:
    if value is None:
        return ""
    return compact(value) if isinstance(value, dict | list | bool) else value


def _bare(value: Any) -> str:
    return value if isinstance(value, str) else compact(value)


class Importance(IntEnum):
    """How long a column stays on a terminal that becomes narrower. Of two with the same importance, the left
    one stays longer."""

    #: Without it nobody knows which record this is. If a terminal has no room for all of these, the records
    #: stand one under the other.
    IDENTITY = 0
    HIGH = 1
    NORMAL = 2
    LOW = 3
    #: Only with `-o wide`, or if it is chosen.
    WIDE = 4


@dataclass(frozen=True)
class ShownColumn:
    """A column of a table: a field of the record. Its label and its texts are those of the field, unless
    `title` and `value` say otherwise. One that `wraps` has sentences, which may take several lines."""

    name: str
    title: str = ""
    value: Callable[[Any], str] | None = None
    importance: Importance = Importance.NORMAL
    wraps: bool = False

    @property
    def label(self) -> str:
        return self.title or shown(self.name).label

    @property
    def head(self) -> str:
        return self.label.upper()

    @property
    def word(self) -> str:
        """The head as the user types it."""
        return _word(self.label)

    def is_called(self, name: str) -> bool:
        """Return whether the user means it: by its head, or by the name of its field."""
        return _word(name) in {self.word, _word(self.name)}

    def text(self, record: Record) -> str:
        return (self.value or shown(self.name).text)(record.get(self.name))


def _word(text: str) -> str:
    return re.sub(r"[\W_]+", "_", text.strip().lower())


class WholeRecord(ShownColumn):
    """A column that `value` makes of the whole record."""

    def text(self, record: Record) -> str:
        return (self.value or shown(self.name).text)(record)


def completed(
    columns: Sequence[ShownColumn], fields: Iterable[str], hidden: Iterable[str] = ()
) -> tuple[ShownColumn, ...]:
    """Return the columns, and one of `-o wide` for each field that has none and is not hidden. Without
    columns, all fields are shown, and the first says which record it is."""
    known = {*hidden, *(column.name for column in columns)}
    rest = [field for field in fields if field not in known]
    if columns:
        return (*columns, *(ShownColumn(field, importance=Importance.WIDE) for field in rest))
    return (ShownColumn(rest[0], importance=Importance.IDENTITY), *map(ShownColumn, rest[1:]))


@dataclass(frozen=True)
class ResultList:
    """Records, of which a table shows some columns, and the other formats everything."""

    records: Sequence[Record]
    columns: Sequence[ShownColumn]
    status: ExitStatus = ExitStatus.DONE


@dataclass(frozen=True)
class Sheet:
    """One record: a table shows a field per line, or those of `shown`. `status` is the exit status of the
    command."""

    record: Record
    status: ExitStatus = ExitStatus.DONE
    shown: Sequence[ShownColumn] = ()

    @property
    def columns(self) -> Sequence[ShownColumn]:
        fields = [ShownColumn(name, importance=Importance.IDENTITY, wraps=True) for name in self.record]
        return self.shown or fields


@dataclass(frozen=True)
class Report:
    """A text for people, below the `table` if there is one, and the record that the other formats show. Lines
    that begin with + and - have the colours of a diff if `is_diff`. `status` is the exit status of the
    command."""

    text: str
    record: Any
    is_diff: bool = False
    status: ExitStatus = ExitStatus.DONE
    table: ResultList | None = None


Result: TypeAlias = ResultList | Sheet | Report


_GAP = "  "
#: Width to which sentences wrap before a column is left out.
_COMFORT = 32


class TableLine(NamedTuple):
    """A line of a table; its `head` stands out."""

    head: str
    rest: str = ""


class Table(NamedTuple):
    """The lines, and the columns for which there was no room."""

    lines: Sequence[TableLine]
    left_out: Sequence[ShownColumn] = ()


def fitted(columns: Sequence[ShownColumn], records: Sequence[Record], width: int | None) -> Table:
    """Return all records with those columns that have room; with all of them without a width."""
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
    return Table([TableLine(head), *(TableLine("", row) for row in rows)], left_out)


def whole(columns: Sequence[ShownColumn], records: Sequence[Record]) -> Table:
    """Return all records with all columns, each record on one line."""
    grid = [[column.head, *cells] for column, cells in zip(columns, _texts(columns, records), strict=True)]
    head, *rows = aligned(list(zip(*grid, strict=True)))
    return Table([TableLine(head), *(TableLine("", row) for row in rows)])


def listed(columns: Sequence[ShownColumn], records: Sequence[Record], width: int | None) -> Table:
    """Return all records, one under the other: a line for each field."""
    return Table(_one_under_the_other(columns, _texts(columns, records), width))


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows as lines with aligned columns."""
    widths = [max(map(width_of, column)) for column in zip(*rows, strict=True)]
    return [_joined(row, widths) for row in rows]


def width_of(text: str) -> int:
    """Return the columns that a text takes on a terminal (Unicode Standard Annex 11)."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(each) else 2 if unicodedata.east_asian_width(each) in "WF" else 1
        for each in text
    )


def _texts(columns: Sequence[ShownColumn], records: Sequence[Record]) -> list[list[str]]:
    """Return the texts of all records, by column."""
    return [[column.text(record) for record in records] for column in columns]


def _need(column: ShownColumn, texts: Sequence[str]) -> int:
    """Return the least width of a column in which no word is cut."""
    longest = max(map(width_of, texts), default=0)
    if column.wraps and longest > _COMFORT:
        words = (width_of(word) for text in texts for word in text.split(" "))
        longest = min(longest, max(_COMFORT, *words))
    return max(width_of(column.head), longest)


def _sum(widths: Iterable[int]) -> int:
    """Return the width of a line."""
    held = list(widths)
    return sum(held) + len(_GAP) * (len(held) - 1)


def _spread(needs: Sequence[int], wanted: Sequence[int], width: int) -> list[int]:
    """Return the widths of columns on a terminal: those with sentences get the room that is left."""
    widths, left = list(needs), width - _sum(needs)
    for at, most in enumerate(wanted):
        more = max(0, min(left, most - widths[at]))
        widths[at] += more
        left -= more
    return widths


def _row(row: Sequence[str], widths: Sequence[int]) -> list[str]:
    """Return the lines of one record."""
    wrapped = [_wrapped(text, width) for text, width in zip(row, widths, strict=True)]
    most = max(map(len, wrapped))
    return [
        _joined([lines[at] if at < len(lines) else "" for lines in wrapped], widths) for at in range(most)
    ]


def _joined(row: Sequence[str], widths: Sequence[int]) -> str:
    padded = (text + " " * (width - width_of(text)) for text, width in zip(row, widths, strict=True))
    return _GAP.join(padded).rstrip(" ")


def _wrapped(text: str, width: int) -> list[str]:
    """Return the lines of a text, broken between words. A longer word has a line of its own."""
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
) -> list[TableLine]:
    """Return a line for each value, behind its label, and an empty line between two records."""
    beside = max((width_of(column.label) for column in columns), default=0) + len(_GAP)
    found: list[TableLine] = []
    for record in zip(*texts, strict=True):
        if found:
            found.append(TableLine(""))
        for column, text in zip(columns, record, strict=True):
            found += _labelled(column.label, text, beside, width)
    return found


def _labelled(label: str, text: str, beside: int, width: int | None) -> list[TableLine]:
    """Return a value behind its label; or below, if the terminal has no room for a word of it."""
    padded = label + " " * (beside - width_of(label))
    if width is None:
        return [TableLine(padded, text)]
    longest = max(map(width_of, text.split(" ")))
    if longest <= width - beside:
        first, *more = _wrapped(text, width - beside)
        return [TableLine(padded, first), *(TableLine(" " * beside, each) for each in more)]
    indent = _GAP if longest + len(_GAP) <= width else ""
    return [TableLine(label), *(TableLine("", indent + each) for each in _wrapped(text, width - len(indent)))]


#: The field with the name of the context.
CONTEXT = "context"
_COLOURS = {"+": "green", "-": "red"}


class Of(NamedTuple):
    """A result, and the context that it is of."""

    context: str
    result: Result


def show(result: Result, format: Format) -> None:
    """Raises click.UsageError for columns that there are not."""
    if format.name != TABLE:
        terminal.write(format.text(_document(result), safe=terminal.is_terminal()))
        return
    if isinstance(result, Report):
        _refuse_columns(format)
        _show_report(result)
    else:
        _show_table(_table_of(result, format, terminal.width()))


def show_all(results: Sequence[Of], format: Format) -> None:
    """Print results of several gateways; each record has its context. Raises click.UsageError as `show`
    does."""
    if format.name != TABLE:
        named = [{CONTEXT: of.context, **record} for of in results for record in _records(of.result)]
        terminal.write(format.text(named, safe=terminal.is_terminal()))
        return
    tabular = [of for of in results if not isinstance(of.result, Report)]
    if tabular:
        _show_table(_side_by_side(tabular, format, terminal.width()))
    else:
        _refuse_columns(format)
    for of in results:
        if isinstance(of.result, Report):
            text = "\n".join(f"{of.context}: {each}" for each in of.result.text.splitlines())
            _show_text(text, is_diff=False)


def _table_of(result: ResultList | Sheet, format: Format, width: int | None) -> Table:
    if isinstance(result, Sheet):
        return listed(_chosen(result.columns, format), [result.record], width)
    return table(result.columns, result.records, format, width)


def picture(results: Sequence[Of], format: Format, width: int | None, *, is_one: bool) -> Table:
    """Return a table for `redraw`: of the only gateway, or of several. Raises click.UsageError as `table`
    does."""
    if not is_one:
        return _side_by_side(results, format, width)
    shown = [of.result for of in results if not isinstance(of.result, Report)]
    return _table_of(shown[0], format, width) if shown else Table(())


def _side_by_side(results: Sequence[Of], format: Format, width: int | None) -> Table:
    """Return the records of several gateways in one table, which are no Reports."""
    columns = {each.name + each.title: each for of in results for each in of.result.columns}  # type: ignore[union-attr]
    records = [{CONTEXT: of.context, **record} for of in results for record in _records(of.result)]
    context = ShownColumn(CONTEXT, importance=Importance.IDENTITY)
    if format.columns and not any(context.is_called(each) for each in format.columns):
        format = replace(format, columns=(CONTEXT, *format.columns))
    return table([context, *columns.values()], records, format, width)


def table(
    columns: Sequence[ShownColumn], records: Sequence[Record], format: Format, width: int | None
) -> Table:
    """Return the table that a format wants; `width` is that of the terminal, None without one. Raises
    click.UsageError for a column that there is not."""
    chosen = _chosen(columns, format)
    if format.columns and width is not None:
        chosen = [replace(each, importance=Importance.IDENTITY) for each in chosen]
    return whole(chosen, records) if format.is_wide else fitted(chosen, records, width)


def _chosen(columns: Sequence[ShownColumn], format: Format) -> list[ShownColumn]:
    if not format.columns:
        return [each for each in columns if format.is_wide or each.importance is not Importance.WIDE]
    found = []
    for name in format.columns:
        column = next((each for each in columns if each.is_called(name)), None)
        if column is None:
            known = ", ".join(each.word for each in columns)
            raise click.UsageError(f"--columns: there is no column {name!r}; the columns are {known}.")
        found.append(column)
    return found


def _refuse_columns(format: Format) -> None:
    if format.columns:
        raise click.UsageError("--columns: this command prints no table.")


def _document(result: Result) -> Any:
    return list(result.records) if isinstance(result, ResultList) else result.record


def _records(result: Result) -> list[dict[str, Any]]:
    match result:
        case ResultList(records):
            return list(records)
        case Sheet(record):
            return [record]
        case Report(_, dict() as record):
            return [record]
        case Report(text):
            return [{"message": text}]


def _show_table(shown: Table) -> None:
    terminal.show(*(terminal.styled(head, bold=True) + rest for head, rest in shown.lines))
    complain(_notes(shown))


def _notes(shown: Table) -> list[str]:
    names = ", ".join(each.word for each in shown.left_out)
    return [f"columns left out: {names}; -o wide shows all, --columns chooses"] if names else []


def redraw(shown: Table, first: str, notes: Sequence[str]) -> None:
    """Replace what the terminal shows by a line, as much of a table as has room, and notes."""
    below = [*_notes(shown), *notes]
    # The cursor stands below.
    room = terminal.height() - sum(map(terminal.height_of, [first, *below])) - 1
    heights = [terminal.height_of(head + rest) for head, rest in shown.lines]
    kept = len(heights)
    if sum(heights) > room:
        kept = next(at for at in range(kept) if sum(heights[: at + 1]) > room - 1)
        below.insert(0, f"{len(heights) - kept} more lines have no room")
    lines = [terminal.styled(head, bold=True) + rest for head, rest in shown.lines[:kept]]
    terminal.redraw([line(first), *lines, *map(line, below)])


def _show_report(report: Report) -> None:
    if report.table is not None and report.table.records:
        show(report.table, Format())
    _show_text(report.text, is_diff=report.is_diff)


def _show_text(text: str, *, is_diff: bool) -> None:
    held = lines(text.rstrip("\n")) if text else []
    colours = [_COLOURS.get(each[:1]) if is_diff else None for each in held]
    terminal.show(*(terminal.styled(each, colour=colour) for each, colour in zip(held, colours, strict=True)))


def lines_above(report: Report) -> list[str]:
    """Return the lines of a report, for standard error above a question."""
    held = report.table
    shown = fitted(held.columns, held.records, terminal.width()).lines if held and held.records else ()
    return [*(head + rest for head, rest in shown), *report.text.rstrip("\n").splitlines()]


class StreamPrinter:
    """Prints the records of an endless list, each at once. `fields` are those of each line of CSV."""

    def __init__(self, format: Format, fields: Sequence[str]) -> None:
        self._format = format
        self._fields = fields
        self._has_head = False

    def show(self, record: Record, text: str) -> None:
        """`text` is the line of a table."""
        if self._format.name == TABLE:
            terminal.show(*lines(text))
        elif self._format.name == CSV:
            terminal.write(self._csv(record))
        else:
            terminal.write(self._format.event(record, safe=terminal.is_terminal()))

    def _csv(self, record: Record) -> str:
        names = (CONTEXT, *self._fields) if CONTEXT in record else self._fields
        held = {name: record.get(name) for name in names}
        head, _, row = self._format.text(held, safe=terminal.is_terminal()).partition("\n")
        text = row if self._has_head else f"{head}\n{row}"
        self._has_head = True
        return text

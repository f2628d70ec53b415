"""Results of commands, from one gateway or from several, and the formats that show them.

A table never cuts a value. If a table is too wide for the terminal, its least important columns are left out.
If even the columns that identify a record do not fit, the fields of each record are shown one per line.
Sentences wrap between words. In a pipe, each record is one line with all columns.
"""

import json
import re
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from itertools import zip_longest
from typing import Any, NamedTuple, TypeAlias

import click
from click.shell_completion import CompletionItem

from gateway_client.errors import ExitStatus
from gateway_client.gateway import Record
from gatewayctl import terminal
from gatewayctl.terminal import print_errors
from gatewayctl.texts import escape, escape_lines, format_json, get_display

TABLE, WIDE_TABLE, JSON, CSV, JSONPATH = "table", "wide", "json", "csv", "jsonpath"


@dataclass(frozen=True)
class Format:
    """Output format. For the format JSONPath, `matches` returns the values of a document that the expression
    selects. A table shows all columns if `is_wide`; otherwise the `columns` that the user chose by head or
    field name."""

    name: str = TABLE
    matches: Callable[[Any], Iterable[Any]] | None = None
    is_wide: bool = False
    columns: tuple[str, ...] = ()

    def render(self, document: Any, *, safe: bool) -> str:
        """Return a document as text in this format, which must not be a table. With `safe`, each value of CSV
        or JSONPath is one line without control characters."""
        guard = escape if safe else str
        if self.matches is not None:
            values = self.matches(document)
            texts = (value if isinstance(value, str) else format_json(value) for value in values)
            return "".join(f"{guard(text)}\n" for text in texts)
        if self.name == CSV:
            return format_csv(document if isinstance(document, list) else [document], guard)
        return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


class FormatType(click.ParamType[Format]):
    """Parameter type for the name of an output format. The name `jsonpath` is followed by `=` and an
    expression."""

    name = "format"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Format:
        name, equals, expression = value.partition("=")
        if value == WIDE_TABLE:
            return Format(TABLE, is_wide=True)
        if value in (TABLE, JSON, CSV):
            return Format(value)
        if name != JSONPATH or not equals:
            self.fail("must be table, wide, json, csv or jsonpath=EXPRESSION", param, ctx)
        # Imported here, because the import takes time and the other formats do not need it.
        import jsonpath

        try:
            compiled = jsonpath.compile(expression)
        except jsonpath.JSONPathError as error:
            self.fail(f"{expression!r} is not a JSONPath expression (RFC 9535): {error}", param, ctx)
        return Format(JSONPATH, compiled.findall)

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        names = (TABLE, WIDE_TABLE, JSON, CSV, f"{JSONPATH}=")
        return [CompletionItem(name) for name in names if name.startswith(incomplete)]


def format_csv(records: Sequence[Any], guard: Callable[[Any], str] = str) -> str:
    """Return records as CSV (RFC 4180). The first line has the names of all fields. Lists and objects are
    written as JSON. `guard` returns the text to write for each value."""
    rows = [record if isinstance(record, dict) else {"value": record} for record in records]
    names = list(dict.fromkeys(name for row in rows for name in row))
    lines = [names, *([guard(_format_cell(row.get(name))) for name in names] for row in rows)]
    return "".join(f"{format_csv_line(each)}\r\n" for each in lines if each)


def format_csv_line(cells: Sequence[str]) -> str:
    """Return one line of CSV without the line break. Cells that begin or end with spaces are quoted, because
    many programs strip unquoted cells."""
    quoted = (
        '"' + cell.replace('"', '""') + '"' if _NEEDS_QUOTES_PATTERN.search(cell) else cell for cell in cells
    )
    # Readers skip an empty line.
    return ",".join(quoted) or '""'


_NEEDS_QUOTES_PATTERN = re.compile(r'[",\r\n]|^\s|\s$')


def _format_cell(value: Any) -> Any:
    if value is None:
        return ""
    return format_json(value) if isinstance(value, dict | list | bool) else value


class Importance(IntEnum):
    """Importance of a column. A narrow terminal leaves out the least important columns first."""

    #: The column identifies a record, and is never left out.
    IDENTITY = 0
    HIGH = 1
    NORMAL = 2
    LOW = 3
    #: The column is shown only with `-o wide`, or if the user chooses it.
    WIDE = 4


IDENTITY, HIGH, NORMAL, LOW, WIDE = Importance


@dataclass(frozen=True)
class Column:
    """Column of a table that shows the field `name` of the records. `title` replaces the default label of the
    field, and `value` replaces the default formatter. If `can_wrap`, a value may take several lines."""

    name: str
    importance: Importance = NORMAL
    title: str = ""
    value: Callable[[Record], str] | None = None
    can_wrap: bool = False

    @property
    def label(self) -> str:
        return self.title or get_display(self.name).label

    @property
    def head(self) -> str:
        return self.label.upper()

    @property
    def typed_name(self) -> str:
        """Head of the column as the user types it."""
        return _simplify_name(self.label)

    def is_called(self, name: str) -> bool:
        """Return True if a name is the head of this column or the name of the column's field. Case and
        punctuation are ignored."""
        return _simplify_name(name) in {self.typed_name, _simplify_name(self.name)}

    def format(self, record: Record) -> str:
        if self.value is not None:
            return self.value(record)
        return get_display(self.name).format(record.get(self.name))


def _simplify_name(text: str) -> str:
    return re.sub(r"[\W_]+", "_", text.strip().lower())


def add_wide_columns(
    columns: Sequence[Column], fields: Iterable[str], hidden: Iterable[str] = ()
) -> tuple[Column, ...]:
    """Return the given columns and further columns for `-o wide`: one for each field without a column, unless
    the field is in `hidden`."""
    excluded_names = {*hidden, *(column.name for column in columns)}
    return (*columns, *(Column(field, WIDE) for field in fields if field not in excluded_names))


@dataclass(frozen=True)
class ResultList:
    """List of records. A table shows only the columns; other formats show all fields. `notes` are lines for
    standard error."""

    records: Sequence[Record]
    columns: Sequence[Column]
    status: ExitStatus = ExitStatus.SUCCESS
    notes: Sequence[str] = ()


@dataclass(frozen=True)
class Sheet:
    """Single record. A table shows one field per line: the fields in `chosen_columns`, or all fields if
    `chosen_columns` is empty."""

    record: Record
    status: ExitStatus = ExitStatus.SUCCESS
    chosen_columns: Sequence[Column] = ()

    @property
    def records(self) -> Sequence[Record]:
        return [self.record]

    @property
    def columns(self) -> Sequence[Column]:
        return self.chosen_columns or [Column(name, IDENTITY, can_wrap=True) for name in self.record]


@dataclass(frozen=True)
class Report:
    """Text for people, and a record for the formats other than tables. The text is shown below the table
    `table`, if any. If `is_diff`, lines of the text that begin with + and - are coloured."""

    text: str
    record: Any
    is_diff: bool = False
    status: ExitStatus = ExitStatus.SUCCESS
    table: ResultList | None = None

    @property
    def records(self) -> Sequence[Record]:
        return [self.record if isinstance(self.record, dict) else {"message": self.text}]


Result: TypeAlias = ResultList | Sheet | Report


class ContextResult(NamedTuple):
    """Result of one of several gateways, with the name of the gateway's context."""

    context: str
    result: Result


_COLUMN_GAP = "  "
#: Sentences wrap to this width, in columns of the terminal, before a column is left out.
_SENTENCE_WIDTH = 32
#: Name of the field that contains the context.
CONTEXT = "context"
_DIFF_COLOURS = {"+": "green", "-": "red"}


class Table(NamedTuple):
    """Lines of a table, and the columns that were left out. On a terminal, the heads in the lines are
    bold."""

    lines: Sequence[str]
    omitted_columns: Sequence[Column] = ()


def arrange_table(result: ResultList | Sheet, format: Format, width: int | None) -> Table:
    """Return the table of a result. `width` is the width of the terminal in columns, or None in a pipe.
    Raises click.UsageError if the user chose a column that the result does not have."""
    columns = _choose_columns(result.columns, format)
    if isinstance(result, Sheet):
        return Table(_stack_fields(columns, _format_columns(columns, [result.record]), width))
    if format.columns:
        columns = [replace(each, importance=IDENTITY) for each in columns]
    return fit_table(columns, result.records, None if format.is_wide else width)


def combine_results(results: Sequence[ContextResult], *, has_context_column: bool = True) -> ResultList:
    """Return the records of several gateways as one list. With `has_context_column`, a column shows the
    context of each record."""
    columns = {
        column.name + column.title: column
        for _, result in results
        if not isinstance(result, Report)
        for column in result.columns
    }
    contexts = [Column(CONTEXT, IDENTITY)] if has_context_column else []
    return ResultList(_add_context_fields(results), [*contexts, *columns.values()])


def _choose_columns(columns: Sequence[Column], format: Format) -> list[Column]:
    """Return the columns that the user chose. If the user chose none, return all columns except the columns
    for `-o wide`. The column of the context is always included."""
    if not format.columns:
        return [each for each in columns if format.is_wide or each.importance is not WIDE]
    chosen_columns = []
    for name in format.columns:
        column = next((each for each in columns if each.is_called(name)), None)
        if column is None:
            column_names = ", ".join(each.typed_name for each in columns)
            raise click.UsageError(f"--columns: there is no column {name!r}; the columns are {column_names}.")
        chosen_columns.append(column)
    contexts = [each for each in columns if each.name == CONTEXT and each not in chosen_columns]
    return [*contexts, *chosen_columns]


def fit_table(columns: Sequence[Column], records: Sequence[Record], width: int | None) -> Table:
    """Return a table with the columns that fit into the width, or with all columns if `width` is None. If
    even the columns that identify a record do not fit, each field is on its own line."""
    cells = _format_columns(columns, records)
    widths = [
        max(map(measure_width, [column.head, *texts])) for column, texts in zip(columns, cells, strict=True)
    ]
    indexes = list(range(len(columns)))
    if width is not None:
        min_widths = [_measure_narrowest(*each) for each in zip(columns, cells, widths, strict=True)]
        while _sum_widths(min_widths[index] for index in indexes) > width:
            least_important = max(indexes, key=lambda index: (columns[index].importance, index))
            if columns[least_important].importance is IDENTITY:
                return Table(_stack_fields(columns, cells, width))
            indexes.remove(least_important)
        # Columns of sentences share the spare width, from left to right.
        spare = width - _sum_widths(min_widths[index] for index in indexes)
        for index in indexes:
            extra = min(spare, widths[index] - min_widths[index])
            widths[index], spare = min_widths[index] + extra, spare - extra
    fitted_widths = [widths[index] for index in indexes]
    head = _join_cells([columns[index].head for index in indexes], fitted_widths)
    lines = [terminal.style(head, bold=True)]
    for row in zip(*(cells[index] for index in indexes), strict=True):
        cell_lines = (_wrap_text(text, width) for text, width in zip(row, fitted_widths, strict=True))
        lines += [_join_cells(parts, fitted_widths) for parts in zip_longest(*cell_lines, fillvalue="")]
    return Table(lines, [column for index, column in enumerate(columns) if index not in indexes])


def _format_columns(columns: Sequence[Column], records: Sequence[Record]) -> list[list[str]]:
    """Return, for each column, a list of the texts of all records."""
    return [[column.format(record) for record in records] for column in columns]


def measure_width(text: str) -> int:
    """Return the number of terminal columns that a text occupies (Unicode Standard Annex 11)."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(each) else 2 if unicodedata.east_asian_width(each) in "WF" else 1
        for each in text
    )


def _measure_narrowest(column: Column, texts: Sequence[str], width: int) -> int:
    """Return the smallest width of a column in which no word is cut. `width` is the width of the column if
    its texts do not wrap."""
    longest = max(map(measure_width, texts), default=0)
    if not column.can_wrap or longest <= _SENTENCE_WIDTH:
        return width
    words = (measure_width(word) for text in texts for word in text.split(" "))
    return max(measure_width(column.head), min(longest, max(_SENTENCE_WIDTH, *words)))


def _sum_widths(widths: Iterable[int]) -> int:
    """Return the width of a table line with columns of the given widths, including the gaps."""
    return sum(width + len(_COLUMN_GAP) for width in widths) - len(_COLUMN_GAP)


def _join_cells(cells: Iterable[str], widths: Iterable[int]) -> str:
    padded = (text + " " * (width - measure_width(text)) for text, width in zip(cells, widths, strict=True))
    return _COLUMN_GAP.join(padded).rstrip(" ")


def _wrap_text(text: str, width: int) -> list[str]:
    """Return the lines of a text, broken between words. A word that is longer than the width becomes a line
    of its own."""
    if measure_width(text) <= width:
        return [text]
    lines = [""]
    for word in text.split(" "):
        longer = f"{lines[-1]} {word}" if lines[-1] else word
        if measure_width(longer) <= width or not lines[-1]:
            lines[-1] = longer
        else:
            lines.append(word)
    return lines


def _stack_fields(columns: Sequence[Column], cells: Sequence[Sequence[str]], width: int | None) -> list[str]:
    """Return the lines of the records, with one field per line as `label value`, and an empty line between
    records. If the longest word of a value does not fit beside the label, the value moves below the label."""
    start = max((measure_width(column.label) for column in columns), default=0) + len(_COLUMN_GAP)
    lines: list[str] = []
    for record in zip(*cells, strict=True):
        lines += [""] if lines else []
        for column, text in zip(columns, record, strict=True):
            label = column.label + " " * (start - measure_width(column.label))
            longest = max(map(measure_width, text.split(" ")))
            if width is None or longest <= width - start:
                first, *others = [text] if width is None else _wrap_text(text, width - start)
                lines += [terminal.style(label, bold=True) + first, *(" " * start + each for each in others)]
            else:
                indent = _COLUMN_GAP if longest + len(_COLUMN_GAP) <= width else ""
                lines.append(terminal.style(column.label, bold=True))
                lines += [indent + each for each in _wrap_text(text, width - len(indent))]
    return lines


def show(result: Result, format: Format) -> None:
    """Print a result. Raises click.UsageError if the user chose columns that the result does not have."""
    if isinstance(result, ResultList):
        print_errors(result.notes)
    if format.name != TABLE:
        document = list(result.records) if isinstance(result, ResultList) else result.record
        terminal.write(format.render(document, safe=terminal.is_terminal()))
    elif isinstance(result, Report):
        _require_no_columns(format)
        if result.table is not None and result.table.records:
            show(result.table, Format())
        _show_text(result.text, is_diff=result.is_diff)
    else:
        _show_table(arrange_table(result, format, terminal.get_width()))


def show_all(results: Sequence[ContextResult], format: Format) -> None:
    """Print the results of several gateways. Each record is shown with the context of its gateway. Raises
    click.UsageError if the user chose columns that the results do not have."""
    for context, result in results:
        if isinstance(result, ResultList):
            print_errors(result.notes, context)
    if format.name != TABLE:
        terminal.write(format.render(_add_context_fields(results), safe=terminal.is_terminal()))
        return
    tables = [each for each in results if not isinstance(each.result, Report)]
    if tables:
        _show_table(arrange_table(combine_results(tables), format, terminal.get_width()))
    elif results:
        _require_no_columns(format)
    for context, result in results:
        if isinstance(result, Report):
            _show_text("\n".join(f"{context}: {each}" for each in result.text.splitlines()), is_diff=False)


def _require_no_columns(format: Format) -> None:
    if format.columns:
        raise click.UsageError("--columns: this command prints no table.")


def _add_context_fields(results: Sequence[ContextResult]) -> list[Record]:
    return [{CONTEXT: context, **record} for context, result in results for record in result.records]


def _show_table(table: Table) -> None:
    terminal.show(*table.lines)
    print_errors(_describe_left_out(table))


def _describe_left_out(table: Table) -> list[str]:
    names = ", ".join(each.typed_name for each in table.omitted_columns)
    return [f"columns left out: {names}; -o wide shows all, --columns chooses"] if names else []


def redraw(table: Table, first: str, notes: Sequence[str]) -> None:
    """Clear the screen of the terminal, and print the line `first`, those lines of the table that fit on the
    screen, and the notes."""
    below = [*_describe_left_out(table), *notes]
    # The last line of the terminal is for the cursor.
    room = terminal.get_height() - sum(map(terminal.count_lines, [first, *below])) - 1
    heights = [terminal.count_lines(each) for each in table.lines]
    line_count = len(heights)
    if sum(heights) > room:
        line_count = next(at for at in range(line_count) if sum(heights[: at + 1]) > room - 1)
        below.insert(0, f"{len(heights) - line_count} more lines have no room")
    terminal.redraw([escape(first), *table.lines[:line_count], *map(escape, below)])


def _show_text(text: str, *, is_diff: bool) -> None:
    lines = escape_lines(text.rstrip("\n")) if text else []
    colours = [_DIFF_COLOURS.get(each[:1]) if is_diff else None for each in lines]
    terminal.show(*(terminal.style(each, colour=colour) for each, colour in zip(lines, colours, strict=True)))


def format_report(report: Report) -> list[str]:
    """Return the lines of a report that is shown on standard error above a question."""
    table = report.table
    lines = arrange_table(table, Format(), terminal.get_width()).lines if table and table.records else ()
    return [*map(click.unstyle, lines), *report.text.rstrip("\n").splitlines()]


class StreamPrinter:
    """Printer of a list without an end. Each record is printed at once. `fields` are the columns in the
    format CSV."""

    def __init__(self, format: Format, fields: Sequence[str]) -> None:
        self._format = format
        self._fields = fields
        self._has_head = False

    def print(self, record: Record, text: str) -> None:
        """Print a record. In the format table, print the line `text` instead of the record."""
        safe = terminal.is_terminal()
        if self._format.name == TABLE:
            terminal.show(*escape_lines(text))
        elif self._format.name == CSV:
            names = (CONTEXT, *self._fields) if CONTEXT in record else self._fields
            head, _, row = self._format.render(
                {name: record.get(name) for name in names}, safe=safe
            ).partition("\n")
            terminal.write(row if self._has_head else f"{head}\n{row}")
            self._has_head = True
        elif self._format.name == JSON:
            terminal.write(format_json(record) + "\n")
        else:
            terminal.write(self._format.render(record, safe=safe))

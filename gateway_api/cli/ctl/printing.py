"""Shows the results of one gateway, or of several with the context of each."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import click

from gateway_api.cli.ctl import tables, terminal
from gateway_api.cli.ctl.failures import complain
from gateway_api.cli.ctl.formats import CSV, TABLE, Format
from gateway_api.cli.ctl.results import Importance, Report, Result, ResultList, Sheet, ShownColumn
from gateway_api.cli.ctl.tables import Table
from gateway_api.cli.ctl.texts import line, lines
from gateway_api.client.gateway import Record

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
    """Prints results of several gateways; each record has its context. Raises click.UsageError as `show`
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
        return tables.listed(_chosen(result.columns, format), [result.record], width)
    return table(result.columns, result.records, format, width)


def picture(results: Sequence[Of], format: Format, width: int | None, *, is_one: bool) -> Table:
    """A table for `redraw`: of the only gateway, or of several. Raises click.UsageError as `table` does."""
    if not is_one:
        return _side_by_side(results, format, width)
    shown = [of.result for of in results if not isinstance(of.result, Report)]
    return _table_of(shown[0], format, width) if shown else Table(())


def _side_by_side(results: Sequence[Of], format: Format, width: int | None) -> Table:
    """The records of several gateways in one table, which are no Reports."""
    columns = {each.name + each.title: each for of in results for each in of.result.columns}  # type: ignore[union-attr]
    records = [{CONTEXT: of.context, **record} for of in results for record in _records(of.result)]
    context = ShownColumn(CONTEXT, importance=Importance.IDENTITY)
    if format.columns and not any(context.is_called(each) for each in format.columns):
        format = replace(format, columns=(CONTEXT, *format.columns))
    return table([context, *columns.values()], records, format, width)


def table(
    columns: Sequence[ShownColumn], records: Sequence[Record], format: Format, width: int | None
) -> Table:
    """The table that a format wants; `width` is that of the terminal, None without one. Raises
    click.UsageError for a column that there is not."""
    chosen = _chosen(columns, format)
    if format.columns and width is not None:
        chosen = [replace(each, importance=Importance.IDENTITY) for each in chosen]
    return tables.whole(chosen, records) if format.is_wide else tables.fitted(chosen, records, width)


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
    """Replaces what the terminal shows by a line, as much of a table as has room, and notes."""
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


def about(report: Report) -> list[str]:
    """The lines of a report, for standard error above a question."""
    held = report.table
    shown = tables.fitted(held.columns, held.records, terminal.width()).lines if held and held.records else ()
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

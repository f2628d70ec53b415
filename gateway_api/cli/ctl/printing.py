"""Shows the results of one gateway, or of several with the context of each."""

import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

import click

from gateway_api.cli.ctl import tables
from gateway_api.cli.ctl.formats import CSV, TABLE, Format
from gateway_api.cli.ctl.gateway import Record
from gateway_api.cli.ctl.results import Report, Result, ResultList, Sheet, ShownColumn
from gateway_api.cli.ctl.texts import lines

#: The field with the name of the context.
CONTEXT = "context"


class Of(NamedTuple):
    """A result, and the context that it is of."""

    context: str
    result: Result


def show(result: Result, format: Format) -> None:
    if format.name != TABLE:
        _write(format.text(_document(result)))
        return
    match result:
        case ResultList(records, columns):
            _show_table(records, columns)
        case Sheet(record):
            tables.show(("FIELD", "VALUE"), [(each.name, each.text(record)) for each in result.columns])
        case Report(text):
            _show_text(text, is_diff=result.is_diff)


def show_all(results: Sequence[Of], format: Format) -> None:
    """Of several gateways: each record has its context."""
    if format.name != TABLE:
        named = [{CONTEXT: of.context, **record} for of in results for record in _records(of.result)]
        _write(format.text(named))
        return
    tabular = [of for of in results if not isinstance(of.result, Report)]
    if tabular:
        columns = {each.name + each.title: each for of in tabular for each in of.result.columns}  # type: ignore[union-attr]
        records = [{CONTEXT: of.context, **record} for of in tabular for record in _records(of.result)]
        _show_table(records, [ShownColumn(CONTEXT), *columns.values()])
    for of in results:
        if isinstance(of.result, Report):
            text = "\n".join(f"{of.context}: {line}" for line in of.result.text.splitlines())
            _show_text(text, is_diff=False)


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


def _show_table(records: Sequence[dict[str, Any]], columns: Sequence[ShownColumn]) -> None:
    tables.show(
        [each.head for each in columns], [[each.text(record) for each in columns] for record in records]
    )


def _write(text: str) -> None:
    """Programs get the text as it is; on a terminal, each line is safe."""
    if sys.stdout.isatty():
        text = "".join(f"{each}\n" for each in lines(text.replace("\r\n", "\n").rstrip("\n")))
    # Else click leaves out what looks like a colour.
    click.echo(text, nl=False, color=True)


def _show_text(text: str, *, is_diff: bool) -> None:
    for line in lines(text.rstrip("\n")) if text else []:
        click.echo(tables.coloured(line) if is_diff else line)


class StreamPrinter:
    """Prints the records of an endless list, each at once. `fields` are those of each line of CSV."""

    def __init__(self, format: Format, fields: Sequence[str]) -> None:
        self._format = format
        self._fields = fields
        self._has_head = False

    def show(self, record: Record, text: str) -> None:
        """`text` is the line of a table."""
        if self._format.name == TABLE:
            click.echo(text)
        elif self._format.name == CSV:
            click.echo(self._csv(record), nl=False)
        else:
            click.echo(self._format.event(record), nl=False)

    def _csv(self, record: Record) -> str:
        names = (CONTEXT, *self._fields) if CONTEXT in record else self._fields
        head, _, row = self._format.text({name: record.get(name) for name in names}).partition("\n")
        text = row if self._has_head else f"{head}\n{row}"
        self._has_head = True
        return text

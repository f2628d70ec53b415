"""The output formats of `-o`: table, wide, json, csv, jsonpath=EXPRESSION."""

import csv
import io
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import click
from click.shell_completion import CompletionItem

from gateway_api.cli.ctl.texts import compact, line
from gateway_api.client.gateway import Record

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
        """A document in this format, which is not a table. If it is to be `safe` for a terminal, each value
        is on one line, without control characters; those of JSON are escaped when it is written."""
        guarded = line if safe else str
        if self.matches is not None:
            return "".join(f"{guarded(_bare(value))}\n" for value in self.matches(document))
        if self.name == CSV:
            return csv_text(document if isinstance(document, list) else [document], guarded)
        return json.dumps(document, indent=2, ensure_ascii=False) + "\n"

    def event(self, record: Record, *, safe: bool) -> str:
        """A record of an endless list: JSON on one line."""
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
    text = io.StringIO()
    writer = csv.DictWriter(text, names, lineterminator="\r\n")
    if names:
        writer.writeheader()
    writer.writerows({name: guarded(_cell(value)) for name, value in row.items()} for row in rows)
    return text.getvalue()


def _cell(value: Any) -> Any:
    if value is None:
        return ""
    return compact(value) if isinstance(value, dict | list | bool) else value


def _bare(value: Any) -> str:
    return value if isinstance(value, str) else compact(value)

"""Tables. On a terminal they fit its width and have colours; elsewhere a record is one line of plain text."""

import os
import sys
from collections.abc import Sequence

import click

#: rich takes milliseconds for a row.
_MOST_STYLED = 1000
#: Characters of a time: on a narrow terminal, only longer texts take several lines.
_SHORT = 25


def is_styled() -> bool:
    """Whether output may have colours: on a terminal, unless NO_COLOR is set (https://no-color.org)."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def show(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    if is_styled() and len(rows) <= _MOST_STYLED:
        _show_styled(heads, rows)
    else:
        click.echo("".join(f"{each}\n" for each in aligned([heads, *rows])), nl=False)


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows as lines with aligned columns."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    # The last column ends where its text does.
    widths[-1:] = [0]
    return ["  ".join(map(str.ljust, row, widths)) for row in rows]


def _show_styled(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    # Here, as programs need no rich, and it takes as long as a request.
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for head, *cells in zip(heads, *rows, strict=True):
        table.add_column(head, overflow="fold", no_wrap=max(map(len, cells), default=0) <= _SHORT)
    for row in rows:
        # Not as text with markup: a username may have brackets.
        table.add_row(*map(Text, row))
    Console(highlight=False).print(table)


def coloured(line: str) -> str:
    """A line of a diff."""
    colour = {"+": "green", "-": "red"}.get(line[:1])
    return click.style(line, fg=colour) if colour and is_styled() else line

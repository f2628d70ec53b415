"""Standard output and standard error. All that a command prints goes through here.

Much of it comes from subscribers, and a terminal obeys control characters. So what is for people is always
safe; what is for programs is safe on a terminal, and stays as it is in a pipe.
"""

import io
import os
import shutil
import sys
from collections.abc import Sequence

import click

from gateway_api.cli.ctl.texts import line, lines


def prepare() -> None:
    """A character that the encoding of the locale lacks, or half of one, is escaped too."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def is_terminal() -> bool:
    """Whether standard output is one."""
    return sys.stdout.isatty()


def is_styled() -> bool:
    """Whether output may have colours: on a terminal, unless NO_COLOR is set (https://no-color.org)."""
    return is_terminal() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def width() -> int | None:
    """The columns of the terminal; None without one."""
    return shutil.get_terminal_size().columns if is_terminal() else None


def height() -> int:
    """The lines of the terminal."""
    return shutil.get_terminal_size().lines


def height_of(text: str) -> int:
    """The lines that a text takes on the terminal."""
    columns = max(1, shutil.get_terminal_size().columns)
    return max(1, -(-len(text) // columns))


def can_redraw() -> bool:
    """Whether the terminal can replace what it shows."""
    return is_terminal() and os.environ.get("TERM", "dumb") != "dumb"


def redraw(texts: Sequence[str]) -> None:
    """Replaces what the terminal shows by lines, each as those of `show` (ECMA-48, CUP, EL and ED)."""
    # Nothing is cleared before its place has another text: the picture does not flicker.
    _write("\x1b[H" + "".join(f"{each}\x1b[K\n" for each in texts) + "\x1b[J")


def styled(text: str, *, bold: bool = False, colour: str | None = None) -> str:
    """A text that is safe, as `line` and `lines` make it, with colours if they may be."""
    return click.style(text, bold=bold or None, fg=colour) if text and is_styled() else text


def show(*texts: str) -> None:
    """Prints lines for people. Each is safe, and may be `styled`."""
    if texts:
        _write("".join(f"{each}\n" for each in texts))


def write(text: str) -> None:
    """Prints a text for programs."""
    if is_terminal():
        show(*lines(text.replace("\r\n", "\n").removesuffix("\n")))
    else:
        _write(text)


def tell(text: str) -> None:
    """Prints a line for people on standard error."""
    _write(f"{line(text)}\n", err=True)


def ask(question: str) -> None:
    """Prints the beginning of a line on standard error, behind which the user types."""
    _write(line(question), err=True)


def _write(text: str, *, err: bool = False) -> None:
    # Without color, click leaves out what looks like a colour.
    click.echo(text, nl=False, err=err, color=True)

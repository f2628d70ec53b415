"""Standard output and standard error. All that a command prints goes through here.

Much of it comes from subscribers, and a terminal obeys control characters. So what is for people is always
safe; what is for programs is safe on a terminal, and stays as it is in a pipe.
"""

import io
import os
import shutil
import sys
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import Any

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


def complain(texts: Iterable[str], context: str | None = None) -> None:
    """Writes lines to standard error, each with the name of the program, and of the context if there are
    several."""
    about = f"gatewayctl: {context}" if context else "gatewayctl"
    for each in texts:
        tell(f"{about}: {each}")


def ask(question: str) -> None:
    """Prints the beginning of a line on standard error, behind which the user types."""
    _write(line(question), err=True)


def _write(text: str, *, err: bool = False) -> None:
    # Without color, click leaves out what looks like a colour.
    click.echo(text, nl=False, err=err, color=True)


#: Work with fewer steps is over before anybody has seen a bar of its progress.
_FEWEST = 2


class Progress:
    """The progress of long work on standard error: a bar on a terminal, elsewhere a line for each tenth. A
    context, in which `advance` or `reach` tells how far the work of `total` steps is."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._done = 0
        self._bar: Any = None
        self._task: Any = None

    def __enter__(self) -> "Progress":
        if sys.stderr.isatty() and self._total >= _FEWEST:
            # Here, as only a terminal needs it.
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
            from rich.progress import Progress as Bar

            columns = (
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn("{task.description}"),
                TimeRemainingColumn(),
            )
            self._bar = Bar(*columns, console=Console(stderr=True), transient=True)
            self._bar.start()
            self._task = self._bar.add_task("0 failed", total=self._total)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def advance(self, *, failed: int) -> None:
        """One step more is done."""
        self.reach(self._done + 1, failed=failed)

    def reach(self, done: int, *, failed: int) -> None:
        """So many steps are done, some of which failed."""
        before, self._done = self._done, done
        if self._bar is not None:
            self._bar.update(self._task, completed=done, description=f"{failed} failed")
        elif self._total >= _FEWEST and done * 10 // self._total > before * 10 // self._total:
            complain([f"{done} of {self._total}, {failed} failed"])

"""Standard output and standard error. All that a command prints goes through here.

Much of it comes from subscribers, and a terminal obeys control characters. So what is for people is always
safe; what is for programs is safe on a terminal, and stays as it is in a pipe.

Prompts, and the files in place of them, are here too: a password is never on the command line.
"""

import io
import os
import select
import shutil
import signal
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

import click

from gatewayctl.client.contexts import Context
from gatewayctl.failures import CommandFailure, ExitStatus
from gatewayctl.texts import line, lines


def prepare() -> None:
    """A character that the encoding of the locale lacks, or half of one, is escaped too."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def is_terminal() -> bool:
    """Return whether standard output is one."""
    return sys.stdout.isatty()


def is_styled() -> bool:
    """Return whether output may have colours: on a terminal, unless NO_COLOR is set
    (https://no-color.org)."""
    return is_terminal() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def width() -> int | None:
    """Return the columns of the terminal; None without one."""
    return shutil.get_terminal_size().columns if is_terminal() else None


def height() -> int:
    """Return the lines of the terminal."""
    return shutil.get_terminal_size().lines


def height_of(text: str) -> int:
    """Return the lines that a text takes on the terminal."""
    columns = max(1, shutil.get_terminal_size().columns)
    return max(1, -(-len(text) // columns))


def can_redraw() -> bool:
    """Return whether the terminal can replace what it shows."""
    return is_terminal() and os.environ.get("TERM", "dumb") != "dumb"


def redraw(texts: Sequence[str]) -> None:
    """Replace what the terminal shows by lines, each as those of `show` (ECMA-48, CUP, EL and ED)."""
    # Nothing is cleared before its place has another text: the picture does not flicker.
    _write("\x1b[H" + "".join(f"{each}\x1b[K\n" for each in texts) + "\x1b[J")


def styled(text: str, *, bold: bool = False, colour: str | None = None) -> str:
    """Return a text that is safe, as `line` and `lines` make it, with colours if they may be."""
    return click.style(text, bold=bold or None, fg=colour) if text and is_styled() else text


def show(*texts: str) -> None:
    """Print lines for people. Each is safe, and may be `styled`."""
    if texts:
        _write("".join(f"{each}\n" for each in texts))


def write(text: str) -> None:
    """Print a text for programs."""
    if is_terminal():
        show(*lines(text.replace("\r\n", "\n").removesuffix("\n")))
    else:
        _write(text)


def tell(text: str) -> None:
    """Print a line for people on standard error."""
    _write(f"{line(text)}\n", err=True)


def complain(texts: Iterable[str], context: str | None = None) -> None:
    """Write lines to standard error, each with the name of the program, and of the context if there are
    several."""
    about = f"gatewayctl: {context}" if context else "gatewayctl"
    for each in texts:
        tell(f"{about}: {each}")


def _write(text: str, *, err: bool = False) -> None:
    try:
        # Without color, click leaves out what looks like a colour.
        click.echo(text, nl=False, err=err, color=True)
    except OSError as error:
        if err:
            raise
        # The interpreter would write the rest at its end, and complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):
            # The reader of the output has seen enough. click would end with 1.
            raise click.exceptions.Exit(ExitStatus.DONE) from error
        raise CommandFailure(ExitStatus.USAGE, f"cannot write the output: {error.strerror}") from error


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


STANDARD_INPUT = "-"


def login_of(context: Context) -> tuple[str, str] | None:
    """Return the username and password for another login, by GATEWAY_PASSWORD_FILE or at a terminal; None
    without both. Raises CommandFailure."""
    password_file = os.environ.get("GATEWAY_PASSWORD_FILE")
    if not password_file and not has_terminal():
        return None
    complain([context.token_problem(time.time()) or "the gateway does not accept the token any more"])
    username = os.environ.get("GATEWAY_USER") or context.username
    username = username_for(context, username, prompt=not password_file)
    return username, password_for(username, password_file)


def username_for(context: Context, given: str | None, *, prompt: bool = True) -> str:
    """Raises CommandFailure."""
    if given:
        return given
    if not prompt:
        raise CommandFailure(ExitStatus.USAGE, "no user: use --user, or set GATEWAY_USER")
    required_terminal("--user")
    return ask(f"Username for {context.url}: ")


def password_for(username: str, file: str | None) -> str:
    """Return the first line of the file, or what the user types. Raises CommandFailure."""
    if not file:
        required_terminal("--password-file")
        return str(click.prompt(f"Password of {line(username)}", hide_input=True, err=True))
    return first_line(file, "password")


def first_line(file: str, what: str) -> str:
    """Return the first line of a file or of standard input, without a byte-order mark. Raises
    CommandFailure."""
    try:
        read = sys.stdin.buffer.read() if file == STANDARD_INPUT else Path(file).read_bytes()
        found = read.decode("utf-8-sig").splitlines()
    except (OSError, ValueError) as error:
        raise CommandFailure(ExitStatus.USAGE, f"cannot read the {what} from {file}: {error}") from error
    if not found or not found[0]:
        raise CommandFailure(ExitStatus.USAGE, f"no {what} in {file}")
    return found[0]


def new_password(username: str, file: str | None) -> str:
    """As `password_for`, but typed twice. Raises CommandFailure."""
    if file:
        return first_line(file, "password")
    required_terminal("--password-file")
    text = f"New password of {line(username)}"
    return str(click.prompt(text, hide_input=True, confirmation_prompt="Again", err=True))


def ask(question: str) -> str:
    """Ask on standard error, and return the line that the user types. Raises click.Abort at the end of the
    input."""
    with _woken_by_signals() as woken:
        _write(line(question), err=True)
        # A read alone would not end by a Ctrl-C that came just before it.
        select.select([sys.stdin, woken], [], [])
        typed = sys.stdin.readline()
    if not typed:
        raise click.Abort
    return typed.rstrip("\n")


@contextmanager
def _woken_by_signals() -> Iterator[int]:
    """A descriptor that is readable when a signal has come. In the main thread."""
    # Not by pipe2(), which macOS lacks.
    woken, wakes = os.pipe()
    os.set_blocking(woken, False)
    os.set_blocking(wakes, False)
    before = signal.set_wakeup_fd(wakes)
    try:
        yield woken
    finally:
        signal.set_wakeup_fd(before)
        os.close(woken)
        os.close(wakes)


def required_terminal(option: str) -> None:
    """Raises CommandFailure without a terminal."""
    if not has_terminal():
        raise CommandFailure(ExitStatus.USAGE, f"no terminal for a prompt: use {option}")


def has_terminal() -> bool:
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY))
    except OSError:
        return False
    return True

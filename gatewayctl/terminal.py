"""Standard output, standard error and prompts.

Much of the output comes from subscribers, and a terminal interprets control characters. Output for people is
therefore always escaped; output for programs is escaped on a terminal, and unchanged in a pipe. A password is
typed or read from a file, and is never part of the command line.
"""

import io
import os
import select
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import click

from gateway_client.contexts import Context
from gateway_client.errors import ExitStatus
from gatewayctl.errors import CommandError
from gatewayctl.texts import escape, escape_lines


def prepare_output() -> None:
    """Make the output streams escape lone surrogates, and characters that the encoding of the locale does not
    have."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def is_terminal() -> bool:
    """Return True if standard output is a terminal."""
    return sys.stdout.isatty()


def is_styled() -> bool:
    """Return True if the output may have colours: standard output is a terminal, and NO_COLOR is not set
    (https://no-color.org)."""
    return is_terminal() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def can_redraw() -> bool:
    """Return True if the terminal can clear and redraw its screen."""
    return is_terminal() and os.environ.get("TERM", "dumb") != "dumb"


def get_width() -> int | None:
    """Return the number of columns of the terminal; None if standard output is not a terminal."""
    return shutil.get_terminal_size().columns if is_terminal() else None


def get_height() -> int:
    """Return the number of lines of the terminal."""
    return shutil.get_terminal_size().lines


def count_lines(text: str) -> int:
    """Return the number of terminal lines that a text occupies. The text may be styled."""
    columns = max(1, shutil.get_terminal_size().columns)
    return max(1, -(-len(click.unstyle(text)) // columns))


def redraw(texts: Sequence[str]) -> None:
    """Clear the screen of the terminal, and print lines that are already escaped (ECMA-48: CUP, EL and
    ED)."""
    # Each line is cleared after its new text, not before, so that the screen does not flicker.
    _write("\x1b[H" + "".join(f"{each}\x1b[K\n" for each in texts) + "\x1b[J")


def style(text: str, *, bold: bool = False, colour: str | None = None) -> str:
    """Return an escaped text in the given style. If the output has no colours, return the text without
    style."""
    return click.style(text, bold=bold or None, fg=colour) if text and is_styled() else text


def show(*texts: str) -> None:
    """Print lines for people on standard output. The lines must be escaped, and may be styled."""
    if texts:
        _write("".join(f"{each}\n" for each in texts))


def write(text: str) -> None:
    """Print a text for programs on standard output."""
    if is_terminal():
        show(*escape_lines(text.replace("\r\n", "\n").removesuffix("\n")))
    else:
        _write(text)


def tell(text: str) -> None:
    """Print a line for people on standard error."""
    _write(f"{escape(text)}\n", err=True)


def print_errors(texts: Iterable[str], context: str | None = None) -> None:
    """Print lines on standard error, each prefixed with the name of the program. `context` is the name of the
    context whose gateway has the problem, if the command has several gateways."""
    prefix = f"gatewayctl: {context}" if context else "gatewayctl"
    for each in texts:
        tell(f"{prefix}: {each}")


def _write(text: str, *, err: bool = False) -> None:
    try:
        # color=True, because otherwise click removes what looks like a colour from the output in a pipe.
        click.echo(text, nl=False, err=err, color=True)
    except OSError as error:
        if err:
            raise
        # Otherwise the interpreter would write the rest of the output at exit, and print a second error.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):
            # The reader of the output has seen enough, such as `head`. click would exit with 1.
            raise click.exceptions.Exit(ExitStatus.SUCCESS) from error
        raise CommandError(ExitStatus.USAGE, f"cannot write the output: {error.strerror}") from error


#: Work with fewer steps ends before anybody sees its progress.
_MIN_PROGRESS_STEPS = 2
#: Clears the line of the cursor (ECMA-48: EL).
_CLEAR_LINE = "\r\x1b[K"


@contextmanager
def show_progress(total: int) -> Iterator[Callable[[int, int, Sequence[str]], None]]:
    """Show the progress of work with `total` steps on standard error: a bar on a terminal, and otherwise a
    line after each tenth of the steps. Yield a function that shows new progress; its arguments are the number
    of finished steps, the number of failed steps, and lines about the last step, which are printed first."""
    has_bar = total >= _MIN_PROGRESS_STEPS and sys.stderr.isatty()
    shown_count = tenths = 0
    with click.progressbar(
        range(total), file=sys.stderr, hidden=not has_bar, show_pos=True,
        item_show_func=lambda failure_count: f"{failure_count or 0} failed",
    ) as bar:  # fmt: skip

        def update(done_count: int, failure_count: int, lines: Sequence[str]) -> None:
            nonlocal shown_count, tenths
            if lines and has_bar:
                _write(_CLEAR_LINE, err=True)
            print_errors(lines)
            bar.update(done_count - shown_count, failure_count)
            shown_count = done_count
            if not has_bar and total >= _MIN_PROGRESS_STEPS and done_count * 10 // total > tenths:
                tenths = done_count * 10 // total
                print_errors([f"{done_count} of {total}, {failure_count} failed"])

        yield update


STANDARD_INPUT = "-"


def ask_login(context: Context) -> tuple[str, str] | None:
    """Return the username and the password for a new login. The password comes from the file in
    GATEWAY_PASSWORD_FILE or from a prompt. Return None if there is neither a file nor a terminal. Raises
    CommandError if the file cannot be read or the username is unknown."""
    password_file = os.environ.get("GATEWAY_PASSWORD_FILE")
    if not password_file and not has_terminal():
        return None
    print_errors(
        [context.describe_token_problem(time.time()) or "the gateway does not accept the token any more"]
    )
    username = os.environ.get("GATEWAY_USER") or context.username
    if password_file and not username:
        raise CommandError(ExitStatus.USAGE, "no user: use --user, or set GATEWAY_USER")
    username = username or ask_username(context)
    return username, ask_password(username, password_file)


def ask_username(context: Context) -> str:
    """Return the username that the user types. Raises CommandError if there is no terminal."""
    require_terminal("--user")
    return ask(f"Username for {context.url}: ")


def ask_password(username: str, file: str | None, *, is_new: bool = False) -> str:
    """Return the first line of a file. If `file` is None, return the password that the user types. With
    `is_new`, the user types the password twice. Raises CommandError if the file cannot be read or is empty,
    or if there is no terminal."""
    if file:
        return read_first_line(file, "password")
    require_terminal("--password-file")
    text = f"{'New password' if is_new else 'Password'} of {escape(username)}"
    again = "Again" if is_new else False
    return str(click.prompt(text, hide_input=True, confirmation_prompt=again, err=True))


def read_text(file: str, content: str) -> str:
    """Return the text of a file, or of standard input if `file` is `-`, without a byte-order mark. `content`
    describes the text in errors. Raises CommandError if the file cannot be read or is not UTF-8."""
    try:
        data = sys.stdin.buffer.read() if file == STANDARD_INPUT else Path(file).read_bytes()
        return data.decode("utf-8-sig")
    except (OSError, ValueError) as error:
        raise CommandError(ExitStatus.USAGE, f"cannot read {content}: {error}") from error


def read_first_line(file: str, content: str) -> str:
    """Return the first line of a file, or of standard input if `file` is `-`, without a byte-order mark.
    `content` describes the line in errors. Raises CommandError if the file cannot be read, or if the line is
    missing or empty."""
    lines = read_text(file, f"the {content} from {file}").splitlines()
    if not lines or not lines[0]:
        raise CommandError(ExitStatus.USAGE, f"no {content} in {file}")
    return lines[0]


def ask(question: str) -> str:
    """Print a question on standard error, and return the line that the user types. Raises click.Abort at the
    end of the input."""
    with _open_wakeup_pipe() as woken:
        _write(escape(question), err=True)
        # Without the pipe, a Ctrl-C just before the read would be missed.
        select.select([sys.stdin, woken], [], [])
        answer = sys.stdin.readline()
    if not answer:
        raise click.Abort
    return answer.rstrip("\n")


@contextmanager
def _open_wakeup_pipe() -> Iterator[int]:
    """Open a pipe that becomes readable when the process receives a signal, and yield the read end of the
    pipe. Must be called in the main thread."""
    # os.pipe2 is missing on macOS.
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


def require_terminal(option: str) -> None:
    """Raise CommandError if there is no terminal for a prompt. The error suggests `option`, which the user
    can give instead of an answer."""
    if not has_terminal():
        raise CommandError(ExitStatus.USAGE, f"no terminal for a prompt: use {option}")


def has_terminal() -> bool:
    """Return True if the process has a controlling terminal, at which it can ask the user."""
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY))
    except OSError:
        return False
    return True

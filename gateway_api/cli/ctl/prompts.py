"""Prompts at a terminal, and the files in place of them: a password is never on the command line."""

import os
import select
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from gateway_api.cli.ctl import terminal
from gateway_api.cli.ctl.failures import CommandFailure, ExitStatus
from gateway_api.cli.ctl.terminal import complain
from gateway_api.cli.ctl.texts import line
from gateway_api.client.contexts import Context

STANDARD_INPUT = "-"


def login_of(context: Context) -> tuple[str, str] | None:
    """The username and password for another login, by GATEWAY_PASSWORD_FILE or at a terminal; None without
    both. Raises CommandFailure."""
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
    """The first line of the file, or what the user types. Raises CommandFailure."""
    if not file:
        required_terminal("--password-file")
        return str(click.prompt(f"Password of {line(username)}", hide_input=True, err=True))
    return first_line(file, "password")


def first_line(file: str, what: str) -> str:
    """The first line of a file or of standard input. Raises CommandFailure."""
    try:
        read = sys.stdin.buffer.read() if file == STANDARD_INPUT else Path(file).read_bytes()
        found = read.decode().splitlines()
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
    """A line that the user types. Raises click.Abort at the end of the input."""
    with _woken_by_signals() as woken:
        terminal.ask(question)
        # A read alone would not end by a Ctrl-C that came just before it.
        select.select([sys.stdin, woken], [], [])
        typed = sys.stdin.readline()
    if not typed:
        raise click.Abort
    return typed.rstrip("\n")


@contextmanager
def _woken_by_signals() -> Iterator[int]:
    """A descriptor that is readable when a signal has come. In the main thread."""
    woken, wakes = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
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

"""Runs `gatewayctl` and the script of `etc/examples`, as cron does or at a terminal."""

import json
import os
import pty
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import chdir, contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

from click.testing import CliRunner

from gatewayctl import terminal
from gatewayctl.__main__ import main
from tests.support.stack import PATIENCE, Api, wait_for

CHECK = str(Path(__file__).parents[2] / "etc" / "examples" / "check_gateway")
GATEWAYCTL = str(Path(sys.executable).parent / "gatewayctl")
#: Gives a command the terminal of its standard input, with which Ctrl-C ends it.
_AT_TERMINAL = (
    "import fcntl, os, sys, termios; os.setsid(); fcntl.ioctl(0, termios.TIOCSCTTY, 0); "
    "os.execvp(sys.argv[1], sys.argv[1:])"
)


class Ended(NamedTuple):
    status: int
    out: str
    err: str


class Shell:
    """Runs commands with an environment and contexts of its own."""

    def __init__(self, api: Api, folder: Path) -> None:
        self.api = api
        self.folder = folder
        self.environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            "XDG_CONFIG_HOME": str(folder / "con fig"),
            "TZ": "UTC",
            "GATEWAY_URL": api.url,
            "GATEWAY_CA": api.environment["GATEWAY_CA"],
        }

    def run(self, *arguments: str, feed: str = "") -> Ended:
        """Run a command in this process without a terminal: to start a process takes half a second."""
        runner = CliRunner(env={**dict.fromkeys(os.environ), **self.environment})
        handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
        with (
            runner.isolation(feed.encode()) as (out, err, _),
            patch.object(sys, "argv", ["gatewayctl", *arguments]),
            patch.object(terminal, "has_terminal", return_value=False),
            chdir(self.folder),
        ):
            time.tzset()
            try:
                status = main()
            except SystemExit as error:
                status = int(error.code or 0)
            for stream in (sys.stdout, sys.stderr):
                stream.flush()
        time.tzset()
        for number, handler in handlers.items():
            signal.signal(number, handler)
        return Ended(status, out.getvalue().decode(), err.getvalue().decode())

    def run_process(self, *arguments: str, wrap: tuple[str, ...] = ()) -> Ended:
        """Run a command in a process, as cron does."""
        return self._run([*wrap, GATEWAYCTL, *arguments])

    def check(self, *arguments: str) -> Ended:
        """Run the check for monitoring systems."""
        return self._run([CHECK, *arguments])

    def _run(self, command: list[str]) -> Ended:
        ended = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            env=self.environment,
            cwd=self.folder,
            capture_output=True,
            timeout=60,
            check=False,
            start_new_session=True,
        )
        return Ended(ended.returncode, ended.stdout.decode(), ended.stderr.decode())

    def done(self, *arguments: str, feed: str = "") -> str:
        """Return the output of a command, which must succeed."""
        ended = self.run(*arguments, feed=feed)
        assert ended.status == 0, ended
        return ended.out

    def json(self, *arguments: str) -> Any:
        """Return the JSON that a command prints."""
        return json.loads(self.done("-o", "json", *arguments))

    @contextmanager
    def started(self, *arguments: str) -> Iterator["Running"]:
        running = Running([GATEWAYCTL, *arguments], self.environment, self.folder)
        try:
            yield running
        finally:
            running.end()

    def at_terminal(self, *arguments: str, columns: int = 0, lines: int = 0) -> "Terminal":
        """Start a command at a terminal, by default of an unknown size."""
        environment = {"TERM": "xterm", **self.environment}
        return Terminal([GATEWAYCTL, *arguments], environment, self.folder, (lines, columns))

    def shown(self, *arguments: str, columns: int) -> list[str]:
        """Return the lines that a command shows at a terminal of this width, without colours."""
        size = {"COLUMNS": str(columns), "LINES": "24"}
        with (
            patch.dict(self.environment, size, NO_COLOR="1"),
            patch.object(terminal, "is_terminal", return_value=True),
        ):
            ended = self.run(*arguments)
        return (ended.out + ended.err).splitlines()

    def write(self, name: str, text: str) -> str:
        path = self.folder / name
        path.write_bytes(text.encode())
        return str(path)

    def password_file(self, role: str) -> str:
        return self.write(f"{role} password", self.api.environment[f"{role.upper()}_PASSWORD"] + "\n")

    def log_in(self, role: str) -> None:
        self.done("login", "--user", role, "--password-file", self.password_file(role))

    def has(self, token: str, name: str = "", **more: Any) -> None:
        """Make the context in which a login would keep the token, without the time of a login."""
        known = {"url": self.api.url, "ca": self.environment["GATEWAY_CA"], "username": None, "token": token}
        chosen = name or self.api.url.removeprefix("https://")
        held = json.loads(self.contexts.read_text())["contexts"] if self.contexts.exists() else {}
        self.contexts.parent.mkdir(parents=True, exist_ok=True)
        document = {"current": chosen, "contexts": held | {chosen: known | more}}
        self.contexts.write_text(json.dumps(document))

    @property
    def contexts(self) -> Path:
        return Path(self.environment["XDG_CONFIG_HOME"]) / "gatewayctl" / "contexts.json"

    @property
    def token(self) -> str:
        document = json.loads(self.contexts.read_text())
        token: str = document["contexts"][document["current"]]["token"]
        return token


class Running:
    """A command that runs until a signal stops it."""

    def __init__(self, command: list[str], environment: dict[str, str], folder: Path) -> None:
        self._out, self._err = folder / "out", folder / "err"
        with self._out.open("wb") as out, self._err.open("wb") as err:
            self._process = subprocess.Popen(
                command,
                env=environment,
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
            )

    @property
    def out(self) -> str:
        return self._out.read_text()

    @property
    def err(self) -> str:
        return self._err.read_text()

    def wait_for(self, text: str, number: int = 1) -> None:
        wait_for(text, lambda: (self.out + self.err).count(text) >= number, 20)

    def wait(self) -> int:
        return self._process.wait(PATIENCE)

    def send_signal(self, number: int) -> None:
        self._process.send_signal(number)

    def send(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def end(self) -> int:
        self._process.terminate()
        return self.wait()


class Terminal:
    """A command at a terminal; the test reads and types."""

    def __init__(
        self, command: list[str], environment: dict[str, str], folder: Path, size: tuple[int, int] = (0, 0)
    ) -> None:
        self._ours, theirs = pty.openpty()
        termios.tcsetwinsize(theirs, size)
        self._process = subprocess.Popen(
            [sys.executable, "-IS", "-c", _AT_TERMINAL, *command],
            env=environment,
            cwd=folder,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
        )
        os.close(theirs)
        self.shown = ""

    def expect(self, text: str) -> None:
        while text not in self.shown:
            assert self.read(), f"no {text!r} in {self.shown!r}"

    def read(self) -> str:
        """Return what is shown next; nothing at the end."""
        try:
            piece = os.read(self._ours, 65536).decode()
        except OSError:
            # Linux' error when the other end is closed.
            piece = ""
        self.shown += piece
        return piece

    def type(self, text: str) -> None:
        os.write(self._ours, text.encode())

    def end(self) -> int:
        while self.read():
            pass
        os.close(self._ours)
        return self._process.wait(60)

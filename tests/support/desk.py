"""Runs the scripts of `etc/examples`, as cron does or at a terminal."""

import os
import pty
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from tests.support.stack import Api, wait_for

FOLDER = Path(__file__).parents[2] / "etc" / "examples"


class Ended(NamedTuple):
    status: int
    out: str
    err: str


class Desk:
    """Runs scripts with their own environment and their own token."""

    def __init__(self, api: Api, folder: Path) -> None:
        self.api = api
        self.folder = folder
        runtime = folder / "run time"
        runtime.mkdir()
        self.environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            "XDG_RUNTIME_DIR": str(runtime),
            "TZ": "UTC",
            "GATEWAY_URL": api.url,
            "GATEWAY_CA": api.environment["GATEWAY_CA"],
        }

    def run(self, script: str, *arguments: str, feed: str = "", wrap: tuple[str, ...] = ()) -> Ended:
        """Without a terminal, as cron does."""
        ended = subprocess.run(
            [*wrap, str(FOLDER / script), *arguments],
            input=feed.encode(),
            env=self.environment,
            cwd=self.folder,
            capture_output=True,
            timeout=60,
            check=False,
            start_new_session=True,
        )
        return Ended(ended.returncode, ended.stdout.decode(), ended.stderr.decode())

    def done(self, script: str, *arguments: str, feed: str = "") -> str:
        """The output of a script, which must succeed."""
        ended = self.run(script, *arguments, feed=feed)
        assert ended.status == 0, ended
        return ended.out

    @contextmanager
    def started(self, script: str, *arguments: str) -> Iterator["Running"]:
        running = Running([str(FOLDER / script), *arguments], self.environment, self.folder)
        try:
            yield running
        finally:
            running.end()

    def at_terminal(self, script: str, *arguments: str) -> "Terminal":
        return Terminal([str(FOLDER / script), *arguments], self.environment, self.folder)

    def write(self, name: str, text: str) -> str:
        path = self.folder / name
        path.write_bytes(text.encode())
        return str(path)

    def password_file(self, role: str) -> str:
        return self.write(f"{role} password", self.api.environment[f"{role.upper()}_PASSWORD"] + "\n")

    def log_in(self, role: str) -> None:
        self.done("gateway-login", "--user", role, "--password-file", self.password_file(role))

    @property
    def token_file(self) -> Path:
        (found,) = Path(self.environment["XDG_RUNTIME_DIR"]).glob("gateway/*")
        return found

    @property
    def token(self) -> str:
        return self.token_file.read_text().strip().removeprefix("Authorization: Bearer ")


class Running:
    """A script that runs until a signal stops it."""

    def __init__(self, command: list[str], environment: dict[str, str], folder: Path) -> None:
        self._out, self._err = folder / "out", folder / "err"
        with self._out.open("wb") as out, self._err.open("wb") as err:
            self._process = subprocess.Popen(
                command,
                env=environment,
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
        return self._process.wait(60)

    def end(self) -> int:
        self._process.terminate()
        return self.wait()


class Terminal:
    """A script at a terminal; the test reads and types."""

    def __init__(self, command: list[str], environment: dict[str, str], folder: Path) -> None:
        self._ours, theirs = pty.openpty()
        self._process = subprocess.Popen(
            ["setsid", "--ctty", "--wait", *command],
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
            piece = self._read()
            assert piece, f"no {text!r} in {self.shown!r}"
            self.shown += piece

    def type(self, text: str) -> None:
        os.write(self._ours, text.encode())

    def end(self) -> int:
        while piece := self._read():
            self.shown += piece
        os.close(self._ours)
        return self._process.wait(60)

    def _read(self) -> str:
        try:
            return os.read(self._ours, 65536).decode()
        except OSError:
            # Linux' error when the other end is closed.
            return ""

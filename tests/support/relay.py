"""The program `gateway-relay`, between a running gateway and a NATS server."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.nats import NatsServer, StoredMessage
from tests.support.stack import PATIENCE, Api, wait_for

NAME = "bng-1"


@dataclass
class Relay:
    """A relay of the gateway `api`. `options` are further options, and `role` is that of its user."""

    folder: Path
    api: Api
    nats: NatsServer
    options: tuple[str, ...] = ()
    role: str = "admin"
    name: str = NAME
    process: "subprocess.Popen[bytes] | None" = field(default=None, init=False)

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.write_password(self.api.environment[f"{self.role.upper()}_PASSWORD"])

    @property
    def password_file(self) -> Path:
        return self.folder / "password"

    @property
    def spool(self) -> Path:
        return self.folder / "state" / "spool.sqlite"

    @property
    def log(self) -> str:
        return (self.folder / "log").read_text()

    def write_password(self, password: str) -> None:
        self.password_file.write_text(f"{password}\n")

    def command(self) -> list[str]:
        return [
            *(sys.executable, "-m", "gateway_relay", "--name", self.name, "--nats", self.nats.url),
            *("--url", self.api.url, "--ca", self.api.environment["GATEWAY_CA"]),
            *("--user", self.api.environment[f"{self.role.upper()}_USER"]),
            *("--password-file", str(self.password_file), "--state", str(self.folder / "state")),
            *self.options,
        ]

    def start(self) -> None:
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(self.command(), stdout=log, stderr=log)

    def end(self, number: signal.Signals = signal.SIGKILL) -> int:
        """End the relay with a signal, and return its exit status."""
        assert self.process is not None
        self.process.send_signal(number)
        return self.process.wait(PATIENCE)

    def wait_for_log(self, text: str, count: int = 1) -> None:
        wait_for(f"{text!r} in the log of the relay", lambda: self.log.count(text) >= count)

    def list_messages(self, subject: str) -> list[StoredMessage]:
        """Return the messages on a subject of the gateway."""
        return self.nats.list_messages(f"gw.{self.name}.{subject}")

    def wait_for_messages(self, subject: str, count: int = 1) -> list[StoredMessage]:
        """Wait until there are `count` messages on a subject of the gateway, and return them all."""

        def list_if_enough() -> list[StoredMessage]:
            assert self.process is not None
            assert self.process.poll() is None, self.log
            messages = self.list_messages(subject)
            return messages if len(messages) >= count else []

        return list(wait_for(f"{count} messages on {subject}", list_if_enough))


@contextmanager
def running_relay(
    folder: Path, api: Api, nats: NatsServer, *options: str, role: str = "admin", name: str = NAME
) -> Iterator[Relay]:
    """Run a relay until the end of the block."""
    relay = Relay(folder, api, nats, options, role, name)
    relay.start()
    try:
        yield relay
    finally:
        relay.end()

"""The stand-in for accel-ppp as a process, for a test."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

from gateway_core.gateways.linux.daemons.accel_command_line import CommandLine, Endpoint
from tests.support.accel import Peer
from tests.support.stack import free_port, wait_for

LOCALHOST = IPv4Address("127.0.0.1")


class Accel:
    """A running stand-in. `[cli]` includes `password_file`."""

    def __init__(self, port: int, password_file: Path | None = None) -> None:
        self.cli = Endpoint(LOCALHOST, port)
        self._password_file = password_file
        self.start()

    def start(self) -> None:
        arguments = [str(self.cli.port)]
        if self._password_file is not None:
            arguments.append(str(self._password_file))
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.accel", *arguments],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip
        wait_for("the stand-in to listen", self._process.stdout.readline)

    def kill(self) -> None:
        """Kill the stand-in with SIGKILL: all sessions end, and nothing says so."""
        self._process.kill()
        self._process.wait()
        self._process.stdin.close()
        self._process.stdout.close()

    def reset(self) -> None:
        """Put the stand-in into the state after its start."""
        self._order(reset=True)

    def up(self, *peers: Peer) -> None:
        self._order(
            up=[{k: v for k, v in asdict(peer).items() if k not in ("born", "gone")} for peer in peers]
        )

    def down(self, *sids: str) -> None:
        self._order(down=sids)

    def restart(self) -> None:
        """Restart the stand-in as an operator does: all sessions end."""
        self._order(restart=True)

    def faults(self, **changes: Any) -> None:
        self._order(faults=changes)

    def commands(self) -> list[str]:
        """Return all commands that were received, without the proofs of life."""
        return [command for command in self._order()["commands"] if command != "show version"]

    def interfaces(self) -> Any:
        """Return the names of the interfaces with PPPoE."""
        return self._order()["interfaces"]

    def reloads(self) -> Any:
        """Return the interfaces of IPoE at each `reload`."""
        return self._order()["reloads"]

    def command_line(self, **more: Any) -> CommandLine:
        return CommandLine(self.cli, **more)

    def _order(self, **order: Any) -> Any:
        self._process.stdin.write(json.dumps(order).encode() + b"\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())


@contextmanager
def running_accel() -> Iterator[Accel]:
    accel = Accel(free_port())
    try:
        yield accel
    finally:
        accel.kill()

"""A tracker as a process: `python -m tests.system.tracking FOLDER CLI_PORT` follows the stand-in for accel.

It prints each event as a JSON object, one a line, at the moment that it comes into the journal. To each line
on stdin, a JSON object, it prints an object with `reply`. `running_tracker` starts it for a test.
"""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import msgspec

from gateway_api.core.gateways.linux.sessions.hooks import HookSocket
from gateway_api.core.gateways.linux.sessions.session_store import SessionStore
from gateway_api.core.gateways.linux.sessions.tracker import NotDisconnected, Tracker
from gateway_api.core.gateways.linux.sources.accel_cli import CommandLine, Endpoint
from gateway_api.core.gateways.linux.sources.accel_ppp import AccelPpp
from gateway_api.core.gateways.linux.threads import Crew
from gateway_api.core.records.clock import Clock
from gateway_api.core.sessions.journal import Journal
from gateway_api.core.sessions.session import Counters
from gateway_api.wire.core.sessions import SessionSummary
from tests.support.running_accel import LOCALHOST
from tests.support.sources import CGNAT, Surroundings
from tests.support.stack import PATIENCE

_printing = threading.Lock()


class Tracking:
    """A tracker in a process, for a test."""

    def __init__(self, folder: Path, cli: Endpoint) -> None:
        self._command = [sys.executable, "-m", "tests.system.tracking", str(folder), str(cli.port)]
        self._replies: SimpleQueue[Any] = SimpleQueue()
        #: Of all its lives.
        self.events: list[dict[str, Any]] = []
        self.start()

    def start(self) -> None:
        self._process = subprocess.Popen(self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self._reader = threading.Thread(target=self._read, args=(self._process,))
        self._reader.start()

    def kill(self) -> None:
        """As `kill -9`."""
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()
        self._reader.join()
        self._process.stdin.close()
        self._process.stdout.close()

    def told(self, event: str) -> list[int]:
        """The ids of the sessions with such an event, in order."""
        return [told["id"] for told in list(self.events) if told["event"] == event]

    def states(self) -> dict[int, str]:
        """The states of all sessions by id."""
        return {session["id"]: session["state"] for session in self._ask(list=True)}

    def sessions(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self._ask(list=True)
        return found

    def disconnect(self, id: int) -> Any:
        """The reason of the end, None for an unknown session, or the text of the error."""
        return self._ask(disconnect=id)

    def set_rates(self, id: int, down_bps: int, up_bps: int) -> None:
        self._ask(rates=[id, down_bps, up_bps])

    def _ask(self, **order: Any) -> Any:
        self._process.stdin.write(json.dumps(order).encode() + b"\n")
        self._process.stdin.flush()
        return self._replies.get(timeout=PATIENCE)

    def _read(self, process: "subprocess.Popen[bytes]") -> None:
        for line in process.stdout:
            # One that was cut by the kill is lost to all.
            if line.endswith(b"\n"):
                found = json.loads(line)
                if "reply" in found:
                    self._replies.put(found["reply"])
                else:
                    self.events.append(found)


@contextmanager
def running_tracker(folder: Path, cli: Endpoint) -> Iterator[Tracking]:
    tracking = Tracking(folder, cli)
    try:
        yield tracking
    finally:
        tracking.kill()


class _Printed(Journal):
    """Prints an event before it is one: what a client could see is never missing here."""

    def session_up(self, session: SessionSummary, at: float) -> None:
        _print({"event": "up", "id": session.id, "username": session.username})
        super().session_up(session, at)

    def session_down(self, session: SessionSummary, reason: str, at: float, counters: Counters) -> None:
        _print({"event": "down", "id": session.id, "username": session.username, "reason": reason})
        super().session_down(session, reason, at, counters)


def _print(line: Any) -> None:
    with _printing:
        os.write(1, json.dumps(line).encode() + b"\n")


def _main() -> None:
    folder, clock = Path(sys.argv[1]), Clock("boot")
    command_line = CommandLine(Endpoint(LOCALHOST, int(sys.argv[2])), timeout=2)
    source = AccelPpp("accel-ppp", command_line, folder / "ipoe.conf", clock)
    store = SessionStore(folder)
    tracker = Tracker([source], store, _Printed("boot"), clock, CGNAT, Surroundings())
    crew, hooks = Crew(), HookSocket(folder / "hooks")
    crew.start(lambda: tracker.run(hooks, crew))
    for line in sys.stdin:
        _print({"reply": _reply(tracker, json.loads(line))})


def _reply(tracker: Tracker, order: dict[str, Any]) -> Any:
    match order:
        case {"disconnect": id}:
            try:
                end = tracker.disconnect(id)
            except NotDisconnected as error:
                return str(error)
            return end and end.reason
        case {"rates": [id, down_bps, up_bps]}:
            tracker.set_rates(id, down_bps, up_bps)
    return [msgspec.to_builtins(session.summary) for session in tracker.sessions.all()]


if __name__ == "__main__":
    _main()

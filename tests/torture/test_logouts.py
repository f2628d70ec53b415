"""Requests after the response to a logout, on each worker, while workers and the arbiter are killed."""

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from random import Random
from urllib.parse import urlsplit

import pytest

from tests.support.stack import PATIENCE, Api, descendants, issued, running_api, wait_for

WORKERS = 4
TOKENS = 60
#: Of each token on each worker, after its logout.
REQUESTS = 5
#: One of so many logouts is sent to a worker that is killed meanwhile.
KILLED = 10
RESTARTS = 3
#: Which worker gets a logout, and when a process is killed: the same in each run.
CHANCE = Random(1)

GIVEN_UP = (HTTPException, OSError)


class Workers:
    """The workers of an API over plain HTTP, each with a connection of its own."""

    def __init__(self, url: str) -> None:
        self.address = urlsplit(url).netloc
        bind = f"GATEWAY_API_BIND={self.address}".encode()
        mine = map(int, Path(f"/proc/self/task/{os.getpid()}/children").read_text().split())
        (self.arbiter,) = (
            pid for pid in mine if bind in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        )
        self.connections: dict[int, HTTPConnection] = {}

    def reach(self) -> None:
        """Waits until all workers run, and each has a connection."""
        wait_for("a connection to each worker", self._reached)

    def _reached(self) -> bool:
        running = descendants(self.arbiter)
        for pid in self.connections.keys() - set(running):
            self.connections.pop(pid).close()
        if len(running) == WORKERS == len(self.connections):
            return True
        connection = HTTPConnection(self.address, timeout=PATIENCE)
        with suppress(*GIVEN_UP):
            # It is a worker's when the worker has answered.
            connection.request("GET", "/api/v1/system/version")
            connection.getresponse().read()
            pid = server_of(connection, running)
            if pid is not None:
                self.connections.setdefault(pid, connection)
        if connection not in self.connections.values():
            connection.close()
        return False

    def send(self, pid: int, method: str, path: str, token: str) -> None:
        self.connections[pid].request(method, f"/api/v1{path}", headers={"Authorization": f"Bearer {token}"})

    def status(self, pid: int) -> int:
        """Of the response to what was sent."""
        response = self.connections[pid].getresponse()
        response.read()
        return response.status

    def statuses(self, token: str, times: int = 1) -> list[int]:
        """Of requests with this token, on all workers in turn."""
        found = []
        for _ in range(times):
            for pid in self.connections:
                self.send(pid, "GET", "/qos", token)
                found.append(self.status(pid))
        return found

    def log_out(self, token: str, kill: int | None = None) -> None:
        """Logs out on any worker, and again on another until one has answered. The process `kill` is killed
        at any moment meanwhile."""
        pid = CHANCE.choice(list(self.connections)) if kill in (None, self.arbiter) else int(kill or 0)
        with suppress(*GIVEN_UP):
            self.send(pid, "POST", "/auth/logout", token)
            if kill is not None:
                time.sleep(CHANCE.uniform(0, 0.01))
                os.kill(kill, signal.SIGKILL)
            assert self.status(pid) == 200
            return
        for other in self.connections.keys() - {pid}:
            self.send(other, "POST", "/auth/logout", token)
            # The first may have been stored.
            assert self.status(other) in (200, 401)
            return
        pytest.fail("no worker is left")


def server_of(connection: HTTPConnection, pids: list[int]) -> int | None:
    """Which of these processes has the other end of a connection."""
    port = f":{connection.sock.getsockname()[1]:04X}"
    table = [line.split() for line in Path("/proc/self/net/tcp").read_text().splitlines()[1:]]
    inodes = {f"socket:[{line[9]}]" for line in table if line[2].endswith(port)}
    for pid in pids:
        with suppress(FileNotFoundError):
            if any(str(entry.readlink()) in inodes for entry in Path(f"/proc/{pid}/fd").iterdir()):
                return pid
    return None


@contextmanager
def workers(state: Path) -> Iterator[Workers]:
    with running_api(state / "core.sock", state, WORKERS, tls=False) as url:
        found = Workers(url)
        try:
            found.reach()
            yield found
        finally:
            for connection in found.connections.values():
                connection.close()


def tokens(api: Api, state: Path, number: int) -> list[str]:
    return [issued(state, api.environment["OPERATOR_USER"], 3600) for _ in range(number)]


def test_no_worker_accepts_a_token_after_the_response_to_its_logout_while_workers_are_killed(
    api: Api, state: Path
) -> None:
    with workers(state) as found:
        for number, token in enumerate(tokens(api, state, TOKENS)):
            # Each of them has accepted the token before.
            assert set(found.statuses(token)) == {200}
            victim = None if number % KILLED else CHANCE.choice(list(found.connections))
            found.log_out(token, victim)
            if victim is not None:
                # Those that are left first, then with the new one.
                found.connections.pop(victim).close()
                assert set(found.statuses(token)) == {401}
                found.reach()
            answered = found.statuses(token, REQUESTS)
            assert set(answered) == {401}, (number, answered)


def test_no_worker_accepts_a_token_after_its_logout_when_the_arbiter_was_killed(
    api: Api, state: Path
) -> None:
    ended: list[str] = []
    others = tokens(api, state, 5)
    for _ in range(RESTARTS):
        with workers(state) as found:
            former = descendants(found.arbiter)
            now = tokens(api, state, 10)
            for token in now:
                assert set(found.statuses(token)) == {200}
            for token in now:
                found.log_out(token, found.arbiter if token == now[-1] else None)
                ended.append(token)

            def have_ended() -> bool:
                # Workers serve for a moment without their arbiter.
                with suppress(*GIVEN_UP):
                    assert {status for token in now for status in found.statuses(token)} == {401}
                return not any(map(runs, former))

            wait_for("the end of all workers", have_ended)
        with workers(state) as found:
            for token in ended:
                assert set(found.statuses(token)) == {401}
            for token in others:
                assert set(found.statuses(token)) == {200}


def runs(pid: int) -> bool:
    with suppress(FileNotFoundError, ProcessLookupError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False

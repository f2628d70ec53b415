"""Requests after the response to a logout, on each worker, while workers are killed."""

import os
import signal
import time
from contextlib import suppress
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from random import Random
from urllib.parse import urlsplit

from tests.support.audit import arbiter_of
from tests.support.sse import open_files
from tests.support.stack import PATIENCE, Api, children, issued, running_api, wait_for

WORKERS = 4
TOKENS = 60
#: Of each token on each worker, after its logout.
REQUESTS = 5
#: One of so many logouts is sent to a worker that is killed meanwhile.
KILLED = 10
#: Which worker gets a logout, and when a process is killed: the same in each run.
CHANCE = Random(1)

GIVEN_UP = (HTTPException, OSError)


class Workers:
    """The workers of an API over plain HTTP, each with a connection of its own."""

    def __init__(self, url: str, arbiter: int) -> None:
        self.address, self.arbiter = urlsplit(url).netloc, arbiter
        self.connections: dict[int, HTTPConnection] = {}

    def reach(self) -> None:
        """Waits until all workers run, and each has a connection."""
        wait_for("a connection to each worker", self._reached)

    def _reached(self) -> bool:
        running = children(self.arbiter)
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
        """Logs out on any worker, or on the one `kill`, which is killed at any moment meanwhile, and then on
        another."""
        pid = CHANCE.choice(list(self.connections)) if kill is None else kill
        with suppress(*GIVEN_UP):
            self.send(pid, "POST", "/auth/logout", token)
            if kill is not None:
                time.sleep(CHANCE.uniform(0, 0.01))
                os.kill(kill, signal.SIGKILL)
            assert self.status(pid) == 200
            return
        other = min(self.connections.keys() - {pid})
        self.send(other, "POST", "/auth/logout", token)
        # The first may have been stored.
        assert self.status(other) in (200, 401)


def server_of(connection: HTTPConnection, pids: list[int]) -> int | None:
    """Which of these processes has the other end of a connection."""
    port = f":{connection.sock.getsockname()[1]:04X}"
    table = [line.split() for line in Path("/proc/self/net/tcp").read_text().splitlines()[1:]]
    inodes = {f"socket:[{line[9]}]" for line in table if line[2].endswith(port)}
    for pid in pids:
        with suppress(FileNotFoundError):
            if inodes & open_files(pid):
                return pid
    return None


def test_no_worker_accepts_a_token_after_the_response_to_its_logout_while_workers_are_killed(
    api: Api, state: Path
) -> None:
    with running_api(state / "core.sock", state, WORKERS, tls=False) as url:
        found = Workers(url, arbiter_of(state))
        found.reach()
        for number in range(TOKENS):
            token = issued(state, api.environment["OPERATOR_USER"], 3600)
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
        for connection in found.connections.values():
            connection.close()

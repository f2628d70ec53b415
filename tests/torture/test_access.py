"""Requests of four workers while the settings of access change, and while the core is killed meanwhile."""

import json
import os
import signal
import subprocess
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from http.client import HTTPConnection
from pathlib import Path

import pytest

from gateway_contract.core.interface import CORE
from gateway_contract.varlink.client import Client, Unreachable
from tests.support.audit import arbiter_of
from tests.support.stack import call_core, issued, make_state, running_api, running_core, wait_for
from tests.system.test_cli import COMMAND
from tests.torture.test_logouts import WORKERS, Workers

#: The core is asked for some of them; others need no core.
PATHS = ("/subscribers/1", "/subscribers/history?limit=1", "/subscribers/summary", "/webhooks")
CONFIRM_SECONDS = 2


class Gateway:
    """A core whose settings change, and an API. Requests to each worker follow each other without a pause."""

    def __init__(self, folder: Path, opened: ExitStack) -> None:
        self.folder, self.socket, self._opened = folder, folder / "core.sock", opened
        #: The worker, when the request began and the response ended, and the status of each.
        self.responses = deque[tuple[int, float, float, int]]()
        #: Responses that were judged, except for those without a core: they are 500.
        self.judged = 0
        self.stopped = threading.Event()
        self.start_core()

    def start_core(self) -> None:
        started = running_core(self.socket, self.folder / "factory.json", "--sessions", "50")
        self.core = self._opened.enter_context(started)

    def restart_core(self, at: float = 0) -> None:
        self.core.terminate()
        self.core.wait()
        time.sleep(max(0, at - time.monotonic()))
        self.start_core()

    @property
    def is_enabled(self) -> bool:
        return bool(call_core(self.socket, "GetApiSettings")["enabled"])

    def send(self, worker: int, connection: HTTPConnection, token: str) -> None:
        with closing(connection):
            while not self.stopped.is_set():
                for path in PATHS:
                    began = time.monotonic()
                    connection.request("GET", f"/api/v1{path}", headers={"Authorization": f"Bearer {token}"})
                    response = connection.getresponse()
                    response.read()
                    self.responses.append((worker, began, time.monotonic(), response.status))

    def judge(self, enabled: bool, since: float, until: float = float("inf")) -> None:
        """Asserts that requests which began after `since` and ended before `until` have the rights of this
        setting. Ends at `until`, or when each worker has judged a request that began after this call."""
        right, called, workers = 200 if enabled else 503, time.monotonic(), set[int]()

        def is_over() -> bool:
            for _ in range(len(self.responses)):
                worker, began, ended, status = self.responses.popleft()
                if since < began and ended < until and status != 500:
                    assert status == right, f"{began - since:.6f} s after the change, by worker {worker}"
                    self.judged += 1
                    if began > called:
                        workers.add(worker)
            return len(workers) == WORKERS or time.monotonic() > until

        wait_for("a response of each worker", is_over)

    def change(self, enabled: bool) -> float:
        """The time of the reply."""
        call_core(self.socket, "AmendConfiguration", **amendment(enabled))
        return time.monotonic()

    def commit(self, enabled: bool) -> None:
        self.judge(enabled, self.change(enabled))

    def return_by_deadline(self, is_core_away: bool) -> None:
        self.change(True)
        call_core(self.socket, "EditCandidate", edits=amendment(False)["edits"])
        sent = time.monotonic()
        call_core(self.socket, "CommitCandidate", author="alice", confirm_seconds=CONFIRM_SECONDS)
        replied = time.monotonic()
        self.judge(False, replied, sent + CONFIRM_SECONDS)
        if is_core_away:
            self.restart_core(replied + CONFIRM_SECONDS + 1)
            assert self.is_enabled
        wait_for("the return", lambda: self.is_enabled)
        self.judge(True, time.monotonic())

    def rescue(self) -> None:
        self.commit(False)
        environment = {**os.environ, "GATEWAY_CORE_SOCKET": str(self.socket)}
        for what, enabled in (("enable", True), ("undo", False)):
            subprocess.run([COMMAND, "rescue", what], env=environment, check=True, stdout=subprocess.DEVNULL)
            self.judge(enabled, time.monotonic())

    def restart(self, enabled: bool) -> None:
        self.commit(not enabled)
        replied = self.change(enabled)
        self.restart_core()
        self.judge(enabled, replied)

    def kill(self, system_call: str, enabled: bool, number: int = 1) -> None:
        """Kills the core at the system call of this kind and number in a commit."""
        self.commit(not enabled)
        tasks = Path(f"/proc/{self.core.pid}/task")
        with closing(Client(self.socket, timeout=30)) as client:
            started: set[Path] = set()
            # The threads of other clients start, too.
            while len(started) != 1:
                client.close()
                before = set(tasks.iterdir())
                client.call(f"{CORE.name}.GetHealth")
                started = set(tasks.iterdir()) - before
            inject = f"inject={system_call}:signal=KILL:when={number}"
            command = ["timeout", "60", "strace", f"--attach={started.pop().name}", "-o", "/dev/null"]
            command += ["-e", f"trace={system_call}", "-e", inject]
            with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as strace:
                assert strace.stderr is not None
                assert "attached" in strace.stderr.readline()
                with pytest.raises(Unreachable):
                    client.call(f"{CORE.name}.AmendConfiguration", amendment(enabled))
        assert self.core.wait(30) == -signal.SIGKILL
        killed = time.monotonic()
        self.start_core()
        # What a worker still allows or refuses without a core is what the next one does.
        self.judge(self.is_enabled, killed)


def amendment(enabled: bool) -> dict[str, object]:
    edit = {"action": "set", "path": "api.enabled", "value_json": json.dumps(enabled)}
    return {"edits": [edit], "author": "root", "action": "test.enable"}


@contextmanager
def running_gateway(folder: Path) -> Iterator[Gateway]:
    make_state(folder)
    (folder / "secret").write_text("s" * 64)
    with ExitStack() as opened:
        gateway = Gateway(folder, opened)
        token = issued(folder, "operator", 3600)
        url = opened.enter_context(running_api(gateway.socket, folder, WORKERS, tls=False))
        workers = Workers(url, arbiter_of(folder))
        workers.reach()
        for pid, connection in workers.connections.items():
            thread = threading.Thread(target=gateway.send, args=(pid, connection, token))
            thread.start()
            opened.callback(thread.join)
        opened.callback(gateway.stopped.set)
        yield gateway


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    with running_gateway(tmp_path_factory.mktemp("access")) as gateway:
        yield gateway


def test_a_commit_counts_for_each_request_after_its_reply(gateway: Gateway) -> None:
    for number in range(100):
        gateway.commit(bool(number % 2))


@pytest.mark.parametrize("is_core_away", [False, True])
def test_a_return_by_deadline_counts_for_the_next_request(gateway: Gateway, is_core_away: bool) -> None:
    gateway.return_by_deadline(is_core_away)


def test_a_rescue_counts_for_the_next_request(gateway: Gateway) -> None:
    gateway.rescue()


@pytest.mark.parametrize("enabled", [True, False])
def test_a_commit_counts_while_the_core_restarts_and_afterwards(gateway: Gateway, enabled: bool) -> None:
    gateway.restart(enabled)


@pytest.mark.parametrize("enabled", [True, False])
@pytest.mark.parametrize(
    "system_call", ["mkdir", "openat", "write", "fsync", "utimensat", "rename", "sendto"]
)
def test_rights_after_a_kill_in_a_commit_are_those_of_the_next_core(
    gateway: Gateway, system_call: str, enabled: bool
) -> None:
    gateway.kill(system_call, enabled)
    # The core replies when the commit is on disk.
    assert gateway.is_enabled is (enabled if system_call == "sendto" else not enabled)

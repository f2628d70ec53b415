"""A gateway of which one folder becomes full or read-only. It serves what it can and says the reason for what
it cannot. When the folder can be written to again it serves all, without a restart: counters need a reload.
"""

import errno
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path

import pytest
import requests

from gateway_contract.core.configuration import ListChanges
from gateway_contract.core.sessions import DisconnectSession
from gateway_contract.core_client import CoreClient
from gateway_contract.varlink.client import Client
from tests.support.audit import RATES, arbiter_of
from tests.support.prometheus import samples, total
from tests.support.routes import ADMIN, ANY_ROLE, ROUTES
from tests.support.stack import Api, descendants, running_api, running_core, wait_for

WORKERS = 2
REFUSED = (500, "Cannot write the audit log")


class Gateway:
    """A core and an API with a folder for each kind of files: `run`, `var`, `audit` and `core`."""

    def __init__(self, home: Path, made: Api, state: Path) -> None:
        """`made` is a stack whose certificate, passwords and secret it has, from the folder `state`."""
        self.home = home
        self.api = made
        self._made = made
        self._factory = state / "factory.json"
        self._processes = ExitStack()
        for name in ("certificate.pem", "key.pem", "secret"):
            shutil.copy(state / name, home / name)
        for name in ("run", "var", "audit", "core"):
            (home / name).mkdir(exist_ok=True)

    def start(self) -> None:
        folders = {"RUNTIME": "run", "STATE": "var", "AUDIT": "audit"}
        settings = {f"GATEWAY_API_{name}": str(self.home / folder) for name, folder in folders.items()}
        socket = self.home / "core" / "sock"
        sessions = ("--sessions", "50", "--arrivals", "0")
        self._processes.enter_context(running_core(socket, self._factory, *sessions))
        url = self._processes.enter_context(running_api(socket, self.home, WORKERS, **settings))
        self.api = Api({**self._made.environment, "GATEWAY_URL": url})
        # The first one responds before the second one is forked.
        wait_for("its workers", lambda: len(self.workers()) == WORKERS)

    def use(self) -> None:
        """Makes something of everything."""
        assert self.change().ok
        assert self.commit().ok
        assert self.api.send("GET", "/qos", None).status_code == 401
        wait_for("the history", lambda: self.api.get("/subscribers/history")["count"] > 0)
        wait_for("the audit log", lambda: "qos.index" in self.actions())

    def kill(self) -> None:
        """All processes at once, as a power cut does. Their files stay."""
        pids = descendants(os.getpid())
        own = [
            pid for pid in pids if str(self.home).encode() in _read(pid, "cmdline") + _read(pid, "environ")
        ]
        for pid in own:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._processes.close()
        # Until then, a deleted file that one has mapped takes room.
        wait_for("the end of its processes", lambda: not any(_read(pid, "cmdline") for pid in own))

    def workers(self) -> list[int]:
        return sorted(descendants(arbiter_of(self.home)))

    def reload(self) -> list[int]:
        """Its new workers."""
        former = set(self.workers())
        os.kill(arbiter_of(self.home), signal.SIGHUP)
        wait_for("the end of the others", lambda: former.isdisjoint(self.workers()))
        # Their connections have ended with them.
        self.api.session.close()
        assert len(self.workers()) == WORKERS
        return self.workers()

    def health(self, name: str) -> tuple[str, str]:
        found = self.api.get("/system/health/detail")["dependencies"]
        return next((one["state"], one["message"]) for one in found if one["name"] == name)

    def said(self) -> str:
        """The log of the API."""
        return (self.home / "api.log").read_text()

    def change(self) -> requests.Response:
        return self.api.send("PUT", "/subscribers/1/rate", json=RATES)

    def commit(self) -> requests.Response:
        body = {"path": "system.hostname", "value": "another"}
        answer = self.api.send("POST", "/system/config/set", json=body)
        return self.api.send("POST", "/system/config/commit") if answer.ok else answer

    def actions(self) -> set[str]:
        return {record["action"] for record in self.api.get("/audit", "admin")["records"]}

    def requests_counted(self) -> float:
        return total(samples(self.api), "gateway_api_http_request_total")


def _read(pid: int, name: str) -> bytes:
    """A file of a process; empty for one that has ended, also for a zombie."""
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:
        return b""


@contextmanager
def started(gateway: Gateway) -> Iterator[list[int]]:
    """Starts a gateway that was killed: its workers. In the block it reads, at its end all is well again."""
    began = len(gateway.said())
    gateway.start()
    workers = gateway.workers()
    assert gateway.api.get("/subscribers", "operator")["count"] in (49, 50)
    assert gateway.api.send("GET", "/health", None).ok
    assert gateway.api.new_token("operator")
    assert gateway.api.get("/subscribers/history")["count"] > 0
    assert gateway.api.get("/system/config")
    assert {"subscribers.change_rate", "login.log_in", "qos.index"} <= gateway.actions()
    yield workers
    assert_recovers(gateway, workers)
    said = gateway.said()[began:]
    assert "Traceback" not in said
    # No worker starts again and again.
    assert said.count("Booting worker") == WORKERS * (1 + said.count("Handling signal: hup"))


def assert_recovers(gateway: Gateway, workers: list[int]) -> None:
    """All is well again, without a restart."""

    def states() -> set[str]:
        return {one["state"] for one in gateway.api.get("/system/health/detail")["dependencies"]}

    wait_for("a change", lambda: gateway.change().ok)
    wait_for("a commit", lambda: gateway.commit().ok)
    wait_for("health", lambda: states() <= {"ok", "unused"})
    assert gateway.workers() == workers


def message_of(answer: requests.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["message"]


@contextmanager
def mounted(folder: Path, *options: str) -> Iterator[None]:
    subprocess.run(["mount", *options, str(folder)], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


# A full disk


def fill(folder: Path) -> None:
    with (folder / "filler").open("wb", buffering=0) as file:
        for size in (1 << 20, 4096, 1):
            with pytest.raises(OSError) as refused:
                while True:
                    file.write(bytes(size))
            assert refused.value.errno == errno.ENOSPC


def free(folder: Path) -> None:
    (folder / "filler").unlink()


def empty(folder: Path) -> None:
    for path in folder.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()


@contextmanager
def gateway_on(kind: str, name: str, api: Api, state: Path, tmp_path: Path) -> Iterator[tuple[Gateway, Path]]:
    """A gateway that has run and was killed; one of its folders is a file system of its own."""
    gateway = Gateway(tmp_path, api, state)
    image = tmp_path / "image"
    options = ["-t", "tmpfs", "-o", "size=48m", "tmpfs"]
    if kind == "ext4":
        with image.open("wb") as file:
            file.truncate(48 << 20)
        # Blocks of a page, as on any larger disk. SQLite allocates one block for each page of its shared
        # memory. Of smaller blocks, the others of a page are missing on a full disk: SIGBUS ends the process.
        subprocess.run(["mkfs.ext4", "-q", "-F", "-b", "4096", "-m", "0", str(image)], check=True)
        options = ["-o", "loop", str(image)]
    with mounted(tmp_path / name, *options):
        try:
            gateway.start()
            gateway.use()
            gateway.kill()
            yield gateway, tmp_path / name
        finally:
            gateway.kill()


def test_on_a_full_runtime_folder_it_serves_without_counters_until_it_is_reloaded(
    api: Api, state: Path, tmp_path: Path
) -> None:
    with gateway_on("tmpfs", "run", api, state, tmp_path) as (gateway, folder):
        # As after a reboot.
        empty(folder)
        fill(folder)
        began = len(gateway.said())
        with started(gateway) as workers:
            assert gateway.change().ok
            assert gateway.requests_counted() == 0
            state_of_counters = 'gateway_dependency_state{dependency="counters"}'
            assert samples(gateway.api)[state_of_counters] == 2
            message = "The disk takes no counters. Workers that are not in the metrics: 2."
            assert gateway.health("counters") == ("degraded", message)
            assert gateway.health("disk") == ("failed", "0 % of the disk of the counters is free.")
            lines = gateway.said()[began:].splitlines()
            assert sum("the metrics lack the counts of this worker" in line for line in lines) == WORKERS
            free(folder)
            workers[:] = gateway.reload()
            assert samples(gateway.api)[state_of_counters] == 0


def test_a_worker_that_counts_does_so_on_a_disk_that_becomes_full(
    api: Api, state: Path, tmp_path: Path
) -> None:
    with gateway_on("tmpfs", "run", api, state, tmp_path) as (gateway, folder), started(gateway):
        fill(folder)
        before = gateway.requests_counted()
        refused = [route for route in ROUTES if route.access in (ADMIN, ANY_ROLE)]
        for route in refused:
            assert gateway.api.send(route.method, route.path, None).status_code == 401
        assert gateway.requests_counted() > before + len(refused)
        assert gateway.health("counters")[0] == "ok"
        free(folder)


def test_on_a_full_disk_the_audit_log_is_read_also_without_its_index_and_nothing_changes(
    api: Api, state: Path, tmp_path: Path
) -> None:
    with gateway_on("ext4", "audit", api, state, tmp_path) as (gateway, folder):
        # As after a power cut.
        for index in folder.glob("*-shm"):
            index.unlink()
        assert (folder / "known.sqlite-wal").stat().st_size > 0
        fill(folder)
        with started(gateway):
            for answer in (gateway.change(), gateway.commit()):
                assert message_of(answer) == REFUSED
            free(folder)


def test_on_a_full_disk_of_the_core_commits_are_refused_and_its_log_of_changes_costs_one_line(
    api: Api, state: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with gateway_on("ext4", "core", api, state, tmp_path) as (gateway, folder):
        fill(folder)
        capfd.readouterr()
        with started(gateway):
            message = "Cannot store the candidate: No space left on device. Nothing was changed"
            assert message_of(gateway.commit()) == (500, message)
            with closing(Client(folder / "sock", timeout=10)) as client:
                core = CoreClient(client)
                # Without the id of a request: the core has to note it.
                core.call(DisconnectSession(3, author="root"))
                for _ in range(10):
                    assert core.call(ListChanges()).changes == ()
            (line,) = (line for line in capfd.readouterr().err.splitlines() if "cannot log" in line)
            assert "they stay in memory; the last change is subscribers.disconnect" in line
            free(folder)
        wait_for("its record", lambda: "subscribers.disconnect" in gateway.actions())


# A read-only folder


@contextmanager
def read_only(folder: Path) -> Iterator[None]:
    """A folder that no process can write to, unless it has opened a file there before."""
    with mounted(folder, "--bind", str(folder)):
        subprocess.run(["mount", "-o", "remount,bind,ro", str(folder)], check=True)
        yield


@pytest.fixture
def gateway(api: Api, state: Path, tmp_path: Path) -> Iterator[Gateway]:
    """One that has run, and has something of everything."""
    made = Gateway(tmp_path, api, state)
    try:
        made.start()
        made.use()
        yield made
    finally:
        made.kill()


def test_with_a_read_only_audit_log_at_the_start_all_is_read_and_nothing_changes(gateway: Gateway) -> None:
    gateway.kill()
    began = len(gateway.said())
    with ExitStack() as mount:
        mount.enter_context(read_only(gateway.home / "audit"))
        with started(gateway):
            assert message_of(gateway.change()) == REFUSED
            message = "The disk of the audit log cannot be written to: Read-only file system."
            assert gateway.health("disk") == ("failed", message)
            assert "cannot write the audit log, so changes are refused" in gateway.said()[began:]
            mount.close()


def test_with_a_read_only_runtime_folder_another_worker_follows_one_that_is_killed(gateway: Gateway) -> None:
    before = gateway.requests_counted()
    with read_only(gateway.home / "run"):
        former = gateway.workers()
        for pid in former:
            os.kill(pid, signal.SIGKILL)
        # Its connections have ended with them.
        gateway.api.session.close()
        wait_for("others", lambda: len(set(gateway.workers()) - set(former)) == len(former))
        assert gateway.change().ok
        assert gateway.health("counters")[0] == "degraded"
        assert gateway.health("disk")[0] == "failed"
    assert_recovers(gateway, gateway.reload())
    assert gateway.requests_counted() > before


def test_with_a_read_only_runtime_folder_at_the_start_it_serves_without_the_hub(gateway: Gateway) -> None:
    gateway.kill()
    # As after a reboot.
    empty(gateway.home / "run")
    with ExitStack() as mount:
        mount.enter_context(read_only(gateway.home / "run"))
        with started(gateway) as workers:
            assert gateway.change().ok
            message = "The hub, which delivers to webhooks, does not reply."
            assert gateway.health("hub") == ("failed", message)
            mount.close()
            workers[:] = gateway.reload()

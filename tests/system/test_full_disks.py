"""A gateway whose processes are all killed and started again on a full file system, one for each folder.

It serves what it can and says the reason of what it cannot. With room again it serves all, without a restart.
"""

import errno
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import requests

from gateway_api.core_client.commands import Daemon
from gateway_api.wire.core.configuration import ListChanges
from gateway_api.wire.core.sessions import DisconnectSession
from gateway_api.wire.varlink.client import Client
from tests.support.prometheus import samples
from tests.support.stack import Api, descendants, free_port, listens, wait_for

RATES = {"rate_down": "50 mbit", "rate_up": "10 mbit"}
WORKERS = 2


@dataclass
class Disk:
    """A file system of its own."""

    folder: Path

    def fill(self) -> None:
        with (self.folder / "filler").open("wb", buffering=0) as file:
            for size in (1 << 20, 4096, 1):
                with pytest.raises(OSError) as refused:
                    while True:
                        file.write(bytes(size))
                assert refused.value.errno == errno.ENOSPC

    def free(self) -> None:
        (self.folder / "filler").unlink()


@dataclass
class Gateway:
    """A core and an API below one folder: the parts of /run and /var/lib that they have on an appliance."""

    home: Path
    #: A stack with certificate, passwords and secret.
    made: Api
    state: Path
    processes: list["subprocess.Popen[bytes]"] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.folders = {
            name: self.home / name
            for name in ("run", "var", "var/gateway-api", "var/gateway-api/audit", "var/gateway-core")
        }
        self.port = free_port()
        self.log = self.home / "log"
        self.log.touch()
        self.api = Api({**self.made.environment, "GATEWAY_URL": f"https://localhost:{self.port}"})

    def make_folders(self) -> None:
        for folder in (*self.folders.values(), self.home / "run/gateway-core", self.home / "run/gateway-api"):
            folder.mkdir(exist_ok=True)

    def start(self) -> None:
        run, var = self.folders["run"], self.folders["var"]
        socket = run / "gateway-core" / "core.sock"
        core = [
            *(sys.executable, "-m", "gateway_api.cli.core", "lab", "--socket", str(socket)),
            *("--configuration", str(var / "gateway-core" / "configuration")),
            *("--factory", str(self.state / "factory.json"), "--sessions", "50", "--arrivals", "0"),
        ]
        environment = {
            **os.environ,
            "GATEWAY_CORE_SOCKET": str(socket),
            "GATEWAY_API_RUNTIME": str(run / "gateway-api"),
            "GATEWAY_API_STATE": str(var / "gateway-api"),
            "GATEWAY_API_AUDIT": str(var / "gateway-api" / "audit"),
            "GATEWAY_API_BIND": f"127.0.0.1:{self.port}",
            "GATEWAY_API_CERTIFICATE": str(self.state / "certificate.pem"),
            "GATEWAY_API_KEY": str(self.state / "key.pem"),
            "GATEWAY_API_WORKERS": str(WORKERS),
            "SVC_API_SECRET": (self.state / "secret").read_text(),
        }
        gunicorn = str(Path(sys.executable).parent / "gunicorn")
        self._spawn(core, environment)
        wait_for("the core", lambda: self._goes_on() and listens(socket))
        self._spawn([gunicorn, "--config", "python:gateway_api.serving.users"], environment)
        wait_for("the API", lambda: self._goes_on() and self._answers())
        # The first one responds before the second one is forked.
        wait_for("its workers", lambda: len(self.workers()) == WORKERS)

    def kill(self) -> None:
        """All processes at once, as a power cut does. Their files stay."""
        children = [pid for process in self.processes for pid in descendants(process.pid)]
        for process in self.processes:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        for process in self.processes:
            process.wait()
        # Until then, a deleted file that one has mapped takes room.
        wait_for("the end of its processes", lambda: all(map(_has_ended, children)))
        self.processes.clear()

    def restart(self, full: Disk) -> int:
        """Kills all and starts them again on a full disk. Returns the characters that the log had before."""
        self.kill()
        full.fill()
        began = len(self.said())
        self.start()
        return began

    def workers(self) -> list[int]:
        return sorted(descendants(self.processes[1].pid))

    def health(self) -> dict[str, tuple[str, str]]:
        found = self.api.get("/system/health/detail")["dependencies"]
        return {one["name"]: (one["state"], one["message"]) for one in found}

    def said(self) -> str:
        return self.log.read_text()

    def change(self) -> requests.Response:
        return self.api.send("PUT", "/subscribers/1/rate", json=RATES)

    def commit(self) -> requests.Response:
        body = {"path": "system.hostname", "value": "another"}
        answer = self.api.send("POST", "/system/config/set", json=body)
        return self.api.send("POST", "/system/config/commit") if answer.ok else answer

    def actions(self) -> set[str]:
        return {record["action"] for record in self.api.get("/audit", "admin")["records"]}

    def _spawn(self, command: list[str], environment: dict[str, str]) -> None:
        with self.log.open("ab") as log:
            self.processes.append(
                subprocess.Popen(
                    command, env=environment, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
                )
            )

    def _goes_on(self) -> bool:
        assert all(process.poll() is None for process in self.processes), self.said()
        return True

    def _answers(self) -> bool:
        try:
            return self.api.send("GET", "/system/version", None).ok
        except requests.ConnectionError:
            return False


@contextmanager
def mounted(kind: str, folder: Path, image: Path) -> Iterator[Disk]:
    if kind == "tmpfs":
        mount = ["mount", "-t", "tmpfs", "-o", "size=48m", "tmpfs", str(folder)]
    else:
        with image.open("wb") as file:
            file.truncate(48 << 20)
        subprocess.run(["mkfs.ext4", "-q", "-F", "-m", "0", str(image)], check=True)
        mount = ["mount", "-o", "loop", str(image), str(folder)]
    if not shutil.which("mount") or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("nothing can be mounted here")
    try:
        yield Disk(folder)
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest.fixture(params=["tmpfs", "ext4"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@contextmanager
def gateway_on(kind: str, name: str, api: Api, state: Path, tmp_path: Path) -> Iterator[tuple[Gateway, Disk]]:
    """A gateway that has run, and has something of everything; one of its folders is a disk of its own."""
    gateway = Gateway(tmp_path, api, state)
    folder = gateway.folders[name]
    folder.mkdir(parents=True)
    with mounted(kind, folder, tmp_path / "image") as disk:
        gateway.make_folders()
        try:
            gateway.start()
            assert gateway.change().ok
            assert gateway.commit().ok
            assert gateway.api.send("GET", "/qos", None).status_code == 401
            wait_for("the history", lambda: gateway.api.get("/subscribers/history")["count"] > 0)
            wait_for("the audit log", lambda: "qos.index" in gateway.actions())
            yield gateway, disk
        finally:
            gateway.kill()


def _has_ended(pid: int) -> bool:
    """True for a zombie, too: it has no files any more."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in ("Z", "X")
    except OSError:
        return True


def assert_serves(gateway: Gateway, began: int) -> None:
    """What reads is served, nobody gets a traceback, and no worker starts again and again."""
    assert gateway.api.get("/subscribers", "operator")["count"] in (49, 50)
    assert gateway.api.send("GET", "/health", None).ok
    assert gateway.api.new_token("operator")
    assert gateway.api.get("/subscribers/history")["count"] > 0
    assert gateway.api.get("/system/config")
    assert {"subscribers.change_rate", "login.log_in", "qos.index"} <= gateway.actions()
    said = gateway.said()[began:]
    assert "Traceback" not in said
    assert said.count("Booting worker") == WORKERS


def assert_recovers(gateway: Gateway, workers: list[int]) -> None:
    """All is well again, without a restart."""
    wait_for("a change", lambda: gateway.change().ok)
    wait_for("a commit", lambda: gateway.commit().ok)
    states = {"ok", "unused"}
    wait_for("health", lambda: {state for state, _ in gateway.health().values()} <= states)
    assert gateway.workers() == workers


def counted(gateway: Gateway) -> float:
    return sum(
        value for name, value in samples(gateway.api).items() if "gateway_api_http_requests_total" in name
    )


def state_of(gateway: Gateway, dependency: str) -> float:
    name = f'gateway_dependency_state{{dependency="{dependency}"}}'
    return samples(gateway.api)[name]


def test_on_a_full_runtime_folder_it_serves_without_counters_and_takes_them_up_when_there_is_room(
    kind: str, api: Api, state: Path, tmp_path: Path
) -> None:
    with gateway_on(kind, "run", api, state, tmp_path) as (gateway, disk):
        gateway.kill()
        # As after a reboot.
        shutil.rmtree(gateway.home / "run" / "gateway-api")
        gateway.make_folders()
        disk.fill()
        began = len(gateway.said())
        gateway.start()
        workers = gateway.workers()
        assert_serves(gateway, began)
        assert gateway.change().ok
        assert counted(gateway) == 0
        assert state_of(gateway, "counters") == 2
        assert gateway.health()["counters"] == (
            "degraded",
            "The disk takes no counters. Workers that are not in the metrics: 2.",
        )
        assert gateway.health()["disk"] == ("failed", "0 % of the disk of the counters is free.")
        lines = gateway.said()[began:].splitlines()
        assert sum("metrics lack the counters of a worker" in line for line in lines) == WORKERS
        disk.free()
        wait_for("the counters", lambda: state_of(gateway, "counters") == 0)
        # With what they counted before.
        changes = (
            'gateway_api_http_requests_total{method="PUT",route="/api/v1/subscribers/{id}/rate",status="200"}'
        )
        assert samples(gateway.api)[changes] == 1
        assert_recovers(gateway, workers)


def test_on_a_full_disk_of_the_audit_log_it_is_read_and_nothing_changes(
    kind: str, api: Api, state: Path, tmp_path: Path
) -> None:
    with gateway_on(kind, "var/gateway-api/audit", api, state, tmp_path) as (gateway, disk):
        began = gateway.restart(disk)
        workers = gateway.workers()
        assert_serves(gateway, began)
        answer = gateway.change()
        assert (answer.status_code, answer.json()["message"]) == (500, "Cannot write the audit log")
        disk.free()
        assert_recovers(gateway, workers)


def test_an_audit_log_whose_index_a_power_cut_has_taken_is_read_on_a_full_disk(
    kind: str, api: Api, state: Path, tmp_path: Path
) -> None:
    with gateway_on(kind, "var/gateway-api/audit", api, state, tmp_path) as (gateway, disk):
        gateway.kill()
        audit = gateway.folders["var/gateway-api/audit"]
        for index in audit.glob("*-shm"):
            index.unlink()
        assert (audit / "known.sqlite-wal").stat().st_size > 0
        disk.fill()
        began = len(gateway.said())
        gateway.start()
        workers = gateway.workers()
        assert_serves(gateway, began)
        disk.free()
        assert_recovers(gateway, workers)


def test_an_audit_log_that_could_not_be_made_on_a_full_disk_is_empty(
    kind: str, api: Api, state: Path, tmp_path: Path
) -> None:
    with gateway_on(kind, "var/gateway-api/audit", api, state, tmp_path) as (gateway, disk):
        gateway.kill()
        for file in gateway.folders["var/gateway-api/audit"].glob("*.sqlite*"):
            file.unlink()
        disk.fill()
        gateway.start()
        assert gateway.api.get("/audit", "admin")["records"] == []
        assert gateway.api.send("GET", "/qos", None).status_code == 401
        wait_for("its record", lambda: "requests without a valid token are not" in gateway.said())
        assert gateway.api.get("/audit", "admin")["records"] == []


@pytest.mark.parametrize("name", ["var/gateway-api", "var"])
def test_with_a_full_disk_at_the_start_all_is_read_and_nothing_changes(
    kind: str, name: str, api: Api, state: Path, tmp_path: Path
) -> None:
    with gateway_on(kind, name, api, state, tmp_path) as (gateway, disk):
        began = gateway.restart(disk)
        workers = gateway.workers()
        assert_serves(gateway, began)
        for answer in (gateway.change(), gateway.commit()):
            assert (answer.status_code, answer.json()["message"]) == (500, "Cannot write the audit log")
        token = gateway.api.new_token("operator")
        answer = gateway.api.send("POST", "/auth/logout", token=token)
        message = "Cannot store the logout: the token is still valid"
        assert (answer.status_code, answer.json()["message"]) == (500, message)
        disk.free()
        assert_recovers(gateway, workers)


def test_on_a_full_disk_of_the_core_commits_are_refused_and_its_log_of_changes_costs_one_line(
    kind: str, api: Api, state: Path, tmp_path: Path
) -> None:
    with gateway_on(kind, "var/gateway-core", api, state, tmp_path) as (gateway, disk):
        began = gateway.restart(disk)
        workers = gateway.workers()
        answer = gateway.commit()
        message = "Cannot store the candidate: No space left on device. Nothing was changed"
        assert (answer.status_code, answer.json()["message"]) == (500, message)
        with closing(Client(gateway.home / "run" / "gateway-core" / "core.sock", timeout=10)) as client:
            core = Daemon(client)
            # Without the id of a request: the core has to note it.
            core.reply(DisconnectSession(3, author="root"))
            for _ in range(10):
                assert core.reply(ListChanges()).changes == ()
        assert_serves(gateway, began)
        said = gateway.said()[began:].splitlines()
        (line,) = (line for line in said if "cannot note" in line)
        assert "cannot note 1 changes, the last of which is subscribers.disconnect" in line
        disk.free()
        assert_recovers(gateway, workers)
        by_core = {"action": "subscribers.disconnect"}
        wait_for("it", lambda: gateway.api.get("/audit", "admin", params=by_core)["records"])

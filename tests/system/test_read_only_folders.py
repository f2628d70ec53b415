"""A gateway one of whose folders becomes read-only: it serves, says so, and recovers without a restart."""

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.contract.test_token_profile import running_profile
from tests.support.stack import Api, wait_for
from tests.system.test_full_disks import Gateway, assert_recovers, assert_serves, counted

REFUSED = (500, "Cannot write the audit log")
NOT_DELIVERED = "The hub, which delivers to webhooks, does not reply."


@contextmanager
def read_only(folder: Path) -> Iterator[None]:
    """A folder that no process can write to, unless it has opened a file there before."""
    mount = ["mount", "--bind", str(folder), str(folder)]
    if not shutil.which("mount") or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("nothing can be mounted here")
    try:
        subprocess.run(["mount", "-o", "remount,bind,ro", str(folder)], check=True)
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest.fixture
def gateway(api: Api, state: Path, tmp_path: Path) -> Iterator[Gateway]:
    """One that has run, and has something of everything."""
    made = Gateway(tmp_path, api, state)
    for folder in made.folders.values():
        folder.mkdir(parents=True, exist_ok=True)
    made.make_folders()
    try:
        made.start()
        assert made.change().ok
        assert made.commit().ok
        assert made.api.send("GET", "/qos", None).status_code == 401
        wait_for("the history", lambda: made.api.get("/subscribers/history")["count"] > 0)
        wait_for("the audit log", lambda: "qos.index" in made.actions())
        yield made
    finally:
        made.kill()


def test_with_a_read_only_audit_log_at_the_start_all_is_read_and_nothing_changes(gateway: Gateway) -> None:
    gateway.kill()
    began = len(gateway.said())
    with read_only(gateway.folders["var/gateway-api/audit"]):
        gateway.start()
        workers = gateway.workers()
        assert_serves(gateway, began)
        answer = gateway.change()
        assert (answer.status_code, answer.json()["message"]) == REFUSED
        message = "The disk of the audit log cannot be written to: Read-only file system."
        assert gateway.health()["disk"] == ("failed", message)
        assert "cannot write the audit log, so changes are refused" in gateway.said()[began:]
    assert_recovers(gateway, workers)


def test_with_a_read_only_runtime_folder_another_worker_follows_one_that_is_killed(gateway: Gateway) -> None:
    before = counted(gateway)
    with read_only(gateway.home / "run" / "gateway-api"):
        former = gateway.workers()
        for pid in former:
            os.kill(pid, signal.SIGKILL)
        # Its connections have ended with them.
        gateway.api.session.close()
        wait_for("others", lambda: len(set(gateway.workers()) - set(former)) == len(former))
        assert gateway.change().ok
        assert gateway.health()["counters"][0] == "degraded"
        assert gateway.health()["disk"][0] == "failed"
    assert_recovers(gateway, gateway.workers())
    # What was counted before, and in memory.
    assert counted(gateway) > before + 3


def test_with_a_read_only_runtime_folder_at_the_start_it_serves_without_the_hub(gateway: Gateway) -> None:
    gateway.kill()
    # As after a reboot.
    runtime = gateway.home / "run" / "gateway-api"
    shutil.rmtree(runtime)
    runtime.mkdir()
    began = len(gateway.said())
    with read_only(runtime):
        gateway.start()
        workers = gateway.workers()
        assert_serves(gateway, began)
        assert gateway.change().ok
        assert gateway.health()["hub"] == ("failed", NOT_DELIVERED)
    assert_recovers(gateway, workers)


def test_the_alternative_profile_reads_with_a_read_only_audit_log(tmp_path: Path) -> None:
    audit = tmp_path / "audit"
    audit.mkdir()
    with ExitStack() as mounted:
        mounted.enter_context(read_only(audit))
        with running_profile(tmp_path) as (profile, _):
            sections = profile.get("/config")
            answer = profile.put(sections)
            assert (answer.status_code, answer.json()["message"]) == REFUSED
            mounted.close()
            assert profile.put(sections).ok

"""A core that is killed at system calls of a commit.

`tests/unit/test_commit_crash.py` tries every call of every change, in one process.
"""

import json
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from gateway_api.wire.varlink.client import Client, Unreachable
from tests.support.stack import call_core, running_core, wait_for

INTERFACE = "org.gatewayapi.core"
COMMIT = {"author": "alice", "comment": "why"}


@pytest.fixture
def factory(tmp_path: Path, document: dict[str, Any]) -> Path:
    file = tmp_path / "factory.json"
    file.write_text(json.dumps(document))
    return file


@contextmanager
def killing(core: "subprocess.Popen[bytes]", socket: Path, system_call: str) -> Iterator[Client]:
    """A client. The first such system call of the thread that serves it kills the core."""
    tasks = Path(f"/proc/{core.pid}/task")
    before = set(tasks.iterdir())
    with closing(Client(socket, timeout=30)) as client:
        client.call(f"{INTERFACE}.GetHealth")
        (thread,) = set(tasks.iterdir()) - before
        inject = f"inject={system_call}:signal=KILL:when=1"
        command = ["strace", f"--attach={thread.name}", "-e", f"trace={system_call}", "-e", inject]
        with subprocess.Popen([*command, "-o", "/dev/null"], stderr=subprocess.PIPE, text=True) as strace:
            assert strace.stderr is not None
            assert "attached" in strace.stderr.readline()
            try:
                yield client
            finally:
                strace.terminate()


def stage(socket: Path, hostname: str) -> None:
    edit = {"action": "set", "path": "system.hostname", "value_json": json.dumps(hostname)}
    call_core(socket, "EditCandidate", edits=[edit])


def running_name(socket: Path) -> Any:
    return call_core(socket, "GetConfiguration")["configuration"]["system"]["hostname"]


@pytest.mark.parametrize("system_call", ["mkdir", "openat", "write", "fsync", "rename", "sendto"])
def test_a_core_killed_in_a_commit_has_made_it_when_it_answers_and_not_before(
    system_call: str, tmp_path: Path, factory: Path
) -> None:
    socket = tmp_path / "core"
    with running_core(socket, factory, "--sessions", "0") as core:
        stage(socket, "bng2")
        with killing(core, socket, system_call) as client:
            with pytest.raises(Unreachable):
                client.call(f"{INTERFACE}.CommitCandidate", COMMIT)
            assert core.wait(30) == -signal.SIGKILL
    with running_core(socket, factory, "--sessions", "0"):
        # The core sends its answer when all is on the disk.
        assert running_name(socket) == ("bng2" if system_call == "sendto" else "bng1")
        stage(socket, "bng3")
        call_core(socket, "CommitCandidate", **COMMIT)
        assert running_name(socket) == "bng3"


def test_a_core_that_starts_after_a_deadline_never_answers_with_what_was_not_confirmed(
    tmp_path: Path, factory: Path
) -> None:
    socket = tmp_path / "core"
    with running_core(socket, factory, "--sessions", "0"):
        stage(socket, "bng2")
        deadline = call_core(socket, "CommitCandidate", **COMMIT, confirm_seconds=1)["confirm_deadline"]
    wait_for("the deadline", lambda: time.time() > deadline)
    with running_core(socket, factory, "--sessions", "0"):
        assert running_name(socket) == "bng1"
        newest, *_ = call_core(socket, "ListArchive")["revisions"]
        assert newest["author"] == "alice"

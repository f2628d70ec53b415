"""Jobs while workers and cores are killed: each session once, and never again."""

import json
import os
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gateway_contract.core.interface import CORE
from gateway_contract.varlink.client import Client
from tests.support.stack import (
    Api,
    call_core,
    children,
    core_of,
    listens,
    running_core,
    running_stack,
    wait_for,
)

SESSIONS = 300


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Api, int]]:
    """A gateway whose sessions stay, and the arbiter of its workers."""
    with running_stack(tmp_path_factory.mktemp("jobs"), sessions=SESSIONS) as (api, process):
        (arbiter,) = set(children(process.pid)) - {core_of(process)}
        yield api, arbiter


def ends(socket: Path) -> Counter[int]:
    """How often each session has ended in this life of the core."""
    client = Client(socket, timeout=10)
    found: Counter[int] = Counter()
    # From the first event on.
    for raw in client.stream(f"{CORE.name}.SubscribeEvents", {"after_sequence": 0}, silence=60):
        reply = json.loads(bytes(raw))
        found.update(event["id"] for event in reply["events"] if event["event"] == "session.down")
        if not reply["events"] or reply["events"][-1]["sequence"] == reply["newest"]:
            return found
    raise AssertionError("the core ended its events")


def test_a_job_goes_on_while_workers_are_killed_and_acts_on_each_session_once(
    stack: tuple[Api, int],
) -> None:
    api, arbiter = stack
    socket = Path(api.environment["CORE_SOCKET"])
    wanted = {session["id"] for session in api.get("/subscribers", params={"type": "pppoe"})["sessions"]}
    body = {"filter": {"type": "pppoe"}, "per_second": 60}
    job = api.send("POST", "/subscribers/disconnect", json=body).json()["data"]
    assert (job["state"], job["total"]) == ("running", len(wanted))

    def now() -> Any:
        return call_core(socket, "GetJob", id=job["id"])["job"]

    for step in (1, 2):
        wait_for("progress", lambda step=step: now()["done"] > 60 * step)
        killed = children(arbiter)
        for worker in killed:
            os.kill(worker, signal.SIGKILL)
        wait_for("other workers", lambda killed=killed: len(set(children(arbiter)) - set(killed)) >= 2)
    wait_for("the end", lambda: now()["state"] == "done")
    assert ends(socket) == Counter(wanted)
    wait_for("a worker", lambda: answers(api))
    found = api.get(f"/subscribers/jobs/{job['id']}")
    assert (found["state"], found["done"], found["gone"], found["failed"]) == ("done", len(wanted), 0, 0)


def answers(api: Api) -> bool:
    try:
        return api.send("GET", "/subscribers/jobs").ok
    except OSError:
        return False


def test_a_job_of_a_killed_core_is_interrupted_and_does_not_continue(
    tmp_path: Path, document: dict[str, Any]
) -> None:
    socket, factory = tmp_path / "core.sock", tmp_path / "factory.json"
    factory.write_text(json.dumps(document))
    arguments = (socket, factory, "--sessions", str(SESSIONS))
    with running_core(*arguments) as core:
        job = call_core(socket, "StartDisconnectJob", filter={"search": "lab"}, per_second=40)["job"]
        wait_for("progress", lambda: call_core(socket, "GetJob", id=job["id"])["job"]["done"] > 40)
        known = call_core(socket, "GetJob", id=job["id"])["job"]["done"]
        core.kill()
        core.wait()
    assert not listens(socket)
    with running_core(*arguments):
        found = call_core(socket, "GetJob", id=job["id"])["job"]
        assert (found["state"], found["total"]) == ("interrupted", job["total"])
        assert known <= found["done"] < job["total"]
        # Another job as long as two of its batches: the first one would have acted meanwhile.
        after = call_core(socket, "StartDisconnectJob", filter={"username": "nobody"})["job"]
        wait_for("a later job", lambda: call_core(socket, "GetJob", id=after["id"])["job"]["state"] == "done")
        assert ends(socket) == Counter()
        assert call_core(socket, "GetHealth")["active_sessions"] == SESSIONS

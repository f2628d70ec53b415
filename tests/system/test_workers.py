"""Workers that begin and end."""

import os
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.stack import PATIENCE, core_of, running_stack, wait_for


@pytest.fixture
def arbiter(tmp_path: Path) -> Iterator[int]:
    """The process id of an arbiter with one worker."""
    with running_stack(tmp_path / "state", sessions=1, WORKERS=1) as (_, process):
        (arbiter,) = set(children(process.pid)) - {core_of(process)}
        yield arbiter


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_a_worker_stops_whose_stop_comes_at_its_first_moment(arbiter: int) -> None:
    for _ in range(5):
        (former,) = wait_for("a worker", lambda: children(arbiter))
        os.kill(former, signal.SIGKILL)
        # Without a pause between two looks.
        deadline = time.monotonic() + PATIENCE
        while not (young := [pid for pid in children(arbiter) if pid != former]):
            assert time.monotonic() < deadline
        os.kill(young[0], signal.SIGTERM)
        wait_for("another worker", lambda young=young: set(children(arbiter)) - set(young))


#: Gives a command a resolv.conf of its own.
_RESOLVED_BY = 'mount --bind "$1" "$(realpath /etc/resolv.conf)" && shift && exec "$@"'


def test_a_worker_that_starts_while_the_hub_resolves_a_name_serves(tmp_path: Path) -> None:
    name_server, resolv = "127.53.53.53", tmp_path / "resolv.conf"
    resolv.write_text(f"nameserver {name_server}\noptions timeout:30 attempts:5\n")
    wrap = ("unshare", "--mount", "sh", "-c", _RESOLVED_BY, "sh", str(resolv))
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as silent,
        running_stack(tmp_path / "state", sessions=1, WORKERS=1, wrap=wrap) as (api, process),
    ):
        silent.bind((name_server, 53))
        silent.settimeout(PATIENCE)
        (arbiter,) = set(children(process.pid)) - {core_of(process)}
        body = {"url": "https://receiver.test/", "events": ["session.up"]}
        made = api.send("POST", "/webhooks", json=body).json()["data"]
        assert api.send("POST", f"/webhooks/{made['id']}/test").ok
        # From now on, a thread of the arbiter waits for this name server.
        assert b"receiver" in silent.recv(512)
        (former,) = children(arbiter)
        os.kill(former, signal.SIGKILL)
        wait_for("another worker", lambda: set(children(arbiter)) - {former})
        api.session.close()
        assert api.get("/subscribers")["count"] == 1

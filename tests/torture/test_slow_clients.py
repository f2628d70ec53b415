"""5,000 clients who hold connections and never get to the point, and everybody else meanwhile."""

import json
import resource
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO
from urllib.parse import urlsplit

import pytest
import requests

from tests.support.measuring import alone
from tests.support.stack import Api, descendants, running_stack, wait_for
from tests.torture.slow_clients import KINDS

pytestmark = [pytest.mark.slow, pytest.mark.last]

EACH = 1250
#: Seconds from the last step forward until a connection must be closed; and the bytes per second of an answer
#: that give more.
DEADLINES = {"slow reader": 10, "slow body": 20, "slow head": 10, "idle": 10}
RATE = 32 << 10
#: How much later is still in time, on a busy machine too.
SLACK = 20
#: Samples of each state: enough for a p99.
SAMPLES = 400


@dataclass
class Held:
    """Seconds that health took, each on a connection of its own, before and while slow clients were held; how
    many of them at the beginning of that and at its end; seconds that each kind's lived, and may live; MB of
    the API before and at the most; and how long the slow clients took to come."""

    before: list[float]
    meanwhile: list[float]
    held: tuple[int, int]
    lived: dict[str, list[float | None]]
    deadlines: dict[str, float]
    memory_before: float
    memory: float
    opening: float
    log: str


def p99(seconds: list[float]) -> float:
    return sorted(seconds)[int(len(seconds) * 0.99)]


def sampled(api: Api, samples: int) -> list[float]:
    """Health, as monitoring asks for it: each time on a new connection."""
    found = []
    for _ in range(samples):
        began = time.monotonic()
        with requests.Session() as session:
            session.trust_env = False
            answered = session.get(
                f"{api.url}/api/v1/health", verify=api.environment["GATEWAY_CA"], timeout=60
            )
        assert answered.status_code == 200
        found.append(time.monotonic() - began)
    return found


def memory(stack: int) -> float:
    """MB of the arbiter and its workers."""
    found = 0.0
    for pid in descendants(stack):
        if b"gunicorn" in Path(f"/proc/{pid}/cmdline").read_bytes():
            found += int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * resource.getpagesize() / 2**20
    return found


def connections(port: str) -> int:
    """How many the service has, as the kernel counts."""
    lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return sum(1 for line in lines if line[1].endswith(f":{int(port):04X}") and line[3] == "01")


@contextmanager
def memory_watched(stack: int, every: float = 0.2) -> Iterator[list[float]]:
    """What `memory` says, each `every` seconds until the end of the block."""
    found, over = [memory(stack)], threading.Event()

    def watch() -> None:
        while not over.wait(every):
            found.append(memory(stack))

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield found
    finally:
        over.set()
        watcher.join()


@contextmanager
def slow_clients(api: Api) -> Iterator[IO[bytes]]:
    """Starts all of them, who end with the block; what they print."""
    port = str(urlsplit(api.url).port)
    clients = subprocess.Popen(
        [sys.executable, "-m", "tests.torture.slow_clients", port, str(EACH), api.token("admin")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=Path(__file__).parents[2],
    )
    assert clients.stdout is not None
    try:
        yield clients.stdout
    finally:
        clients.kill()
        clients.communicate()


def measured(state: Path) -> Held:
    """Holds them against a stack in this folder. Takes most of a minute."""
    with running_stack(state, sessions=2000) as (api, process), ExitStack() as block:
        port = str(urlsplit(api.url).port)
        answer_size = len(api.send("GET", "/subscribers").content)
        deadlines = DEADLINES | {"slow reader": DEADLINES["slow reader"] + answer_size / RATE}
        with alone():
            before = sampled(api, SAMPLES)
            memories = block.enter_context(memory_watched(process.pid))
            began = time.monotonic()
            printed = block.enter_context(slow_clients(api))
            assert printed.readline() == b"held\n"
            opening = time.monotonic() - began
            first = connections(port)
            meanwhile = sampled(api, SAMPLES)
            last = connections(port)
        ended: list[bytes] = []
        threading.Thread(target=lambda: ended.append(printed.readline()), daemon=True).start()
        wait_for("the end of all slow clients", lambda: ended, max(deadlines.values()) + SLACK + 30)
    lived = json.loads(ended[0])
    log = (state / "log").read_text()
    return Held(before, meanwhile, (first, last), lived, deadlines, memories[0], max(memories), opening, log)


@pytest.fixture(scope="module")
def held(tmp_path_factory: pytest.TempPathFactory) -> Held:
    return measured(tmp_path_factory.mktemp("slow"))


def test_health_is_answered_nearly_as_quickly_as_without_them(held: Held) -> None:
    assert p99(held.meanwhile) < 5 * p99(held.before)


@pytest.mark.parametrize("kind", KINDS)
def test_each_is_closed_soon_after_its_deadline(held: Held, kind: str) -> None:
    lived, latest = held.lived[kind], held.deadlines[kind] + SLACK
    assert len(lived) == EACH
    assert max(latest if one is None else one for one in lived) < latest


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "slow reader"])
def test_none_is_closed_before_its_deadline(held: Held, kind: str) -> None:
    # Slow readers may be: what waits for them is in memory.
    assert min(one for one in held.lived[kind] if one is not None) > DEADLINES[kind] - 0.5


def test_most_of_them_are_there_at_the_same_time(held: Held) -> None:
    # The first of them go while the last come, where each takes the machine longer.
    assert held.held[0] > 0.5 * EACH * len(KINDS)


def test_they_cost_less_memory_than_the_unit_may_have(held: Held) -> None:
    assert held.memory < 1024


def test_the_log_says_how_many_were_closed_and_why(held: Held) -> None:
    for words in ("finish its TLS handshake", "send the header of a request", "send a request's body"):
        assert f"they did not {words} in time" in held.log

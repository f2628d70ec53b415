"""5,000 clients that hold connections and never finish a request, and everybody else meanwhile."""

import json
import resource
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from urllib.parse import urlsplit

import requests

from tests.support.stack import Api, descendants, running_stack

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
    the API before and while they were held."""

    before: list[float]
    meanwhile: list[float]
    held: tuple[int, int]
    lived: dict[str, list[float | None]]
    deadlines: dict[str, float]
    memory_before: float
    memory: float
    log: str


def p99(seconds: list[float]) -> float:
    return sorted(seconds)[int(len(seconds) * 0.99)]


def sampled(api: Api) -> list[float]:
    """Health, as monitoring asks for it: each time on a new connection."""
    found = []
    for _ in range(SAMPLES):
        began = time.monotonic()
        with requests.Session() as session:
            session.trust_env = False
            url = f"{api.url}/api/v1/health"
            assert session.get(url, verify=api.environment["GATEWAY_CA"], timeout=60).status_code == 200
        found.append(time.monotonic() - began)
    return found


def memory(stack: int) -> float:
    """MB of the arbiter and its workers."""
    found = 0.0
    for pid in descendants(stack):
        if b"gunicorn" in Path(f"/proc/{pid}/cmdline").read_bytes():
            found += int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * resource.getpagesize() / 2**20
    return found


def connections(port: int) -> int:
    """How many the service has, as the kernel counts."""
    lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return sum(1 for line in lines if line[1].endswith(f":{port:04X}") and line[3] == "01")


def measured(state: Path) -> Held:
    """Holds them against a stack in this folder. Takes most of a minute."""
    with running_stack(state, sessions=2000) as (api, process):
        port = int(urlsplit(api.url).port or 0)
        answer_size = len(api.send("GET", "/subscribers").content)
        deadlines = DEADLINES | {"slow reader": DEADLINES["slow reader"] + answer_size / RATE}
        before, memory_before = sampled(api), memory(process.pid)
        with subprocess.Popen(
            [sys.executable, "-m", "tests.torture.slow_clients", str(port), str(EACH), api.token("admin")],
            stdout=subprocess.PIPE,
            cwd=Path(__file__).parents[2],
        ) as clients:
            assert clients.stdout is not None
            assert clients.stdout.readline() == b"held\n"
            first, memory_held = connections(port), memory(process.pid)
            meanwhile = sampled(api)
            last = connections(port)
            lived = json.loads(clients.stdout.readline())
        log = (state / "log").read_text()
    return Held(before, meanwhile, (first, last), lived, deadlines, memory_before, memory_held, log)


def test_slow_clients_hold_up_nobody_and_each_is_closed_at_its_deadline(tmp_path: Path) -> None:
    held = measured(tmp_path)
    # The first of them go while the last come, where each takes the machine longer.
    assert held.held[0] > EACH
    assert median(held.meanwhile) < 5 * median(held.before)
    for kind, deadline in held.deadlines.items():
        lived = [deadline + SLACK if one is None else one for one in held.lived[kind]]
        assert (kind, len(lived)) == (kind, EACH)
        assert max(lived) < deadline + SLACK, kind
        # What waits for slow readers is in memory: they may be closed before.
        assert kind == "slow reader" or min(lived) > DEADLINES[kind] - 0.5, kind
    # What the unit may have is 1 GB.
    assert held.memory < 1024
    for words in ("finish its TLS handshake", "send the header of a request", "send a request's body"):
        assert f"the clients did not {words} in time" in held.log

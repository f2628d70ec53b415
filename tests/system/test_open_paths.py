"""A request without a token costs the gateway no more than one for its health."""

import os
import re
import statistics
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway_api.web.routes.pages import PAGE_FILES
from tests.support.routes import ROUTES
from tests.support.stack import Api, descendants, running_stack

HEALTH = "/api/v1/health"
#: Requests of each path in one round, and rounds: the median of the ratios counts.
REQUESTS, ROUNDS = 100, 5
#: Bytes of a response whose encryption and sending may cost as much as a request for health.
BYTES = 200_000


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Api, list[int]]]:
    """One of this module alone, with all its processes, that has been asked for everything once."""
    with running_stack(tmp_path_factory.mktemp("open") / "state", sessions=200) as (api, process):
        for route in ROUTES:
            for _ in range(2):
                # In each worker's files: a new connection may reach another.
                api.session.close()
                api.send(route.method, route.path, None)
        yield api, [process.pid, *descendants(process.pid)]


def ask(api: Api, path: str) -> int:
    """Bytes of the response's body, as they are sent."""
    answer = api.session.get(
        f"{api.url}{path}", headers={"Accept-Encoding": "identity"}, timeout=30, stream=True
    )
    assert answer.status_code == 200, (path, answer.status_code)
    return len(answer.raw.read(decode_content=False))


def cpu_seconds(pids: list[int]) -> float:
    """What these processes have used: proc(5)."""
    ticks = 0
    for pid in pids:
        after_the_name = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        ticks += int(after_the_name[11]) + int(after_the_name[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def open_paths(api: Api) -> list[str]:
    """What an open GET reaches, the page's modules by the largest of them."""
    docs = api.send("GET", "/docs", None).text
    parts = re.findall(r'(?:href|src)="(docs/[^"]+)"', docs)
    assert len(parts) == 5
    largest = max(PAGE_FILES, key=lambda name: len(PAGE_FILES[name].body))
    named = ("/", f"/page/{largest}", "/metrics", "/api/v1/docs", "/api/v1/openapi.json")
    return [*named, "/api/v1/system/version", *(f"/api/v1/{part}" for part in parts)]


def test_no_open_path_costs_much_more_than_health(gateway: tuple[Api, list[int]]) -> None:
    api, processes = gateway
    paths = [HEALTH, *open_paths(api)]
    ratios: dict[str, list[float]] = {path: [] for path in paths}
    sizes = {path: ask(api, path) for path in paths}
    for _ in range(ROUNDS):
        used = {}
        for path in paths:
            before = cpu_seconds(processes)
            for _ in range(REQUESTS):
                ask(api, path)
            used[path] = cpu_seconds(processes) - before
        for path in paths:
            ratios[path].append(used[path] / used[HEALTH])
    found = {path: statistics.median(each) for path, each in ratios.items()}
    assert {path: ratio for path, ratio in found.items() if ratio > 2 + sizes[path] / BYTES} == {}

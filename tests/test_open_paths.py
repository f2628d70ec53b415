"""Nobody without a token costs the gateway more than who asks for its health."""

import os
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway_api.web.routes import page
from tests.askers import asking
from tests.routes import ROUTES
from tests.stack import Api, descendants, running_stack

pytestmark = pytest.mark.slow

HEALTH = "/api/v1/health"
CLIENTS = 64
SAMPLES = 40
#: Requests of each path in one round, and rounds: all paths take their turns in each, so that what else the
#: machine does meets them alike.
REQUESTS, ROUNDS = 40, 3


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


def ask(api: Api, path: str) -> float:
    """Seconds until the answer is here."""
    began = time.monotonic()
    answer = api.session.get(f"{api.url}{path}", headers={"Accept-Encoding": "identity"}, timeout=30)
    assert answer.status_code == 200, (path, answer.status_code)
    return time.monotonic() - began


def longest_of_health(api: Api) -> float:
    """But for the longest tenth, which may be the machine's."""
    return sorted(ask(api, HEALTH) for _ in range(SAMPLES))[int(SAMPLES * 0.9)]


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
    largest = max(page._FILES, key=lambda name: len(page._FILES[name].body))
    named = ("/", f"/page/{largest}", "/metrics", "/api/v1/docs", "/api/v1/openapi.json")
    return [*named, "/api/v1/system/version", *(f"/api/v1/{part}" for part in parts)]


def test_clients_who_scrape_keep_health_waiting_no_longer_than_clients_who_ask_for_health(
    gateway: tuple[Api, list[int]],
) -> None:
    api, _ = gateway
    certificate = api.environment["GATEWAY_CA"]
    with asking(f"{api.url}{HEALTH}", certificate, CLIENTS) as asked:
        beside_health = longest_of_health(api)
    with asking(f"{api.url}/metrics", certificate, CLIENTS) as scraped:
        beside_scrapes = longest_of_health(api)
    assert (set(asked), set(scraped)) == ({200}, {200})
    assert beside_scrapes < 3 * beside_health


def test_no_open_path_costs_much_more_than_health(gateway: tuple[Api, list[int]]) -> None:
    api, processes = gateway
    paths = [HEALTH, *open_paths(api)]
    used = dict.fromkeys(paths, 0.0)
    for path in paths:
        ask(api, path)
    for _ in range(ROUNDS):
        for path in paths:
            before = cpu_seconds(processes)
            for _ in range(REQUESTS):
                ask(api, path)
            used[path] += cpu_seconds(processes) - before
    # Clock ticks are 10 ms, and other processes cost these their caches.
    assert {path: seconds for path, seconds in used.items() if seconds > 2 * used[HEALTH]} == {}

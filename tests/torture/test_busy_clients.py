"""Clients that never pause, on any route, and everybody else meanwhile.

Health is measured alone and beside them, one right after the other, in both cases by as many clients, which
do not pause either. A fair worker gives each client the same share of its time: beside as many busy clients,
health takes twice as long. A client that starves others makes them wait a hundred times as long.
"""

import json
import math
import re
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from gateway_api import web
from gateway_api.base.settings import TOKEN, USERS, Profile
from gateway_api.web.app import ROUTES as RESOURCES
from gateway_api.web.assets import files_in
from gateway_api.web.operation import template
from gateway_api.web.routes.pages import BUILT
from tests.contract.test_token_profile import TOKEN as STATIC_TOKEN
from tests.contract.test_token_profile import Profile as RunningProfile
from tests.contract.test_token_profile import running_profile
from tests.support.measuring import alone
from tests.support.routes import ROUTES
from tests.support.stack import Api, issued, running_stack
from tests.torture.bursts import Burst, Bursts, Result, bursts

pytestmark = [pytest.mark.slow, pytest.mark.last]

#: Clients that poll health, in both measurements; and busy ones beside them.
POLLING, BUSY = 4, (1, 4)
#: Seconds of a measurement, which are some hundred responses; and from the start of the busy clients until it
#: begins.
SECONDS, BEFORE = 0.25, 0.1
#: How many times as long as alone health may take. A fair worker makes its own part twice as long. The core
#: has no shares: the less of the time of health alone is the worker's, the more times as long is the whole.
MEDIAN, P99 = 4, 5
#: Another program of the machine can hold up any of these short measurements, before the busy clients come or
#: beside them. Starvation is seen in each, so that each bound has to be kept once.
ATTEMPTS = 8
#: Those that read come before those that change what they read.
METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")

PAGE = Path(web.__file__).parent / "page"
BODIES = {
    (route.method, route.path if route.path == "/metrics" else f"/api/v1{route.path}"): route.body
    or route.may_have
    for route in ROUTES
}


@dataclass(frozen=True)
class Cell:
    """Requests of a kind. `path` has parameters in braces."""

    profile: Profile
    method: str
    path: str
    has_token: bool
    title: str
    header: str = ""
    body: str = ""
    #: Of a busy client: the next one is there already when the worker has sent a response, however seldom the
    #: client runs.
    under_way: int = 16
    #: Not HTTP at all, in place of all the rest.
    raw: str = ""

    def __str__(self) -> str:
        return self.title


def cells_of_routes(profile: Profile) -> Iterator[Cell]:
    """Each route of the application with and without a token."""
    for resource in RESOURCES[profile]:
        for _, rule, operation in resource.rows():
            method, path = operation.method, template(rule)
            body = BODIES.get((method, path))
            sent = "" if body is None else json.dumps(body)
            for token in (True, False):
                title = f"{profile.name}: {method} {path} {'with' if token else 'without'} token"
                yield Cell(profile, method, path, token, title, body=sent)


def cells_of_errors(profile: Profile) -> Iterator[Cell]:
    """What never reaches a view."""
    a_list = "/api/v1/subscribers"

    def cell(title: str, method: str = "GET", path: str = a_list, *, token: bool = True, **more: Any) -> Cell:
        return Cell(profile, method, path, token, f"{profile.name}: {title}", **more)

    yield cell("404", path="/api/v1/nothing")
    yield cell("404 without token", path="/api/v1/nothing", token=False)
    yield cell("405", "PATCH")
    yield cell("405 without token", "PATCH", token=False)
    yield cell("wrong token", header="Authorization: Bearer x\r\n", token=False)
    yield cell("unknown parameter", path=f"{a_list}?nothing=1")
    yield cell("one request under way", under_way=1)
    yield cell("one request under way without token", under_way=1, token=False)
    changes = {USERS: ("POST", "/api/v1/system/config/set"), TOKEN: ("PUT", "/api/v1/config")}[profile]
    yield cell("body that is not JSON", *changes, body="{")
    yield cell("413", *changes, body="x" * (1 << 20) + "x")
    host = "Host: localhost\r\n"
    for title, raw in {
        "no HTTP": "nothing\r\n\r\n",
        "400 for a header": f"GET / HTTP/1.1\r\n{host}no field\r\n\r\n",
        "400 without Host": "GET / HTTP/1.1\r\n\r\n",
        "414": f"GET /{'x' * 9000} HTTP/1.1\r\n{host}\r\n",
        "431": f"GET / HTTP/1.1\r\n{host}X: {'x' * 9000}\r\n\r\n",
        "417": f"GET / HTTP/1.1\r\n{host}Expect: x\r\n\r\n",
        "501": f"POST / HTTP/1.1\r\n{host}Transfer-Encoding: gzip\r\n\r\n",
        "HTTP/1.0": "GET /api/v1/health HTTP/1.0\r\n\r\n",
    }.items():
        yield cell(title, raw=raw)


CELLS = [
    cell
    for profile in (USERS, TOKEN)
    for cell in (
        *sorted(cells_of_routes(profile), key=lambda cell: METHODS.index(cell.method)),
        *cells_of_errors(profile),
    )
]


def largest(folder: Path, otherwise: str) -> str:
    files = [(file.stat().st_size, file.relative_to(folder).as_posix()) for file in files_in(folder).values()]
    return max(files)[1] if files else otherwise


#: Paths whose parameter has the name of another route's.
FILES = {
    "/page/{name}": f"/page/{largest(PAGE, '')}",
    "/docs/{name}": f"/docs/{largest(BUILT, 'index.html')}",
}


class Gateway:
    """A worker of a profile, its busy clients and those that poll."""

    def __init__(
        self, busy: Bursts, polls: Bursts, health: str, parameters: dict[str, str], configuration: str = ""
    ) -> None:
        self._busy, self._polls = busy, polls
        self._health = health
        self._parameters = parameters
        #: The body of `PUT /config`.
        self._configuration = configuration

    def token(self) -> str:
        return STATIC_TOKEN

    def request(self, cell: Cell) -> str:
        if cell.raw:
            return cell.raw
        path = FILES.get(cell.path, cell.path).format_map(self._parameters)
        header = cell.header
        body = cell.body or (self._configuration if cell.method == "PUT" else "")
        if cell.has_token:
            header += f"Authorization: Bearer {self.token()}\r\n"
        if body:
            header += f"Content-Length: {len(body)}\r\n"
        return f"{cell.method} {path} HTTP/1.1\r\nHost: localhost\r\n{header}\r\n{body}"

    def alone(self) -> Result:
        self._polls.begin(Burst(self._health, POLLING, SECONDS))
        return self._polls.result()

    def beside(self, cell: Cell, clients: int) -> tuple[Result, Result]:
        """Of those that poll, and of the busy ones."""
        self._busy.begin(Burst(self.request(cell), clients, BEFORE + SECONDS, cell.under_way))
        time.sleep(BEFORE)
        polled = self.alone()
        return polled, self._busy.result()


class _OfUsers(Gateway):
    def __init__(self, api: Api, state: Path, busy: Bursts, polls: Bursts) -> None:
        found = re.search(r'src="(docs/([^/]+)/[^"]*bundle[^"]*)"', api.send("GET", "/docs", None).text)
        assert found
        webhook = api.send("POST", "/webhooks", json=BODIES["POST", "/api/v1/webhooks"]).json()["data"]["id"]
        job = api.send("POST", "/subscribers/rate", json=BODIES["POST", "/api/v1/subscribers/rate"])
        parameters = {
            "id": str(api.get("/subscribers")["sessions"][0]["id"]),
            "revision": "1",
            "webhook": webhook,
            "job": str(job.json()["data"]["id"]),
            "digest": found[2],
            "name": found[1].rpartition("/")[2],
        }
        super().__init__(busy, polls, "GET /api/v1/health HTTP/1.1\r\nHost: localhost\r\n\r\n", parameters)
        self._state = state

    def token(self) -> str:
        # Another one each time: a logout ends it.
        return issued(self._state, "admin", 3600)


def _of_token(made: RunningProfile, busy: Bursts, polls: Bursts) -> Gateway:
    health = (
        "GET /api/v1/system/status HTTP/1.1\r\nHost: localhost\r\n"
        f"Authorization: Bearer {STATIC_TOKEN}\r\n\r\n"
    )
    return Gateway(busy, polls, health, {"id": "1"}, json.dumps(made.get("/config")))


@pytest.fixture(scope="module")
def gateways(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[Profile, Gateway]]:
    """Of each profile, with one worker."""
    with ExitStack() as block:

        def both(url: str, certificate: str = "") -> tuple[Bursts, Bursts]:
            port = urlsplit(url).port
            assert port is not None
            # Busy clients of a network take no time of the gateway's processors.
            busy = block.enter_context(bursts(port, certificate, nice=19))
            return busy, block.enter_context(bursts(port, certificate))

        state = tmp_path_factory.mktemp("users") / "state"
        api, _ = block.enter_context(running_stack(state, sessions=200, WORKERS=1))
        folder = tmp_path_factory.mktemp("token")
        made, _ = block.enter_context(running_profile(folder, GATEWAY_API_TOKEN_WORKERS="1"))
        yield {
            USERS: _OfUsers(api, state, *both(api.url, api.environment["GATEWAY_CA"])),
            TOKEN: _of_token(made, *both(made.url)),
        }


def median(clients: list[list[float]]) -> float:
    """Of the client that fares worst: one that starves has few responses, or none."""
    return max(sorted(seconds)[len(seconds) // 2] if seconds else math.inf for seconds in clients)


def p99(clients: list[list[float]]) -> float:
    """Of all responses."""
    found = sorted(chain.from_iterable(clients))
    return found[int(len(found) * 0.99)] if found else math.inf


@pytest.mark.parametrize("cell", CELLS, ids=str)
def test_health_beside_busy_clients_takes_not_much_longer_than_alone(
    gateways: dict[Profile, Gateway], cell: Cell
) -> None:
    gateway = gateways[cell.profile]
    left = {(clients, bound) for clients in BUSY for bound in ("median", "p99")}
    found, responses = [], 0
    with alone():
        for _ in range(ATTEMPTS):
            before = gateway.alone().seconds
            if not all(before):
                continue
            for clients in sorted({clients for clients, _ in left}):
                polled, busy = gateway.beside(cell, clients)
                # None, if the machine held up all of them.
                assert set(polled.statuses) <= {"200"}
                responses += sum(busy.statuses.values())
                longer = median(polled.seconds) / median(before)
                at_worst = p99(polled.seconds) / p99(before)
                found.append(f"{clients} busy: median x{longer:.1f}, p99 x{at_worst:.1f}, {busy.statuses}")
                if longer < MEDIAN:
                    left.discard((clients, "median"))
                if at_worst < P99:
                    left.discard((clients, "p99"))
            if not left:
                break
    print(found)
    assert responses
    assert not left, found

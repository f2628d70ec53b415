"""Clients that never pause, and everybody else meanwhile.

Health is measured alone and beside them, one right after the other, by as many clients, which do not pause
either. A fair worker gives each client its turn: health takes about as long as the busy clients' own
responses, and, where those are short, twice as long as alone. A client that starves others makes them wait a
hundred times as long.
"""

import json
import math
import re
import time
from collections.abc import Iterator
from contextlib import ExitStack
from operator import truediv
from statistics import median
from urllib.parse import urlsplit

import pytest

from tests.support.stack import Api, running_stack
from tests.torture.bursts import Burst, Bursts, bursts

#: Clients that measure, and most busy ones.
CLIENTS = 4
#: Seconds of a measurement, which are some hundred responses; and from the start of the busy clients until it
#: begins.
SECONDS, BEFORE = 0.25, 0.1
PAIRS = 7
#: How many times as long health may take as alone, or as a response to a busy client, whichever is longer.
LONGER = 20

#: Status if the core does not reply in time: on a busy machine, a process waits for a second now and then.
LATE = {"500"}

HOST = "Host: localhost\r\n"
LIST = "GET /api/v1/subscribers"
SET = json.dumps({"path": "system.hostname", "value": "bng"})
#: The method and the path of busy requests, their body, and the statuses of the responses. A path or a body
#: is filled in. All have a token, but for those whose response is 401.
BUSY = {
    "whole lists": (LIST, "", {"200", "503"}),
    "parts of a list": (f"{LIST}?limit=100", "", {"200"}),
    "health": ("GET /api/v1/health", "", {"200"}),
    "metrics": ("GET /metrics", "", {"200"}),
    "a file of the page": ("GET /page/{page}", "", {"200"}),
    "changes of the candidate": ("POST /api/v1/system/config/set", SET, {"200"}),
    "bodies that are no JSON": ("POST /api/v1/system/config/set", "{", {"400"}),
    "the running configuration": ("GET /api/v1/system/config", "", {"200"}),
    "event streams": ("GET /api/v1/events/subscribers", "", {"200", "429"}),
    "requests without a token": (LIST, "", {"401"}),
    "requests for nothing": ("GET /api/v1/nothing", "", {"404"}),
    "requests that are not HTTP": ("nothing", "", {"400"}),
}


class Gateway:
    """One worker, its busy clients and those that poll health."""

    def __init__(self, api: Api, busy: Bursts, polls: Bursts) -> None:
        self.busy, self.polls = busy, polls
        self._token = f"Authorization: Bearer {api.token('admin')}\r\n"
        page = re.search(r'"/?page/([^"]+\.js)"', api.session.get(api.url).text)
        assert page
        self._page = page[1]

    def request(self, line: str, body: str, statuses: set[str]) -> str:
        if " " not in line:
            return f"{line}\r\n\r\n"
        header = "" if statuses == {"401"} else self._token
        header += f"Content-Length: {len(body)}\r\n" if body else ""
        return f"{line.format(page=self._page)} HTTP/1.1\r\n{HOST}{header}\r\n{body}"

    def health(self) -> float:
        """The median seconds of the client that fares worst."""
        self.polls.begin(Burst(self.request(*BUSY["health"]), CLIENTS, SECONDS))
        clients = self.polls.result()
        assert {status for client in clients for status, _ in client} <= {"200"} | LATE
        return max(median(took for _, took in client) if client else math.inf for client in clients)


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    with ExitStack() as block:
        state = tmp_path_factory.mktemp("busy")
        api, _ = block.enter_context(running_stack(state, sessions=200, WORKERS=1))
        port, certificate = urlsplit(api.url).port, api.environment["GATEWAY_CA"]
        assert port
        # Busy clients of a network take no time of the gateway's processors.
        busy = block.enter_context(bursts(port, certificate))
        yield Gateway(api, busy, block.enter_context(bursts(port, certificate)))


@pytest.mark.parametrize("name", BUSY)
def test_health_beside_busy_clients_takes_not_much_longer_than_alone(gateway: Gateway, name: str) -> None:
    request, statuses = gateway.request(*BUSY[name]), BUSY[name][2]
    for clients in (1, CLIENTS):
        # The next request is there already when the worker has sent a response.
        busy = Burst(request, clients, BEFORE + SECONDS, 16, one_each=name == "event streams")
        alone, beside, others, seen = [], [], [], set[str]()
        for _ in range(PAIRS):
            alone.append(gateway.health())
            gateway.busy.begin(busy)
            time.sleep(BEFORE)
            beside.append(gateway.health())
            responses = [response for client in gateway.busy.result() for response in client]
            seen |= {status for status, _ in responses}
            others.append(clients * busy.seconds / max(len(responses), 1))
        assert seen & statuses
        assert seen <= statuses | LATE
        assert median(map(truediv, beside, map(max, alone, others))) < LONGER, (alone, beside, others)

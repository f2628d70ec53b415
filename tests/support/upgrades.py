"""Clients of a gateway while its packages are replaced: each notes what it noticed. A client runs in a thread
of its own, in the network of the thread that starts it."""

import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import groupby, pairwise
from typing import NamedTuple

import requests

from tests.support.machine import Machine
from tests.support.receivers import Received
from tests.support.sse import Collector, Stream
from tests.support.stack import PATIENCE, Api

OK = "OK"


class Sample(NamedTuple):
    """The result of one attempt: `OK`, a status, or the name of an error; and its time, monotonic seconds."""

    at: float
    result: str


class Samples:
    """The results of all attempts of a client, oldest first."""

    def __init__(self) -> None:
        self._found: list[Sample] = []

    def add(self, at: float, result: str) -> None:
        self._found.append(Sample(at, result))

    @property
    def failures(self) -> Counter[str]:
        return Counter(sample.result for sample in self._found if sample.result != OK)

    @property
    def successes(self) -> int:
        return len(self._found) - self.failures.total()

    def outages(self) -> list[float]:
        """Return the seconds of each outage, from its first failure to the next success."""
        groups = [list(group) for _, group in groupby(self._found, lambda sample: sample.result == OK)]
        return [after[0].at - group[0].at for group, after in pairwise(groups) if group[0].result != OK]


@contextmanager
def repeated(attempt: Callable[[], str], interval: float) -> Iterator[Samples]:
    """Call `attempt` again and again, with a pause of `interval` seconds, until the end of the block."""
    samples, stop = Samples(), threading.Event()

    def run() -> None:
        while not stop.is_set():
            began = time.monotonic()
            samples.add(began, attempt())
            stop.wait(interval)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield samples
    finally:
        stop.set()
        thread.join(PATIENCE)


def request(api: Api, path: str, token: str | None = None, session: requests.Session | None = None) -> str:
    """Request a path on a new connection, or on that of `session`, and return the result."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    try:
        with requests.Session() as own:
            client = session or own
            client.trust_env = False
            url = f"{api.url}/api/v1{path}"
            response = client.get(url, headers=headers, verify=api.session.verify, timeout=PATIENCE)
    except requests.RequestException as error:
        return type(error).__name__
    return OK if response.ok else str(response.status_code)


class Disconnector:
    """A client that ends one session after another."""

    def __init__(self, api: Api, token: str, ids: Iterable[int]) -> None:
        self._api, self._token, self._ids = api, token, iter(ids)
        #: The ids of the sessions whose end the API has confirmed, in order.
        self.ended: list[int] = []

    def attempt(self) -> str:
        id = next(self._ids)
        try:
            response = self._api.send("DELETE", f"/subscribers/{id}", token=self._token)
        except requests.RequestException as error:
            return type(error).__name__
        if not response.ok:
            return str(response.status_code)
        self.ended.append(id)
        return OK


def collector(api: Api, token: str) -> Collector:
    """Return a client of the event stream that resumes whatever the API replies."""

    def open_stream(headers: Mapping[str, str]) -> Stream:
        stream = Stream(api.url, api.environment["GATEWAY_CA"], token, headers=headers)
        if stream.status != 200:
            stream.close()
            raise ConnectionRefusedError(f"refused with {stream.status}")
        return stream

    return Collector(open_stream)


def ended_sessions(received: Iterable[Received]) -> list[int]:
    """Return the ids of the sessions in messages of `session.down`."""
    return [json.loads(one.body)["data"]["id"] for one in received]


def command(machine: Machine, *words: str) -> str:
    """Run a command in the machine, and return the result."""
    status = machine.attempt(*words).returncode
    return OK if status == 0 else f"exit status {status}"

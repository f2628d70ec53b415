"""The event stream as clients that others wrote see it, each with the habits of its own."""

import json
import os
import signal
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import httpx_sse
import pytest
import requests
import sseclient

from tests.support.sse import PATH, wait_for_workers, workers_of
from tests.support.stack import Api, running_stack, wait_for


class Client:
    """A client that is a process, and says a line of JSON for each message and each connection."""

    def __init__(self, said: Path) -> None:
        self._said = said

    @property
    def lines(self) -> list[Any]:
        return [json.loads(line) for line in self._said.read_text().split("\n")[:-1]]

    @property
    def messages(self) -> list[tuple[str, str, dict[str, Any]]]:
        return [tuple(line) for line in self.lines if line != "open"]

    @property
    def opened(self) -> int:
        return self.lines.count("open")


def say(line: Any) -> None:
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


def run_httpx_sse(url: str, token: str, certificate: str) -> None:
    last_id = ""
    context = ssl.create_default_context(cafile=certificate)
    with httpx.Client(verify=context, trust_env=False, timeout=60) as client:
        while True:
            headers = {"Authorization": f"Bearer {token}", "Last-Event-ID": last_id}
            with (
                suppress(httpx.TransportError),
                httpx_sse.connect_sse(client, "GET", url, headers=headers) as source,
            ):
                say("open")
                for event in source.iter_sse():
                    last_id = event.id
                    say((event.id, event.event, event.json()))
            time.sleep(0.2)


def run_sseclient(url: str, token: str, certificate: str) -> None:
    last_id = ""
    while True:
        headers = {"Authorization": f"Bearer {token}", "Last-Event-ID": last_id}
        with (
            suppress(requests.RequestException),
            requests.get(url, headers=headers, verify=certificate, stream=True, timeout=60) as answer,
        ):
            say("open")
            for event in sseclient.SSEClient(answer).events():
                last_id = event.id
                say((event.id, event.event, json.loads(event.data)))
        time.sleep(0.2)


@contextmanager
def running(run: Callable[[str, str, str], None], api: Api, said: Path) -> Iterator[Client]:
    code = f"import sys; from {__name__} import {run.__name__} as run; run(*sys.argv[1:])"
    given = [api.url + PATH, api.token("operator"), api.environment["GATEWAY_CA"]]
    with said.open("wb") as output:
        process = subprocess.Popen([sys.executable, "-c", code, *given], stdout=output)
    try:
        yield Client(said)
    finally:
        process.kill()
        process.wait()


CLIENTS = {"httpx-sse": run_httpx_sse, "sseclient-py": run_sseclient}


@pytest.fixture(scope="module")
def clients(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Client]]:
    """What they had after a session that ended, a heartbeat, another one, a cut of all connections, and a
    third session that ended meanwhile."""
    folder = tmp_path_factory.mktemp("clients")
    with running_stack(folder / "state", sessions=10) as (api, process), ExitStack() as opened:
        found = {
            name: opened.enter_context(running(run, api, folder / name)) for name, run in CLIENTS.items()
        }

        def all_have(messages: int, connections: int) -> bool:
            return all(
                len(client.messages) >= messages and client.opened >= connections for client in found.values()
            )

        wait_for("all to listen", lambda: all_have(0, 1))
        api.send("DELETE", "/subscribers/1")
        wait_for("the first end", lambda: all_have(1, 1))
        # The one thing here that only real time brings.
        time.sleep(16)
        api.send("DELETE", "/subscribers/2")
        wait_for("the second end", lambda: all_have(2, 1))
        assert {client.opened for client in found.values()} == {1}
        workers = workers_of(process)
        for worker in workers:
            os.kill(worker, signal.SIGKILL)
        wait_for_workers(process, len(workers), set(workers))
        api.send("DELETE", "/subscribers/3")
        wait_for("the third end", lambda: all_have(3, 2))
        yield found


@pytest.mark.parametrize("name", CLIENTS)
def test_a_client_has_every_event_once_after_a_heartbeat_and_a_cut(
    clients: dict[str, Client], name: str
) -> None:
    messages = clients[name].messages
    assert [(name, data["id"]) for _, name, data in messages] == [
        ("session_down", number) for number in (1, 2, 3)
    ]
    boots, sequences = zip(*(id.split("-") for id, _, _ in messages), strict=True)
    assert len(set(boots)) == 1
    assert list(map(int, sequences)) == list(range(int(sequences[0]), int(sequences[0]) + 3))
    assert all(list(data)[:3] == ["id", "username", "reason"] for _, _, data in messages)

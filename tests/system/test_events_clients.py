"""The event stream as clients that others wrote see it."""

import json
import os
import signal
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import httpx_sse
import pytest
import requests
import sseclient

from tests.support.prometheus import samples
from tests.support.sse import PATH, wait_for_workers, workers_of
from tests.support.stack import Api, running_stack, wait_for

#: An id, a name and the data.
Message = tuple[str, str, str]
#: Yields the messages of one connection after those with an id.
Follow = Callable[[Api, dict[str, str]], Iterator[Message]]


def by_httpx_sse(api: Api, headers: dict[str, str]) -> Iterator[Message]:
    context = ssl.create_default_context(cafile=api.environment["GATEWAY_CA"])
    with (
        suppress(httpx.TransportError),
        httpx.Client(verify=context, trust_env=False, timeout=60) as client,
        httpx_sse.connect_sse(client, "GET", api.url + PATH, headers=headers) as source,
    ):
        for event in source.iter_sse():
            yield event.id, event.event, event.data


def by_sseclient(api: Api, headers: dict[str, str]) -> Iterator[Message]:
    trusted = api.environment["GATEWAY_CA"]
    with (
        suppress(requests.RequestException),
        requests.get(api.url + PATH, headers=headers, verify=trusted, stream=True, timeout=60) as answer,
    ):
        for event in sseclient.SSEClient(answer).events():
            yield event.id, event.event, event.data


@pytest.mark.parametrize("follow", [by_httpx_sse, by_sseclient])
def test_a_client_has_every_event_once_though_its_connection_is_cut(tmp_path: Path, follow: Follow) -> None:
    found: list[tuple[str, str, dict[str, Any]]] = []
    with running_stack(tmp_path, sessions=10) as (api, process):
        authorization = {"Authorization": f"Bearer {api.token('operator')}"}

        def listen() -> None:
            while True:
                last = {"Last-Event-ID": found[-1][0]} if found else {}
                for id, name, data in follow(api, {**authorization, **last}):
                    found.append((id, name, json.loads(data)))
                    if len(found) == 3:
                        return

        threading.Thread(target=listen, daemon=True).start()
        wait_for("it to listen", lambda: samples(api).get("gateway_api_sse_clients") == 1)
        for number in (1, 2):
            api.send("DELETE", f"/subscribers/{number}")
        wait_for("two ends", lambda: len(found) == 2)
        workers = workers_of(process)
        for worker in workers:
            os.kill(worker, signal.SIGKILL)
        wait_for_workers(process, len(workers), set(workers))
        api.session.close()
        api.send("DELETE", "/subscribers/3")
        wait_for("the third end", lambda: len(found) == 3)
    assert [(name, data["id"]) for _, name, data in found] == [("session_down", id) for id in (1, 2, 3)]
    boots, sequences = zip(*(id.split("-") for id, _, _ in found), strict=True)
    assert len(set(boots)) == 1
    assert list(map(int, sequences)) == list(range(int(sequences[0]), int(sequences[0]) + 3))
    assert all(list(data)[:3] == ["id", "username", "reason"] for _, _, data in found)

"""Event streams of clients while processes of the gateway end, start and are held up."""

import json
import os
import random
import signal
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from time import monotonic
from typing import Any

import httpx
import httpx_sse
import pytest
import requests
import sseclient

from tests.support.prometheus import samples
from tests.support.sse import (
    PATH,
    Stream,
    assert_gapless,
    collector,
    is_cut,
    listen,
    master_of,
    open_files,
    resident_megabytes,
    resume,
    server_end,
    wait_for_workers,
    worker_of,
    workers_of,
)
from tests.support.stack import Api, core_of, running_stack, wait_for


@dataclass
class Running:
    """A stack and its process."""

    api: Api
    process: "subprocess.Popen[bytes]"


@pytest.fixture(scope="module")
def busy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Forty subscribers come and go a second."""
    with running_stack(tmp_path_factory.mktemp("busy"), sessions=200, arrivals=40) as made:
        yield Running(*made)


@pytest.fixture
def own(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Running]:
    """A stack for one test, with so many arrivals a second."""
    with running_stack(tmp_path, sessions=200, arrivals=getattr(request, "param", 20)) as made:
        yield Running(*made)


def read_to_end(stream: Stream) -> None:
    while stream.read():
        pass


def refused(api: Api) -> tuple[int, Any]:
    with Stream(api.url, api.environment["GATEWAY_CA"], api.token("operator")) as answer:
        return answer.status, json.loads(answer.read_all())


def test_a_client_that_comes_back_to_another_worker_misses_nothing(busy: Running) -> None:
    workers = workers_of(busy.process)
    with ExitStack() as streams:
        first = streams.enter_context(listen(busy.api))
        messages = first.take(30)

        def elsewhere() -> Stream | None:
            stream = streams.enter_context(resume(busy.api, messages[4].id))
            return stream if worker_of(stream, workers) != worker_of(first, workers) else None

        other: Stream = wait_for("the other worker to take a connection", elsewhere)
        assert other.take(25) == messages[5:]
        assert_gapless([messages[-1], *other.take(30)])


def test_a_worker_gives_up_what_a_departed_client_held(busy: Running) -> None:
    workers = workers_of(busy.process)
    with ExitStack() as opened:
        streams = [opened.enter_context(listen(busy.api)) for _ in range(30)]
        held = {f"socket:[{server_end(stream)[1]}]" for stream in streams}
    assert len(held) == 30
    wait_for("the sockets to be closed", lambda: not held & set().union(*map(open_files, workers)))


def test_killed_workers_cost_no_client_an_event(busy: Running) -> None:
    chance = random.Random(7)
    with ExitStack() as opened:
        clients = [opened.enter_context(collector(busy.api)) for _ in range(4)]
        wait_for("all to listen", lambda: all(len(client) for client in clients))
        for number in range(40):
            workers = workers_of(busy.process)
            # Both at once, too.
            victims = workers if number % 10 == 0 else [chance.choice(workers)]
            seen = sum(map(len, clients))
            for victim in victims:
                os.kill(victim, signal.SIGKILL)
            wait_for_workers(busy.process, 2, set(victims))
            # Else it would be a test of workers that never came to serve anybody.
            wait_for("events", lambda seen=seen: sum(map(len, clients)) > seen)
        newest = max(client.messages[-1].sequence for client in clients)
        wait_for("all to be there", lambda: all(client.has(newest + 50) for client in clients))
    for client in clients:
        assert_gapless(client.messages)
        assert client.returns >= 4


def test_a_restarted_core_is_one_gap_for_who_listens_and_for_who_comes_back(own: Running) -> None:
    with listen(own.api) as stream:
        before = stream.take(20)
        os.kill(core_of(own.process), signal.SIGKILL)
        *rest, gap = stream.until(lambda message: message.name == "gap")
        assert_gapless([*before, *rest])
        after = stream.take(20)
        assert gap.boot_id != before[0].boot_id
        assert gap.data["newest"] == gap.id
        assert gap.data["oldest"].startswith(f"{gap.boot_id}-")
        assert_gapless(after)
        assert after[0].sequence == gap.sequence + 1
    with resume(own.api, before[-1].id) as resumed:
        gap, *messages = resumed.take(20)
    assert (gap.name, gap.boot_id) == ("gap", after[0].boot_id)
    assert_gapless(messages)
    assert messages[0].sequence == gap.sequence + 1


def test_without_a_core_it_is_500_and_works_again_with_one_until_the_api_is_disabled(own: Running) -> None:
    core = core_of(own.process)
    own.api.token("operator")
    os.kill(core, signal.SIGSTOP)
    try:
        # A worker that has the events begins a stream without the core.
        assert refused(own.api) == (500, {"status": "error", "message": "Core daemon unreachable"})
    finally:
        os.kill(core, signal.SIGCONT)
    with listen(own.api) as stream:
        assert_gapless(stream.take(10))
        body = {"path": "api.enabled", "value": False}
        assert own.api.send("POST", "/system/config/set", json=body).status_code == 200
        assert own.api.send("POST", "/system/config/commit").status_code == 200
        read_to_end(stream)
    status, answer = refused(own.api)
    assert (status, answer["status"]) == (503, "error")


def test_silence_is_broken_by_a_colon_on_a_line_and_no_blank_line(tmp_path: Path) -> None:
    with running_stack(tmp_path, sessions=10) as (api, process), ExitStack() as opened:
        began = monotonic()
        streams = [opened.enter_context(listen(api)) for _ in range(50)]
        assert streams[0].read() == b":\n"
        assert monotonic() - began > 14
        api.send("DELETE", "/subscribers/1")
        (message,) = streams[0].take(1)
        assert message.name == "session_down"
        # A stop ends all of them properly, before gunicorn would end them, after half a minute.
        master, began = master_of(process), monotonic()
        os.kill(master, signal.SIGTERM)
        for stream in streams:
            read_to_end(stream)
        wait_for("the end of gunicorn", lambda: not Path(f"/proc/{master}/cmdline").exists())
        assert monotonic() - began < 20


@pytest.mark.parametrize("own", [1500], indirect=True)
def test_a_client_that_never_reads_is_cut_off_while_a_storm_of_events_reaches_a_reader_whole(
    own: Running,
) -> None:
    api = own.api
    with collector(api) as reader, listen(api, receive_buffer=4096) as live:
        wait_for("some events", lambda: len(reader) > 100)
        before = {worker: resident_megabytes(worker) for worker in workers_of(own.process)}
        with resume(api, f"{reader.messages[0].boot_id}-0", receive_buffer=4096) as resumed:

            def are_cut() -> bool:
                assert api.get("/health", None)
                return is_cut(live) and is_cut(resumed)

            wait_for("both to be cut off", are_cut)
            newest = reader.messages[-1].sequence
            wait_for("the reader to go on", lambda: reader.has(newest + 2000))
            with pytest.raises((OSError, HTTPException)):
                live.take(10_000_000)
        after = {worker: resident_megabytes(worker) for worker in workers_of(own.process)}
    assert_gapless(reader.messages)
    assert reader.returns <= 1
    assert set(after) == set(before)
    assert all(after[worker] < 1.5 * before[worker] + 60 for worker in before)


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

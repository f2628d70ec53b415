"""Webhooks while receivers misbehave and processes are killed."""

import json
import os
import random
import re
import signal
import ssl
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import requests

from gateway_api.hub.interface import TIMEOUT
from tests.support.receivers import OK, Fast, Receiver, Rude, answer, flood, hang, reset, say, trickle
from tests.support.sse import master_of, open_files, workers_of
from tests.support.stack import Api, core_of, free_port, running_stack, wait_for
from tests.support.webhooks import BOTH, DOWN, SECRET, Gateway, register, verified


def memory(pid: int, what: str = "VmRSS") -> float:
    """MB."""
    (line,) = re.findall(rf"^{what}:\s+(\d+) kB$", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    return int(line) / 1024


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    state = tmp_path_factory.mktemp("webhooks")
    with running_stack(state, sessions=2000) as (api, process):
        yield Gateway(api, process, state)


# Receivers that don't behave.

HEAD = b"HTTP/1.1 200 OK\r\n"
TEN_GB = b"Content-Length: 10737418240\r\n\r\n"

RUDE: dict[str, Callable[[], Receiver]] = {
    "hangs": lambda: Rude(hang),
    "hangs before it reads": lambda: Rude(hang, reads=False),
    "resets": lambda: Rude(reset),
    "trickles a status line": lambda: Rude(trickle(b"HTTP/1.1 ")),
    "trickles many 100": lambda: Rude(trickle(b"", b"HTTP/1.1 100 Continue\r\n\r\n")),
    "trickles a redirect's body": lambda: Rude(
        trickle(b"HTTP/1.1 302 Found\r\nLocation: /\r\nContent-Length: 1000\r\n\r\n")
    ),
    "floods a status line": lambda: Rude(flood(b"HTTP/1.1 2", b"0" * 1024)),
    "floods headers": lambda: Rude(flood(HEAD, b"Set-Cookie: a=a\r\n")),
    "floods 100s": lambda: Rude(flood(b"", b"HTTP/1.1 100 Continue\r\n\r\n")),
    "floods an error's body": lambda: Rude(flood(b"HTTP/1.1 500 Oh\r\n" + TEN_GB, b"a" * 1024)),
    "speaks another protocol": lambda: Rude(say(b"SSH-2.0-OpenSSH_9.2p1\r\n")),
    "has no TLS": lambda: Rude(say(b"HTTP/1.1 400 Bad Request\r\n\r\n"), "https", reads=False),
    "hangs in TLS": lambda: Rude(hang, "https", reads=False),
}
#: These give a status in time, and then go on about it.
KIND: dict[str, Callable[[], Receiver]] = {
    "trickles a body": lambda: Rude(trickle(HEAD + b"Content-Length: 1000\r\n\r\n")),
    "floods a body": lambda: Rude(flood(HEAD + TEN_GB, b"a" * 1024)),
    "floods until it closes": lambda: Rude(flood(HEAD + b"\r\n", b"a" * 1024)),
    "lies about a length": lambda: Rude(say(HEAD + b"Content-Length: 10\r\n\r\nabc")),
    # Its connection stays, for the next request: an end of it would be a race with that.
    "says more than it said": lambda: Receiver(answer(200) + b"HTTP/1.1 500 Oh\r\n\r\n" * 100),
    "has a superscript for a length": lambda: Rude(say(HEAD + b"Content-Length: \xb2\r\n\r\nabc")),
    "has a length of 5000 digits": lambda: Rude(say(HEAD + b"Content-Length: %s\r\n\r\nabc" % (b"9" * 5000))),
}
#: They give no reason to wait for a deadline. A status, or the reason that there is none.
QUICK: dict[str, int | str] = {
    "refuses": "the connection was refused",
    "resets": "the connection was reset",
    "floods a status line": "the connection failed",
    "floods headers": "the connection failed",
    "speaks another protocol": "the connection failed",
    "has no TLS": "TLS failed",
    "floods an error's body": 500,
    "trickles a redirect's body": 302,
}


@dataclass
class Ordeal:
    """What came of rude receivers: each one's log, oldest first; of the healthy beside them: the seconds that
    each event took; the MB in which the arbiter grew at the most; and the threads that were left when all
    were deleted."""

    logs: dict[str, list[dict[str, Any]]]
    seconds: list[float]
    grown: float
    left: int


@pytest.fixture(scope="module")
def ordeal(gateway: Gateway) -> Iterator[Ordeal]:
    arbiter = master_of(gateway.process)
    tasks = Path(f"/proc/{arbiter}/task")
    # Each worker keeps a connection to the hub, which has a thread for it.
    for _ in range(20):
        gateway.api.get("/webhooks")
    # What it took at the most is counted from now on: proc(5).
    Path(f"/proc/{arbiter}/clear_refs").write_text("5")
    before, threads = memory(arbiter), len(list(tasks.iterdir()))
    with ExitStack() as stack:
        healthy = stack.enter_context(Receiver())
        receivers = {name: stack.enter_context(made()) for name, made in (RUDE | KIND).items()}
        ids = {name: register(gateway.api, one.url, DOWN) for name, one in receivers.items()}
        ids["refuses"] = register(gateway.api, f"http://127.0.0.1:{free_port()}/", DOWN)
        asked: dict[int, float] = {}
        with gateway.webhook(healthy.url):
            end = time.monotonic() + TIMEOUT + 2
            while (at := time.monotonic()) < end or len(asked) < 6:
                asked[gateway.disconnect()] = at
                wait_for("the healthy receiver", lambda: len(healthy.received) == len(asked))
                # Events come every half second, for as long as an attempt may take.
                time.sleep(max(0.0, at + 0.5 - time.monotonic()))
            for id in ids.values():
                gateway.log(id, 1)
        came = {json.loads(one.body)["data"]["id"]: one.at for one in healthy.received}
        logs = {name: gateway.log(id)[::-1] for name, id in ids.items()}
        grown = memory(arbiter, "VmHWM") - before
        for id in ids.values():
            gateway.api.send("DELETE", f"/webhooks/{id}")

        def left() -> int:
            return len(list(tasks.iterdir())) - threads

        wait_for("the end of all attempts", lambda: left() <= 0)
        yield Ordeal(logs, [came[id] - at for id, at in asked.items()], grown, left())


@pytest.mark.parametrize("name", [*RUDE, "refuses"])
def test_a_receiver_that_gives_no_success_in_10_seconds_has_failed(ordeal: Ordeal, name: str) -> None:
    first = ordeal.logs[name][0]
    assert first["result"] == "failed"
    if name in QUICK:
        assert QUICK[name] in (first["status"], first["error"])
    elif name != "floods 100s":
        assert (first["status"], first["error"]) == (None, "timeout")
        assert first["duration"] >= TIMEOUT - 0.1
    # On a busy machine the end of an attempt comes later, but before that of another one would.
    assert first["duration"] < (TIMEOUT if name in QUICK else 2 * TIMEOUT)


@pytest.mark.parametrize("name", KIND)
def test_a_receiver_that_gives_a_status_has_taken_it_whatever_follows(ordeal: Ordeal, name: str) -> None:
    assert ordeal.logs[name]
    for entry in ordeal.logs[name]:
        assert (entry["result"], entry["status"]) == ("delivered", 200)
        assert entry["duration"] < TIMEOUT


def test_rude_receivers_delay_no_other_one_and_cost_no_memory_and_no_thread(ordeal: Ordeal) -> None:
    assert len(ordeal.seconds) > 5
    # A rude one holds who waits for it for as long as an attempt may take.
    assert max(ordeal.seconds) < TIMEOUT
    assert ordeal.grown < 40
    assert ordeal.left <= 0


def test_a_failure_is_tried_again_after_5_seconds_with_the_same_bytes_and_a_valid_signature(
    gateway: Gateway,
) -> None:
    replies = iter([answer(500), OK])
    with Receiver(lambda _: next(replies)) as receiver, gateway.webhook(receiver.url, secret=SECRET) as id:
        gateway.disconnect()
        newest, oldest = gateway.log(id, 2)
    first, second = receiver.received
    assert second.at - first.at >= 5
    assert (first.id, first.body) == (second.id, second.body)
    assert int(second.header("webhook-timestamp")) >= int(first.header("webhook-timestamp")) + 5
    assert verified(first) == verified(second)
    assert (oldest["attempt"], oldest["result"]) == (1, "failed")
    assert (newest["attempt"], newest["result"]) == (2, "delivered")
    assert newest["next_attempt_at"] is None


# What happens to the processes of the service.


def numbers(ids: list[str]) -> dict[str, list[int]]:
    """The sequence numbers of each life of the core, as they came."""
    found: dict[str, list[int]] = {}
    for id in ids:
        life, _, number = id.rpartition("-")
        found.setdefault(life, []).append(int(number))
    return found


def faults(ids: list[str]) -> dict[str, list[int]]:
    """What is missing between the first and the last, what came twice, and what came before its turn."""
    found: dict[str, list[int]] = {"missing": [], "doubled": [], "early": []}
    for life in numbers(ids).values():
        times = Counter(life)
        found["missing"] += sorted(set(range(min(life), max(life) + 1)) - set(life))
        found["doubled"] += [number for number in times if times[number] > 1]
        found["early"] += [one for one, following in pairwise(life) if following < one]
    return found


NO_FAULTS: dict[str, list[int]] = {"missing": [], "doubled": [], "early": []}


@dataclass
class Busy:
    """A stack in which something happens all the time, and a receiver of all of it."""

    api: Api
    process: "subprocess.Popen[bytes]"
    state: Path

    @property
    def arbiter(self) -> int:
        return master_of(self.process)

    @property
    def workers(self) -> list[int]:
        return workers_of(self.process)

    @property
    def log(self) -> str:
        return (self.state / "log").read_text()

    def ask(self, path: str = "/webhooks") -> Any:
        """The data of a GET over a connection of its own; None when nobody was there to answer."""
        headers = {"Authorization": f"Bearer {self.api.token('admin')}", "Connection": "close"}
        certificate = self.api.environment["GATEWAY_CA"]
        with requests.Session() as session:
            session.trust_env = False
            try:
                answered = session.get(
                    f"{self.api.url}/api/v1{path}", headers=headers, verify=certificate, timeout=20
                )
            except (requests.ConnectionError, requests.Timeout):
                return None
        assert answered.status_code == 200, answered.text
        return answered.json()["data"]

    def replaced(self, before: list[int]) -> None:
        """Waits for new workers in the place of these."""
        wait_for(
            "new workers", lambda: len(now := self.workers) == len(before) and not set(before) & set(now)
        )
        wait_for("them to answer", self.ask)


@pytest.fixture(scope="module")
def busy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Busy]:
    state = tmp_path_factory.mktemp("busy")
    trusted = state / "certificate.pem"
    with running_stack(state, sessions=2000, arrivals=50, GATEWAY_API_WEBHOOK_CERTIFICATES=trusted) as made:
        yield Busy(*made, state)


@pytest.fixture
def fast(tmp_path: Path) -> Iterator[Fast]:
    with Fast(tmp_path / "ids") as receiver:
        yield receiver


def arrive(receiver: Fast, more: int) -> None:
    """Waits until so many more messages have come."""
    wanted = len(receiver.ids) + more
    wait_for(f"{more} more messages", lambda: len(receiver.ids) >= wanted)


def test_no_delivery_is_lost_or_doubled_where_workers_are_killed(busy: Busy, fast: Fast) -> None:
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(busy.state / "certificate.pem", busy.state / "key.pem")
    anew = OK.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")
    with Receiver(tls=tls) as secure, Receiver(anew, tls=tls) as secure_anew, Rude(hang) as hanging:
        ids = [register(busy.api, one.url, BOTH) for one in (fast, secure, secure_anew, hanging)]
        for _ in range(60):
            victim = random.choice(busy.workers)
            os.kill(victim, signal.SIGKILL)
            wait_for("another worker", lambda victim=victim: len(set(busy.workers) - {victim}) == 2)
            # Some die while they start, and some when they have answered.
            time.sleep(random.uniform(0, 0.15))
        assert [one["id"] for one in wait_for("an answer", busy.ask)["webhooks"]] == ids
        arrive(fast, 50)
        wait_for("deliveries to each", lambda: min(len(one.ids) for one in (fast, secure, secure_anew)) > 500)
        for id in ids:
            busy.api.send("DELETE", f"/webhooks/{id}")
        assert [faults(receiver.ids) for receiver in (fast, secure, secure_anew)] == [NO_FAULTS] * 3
        assert len(numbers(fast.ids)) == 1
    assert "webhooks miss" not in busy.log


def test_a_worker_keeps_no_connection_of_a_receiver_and_a_reload_keeps_the_webhooks(
    busy: Busy, fast: Fast
) -> None:
    with Receiver() as receiver, Rude(hang) as hanging:
        ids = [register(busy.api, one.url, BOTH) for one in (receiver, hanging, fast)]
        wait_for("both connections", lambda: receiver.received and hanging.received)
        before = busy.workers
        for worker in before:
            os.kill(worker, signal.SIGKILL)
        busy.replaced(before)
        ports = {f":{one.port:04X}" for one in (receiver, hanging)}
        for worker in busy.workers:
            lines = [line.split() for line in Path(f"/proc/{worker}/net/tcp").read_text().splitlines()[1:]]
            inodes = {f"socket:[{line[9]}]" for line in lines if line[2][-5:] in ports}
            assert inodes
            assert not inodes & open_files(worker)
        before = busy.workers
        os.kill(busy.arbiter, signal.SIGHUP)
        busy.replaced(before)
        assert [one["id"] for one in busy.ask()["webhooks"]] == ids
        arrive(fast, 50)
        for id in ids:
            busy.api.send("DELETE", f"/webhooks/{id}")
        wait_for("the connection's end", lambda: receiver.ended)
    assert faults(fast.ids) == NO_FAULTS
    assert len(numbers(fast.ids)) == 1


def test_deliveries_go_on_after_a_restart_of_the_core_and_the_log_tells_of_the_gap(
    busy: Busy, fast: Fast
) -> None:
    id = register(busy.api, fast.url, BOTH)
    arrive(fast, 20)
    assert "webhooks miss" not in busy.log
    os.kill(core_of(busy.process), signal.SIGKILL)
    wait_for("the next life's events", lambda: len(numbers(fast.ids)) == 2)
    arrive(fast, 50)
    busy.api.send("DELETE", f"/webhooks/{id}")
    assert faults(fast.ids) == NO_FAULTS
    _, life = numbers(fast.ids)
    assert re.search(rf"webhooks miss the events before {life}-\d+", busy.log)


def test_a_restart_of_the_api_ends_what_was_registered_and_leaves_what_is_declared(
    busy: Busy, fast: Fast
) -> None:
    gateway = Gateway(busy.api, busy.process, busy.state)
    declared = gateway.declare({"url": fast.url, "events": BOTH})[fast.url]
    register(busy.api, "http://127.0.0.1:9/", BOTH)
    arrive(fast, 5)
    gone = [busy.arbiter, *busy.workers]
    os.kill(busy.arbiter, signal.SIGKILL)
    wait_for("its end", lambda: not any(Path(f"/proc/{pid}").exists() for pid in gone))
    wait_for("the API to answer", busy.ask)
    busy.api.session.close()
    wait_for("the declared webhook", gateway.declared)
    (webhook,) = busy.ask()["webhooks"]
    assert (webhook["id"], webhook["url"]) == (declared["id"], fast.url)
    arrive(fast, 20)
    gateway.declare()

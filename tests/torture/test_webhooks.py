"""Webhooks while receivers misbehave, processes are killed, and all sessions come back at once."""

import json
import os
import random
import re
import shutil
import signal
import socket
import ssl
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import pytest
import requests

from gateway_api.hub.delivery_queue import MOST_WAITING
from gateway_api.wire.hub import TIMEOUT
from tests.contract.test_webhooks import (
    BOTH,
    DOWN,
    Gateway,
    Process,
    arbiter_of,
    metrics,
    register,
)
from tests.support.receivers import (
    OK,
    Fast,
    Receiver,
    Rude,
    answer,
    close,
    flood,
    hang,
    reset,
    say,
    trickle,
)
from tests.support.stack import (
    PATIENCE,
    Api,
    core_of,
    descendants,
    free_port,
    running_api,
    running_core,
    running_stack,
    wait_for,
)

pytestmark = pytest.mark.slow


def memory(pid: int, what: str = "VmRSS") -> float:
    """MB."""
    (line,) = re.findall(rf"^{what}:\s+(\d+) kB$", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    return int(line) / 1024


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    state = tmp_path_factory.mktemp("webhooks")
    trusted = state / "certificate.pem"
    with running_stack(state, sessions=2000, GATEWAY_API_WEBHOOK_CERTIFICATES=trusted) as (api, process):
        yield Gateway(api, process, state)


# Receivers that don't behave.

HEAD = b"HTTP/1.1 200 OK\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
TEN_GB = b"Content-Length: 10737418240\r\n\r\n"

RUDE: dict[str, Callable[[], Rude]] = {
    "hangs": lambda: Rude(hang),
    "hangs before it reads": lambda: Rude(hang, reads=False),
    "resets": lambda: Rude(reset),
    "resets before it reads": lambda: Rude(reset, reads=False),
    "closes": lambda: Rude(close),
    "closes before it reads": lambda: Rude(close, reads=False),
    "trickles a status line": lambda: Rude(trickle(b"HTTP/1.1 ")),
    "trickles a header": lambda: Rude(trickle(HEAD + b"A: ")),
    "trickles headers": lambda: Rude(trickle(HEAD, b"A: a\r\n")),
    "trickles many 100": lambda: Rude(trickle(b"", b"HTTP/1.1 100 Continue\r\n\r\n")),
    "trickles a redirect's body": lambda: Rude(
        trickle(b"HTTP/1.1 302 Found\r\nLocation: /\r\nContent-Length: 1000\r\n\r\n")
    ),
    "floods a redirect's body": lambda: Rude(
        flood(b"HTTP/1.1 302 Found\r\nLocation: /\r\n" + TEN_GB, b"a" * 1024)
    ),
    "floods a status line": lambda: Rude(flood(b"HTTP/1.1 2", b"0" * 1024)),
    "floods a header": lambda: Rude(flood(HEAD + b"A: ", b"a" * 1024)),
    "floods headers": lambda: Rude(flood(HEAD, b"Set-Cookie: a=a\r\n")),
    "floods 100s": lambda: Rude(flood(b"", b"HTTP/1.1 100 Continue\r\n\r\n")),
    "floods an error's body": lambda: Rude(flood(b"HTTP/1.1 500 Oh\r\n" + TEN_GB, b"a" * 1024)),
    "speaks another protocol": lambda: Rude(say(b"SSH-2.0-OpenSSH_9.2p1\r\n")),
    "says nothing of HTTP": lambda: Rude(say(bytes(range(256)) * 8)),
    "has no TLS": lambda: Rude(say(b"HTTP/1.1 400 Bad Request\r\n\r\n"), "https", reads=False),
    "hangs in TLS": lambda: Rude(hang, "https", reads=False),
    "trickles in TLS": lambda: Rude(trickle(b"\x16\x03\x03\x40\x00"), "https", reads=False),
}
#: These give a status in time, and then go on about it.
KIND: dict[str, Callable[[], Rude]] = {
    "trickles a body": lambda: Rude(trickle(HEAD + b"Content-Length: 1000\r\n\r\n")),
    "trickles chunks": lambda: Rude(trickle(CHUNKED, b"1\r\na\r\n")),
    "hangs in a body": lambda: Rude(trickle(HEAD + b"Content-Length: 10\r\n\r\n", every=60)),
    "floods a body": lambda: Rude(flood(HEAD + TEN_GB, b"a" * 1024)),
    "floods chunks": lambda: Rude(flood(CHUNKED, b"400\r\n" + b"a" * 1024 + b"\r\n")),
    "floods until it closes": lambda: Rude(flood(HEAD + b"\r\n", b"a" * 1024)),
    "lies about a length": lambda: Rude(say(HEAD + b"Content-Length: 10\r\n\r\nabc")),
    "says more than it said": lambda: Rude(say(answer(200) + b"HTTP/1.1 500 Oh\r\n\r\n" * 100)),
    "has a length of a kind": lambda: Rude(say(HEAD + b"Content-Length: -1\r\n\r\nabc")),
    "has a superscript for a length": lambda: Rude(say(HEAD + b"Content-Length: \xb2\r\n\r\nabc")),
    "has a length of 5000 digits": lambda: Rude(say(HEAD + b"Content-Length: %s\r\n\r\nabc" % (b"9" * 5000))),
}
#: They give no reason to wait for a deadline.
QUICK = {
    *("resets", "resets before it reads", "closes", "closes before it reads", "floods a status line"),
    *("floods a header", "floods headers", "floods an error's body", "speaks another protocol"),
    *("says nothing of HTTP", "has no TLS", "floods a redirect's body", "trickles a redirect's body"),
}


@dataclass
class Ordeal:
    """What came of rude receivers: each one's log, oldest first; of the healthy beside them: the seconds that
    each event took; and of the memory: MB in which the arbiter grew at the most."""

    logs: dict[str, list[dict[str, Any]]]
    seconds: list[float]
    grown: float
    #: The threads that were left when all were deleted and every deadline had passed.
    left: int


@pytest.fixture(scope="module")
def ordeal(gateway: Gateway) -> Iterator[Ordeal]:
    arbiter = gateway.arbiter
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
                wait_for("the healthy receiver", lambda: len(healthy.received) == len(asked), 10)
                # Events come every half second, for as long as an attempt may take.
                time.sleep(max(0.0, at + 0.5 - time.monotonic()))
            for name, id in ids.items():
                wait_for(f"an attempt that {name}", lambda id=id: gateway.log(id))
        came = {json.loads(one.body)["data"]["id"]: one.at for one in healthy.received}
        logs = {name: gateway.log(id)[::-1] for name, id in ids.items()}
        grown = memory(arbiter, "VmHWM") - before
        for id in ids.values():
            gateway.api.send("DELETE", f"/webhooks/{id}")
        end = time.monotonic() + 2 * TIMEOUT + PATIENCE
        while (left := len(list(tasks.iterdir())) - threads) > 0 and time.monotonic() < end:
            time.sleep(0.1)
        yield Ordeal(logs, [came[id] - at for id, at in asked.items()], grown, left)


@pytest.mark.parametrize("name", RUDE)
def test_a_receiver_that_gives_no_status_has_failed_in_time(ordeal: Ordeal, name: str) -> None:
    first = ordeal.logs[name][0]
    assert first["result"] == "failed"
    if name in QUICK:
        assert first["error"] != "timeout"
    # On a busy machine the end of an attempt comes later, but before that of another one would.
    assert first["duration"] < (TIMEOUT if name in QUICK else 2 * TIMEOUT)


@pytest.mark.parametrize("name", [name for name in RUDE if name not in QUICK and name != "floods 100s"])
def test_a_receiver_has_10_seconds_to_give_a_status(ordeal: Ordeal, name: str) -> None:
    first = ordeal.logs[name][0]
    assert (first["status"], first["error"]) == (None, "timeout")
    assert first["duration"] >= TIMEOUT - 0.1


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("refuses", "the connection was refused"),
        ("resets", "the connection was reset"),
        ("resets before it reads", "the connection was reset"),
        ("closes", "the connection was reset"),
        ("has no TLS", "TLS failed"),
        ("speaks another protocol", "the connection failed"),
        ("floods headers", "the connection failed"),
    ],
)
def test_a_failure_is_logged_with_its_reason(ordeal: Ordeal, name: str, reason: str) -> None:
    assert {(entry["status"], entry["error"]) for entry in ordeal.logs[name]} == {(None, reason)}


@pytest.mark.parametrize(
    ("name", "status"),
    [
        ("floods a redirect's body", 302),
        ("trickles a redirect's body", 302),
        ("floods an error's body", 500),
    ],
)
def test_a_failure_with_an_endless_body_is_logged_with_its_status(
    ordeal: Ordeal, name: str, status: int
) -> None:
    assert {(entry["status"], entry["error"]) for entry in ordeal.logs[name]} == {(status, None)}


@pytest.mark.parametrize("name", KIND)
def test_a_receiver_that_gives_a_status_has_taken_it_whatever_follows(ordeal: Ordeal, name: str) -> None:
    assert ordeal.logs[name]
    for entry in ordeal.logs[name]:
        assert (entry["result"], entry["status"]) == ("delivered", 200)
        assert entry["duration"] < TIMEOUT


def test_rude_receivers_delay_no_other_one(ordeal: Ordeal) -> None:
    assert len(ordeal.seconds) > 5
    # A rude one holds who waits for it for as long as an attempt may take.
    assert max(ordeal.seconds) < TIMEOUT


def test_rude_receivers_cost_no_memory(ordeal: Ordeal) -> None:
    assert ordeal.grown < 40


def test_the_attempts_of_deleted_webhooks_end_in_time(ordeal: Ordeal) -> None:
    assert ordeal.left <= 0


def test_a_receiver_whose_webhook_is_deleted_in_an_attempt_is_let_go_by_its_deadline(
    gateway: Gateway,
) -> None:
    with Rude(trickle(HEAD + b"A: ", every=0.2)) as receiver:
        with gateway.webhook(receiver.url) as id:
            gateway.test(id)
            wait_for("the attempt", lambda: receiver.received, 5)
        wait_for("its end", lambda: receiver.ended, TIMEOUT + 1)


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
    process: Process
    state: Path

    @property
    def arbiter(self) -> int:
        return arbiter_of(self.process)

    @property
    def workers(self) -> list[int]:
        return descendants(self.arbiter)

    @property
    def log(self) -> str:
        return (self.state / "log").read_text()

    def ask(self, path: str) -> Any:
        """The data of a GET over a connection of its own; None when nobody was there to answer."""
        headers = {"Authorization": f"Bearer {self.api.token('admin')}", "Connection": "close"}
        try:
            with requests.Session() as session:
                session.trust_env = False
                answered = session.get(
                    f"{self.api.url}/api/v1{path}",
                    headers=headers,
                    verify=self.api.environment["GATEWAY_CA"],
                    timeout=5,
                )
        except (requests.ConnectionError, requests.Timeout):
            return None
        assert answered.status_code == 200, answered.text
        return answered.json()["data"]

    def answer_of(self, worker: int, path: str) -> Any:
        """What this worker answers, which is the only one that may run."""
        others = [pid for pid in self.workers if pid != worker]
        for pid in others:
            os.kill(pid, signal.SIGSTOP)
        try:
            return wait_for(f"worker {worker} to answer", lambda: self.ask(path), 15)
        finally:
            for pid in others:
                os.kill(pid, signal.SIGCONT)


@pytest.fixture(scope="module")
def busy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Busy]:
    state = tmp_path_factory.mktemp("busy")
    trusted = state / "certificate.pem"
    with running_stack(state, sessions=2000, arrivals=50, GATEWAY_API_WEBHOOK_CERTIFICATES=trusted) as (
        api,
        process,
    ):
        yield Busy(api, process, state)


@pytest.fixture
def fast(tmp_path: Path) -> Iterator[Fast]:
    with Fast(tmp_path / "ids") as receiver:
        yield receiver


def arrive(receiver: Fast | Receiver, more: int) -> None:
    """Waits until so many more messages have come."""
    wanted = len(receiver.ids) + more
    wait_for(f"{more} more messages", lambda: len(receiver.ids) >= wanted, 20)


def descriptors(pid: int) -> set[str]:
    """What a process has open."""
    found = set()
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        try:
            found.add(str(entry.readlink()))
        except FileNotFoundError:
            continue
    return found


def kill_one(busy: Busy) -> None:
    """Kills a worker and waits for the one that takes its place."""
    before = busy.workers
    victim = random.choice(before)
    os.kill(victim, signal.SIGKILL)
    wait_for(
        "another worker",
        lambda: len(now := busy.workers) == len(before) and victim not in now,
        10,
    )


def urls(listed: dict[str, Any]) -> dict[str, str]:
    """By the ids of the webhooks: what doesn't change while one is paused."""
    return {one["id"]: one["url"] for one in listed["webhooks"]}


def test_no_delivery_is_lost_or_doubled_where_200_workers_are_killed(
    busy: Busy, fast: Fast, tmp_path: Path
) -> None:
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(busy.state / "certificate.pem", busy.state / "key.pem")
    anew = OK.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")
    with Receiver(tls=tls) as secure, Receiver(anew, tls=tls) as secure_anew, Rude(hang) as hanging:
        ids = [register(busy.api, one.url, BOTH) for one in (fast, secure, secure_anew, hanging)]
        registered = urls(busy.api.get("/webhooks"))
        for number in range(1, 201):
            kill_one(busy)
            # Some die while they start, and some when they have answered.
            time.sleep(random.uniform(0, 0.15))
            if number % 20 == 0:
                assert urls(wait_for("an answer", lambda: busy.ask("/webhooks"))) == registered
        for worker in busy.workers:
            assert urls(busy.answer_of(worker, "/webhooks")) == registered
        arrive(fast, 50)
        # On a busy machine, deliveries over TLS come later.
        wait_for("deliveries to each", lambda: min(map(len, (fast.ids, secure.ids, secure_anew.ids))) > 1000)
        for id in ids:
            busy.api.send("DELETE", f"/webhooks/{id}")
        assert [faults(receiver.ids) for receiver in (fast, secure, secure_anew)] == [NO_FAULTS] * 3
        assert len(numbers(fast.ids)) == 1
    assert "are lost to the webhooks" not in busy.log


def test_a_worker_that_was_forked_meanwhile_keeps_no_connection_of_a_receiver(busy: Busy) -> None:
    with Receiver() as receiver, Rude(hang) as hanging:
        ids = [register(busy.api, one.url, BOTH) for one in (receiver, hanging)]
        wait_for("both connections", lambda: receiver.received and hanging.received, 10)
        before = set(busy.workers)
        for worker in before:
            os.kill(worker, signal.SIGKILL)
        wait_for("new workers", lambda: len(busy.workers) == 2 and not before & set(busy.workers), 10)
        wait_for("them to answer", lambda: busy.ask("/webhooks"))
        ports = {f":{one.port:04X}" for one in (receiver, hanging)}
        for worker in busy.workers:
            lines = [line.split() for line in Path(f"/proc/{worker}/net/tcp").read_text().splitlines()[1:]]
            inodes = {f"socket:[{line[9]}]" for line in lines if line[2][-5:] in ports}
            assert inodes
            assert not inodes & descriptors(worker)
        busy.api.send("DELETE", f"/webhooks/{ids[0]}")
        wait_for("the connection's end", lambda: receiver.ended, 2)
        busy.api.send("DELETE", f"/webhooks/{ids[1]}")


def test_a_worker_inherits_no_socket_but_those_it_listens_at(busy: Busy) -> None:
    def unix_sockets(pid: int) -> set[str]:
        table = Path(f"/proc/{pid}/net/unix").read_text().splitlines()[1:]
        hubs = {f"socket:[{line.split()[6]}]" for line in table if "hub.sock" in line}
        return hubs & descriptors(pid)

    assert unix_sockets(busy.arbiter)
    for worker in busy.workers:
        assert not unix_sockets(worker)


def test_a_reload_of_the_api_keeps_webhooks_and_deliveries(busy: Busy, fast: Fast) -> None:
    id = register(busy.api, fast.url, BOTH)
    registered = busy.api.get("/webhooks")
    arrive(fast, 20)
    before = set(busy.workers)
    os.kill(busy.arbiter, signal.SIGHUP)
    wait_for("new workers", lambda: len(busy.workers) == 2 and not before & set(busy.workers), 15)
    for worker in busy.workers:
        assert busy.answer_of(worker, "/webhooks") == registered
    arrive(fast, 50)
    busy.api.send("DELETE", f"/webhooks/{id}")
    assert faults(fast.ids) == NO_FAULTS
    assert len(numbers(fast.ids)) == 1
    assert "are lost to the webhooks" not in busy.log


def test_deliveries_go_on_after_a_restart_of_the_core_and_the_log_tells_of_the_gap(
    busy: Busy, fast: Fast
) -> None:
    id = register(busy.api, fast.url, BOTH)
    arrive(fast, 20)
    assert "are lost to the webhooks" not in busy.log
    os.kill(core_of(busy.process), signal.SIGKILL)
    wait_for("the next life's events", lambda: len(numbers(fast.ids)) == 2, 20)
    arrive(fast, 50)
    busy.api.send("DELETE", f"/webhooks/{id}")
    assert faults(fast.ids) == NO_FAULTS
    _, life = numbers(fast.ids)
    assert re.search(rf"events before {life}-\d+ are lost to the webhooks", busy.log)


@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGKILL])
def test_webhooks_are_gone_after_a_restart_of_the_api_and_others_may_come(
    busy: Busy, fast: Fast, sent: signal.Signals
) -> None:
    register(busy.api, fast.url, BOTH)
    arrive(fast, 5)
    arbiter, workers = busy.arbiter, busy.workers
    os.kill(arbiter, sent)
    wait_for("its end", lambda: not any(Path(f"/proc/{pid}").exists() for pid in (arbiter, *workers)), 20)
    found = wait_for("the API to answer", lambda: busy.ask("/webhooks"), 20)
    assert found == {"webhooks": [], "count": 0}
    seen = len(fast.ids)
    id = register(busy.api, fast.url, BOTH)
    arrive(fast, 20)
    busy.api.send("DELETE", f"/webhooks/{id}")
    assert faults(fast.ids[seen:]) == NO_FAULTS
    assert "cannot start the gateway API" not in busy.log


# A gateway whose sessions all come back at once.


BURST = 50_000


@dataclass
class Burst:
    """What came of 5,000 sessions a second, or as many as can be made, until there were 50,000; in `lasted`
    seconds."""

    ids: list[str]
    samples: dict[str, float]
    health: list[float]
    lasted: float
    grown: float
    peak: float
    dead: list[dict[str, Any]]


@pytest.fixture(scope="module")
def burst(gateway: Gateway, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Burst]:
    state = tmp_path_factory.mktemp("burst")
    for name in ("certificate.pem", "key.pem", "secret", "factory.json"):
        shutil.copy(gateway.state / name, state)
    core, factory = state / "core.sock", state / "factory.json"
    with ExitStack() as stack:
        fast = stack.enter_context(Fast(state / "ids"))
        hanging = stack.enter_context(Rude(hang))
        first = ExitStack()
        stack.push(first)
        first.enter_context(running_core(core, factory, "--sessions", "0", "--arrivals", "0"))
        url = stack.enter_context(running_api(core, state))
        api = Api({**gateway.api.environment, "GATEWAY_URL": url})
        register(api, fast.url, BOTH)
        dead = register(api, hanging.url, BOTH)
        arbiter = next(
            int(entry.name)
            for entry in Path("/proc").glob("[0-9]*")
            if _parent(entry) == os.getpid() and b"gunicorn" in (entry / "cmdline").read_bytes()
        )
        before = memory(arbiter)
        first.close()
        health: list[float] = []
        over = threading.Event()
        watcher = threading.Thread(target=_watch_health, args=(url, state / "certificate.pem", health, over))
        with running_core(core, factory, "--sessions", "0", "--arrivals", "5000"):
            wait_for("the burst", lambda: fast.ids, 20)
            began = time.monotonic()
            watcher.start()
            # At the rate at which this machine can make them. The dead one has room for 10,000.
            wait_for("a burst", lambda: metrics(api)["_dropped_total"] > BURST - MOST_WAITING, 300)
            lasted = time.monotonic() - began
            log = api.get(f"/webhooks/{dead}/deliveries")["deliveries"]
        stack.enter_context(running_core(core, factory, "--sessions", "100", "--arrivals", "0"))

        def waiting() -> float:
            return metrics(api)["_waiting"]

        # The dead one's stay.
        wait_for("all that waited", lambda: waiting() <= MOST_WAITING, 300)
        over.set()
        watcher.join(60)
        samples = metrics(api)
        api.send("DELETE", f"/webhooks/{dead}")
        peak = memory(arbiter, "VmHWM") - before
        api.session.close()
        yield Burst(fast.ids, samples, health, lasted, memory(arbiter) - before, peak, log)


def _parent(process: Path) -> int:
    try:
        return int((process / "stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def _watch_health(url: str, certificate: Path, seconds: list[float], over: threading.Event) -> None:
    with requests.Session() as session:
        session.trust_env = False
        while not over.wait(0.1):
            began = time.monotonic()
            session.get(f"{url}/api/v1/health", verify=certificate, timeout=60)
            seconds.append(time.monotonic() - began)


def test_every_event_of_a_burst_is_delivered_once_and_in_order(burst: Burst) -> None:
    (found,) = numbers(burst.ids).values()
    assert len(found) > BURST
    assert faults(burst.ids) == NO_FAULTS
    assert burst.samples["_attempts_totaldelivered"] == len(found)


def test_a_burst_does_not_keep_the_api_from_answering(burst: Burst) -> None:
    # A pause of a busy machine holds some up, and a burst that does so all of them.
    assert len(burst.health) > 10
    assert median(burst.health) < 1


def test_the_memory_of_a_burst_is_given_back(burst: Burst) -> None:
    assert burst.grown < 60


def test_what_a_dead_receiver_misses_in_a_burst_is_counted_and_logged(burst: Burst) -> None:
    dropped = [entry for entry in burst.dead if entry["result"] == "dropped"]
    assert dropped
    assert all(entry["dropped"] > 0 and entry["message_id"] for entry in dropped)
    # What waits for the dead one, and the one that it holds.
    assert burst.samples["_dropped_total"] > len(burst.ids) - MOST_WAITING - 1000


# A receiver that takes, beside many that refuse.


@dataclass
class Beside:
    """What a receiver got at so many events a second, beside so many that refuse: the ids of the messages,
    and how late the last one of each second was. `processor` is the arbiter's share of one. The log and the
    record are one's that refuses, as they were at `read_at`."""

    ids: list[str]
    late: list[float]
    processor: float
    samples: dict[str, float]
    log: list[dict[str, Any]]
    record: dict[str, Any]
    read_at: float


def beside_refusing(state: Path, refusing: int, rate: int, seconds: float) -> Beside:
    """Has a whole gateway work for a while."""
    with ExitStack() as stack:
        fast = stack.enter_context(Fast(state / "ids", "--times"))
        nobody = stack.enter_context(socket.socket())
        # Bound, and nobody listens: each connection is refused.
        nobody.bind(("127.0.0.1", 0))
        # As many leave as come.
        api, process = stack.enter_context(running_stack(state, sessions=20_000, arrivals=rate / 2))
        register(api, fast.url, BOTH)
        refused = [
            register(api, f"http://127.0.0.1:{nobody.getsockname()[1]}/", BOTH) for _ in range(refusing)
        ]
        wait_for("an event", lambda: fast.ids, 10)
        arbiter = arbiter_of(process)
        before, began = processor_seconds(arbiter), time.monotonic()
        time.sleep(seconds)
        wait_for("the pauses", lambda: metrics(api).get("_paused") == refusing)
        spent = (processor_seconds(arbiter) - before) / (time.monotonic() - began)
        came = [(id, float(at), int(happened)) for id, at, happened in map(str.split, fast.lines)]
        samples = metrics(api)
        log, record = [], {}
        if refused:
            log = api.get(f"/webhooks/{refused[0]}/deliveries")["deliveries"]
            record = api.get(f"/webhooks/{refused[0]}")
        read_at = time.time()
    # The last event of a second happened at its end, or hardly before. After the very last, others may come.
    last_of = {happened: at for _, at, happened in came}
    late = [at - (happened + 1) for happened, at in last_of.items()][:-1]
    return Beside([id for id, _, __ in came], late, spent, samples, log, record, read_at)


def processor_seconds(pid: int) -> float:
    """What a process has used, in its own name and in the kernel's: proc(5)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@pytest.fixture(scope="module")
def beside(tmp_path_factory: pytest.TempPathFactory) -> Beside:
    return beside_refusing(tmp_path_factory.mktemp("refusing"), refusing=99, rate=200, seconds=20)


def test_99_refusing_receivers_take_nothing_from_one_that_takes(beside: Beside) -> None:
    assert len(beside.ids) > 200 * 20 * 0.8
    assert faults(beside.ids) == NO_FAULTS
    assert max(beside.late) < 10


def test_a_receiver_that_refuses_is_paused_and_shown_as_such(beside: Beside) -> None:
    assert beside.samples["_paused"] == 99
    assert beside.record["paused_until"] > beside.read_at - 60
    assert [entry["paused_until"] is not None for entry in beside.log[-3:]] == [True, False, False]
    # At 0, 5 and 15 s a message is tried, and what was tried, 5 s later: instead of 2,000 attempts a second.
    assert len(beside.log) < 20

"""The audit log keeps what was acknowledged, whatever disks, floods and SIGKILL do."""

import os
import random
import signal
import sqlite3
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import requests

from gateway_api.audit.log import AuditDatabase
from gateway_api.audit.record import make_gap
from tests.support.audit import RATES, AuditedGateway, rows
from tests.support.stack import PATIENCE, Api, running_stack, wait_for

SIZE = 1 << 20
#: System calls with which a disk gets to have a file, as strace has them.
SYNCS = "fsync,fdatasync"


@contextmanager
def traced(pids: list[int], *options: str) -> Iterator[None]:
    """strace on some calls of all threads of these processes, in the block."""
    command = ["strace", "-f", *options, *(f"-p{pid}" for pid in pids)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as strace:
        assert strace.stderr is not None
        for _ in pids:
            line = strace.stderr.readline()
            assert "attached" in line, line
        try:
            yield
        finally:
            strace.terminate()


def session_of(api: Api) -> requests.Session:
    """That of one more client, with a certificate and without a token."""
    session = requests.Session()
    session.trust_env, session.verify = False, api.environment["GATEWAY_CA"]
    return session


def test_an_answer_waits_for_the_disk_and_others_do_not(tmp_path: Path) -> None:
    answered = 0
    done = threading.Event()

    def look() -> None:
        nonlocal answered
        with session_of(api) as session:
            while not done.is_set():
                assert session.get(f"{api.url}/api/v1/health", timeout=60).ok
                answered += 1

    with running_stack(tmp_path, sessions=20, WORKERS=1) as (api, process):
        gateway = AuditedGateway(api, tmp_path, process)
        api.token("admin")
        slow_syncs = f"inject={SYNCS}:delay_exit=3000000"
        with traced(gateway.workers, "-o", os.devnull, "-e", f"trace={SYNCS}", "-e", slow_syncs):
            looking = threading.Thread(target=look)
            looking.start()
            began = time.monotonic()
            answer = gateway.ask("DELETE", "/subscribers/1")
            waited = time.monotonic() - began
            done.set()
            looking.join()
    assert answer.ok
    assert waited >= 3
    # If they waited too, one or two would be answered.
    assert answered > 10


ANSWERED = 300


def test_a_full_log_keeps_its_size_and_every_answered_change_though_workers_are_killed(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "audit"
    folder.mkdir()
    full = AuditDatabase(folder, "known", SIZE)
    older = make_gap(1.0, "x" * 400, user="admin", role="admin").text()
    while rows(full)[:1] in ([], [(1, "")]):
        full.append([older] * 50)
    began_at, _ = rows(full)[0]
    sizes = []

    def measure() -> None:
        with suppress(FileNotFoundError):
            sizes.append(sum((folder / f"known.sqlite{suffix}").stat().st_size for suffix in ("", "-wal")))

    with running_stack(tmp_path, sessions=50, WORKERS=3, GATEWAY_API_AUDIT_MEBIBYTES=1) as (api, process):
        answered, sent = change_rates(AuditedGateway(api, tmp_path, process), measure)
        wait_for("an answer", lambda: is_served(api))
    assert max(sizes) <= SIZE
    kept = rows(AuditDatabase(folder, "known", SIZE))
    changes = [name for _, name in kept if "-" in name]
    assert len(changes) == len(set(changes))
    assert answered <= set(changes) <= sent
    # Every change took the place of older records, and only the oldest made room.
    first, _ = kept[0]
    assert first > began_at + len(answered) // 2
    assert [number for number, _ in kept] == list(range(first, first + len(kept)))
    with closing(sqlite3.connect(folder / "known.sqlite")) as connection:
        assert ("ok",) in connection.execute("PRAGMA integrity_check")


def change_rates(gateway: AuditedGateway, between: Callable[[], None]) -> tuple[set[str], set[str]]:
    """Changes from several clients while workers are killed: the ids of those that were answered, and of all.
    So few that none is pushed out. Calls `between` after each kill."""
    answered: set[str] = set()
    sent: set[str] = set()
    deadline = time.monotonic() + 10 * PATIENCE
    token = gateway.api.token("admin")

    def change(client: int) -> None:
        with session_of(gateway.api) as session:
            for number in range(500):
                if len(answered) > ANSWERED or time.monotonic() > deadline:
                    return
                request_id = f"{client}-{number}"
                headers = {"Authorization": f"Bearer {token}", "X-Request-ID": request_id}
                sent.add(request_id)
                url = f"{gateway.api.url}/api/v1/subscribers/{client + 1}/rate"
                try:
                    if session.put(url, json=RATES, headers=headers, timeout=10).ok:
                        answered.add(request_id)
                except requests.RequestException:
                    time.sleep(0.05)

    threads = [threading.Thread(target=change, args=(client,)) for client in range(4)]
    for thread in threads:
        thread.start()
    choice = random.Random(1)
    while any(thread.is_alive() for thread in threads):
        time.sleep(choice.uniform(0.2, 0.6))
        os.kill(choice.choice(gateway.workers), signal.SIGKILL)
        between()
        wait_for("a worker in its place", lambda: len(gateway.workers) == 3)
    for thread in threads:
        thread.join()
    assert len(answered) > ANSWERED
    return answered, sent


def is_served(api: Api) -> bool:
    try:
        return api.send("GET", "/health", None).ok
    except requests.ConnectionError:
        # The worker that took it was killed.
        return False

"""Measures the README's figures: `make figures`. Prints a table in Markdown; takes about four minutes.

All of it in one run on one machine, so that the lines can be compared with each other, and with the
first: an application of one line in the same gunicorn, by the same clients. The clients are processes
of this machine, too, over TLS on kept-alive connections: they take their share of the processor.
"""

import multiprocessing
import os
import ssl
import subprocess
import sys
import tempfile
import time
from http.client import HTTPSConnection
from itertools import chain
from pathlib import Path
from statistics import median, quantiles

from flask import Flask

from tests.support.stack import core_of, descendants, free_port, running_stack, wait_for

_CLIENTS = 8
_SECONDS = 4.0

bare = Flask(__name__)


@bare.get("/api/v1/health")
def hello() -> dict[str, str]:
    return {"status": "ok"}


def main() -> None:
    say("| sessions | request | clients | median ms | p99 ms | a second |")
    say("|---|---|---|---|---|---|")
    for sessions in (200, 10_000, 100_000, 200_000):
        with tempfile.TemporaryDirectory() as folder, running_stack(Path(folder), sessions) as (api, process):
            if sessions == 200:
                measure_bare_flask(Path(folder))
            headers = {"Authorization": f"Bearer {api.token('admin')}"}
            where = (api.environment["GATEWAY_CA"], api.url, headers)
            for name, path, clients in (
                ("health", "/health", _CLIENTS),
                ("one session", "/subscribers/7", _CLIENTS),
                ("one by username", "/subscribers?username=nobody", _CLIENTS),
                ("a page of 100", "/subscribers?limit=100", _CLIENTS),
                ("a page of 100, sorted by address", "/subscribers?limit=100&sort=ip_address", 1),
                ("the whole list", "/subscribers", 1),
                ("the whole list", "/subscribers", 4),
            ):
                row(f"{sessions:,}", name, clients, (*where, "GET", path))
            core = core_of(process)
            worker = max((pid for pid in descendants(process.pid) if pid != core), key=peak)
            say(
                f"| {sessions:,} | memory now / at most: core {resident(core)} / {peak(core)} MB,"
                f" worker {resident(worker)} / {peak(worker)} MB | | | | |"
            )
            row(f"{sessions:,}", "disconnect one", _CLIENTS, (*where, "DELETE", "/subscribers/{id}"))


def measure_bare_flask(state: Path) -> None:
    port = free_port()
    command = [
        *(str(Path(sys.executable).parent / "gunicorn"), "tests.support.figures:bare", "--workers", "2"),
        *("--worker-class", "gevent", "--bind", f"127.0.0.1:{port}", "--log-level", "warning"),
        *("--certfile", str(state / "certificate.pem"), "--keyfile", str(state / "key.pem")),
        *("--no-control-socket", "--access-logfile", os.devnull),
    ]
    process = subprocess.Popen(command)
    request = (str(state / "certificate.pem"), f"https://localhost:{port}", {}, "GET", "/health")

    def answers() -> bool:
        try:
            return bool(client(*request, 0, 0.01))
        except OSError:
            return False

    try:
        wait_for("bare Flask", answers)
        row("", "bare Flask, one line of JSON", _CLIENTS, request)
    finally:
        process.terminate()
        process.wait()


def row(sessions: str, name: str, clients: int, request: tuple[str, str, dict[str, str], str, str]) -> None:
    with multiprocessing.get_context("fork").Pool(clients) as pool:
        began = time.monotonic()
        each = pool.starmap(client, [(*request, number) for number in range(clients)])
        times = list(chain.from_iterable(each))
        rate = len(times) / (time.monotonic() - began)
    p99 = quantiles(times, n=100)[98]
    say(f"| {sessions} | {name} | {clients} | {median(times) * 1000:.1f} | {p99 * 1000:.1f} | {rate:.1f} |")


def client(
    certificate: str,
    url: str,
    headers: dict[str, str],
    method: str,
    path: str,
    number: int,
    seconds: float = _SECONDS,
) -> list[float]:
    """Sends requests one after the other for `seconds`; the seconds of each."""
    context = ssl.create_default_context(cafile=certificate)
    connection = HTTPSConnection("localhost", int(url.rpartition(":")[2]), context=context, timeout=60)
    times = []
    # Each client disconnects its own ids; after the last one it gets 404s.
    id = number * 10_000
    until = time.monotonic() + seconds
    while not times or time.monotonic() < until:
        began = time.monotonic()
        id += 1
        connection.request(method, "/api/v1" + path.replace("{id}", str(id)), headers=headers)
        answer = connection.getresponse()
        answer.read()
        if answer.status not in (200, 404):
            raise RuntimeError(f"{path}: {answer.status}")
        times.append(time.monotonic() - began)
    connection.close()
    return times


def resident(pid: int) -> int:
    """Memory of a process, in megabytes."""
    return memory(pid, "VmRSS")


def peak(pid: int) -> int:
    """Peak memory of a process, in megabytes."""
    return memory(pid, "VmHWM")


def memory(pid: int, field: str) -> int:
    """A field of proc(5)'s status, in megabytes."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    (line,) = (line for line in lines if line.startswith(f"{field}:"))
    return int(line.split()[1]) // 1024


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()

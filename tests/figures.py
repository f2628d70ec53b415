"""Measures the README's figures: `make figures`. Prints a table; takes about two minutes.

All of it in one run on one machine, so that the lines can be compared with each other. Load comes from
processes of its own, over TLS on kept-alive connections.
"""

import multiprocessing
import ssl
import sys
import tempfile
import time
from http.client import HTTPSConnection
from pathlib import Path
from statistics import median, quantiles

from tests.stack import Api, core_of, descendants, running_stack

_CLIENTS = 16
_SECONDS = 4.0


def main() -> None:
    """Prints the table in Markdown."""
    say("| sessions | | median ms | p99 ms | a second |")
    say("|---|---|---|---|---|")
    for sessions in (200, 10_000, 100_000, 200_000):
        with tempfile.TemporaryDirectory() as folder, running_stack(Path(folder), sessions) as (api, process):
            for name, path in (
                ("health", "/health"),
                ("one session", "/subscribers/7"),
                ("a page of 100", "/subscribers?limit=100"),
                ("a page of 100 by address", "/subscribers?limit=100&sort=ip_address"),
                ("one by username", "/subscribers?username=nobody"),
                ("disconnect, then 404", "/subscribers/{id}"),
            ):
                row(sessions, name, api, path, _CLIENTS)
            row(sessions, "the whole list, one client", api, "/subscribers", 1)
            row(sessions, "the whole list, 4 clients", api, "/subscribers", 4)
            workers = [resident(pid) for pid in descendants(process.pid) if pid != core_of(process)]
            say(
                f"| {sessions} | memory: core {resident(core_of(process))} MB, worker {max(workers)} MB | | | |"
            )


def row(sessions: int, name: str, api: Api, path: str, clients: int) -> None:
    times, seconds = load(api, path, clients)
    p99 = quantiles(times, n=100)[98] if len(times) > 1 else times[0]
    rate = len(times) / seconds
    say(f"| {sessions} | {name} | {median(times) * 1000:.1f} | {p99 * 1000:.1f} | {rate:.1f} |")


def load(api: Api, path: str, clients: int) -> tuple[list[float], float]:
    """The seconds of each request, and how long all of them took."""
    with multiprocessing.get_context("fork").Pool(clients) as pool:
        began = time.monotonic()
        jobs = [(api.environment, api.token("admin"), path, number) for number in range(clients)]
        times = pool.starmap(client, jobs)
        return [one for some in times for one in some], time.monotonic() - began


def client(environment: dict[str, str], token: str, path: str, number: int) -> list[float]:
    context = ssl.create_default_context(cafile=environment["GATEWAY_CA"])
    port = int(environment["GATEWAY_URL"].rpartition(":")[2])
    connection = HTTPSConnection("localhost", port, context=context, timeout=60)
    headers = {"Authorization": f"Bearer {token}"}
    times = []
    method = "DELETE" if "{id}" in path else "GET"
    until = time.monotonic() + _SECONDS
    # Each client has ids of its own to disconnect.
    id = number * 10_000
    while (began := time.monotonic()) < until:
        id += 1
        connection.request(method, "/api/v1" + path.replace("{id}", str(id)), headers=headers)
        answer = connection.getresponse()
        answer.read()
        if answer.status not in (200, 404):
            raise SystemExit(f"{path}: {answer.status}")
        times.append(time.monotonic() - began)
    return times


def resident(pid: int) -> int:
    """Megabytes of memory that a process holds: proc(5), VmRSS."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) // 1024
    return 0


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()

"""Clients that never pause, in a process of their own.

`python -m tests.torture.bursts PORT CERTIFICATE` reads a burst from each line of its input, as JSON, and
prints its result, as JSON.
"""

import json
import re
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

_STATUS = re.compile(rb"HTTP/1\.[01] ([0-9]{3})")


class Burst(NamedTuple):
    """For so many seconds, each client has so many requests under way, and sends the next one when it gets a
    status. With `one_each` it opens another connection then."""

    request: str
    clients: int
    seconds: float
    under_way: int = 1
    one_each: bool = False


class Bursts:
    """The process that sends them. `result` has the statuses and the seconds before each, by client."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process

    def begin(self, burst: Burst) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(burst) + "\n")
        self._process.stdin.flush()

    def result(self) -> list[list[tuple[str, float]]]:
        assert self._process.stdout is not None
        found: list[list[tuple[str, float]]] = json.loads(self._process.stdout.readline())
        return found


@contextmanager
def bursts(port: int, certificate: str) -> Iterator[Bursts]:
    """Run the process until the end of the block."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.torture.bursts", str(port), certificate],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
    )
    try:
        yield Bursts(process)
    finally:
        process.kill()
        process.communicate()


def _run(port: int, context: ssl.SSLContext, burst: Burst) -> list[tuple[str, float]]:
    """The responses to one client."""
    found: list[tuple[str, float]] = []
    request, since = burst.request.encode("latin-1"), time.perf_counter()
    until = since + burst.seconds
    while time.perf_counter() < until:
        plain = socket.create_connection(("127.0.0.1", port), timeout=60)
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with context.wrap_socket(plain) as connection:
            try:
                connection.sendall(request * burst.under_way)
                unread = b""
                while time.perf_counter() < until and (data := connection.recv(1 << 18)):
                    statuses = _STATUS.findall(unread + data)
                    # Less than a status.
                    unread = (unread + data)[-11:]
                    for status in statuses:
                        now = time.perf_counter()
                        found.append((status.decode(), now - since))
                        since = now
                    if statuses and burst.one_each:
                        break
                    connection.sendall(request * len(statuses))
            except OSError:
                # The server has closed the connection: the next request needs another one.
                continue
    return found


def main() -> None:
    port = int(sys.argv[1])
    context = ssl.create_default_context(cafile=sys.argv[2])
    context.check_hostname = False
    for line in sys.stdin:
        burst: Any = Burst(*json.loads(line))
        with ThreadPoolExecutor(burst.clients) as pool:
            clients = [pool.submit(_run, port, context, burst) for _ in range(burst.clients)]
        sys.stdout.write(json.dumps([client.result() for client in clients]) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()

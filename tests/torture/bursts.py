"""Bursts of requests from clients that never pause, in their own process.

`python -m tests.torture.bursts PORT CERTIFICATE NICE` reads a burst from each line of its input, as JSON, and
prints its result, as JSON. Without a certificate it uses no TLS.
"""

import json
import os
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_CHUNK = 1 << 18
#: A response without an end.
_STREAM = b"\r\ncontent-type: text/event-stream"


@dataclass(frozen=True)
class Burst:
    """`clients` send the request, which is Latin-1, again and again for so many seconds. Each has so many
    requests under way, and sends the next one when it gets a response. Of a response without an end it reads
    the header, and opens another connection."""

    request: str
    clients: int
    seconds: float
    under_way: int = 1


@dataclass
class Result:
    """Responses by status; by client, the seconds from one response, or the connection, to the next one."""

    statuses: dict[str, int] = field(default_factory=dict)
    seconds: list[list[float]] = field(default_factory=list)


class Bursts:
    """The process that sends them."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process

    def begin(self, burst: Burst) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(vars(burst)) + "\n")
        self._process.stdin.flush()

    def result(self) -> Result:
        assert self._process.stdout is not None
        return Result(**json.loads(self._process.stdout.readline()))


@contextmanager
def bursts(port: int, certificate: str = "", nice: int = 0) -> Iterator[Bursts]:
    """Runs the process until the end of the block. `nice` is what it leaves to others of the processors."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.torture.bursts", str(port), certificate, str(nice)],
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


class _Client:
    """One client, and what it has got."""

    def __init__(self, port: int, context: ssl.SSLContext | None, burst: Burst) -> None:
        self._port, self._context = port, context
        self._request = burst.request.encode("latin-1")
        self._under_way = burst.under_way
        self._socket: socket.socket | None = None
        self._data = b""
        self.statuses: Counter[str] = Counter()
        self.seconds: list[float] = []

    def run(self, until: float) -> None:
        while (began := time.perf_counter()) < until:
            try:
                self._converse(began)
            except OSError:
                # The server has closed the connection: the next request needs another one.
                self._close()
        self._close()

    def _converse(self, began: float) -> None:
        """Gets one response."""
        if self._socket is None:
            plain = socket.create_connection(("127.0.0.1", self._port), timeout=60)
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._socket = self._context.wrap_socket(plain) if self._context else plain
            self._socket.sendall(self._request * (self._under_way - 1))
        self._socket.sendall(self._request)
        header = self._up_to(b"\r\n\r\n").lower()
        self._read_body(header)
        self.statuses[header[9:12].decode("latin-1")] += 1
        self.seconds.append(time.perf_counter() - began)
        if b"\r\nconnection: close" in header or _STREAM in header:
            self._close()

    def _read_body(self, header: bytes) -> None:
        if _STREAM in header:
            return
        if b"\r\ntransfer-encoding: chunked" in header:
            self._up_to(b"0\r\n\r\n")
        elif b"\r\ncontent-length:" in header:
            length = int(header.partition(b"\r\ncontent-length:")[2].partition(b"\r\n")[0])
            while len(self._data) < length:
                self._read()
            self._data = self._data[length:]

    def _up_to(self, mark: bytes) -> bytes:
        while (end := self._data.find(mark)) < 0:
            self._read()
        end += len(mark)
        found, self._data = self._data[:end], self._data[end:]
        return found

    def _read(self) -> None:
        assert self._socket is not None
        more = self._socket.recv(_CHUNK)
        if not more:
            raise ConnectionResetError
        self._data += more

    def _close(self) -> None:
        if self._socket is not None:
            self._socket.close()
        self._socket, self._data = None, b""


def _run(port: int, context: ssl.SSLContext | None, burst: Burst) -> Result:
    clients = [_Client(port, context, burst) for _ in range(burst.clients)]
    until = time.perf_counter() + burst.seconds
    threads = [threading.Thread(target=client.run, args=(until,)) for client in clients]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    statuses: Counter[str] = Counter()
    for client in clients:
        statuses += client.statuses
    return Result(dict(statuses), [client.seconds for client in clients])


def main() -> None:
    port, certificate = int(sys.argv[1]), sys.argv[2]
    os.nice(int(sys.argv[3]))
    context = None
    if certificate:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.load_verify_locations(certificate)
    for line in sys.stdin:
        result: Any = _run(port, context, Burst(**json.loads(line)))
        sys.stdout.write(json.dumps(vars(result)) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()

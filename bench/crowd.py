"""Clients of an event stream, thousands in one process of its own, and when the last of them has an event."""

import multiprocessing
import select
import socket
import ssl
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path

#: Clients that connect at a time.
_AT_ONCE = 16
_TIMEOUT = 300.0
#: Addresses of this machine from which they come: one client may have 1,024 streams of a worker.
_ADDRESSES = 50


class Crowd:
    """The clients, seen from the process that measures. Times are monotonic, the same for both processes."""

    def __init__(self, pipe: "Connection[object, object]") -> None:
        self._pipe = pipe

    def expect(self, marker: bytes) -> None:
        """From now on, the clients wait for an event that contains it."""
        self._pipe.send(marker)
        self._pipe.recv()

    def heard(self) -> float:
        """The time at which the last client had it. Raises TimeoutError."""
        if not self._pipe.poll(_TIMEOUT):
            raise TimeoutError("some clients have not got the event")
        time = self._pipe.recv()
        assert isinstance(time, float)
        return time


@contextmanager
def crowd(
    port: int, path: str, headers: Mapping[str, str], clients: int, certificate: Path | None = None
) -> Iterator[Crowd]:
    """So many clients, connected. With a certificate they use TLS."""
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    request = f"GET {path} HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n{lines}\r\n".encode()
    here, there = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(
        target=_listen, args=(there, port, request, clients, certificate), daemon=True
    )
    process.start()
    try:
        if not here.poll(_TIMEOUT):
            raise TimeoutError(f"{clients} clients could not connect")
        here.recv()
        yield Crowd(here)
    finally:
        process.terminate()
        process.join()


def _listen(
    pipe: "Connection[object, object]", port: int, request: bytes, clients: int, certificate: Path | None
) -> None:
    context = ssl.create_default_context(cafile=certificate) if certificate else None
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        connect = partial(_connected, port, request, context)
        sockets = {one.fileno(): one for one in pool.map(connect, range(clients))}
    poll = select.epoll()
    for number in sockets:
        poll.register(number, select.EPOLLIN)
    pipe.send(None)
    while True:
        while not pipe.poll():
            # Heartbeats, and what else is not waited for.
            for _ in _read(sockets, poll, 0.05):
                pass
        marker = pipe.recv()
        assert isinstance(marker, bytes)
        waiting = dict.fromkeys(sockets, b"")
        # Before this, an event would be taken for a heartbeat.
        pipe.send(None)
        while waiting:
            for number, data in _read(sockets, poll, 1.0):
                if number in waiting:
                    waiting[number] += data
                    if marker in waiting[number]:
                        del waiting[number]
        pipe.send(time.monotonic())


def _connected(port: int, request: bytes, context: ssl.SSLContext | None, number: int) -> socket.socket:
    source = (f"127.0.0.{1 + number % _ADDRESSES}", 0)
    connection = socket.create_connection(("127.0.0.1", port), _TIMEOUT, source)
    if context:
        connection = context.wrap_socket(connection, server_hostname="localhost")
    connection.sendall(request)
    head = b""
    while b"\r\n\r\n" not in head:
        data = connection.recv(4096)
        assert data, head
        head += data
    assert head.startswith(b"HTTP/1.1 200 "), head
    connection.setblocking(False)
    return connection


def _read(
    sockets: Mapping[int, socket.socket], poll: select.epoll, seconds: float
) -> Iterator[tuple[int, bytes]]:
    for number, _ in poll.poll(seconds):
        try:
            data = sockets[number].recv(65536)
        except ssl.SSLWantReadError:
            continue
        assert data, "the server closed a stream"
        yield number, data

"""Receivers of webhooks: correct ones, and ones that hang, cut, trickle, flood or lie.

`python -m tests.support.receivers FILE` is a fast one in a process of its own: it prints its port and writes
the id of each message to FILE, one a line. With `--times` each line goes on with when it came and when it
happened, epoch seconds.
"""

import json
import socket
import ssl
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
#: The end of an "endless" response: a client that reads it all must not exhaust the machine.
_ENOUGH = 400 << 20


def answer(status: int, *headers: str, body: bytes = b"") -> bytes:
    lines = [f"HTTP/1.1 {status} Whatever", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join([*lines, "", ""]).encode() + body


@dataclass(frozen=True)
class Received:
    """A request. `at` is monotonic seconds, `connection` counts from 1."""

    at: float
    line: str
    headers: list[tuple[str, str]]
    body: bytes
    connection: int

    def header(self, name: str) -> str:
        (value,) = (value for key, value in self.headers if key.lower() == name)
        return value

    @property
    def id(self) -> str:
        return self.header("webhook-id")


class Receiver:
    """A server at a port of 127.0.0.1, by default a free one, until the end of the block. `reply` returns
    the bytes of a response; without bytes the connection closes."""

    def __init__(
        self,
        reply: "bytes | Callable[[Received], bytes]" = OK,
        tls: ssl.SSLContext | None = None,
        port: int = 0,
    ) -> None:
        self._reply = reply
        self._tls = tls
        self._listener = socket.create_server(("127.0.0.1", port), backlog=128)
        self._lock = threading.Lock()
        self._connections: set[socket.socket] = set()
        self._numbers = count(1)
        self._threads: list[threading.Thread] = []
        self._over = threading.Event()
        self.received: list[Received] = []
        #: The times at which each connection opened, and at which the other side closed it.
        self.opened: dict[int, float] = {}
        self.ended: dict[int, float] = {}
        self.port: int = self._listener.getsockname()[1]

    @property
    def url(self) -> str:
        return f"{'https' if self._tls else 'http'}://127.0.0.1:{self.port}/hook"

    @property
    def ids(self) -> list[str]:
        return [one.id for one in self.received]

    def __enter__(self) -> "Receiver":
        self._start(self._accept)
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        with self._lock:
            for connection in self._connections:
                try:
                    connection.shutdown(socket.SHUT_RDWR)
                except OSError:
                    continue
        for thread in self._threads:
            thread.join(10)

    def _start(self, target: Callable[..., None], *arguments: object) -> None:
        thread = threading.Thread(target=target, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while not self._over.is_set():
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            number = next(self._numbers)
            self.opened[number] = time.monotonic()
            with self._lock:
                self._connections.add(connection)
            self._start(self._serve, connection, number)

    def _serve(self, connection: socket.socket, number: int) -> None:
        plain = connection
        try:
            if self._tls is not None:
                connection = self._tls.wrap_socket(connection, server_side=True)
            self.converse(connection, number)
        except OSError:
            self.ended.setdefault(number, time.monotonic())
        finally:
            with self._lock:
                self._connections.discard(plain)
            connection.close()

    def converse(self, connection: socket.socket, number: int) -> None:
        """Handle one connection. Raises OSError at its end."""
        while (request := self.read(connection, number)) is not None:
            reply = self._reply if isinstance(self._reply, bytes) else self._reply(request)
            if not reply:
                return
            connection.sendall(reply)
        self.ended[number] = time.monotonic()

    def read(self, connection: socket.socket, number: int) -> Received | None:
        """Return the next request, or None at the end."""
        data = b""
        while b"\r\n\r\n" not in data:
            more = connection.recv(65536)
            if not more:
                return None
            data += more
        head, _, body = data.partition(b"\r\n\r\n")
        line, *fields = head.decode().split("\r\n")
        headers = [(key, value.strip()) for key, _, value in (field.partition(":") for field in fields)]
        length = next((int(value) for key, value in headers if key.lower() == "content-length"), 0)
        while len(body) < length:
            body += connection.recv(65536)
        request = Received(time.monotonic(), line, headers, body, number)
        self.received.append(request)
        return request

    def wait_for_end(self, connection: socket.socket, number: int) -> None:
        """Read until the other side closes the connection."""
        while connection.recv(65536):
            pass
        self.ended[number] = time.monotonic()

    def pause(self, seconds: float) -> None:
        """Wait for `seconds`. Raises OSError at the end of the block."""
        if self._over.wait(seconds):
            raise ConnectionAbortedError


class Rude(Receiver):
    """A receiver that reads a request, and then calls `behave` in place of a response."""

    def __init__(self, behave: "Behaviour", scheme: str = "http", reads: bool = True) -> None:
        super().__init__()
        self._behave = behave
        self._scheme = scheme
        self._reads = reads

    @property
    def url(self) -> str:
        return f"{self._scheme}://127.0.0.1:{self.port}/hook"

    def converse(self, connection: socket.socket, number: int) -> None:
        if self._reads and self.read(connection, number) is None:
            self.ended[number] = time.monotonic()
            return
        self._behave(self, connection, number)


Behaviour = Callable[[Rude, socket.socket, int], None]


def hang(receiver: Rude, connection: socket.socket, number: int) -> None:
    receiver.wait_for_end(connection, number)


def reset(_: Rude, connection: socket.socket, __: int) -> None:
    # With a linger time of 0, close() resets the connection: socket(7).
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def trickle(before: bytes, each: bytes = b"a", every: float = 1.0) -> Behaviour:
    """Return a behaviour that sends `each` again after each `every` seconds, without an end."""

    def behave(receiver: Rude, connection: socket.socket, number: int) -> None:
        connection.sendall(before)
        while True:
            receiver.pause(every)
            connection.sendall(each)

    return behave


def flood(before: bytes, each: bytes) -> Behaviour:
    """Return a behaviour that sends as fast as it can."""

    def behave(receiver: Rude, connection: socket.socket, number: int) -> None:
        connection.sendall(before)
        many = each * ((64 << 10) // len(each))
        for _ in range(_ENOUGH // len(many)):
            connection.sendall(many)
        receiver.wait_for_end(connection, number)

    return behave


def say(words: bytes) -> Behaviour:
    """Return a behaviour that sends these bytes and the end of its side, and reads on: unread bytes would
    reset the connection, which may overtake the bytes that were sent."""

    def behave(receiver: Rude, connection: socket.socket, number: int) -> None:
        connection.sendall(words)
        connection.shutdown(socket.SHUT_WR)
        receiver.wait_for_end(connection, number)

    return behave


class Fast:
    """A receiver in a process of its own, which accepts messages as fast as anybody sends them."""

    def __init__(self, log: Path, *arguments: str) -> None:
        self._log = log
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.receivers", str(log), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=Path(__file__).parents[2],
        )
        assert self._process.stdout is not None
        self.pid = self._process.pid
        self.port = int(self._process.stdout.readline())
        self.url = f"http://127.0.0.1:{self.port}/"

    def __enter__(self) -> "Fast":
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate(timeout=10)

    @property
    def number(self) -> int:
        """The number of messages received."""
        return self._log.read_bytes().count(b"\n")

    @property
    def lines(self) -> list[str]:
        """The lines of the log, without a half written one."""
        return self._log.read_text().splitlines()[: self.number]

    @property
    def ids(self) -> list[str]:
        """The ids of the messages received."""
        return [line.partition(" ")[0] for line in self.lines]


def _serve_fast(connection: socket.socket, log: Any, times: bool) -> None:
    with connection:
        data = b""
        while True:
            while b"\r\n\r\n" not in data:
                more = connection.recv(65536)
                if not more:
                    return
                data += more
            head, _, rest = data.partition(b"\r\n\r\n")
            fields = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:])
            length = int(fields[b"content-length"])
            while len(rest) < length:
                rest += connection.recv(65536)
            data = rest[length:]
            line = fields[b"webhook-id"]
            if times:
                line += b" %.3f %d" % (time.time(), json.loads(rest[:length])["data"]["at"])
            log.write(line + b"\n")
            connection.sendall(OK)


def main() -> None:
    """Serve until standard input ends."""
    listener = socket.create_server(("127.0.0.1", 0))
    times = "--times" in sys.argv
    with Path(sys.argv[1]).open("wb", buffering=0) as log:
        # A test that has read the port may read the log.
        sys.stdout.write(f"{listener.getsockname()[1]}\n")
        sys.stdout.flush()

        def accept() -> None:
            while True:
                connection, _ = listener.accept()
                threading.Thread(target=_serve_fast, args=(connection, log, times), daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        sys.stdin.read()


if __name__ == "__main__":
    main()

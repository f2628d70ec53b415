"""A client of the event stream that accepts only the bytes of the contract."""

import json
import os
import re
import socket
import ssl
import subprocess
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from http.client import HTTPException, HTTPSConnection
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from tests.support.stack import PATIENCE, Api, descendants, wait_for

PATH = "/api/v1/events/subscribers"
_BLOCK = re.compile(rb"id: ([0-9a-z]+)-([0-9]+)\nevent: ([a-z_]+)\ndata: (\{[^\r\n]*\})\n\n")
_HEARTBEAT = b":\n"
_ESTABLISHED = "01"


class Message(NamedTuple):
    """One event of the stream."""

    boot_id: str
    sequence: int
    name: str
    text: bytes

    @property
    def id(self) -> str:
        return f"{self.boot_id}-{self.sequence}"

    @property
    def data(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.text)
        return found


def messages_in(buffer: bytearray) -> list[Message]:
    """Remove the complete messages from the start of the buffer. Fails on any other bytes."""
    found, position = [], 0
    while True:
        while buffer.startswith(_HEARTBEAT, position):
            position += len(_HEARTBEAT)
        block = _BLOCK.match(buffer, position)
        if block is None:
            break
        boot_id, sequence, name, text = map(bytes, block.groups())
        found.append(Message(boot_id.decode(), int(sequence), name.decode(), text))
        position = block.end()
    del buffer[:position]
    assert b"\n\n" not in buffer, f"no event: {bytes(buffer[:500])!r}"
    return found


class Stream:
    """One request for events, until it is closed. `query` and `headers` are added to it."""

    def __init__(
        self,
        url: str,
        certificate: Path | str,
        token: str | None,
        query: str = "",
        headers: Mapping[str, str] | None = None,
        *,
        method: str = "GET",
        timeout: float = 20,
        receive_buffer: int | None = None,
    ) -> None:
        parts = urlsplit(url)
        self.server_port = int(parts.port or 443)
        context = ssl.create_default_context(cafile=str(certificate))
        self._connection = HTTPSConnection("localhost", self.server_port, context=context)
        self._buffer = bytearray()
        self._ready: deque[Message] = deque()
        wanted = dict(headers or {})
        if token is not None:
            wanted["Authorization"] = f"Bearer {token}"
        plain = socket.socket()
        try:
            if receive_buffer is not None:
                # Before it connects, because the handshake sets the window.
                plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
            plain.settimeout(timeout)
            plain.connect(("127.0.0.1", self.server_port))
            self.own_port: int = plain.getsockname()[1]
            self._connection.sock = self._socket = context.wrap_socket(plain, server_hostname=parts.hostname)
            self._connection.request(method, PATH + query, headers=wanted)
            self._response = self._connection.getresponse()
        except BaseException:
            plain.close()
            self._connection.close()
            raise
        self.status = self._response.status
        self.headers = self._response.headers

    def __enter__(self) -> "Stream":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._response.close()
        self._connection.close()

    def end(self) -> None:
        """End the stream for the thread that reads it."""
        with suppress(OSError), socket.socket(fileno=os.dup(self._socket.fileno())) as same:
            same.shutdown(socket.SHUT_RDWR)

    def read(self) -> bytes:
        """Return the next bytes; none at the regular end of the body. Raises OSError and HTTPException."""
        return self._response.read1(1 << 16)

    def read_all(self) -> bytes:
        """Return the body of a response that ends."""
        return self._response.read()

    def messages(self) -> Iterator[Message]:
        """Yield messages until the regular end of the body. The iteration can stop and continue."""
        while True:
            while self._ready:
                yield self._ready.popleft()
            piece = self.read()
            if not piece:
                assert not self._buffer, f"cut within an event: {bytes(self._buffer)!r}"
                return
            self._buffer += piece
            self._ready.extend(messages_in(self._buffer))

    def take(self, number: int) -> list[Message]:
        """Return the next messages."""
        found = list(islice(self.messages(), number))
        assert len(found) == number, f"the stream ended after {len(found)} of {number} events"
        return found

    def until(self, wanted: Callable[[Message], bool]) -> list[Message]:
        """Return the next messages, up to the wanted one."""
        found: list[Message] = []
        for message in self.messages():
            found.append(message)
            if wanted(message):
                return found
        raise AssertionError(f"the stream ended after {found}")


def listen(api: Api, query: str = "", role: str = "operator", **more: Any) -> Stream:
    """Open a stream of the stack's API."""
    token = more.pop("token", None) or api.token(role)
    stream = Stream(api.url, api.environment["GATEWAY_CA"], token, query, **more)
    if stream.status != 200:
        said = stream.read_all()
        stream.close()
        raise AssertionError((stream.status, said))
    return stream


def resume(api: Api, id: str, **more: Any) -> Stream:
    """Open a stream that resumes after an event, with the header of an event source."""
    return listen(api, headers={"Last-Event-ID": id}, **more)


class Collector:
    """A client that resumes with the last id after each end of its stream, and keeps all events."""

    def __init__(self, open_stream: Callable[[Mapping[str, str]], Stream]) -> None:
        self._open = open_stream
        self.messages: list[Message] = []
        #: The number of resumed streams.
        self.returns = 0
        self.failure: BaseException | None = None
        self._stream: Stream | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> "Collector":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        if self._stream is not None:
            self._stream.end()
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive()
        if self.failure is not None:
            raise self.failure

    def __len__(self) -> int:
        return len(self.messages)

    def has(self, sequence: int) -> bool:
        """Return True if the collector has received this event. Raises the error that ended it."""
        if self.failure is not None:
            raise self.failure
        return bool(self.messages) and self.messages[-1].sequence >= sequence

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                with suppress(OSError, HTTPException):
                    self._listen()
                self.returns += 1
                self._stop.wait(0.02)
        except BaseException as failure:  # noqa: BLE001 - raised where the test can see it
            self.failure = failure

    def _listen(self) -> None:
        headers = {"Last-Event-ID": self.messages[-1].id} if self.messages else {}
        with self._open(headers) as stream:
            self._stream = stream
            for message in () if self._stop.is_set() else stream.messages():
                self.messages.append(message)
                if self._stop.is_set():
                    return


def collector(api: Api, role: str = "operator") -> Collector:
    token = api.token(role)
    certificate = api.environment["GATEWAY_CA"]

    def open_stream(headers: Mapping[str, str]) -> Stream:
        stream = Stream(api.url, certificate, token, headers=headers)
        if stream.status != 200:
            stream.close()
            # While the core starts thousands of sessions a second on a busy machine, it may reply too late.
            refused = ConnectionRefusedError if stream.status == 500 else AssertionError
            raise refused(f"refused with {stream.status}")
        return stream

    return Collector(open_stream)


def assert_gapless(messages: list[Message]) -> None:
    """Assert that each event comes exactly once, in order, from one life of the core."""
    assert messages
    first = messages[0]
    assert {message.name for message in messages} <= {"session_up", "session_down"}
    assert {message.boot_id for message in messages} == {first.boot_id}
    sequences = [message.sequence for message in messages]
    assert sequences == list(range(first.sequence, first.sequence + len(messages)))


# The processes of a stack


def master_of(process: "subprocess.Popen[bytes]") -> int:
    """Return the process id of gunicorn's arbiter."""
    gunicorn = [
        pid for pid in descendants(process.pid) if b"gateway_api.serving.users" in _file(pid, "cmdline")
    ]
    (master,) = (pid for pid in gunicorn if _parent(pid) == process.pid)
    return master


def workers_of(process: "subprocess.Popen[bytes]") -> list[int]:
    """Return the process ids of gunicorn's workers that run."""
    return [pid for pid in descendants(master_of(process)) if _file(pid, "cmdline")]


def worker_of(stream: Stream, workers: list[int]) -> int:
    """Return the worker with the server's end of a stream."""
    inode = server_end(stream)[1]
    (worker,) = (pid for pid in workers if f"socket:[{inode}]" in open_files(pid))
    return worker


def is_cut(stream: Stream) -> bool:
    """Return True if the server has closed a stream whose client never reads."""
    return server_end(stream)[0] != _ESTABLISHED


def server_end(stream: Stream) -> tuple[str, str]:
    """Return the state and inode of the server's socket: proc_net_tcp in the kernel's documentation."""
    wanted = [f"0100007F:{port:04X}" for port in (stream.server_port, stream.own_port)]
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        if fields[1:3] == wanted:
            return fields[3], fields[9]
    return "", ""


def resident_megabytes(pid: int) -> float:
    return int(_file(pid, "statm").split()[1]) * 4096 / 1e6


def wait_for_workers(process: "subprocess.Popen[bytes]", number: int, gone: set[int]) -> list[int]:
    """Wait until there are `number` workers without those in `gone`, and return them."""

    def there() -> list[int]:
        found = [pid for pid in workers_of(process) if pid not in gone]
        return found if len(found) == number else []

    found: list[int] = wait_for(f"{number} workers", there, 20)
    return found


def _parent(pid: int) -> int:
    # State and parent follow the name, which may contain anything: proc(5).
    fields = _file(pid, "stat").rpartition(b")")[2].split()
    return int(fields[1]) if fields else 0


def _file(pid: int, name: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:
        # It has ended.
        return b""


def open_files(pid: int) -> set[str]:
    """Return the names of what a process has open."""
    found = set()
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(OSError):
            found.add(str(entry.readlink()))
    return found

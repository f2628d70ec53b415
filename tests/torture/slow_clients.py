"""Slow clients that hold connections, any number of them, in their own process.

`python -m tests.torture.slow_clients PORT COUNT TOKEN` opens COUNT of each kind, from addresses of
127.0.0.0/16. It prints `held` when they are all there, and when each has been closed a line of JSON: by kind,
the seconds from its first step, or from the answer's first, to its end.
"""

import asyncio
import json
import os
import select
import socket
import ssl
import sys
import time
from collections.abc import Callable, Coroutine
from typing import Any

_FROM_ONE_ADDRESS = 100
_AT_ONCE = 100
_TRICKLE = 1.0
#: TCP_CLOSE of tcp_states.h in the kernel: the connection was reset.
_CLOSED = 7


class Stray:
    """One client. The server cannot have waited for it before `began`."""

    def __init__(self, kind: str, number: int, port: int, token: str) -> None:
        self.kind = kind
        self.port = port
        self.token = token
        self.source = (
            f"127.0.{1 + number // _FROM_ONE_ADDRESS // 250}.{1 + number // _FROM_ONE_ADDRESS % 250}"
        )
        self.began = 0.0
        self.seconds: float | None = None

    async def connect(self, tls: bool, **more: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A connection from its own address."""
        self.began = time.monotonic()
        sock = socket.socket()
        for name, value in more.items():
            sock.setsockopt(socket.SOL_SOCKET, getattr(socket, name), value)
        sock.bind((self.source, 0))
        sock.setblocking(False)
        await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", self.port))
        context = None
        if tls:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return await asyncio.open_connection(
            sock=sock, ssl=context, server_hostname="" if tls else None, limit=4096
        )

    async def ends(self, reader: asyncio.StreamReader) -> None:
        """Waits for the end of the connection, and ignores data."""
        try:
            while await reader.read(65536):
                pass
        except OSError:
            pass
        self.seconds = time.monotonic() - self.began


Life = Callable[[Stray, Callable[[], None]], Coroutine[Any, Any, None]]


async def idle(stray: Stray, held: Callable[[], None]) -> None:
    """Connects, and sends nothing."""
    reader, _ = await stray.connect(tls=False)
    held()
    await stray.ends(reader)


async def slow_head(stray: Stray, held: Callable[[], None]) -> None:
    """Sends a header, one byte per second."""
    reader, writer = await stray.connect(tls=True)
    writer.write(b"GET /api/v1/health HTTP/1.1\r\nHost: a\r\nX-Slow: ")
    held()
    await _trickling(stray, reader, writer)


async def slow_body(stray: Stray, held: Callable[[], None]) -> None:
    """Sends the body of a login, one byte per second."""
    reader, writer = await stray.connect(tls=True)
    writer.write(b"POST /api/v1/auth/login HTTP/1.1\r\nHost: a\r\nContent-Length: 10000\r\n\r\n")
    held()
    await _trickling(stray, reader, writer)


async def slow_reader(stray: Stray, held: Callable[[], None]) -> None:
    """Requests all sessions, and reads nothing of the response."""
    _, writer = await stray.connect(tls=True, SO_RCVBUF=4096)
    writer.transport.pause_reading()  # type: ignore[attr-defined]
    head = f"GET /api/v1/subscribers HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {stray.token}\r\n\r\n"
    writer.write(head.encode())
    held()
    # asyncio closes its own descriptor as soon as it sees the reset.
    with socket.socket(fileno=os.dup(writer.get_extra_info("socket").fileno())) as sock:
        answered = select.poll()
        answered.register(sock, select.POLLIN)
        while not answered.poll(0):
            await asyncio.sleep(_TRICKLE)
        stray.began = time.monotonic()
        while sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] != _CLOSED:
            await asyncio.sleep(_TRICKLE)
        stray.seconds = time.monotonic() - stray.began
    writer.transport.abort()


async def _trickling(stray: Stray, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    async def trickle() -> None:
        while not writer.is_closing():
            writer.write(b"a")
            await asyncio.sleep(_TRICKLE)

    task = asyncio.create_task(trickle())
    await stray.ends(reader)
    task.cancel()


#: Those with the longest deadline come first, so that all are connected at the same time.
KINDS: dict[str, Life] = {
    "slow reader": slow_reader,
    "slow body": slow_body,
    "slow head": slow_head,
    "idle": idle,
}


async def hold(port: int, count: int, token: str) -> None:
    slots = asyncio.Semaphore(_AT_ONCE)
    slow: list[Stray] = []
    waiting = count * len(KINDS)
    all_held = asyncio.Event()

    async def live(stray: Stray, life: Life) -> None:
        await slots.acquire()
        taken = True

        def held() -> None:
            nonlocal waiting, taken
            taken = False
            slots.release()
            waiting -= 1
            if not waiting:
                all_held.set()

        try:
            await life(stray, held)
        except OSError as error:
            sys.stderr.write(f"{stray.kind}: {error!r}\n")
        finally:
            if taken:
                held()

    lives = []
    for kind, life in KINDS.items():
        for _ in range(count):
            slow.append(Stray(kind, len(slow), port, token))
            lives.append(asyncio.create_task(live(slow[-1], life)))
    await all_held.wait()
    sys.stdout.write("held\n")
    sys.stdout.flush()
    await asyncio.gather(*lives)
    found: dict[str, list[float | None]] = {kind: [] for kind in KINDS}
    for stray in slow:
        found[stray.kind].append(stray.seconds)
    sys.stdout.write(json.dumps(found) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(hold(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]))

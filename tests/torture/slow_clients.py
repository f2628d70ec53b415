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
from collections.abc import Awaitable, Callable

_FROM_ONE_ADDRESS = 100
_AT_ONCE = 100
_TRICKLE = 1.0
#: TCP_CLOSE of tcp_states.h in the kernel: the connection was reset.
_CLOSED = 7


class SlowClient:
    """One client. The server cannot have waited for it before `began`."""

    def __init__(self, number: int, port: int, token: str, held: Callable[[], None]) -> None:
        self.port, self.token, self.held = port, token, held
        network, host = divmod(number // _FROM_ONE_ADDRESS, 250)
        self.source = f"127.0.{1 + network}.{1 + host}"
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
        name = "" if tls else None
        return await asyncio.open_connection(sock=sock, ssl=context, server_hostname=name, limit=4096)

    async def trickle(self, head: bytes, tls: bool = True, each: bytes = b"a") -> None:
        """Sends a byte per second, until the end of the connection."""
        reader, writer = await self.connect(tls)
        writer.write(head)
        self.held()

        async def send() -> None:
            while not writer.is_closing():
                writer.write(each)
                await asyncio.sleep(_TRICKLE)

        task = asyncio.create_task(send())
        try:
            while await reader.read(65536):
                pass
        except OSError:
            pass
        self.seconds = time.monotonic() - self.began
        task.cancel()


async def idle(client: SlowClient) -> None:
    """Connects, and sends nothing."""
    await client.trickle(b"", tls=False, each=b"")


async def slow_head(client: SlowClient) -> None:
    """Sends a header, one byte per second."""
    await client.trickle(b"GET /api/v1/health HTTP/1.1\r\nHost: a\r\nX-Slow: ")


async def slow_body(client: SlowClient) -> None:
    """Sends the body of a login, one byte per second."""
    await client.trickle(b"POST /api/v1/auth/login HTTP/1.1\r\nHost: a\r\nContent-Length: 10000\r\n\r\n")


async def slow_reader(client: SlowClient) -> None:
    """Requests all sessions, and reads nothing of the response."""
    _, writer = await client.connect(tls=True, SO_RCVBUF=4096)
    writer.transport.pause_reading()  # type: ignore[attr-defined]
    head = f"GET /api/v1/subscribers HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {client.token}\r\n\r\n"
    writer.write(head.encode())
    client.held()
    # asyncio closes its own descriptor as soon as it sees the reset.
    with socket.socket(fileno=os.dup(writer.get_extra_info("socket").fileno())) as sock:
        answered = select.poll()
        answered.register(sock, select.POLLIN)
        while not answered.poll(0):
            await asyncio.sleep(_TRICKLE)
        client.began = time.monotonic()
        while sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] != _CLOSED:
            await asyncio.sleep(_TRICKLE)
        client.seconds = time.monotonic() - client.began
    writer.transport.abort()


#: Those with the longest deadline come first, so that all are connected at the same time.
KINDS: dict[str, Callable[[SlowClient], Awaitable[None]]] = {
    "slow reader": slow_reader,
    "slow body": slow_body,
    "slow head": slow_head,
    "idle": idle,
}


async def hold(port: int, count: int, token: str) -> None:
    slots = asyncio.Semaphore(_AT_ONCE)
    waiting = count * len(KINDS)
    all_held = asyncio.Event()

    def held() -> None:
        nonlocal waiting
        slots.release()
        waiting -= 1
        if not waiting:
            all_held.set()

    async def live(client: SlowClient, life: Callable[[SlowClient], Awaitable[None]]) -> None:
        await slots.acquire()
        await life(client)

    clients = {
        kind: [SlowClient(place * count + number, port, token, held) for number in range(count)]
        for place, kind in enumerate(KINDS)
    }
    async with asyncio.TaskGroup() as lives:
        for kind, life in KINDS.items():
            for client in clients[kind]:
                lives.create_task(live(client, life))
        await all_held.wait()
        sys.stdout.write("held\n")
        sys.stdout.flush()
    sys.stdout.write(json.dumps({kind: [one.seconds for one in clients[kind]] for kind in KINDS}) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(hold(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]))

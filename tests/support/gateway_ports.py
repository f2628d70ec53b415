"""Many gateways on one machine, in one process: `python -m tests.support.gateway_ports PORT COUNT FOLDER`.

COUNT ports forward connections to the gateway at PORT. Two further ports have faults: at `silent`, nobody
accepts a connection, which the kernel completes; `slow` has the certificate in FOLDER, and sends one byte of
its response each second. The first line of the output is a JSON object with the ports. The process serves
until a signal ends it.
"""

import asyncio
import json
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

HOST = "127.0.0.1"
_PIECE_BYTES = 1 << 16


class Ports(NamedTuple):
    """Ports of the gateways: healthy ones, and one for each fault."""

    forwarded: list[int]
    silent: int
    slow: int


@contextmanager
def many_gateways(port: int, count: int, folder: Path) -> Iterator[Ports]:
    """Run the process for the block, and yield its ports. `port` is the port of the gateway whose folder is
    `folder`."""
    command = [sys.executable, "-m", __spec__.name, str(port), str(count), str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            yield Ports(**json.loads(process.stdout.readline()))
        finally:
            process.kill()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(_PIECE_BYTES):
            writer.write(data)
            await writer.drain()
        writer.write_eof()


async def _send_slowly(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        for byte in b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n":
            writer.write(bytes([byte]))
            await writer.drain()
            await asyncio.sleep(1)


async def _serve(port: int, count: int, folder: Path) -> None:
    async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there_reader, there_writer = await asyncio.open_connection(HOST, port)
        await asyncio.gather(_copy(reader, there_writer), _copy(there_reader, writer))
        there_writer.close()
        writer.close()

    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(folder / "certificate.pem", folder / "key.pem")
    healthy = [await asyncio.start_server(forward, HOST, 0) for _ in range(count)]
    silent = socket.create_server((HOST, 0))
    slow = await asyncio.start_server(_send_slowly, HOST, 0, ssl=tls)
    sockets = [*(each.sockets[0] for each in healthy), silent, slow.sockets[0]]
    *forwarded, silent_port, slow_port = (each.getsockname()[1] for each in sockets)
    print(json.dumps(Ports(forwarded, silent_port, slow_port)._asdict()), flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    gateway_port, number, state = sys.argv[1:]
    asyncio.run(_serve(int(gateway_port), int(number), Path(state)))

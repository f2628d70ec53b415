"""`make figures`, its second part: many clients of the event stream at once, on two workers.

Memory is of the workers alone; the clients are another process on the same machine, over TLS as everybody.
"""

import asyncio
import json
import resource
import ssl
import statistics
import sys
import tempfile
import time
from pathlib import Path

from tests.support.stack import Api, descendants, running_stack

CLIENTS = (500, 2000, 5000)
EVENTS = 20
#: TLS handshakes at a time: a worker does one after the other.
AT_ONCE = 64


def main() -> None:
    """Prints a Markdown table."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    lines = ["| SSE clients | connected in | memory a client | an event reaches the last client in |"]
    lines.append("|---|---|---|---|")
    for clients in CLIENTS:
        with tempfile.TemporaryDirectory() as folder, running_stack(Path(folder), sessions=500) as running:
            api, process = running
            lines.append(asyncio.run(measured(api, process.pid, clients)))
    sys.stdout.write("\n".join(lines) + "\n")


async def measured(api: Api, stack: int, clients: int) -> str:
    """The line of one number of clients."""
    workers = workers_of(stack)
    before = memory_of(workers)
    crowd = Crowd(api)
    began = time.monotonic()
    slots = asyncio.Semaphore(AT_ONCE)
    tasks = [asyncio.create_task(crowd.listen(slots)) for _ in range(clients)]
    while crowd.connected < clients:
        await asyncio.sleep(0.05)
    connected = time.monotonic() - began
    each = (memory_of(workers) - before) / clients
    ids = [item["id"] for item in api.get("/subscribers")["sessions"]][:EVENTS]
    times = []
    for id in ids:
        began = time.monotonic()
        await asyncio.to_thread(api.send, "DELETE", f"/subscribers/{id}")
        while crowd.heard.get(id, 0) < clients:
            await asyncio.sleep(0.001)
        times.append(crowd.last[id] - began)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    median, worst = statistics.median(times) * 1000, max(times) * 1000
    return (
        f"| {clients:,} | {connected:.1f} s | {each / 1024:.0f} KB | {median:.0f} ms (at most {worst:.0f}) |"
    )


class Crowd:
    """Clients, the number of them that have the event of each session's end, and the time of the last one."""

    def __init__(self, api: Api) -> None:
        self._port = int(api.url.rpartition(":")[2])
        self._context = ssl.create_default_context(cafile=api.environment["GATEWAY_CA"])
        self._request = (
            f"GET /api/v1/events/subscribers?events=session_down HTTP/1.1\r\nHost: localhost\r\n"
            f"Authorization: Bearer {api.token('operator')}\r\n\r\n"
        ).encode()
        self.connected = 0
        self.heard: dict[int, int] = {}
        self.last: dict[int, float] = {}

    async def listen(self, slots: asyncio.Semaphore) -> None:
        async with slots:
            reader, writer = await asyncio.open_connection(
                "127.0.0.1", self._port, ssl=self._context, server_hostname="localhost"
            )
            writer.write(self._request)
            await reader.readuntil(b"\r\n\r\n")
            self.connected += 1
        try:
            while line := await reader.readline():
                if line.startswith(b"data: "):
                    id = json.loads(line[6:])["id"]
                    self.heard[id] = self.heard.get(id, 0) + 1
                    self.last[id] = time.monotonic()
        finally:
            writer.close()


def workers_of(stack: int) -> list[int]:
    """The processes that hold the streams: those of gunicorn that have no children."""
    commands = {pid: Path(f"/proc/{pid}/cmdline").read_bytes() for pid in descendants(stack)}
    gunicorn = [pid for pid, command in commands.items() if b"gunicorn" in command]
    return [pid for pid in gunicorn if not descendants(pid)]


def memory_of(processes: list[int]) -> int:
    """Resident bytes of all of them."""
    fields = [Path(f"/proc/{pid}/statm").read_text().split()[1] for pid in processes]
    return sum(map(int, fields)) * resource.getpagesize()


if __name__ == "__main__":
    main()

"""Simulated gateways, which know the truth about their events, and their relays.

A simulated gateway has the lab's subscribers and the core's journal. `Site` is the gateway with an API in
front, for a real `gateway-relay`. `Fleet` has many gateways and the code of their relays in one process.
"""

import asyncio
import json
import secrets
import ssl
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlsplit

import jwt
import msgspec
import nats

from gateway_api.events import encode_event, encode_gap
from gateway_client.gateway import Event
from gateway_contract.core.sessions import SessionEvent
from gateway_contract.events import EVENTS
from gateway_core.configuration.rules import load
from gateway_core.gateways.lab.population import Population
from gateway_core.gateways.lab.world import TemporaryRates, World
from gateway_core.sessions.journal import MAX_EVENTS, Journal
from gateway_relay.gateway import add_events
from gateway_relay.publisher import Publisher
from gateway_relay.spool import Spool
from tests.support.documents import valid_document

_SESSIONS_PER_PAGE = 500
_EVENTS_PER_STEP = 1000
_MONTH_SECONDS = 31 * 86400.0
#: Token that a client accepts. The stand-in for the API does not look at it.
_TOKEN = jwt.encode({"sub": "relay"}, "a secret of the stand-in, and long enough")


class Gap(NamedTuple):
    """Gap that a stream has reported: the id of the event after which it was opened, and the numbers of the
    oldest and the newest event of the boot."""

    after: str
    boot: str
    oldest: int
    newest: int


class Batch(NamedTuple):
    """Events of a stream, or a gap."""

    boot: str
    events: Sequence[SessionEvent]
    gap: Gap | None


class ModelGateway:
    """Simulated gateway. Its time begins at `now`, in epoch seconds, and passes only in `produce`. Sessions
    start at a rate of `arrivals` per second, and end at the same rate. Thread-safe."""

    def __init__(
        self, name: str, seed: int, sessions: int, arrivals: float, now: float, journal_size: int = MAX_EVENTS
    ) -> None:
        self.name = name
        self._seed = seed
        self._population = sessions, arrivals
        self._now = now
        self._journal_size = journal_size
        self._lock = threading.Lock()
        self.is_cut = False
        #: Number of events of each boot, in the order of the boots.
        self.newest: dict[str, int] = {}
        #: Highest event of each boot after which a stream was opened: the relay has all events up to it.
        self.received: dict[str, int] = {}
        self.gaps: list[Gap] = []
        #: Times of `produce`, with the number of the newest event after it: (boot, number, monotonic time).
        self.times: list[tuple[str, int, float]] = []
        self.boot()

    def boot(self) -> None:
        """Start the core, again: its journal is empty, and its sessions are other ones."""
        with self._lock:
            sessions, arrivals = self._population
            self._seed += 1000
            # A month later: no session has the id and the start of a former one.
            self._now += _MONTH_SECONDS
            self.boot_id = secrets.token_hex(8)
            self.journal = Journal(self.boot_id, self._journal_size)
            self._world = World(
                load(valid_document()),
                Population(sessions, arrivals, self._seed),
                self.journal,
                self._now,
                TemporaryRates(None),
            )
            self.newest[self.boot_id] = 0

    def produce(self, seconds: float, rate_changes: int = 0) -> None:
        """Let time pass, with the events of this time. `rate_changes` sessions get other rates."""
        with self._lock:
            at = time.monotonic()
            self._now += seconds
            while self._world.advance(self._now, _EVENTS_PER_STEP):
                pass
            for session in list(self._world.sessions.all())[:rate_changes]:
                down = session.summary.rate_down + 1_000_000
                changed = self._world.set_rate(session, down, session.summary.rate_up, None, self._now)
                self.journal.add_rate_change(changed.summary, self._now, None, None)
            newest = self._read_newest()
            if newest != self.newest[self.boot_id]:
                self.newest[self.boot_id] = newest
                self.times.append((self.boot_id, newest, at))

    def _read_newest(self) -> int:
        reply = next(self.journal.follow(None, None))
        assert reply is not None
        return reply.newest

    def follow(self, last_id: str | None) -> Iterator[Batch | None]:
        """Yield what an event stream after the event `last_id`, or from now on, contains, and None for each
        second without events. Ends when the core is killed or cut off."""
        boot, number = None, None
        if last_id is not None:
            boot, _, text = last_id.rpartition("-")
            number = int(text)
        with self._lock:
            journal = self.journal
            if boot in self.newest and number is not None:
                self.received[boot] = max(self.received.get(boot, 0), number)
        for reply in journal.follow(boot, number):
            if self.is_cut or journal is not self.journal:
                return
            if reply is None:
                yield None
                continue
            gap = None
            if reply.gap:
                gap = Gap(str(last_id), reply.boot_id, reply.oldest, reply.newest)
                self.gaps.append(gap)
            events = [msgspec.json.decode(each, type=SessionEvent) for each in reply.events]
            yield Batch(reply.boot_id, events, gap)

    def list_sessions(self, after: int, limit: int) -> list[Any]:
        """Return the sessions with the lowest ids after the id `after`, at most `limit`."""
        with self._lock:
            sessions = sorted(self._world.sessions.all(), key=lambda each: each.id)
        return [msgspec.to_builtins(each.summary) for each in sessions if each.id > after][:limit]

    def list_open_sessions(self) -> dict[int, tuple[str, str | None]]:
        """Return the user name and the address of each session, by the id of the session."""
        with self._lock:
            return {
                each.id: (each.summary.username, each.summary.ip_address)
                for each in self._world.sessions.all()
            }


def to_events(batch: Batch) -> Iterator[Event]:
    """Yield the events of a batch as a client of the API receives them."""
    if batch.gap is not None:
        oldest, newest = (f"{batch.boot}-{number}" for number in (batch.gap.oldest, batch.gap.newest))
        yield Event(newest, "gap", {"oldest": oldest, "newest": newest})
    for event in batch.events:
        kind = EVENTS[event.event]
        # The relay encodes the data as JSON: a record is encoded like the object of the API.
        data: Any = kind.stream_data.of(event)
        yield Event(f"{batch.boot}-{event.sequence}", kind.stream_name, data)


class Site:
    """Gateway with an API, as far as a relay uses it. `folder` has certificate.pem and key.pem."""

    def __init__(self, gateway: ModelGateway, folder: Path, port: int) -> None:
        self.gateway = gateway
        self.url = f"https://localhost:{port}"
        self.ca = folder / "certificate.pem"
        self.is_cut = False
        self._commits = [{"committed_at": 1, "author": "admin", "comment": "first"}]
        self._server = ThreadingHTTPServer(("127.0.0.1", port), self._make_handler())
        self._server.daemon_threads = True
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(self.ca, folder / "key.pem")
        self._server.socket = context.wrap_socket(
            self._server.socket, server_side=True, do_handshake_on_connect=False
        )
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def cut(self) -> None:
        """Close the event stream, and refuse requests."""
        self.is_cut = self.gateway.is_cut = True

    def restore(self) -> None:
        self.is_cut = self.gateway.is_cut = False

    def close(self) -> None:
        self.cut()
        self._server.shutdown()
        self._server.server_close()

    def _answer(self, path: str, query: dict[str, list[str]]) -> Any:
        match path:
            case "/auth/token":
                return {"user": {"username": "relay", "role": "operator"}}
            case "/subscribers":
                limit, after = int(query["limit"][0]), int(query.get("cursor", ["0"])[0])
                sessions = self.gateway.list_sessions(after, limit)
                cursor = str(sessions[-1]["id"]) if len(sessions) == limit else None
                return {"sessions": sessions, "next_cursor": cursor}
            case "/system/config/archive":
                return {"running": self._commits[-1], "revisions": self._commits[-2::-1]}
            case "/system/health/detail":
                return {"state": "healthy", "dependencies": []}
            case "/system/faults":
                return {"faults": []}
            case _:
                return {}

    def _make_handler(self) -> type[BaseHTTPRequestHandler]:
        site = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            timeout = 60

            def do_POST(self) -> None:
                self.rfile.read(int(self.headers["Content-Length"]))
                self._respond({"access_token": _TOKEN})

            def do_GET(self) -> None:
                parts = urlsplit(self.path)
                path = parts.path.removeprefix("/api/v1")
                if site.is_cut:
                    self.close_connection = True
                elif path == "/events/subscribers":
                    with suppress(OSError):
                        self._stream(self.headers["Last-Event-ID"])
                else:
                    self._respond({"status": "ok", "data": site._answer(path, parse_qs(parts.query))})

            def _respond(self, document: Any) -> None:
                body = json.dumps(document).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def _stream(self, last_id: str) -> None:
                self.close_connection = True
                self.send_response(200)
                self.send_header("Content-Type", "text/event-stream")
                self.send_header("Transfer-Encoding", "chunked")
                self.end_headers()
                for batch in site.gateway.follow(last_id):
                    data = b":\n"
                    if batch is not None:
                        gap = batch.gap
                        data = b"".join(
                            [
                                *([encode_gap(gap.boot, gap.oldest, gap.newest)] if gap else []),
                                *(encode_event(batch.boot, each) for each in batch.events),
                            ]
                        )
                    if data:
                        self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))

            def log_message(self, format: str, *values: Any) -> None:
                pass

        return Handler


class Fleet:
    """Gateways with the code of their relays, in this process. Each relay has its own connection to NATS, and
    its own spool in `folder`."""

    def __init__(self, gateways: Sequence[ModelGateway], folder: Path, servers: Sequence[str]) -> None:
        self.gateways = gateways
        self._folder = folder
        self._servers = list(servers)

    def run(self, produce: Callable[[], None]) -> None:
        """Call `produce` in a thread, and relay what the gateways have until it returns."""
        asyncio.run(self._run(produce))

    async def _run(self, produce: Callable[[], None]) -> None:
        publishing = [asyncio.create_task(await self._start(gateway)) for gateway in self.gateways]
        producing = asyncio.create_task(asyncio.to_thread(produce))
        await asyncio.wait([producing, *publishing], return_when=asyncio.FIRST_COMPLETED)
        for gateway in self.gateways:
            gateway.is_cut = True
        for task in publishing:
            task.cancel()
        await producing

    async def _start(self, gateway: ModelGateway) -> Any:
        spool = Spool(self._folder / f"{gateway.name}.sqlite", 256 << 20)
        connection = await nats.connect(
            self._servers, inbox_prefix=f"_INBOX.{gateway.name}", max_reconnect_attempts=-1
        )

        async def list_sessions() -> AsyncIterator[Sequence[Any]]:
            page = await asyncio.to_thread(gateway.list_sessions, 0, 1 << 20)
            for first in range(0, max(1, len(page)), _SESSIONS_PER_PAGE):
                yield page[first : first + _SESSIONS_PER_PAGE]

        def follow() -> None:
            while not gateway.is_cut:
                events = (
                    event
                    for batch in gateway.follow(spool.read_position("events") or "none-0")
                    if batch is not None
                    for event in to_events(batch)
                )
                for _ in add_events(spool, events):
                    pass

        threading.Thread(target=follow, daemon=True).start()
        return Publisher(spool, connection, gateway.name, list_sessions).run()

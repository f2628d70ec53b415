"""The gateway of the relay, as the API shows it: session events from the event stream, other records by
polling. Everything is added to the spool.

The relay calls the API and not the core: audit records exist only there, and a user of the API can be limited
to reading, which the core's socket cannot.
"""

import asyncio
import logging
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from gateway_client.contexts import Context
from gateway_client.errors import LoginRequired
from gateway_client.gateway import Event, RemoteGateway, read_events, request_token
from gateway_contract.base.retry import repeat
from gateway_contract.events import EVENTS as EVENT_KINDS
from gateway_relay.messages import Reason, make_event
from gateway_relay.records import RecordPoller
from gateway_relay.spool import EVENTS, Spool

#: Id of an event that no core has: the stream then begins with a gap, which has the id of the newest event.
_NO_EVENT = "none-0"
_QUERY = {"events": ",".join(kind.stream_name for kind in EVENT_KINDS.values())}
_POLL_SECONDS = 2.0
_PROGRAM = "gateway-relay"
#: Seconds until the next attempt after the gateway has refused the user. Each attempt is a record in the
#: audit log of the gateway.
_REFUSED_SECONDS = 60
_SESSIONS_PER_PAGE = 500

_log = logging.getLogger("gateway_relay")


class Credentials(msgspec.Struct, frozen=True):
    """User of the API with which the relay logs in. The password is the first line of the file, which is read
    at each login."""

    username: str
    password_file: Path

    def renew(self, gateway: RemoteGateway) -> str:
        """Log in, and return the new token. Raises ClientError if the login fails, and OSError if the
        password cannot be read."""
        password = self.password_file.read_text(errors="replace").split("\n", 1)[0].rstrip("\r")
        return request_token(RemoteGateway(gateway.context, program=_PROGRAM), self.username, password)


class Gateway:
    """Gateway whose messages the relay publishes. `clock` returns epoch seconds."""

    def __init__(
        self, context: Context, credentials: Credentials, spool: Spool, clock: Callable[[], float] = time.time
    ) -> None:
        # Two threads must not use a client at the same time.
        self._event_client, self._poll_client, self._list_client = (
            RemoteGateway(context, credentials.renew, program=_PROGRAM) for _ in range(3)
        )
        self._spool = spool
        self._poller = RecordPoller(self._poll_client, spool, clock)

    def start(self) -> None:
        """Start the threads that read from the gateway until the process ends."""
        tasks = {
            "follow the gateway's events": self._read_stream,
            "read the gateway's commits, faults, health and audit records": self._poll,
        }
        for task, read in tasks.items():
            threading.Thread(target=_repeat, args=(read, task), daemon=True).start()

    async def list_sessions(self) -> AsyncIterator[Sequence[Any]]:
        """Yield all sessions, page by page. Raises ClientError if the gateway does not respond, and OSError
        if the password cannot be read."""
        cursor = None
        while True:
            query = {"limit": _SESSIONS_PER_PAGE, "cursor": cursor}
            try:
                page = await asyncio.to_thread(self._list_client.get, "/subscribers", **query)
            except LoginRequired:
                await asyncio.sleep(_REFUSED_SECONDS)
                raise
            yield page["sessions"]
            cursor = page["next_cursor"]
            if cursor is None:
                return

    def _read_stream(self) -> Iterator[None]:
        """Add events to the spool. Ends when the stream must be opened again: the connection was lost, or
        events after another one are needed."""
        known = self._spool.read_position(EVENTS)
        return add_events(self._spool, read_events(self._event_client, _QUERY, known or _NO_EVENT))

    def _poll(self) -> Iterator[None]:
        while True:
            self._poller.poll()
            yield
            time.sleep(_POLL_SECONDS)


def add_events(spool: Spool, events: Iterable[Event | None]) -> Iterator[None]:
    """Add the events of a stream to the spool, and yield after each one. The stream begins after the spool's
    last event; None is a heartbeat. Ends when the stream must be opened again after another event."""
    known = spool.read_position(EVENTS)
    for event in events:
        if event is None:
            continue
        if event.name != "gap":
            spool.add_event(make_event(event.id, event.name, event.data))
        elif known is None:
            spool.add_snapshot(Reason.FIRST_CONTACT, event.id)
        else:
            # The oldest event that the core still has, and not the newest: the fewer are lost.
            boot, _, oldest = str(event.data["oldest"]).rpartition("-")
            spool.add_snapshot(Reason.GAP, f"{boot}-{int(oldest) - 1}")
            return
        known = event.id
        yield


def _repeat(read: Callable[[], Iterator[None]], task: str) -> None:
    """Read without end, and log failures as "cannot" and the text `task`."""

    def wait_after_refusal() -> Iterator[None]:
        try:
            yield from read()
        except LoginRequired as error:
            _log.error("cannot %s, trying again in %d s: %s", task, _REFUSED_SECONDS, error)
            time.sleep(_REFUSED_SECONDS)

    # Nobody would notice the end of the thread.
    fault = f"cannot {task}, trying again, because of an unexpected error"
    for _ in repeat(wait_after_refusal, time.sleep, task, _log, fault=fault):
        pass

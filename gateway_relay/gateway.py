"""The gateway of the relay, as the API shows it: session events from the event stream, other records by
polling. Everything is added to the spool.

The relay calls the API and not the core: audit records exist only there, and a user of the API can be limited
to reading, which the core's socket cannot.
"""

import asyncio
import logging
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from gateway_client.contexts import Context
from gateway_client.errors import LoginRequired
from gateway_client.gateway import EventFollower, RemoteGateway, request_token
from gateway_contract.base.retry import repeat
from gateway_contract.events import EVENTS as EVENT_KINDS
from gateway_relay.messages import Reason, make_event
from gateway_relay.records import RecordPoller
from gateway_relay.spool import EVENTS, Spool

#: Id of an event that no core has: the stream then begins with a gap, which has the id of the newest event.
_NO_EVENT = "none-0"
_QUERY = {"events": ",".join(kind.stream_name for kind in EVENT_KINDS.values())}
_MAX_PAUSE_SECONDS = 2
_POLL_SECONDS = 2.0
#: Seconds until the next attempt after the gateway has refused the user.
_REFUSED_SECONDS = 60
_SESSIONS_PER_PAGE = 500

_log = logging.getLogger("gateway_relay")


class Credentials(msgspec.Struct, frozen=True):
    """User of the API with which the relay logs in. The password is read from the file at each login."""

    username: str
    password_file: Path

    def renew(self, gateway: RemoteGateway) -> str:
        """Log in, and return the new token. Raises ClientError if the login fails, and OSError if the
        password cannot be read."""
        password = self.password_file.read_text().removesuffix("\n")
        return request_token(RemoteGateway(gateway.context), self.username, password)


class Gateway:
    """Gateway whose messages the relay publishes. `clock` returns epoch seconds."""

    def __init__(
        self, context: Context, credentials: Credentials, spool: Spool, clock: Callable[[], float] = time.time
    ) -> None:
        self._context = context
        self._credentials = credentials
        self._spool = spool
        self._clock = clock

    def start(self) -> None:
        """Start the threads that read from the gateway until the process ends."""
        for run in (self._follow_events, self._poll_records):
            threading.Thread(target=run, daemon=True).start()

    async def list_sessions(self) -> AsyncIterator[Sequence[Any]]:
        """Yield all sessions, page by page. Raises ClientError if the gateway does not respond."""
        gateway, cursor = self._connect(), None
        while True:
            query = {"limit": _SESSIONS_PER_PAGE, "cursor": cursor}
            page = await asyncio.to_thread(gateway.get, "/subscribers", **query)
            yield page["sessions"]
            cursor = page["next_cursor"]
            if cursor is None:
                return

    def _connect(self) -> RemoteGateway:
        return RemoteGateway(self._context, self._credentials.renew)

    def _follow_events(self) -> None:
        self._repeat(self._read_stream, "follow the gateway's events")

    def _poll_records(self) -> None:
        poller = RecordPoller(self._connect(), self._spool, self._clock)

        def poll() -> Iterator[None]:
            while True:
                poller.poll()
                yield
                time.sleep(_POLL_SECONDS)

        self._repeat(poll, "read the gateway's commits, faults, health and audit records")

    def _repeat(self, make: Callable[[], Iterator[None]], task: str) -> None:
        def wait_after_refusal() -> Iterator[None]:
            try:
                yield from make()
            except LoginRequired as error:
                # Each attempt is a record in the audit log of the gateway.
                _log.error("cannot %s, trying again in %d s: %s", task, _REFUSED_SECONDS, error)
                time.sleep(_REFUSED_SECONDS)

        for _ in repeat(wait_after_refusal, time.sleep, task, _log):
            pass

    def _read_stream(self) -> Iterator[None]:
        """Add events to the spool. Ends when the stream must be opened again after another event."""
        known = self._spool.read_position(EVENTS)
        follower = EventFollower(self._connect(), _QUERY, known or _NO_EVENT, _log.info, _MAX_PAUSE_SECONDS)
        for event in follower.follow():
            if event.name != "gap":
                if not self._spool.add_events([make_event(event.id, event.name, event.data)]):
                    _log.error("the spool is full: dropped all events in it, a snapshot will follow")
            elif known is None:
                self._spool.add_snapshot(Reason.FIRST_CONTACT, event.id)
            else:
                # The oldest event that the core still has, and not the newest: the fewer are lost.
                boot, _, oldest = str(event.data["oldest"]).rpartition("-")
                self._spool.add_snapshot(Reason.GAP, f"{boot}-{int(oldest) - 1}")
                return
            known = event.id
            yield

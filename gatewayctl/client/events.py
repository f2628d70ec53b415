"""Event streams of a gateway that resume after a lost connection, and failed sign-ons."""

import json
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from gatewayctl.client.gateway import Record, RemoteGateway
from gatewayctl.errors import NoResponse

_PATH = "/events/subscribers"
#: A stream is lost after so many seconds without a line: heartbeats come every 15 s.
_SILENCE_SECONDS = 45.0
_MAX_PAUSE_SECONDS = 30
#: The history has a failed sign-on within a second or two.
_POLL_SECONDS = 3.0

#: Name of the event of a failed sign-on.
SIGN_ON_FAILED = "sign_on_failed"

#: Function that tells the user about a lost connection.
Notify = Callable[[str], None]


@dataclass(frozen=True)
class Event:
    """Event of a stream. A stream can be resumed after the event's `id`."""

    id: str
    name: str
    data: Record


def parse_events(stream: Iterable[bytes]) -> Iterator[Event | None]:
    """Yield the events of a stream of lines, and None for each heartbeat. An incomplete event at the end is
    dropped, because the stream is resumed after the event before it."""
    fields: dict[str, Any] = {}
    for raw in stream:
        text = raw.decode(errors="replace")
        if text.startswith(":"):
            yield None
        elif text:
            name, _, value = text.partition(":")
            fields[name] = value.removeprefix(" ")
        elif "data" in fields:
            yield Event(fields.get("id", ""), fields.get("event", "message"), json.loads(fields["data"]))
            fields = {}


class EventFollower:
    """Endless event stream of one gateway. `last` is the id of the last event."""

    def __init__(self, gateway: RemoteGateway, query: Record, last: str | None, notify: Notify) -> None:
        self._gateway = gateway
        self._query = query
        self.last = last
        self._notify = notify
        self._pause_seconds = 1

    def follow(self) -> Iterator[Event]:
        """Yield the events, and resume after a lost connection. Raises ClientError if the gateway refuses the
        request, or does not respond to the first one."""
        self._gateway.get("/subscribers/summary")
        while True:
            try:
                yield from self._stream()
                after = f"after {self.last}" if self.last else "with the next event: some events may be lost"
                self._notify(f"the stream has ended; resuming {after}")
            except NoResponse as error:
                self._notify(f"{error.lines[0]}; trying again in {self._pause_seconds} s")
            time.sleep(self._pause_seconds)
            self._pause_seconds = min(2 * self._pause_seconds, _MAX_PAUSE_SECONDS)

    def _stream(self) -> Iterator[Event]:
        headers = {"Last-Event-ID": self.last} if self.last else {}
        with self._gateway.stream(_PATH, self._query, headers, _SILENCE_SECONDS) as stream:
            for event in parse_events(stream):
                self._pause_seconds = 1
                if event is not None:
                    self.last = event.id
                    yield event


class SignOnFollower:
    """Endless stream of the failed sign-ons of one gateway, which polls the history."""

    def __init__(self, gateway: RemoteGateway, query: Record, notify: Notify) -> None:
        self._gateway = gateway
        self._query = query
        self._notify = notify
        #: Attempts of each record to which more attempts may be added.
        self._attempts: dict[tuple[Any, ...], int] = {}
        self._since: int | None = None

    def follow(self) -> Iterator[Event]:
        """Yield the sign-ons that fail from now on. Raises ClientError if the gateway refuses the request."""
        self._poll()
        while True:
            time.sleep(_POLL_SECONDS)
            try:
                records = self._poll()
            except NoResponse as error:
                self._notify(f"{error.lines[0]}; failed sign-ons are asked for again")
                continue
            for record in records:
                yield Event("", SIGN_ON_FAILED, {**record, "at": record["last_at"]})

    def _poll(self) -> list[Record]:
        """Return the records with another attempt since the last poll, the oldest first."""
        query = {**self._query, "since": self._since}
        records = self._gateway.list_records("/subscribers/failed-sign-ons", "failures", query)
        before = self._attempts
        self._attempts = {_get_key(each): each["attempts"] for each in records}
        changed = [each for each in records if before.get(_get_key(each)) != each["attempts"]]
        self._since = max((each["last_at"] for each in records), default=self._since)
        return sorted(changed, key=lambda each: int(each["last_at"]))


def _get_key(record: Record) -> tuple[Any, ...]:
    names = ("username", "mac_address", "access_interface", "reason", "first_at")
    return tuple(record[name] for name in names)

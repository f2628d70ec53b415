"""The events of a gateway, from streams (HTML Living Standard, section 9.2) that resume after each end;
and failed sign-ons."""

import json
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from gatewayctl.client.errors import NoResponse
from gatewayctl.client.gateway import Record, RemoteGateway

_PATH = "/events/subscribers"
#: Seconds without a line: heartbeats come every 15 s.
_SILENCE = 45.0
_LONGEST_PAUSE = 30
#: The history has a failed sign-on within a second or two.
_POLL_SECONDS = 3.0

#: The name of the event that a failed sign-on is here.
SIGN_ON_FAILED = "sign_on_failed"

#: Tells the user that the stream was lost.
Say = Callable[[str], None]


@dataclass(frozen=True)
class Event:
    """`id` is for the resumption after this event."""

    id: str
    name: str
    data: Record


def events(stream: Iterable[bytes]) -> Iterator[Event | None]:
    """The events of a stream of lines, and None for each heartbeat. An incomplete event at its end is none:
    the stream is resumed after the event before it."""
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
    """Follows one gateway for ever. `last` is the id of the last event."""

    def __init__(self, gateway: RemoteGateway, query: Record, last: str | None, say: Say) -> None:
        self._gateway = gateway
        self._query = query
        self.last = last
        self._say = say
        self._pause = 1

    def follow(self) -> Iterator[Event]:
        """Resume after a lost connection. Raises ClientError if the gateway refuses the request, or does not
        respond to the first one."""
        self._gateway.get("/subscribers/summary")
        while True:
            try:
                yield from self._stream()
                after = f"after {self.last}" if self.last else "with the next event: some events may be lost"
                self._say(f"the stream has ended; resuming {after}")
            except NoResponse as failure:
                self._say(f"{failure.lines[0]}; trying again in {self._pause} s")
            time.sleep(self._pause)
            self._pause = min(2 * self._pause, _LONGEST_PAUSE)

    def _stream(self) -> Iterator[Event]:
        headers = {"Last-Event-ID": self.last} if self.last else {}
        with self._gateway.stream(_PATH, self._query, headers, _SILENCE) as stream:
            for event in events(stream):
                self._pause = 1
                if event is not None:
                    self.last = event.id
                    yield event


class SignOnFollower:
    """Follows the sign-ons of one gateway that fail, for ever: it asks the history again and again."""

    def __init__(self, gateway: RemoteGateway, query: Record, say: Say) -> None:
        self._gateway = gateway
        self._query = query
        self._say = say
        #: The attempts of each record that may get more.
        self._known: dict[tuple[Any, ...], int] = {}
        self._since: int | None = None

    def follow(self) -> Iterator[Event]:
        """Begin with those that fail from now on. Raises ClientError if the gateway refuses the request."""
        self._changed()
        while True:
            time.sleep(_POLL_SECONDS)
            try:
                changed = self._changed()
            except NoResponse as failure:
                self._say(f"{failure.lines[0]}; failed sign-ons are asked for again")
                continue
            for record in changed:
                yield Event("", SIGN_ON_FAILED, {**record, "at": record["last_at"]})

    def _changed(self) -> list[Record]:
        """Return the records with another attempt, the oldest first."""
        query = {**self._query, "since": self._since}
        found = self._gateway.pages("/subscribers/failed-sign-ons", "failures", query)
        known = self._known
        self._known = {_key(each): each["attempts"] for each in found}
        changed = [each for each in found if known.get(_key(each)) != each["attempts"]]
        self._since = max((each["last_at"] for each in found), default=self._since)
        return sorted(changed, key=lambda each: int(each["last_at"]))


def _key(record: Record) -> tuple[Any, ...]:
    names = ("username", "mac_address", "access_interface", "reason", "first_at")
    return tuple(record[name] for name in names)

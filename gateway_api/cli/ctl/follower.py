"""Follows the events of a gateway, and resumes after each end of the stream; and its failed sign-ons."""

import time
from collections.abc import Callable, Iterator
from typing import Any

from gateway_api.cli.ctl.failures import CommandFailure, ExitStatus
from gateway_api.cli.ctl.gateway import Record, RemoteGateway
from gateway_api.cli.ctl.sse import Event, events

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


class EventFollower:
    """Follows one gateway for ever. `last` is the id of the last event."""

    def __init__(self, gateway: RemoteGateway, query: Record, last: str | None, say: Say) -> None:
        self._gateway = gateway
        self._query = query
        self.last = last
        self._say = say
        self._pause = 1

    def follow(self) -> Iterator[Event]:
        """Resumes after a lost connection. Raises CommandFailure if the gateway refuses the request, or does
        not respond to the first one."""
        self._gateway.get("/subscribers/summary")
        while True:
            try:
                yield from self._stream()
                after = f"after {self.last}" if self.last else "with the next event: some events may be lost"
                self._say(f"the stream has ended; resuming {after}")
            except CommandFailure as failure:
                if failure.status is not ExitStatus.UNREACHABLE:
                    raise
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
        """Begins with those that fail from now on. Raises CommandFailure if the gateway refuses the
        request."""
        self._changed()
        while True:
            time.sleep(_POLL_SECONDS)
            try:
                changed = self._changed()
            except CommandFailure as failure:
                if failure.status is not ExitStatus.UNREACHABLE:
                    raise
                self._say(f"{failure.lines[0]}; failed sign-ons are asked for again")
                continue
            for record in changed:
                yield Event("", SIGN_ON_FAILED, {**record, "at": record["last_at"]})

    def _changed(self) -> list[Record]:
        """The records with another attempt, the oldest first."""
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

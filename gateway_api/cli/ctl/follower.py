"""Follows the events of a gateway, and resumes after each end of the stream."""

import time
from collections.abc import Callable, Iterator

from gateway_api.cli.ctl.failures import CommandFailure, ExitStatus
from gateway_api.cli.ctl.gateway import Record, RemoteGateway
from gateway_api.cli.ctl.sse import Event, events

_PATH = "/events/subscribers"
#: Seconds without a line: heartbeats come every 15 s.
_SILENCE = 45.0
_LONGEST_PAUSE = 30

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
        """Resumes after a lost connection. Raises Failure if the gateway refuses the request, or does not
        respond to the first one."""
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

"""The core's events in one worker: followed once and encoded once, however many clients listen."""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import gevent
from gevent.event import Event as Signal

from gateway_api.base.errors import CoreUnavailable
from gateway_api.base.ring import Ring
from gateway_api.daemon.events import Events
from gateway_api.events import sse
from gateway_api.wire.core.sessions import EventsReply, SessionEvent

#: Events that a client may be behind. One that is further behind is disconnected, and resumes from the core.
HELD = 10_000


@dataclass
class Pace:
    """Times in seconds of `clock`, and with how many events a worker begins. Read at each use."""

    clock: Callable[[], float] = time.monotonic
    heartbeat: float = 15.0
    #: In which a client must take what was sent to it.
    patience: float = 10.0
    sweep: float = 1.0
    #: In which the core's events must come.
    core_patience: float = 3.0
    begins_behind: int = HELD


@dataclass(frozen=True)
class Entry:
    """An event: its name and session type, to filter by, and what goes over the wire."""

    name: str
    type: str
    block: bytes


class Span:
    """Events without a hole between them, `started` after a number. `oldest` is what the core held then."""

    def __init__(self, boot_id: str, started: int, oldest: int, held: int = HELD) -> None:
        self.boot_id = boot_id
        self.started = started
        self.oldest = oldest
        self.ring: Ring[Entry] = Ring(held, started)

    def holds(self, id: sse.EventId) -> bool:
        """Whether all that came after an event is here."""
        return id.boot_id == self.boot_id and self.ring.after(id.sequence, 0) is not None

    def is_past(self, id: sse.EventId) -> bool:
        """Whether what came after an event will never be here again."""
        return id.boot_id == self.boot_id and id.sequence < self.ring.oldest - 1

    def gap(self) -> bytes:
        """What a client is told who followed another one until now."""
        return sse.gap(self.boot_id, self.oldest, self.started)


class Broadcast:
    """The events of now. `run` is a greenlet's whole life."""

    def __init__(self, events: Events, pace: Pace) -> None:
        self._events = events
        self._pace = pace
        self._span: Span | None = None
        #: It becomes the span when it has reached now: who listens from now on is not to get what was before.
        self._coming: Span | None = None
        #: Set at the next change; then there is another one to wait for.
        self.changed = Signal()

    @property
    def span(self) -> Span:
        """The events since the last hole. Raises CoreUnavailable while there are none yet."""
        with gevent.Timeout(self._pace.core_patience, False):
            while self._span is None:
                self.changed.wait()
        if self._span is None:
            raise CoreUnavailable("no events from the core yet")
        return self._span

    def reached(self, id: sse.EventId) -> Span | None:
        """What holds all that came after an event, which may be on its way here; None if it doesn't come."""
        with gevent.Timeout(self._pace.core_patience, False):
            while not self.span.holds(id):
                if self.span.is_past(id):
                    return None
                self.changed.wait()
        return self.span if self.span.holds(id) else None

    def run(self) -> None:
        """Follows the core for ever."""
        for batch in self._events.for_ever(gevent.sleep, behind=self._pace.begins_behind):
            self._take(batch)
            # Or the streams would not get to theirs while there is more, and be too far behind then.
            gevent.sleep(0)

    def wake(self) -> None:
        """Has everybody look again."""
        changed, self.changed = self.changed, Signal()
        changed.set()

    def _take(self, batch: EventsReply) -> None:
        if self._coming is None or batch.gap:
            first = batch.events[0].sequence - 1 if batch.events else batch.newest
            self._coming = Span(batch.boot_id, first, batch.oldest)
        for entry in entries(batch.boot_id, batch.events):
            self._coming.ring.add(entry)
        if self._coming.ring.newest >= batch.newest:
            self._span = self._coming
        self.wake()


def entries(boot_id: str, events: Iterable[SessionEvent]) -> Iterable[Entry]:
    """The events as clients get them."""
    return (Entry(sse.NAMES[e.event], e.type.lower(), sse.block(boot_id, e)) for e in events)

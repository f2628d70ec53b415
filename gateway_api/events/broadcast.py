"""Broadcast of the core's events in one worker, received and encoded once for all clients, as server-sent
events (HTML Living Standard, section 9.2)."""

import re
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

import gevent
import msgspec
from gevent.event import Event as Signal

from gateway_api.base.core_events import Events
from gateway_contract.base.errors import CoreUnavailable
from gateway_contract.base.ring import Ring
from gateway_contract.contract import Record
from gateway_contract.core.sessions import EventsReply, SessionEvent
from gateway_contract.events import EVENTS, Gap

#: A comment: some clients would take a blank line for an empty message.
HEARTBEAT = b":\n"

#: Characters that JSON leaves as they are and many clients take for the end of a line (Python's
#: `str.splitlines`, JavaScript before ES2019): U+0085, U+2028 and U+2029, with their escapes in JSON.
_LINE_BREAKS = [(character.encode(), f"\\u{ord(character):04x}".encode()) for character in "\x85\u2028\u2029"]

_ID = re.compile(r"([0-9a-z]{1,64})-(0|[1-9][0-9]{0,17})", re.ASCII)


class EventId(NamedTuple):
    """Id of an event. `sequence` is its number in one run of the core, and `boot_id` identifies the run."""

    boot_id: str
    sequence: int

    def __str__(self) -> str:
        return f"{self.boot_id}-{self.sequence}"


def parse_id(text: str) -> EventId:
    """Return the id of an event in a text of a client. Raises ValueError."""
    match = _ID.fullmatch(text)
    if match is None:
        raise ValueError("must be the id of an event")
    return EventId(match[1], int(match[2]))


def encode_event(boot_id: str, event: SessionEvent) -> bytes:
    """Return one event of the core as bytes."""
    kind = EVENTS[event.event]
    return _encode_numbered(EventId(boot_id, event.sequence), kind.stream_name, kind.stream_data.of(event))


def encode_gap(boot_id: str, oldest: int, newest: int) -> bytes:
    """Return the event that reports lost events, and which events the core holds. A client that resumes from
    it loses no others."""
    last = EventId(boot_id, newest)
    return _encode_numbered(last, "gap", Gap(str(EventId(boot_id, oldest)), str(last)))


def encode_unnumbered(name: str, data: Record) -> bytes:
    """Return an event of a stream that a client cannot resume."""
    text = msgspec.json.encode(data)
    for character, escape in _LINE_BREAKS:
        text = text.replace(character, escape)
    return b"event: %s\ndata: %s\n\n" % (name.encode(), text)


def _encode_numbered(id: EventId, name: str, data: Record) -> bytes:
    return b"id: %s\n%b" % (str(id).encode(), encode_unnumbered(name, data))


#: Events that a worker holds. A client that is further behind is disconnected, and resumes from the core.
MAX_HELD = 10_000


@dataclass
class StreamTimes:
    """Times of event streams in seconds of `clock`, and the number of past events with which a worker
    begins."""

    clock: Callable[[], float] = time.monotonic
    heartbeat: float = 15.0
    #: For a client to receive a piece.
    client_patience: float = 10.0
    sweep: float = 1.0
    #: For the core to send its events.
    core_patience: float = 3.0
    past_events: int = MAX_HELD


@dataclass(frozen=True)
class EncodedEvent:
    """Event as bytes, with its name and session type for filters."""

    name: str
    type: str
    block: bytes


class Span:
    """Span of consecutive events after number `started`. `oldest` is the oldest event that the core held
    then."""

    def __init__(self, boot_id: str, started: int, oldest: int, held: int = MAX_HELD) -> None:
        self.boot_id = boot_id
        self.started = started
        self.oldest = oldest
        self.ring: Ring[EncodedEvent] = Ring(held, started)

    def holds(self, id: EventId) -> bool:
        """Return True if the span has all events after this one."""
        return id.boot_id == self.boot_id and self.ring.after(id.sequence, 0) is not None

    def has_dropped(self, id: EventId) -> bool:
        """Return True if the span had events after this one, and has dropped them."""
        return id.boot_id == self.boot_id and id.sequence < self.ring.oldest - 1

    def encode_gap(self) -> bytes:
        """Return the event for a client that has followed another span."""
        return encode_gap(self.boot_id, self.oldest, self.started)


class Broadcast:
    """Broadcast of the latest events. A greenlet calls `run`."""

    def __init__(self, events: Events, times: StreamTimes) -> None:
        self._events = events
        self._times = times
        self._span: Span | None = None
        #: Becomes the span when it has the newest event: a new client must not get older ones.
        self._coming: Span | None = None
        #: Set at the next change, and then replaced by a new one.
        self.changed = Signal()

    @property
    def span(self) -> Span:
        """Events since the last gap. Raises CoreUnavailable before the first event."""
        if self._span is None:
            with gevent.Timeout(self._times.core_patience, False):
                while self._span is None:
                    self.changed.wait()
        if self._span is None:
            raise CoreUnavailable("no events from the core yet")
        return self._span

    def wait_for_span(self, id: EventId) -> Span | None:
        """Wait for the span with all events after this one, and return it; None if they do not arrive in
        time."""
        with gevent.Timeout(self._times.core_patience, False):
            while not self.span.holds(id):
                if self.span.has_dropped(id):
                    return None
                self.changed.wait()
        return self.span if self.span.holds(id) else None

    def run(self) -> None:
        """Receive the core's events. Never returns."""
        for batch in self._events.follow_for_ever(gevent.sleep, behind=self._times.past_events):
            self._add_batch(batch)
            # Otherwise streams would not run while there are more events, and fall too far behind.
            gevent.sleep(0)

    def wake(self) -> None:
        """Wake all streams that wait for an event."""
        changed, self.changed = self.changed, Signal()
        changed.set()

    def _add_batch(self, batch: EventsReply) -> None:
        if self._coming is None or batch.gap:
            first = batch.events[0].sequence - 1 if batch.events else batch.newest
            self._coming = Span(batch.boot_id, first, batch.oldest)
        for entry in encode_events(batch.boot_id, batch.events):
            self._coming.ring.add(entry)
        if self._coming.ring.newest >= batch.newest:
            self._span = self._coming
        self.wake()


def encode_events(boot_id: str, events: Iterable[SessionEvent]) -> Iterable[EncodedEvent]:
    """Return the events of the core in the form for clients."""
    return (
        EncodedEvent(EVENTS[e.event].stream_name, e.type.lower(), encode_event(boot_id, e)) for e in events
    )

"""Event streams of a worker: which events each client receives, and when its stream ends.

The worker receives and encodes each event of the core once for all clients, as a server-sent event (HTML
Living Standard, section 9.2). If several clients watch the traffic of a session, the worker also receives and
encodes this traffic only once.
"""

import logging
import os
import re
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import gevent
import msgspec
from gevent.event import Event as Signal
from gevent.lock import BoundedSemaphore

from gateway_api.base.core_events import Events
from gateway_contract.base.errors import CoreUnavailable, GatewayApiError, NotFound, TooManyStreams
from gateway_contract.base.process import compute_max_clients
from gateway_contract.base.ring import Ring
from gateway_contract.base.texts import identify_client
from gateway_contract.contract import Record
from gateway_contract.core.sessions import EventsReply, SessionEvent
from gateway_contract.core.traffic import WatchTraffic
from gateway_contract.core_client import CoreClient
from gateway_contract.events import DEFAULT_STREAM_EVENTS, EVENTS, Ended, Gap

_log = logging.getLogger(__name__)

#: Events that a worker holds. A client that is further behind is disconnected, and resumes from the core.
MAX_HELD_EVENTS = 10_000
#: Events of a piece: as many as the core sends at a time, so that a client that reads pieces keeps up.
_MAX_EVENTS_PER_PIECE = 1000
#: Clients that catch up at a time: each requires a connection to the core.
_MAX_CATCHING_UP_CLIENTS = 16
#: Streams of a worker, which limits their memory; and of one client.
MAX_STREAMS, MAX_STREAMS_OF_CLIENT = 4096, 1024
#: Seconds until a rejected client may try again.
RETRY_AFTER_SECONDS = 10
#: Sessions that a worker watches: each requires a connection to the core.
_MAX_WATCHED_SESSIONS = 64

#: A comment: some clients would take a blank line for an empty message.
HEARTBEAT = b":\n"

#: Characters that JSON leaves as they are and many clients take for the end of a line (Python's
#: `str.splitlines`, JavaScript before ES2019): U+0085, U+2028 and U+2029, with their escapes in JSON.
_LINE_BREAKS = [(character.encode(), f"\\u{ord(character):04x}".encode()) for character in "\x85\u2028\u2029"]

_EVENT_ID_PATTERN = re.compile(r"([0-9a-z]{1,64})-(0|[1-9][0-9]{0,17})", re.ASCII)


class EventId(NamedTuple):
    """Id of an event. `boot_id` identifies a run of the core, and `sequence` is the number of the event in
    this run."""

    boot_id: str
    sequence: int

    def __str__(self) -> str:
        return f"{self.boot_id}-{self.sequence}"


def parse_id(text: str) -> EventId:
    """Parse the id of an event that a client sent. Raises ValueError if the text is not the id of an
    event."""
    match = _EVENT_ID_PATTERN.fullmatch(text)
    if match is None:
        raise ValueError("must be the id of an event")
    return EventId(match[1], int(match[2]))


def encode_event(boot_id: str, event: SessionEvent) -> bytes:
    """Return an event of the core as a server-sent event."""
    kind = EVENTS[event.event]
    return _encode_numbered(EventId(boot_id, event.sequence), kind.stream_name, kind.stream_data.of(event))


def encode_gap(boot_id: str, oldest: int, newest: int) -> bytes:
    """Return the server-sent event that reports lost events. `oldest` and `newest` are the numbers of the
    oldest and the newest event that the core still has. A client that resumes after this server-sent event
    loses no more events."""
    last = EventId(boot_id, newest)
    return _encode_numbered(last, "gap", Gap(str(EventId(boot_id, oldest)), str(last)))


def encode_unnumbered(name: str, data: Record) -> bytes:
    """Return a server-sent event without an id, for streams that a client cannot resume. `name` is the name
    of the event."""
    text = msgspec.json.encode(data)
    for character, escape in _LINE_BREAKS:
        text = text.replace(character, escape)
    return b"event: %s\ndata: %s\n\n" % (name.encode(), text)


def _encode_numbered(id: EventId, name: str, data: Record) -> bytes:
    return b"id: %s\n%b" % (str(id).encode(), encode_unnumbered(name, data))


@dataclass
class StreamTimes:
    """Intervals and timeouts of event streams, in seconds of `clock`, and the number of past events that a
    worker fetches at its start."""

    clock: Callable[[], float] = time.monotonic
    heartbeat: float = 15.0
    #: Time that a client has to receive a piece.
    client_timeout: float = 10.0
    sweep: float = 1.0
    #: Time that the core has to send its events.
    core_timeout: float = 3.0
    past_events: int = MAX_HELD_EVENTS


@dataclass(frozen=True)
class EncodedEvent:
    """Encoded server-sent event, with the name and the session type of the event for filters."""

    name: str
    type: str
    block: bytes


class Span:
    """Consecutive events after the event with the number `started`. `oldest` is the number of the oldest
    event that the core had at the start of the span."""

    def __init__(self, boot_id: str, started: int, oldest: int, held: int = MAX_HELD_EVENTS) -> None:
        self.boot_id = boot_id
        self.started = started
        self.oldest = oldest
        self.ring: Ring[EncodedEvent] = Ring(held, started)

    def holds(self, id: EventId) -> bool:
        """Return True if the span contains all events after the event `id`."""
        return id.boot_id == self.boot_id and self.ring.after(id.sequence, 0) is not None

    def has_dropped(self, id: EventId) -> bool:
        """Return True if the span contained all events after the event `id`, and has dropped some of these
        events."""
        return id.boot_id == self.boot_id and id.sequence < self.ring.oldest - 1

    def encode_gap(self) -> bytes:
        """Return the server-sent event that reports the gap before this span, for a client that changes from
        another span to this span."""
        return encode_gap(self.boot_id, self.oldest, self.started)


class _Source:
    """Source of events for which streams wait."""

    def __init__(self) -> None:
        #: Set at the next change, and then replaced by a new one.
        self.changed = Signal()

    def wake(self) -> None:
        """Wake all streams that wait for an event."""
        changed, self.changed = self.changed, Signal()
        changed.set()


class Broadcast(_Source):
    """Broadcast of the core's latest events to all streams. `run` receives the events and runs in its own
    greenlet."""

    def __init__(self, events: Events, times: StreamTimes) -> None:
        super().__init__()
        self._events = events
        self._times = times
        self._span: Span | None = None
        #: Becomes the span when it has the newest event: a new client must not get older ones.
        self._next_span: Span | None = None

    @property
    def span(self) -> Span:
        """The events since the last gap. Waits for the core's first events if necessary. Raises
        CoreUnavailable if the first events do not arrive within `core_timeout`."""
        if self._span is None:
            with gevent.Timeout(self._times.core_timeout, False):
                while self._span is None:
                    self.changed.wait()
        if self._span is None:
            raise CoreUnavailable("no events from the core yet")
        return self._span

    def wait_for_span(self, id: EventId) -> Span | None:
        """Wait for the span that contains all events after the event `id`. Return None if the events do not
        arrive in time or were dropped."""
        with gevent.Timeout(self._times.core_timeout, False):
            while not self.span.holds(id):
                if self.span.has_dropped(id):
                    return None
                self.changed.wait()
        return self.span if self.span.holds(id) else None

    def run(self) -> None:
        """Receive the core's events. Never returns."""
        for batch in self._events.follow_for_ever(gevent.sleep, recent=self._times.past_events):
            self._add_batch(batch)
            # Otherwise streams would not run while there are more events, and fall too far behind.
            gevent.sleep(0)

    def _add_batch(self, batch: EventsReply) -> None:
        if self._next_span is None or batch.gap:
            first = batch.events[0].sequence - 1 if batch.events else batch.newest
            self._next_span = Span(batch.boot_id, first, batch.oldest)
        for entry in encode_events(batch.boot_id, batch.events):
            self._next_span.ring.add(entry)
        if self._next_span.ring.newest >= batch.newest:
            self._span = self._next_span
        self.wake()


def encode_events(boot_id: str, events: Iterable[SessionEvent]) -> Iterable[EncodedEvent]:
    """Return the core's events as server-sent events."""
    return (
        EncodedEvent(EVENTS[e.event].stream_name, e.type.lower(), encode_event(boot_id, e)) for e in events
    )


@dataclass(frozen=True)
class StreamFilter:
    """Filter for the events of a stream. `names` are the names of events in the stream. `type` is a session
    type, or None for any type. The stream begins after the event `resume`, or with the next event if `resume`
    is None."""

    names: frozenset[str] = frozenset(DEFAULT_STREAM_EVENTS)
    type: str | None = None
    resume: EventId | None = None

    def join_blocks(self, entries: list[EncodedEvent]) -> bytes:
        return b"".join(
            entry.block for entry in entries if entry.name in self.names and self.type in (None, entry.type)
        )


class Stream:
    """Stream of one client. The greenlet that creates the stream also sends the pieces that `follow` yields,
    and calls `close` at the end."""

    def __init__(self, streams: "Streams", bearer: Any, client: str, follow: "_Follow") -> None:
        self._streams = streams
        self._pieces = follow(self)
        self.bearer = bearer
        self.client = client
        self.is_ended = False
        #: The greenlet that sends the pieces.
        self.greenlet = gevent.getcurrent()
        #: True while the stream waits for the next event. `wake` ends the wait, and the stream checks
        #: `is_ended`.
        self.is_listening = False
        self.wake: Callable[[], object] = lambda: None
        #: The end of a wait for the client or the core.
        self.deadline: float | None = None

    def __iter__(self) -> Iterator[bytes]:
        """Yield the pieces to send until the stream ends. The first piece is empty, so that the header is
        sent at once."""
        self._streams.add(self)
        self.begin_wait()
        yield b""
        if self.is_ended:
            return
        try:
            for piece in self._pieces:
                self.begin_wait()
                yield piece
        except CoreUnavailable as error:
            # The headers are sent. The client reconnects, and gets the events or the gap then.
            _log.info(
                "ended an event stream while the core is unavailable, the client may reconnect: %s", error
            )

    def close(self) -> None:
        """Close the stream. The worker calls this method after the last piece was sent."""
        self._pieces.close()
        self._streams.remove(self)

    def begin_wait(self, *, for_turn: bool = False) -> None:
        """Begin a wait for the client or the core. This wait has a deadline. With `for_turn`, begin a wait
        for a free slot to catch up instead. This wait has no deadline."""
        self.is_listening = False
        self.deadline = None if for_turn else self._streams.deadline()


_Follow = Callable[[Stream], Generator[bytes, None, None]]


class Streams:
    """Open streams of a worker. `check_bearers` returns for each bearer whether the bearer's stream may
    continue. At most `max_streams` streams can be open (by default as many as the descriptor limit allows),
    and at most `max_streams_of_client` for one client."""

    def __init__(
        self,
        events: Events,
        check_bearers: Callable[[list[Any]], list[bool]],
        max_streams: int | None = None,
        max_streams_of_client: int = MAX_STREAMS_OF_CLIENT,
        times: StreamTimes | None = None,
    ) -> None:
        self._events = events
        self._max_streams = compute_max_clients(MAX_STREAMS) if max_streams is None else max_streams
        self._max_streams_of_client = max_streams_of_client
        self._check_bearers = check_bearers
        self._times = times or StreamTimes()
        self._broadcast = Broadcast(events, self._times)
        self._open: set[Stream] = set()
        self._stream_counts: Counter[str] = Counter()
        #: Called with the number of open streams at each change.
        self.on_change: Callable[[int], object] = lambda number: None
        #: Called with the greenlet that failed: no stream can continue.
        self.on_failure: Callable[[Any], object] = _exit_worker
        self._catch_up_slots = BoundedSemaphore(_MAX_CATCHING_UP_CLIENTS)
        self._has_started = False
        self._is_closed = False

    def __len__(self) -> int:
        return len(self._open)

    def open(self, bearer: Any, address: str, wanted: StreamFilter) -> Stream:
        """Return a stream of session events, which begins now or after the event to resume from. `address` is
        the client's address. Raises CoreUnavailable if the core sends no events in time, and TooManyStreams
        if the worker or the client has too many open streams."""
        client = self._admit(address)
        span = self._broadcast.span
        follow = partial(self._follow_events, wanted=wanted, span=span, position=span.ring.newest)
        stream = Stream(self, bearer, client, follow)
        stream.wake = self._broadcast.wake
        return stream

    def open_with(self, bearer: Any, address: str, follow: _Follow) -> Stream:
        """Return a stream of the pieces that `follow` yields. `address` is the client's address. Raises
        TooManyStreams if the worker or the client has too many open streams."""
        return Stream(self, bearer, self._admit(address), follow)

    def add(self, stream: Stream) -> None:
        """Add a stream to the open streams when the stream begins. After `close`, the stream ends at once."""
        stream.is_ended = self._is_closed
        self._open.add(stream)
        self._stream_counts[stream.client] += 1
        self.on_change(len(self))

    def remove(self, stream: Stream) -> None:
        """Remove a stream from the open streams when the stream has ended. Do nothing if the stream has not
        begun."""
        if stream not in self._open:
            return
        self._open.discard(stream)
        self._stream_counts[stream.client] -= 1
        if not self._stream_counts[stream.client]:
            del self._stream_counts[stream.client]
        self.on_change(len(self))

    def deadline(self) -> float:
        """Return the deadline for a wait that begins now. The wait is for a client or the core."""
        return self._times.clock() + self._times.client_timeout

    def close(self) -> None:
        """End all streams now. A stream that begins later ends at once: its client had a connection before
        the worker stopped, and reconnects to another worker."""
        self._is_closed = True
        for stream in list(self._open):
            self._end(stream)

    def _admit(self, address: str) -> str:
        """Return the client with this address if the client may open another stream. Raises TooManyStreams if
        the worker or the client has too many open streams."""
        client = identify_client(address)
        if len(self) >= self._max_streams or self._stream_counts[client] >= self._max_streams_of_client:
            raise TooManyStreams(RETRY_AFTER_SECONDS)
        if not self._has_started:
            self._has_started = True
            for run in (self._broadcast.run, self._sweep):
                gevent.spawn(run).link_exception(self.on_failure)
        return client

    def _follow_events(
        self, stream: Stream, wanted: StreamFilter, span: Span, position: int
    ) -> Generator[bytes, None, None]:
        if wanted.resume is not None:
            if span.holds(wanted.resume):
                position = wanted.resume.sequence
            else:
                span, position = yield from self._catch_up_in_turn(stream, wanted, wanted.resume)
        heartbeat_at = self._times.clock() + self._times.heartbeat
        while not stream.is_ended:
            stream.is_listening, stream.deadline = True, None
            changed = self._broadcast.changed
            if self._broadcast.span is not span:
                span = self._broadcast.span
                position = span.started
                piece = span.encode_gap()
            else:
                entries = span.ring.after(position, _MAX_EVENTS_PER_PIECE)
                if entries is None:
                    # Too far behind: the client reconnects, and gets the rest from the core.
                    return
                position += len(entries)
                piece = wanted.join_blocks(entries)
                if not entries and not changed.wait(max(0.0, heartbeat_at - self._times.clock())):
                    piece = HEARTBEAT
            if piece:
                heartbeat_at = self._times.clock() + self._times.heartbeat
                yield piece

    def _catch_up_in_turn(
        self, stream: Stream, wanted: StreamFilter, id: EventId
    ) -> Generator[bytes, None, tuple[Span, int]]:
        stream.begin_wait(for_turn=True)
        while not self._catch_up_slots.acquire(timeout=self._times.heartbeat):
            yield HEARTBEAT
            stream.begin_wait(for_turn=True)
        try:
            return (yield from self._catch_up(stream, wanted, id))
        finally:
            self._catch_up_slots.release()

    def _catch_up(
        self, stream: Stream, wanted: StreamFilter, id: EventId
    ) -> Generator[bytes, None, tuple[Span, int]]:
        """Yield the core's events after the event `id` that match the filter. Return a span of the broadcast,
        and the number of the last event that the core sent: the span contains all later events. Raises
        CoreUnavailable if the core ends the events too early."""
        position = id.sequence
        stream.begin_wait()
        for batch in self._events.follow_after(id.boot_id, id.sequence):
            if batch.gap:
                position = batch.newest
                yield encode_gap(batch.boot_id, batch.oldest, batch.newest)
            elif batch.events:
                position = batch.events[-1].sequence
                yield wanted.join_blocks(list(encode_events(batch.boot_id, batch.events)))
            stream.begin_wait()
            if position < batch.newest:
                continue
            span = self._broadcast.wait_for_span(EventId(batch.boot_id, position))
            if span is not None:
                return span, position
        raise CoreUnavailable("the core ended its events")

    def _sweep(self) -> None:
        while True:
            gevent.sleep(self._times.sweep)
            streams = list(self._open)
            if not streams:
                continue
            try:
                allowed_flags = self._check_bearers([stream.bearer for stream in streams])
            except Exception:  # noqa: BLE001 - logged, and repeated by the next sweep
                _log.exception("cannot check the tokens of open event streams, the streams stay open")
                allowed_flags = len(streams) * [True]
            now = self._times.clock()
            for stream, is_allowed in zip(streams, allowed_flags, strict=True):
                # It may have ended meanwhile, and its greenlet may serve another request.
                if stream not in self._open:
                    continue
                if not is_allowed or (stream.deadline is not None and now > stream.deadline):
                    self._end(stream)

    def _end(self, stream: Stream) -> None:
        stream.is_ended = True
        if stream.is_listening:
            stream.wake()
        else:
            # The stream waits for a client or a core that may never respond.
            stream.greenlet.kill(block=False)


def _exit_worker(greenlet: Any) -> None:
    # The clients reconnect to another worker and resume. Here they would wait forever.
    _log.critical("the events of this worker have stopped, the worker exits: %r", greenlet.exception)
    os._exit(1)


class _Feed(_Source):
    """Feed of the traffic of one session. `block` is the last encoded event, and `number` is the number of
    this event."""

    def __init__(self) -> None:
        super().__init__()
        self.watchers = 0
        self.number = 0
        self.block = b""
        #: The reason why there will be no other event.
        self.end: GatewayApiError | None = None
        self.greenlet: Any = None

    def run(self, core: CoreClient, id: int) -> None:
        """Receive the traffic of the session `id` until the session ends or the core is unavailable."""
        try:
            for reply in core.follow(WatchTraffic(id)):
                self.block = encode_unnumbered("traffic", reply)
                self.number += 1
                self.wake()
        except (NotFound, CoreUnavailable) as error:
            self.end = error
            self.wake()


class Feeds:
    """Feeds of the sessions that clients of this worker watch, at most `max_watched`. The worker receives the
    traffic of each session once for all clients."""

    def __init__(self, core: CoreClient, max_watched: int = _MAX_WATCHED_SESSIONS) -> None:
        self._core = core
        self._times = StreamTimes()
        self._max_watched = max_watched
        self._feeds: dict[int, _Feed] = {}

    def __len__(self) -> int:
        return len(self._feeds)

    def check(self, id: int) -> None:
        """Check that the session `id` can be watched. Raises TooManyStreams if too many other sessions are
        watched."""
        if id not in self._feeds and len(self) >= self._max_watched:
            raise TooManyStreams(RETRY_AFTER_SECONDS)

    def follow(self, stream: Stream, id: int) -> Generator[bytes, None, None]:
        """Yield the traffic events of a session, beginning with the last event, until the session or the
        stream ends. A slow client skips to the newest event. Raises CoreUnavailable if the core becomes
        unavailable."""
        feed = self._feeds.get(id) or self._start(id)
        feed.watchers += 1
        stream.wake = feed.wake
        try:
            yield from self._events(stream, feed, id)
        finally:
            feed.watchers -= 1
            if not feed.watchers:
                # The core samples no longer.
                del self._feeds[id]
                feed.greenlet.kill(block=False)

    def _start(self, id: int) -> _Feed:
        feed = self._feeds[id] = _Feed()
        feed.greenlet = gevent.spawn(feed.run, self._core, id)
        return feed

    def _events(self, stream: Stream, feed: _Feed, id: int) -> Generator[bytes, None, None]:
        number = 0
        heartbeat_at = self._times.clock() + self._times.heartbeat
        while not stream.is_ended:
            stream.is_listening, stream.deadline = True, None
            changed = feed.changed
            if feed.number != number:
                number, piece = feed.number, feed.block
            elif isinstance(feed.end, NotFound):
                yield encode_unnumbered("ended", Ended(id))
                return
            elif feed.end is not None:
                raise feed.end
            else:
                piece = b"" if changed.wait(max(0.0, heartbeat_at - self._times.clock())) else HEARTBEAT
            if piece:
                heartbeat_at = self._times.clock() + self._times.heartbeat
                yield piece

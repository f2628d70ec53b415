"""The event streams of a worker: what each client gets, and when its stream ends."""

import logging
import os
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import gevent
from gevent.event import Event as Signal
from gevent.lock import BoundedSemaphore

from gateway_api.base.core_events import Events
from gateway_api.events.broadcast import (
    HEARTBEAT,
    Broadcast,
    Entry,
    EventId,
    Span,
    StreamTimes,
    encode_gap,
    encode_unnumbered,
    entries,
)
from gateway_contract.base.errors import CoreUnavailable, GatewayApiError, NotFound, TooManyStreams
from gateway_contract.base.process import max_clients
from gateway_contract.base.texts import identify_client
from gateway_contract.core.traffic import WatchTraffic
from gateway_contract.core_client import CoreClient
from gateway_contract.events import DEFAULT_STREAM_EVENTS, Ended

_log = logging.getLogger(__name__)

#: Events of one piece, as many as the core sends at a time: a client that reads them keeps up.
_AT_ONCE = 1000
#: Clients that catch up from the core at a time: each requires a connection to the core.
_CATCHING_UP = 16
#: Streams of a worker, which limits their memory; and of one client.
MOST, MOST_OF_ONE = 4096, 1024
#: Seconds until a rejected client may try again.
RETRY_AFTER = 10


@dataclass(frozen=True)
class StreamFilter:
    """The events that a client requests, by their names in the stream: those after `resume`, or from now on.
    None means sessions of any type."""

    names: frozenset[str] = frozenset(DEFAULT_STREAM_EVENTS)
    type: str | None = None
    resume: EventId | None = None

    def blocks(self, found: list[Entry]) -> bytes:
        return b"".join(
            entry.block for entry in found if entry.name in self.names and self.type in (None, entry.type)
        )


class Stream:
    """The stream of one client, in the current greenlet, which sends its pieces: `follow` makes them. Who
    sends them calls `close` at the end."""

    def __init__(self, streams: "Streams", bearer: Any, client: str, follow: "_Follow") -> None:
        self._streams = streams
        self._pieces = follow(self)
        self.bearer = bearer
        self.client = client
        self.ended = False
        #: Ends with the stream.
        self.greenlet = gevent.getcurrent()
        #: It waits for the next event, and checks `ended` when `wake` wakes it.
        self.listens = False
        self.wake: Callable[[], object] = lambda: None
        #: For the client or the core, whichever it waits for.
        self.deadline: float | None = None

    def __iter__(self) -> Iterator[bytes]:
        """The pieces to send, until the stream ends. It is open from the first piece, which is empty: the
        header goes out with it."""
        self._streams.add(self)
        self.waits()
        yield b""
        try:
            for piece in self._pieces:
                self.waits()
                yield piece
        except CoreUnavailable as error:
            # The headers are sent. The client reconnects, and gets the events or the gap then.
            _log.info("a stream ended: %s", error)

    def close(self) -> None:
        self._pieces.close()
        self._streams.remove(self)

    def waits(self, *, for_turn: bool = False) -> None:
        """Begin a wait for the client or the core, until a deadline; or for a turn, which comes."""
        self.listens = False
        self.deadline = None if for_turn else self._streams.deadline()


_Follow = Callable[[Stream], Generator[bytes, None, None]]


class Streams:
    """`still_allowed` returns for each of several bearers whether its stream may continue. At most `most`
    streams are open, by default as many as descriptors allow, and `most_of_one` of one client."""

    def __init__(
        self,
        events: Events,
        still_allowed: Callable[[list[Any]], list[bool]],
        most: int | None = None,
        most_of_one: int = MOST_OF_ONE,
        times: StreamTimes | None = None,
    ) -> None:
        self._events = events
        self._most = max_clients(MOST) if most is None else most
        self._most_of_one = most_of_one
        self._still_allowed = still_allowed
        self._times = times or StreamTimes()
        self._broadcast = Broadcast(events, self._times)
        self._open: set[Stream] = set()
        self._of_client: Counter[str] = Counter()
        #: Called with the number of open streams at each change.
        self.on_change: Callable[[int], object] = lambda number: None
        #: Called with the greenlet that failed: no stream can continue.
        self.on_failure: Callable[[Any], object] = _end_the_worker
        self._slots = BoundedSemaphore(_CATCHING_UP)
        self._started = False

    def __len__(self) -> int:
        return len(self._open)

    def open(self, bearer: Any, address: str, wanted: StreamFilter) -> Stream:
        """Return a stream of the events of sessions, from now on. Raises CoreUnavailable and
        TooManyStreams."""
        client = self._admitted(address)
        span = self._broadcast.span
        follow = partial(self._followed, wanted=wanted, span=span, position=span.ring.newest)
        stream = Stream(self, bearer, client, follow)
        stream.wake = self._broadcast.wake
        return stream

    def open_with(self, bearer: Any, address: str, follow: _Follow) -> Stream:
        """Return a stream of the pieces that `follow` makes. Raises TooManyStreams."""
        return Stream(self, bearer, self._admitted(address), follow)

    def add(self, stream: Stream) -> None:
        self._open.add(stream)
        self._of_client[stream.client] += 1
        self.on_change(len(self))

    def remove(self, stream: Stream) -> None:
        """Does nothing with a stream that has not begun."""
        if stream not in self._open:
            return
        self._open.discard(stream)
        self._of_client[stream.client] -= 1
        if not self._of_client[stream.client]:
            del self._of_client[stream.client]
        self.on_change(len(self))

    def deadline(self) -> float:
        """Return the end of a wait for a client or the core that begins now."""
        return self._times.clock() + self._times.patience

    def close(self) -> None:
        """End all streams now."""
        for stream in list(self._open):
            self._end(stream)

    def _admitted(self, address: str) -> str:
        """Return the client with this address, which may have another stream. Raises TooManyStreams."""
        client = identify_client(address)
        if len(self) >= self._most or self._of_client[client] >= self._most_of_one:
            raise TooManyStreams(RETRY_AFTER)
        if not self._started:
            self._started = True
            for run in (self._broadcast.run, self._sweep):
                gevent.spawn(run).link_exception(self.on_failure)
        return client

    def _followed(
        self, stream: Stream, wanted: StreamFilter, span: Span, position: int
    ) -> Generator[bytes, None, None]:
        if wanted.resume is not None:
            if span.holds(wanted.resume):
                position = wanted.resume.sequence
            else:
                span, position = yield from self._in_turn(stream, wanted, wanted.resume)
        due = self._times.clock() + self._times.heartbeat
        while not stream.ended:
            stream.listens, stream.deadline = True, None
            changed = self._broadcast.changed
            if self._broadcast.span is not span:
                span = self._broadcast.span
                position = span.started
                piece = span.gap()
            else:
                found = span.ring.after(position, _AT_ONCE)
                if found is None:
                    # Too far behind: the client reconnects, and gets the rest from the core.
                    return
                position += len(found)
                piece = wanted.blocks(found)
                if not found and not changed.wait(max(0.0, due - self._times.clock())):
                    piece = HEARTBEAT
            if piece:
                due = self._times.clock() + self._times.heartbeat
                yield piece

    def _in_turn(
        self, stream: Stream, wanted: StreamFilter, id: EventId
    ) -> Generator[bytes, None, tuple[Span, int]]:
        stream.waits(for_turn=True)
        while not self._slots.acquire(timeout=self._times.heartbeat):
            yield HEARTBEAT
            stream.waits(for_turn=True)
        try:
            return (yield from self._caught_up(stream, wanted, id))
        finally:
            self._slots.release()

    def _caught_up(
        self, stream: Stream, wanted: StreamFilter, id: EventId
    ) -> Generator[bytes, None, tuple[Span, int]]:
        """The core's events after an event. Returns the position from which the broadcast has the rest."""
        position = id.sequence
        stream.waits()
        for batch in self._events.follow_after(id.boot_id, id.sequence):
            if batch.gap:
                position = batch.newest
                yield encode_gap(batch.boot_id, batch.oldest, batch.newest)
            elif batch.events:
                position = batch.events[-1].sequence
                yield wanted.blocks(list(entries(batch.boot_id, batch.events)))
            stream.waits()
            if position < batch.newest:
                continue
            span = self._broadcast.reached(EventId(batch.boot_id, position))
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
                allowed = self._still_allowed([stream.bearer for stream in streams])
            except Exception:  # noqa: BLE001 - logged, and repeated by the next sweep
                _log.exception("cannot check the tokens of open event streams")
                allowed = len(streams) * [True]
            now = self._times.clock()
            for stream, may in zip(streams, allowed, strict=True):
                # It may have ended meanwhile, and its greenlet may serve another request.
                if stream not in self._open:
                    continue
                if not may or (stream.deadline is not None and now > stream.deadline):
                    self._end(stream)

    def _end(self, stream: Stream) -> None:
        stream.ended = True
        if stream.listens:
            stream.wake()
        else:
            # Its client or the core may never wake it.
            stream.greenlet.kill(block=False)


def _end_the_worker(greenlet: Any) -> None:
    # The clients reconnect to another worker and resume. Here they would wait forever.
    _log.critical("the events of this worker have stopped: %r", greenlet.exception)
    os._exit(1)


#: Sessions that a worker watches: each requires a connection to the core.
_MOST = 64


class _Feed:
    """The traffic of one session: the last event as bytes, and its number."""

    def __init__(self) -> None:
        self.watchers = 0
        self.number = 0
        self.block = b""
        #: Why there will be no other event.
        self.over: GatewayApiError | None = None
        self.greenlet: Any = None
        #: Set at the next change, and then replaced by a new one.
        self.changed = Signal()

    def wake(self) -> None:
        changed, self.changed = self.changed, Signal()
        changed.set()

    def run(self, core: CoreClient, id: int) -> None:
        try:
            for reply in core.follow(WatchTraffic(id)):
                self.block = encode_unnumbered("traffic", reply)
                self.number += 1
                self.wake()
        except (NotFound, CoreUnavailable) as error:
            self.over = error
            self.wake()


class Feeds:
    """The sessions that clients of this worker watch, at most `most`."""

    def __init__(self, core: CoreClient, most: int = _MOST) -> None:
        self._core = core
        self._times = StreamTimes()
        self._most = most
        self._feeds: dict[int, _Feed] = {}

    def __len__(self) -> int:
        return len(self._feeds)

    def check(self, id: int) -> None:
        """Raises TooManyStreams where a session cannot be watched, too."""
        if id not in self._feeds and len(self) >= self._most:
            raise TooManyStreams(RETRY_AFTER)

    def pieces(self, stream: Stream, id: int) -> Generator[bytes, None, None]:
        """The events of a client, from the last one on, until the end of the session or of the stream. One
        that reads slowly gets the newest event next, not all. Raises CoreUnavailable."""
        feed = self._feeds.get(id) or self._started(id)
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

    def _started(self, id: int) -> _Feed:
        feed = self._feeds[id] = _Feed()
        feed.greenlet = gevent.spawn(feed.run, self._core, id)
        return feed

    def _events(self, stream: Stream, feed: _Feed, id: int) -> Generator[bytes, None, None]:
        number = 0
        due = self._times.clock() + self._times.heartbeat
        while not stream.ended:
            stream.listens, stream.deadline = True, None
            changed = feed.changed
            if feed.number != number:
                number, piece = feed.number, feed.block
            elif isinstance(feed.over, NotFound):
                yield encode_unnumbered("ended", Ended(id))
                return
            elif feed.over is not None:
                raise feed.over
            else:
                piece = b"" if changed.wait(max(0.0, due - self._times.clock())) else HEARTBEAT
            if piece:
                due = self._times.clock() + self._times.heartbeat
                yield piece

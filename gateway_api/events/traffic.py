"""The traffic of watched sessions in one worker, received once for all clients of the same session."""

from collections.abc import Generator
from typing import Any

import gevent
from gevent.event import Event as Signal

from gateway_api.events import sse
from gateway_api.events.broadcast import StreamTimes
from gateway_api.events.streams import RETRY_AFTER, Stream
from gateway_contract.base.errors import CoreUnavailable, GatewayApiError, NotFound, TooManyStreams
from gateway_contract.core.traffic import WatchTraffic
from gateway_contract.core_client.client import CoreClient
from gateway_contract.events import Ended

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
                self.block = sse.unnumbered("traffic", reply)
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
                yield sse.unnumbered("ended", Ended(id))
                return
            elif feed.over is not None:
                raise feed.over
            else:
                piece = b"" if changed.wait(max(0.0, due - self._times.clock())) else sse.HEARTBEAT
            if piece:
                due = self._times.clock() + self._times.heartbeat
                yield piece

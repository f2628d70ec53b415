"""Whole lists: one at a time in a worker, and one call for all requests that wait for the same list.

A list of 200,000 sessions takes 85 MB, several times over in the core and in the worker. Without a bound, 32
clients would use gigabytes of memory, and all of the processor.
"""

import threading
import time
from collections.abc import Callable, Hashable, Iterator, Sized
from contextlib import contextmanager
from functools import partial
from typing import Generic, TypeVar

from gateway_contract.base.errors import TooManyLists
from gateway_contract.base.idle_timer import IdleTimer

B = TypeVar("B", bound=Sized)

#: Bytes of lists that are being sent. Beyond them the next list waits. With that one, a worker stays below
#: the limit of unsent responses, beyond which slow clients are disconnected.
MOST = 32 << 20
#: Seconds after which a list that is being sent no longer counts: its clients are slow.
SLOW = 30.0
#: Seconds that a list waits for others. With the access check before it and the call after it, a request has
#: its response within 5 s.
PATIENCE = 0.5
#: Seconds that a list without requests is kept, and at most twice as many: a list of 100,000 sessions takes
#: 43 MB of each worker.
KEPT = 2.0


def _unchanged(body: B) -> B:
    return body


class _List(Generic[B]):
    """A list that is to be made, is being sent, or is kept."""

    def __init__(self, version: str | None) -> None:
        self.version = version
        self.done = threading.Event()
        self.body: B
        #: Bytes.
        self.size = 0
        self.error: Exception | None = None
        #: Requests that wait for it, or send it.
        self.readers = 0
        self.made_at = 0.0

    def hold(self, body: B) -> None:
        self.body, self.size = body, len(body)


class WholeLists(Generic[B]):
    """The lists of one worker. The length of a body is in bytes. `patience` and `kept` are in seconds, `most`
    in bytes; `clock` gives monotonic seconds."""

    def __init__(
        self,
        patience: float = PATIENCE,
        most: int = MOST,
        kept: float = KEPT,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._patience = patience
        self._most = most
        self._clock = clock
        self._changed = threading.Condition()
        #: Lists that other requests can join: their calls have not begun.
        self._next: dict[Hashable, _List[B]] = {}
        self._is_making = False
        self._sending: set[_List[B]] = set()
        #: All of one version, the list that was used last at the end.
        self._kept: dict[Hashable, _List[B]] = {}
        self._idle = IdleTimer(kept, self._kept.clear)

    def take(
        self,
        key: Hashable,
        make: Callable[[], B],
        version: str | None = None,
        finish: Callable[[B], B] = _unchanged,
    ) -> tuple[B, Callable[[], None]]:
        """Return the list that `make` returns, as `finish` changes it, and a function to call when it is
        sent. The next list does not wait for `finish`.

        All requests with this key that arrive before the call share it: no client gets a list that is older
        than its request. With a version, it is kept for later requests with that version. Raises the errors
        of `make` and `finish`, and TooManyLists after a long wait."""
        with self._changed:
            kept = self._kept.get(key)
            if kept is not None and kept.version == version:
                self._keep(key, kept)
                if not kept.readers:
                    # Otherwise a slow reader would hold others back for as long as there are quick ones.
                    kept.made_at = self._clock()
                kept.readers += 1
                self._sending.add(kept)
                return kept.body, partial(self._sent, kept)
            is_first = key not in self._next
            wanted = self._next.setdefault(key, _List(version))
            wanted.readers += 1
        if is_first:
            self._make(key, wanted, make, finish)
        wanted.done.wait()
        if wanted.error is not None:
            raise wanted.error
        if is_first and version is not None:
            with self._changed:
                self._keep(key, wanted)
        return wanted.body, partial(self._sent, wanted)

    def _keep(self, key: Hashable, made: _List[B]) -> None:
        # Nobody requests another version again.
        for other in [other for other, kept in self._kept.items() if kept.version != made.version]:
            del self._kept[other]
        self._kept.pop(key, None)
        self._kept[key] = made
        while len(self._kept) > 1 and sum(kept.size for kept in self._kept.values()) > self._most:
            del self._kept[next(iter(self._kept))]
        self._idle.restart()

    def _make(self, key: Hashable, wanted: _List[B], make: Callable[[], B], finish: Callable[[B], B]) -> None:
        # For the other requests, if this greenlet is killed.
        wanted.error = TooManyLists()
        try:
            with self._turn(key, wanted):
                wanted.hold(make())
            wanted.hold(finish(wanted.body))
            wanted.error = None
        except Exception as error:  # noqa: BLE001 - raised in each request
            wanted.error = error
        finally:
            with self._changed:
                if wanted.error is not None:
                    self._sending.discard(wanted)
                self._changed.notify_all()
            wanted.done.set()

    @contextmanager
    def _turn(self, key: Hashable, wanted: _List[B]) -> Iterator[None]:
        """The time in which the list is made, and no other one. Raises TooManyLists."""
        with self._changed:
            try:
                if not self._changed.wait_for(self._has_room, self._patience):
                    raise TooManyLists
            finally:
                del self._next[key]
            self._is_making = True
        try:
            yield
        finally:
            with self._changed:
                self._is_making = False
                wanted.made_at = self._clock()
                self._sending.add(wanted)
                self._changed.notify_all()

    def _sent(self, one: _List[B]) -> None:
        with self._changed:
            one.readers -= 1
            if not one.readers:
                self._sending.discard(one)
                self._changed.notify_all()

    def _has_room(self) -> bool:
        now = self._clock()
        self._sending = {one for one in self._sending if now - one.made_at < SLOW}
        return not self._is_making and sum(one.size for one in self._sending) < self._most

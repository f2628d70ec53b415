"""Cache of whole lists of the core. Requests that wait for the same list share one fetch, and a worker
fetches one list at a time.

A list of 200,000 sessions takes 85 MB, and the core and the worker hold several copies of it. Without a
limit, 32 clients would use gigabytes of memory and all of the processor time.
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

#: Bytes of lists that are being sent, above which the next list waits. Even with the next list, a worker
#: stays below the limit of unsent responses, above which slow clients are disconnected.
MAX_SENDING_BYTES = 32 << 20
#: Seconds after which a list that is being sent no longer counts, because its clients are slow.
MAX_SENDING_SECONDS = 30.0
#: Maximum time that a list waits before its fetch, in seconds. With the access check before the wait and the
#: call after the wait, a request gets its response within 5 s.
MAX_WAIT_SECONDS = 0.5
#: Minimum time for which a list without requests is cached, in seconds; the maximum is twice this time. A
#: list of 100,000 sessions takes 43 MB in each worker.
MIN_CACHE_SECONDS = 2.0


class _List(Generic[B]):
    """Whole list that is being fetched, is being sent, or is cached."""

    body: B

    def __init__(self, version: str | None) -> None:
        self.version = version
        self.is_done = threading.Event()
        self.error: Exception | None = None
        #: Number of requests that wait for the list, or send it.
        self.readers = 0
        self.fetched_at = 0.0


class WholeLists(Generic[B]):
    """Cache of the whole lists of one worker. `len` of a body must be the number of bytes. `wait` is the time
    limit for a list's turn, in seconds. `most` limits the size of the lists that are being sent, and of the
    cached lists, in bytes. `kept` is the time for which an unused list stays cached, in seconds. `clock`
    gives monotonic seconds."""

    def __init__(
        self,
        wait: float = MAX_WAIT_SECONDS,
        most: int = MAX_SENDING_BYTES,
        kept: float = MIN_CACHE_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._wait_seconds = wait
        self._max_bytes = most
        self._clock = clock
        self._condition = threading.Condition()
        #: Lists that other requests can join, because the call of `fetch` has not begun.
        self._joinable: dict[Hashable, _List[B]] = {}
        self._is_fetching = False
        self._sending: set[_List[B]] = set()
        #: Lists of one version, in the order of their last use.
        self._cached: dict[Hashable, _List[B]] = {}
        self._idle = IdleTimer(kept, self._cached.clear)

    def take(
        self,
        key: Hashable,
        fetch: Callable[[], B],
        version: str | None = None,
        finish: Callable[[B], B] | None = None,
    ) -> tuple[B, Callable[[], None]]:
        """Return the list that `fetch` returns and `finish` transforms, and a function that the caller must
        call when the list is sent. The worker may fetch the next list while `finish` runs.

        All requests with the same key that arrive before the call of `fetch` share the list, so no client
        gets a list that is older than the client's request. A list with a version is cached for later
        requests with the same version. Raises TooManyLists if the turn of the list does not come in time.
        Errors of `fetch` and `finish` are raised unchanged."""
        with self._condition:
            kept = self._cached.get(key)
            if kept is not None and kept.version == version:
                self._cache(key, kept)
                if not kept.readers:
                    # Only without readers: otherwise a slow reader would block other lists as long as there
                    # are fast readers.
                    kept.fetched_at = self._clock()
                kept.readers += 1
                self._sending.add(kept)
                return kept.body, partial(self._release, kept)
            is_first = key not in self._joinable
            whole_list = self._joinable.setdefault(key, _List(version))
            whole_list.readers += 1
        if is_first:
            self._fetch(key, whole_list, fetch, finish)
        whole_list.is_done.wait()
        if whole_list.error is not None:
            raise whole_list.error
        if is_first and version is not None:
            with self._condition:
                self._cache(key, whole_list)
        return whole_list.body, partial(self._release, whole_list)

    def _cache(self, key: Hashable, whole_list: _List[B]) -> None:
        # Lists of other versions are never requested again.
        for other in [other for other, kept in self._cached.items() if kept.version != whole_list.version]:
            del self._cached[other]
        self._cached.pop(key, None)
        self._cached[key] = whole_list
        while (
            len(self._cached) > 1 and sum(len(kept.body) for kept in self._cached.values()) > self._max_bytes
        ):
            del self._cached[next(iter(self._cached))]
        self._idle.restart()

    def _fetch(
        self, key: Hashable, whole_list: _List[B], fetch: Callable[[], B], finish: Callable[[B], B] | None
    ) -> None:
        # For the other requests, if this greenlet is killed.
        whole_list.error = TooManyLists()
        try:
            with self._take_turn(key):
                whole_list.body = fetch()
                with self._condition:
                    whole_list.fetched_at = self._clock()
                    self._sending.add(whole_list)
            if finish is not None:
                whole_list.body = finish(whole_list.body)
            whole_list.error = None
        except Exception as error:  # noqa: BLE001 - raised in each request
            whole_list.error = error
        finally:
            with self._condition:
                if whole_list.error is not None:
                    self._sending.discard(whole_list)
                self._condition.notify_all()
            whole_list.is_done.set()

    @contextmanager
    def _take_turn(self, key: Hashable) -> Iterator[None]:
        """Wait until no other list is being fetched, and until the lists that are being sent leave room for
        another list. While the body of the with statement runs, no other list is fetched. Raises TooManyLists
        if the wait exceeds the time limit."""
        with self._condition:
            try:
                if not self._condition.wait_for(self._has_room, self._wait_seconds):
                    raise TooManyLists
            finally:
                del self._joinable[key]
            self._is_fetching = True
        try:
            yield
        finally:
            with self._condition:
                self._is_fetching = False
                self._condition.notify_all()

    def _release(self, whole_list: _List[B]) -> None:
        with self._condition:
            whole_list.readers -= 1
            if not whole_list.readers:
                self._sending.discard(whole_list)
                self._condition.notify_all()

    def _has_room(self) -> bool:
        now = self._clock()
        self._sending = {each for each in self._sending if now - each.fetched_at < MAX_SENDING_SECONDS}
        return not self._is_fetching and sum(len(each.body) for each in self._sending) < self._max_bytes

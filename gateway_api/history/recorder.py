"""Records sessions in the history: one worker at a time follows the core's events.

The core holds its latest events, so those of a time without any worker come later. Where it does not hold
them, or is another run of the core, the history has a hole: the recorder compares it with the sessions that
are up, and marks those that are gone.
"""

import fcntl
import logging
import os
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import gevent

from gateway_api.base.core_events import Events
from gateway_api.base.retry import repeat
from gateway_api.history.database import in_use
from gateway_api.history.sessions import FeedPlace, HistoryStore
from gateway_api.history.sign_ons import SignOnRecorder
from gateway_api.history.traffic import TrafficRecorder
from gateway_contract.base.errors import CoreLacksMethod, CoreUnavailable
from gateway_contract.base.logs import LOG
from gateway_contract.base.process import ThreadPool, on_thread
from gateway_contract.configuration import History
from gateway_contract.contract import Page
from gateway_contract.core.configuration import HistoryLimits
from gateway_contract.core.sessions import EventsReply, ListSessions
from gateway_contract.core_client import CoreClient
from gateway_contract.varlink.client import Client

#: Sessions in one call of a comparison. All of them at once would double a worker's memory.
_AT_ONCE = 1000
#: Seconds between two looks at the limits, and at most so many removals of some sessions each time.
_TRIM = 10.0
_MOST_REMOVALS = 100
#: No run of the core has this name.
_NO_BOOT = "none"


def start(core_socket: Path, path: Path, pool: ThreadPool) -> None:
    """Start greenlets that record until the process ends."""
    core = CoreClient(Client(core_socket))
    sessions = Recorder(core, Events(core), path, pool).record
    failures = SignOnRecorder(core, path, pool).record
    traffic = TrafficRecorder(core, path, pool).record
    gevent.spawn(SingleWorker(sessions, "sessions", path.with_suffix(".lock")).run)
    gevent.spawn(SingleWorker(failures, "failed sign-ons", path.with_suffix(".sign-ons.lock")).run)
    gevent.spawn(SingleWorker(traffic, "the traffic", path.with_suffix(".traffic.lock")).run)


class Recorder:
    def __init__(self, core: CoreClient, events: Events, path: Path, pool: ThreadPool) -> None:
        self._core = core
        self._events = events
        self._path = path
        self._pool = pool
        self._trimmed = -_TRIM

    def record(self) -> None:
        """Record until the core breaks off, or the file is replaced. Raises CoreUnavailable, OSError and
        sqlite3.Error."""
        with in_use(on_thread(self._pool, HistoryStore, self._path), self._pool) as store:
            place = on_thread(self._pool, store.place)
            while store.is_current:
                place = self._follow(store, place)

    def _follow(self, store: HistoryStore, place: FeedPlace | None) -> FeedPlace | None:
        """Record events up to the next hole or fault. Return where it has come to."""
        after = (_NO_BOOT, 0) if place is None else (place.boot_id, place.sequence)
        for batch in self._events.follow_after(*after):
            if batch.gap:
                return self._compare(store, batch, after[0] == batch.boot_id)
            sequence = batch.events[-1].sequence if batch.events else place.sequence if place else 0
            place = FeedPlace(batch.boot_id, sequence, int(time.time()))
            on_thread(self._pool, store.add, batch.events, place)
            self._trim(store)
            if not store.is_current:
                break
        return place

    def _compare(self, store: HistoryStore, batch: EventsReply, same_run: bool) -> FeedPlace:
        """Close a hole. Events that the core still holds come next: those that are known change nothing."""
        place = FeedPlace(batch.boot_id, batch.oldest - 1, int(time.time()))
        on_thread(self._pool, store.begin_comparison)
        cursor = None
        while True:
            reply = self._core.call(ListSessions(page=Page(_AT_ONCE, cursor)))
            on_thread(self._pool, store.compare, reply.sessions, place.at)
            cursor = reply.next_cursor
            if cursor is None:
                break
        lost = on_thread(self._pool, store.end_comparison, place)
        if lost and same_run:
            LOG.warning("the history has a hole: %d sessions ended, and their ends are not known", lost)
        elif lost:
            # Expected: the sessions of the lab end with its process.
            LOG.info("the core was restarted: %d sessions ended, and their ends are not known", lost)
        return place

    def _trim(self, store: HistoryStore) -> None:
        if time.monotonic() - self._trimmed < _TRIM:
            return
        self._trimmed = time.monotonic()
        limits = HistoryLimits(History.days, History.mebibytes)
        with suppress(CoreLacksMethod):
            limits = self._core.get_settings().history
        for _ in range(_MOST_REMOVALS):
            if not on_thread(self._pool, store.trim, limits, int(time.time())):
                return
        # The rest soon, and events before it.
        self._trimmed = -_TRIM


class SingleWorker:
    """Runs `record` while this process has the lock, again after each fault. `what` it records is for the
    log."""

    def __init__(self, record: Callable[[], None], what: str, lock: Path) -> None:
        self._record = record
        self._what = what
        self._lock = lock

    def run(self) -> None:
        what = f"record {self._what} in the history"
        # If this greenlet ended, nothing later would be recorded.
        for _ in repeat(self._turn, gevent.sleep, what, LOG, level=logging.ERROR, fault=f"cannot {what}"):
            pass

    def _turn(self) -> Iterator[None]:
        """Records, if no other worker does."""
        lock = os.open(self._lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        is_alone = False
        try:
            with suppress(BlockingIOError):
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                is_alone = True
            if is_alone:
                self._record()
            yield
        except CoreUnavailable as error:
            # The core reports its own absence elsewhere.
            LOG.debug("cannot record %s in the history: %s", self._what, error)
        finally:
            os.close(lock)

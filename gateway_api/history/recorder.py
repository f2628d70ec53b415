"""Recorders of the history: one worker at a time records the core's events, the failed sign-ons and the
traffic.

The core keeps its latest events, so that a recorder can later fetch the events of a time when no worker ran.
If the core no longer has these events, or was restarted, the history has a gap. The recorder then compares
the history with the sessions that are up, and marks the sessions that have ended.
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
from gateway_api.history.database import use_writer
from gateway_api.history.sessions import EventPosition, SessionWriter
from gateway_api.history.sign_ons import SignOnRecorder
from gateway_api.history.traffic import TrafficRecorder
from gateway_contract.base.errors import CoreLacksMethod, CoreUnavailable
from gateway_contract.base.logs import LOG
from gateway_contract.base.process import ThreadPool, run_on_thread
from gateway_contract.base.retry import repeat
from gateway_contract.configuration import History
from gateway_contract.contract import Page
from gateway_contract.core.configuration import HistoryLimits
from gateway_contract.core.sessions import EventsReply, ListSessions
from gateway_contract.core_client import CoreClient
from gateway_contract.varlink.client import Client

#: Sessions in one call of a comparison. All of them at once would double a worker's memory.
_SESSIONS_PER_COMPARISON = 1000
#: Seconds between two looks at the limits, and the removals of some sessions after one look.
_TRIM_INTERVAL_SECONDS = 10.0
_MAX_REMOVALS_PER_TRIM = 100
#: No run of the core has this name.
_NO_BOOT_ID = "none"


def start(core_socket: Path, path: Path, pool: ThreadPool) -> None:
    """Start the greenlets that record the history until the process exits."""
    core = CoreClient(Client(core_socket))
    for recorder, what, suffix in (
        (SessionRecorder(core, Events(core), path, pool), "sessions", ".lock"),
        (SignOnRecorder(core, path, pool), "failed sign-ons", ".sign-ons.lock"),
        (TrafficRecorder(core, path, pool), "the traffic", ".traffic.lock"),
    ):
        gevent.spawn(SingleWorker(recorder.record, what, path.with_suffix(suffix)).run)


class SessionRecorder:
    """Recorder of sessions, which follows the core's events."""

    def __init__(self, core: CoreClient, events: Events, path: Path, pool: ThreadPool) -> None:
        self._core = core
        self._events = events
        self._path = path
        self._pool = pool
        self._trimmed_at = -_TRIM_INTERVAL_SECONDS

    def record(self) -> None:
        """Record sessions until the core ends the stream or the file is replaced. Raises CoreUnavailable if
        the core is unavailable, and OSError or sqlite3.Error if the history cannot be written."""
        with use_writer(SessionWriter, self._path, self._pool) as writer:
            position = run_on_thread(self._pool, writer.read_position)
            while writer.is_current:
                position = self._follow(writer, position)

    def _follow(self, writer: SessionWriter, position: EventPosition | None) -> EventPosition | None:
        """Record the events after `position` up to the next gap, or until the file is replaced. Close the
        gap. Return the position after which to continue."""
        after = (_NO_BOOT_ID, 0) if position is None else (position.boot_id, position.sequence)
        for batch in self._events.follow_after(*after):
            if batch.gap:
                return self._compare(writer, batch, after[0] == batch.boot_id)
            sequence = batch.events[-1].sequence if batch.events else position.sequence if position else 0
            position = EventPosition(batch.boot_id, sequence, int(time.time()))
            run_on_thread(self._pool, writer.add, batch.events, position)
            self._trim(writer)
            if not writer.is_current:
                break
        return position

    def _compare(self, writer: SessionWriter, batch: EventsReply, is_same_run: bool) -> EventPosition:
        """Close a gap: compare the history with the sessions that are up. `batch` is the core's reply that
        reports the gap. Return the position before the oldest event that the core still has, so that the core
        sends this event next. Events that the history already has change nothing. `is_same_run` is False
        after a restart of the core."""
        position = EventPosition(batch.boot_id, batch.oldest - 1, int(time.time()))
        run_on_thread(self._pool, writer.begin_comparison)
        cursor = None
        while True:
            reply = self._core.call(ListSessions(page=Page(_SESSIONS_PER_COMPARISON, cursor)))
            run_on_thread(self._pool, writer.compare, reply.sessions, position.at)
            cursor = reply.next_cursor
            if cursor is None:
                break
        lost_count = run_on_thread(self._pool, writer.end_comparison, position)
        if lost_count and is_same_run:
            LOG.warning("the history has a gap: %d sessions ended meanwhile, end times unknown", lost_count)
        elif lost_count:
            # Not a warning: the sessions of the lab end with its process.
            LOG.info("core restarted: %d sessions ended meanwhile, end times unknown", lost_count)
        return position

    def _trim(self, writer: SessionWriter) -> None:
        if time.monotonic() - self._trimmed_at < _TRIM_INTERVAL_SECONDS:
            return
        self._trimmed_at = time.monotonic()
        limits = HistoryLimits(History.days, History.mebibytes)
        with suppress(CoreLacksMethod):
            limits = self._core.get_settings().history
        for _ in range(_MAX_REMOVALS_PER_TRIM):
            if not run_on_thread(self._pool, writer.trim, limits, int(time.time())):
                return
        # Trim the rest after the next batch of events.
        self._trimmed_at = -_TRIM_INTERVAL_SECONDS


class SingleWorker:
    """Runner of a recorder: calls `record` while this process has the lock, and again after each failure.
    `what` is the name of the records in log lines, and `lock` is the path of the lock file."""

    def __init__(self, record: Callable[[], None], what: str, lock: Path) -> None:
        self._record = record
        self._what = what
        self._lock = lock

    def run(self) -> None:
        what = f"record {self._what} in the history"
        # If this greenlet ended, nothing later would be recorded.
        for _ in repeat(
            self._record_if_alone,
            gevent.sleep,
            what,
            LOG,
            level=logging.ERROR,
            fault=f"cannot {what}",
        ):
            pass

    def _record_if_alone(self) -> Iterator[None]:
        """Call `record` unless another worker has the lock. Then yield, so that the caller can wait before
        the next attempt. If the core is unavailable, end without an error."""
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
            LOG.debug("cannot record %s in the history while the core is unavailable: %s", self._what, error)
        finally:
            os.close(lock)

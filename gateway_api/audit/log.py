"""The audit log of a worker: two trails in one folder, for users and for requests without a user.

Each has its own size, so that no flood of requests without a user removes the record of a change. Requests
without a user are counted, and cost no sync: anybody can send them, and they would wear out a flash disk.
"""

import errno
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from heapq import merge
from itertools import repeat
from math import inf
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from gateway_api.audit.record import AuditEntry, Counted, Filter, Result, gap
from gateway_api.audit.trail import AuditDatabase, LogPlace, OpenCall
from gateway_contract.base import durable
from gateway_contract.base.errors import AuditUnavailable, ListTooLarge
from gateway_contract.base.logs import LOG
from gateway_contract.base.pages import FoundPage, cursor_of, place_at
from gateway_contract.base.process import ThreadPool, on_thread
from gateway_contract.contract import MAX_LIMIT, Page

T = TypeVar("T")


#: Free bytes of the disk below which changes are rejected: more than the records of all concurrent changes.
_ROOM = 4 << 20
#: Seconds between two writes of counted requests by one worker.
INTERVAL = 2.0

_TRAILS = ("known", "strangers")


class _Batch:
    """Records for one commit. During a commit, the next batch collects records."""

    def __init__(self) -> None:
        self.records: list[str] = []
        self.over = False
        #: It stays if the writer is stopped during the commit.
        self.failure: Exception | None = OSError(errno.EINTR, os.strerror(errno.EINTR))


class BatchWriter:
    """Appends to a trail, for any greenlet or thread of a process."""

    def __init__(self, trail: AuditDatabase, pool: ThreadPool) -> None:
        self._trail = trail
        self._pool = pool
        self._guard = threading.Lock()
        self._writing = threading.Lock()
        self._next = _Batch()

    def add(self, record: str) -> None:
        """Return when the record is on disk. Raises AuditUnavailable."""
        with self._guard:
            batch = self._next
            batch.records.append(record)
        with self._writing:
            if not batch.over:
                self._write(batch)
        if batch.failure is not None:
            raise AuditUnavailable("write", batch.failure) from batch.failure

    def _write(self, batch: _Batch) -> None:
        with self._guard:
            self._next = _Batch()
        # Before the write: if this writer is stopped, the next one must not write the records again.
        batch.over = True
        try:
            on_thread(self._pool, self._trail.append, batch.records)
            batch.failure = None
        except Exception as error:  # noqa: BLE001 - raised in each `add`
            batch.failure = error


class Counter:
    """Counts requests that are alike, and writes what it counted at most every `INTERVAL` seconds, for any
    greenlet or thread of a process. `clock` gives monotonic seconds; `later` is as threading.Timer."""

    def __init__(
        self,
        trail: AuditDatabase,
        pool: ThreadPool,
        most: int,
        clock: Callable[[], float] = time.monotonic,
        later: Callable[[float, Callable[[], None]], threading.Timer] = threading.Timer,
    ) -> None:
        self._trail = trail
        self._pool = pool
        #: Bytes of records that may wait, while a disk hangs too.
        self._most = most
        self._clock = clock
        self._later = later
        self._guard = threading.Lock()
        self._writing = threading.Lock()
        self._waiting: dict[tuple[int, str], Counted] = {}
        self._bytes = 0
        self._left_out = 0
        self._is_due = False
        self._written_at = -inf

    def add(self, record: AuditEntry) -> None:
        """Return at once; the record is in the trail within `INTERVAL` seconds."""
        one = Counted.one(record)
        at = (one.minute, one.key)
        with self._guard:
            before = self._waiting.get(at)
            if before is not None:
                self._waiting[at] = before.plus(one)
            elif self._bytes + len(one.first) > self._most:
                self._left_out += 1
            else:
                self._waiting[at] = one
                self._bytes += len(one.first)
            is_due, self._is_due = self._is_due, True
        if not is_due:
            timer = self._later(max(0.0, self._written_at + INTERVAL - self._clock()), self.write)
            timer.daemon = True
            timer.start()

    def write(self) -> None:
        """Write what was counted. A failure is logged, and the requests are lost."""
        with self._writing:
            with self._guard:
                waiting, self._waiting = list(self._waiting.values()), {}
                left_out, self._left_out, self._bytes = self._left_out, 0, 0
                self._is_due, self._written_at = False, self._clock()
            reason: object = "too many are different"
            try:
                if waiting:
                    on_thread(self._pool, self._trail.count, waiting)
            except (OSError, sqlite3.Error) as error:
                left_out += sum(each.count for each in waiting)
                reason = error
        if left_out:
            LOG.error("%d requests without a valid token are not in the audit log: %s", left_out, reason)


class AuditLog:
    """Each of the two trails takes at most `size` bytes. `beside` is the folder of another service's log,
    which is read together with this one, if permitted."""

    def __init__(self, folder: Path, size: int, pool: ThreadPool, beside: Path | None = None) -> None:
        self._folder = folder
        self._pool = pool
        self._beside = beside
        known, strangers = _TRAILS
        self._trails = [
            AuditDatabase(folder, known, size),
            AuditDatabase(folder, strangers, size, synced=False),
        ]
        self._known = BatchWriter(self._trails[0], pool)
        self._strangers = Counter(self._trails[1], pool, self._trails[1].log_size)
        self._lost = 0
        self._reading = threading.Lock()

    def check(self) -> None:
        """Raises AuditUnavailable if the record of a change could not be written."""
        try:
            durable.require_writable(self._folder)
            durable.require_room(self._folder, _ROOM)
        except OSError as error:
            raise AuditUnavailable("write", error) from error
        if self._lost:
            self._record_the_lost()

    def add(self, record: AuditEntry) -> None:
        """Return when the record of a user is on disk, or AuditUnavailable is raised. One without a role is
        counted, and on disk some seconds later."""
        if not record.role:
            self._strangers.add(record)
            return
        try:
            self._known.add(record.text())
        except AuditUnavailable:
            self._lost += 1
            raise

    def close(self) -> None:
        """Write what is only counted, at the end of a worker."""
        self._strangers.write()

    def read(self, wanted: Filter, page: Page | None) -> FoundPage[msgspec.Raw]:
        """Return the matching records as JSON, each with an `id`, newest first: a page of them, or all.
        Raises Invalid for a wrong cursor, ListTooLarge and AuditUnavailable."""
        # One at a time, as the pool has few threads.
        with self._reading:
            return self._on_thread("read", _read, self._readable(), wanted, page)

    def place(self) -> LogPlace | None:
        """Return the last change of the core that is recorded. Raises AuditUnavailable."""
        return self._on_thread("read", self._trails[0].place)

    def add_changes(self, records: Sequence[AuditEntry], before: LogPlace | None, after: LogPlace) -> None:
        """Record changes of the core and set the place to `after`; nothing if it is not `before`, as another
        process has recorded them. Raises AuditUnavailable."""
        texts = [record.text() for record in records]
        self._on_thread("write", self._trails[0].append_changes, texts, before, after)

    def open_calls(self, most: int) -> list[OpenCall]:
        """Return the changes whose outcome the core has to tell, at most so many. Raises AuditUnavailable."""
        return self._on_thread("read", self._trails[0].open_calls, most)

    def close_calls(self, outcomes: Mapping[OpenCall, tuple[Result, str]]) -> None:
        """Give the records of these changes a result and a message. Raises AuditUnavailable."""
        self._on_thread("write", self._trails[0].close_calls, outcomes)

    def _on_thread(self, verb: str, function: Callable[..., T], *arguments: Any) -> T:
        try:
            return on_thread(self._pool, function, *arguments)
        except (OSError, sqlite3.Error) as error:
            raise AuditUnavailable(verb, error) from error

    def _readable(self) -> list[AuditDatabase]:
        if self._beside is None or not os.access(self._beside, os.R_OK | os.X_OK):
            return self._trails
        return [*self._trails, *(AuditDatabase(self._beside, name) for name in _TRAILS)]

    def _record_the_lost(self) -> None:
        lost, self._lost = self._lost, 0
        try:
            message = f"{lost} records before this one could not be written; they are in the log"
            self._known.add(gap(time.time(), message).text())
        except AuditUnavailable:
            self._lost += lost
            raise


def prepare_folder(folder: Path) -> None:
    """Make the folder if its parent exists. With a folder that is read-only or full the service starts, and
    the log says so. Raises OSError for any other reason."""
    try:
        folder.mkdir(mode=0o750, exist_ok=True)
        durable.require_writable(folder)
    except OSError as error:
        if not durable.is_unwritable(error):
            raise
        LOG.error("cannot write the audit log, so changes are refused: %s", error)


def _read(trails: Sequence[AuditDatabase], wanted: Filter, page: Page | None) -> FoundPage[msgspec.Raw]:
    """A page ends at a number in each trail, and the next page continues below these numbers. So it
    neither misses nor repeats a record, even if records are added or removed, or the clock is set."""
    most = MAX_LIMIT if page is None else page.limit
    start: Sequence[int | None] = [None] * len(trails)
    if page is not None and page.cursor is not None:
        start = place_at(page.cursor, len(trails))
    reached: list[int] = []
    records: list[msgspec.Raw] = []
    with ExitStack() as opened:
        found = []
        for index, trail in enumerate(trails):
            below, rows = opened.enter_context(trail.newest_first(wanted, start[index]))
            reached.append(below)
            found.append(zip(repeat(index), rows, strict=False))
        for index, row in merge(*found, key=lambda each: -each[1].at):
            if len(records) == most:
                if page is None:
                    raise ListTooLarge
                return FoundPage(records, cursor_of(reached))
            text = f'{{"id":"{trails[index].label}-{row.number}",{row.record[1:]}'
            records.append(msgspec.Raw(text.encode()))
            reached[index] = row.number
    return FoundPage(records)

"""The audit log of a worker: two trails in one folder, of users and of strangers.

Each has a size of its own, so that no flood of strangers removes the record of a change.
"""

import base64
import binascii
import errno
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from heapq import merge
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from gateway_api.audit.record import AuditEntry, gap
from gateway_api.audit.trail import Filter, Place, Row, Trail
from gateway_api.base.errors import AnswerTooLarge, AuditUnavailable, Invalid, Problem
from gateway_api.base.process import ThreadPool
from gateway_api.wire.contract import Page

#: Records in one response.
MOST = 10_000
#: Free bytes of the disk below which nothing is changed: more than all changes under way might write.
_ROOM = 4 << 20

KNOWN, STRANGERS = "known", "strangers"


class RecordList(NamedTuple):
    """Records as JSON, each with an `id`; `next_cursor` is None at the end."""

    records: list[msgspec.Raw]
    next_cursor: str | None


class _Batch:
    """Records that one commit writes. While one is on its way to the disk, the next one gathers."""

    def __init__(self) -> None:
        self.records: list[str] = []
        self.over = False
        #: What is known of a batch whose writer was stopped.
        self.failure: Exception | None = OSError(errno.EINTR, os.strerror(errno.EINTR))


class BatchWriter:
    """Appends to a trail for any greenlet or thread of a process. The disk is waited for on a thread of
    `pool`, so that the worker's other requests go on."""

    def __init__(self, trail: Trail, pool: ThreadPool) -> None:
        self._trail = trail
        self._pool = pool
        self._guard = threading.Lock()
        self._writing = threading.Lock()
        self._next = _Batch()

    def add(self, record: str) -> None:
        """Returns when the record is on disk. Raises AuditUnavailable."""
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
        batch.failure = self._pool.apply(_failure, (self._trail.append, batch.records))


class AuditLog:
    """`size` is the most bytes that each of the two trails takes. `beside` is the folder of another service's
    log, which is read with this one if it is there and may be read."""

    def __init__(self, folder: Path, size: int, pool: ThreadPool, beside: Path | None = None) -> None:
        self._folder = folder
        self._pool = pool
        self._beside = beside
        self._trails = [Trail(folder, name, size) for name in (KNOWN, STRANGERS)]
        self._known, self._strangers = (BatchWriter(trail, pool) for trail in self._trails)
        self._lost = 0
        self._reading = threading.Lock()

    def check(self) -> None:
        """Raises AuditUnavailable when what is done now could not be recorded afterwards."""
        try:
            disk = os.statvfs(self._folder)
        except OSError as error:
            raise AuditUnavailable("write", error) from error
        if disk.f_bavail * disk.f_frsize < _ROOM:
            raise AuditUnavailable("write", f"less than {_ROOM} bytes are free in {self._folder}")
        if self._lost:
            self._record_the_lost()

    def add(self, record: AuditEntry) -> None:
        """Returns when it is on disk. Raises AuditUnavailable."""
        try:
            (self._known if record.role else self._strangers).add(record.text())
        except AuditUnavailable:
            if record.role:
                self._lost += 1
            raise

    def read(self, wanted: Filter, page: Page | None) -> RecordList:
        """The records that match, the newest first; a page of them, or all. Raises Invalid for a cursor that
        no page gave, AnswerTooLarge and AuditUnavailable."""
        # One at a time: the threads are for others as well.
        with self._reading:
            result: RecordList = self._apart("read", _read, self._readable(), wanted, page)
            return result

    def place(self) -> Place | None:
        """The last change of the core that is recorded. Raises AuditUnavailable."""
        place: Place | None = self._apart("read", self._trails[0].place)
        return place

    def add_changes(self, records: Sequence[AuditEntry], before: Place | None, after: Place) -> None:
        """Records changes of the core and moves the place on; nothing if another process has moved it from
        `before`. Raises AuditUnavailable."""
        texts = [record.text() for record in records]
        self._apart("write", self._trails[0].append_changes, texts, before, after)

    def _apart(self, verb: str, function: Callable[..., Any], *arguments: Any) -> Any:
        """What a function returns that waits for the disk."""
        found: list[Any] = []
        failure = self._pool.apply(_failure, (lambda: found.append(function(*arguments)),))
        if isinstance(failure, OSError | sqlite3.Error):
            raise AuditUnavailable(verb, failure) from failure
        if failure is not None:
            raise failure
        return found[0]

    def _readable(self) -> list[Trail]:
        if self._beside is None or not os.access(self._beside, os.R_OK | os.X_OK):
            return self._trails
        return [*self._trails, *(Trail(self._beside, name) for name in (KNOWN, STRANGERS))]

    def _record_the_lost(self) -> None:
        lost, self._lost = self._lost, 0
        try:
            message = f"{lost} records before this one could not be written; they are in the log"
            self._known.add(gap(time.time(), message).text())
        except AuditUnavailable:
            self._lost += lost
            raise


def prepare_folder(folder: Path) -> None:
    """Makes the folder if the one above it is there. Raises OSError for one that can't be written to."""
    folder.mkdir(mode=0o750, exist_ok=True)
    if not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
        raise PermissionError(f"{folder} can't be written to")


def _failure(function: Callable[..., object], *arguments: object) -> Exception | None:
    # Returned, not raised: gevent prints what a function on a thread raises.
    try:
        function(*arguments)
    except Exception as error:  # noqa: BLE001 - raised by who waits
        return error
    return None


def _read(trails: Sequence[Trail], wanted: Filter, page: Page | None) -> RecordList:
    """A page ends at a number in each trail. The next one continues below these numbers, so it neither misses
    nor repeats a record, whatever was added or removed meanwhile, and however often the clock was set."""
    most = MOST if page is None else page.limit
    start = _numbers(page, len(trails))
    reached: list[int] = []
    records: list[msgspec.Raw] = []
    with ExitStack() as opened:
        found: list[Iterator[tuple[int, Row]]] = []
        for index, trail in enumerate(trails):
            below, rows = opened.enter_context(trail.newest_first(wanted, start[index]))
            reached.append(below)
            found.append(_numbered(index, rows))
        for index, row in merge(*found, key=lambda each: -each[1].at):
            if len(records) == most:
                if page is None:
                    raise AnswerTooLarge("The whole list is too large for one answer; use limit")
                return RecordList(records, _cursor(reached))
            text = f'{{"id":"{trails[index].label}-{row.number}",{row.record[1:]}'
            records.append(msgspec.Raw(text.encode()))
            reached[index] = row.number
    return RecordList(records, None)


def _numbered(index: int, rows: Iterator[Row]) -> Iterator[tuple[int, Row]]:
    return ((index, row) for row in rows)


def _cursor(numbers: list[int]) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode(numbers)).rstrip(b"=").decode()


def _numbers(page: Page | None, trails: int) -> Sequence[int | None]:
    if page is None or page.cursor is None:
        return [None] * trails
    try:
        raw = base64.b64decode(page.cursor + "=" * (-len(page.cursor) % 4), altchars=b"-_", validate=True)
        numbers = msgspec.json.decode(raw, type=list[int])
        if len(numbers) != trails or not 0 <= min(numbers) <= max(numbers) < 1 << 63:
            raise ValueError("not of these trails")
    except (binascii.Error, ValueError, RecursionError) as error:
        message = "must be what the last page gave as next_cursor"
        raise Invalid(Problem("cursor", "invalid", message)) from error
    return numbers

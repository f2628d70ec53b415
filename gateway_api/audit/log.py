"""The audit log of a worker: two trails in one folder, for users and for requests without a user.

A trail is an SQLite database to which several processes write. A trail deletes its oldest records when it
reaches its maximum size. Each trail has its own size, so that a flood of requests without a user cannot push
out records of changes. The record of a user's request is on disk when the commit returns. Requests without a
user are counted and cause no sync of the disk: anyone can send such requests, and the syncs would wear out a
flash disk.

The log also contains changes that other clients than the API made at the core. The core keeps these changes
while the API is down. When the core's reply to a change by the API was lost, the API asks the core for the
outcome. One commit stores the records together with the position in the core's log. So each change is
recorded exactly once, even if several workers try to record the change.
"""

import errno
import itertools
import os
import sqlite3
import stat
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from heapq import merge
from math import inf
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import msgspec

from gateway_api.audit.record import (
    AuditEntry,
    Filter,
    RequestCount,
    Result,
    describe_session,
    make_entry,
    make_gap,
    mask_secrets,
)
from gateway_contract.base import databases, durable
from gateway_contract.base.databases import DatabaseFile
from gateway_contract.base.errors import AuditUnavailable, CoreLacksMethod, ListTooLarge
from gateway_contract.base.logs import LOG
from gateway_contract.base.pages import FoundPage, decode_numeric_cursor, encode_cursor
from gateway_contract.base.process import ThreadPool, run_on_thread
from gateway_contract.base.retry import repeat
from gateway_contract.contract import MAX_LIMIT, Page
from gateway_contract.core.configuration import ChangeRecord, ChangesReply, ListChanges, ResolveCalls
from gateway_contract.core_client import CoreClient
from gateway_contract.varlink.client import Client

#: Calls whose outcome one reply of the core has.
_MAX_RESOLVED_CALLS = 100
_REPLY_LOST_TEXT = "The core's reply was lost"
#: Prefixes of the names of actions that change sessions.
_SESSION_ACTION_PREFIXES = ("subscribers.", "jobs.")
#: The role of a client of the core's socket, and of the core.
_SYSTEM_ROLE = "system"

_SCHEMA = """
BEGIN IMMEDIATE;
CREATE TABLE IF NOT EXISTS record (
    number INTEGER PRIMARY KEY,
    at REAL NOT NULL AS (json_extract(record, '$.at')) STORED,
    user TEXT AS (json_extract(record, '$.user')) STORED,
    action TEXT NOT NULL AS (json_extract(record, '$.action')) STORED,
    route TEXT AS (json_extract(record, '$.route')) STORED,
    result TEXT NOT NULL AS (json_extract(record, '$.result')) STORED,
    record TEXT NOT NULL
);
CREATE INDEX IF NOT EXISTS record_at ON record (at);
CREATE INDEX IF NOT EXISTS record_user ON record (user);
CREATE INDEX IF NOT EXISTS record_action ON record (action);
CREATE INDEX IF NOT EXISTS record_route ON record (route);
CREATE INDEX IF NOT EXISTS record_result ON record (result);
CREATE TABLE IF NOT EXISTS place (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    log TEXT NOT NULL,
    sequence INTEGER NOT NULL
);
CREATE TABLE IF NOT EXISTS counted (
    minute INTEGER NOT NULL,
    key TEXT NOT NULL,
    number INTEGER NOT NULL,
    PRIMARY KEY (minute, key)
) WITHOUT ROWID;
COMMIT;
"""
_INTO_POSITION = "INTO place VALUES (1, :log, :sequence)"
#: The newest record stays, or a later record would get its number again.
_DELETE_OLDEST = """
DELETE FROM record WHERE number IN (
    SELECT number FROM record WHERE number < (SELECT max(number) FROM record) ORDER BY number LIMIT 16
)
"""
#: The record of counted requests. Requests of a minute may be written when the minute has ended.
_SELECT_COUNTED = """
SELECT number, record FROM counted JOIN record USING (number) WHERE minute = ? AND key = ?
"""
_FORGET_OTHER_MINUTES = "DELETE FROM counted WHERE minute NOT BETWEEN ? AND ?"
_SELECT_RECORDS = "SELECT number, at, record FROM record WHERE {} ORDER BY number DESC"
#: Records that may change: the calls without a known outcome, and the counted requests.
_SELECT_AFTER = """
SELECT number, at, record, number IN (SELECT number FROM counted)
OR (result = 'unanswered' AND json_extract(record, '$.call_id') IS NOT NULL)
FROM record WHERE number > ? ORDER BY number LIMIT ?
"""
#: Quick: few records are unanswered, and an index has them.
_SELECT_OPEN_CALLS = """
SELECT number, json_extract(record, '$.call_id') AS call, action FROM record
WHERE result = 'unanswered' AND call IS NOT NULL ORDER BY number DESC LIMIT ?
"""
_CALL_RESULT_UPDATE = """
UPDATE record SET record = json_set(record, '$.result', ?, '$.message', ?, '$.call_id', null)
WHERE number = ? AND json_extract(record, '$.call_id') = ?
"""
#: The index of times bounds the numbers, but cannot order the records: the clock may have been set back.
_WITHIN_TIMES_CONDITION = """
number BETWEEN (SELECT min(number) FROM record WHERE at >= ? AND at < ?)
AND (SELECT max(number) FROM record WHERE at >= ? AND at < ?) AND +at >= ? AND +at < ?
"""
#: The service's user writes, its group reads.
_FILE_MODE = 0o640
#: Seconds that a write waits for writes of other processes, and so for the disk.
_WRITE_TIMEOUT_SECONDS = 30.0
#: Seconds that a reader waits to be the only one.
_EXCLUSIVE_READ_TIMEOUT_SECONDS = 3.0
#: Seconds that a reader that follows a trail waits for other processes: a fork waits for this reader.
_FORWARD_TIMEOUT_SECONDS = 2.0
#: Seconds after which a record is taken as it is: more than the minute in which requests are counted, and the
#: time in which the core usually reports the outcome of a call.
_CHANGE_SECONDS = 120.0
_PAGE_BYTES = 4096
#: Bytes of SQLite's write-ahead log, unless the size is small.
_MAX_WAL_BYTES = 4 << 20
#: Wait for other processes before a write-ahead log that is too large is emptied; and before one that is
#: twice as large, because several processes write without a pause.
_WAIT_FOR_OTHERS_MS, _WAIT_FOR_A_LARGE_LOG_MS = 100, 3000


class LogPosition(msgspec.Struct, frozen=True):
    """Position in the core's log of changes: the name of the core's log, and the sequence number of the last
    change that the audit log contains."""

    log: str
    sequence: int


class OpenCall(NamedTuple):
    """Record of a change whose outcome is not known yet: the number of the record, the id of the call to the
    core, and the action."""

    number: int
    id: str
    action: str


class StoredRecord(NamedTuple):
    """Record of a trail: number, time in epoch seconds, and JSON text. Record numbers increase within a trail
    and never change."""

    number: int
    at: float
    record: str


class TrailPosition(msgspec.Struct, frozen=True):
    """Position of a reader that follows a trail: the number and the time of the last record that was read. A
    record with this number and another time belongs to a later database, because the former database was
    damaged or replaced. `number` is None before the first read."""

    number: int | None
    at: float


class TrailPart(NamedTuple):
    """Part of a trail: the position before the part, and the records. The trail has dropped all records
    between the position and the first record."""

    start: TrailPosition
    records: list[StoredRecord]


class AuditDatabase:
    """A trail: the database `name`.sqlite in a folder, of at most `size` bytes. A trail of size 0 belongs to
    another service and is read-only. If a trail is not `synced`, a power cut can lose its last commits.
    Thread-safe. Methods raise OSError or sqlite3.Error if the database cannot be read or written."""

    def __init__(self, folder: Path, name: str, size: int = 0, *, synced: bool = True) -> None:
        self.label = name if size else f"beside-{name}"
        self._path = folder / f"{name}.sqlite"
        self._size = size
        #: Bytes of a large batch: a sixteenth, so that the log and the largest batch fit beside the records.
        self.log_size = min(size // 16, _MAX_WAL_BYTES)
        self._synced = synced
        #: Bytes of the write-ahead log at which it is emptied, which costs syncs.
        self._max_wal_bytes = self.log_size if synced else 3 * self.log_size
        #: Open connections that no thread uses.
        self._idle: list[DatabaseFile] = []

    def append(self, records: Sequence[str]) -> None:
        """Append all records, or none after an error. If the trail is synced, the records are on disk when
        this method returns."""
        self._write(lambda connection: self._insert(connection, records))

    def count(self, counts: Iterable[RequestCount]) -> None:
        """Add each count to the record with the same minute and key. If there is no such record, insert a
        record. One commit contains all changes."""

        def add(connection: DatabaseFile) -> None:
            for each in counts:
                at = (each.minute, each.key)
                connection.execute(_FORGET_OTHER_MINUTES, (each.minute - 1, each.minute + 1))
                found = connection.execute(_SELECT_COUNTED, at).fetchone()
                if found:
                    number, before = found
                    connection.execute(
                        "UPDATE record SET record = ? WHERE number = ?", (each.text(before), number)
                    )
                    continue
                self._insert(connection, [each.text()])
                connection.execute("INSERT OR REPLACE INTO counted VALUES (?, ?, last_insert_rowid())", at)

        self._write(add)

    def append_changes(self, records: Sequence[str], before: LogPosition | None, after: LogPosition) -> None:
        """Append the records and set the position in the core's log to `after`, in one commit. Do nothing if
        the stored position is not `before`, because then another process has recorded the changes."""

        def change(connection: DatabaseFile) -> None:
            if _read_position(connection) == before:
                self._insert(connection, records)
                connection.execute(f"INSERT OR REPLACE {_INTO_POSITION}", msgspec.structs.asdict(after))

        self._write(change)

    def list_open_calls(self, limit: int) -> list[OpenCall]:
        """Return at most `limit` records of changes whose outcome is not known yet, newest first."""
        with self._open_to_read() as connection:
            rows = connection.execute(_SELECT_OPEN_CALLS, (limit,)).fetchall() if connection else []
        return [OpenCall(*row) for row in rows]

    def close_calls(self, outcomes: Mapping[OpenCall, tuple[str, str]]) -> None:
        """Set the result and message of records whose outcome is now known. `outcomes` maps each record to
        its result and message. Skip records that another process has updated."""

        def change(connection: DatabaseFile) -> None:
            for call, (result, message) in outcomes.items():
                connection.execute(_CALL_RESULT_UPDATE, (result, message, call.number, call.id))

        self._write(change)

    def read_position(self) -> LogPosition | None:
        """Return the position of the last recorded change in the core's log, or None if no change is
        recorded."""
        with self._open_to_read() as connection:
            return _read_position(connection) if connection else None

    @contextmanager
    def read_newest(self, wanted: Filter, below: int | None) -> Iterator[tuple[int, Iterator[StoredRecord]]]:
        """Yield an upper bound of record numbers, and an iterator over the matching records below the bound,
        newest first. The bound is `below`, or the number of the next new record if `below` is None. The
        iterator is valid inside the `with` block."""
        with self._open_to_read() as connection:
            if connection is None:
                yield below or 1, iter(())
                return
            if below is None:
                (below,) = connection.execute("SELECT coalesce(max(number), 0) + 1 FROM record").fetchone()
            yield below, (StoredRecord(*row) for row in connection.execute(*_make_query(wanted, below)))

    def read_after(self, position: TrailPosition, now: float, limit: int) -> TrailPart:
        """Return the next records after a position that do not change any more, oldest first and at most
        `limit`. `now` is epoch seconds."""
        with self._open_to_read(_FORWARD_TIMEOUT_SECONDS) as connection:
            if connection is None:
                return TrailPart(position, [])
            connection.execute("BEGIN")
            start = _find_start(connection, position)
            rows = connection.execute(_SELECT_AFTER, (start.number, limit)).fetchall()
        records = []
        for number, at, record, may_change in rows:
            if may_change and abs(now - at) < _CHANGE_SECONDS:
                break
            records.append(StoredRecord(number, at, record))
        return TrailPart(start, records)

    @contextmanager
    def _open_to_read(self, timeout: float = _WRITE_TIMEOUT_SECONDS) -> Iterator[sqlite3.Connection | None]:
        """Yield a connection for reading, which waits at most `timeout` seconds for writes of other
        processes. Yield None if the database does not exist yet, or if the file belongs to another service
        and is not readable."""
        if self._size:
            # A missing folder is a fault, a missing file is not.
            self._path.parent.stat()
        if not (self._path.exists() if self._size else os.access(self._path, os.R_OK)):
            yield None
            return
        with closing(
            databases.connect_to_read(self._path, timeout, _EXCLUSIVE_READ_TIMEOUT_SECONDS)
        ) as connection:
            # A disk may have been full when the database was made.
            is_made = connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'place'").fetchone()
            yield connection if is_made else None

    def _write(self, change: Callable[[DatabaseFile], None]) -> None:
        databases.repair_and_retry(lambda: self._transact(change), self._begin_anew)

    def _transact(self, change: Callable[[DatabaseFile], None]) -> None:
        with self._lend_connection() as connection:
            # Not after: a killed process leaves one batch more in the log, and many would leave many.
            excess = connection.log_bytes - self._max_wal_bytes
            if excess > 0:
                is_large = excess > self.log_size
                connection.empty_log(_WAIT_FOR_A_LARGE_LOG_MS if is_large else _WAIT_FOR_OTHERS_MS)
            with connection.transaction():
                change(connection)

    def _insert(self, connection: DatabaseFile, records: Sequence[str]) -> None:
        connection.executemany("INSERT INTO record (record) VALUES (?)", ((record,) for record in records))
        # Room for a full log and a large batch after it, whose indexes take more pages than its records.
        max_pages = (self._size - self._max_wal_bytes - 3 * self.log_size) // _PAGE_BYTES
        while connection.used_pages > max_pages:
            if not connection.execute(_DELETE_OLDEST).rowcount:
                break
        # The size may have been larger before.
        for _ in range(connection.read_pragma("page_count") - max_pages):
            # One page at a time: Python's sqlite3 takes one step of the statement, whatever the number of
            # pages.
            connection.execute("PRAGMA incremental_vacuum(1)")

    @contextmanager
    def _lend_connection(self) -> Iterator[DatabaseFile]:
        """Yield a connection for writing that no other thread uses."""
        connection = self._take_connection()
        try:
            yield connection
        except BaseException:
            # Closing rolls the transaction back.
            connection.close()
            raise
        self._idle.append(connection)

    def _take_connection(self) -> DatabaseFile:
        with suppress(IndexError):
            while True:
                connection = self._idle.pop()
                if connection.is_current:
                    return connection
                # Records in a file that was removed or replaced would be lost.
                connection.close()
        pragmas = ("auto_vacuum = INCREMENTAL", "journal_mode = WAL")
        # By itself SQLite would also empty a log of 4 MiB, after any commit.
        durability = (
            ("synchronous = FULL",) if self._synced else ("synchronous = NORMAL", "wal_autocheckpoint = 0")
        )
        with databases.lock_folder(self._path.parent):
            return databases.connect(
                self._path,
                *pragmas,
                *durability,
                timeout=_WRITE_TIMEOUT_SECONDS,
                schema=_SCHEMA,
                mode=_FILE_MODE,
            )

    def _begin_anew(self) -> None:
        with databases.lock_folder(self._path.parent):
            if databases.is_whole(self._path):
                # Another process has replaced it.
                return
            aside = databases.begin_anew(self._path, "audit log")
        self.append([make_gap(time.time(), f"The records before this one are damaged: {aside.name}").text()])


def _find_start(connection: sqlite3.Connection, position: TrailPosition) -> TrailPosition:
    """Return the given position if the database still has its record, or has dropped this record as one of
    its oldest records. Otherwise, return the position before the first record that is newer."""
    (oldest,) = connection.execute("SELECT min(number) FROM record").fetchone()
    if oldest is None:
        return position
    if position.number is not None:
        found = connection.execute("SELECT at FROM record WHERE number = ?", (position.number,)).fetchone()
        if found == (position.at,) or oldest > position.number:
            return position
    query = "SELECT number, at FROM record WHERE at <= ? ORDER BY number DESC LIMIT 1"
    found = connection.execute(query, (position.at,)).fetchone()
    return TrailPosition(*found) if found else TrailPosition(oldest - 1, position.at)


def _read_position(connection: sqlite3.Connection) -> LogPosition | None:
    row = connection.execute("SELECT log, sequence FROM place").fetchone()
    return LogPosition(*row) if row else None


def _make_query(wanted: Filter, below: int) -> tuple[str, list[Any]]:
    conditions = ["number < ?"]
    values: list[Any] = [below]
    for name in ("user", "action", "route", "result"):
        if (value := getattr(wanted, name)) is not None:
            conditions.append(f"{name} = ?")
            values.append(value)
    if wanted.since is not None or wanted.until is not None:
        conditions.append(_WITHIN_TIMES_CONDITION)
        values += 3 * [wanted.since or 0, inf if wanted.until is None else wanted.until]
    return _SELECT_RECORDS.format(" AND ".join(conditions)), values


T = TypeVar("T")


#: Free bytes of the disk below which changes are rejected: more than the records of all concurrent changes.
_MIN_FREE_BYTES = 4 << 20
#: Seconds between two writes of counted requests by one worker.
WRITE_INTERVAL_SECONDS = 2.0

_TRAIL_NAMES = ("known", "strangers")


class _Batch:
    """Batch of records for one commit. While a batch is committed, the next batch collects new records."""

    def __init__(self) -> None:
        self.records: list[str] = []
        self.is_taken = False
        #: This error stays if the writer is stopped during the commit.
        self.failure: Exception | None = OSError(errno.EINTR, os.strerror(errno.EINTR))


class BatchWriter:
    """Writer of a trail. One commit writes the records of all waiting greenlets and threads."""

    def __init__(self, trail: AuditDatabase, pool: ThreadPool) -> None:
        self._trail = trail
        self._pool = pool
        self._guard = threading.Lock()
        self._writing = threading.Lock()
        self._next = _Batch()

    def add(self, record: str) -> None:
        """Append a record to the trail, and return when the record is on disk. Raises AuditUnavailable if the
        record cannot be written."""
        with self._guard:
            batch = self._next
            batch.records.append(record)
        with self._writing:
            if not batch.is_taken:
                self._write(batch)
        if batch.failure is not None:
            raise AuditUnavailable("write", batch.failure) from batch.failure

    def _write(self, batch: _Batch) -> None:
        with self._guard:
            self._next = _Batch()
        # Before the write: if this writer is stopped, the next one must not write the records again.
        batch.is_taken = True
        try:
            run_on_thread(self._pool, self._trail.append, batch.records)
            batch.failure = None
        except Exception as error:  # noqa: BLE001 - raised in each `add`
            batch.failure = error


class RequestCounter:
    """Counter of similar requests, which writes to a trail at most once in `WRITE_INTERVAL_SECONDS`. Safe for
    threads and greenlets. Unwritten records take at most `max_bytes` of memory, even if a disk hangs. `clock`
    returns monotonic seconds; `make_timer` creates a timer from a delay in seconds and a function."""

    def __init__(
        self,
        trail: AuditDatabase,
        pool: ThreadPool,
        max_bytes: int,
        clock: Callable[[], float] = time.monotonic,
        make_timer: Callable[[float, Callable[[], None]], threading.Timer] = threading.Timer,
    ) -> None:
        self._trail = trail
        self._pool = pool
        self._max_bytes = max_bytes
        self._clock = clock
        self._make_timer = make_timer
        self._guard = threading.Lock()
        self._writing = threading.Lock()
        self._waiting: dict[tuple[int, str], RequestCount] = {}
        self._bytes = 0
        self._discarded_count = 0
        self._is_write_scheduled = False
        self._written_at = -inf

    def add(self, record: AuditEntry) -> None:
        """Count a request without waiting for the disk. The request is written to the trail within
        `WRITE_INTERVAL_SECONDS`. If the memory for unwritten records is full, a request that needs a new
        record is discarded."""
        one = RequestCount.of_record(record)
        at = (one.minute, one.key)
        with self._guard:
            before = self._waiting.get(at)
            if before is not None:
                self._waiting[at] = before.merge(one)
            elif self._bytes + len(one.first) > self._max_bytes:
                self._discarded_count += 1
            else:
                self._waiting[at] = one
                self._bytes += len(one.first)
            is_write_scheduled, self._is_write_scheduled = self._is_write_scheduled, True
        if not is_write_scheduled:
            timer = self._make_timer(
                max(0.0, self._written_at + WRITE_INTERVAL_SECONDS - self._clock()), self.write
            )
            timer.daemon = True
            timer.start()

    def write(self) -> None:
        """Write the counted requests to the trail. If the write fails, discard the requests and log their
        number."""
        with self._writing:
            with self._guard:
                waiting, self._waiting = list(self._waiting.values()), {}
                discarded_count, self._discarded_count, self._bytes = self._discarded_count, 0, 0
                self._is_write_scheduled, self._written_at = False, self._clock()
            reason: object = "too many different requests in a short time"
            try:
                if waiting:
                    run_on_thread(self._pool, self._trail.count, waiting)
            except (OSError, sqlite3.Error) as error:
                discarded_count += sum(each.count for each in waiting)
                reason = error
        if discarded_count:
            LOG.error(
                "%d requests without a valid token are not in the audit log: %s", discarded_count, reason
            )


class AuditLog:
    """The audit log in a folder. Each of its two trails has at most `size` bytes. `beside` is the folder of
    another service's audit log. If that folder is readable, reads return the records of both logs."""

    def __init__(self, folder: Path, size: int, pool: ThreadPool, beside: Path | None = None) -> None:
        self._folder = folder
        self._pool = pool
        self._beside = beside
        self._trails = list_trails(folder, size)
        self._known = BatchWriter(self._trails[0], pool)
        self._strangers = RequestCounter(self._trails[1], pool, self._trails[1].log_size)
        self._unwritten_count = 0
        self._reading = threading.Lock()

    def check(self) -> None:
        """Check that a change can be recorded. If earlier records could not be written, add a record with the
        number of these records. Raises AuditUnavailable if the folder is not writable, if the disk has too
        little free space, or if the record cannot be written."""
        try:
            durable.require_writable(self._folder)
            durable.require_room(self._folder, _MIN_FREE_BYTES)
        except OSError as error:
            raise AuditUnavailable("write", error) from error
        if self._unwritten_count:
            self._record_losses()

    def add(self, record: AuditEntry) -> None:
        """Add a record. The record of a user is on disk when this method returns. A record without a role is
        only counted, and is on disk some seconds later. Raises AuditUnavailable if the record of a user
        cannot be written."""
        if not record.role:
            self._strangers.add(record)
            return
        try:
            self._known.add(record.text())
        except AuditUnavailable:
            self._unwritten_count += 1
            raise

    def close(self) -> None:
        """Write the counted requests to the trail. A worker calls this method when it stops."""
        self._strangers.write()

    def read(self, wanted: Filter, page: Page | None) -> FoundPage[msgspec.Raw]:
        """Return the matching records as JSON, each with an `id`, newest first: one page, or all records if
        `page` is None. Raises Invalid if the cursor is wrong, ListTooLarge if `page` is None and too many
        records match, and AuditUnavailable if a trail cannot be read."""
        # One at a time, as the pool has few threads.
        with self._reading:
            return self._on_thread("read", _read, self._list_readable_trails(), wanted, page)

    def read_position(self) -> LogPosition | None:
        """Return the position of the last recorded change in the core's log, or None if no change is
        recorded. Raises AuditUnavailable if the trail cannot be read."""
        return self._on_thread("read", self._trails[0].read_position)

    def add_changes(
        self, records: Sequence[AuditEntry], before: LogPosition | None, after: LogPosition
    ) -> None:
        """Record changes at the core and set the position in the core's log to `after`. Do nothing if the
        stored position is not `before`, because then another process has recorded the changes. Raises
        AuditUnavailable if the records cannot be written."""
        texts = [record.text() for record in records]
        self._on_thread("write", self._trails[0].append_changes, texts, before, after)

    def list_open_calls(self, limit: int) -> list[OpenCall]:
        """Return at most `limit` records of changes whose outcome is not known yet, newest first. Raises
        AuditUnavailable if the trail cannot be read."""
        return self._on_thread("read", self._trails[0].list_open_calls, limit)

    def close_calls(self, outcomes: Mapping[OpenCall, tuple[Result, str]]) -> None:
        """Set the result and message of records whose outcome is now known. `outcomes` maps each record to
        its result and message. Raises AuditUnavailable if the records cannot be written."""
        self._on_thread("write", self._trails[0].close_calls, outcomes)

    def _on_thread(self, verb: str, function: Callable[..., T], *arguments: Any) -> T:
        try:
            return run_on_thread(self._pool, function, *arguments)
        except (OSError, sqlite3.Error) as error:
            raise AuditUnavailable(verb, error) from error

    def _list_readable_trails(self) -> list[AuditDatabase]:
        return [*self._trails, *list_trails_beside(self._beside)]

    def _record_losses(self) -> None:
        lost_count, self._unwritten_count = self._unwritten_count, 0
        try:
            message = f"{lost_count} records before this one could not be written; they are in the log"
            self._known.add(make_gap(time.time(), message).text())
        except AuditUnavailable:
            self._unwritten_count += lost_count
            raise


def list_trails(folder: Path, size: int) -> list[AuditDatabase]:
    """Return the trails of a service's own audit log: users, and requests without a user."""
    known, strangers = _TRAIL_NAMES
    return [AuditDatabase(folder, known, size), AuditDatabase(folder, strangers, size, synced=False)]


def list_trails_beside(folder: Path | None) -> list[AuditDatabase]:
    """Return the trails of another service's audit log. Return no trail if the folder is None or is not
    readable."""
    if folder is None or not os.access(folder, os.R_OK | os.X_OK):
        return []
    return [AuditDatabase(folder, name) for name in _TRAIL_NAMES]


def prepare_folder(folder: Path) -> None:
    """Create the folder of the audit log if its parent exists, and let its group read the folder. If the
    folder is read-only or its disk is full, log an error: the API starts anyway. Raises OSError for any other
    failure."""
    try:
        folder.mkdir(exist_ok=True)
        durable.require_writable(folder)
        status = folder.stat()
        if status.st_uid == os.geteuid():
            # The umask of the unit keeps out the group, which the other service needs to read the log.
            folder.chmod(stat.S_IMODE(status.st_mode) & ~0o007 | 0o050)
    except OSError as error:
        if not durable.is_unwritable(error):
            raise
        LOG.error("cannot write the audit log, so changes are refused: %s", error)


def _read(trails: Sequence[AuditDatabase], wanted: Filter, page: Page | None) -> FoundPage[msgspec.Raw]:
    """Return the matching records of all trails: one page, or all records if `page` is None. The cursor of a
    page contains one record number for each trail, and the next page continues below these numbers. So no
    page misses or repeats a record, even if records are added or deleted, or the clock is set. Raises
    ListTooLarge if `page` is None and too many records match."""
    limit = MAX_LIMIT if page is None else page.limit
    start: Sequence[int | None] = [None] * len(trails)
    if page is not None and page.cursor is not None:
        start = decode_numeric_cursor(page.cursor, len(trails))
    reached: list[int] = []
    records: list[msgspec.Raw] = []
    with ExitStack() as opened:
        found = []
        for index, trail in enumerate(trails):
            below, rows = opened.enter_context(trail.read_newest(wanted, start[index]))
            reached.append(below)
            found.append(zip(itertools.repeat(index), rows, strict=False))
        for index, row in merge(*found, key=lambda each: -each[1].at):
            if len(records) == limit:
                if page is None:
                    raise ListTooLarge
                return FoundPage(records, encode_cursor(reached))
            text = f'{{"id":"{trails[index].label}-{row.number}",{row.record[1:]}'
            records.append(msgspec.Raw(text.encode()))
            reached[index] = row.number
    return FoundPage(records)


def start_recording_changes(core_socket: Path, log: AuditLog) -> None:
    """Start a thread that records changes at the core until the process exits."""
    core = CoreClient(Client(core_socket))
    threading.Thread(target=_record_changes_forever, args=(core, log), daemon=True).start()


def record_new_changes(core: CoreClient, log: AuditLog) -> bool:
    """Record the next batch of changes at the core. Return True if the core may have more changes. After an
    error, the next call tries the same changes again. Raises CoreUnavailable if the call to the core fails,
    CoreLacksMethod if the core cannot list its changes, and AuditUnavailable if the audit log cannot be read
    or written."""
    position = log.read_position()
    after = ListChanges(position.log, position.sequence) if position else ListChanges(None, 0)
    reply = core.call(after)
    records = _make_change_records(reply, position)
    if not records:
        return False
    sequence = reply.changes[-1].sequence if reply.changes else reply.newest
    log.add_changes(records, position, LogPosition(reply.log, sequence))
    return sequence < reply.newest


def resolve_calls(core: CoreClient, log: AuditLog) -> None:
    """Ask the core for the outcome of changes whose replies were lost, and update the records of these
    changes. After an error, the next call tries again. Raises CoreUnavailable if the call to the core fails,
    and AuditUnavailable if the audit log cannot be read or written."""
    calls = log.list_open_calls(_MAX_RESOLVED_CALLS)
    if not calls:
        return
    try:
        reply = core.call(ResolveCalls(tuple(call.id for call in calls)))
    except CoreLacksMethod:
        return
    outcomes: dict[OpenCall, tuple[Result, str]] = {}
    for call in calls:
        if call.id in reply.done:
            outcomes[call] = "done", f"{_REPLY_LOST_TEXT}: the change was made"
        elif call.id in reply.failed:
            outcomes[call] = "failed", f"{_REPLY_LOST_TEXT}: the change was not made"
        elif call.id in reply.unknown and call.action.startswith(_SESSION_ACTION_PREFIXES):
            # A core that was killed may have changed sessions, and had no time to note it.
            outcomes[call] = "unanswered", f"{_REPLY_LOST_TEXT}: the core has no note of the change"
        elif call.id in reply.unknown:
            outcomes[call] = "failed", f"{_REPLY_LOST_TEXT}: the change was not made"
    if outcomes:
        log.close_calls(outcomes)


def _record_changes_forever(core: CoreClient, log: AuditLog) -> None:
    def record() -> Iterator[None]:
        while record_new_changes(core, log):
            yield
        resolve_calls(core, log)
        yield

    what = "record changes at the core"
    # If this thread ended, no later change would be recorded.
    for _ in repeat(record, time.sleep, what, LOG, fault=f"cannot {what}"):
        pass


def _make_change_records(reply: ChangesReply, position: LogPosition | None) -> list[AuditEntry]:
    log, newest = reply.log, reply.newest
    recorded_sequence = position.sequence if position and position.log == log else 0
    if newest < recorded_sequence:
        # The core uses the numbers between the two again, for other changes.
        change = f"from {recorded_sequence} to {newest}"
        message = f"The core's log of changes went back {change}: changes may be missing"
        return [_make_change_gap(log, newest, message)]
    first = reply.changes[0].sequence if reply.changes else newest + 1
    records = [_make_change_record(log, change) for change in reply.changes]
    if lost_count := first - recorded_sequence - 1:
        message = f"{lost_count} changes at the core before this one are lost: they were more than it keeps"
        records.insert(0, _make_change_gap(log, first - 1, message))
    return records


def _make_change_record(log: str, change: ChangeRecord) -> AuditEntry:
    details = {"author": change.author, "comment": change.comment}
    before, after = mask_secrets(change.before), mask_secrets(change.after)
    origin = "the core itself" if change.process is None else f"process {change.process} at the core's socket"
    return make_entry(
        float(change.at),
        change.action,
        "done",
        f"By {origin}{describe_session(before, after)}",
        user=change.user,
        role=_SYSTEM_ROLE,
        request_id=f"core-{log}-{change.sequence}",
        body=None if change.author is None else mask_secrets(details),
        before=before,
        after=after,
    )


def _make_change_gap(log: str, sequence: int, message: str) -> AuditEntry:
    return make_gap(time.time(), message, user="core", role=_SYSTEM_ROLE, request_id=f"core-{log}-{sequence}")

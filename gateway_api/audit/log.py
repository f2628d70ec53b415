"""The audit log of a worker: two trails in one folder, for users and for requests without a user.

A trail is an SQLite database that several processes write. It removes the oldest records when it reaches its
size. Each trail has its own size, so that no flood of requests without a user removes the record of a change.
A record of a user is on disk when its commit returns. Requests without a user are counted, and cost no sync:
anybody can send them, and they would wear out a flash disk.
"""

import errno
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from heapq import merge
from itertools import repeat
from math import inf
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import msgspec

from gateway_api.audit.record import AuditEntry, Counted, Filter, Result, gap
from gateway_contract.base import databases, durable
from gateway_contract.base.databases import DatabaseFile, pragma
from gateway_contract.base.errors import AuditUnavailable, ListTooLarge
from gateway_contract.base.logs import LOG
from gateway_contract.base.pages import FoundPage, decode_numbers, encode_cursor
from gateway_contract.base.process import ThreadPool, on_thread
from gateway_contract.contract import MAX_LIMIT, Page

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
_PLACE = "INTO place VALUES (1, :log, :sequence)"
#: The newest stays, or a later record would get its number again.
_DELETE_OLDEST = """
DELETE FROM record WHERE number IN (
    SELECT number FROM record WHERE number < (SELECT max(number) FROM record) ORDER BY number LIMIT 16
)
"""
#: The record of counted requests. Those of a minute may be written when it has ended.
_COUNTED = """
SELECT number, record FROM counted JOIN record USING (number) WHERE minute = ? AND key = ?
"""
_FORGET_OTHER_MINUTES = "DELETE FROM counted WHERE minute NOT BETWEEN ? AND ?"
_SELECT = "SELECT number, at, record FROM record WHERE {} ORDER BY number DESC"
#: Few records are unanswered, and they have an index.
_OPEN_CALLS = """
SELECT number, json_extract(record, '$.call_id') AS call, action FROM record
WHERE result = 'unanswered' AND call IS NOT NULL ORDER BY number DESC LIMIT ?
"""
_CLOSE_CALL = """
UPDATE record SET record = json_set(record, '$.result', ?, '$.message', ?, '$.call_id', null)
WHERE number = ? AND json_extract(record, '$.call_id') = ?
"""
#: The index of times limits the numbers. It cannot order them: the clock may have been set back.
_IN_TIME = """
number BETWEEN (SELECT min(number) FROM record WHERE at >= ? AND at < ?)
AND (SELECT max(number) FROM record WHERE at >= ? AND at < ?) AND +at >= ? AND +at < ?
"""
#: The service's user writes, its group reads.
_MODE = 0o640
#: Seconds that a write waits for writes of other processes, and so for the disk.
_PATIENCE = 30.0
#: Seconds that a reader waits to be the only one.
_PATIENCE_ALONE = 3.0
_PAGE = 4096
#: Bytes of SQLite's write-ahead log, unless the size is small.
_LOG_SIZE = 4 << 20
#: Milliseconds that a write waits for others, to empty a write-ahead log that is too large; and one that is
#: twice as large, because several processes write without a pause.
_PATIENCE_WITH_OTHERS, _PATIENCE_WITH_A_LARGE_LOG = 100, 3000


class LogPlace(msgspec.Struct, frozen=True):
    """The last change of the core that is recorded: the name of the core's log, and the change's number."""

    log: str
    sequence: int


class OpenCall(NamedTuple):
    """A record of a change whose outcome the core has to tell: its number, and the id of the call."""

    number: int
    id: str
    action: str


class Row(NamedTuple):
    """A record as JSON. Numbers rise within a trail and never change; `at` is epoch seconds."""

    number: int
    at: float
    record: str


class AuditDatabase:
    """The database `name`.sqlite in a folder, of at most `size` bytes. With size 0 it belongs to another
    service, and is only read. If it is not `synced`, a power cut takes the last commits. Any thread may call.
    Methods raise OSError and sqlite3.Error."""

    def __init__(self, folder: Path, name: str, size: int = 0, *, synced: bool = True) -> None:
        self.label = name if size else f"beside-{name}"
        self._path = folder / f"{name}.sqlite"
        self._size = size
        #: Bytes of a large batch. A sixteenth, so that the log and the largest batch fit beside the records.
        self.log_size = min(size // 16, _LOG_SIZE)
        self._synced = synced
        #: Bytes of the write-ahead log at which it is emptied, which costs syncs.
        self._emptied_at = self.log_size if synced else 3 * self.log_size
        #: Open connections that no thread uses.
        self._idle: list[DatabaseFile] = []

    def append(self, records: Sequence[str]) -> None:
        """All of them or none. They are on disk when it returns."""
        self._write(lambda connection: self._insert(connection, records))

    def count(self, counted: Iterable[Counted]) -> None:
        """Add to the records of the same minute and key, or make them. All or nothing."""

        def add(connection: sqlite3.Connection) -> None:
            for each in counted:
                at = (each.minute, each.key)
                connection.execute(_FORGET_OTHER_MINUTES, (each.minute - 1, each.minute + 1))
                found = connection.execute(_COUNTED, at).fetchone()
                if found:
                    number, before = found
                    connection.execute(
                        "UPDATE record SET record = ? WHERE number = ?", (each.text(before), number)
                    )
                    continue
                self._insert(connection, [each.text()])
                connection.execute("INSERT OR REPLACE INTO counted VALUES (?, ?, last_insert_rowid())", at)

        self._write(add)

    def append_changes(self, records: Sequence[str], before: LogPlace | None, after: LogPlace) -> None:
        """As `append`, and changes the place; nothing if another process has changed it from `before`."""

        def change(connection: sqlite3.Connection) -> None:
            if _place(connection) == before:
                self._insert(connection, records)
                connection.execute(f"INSERT OR REPLACE {_PLACE}", msgspec.structs.asdict(after))

        self._write(change)

    def open_calls(self, most: int) -> list[OpenCall]:
        """Return the newest `most` records whose outcome the core has to tell."""
        with self._opened_to_read() as connection:
            rows = connection.execute(_OPEN_CALLS, (most,)).fetchall() if connection else []
        return [OpenCall(*row) for row in rows]

    def close_calls(self, outcomes: Mapping[OpenCall, tuple[str, str]]) -> None:
        """Give the records a result and a message, unless another process has done so."""

        def change(connection: sqlite3.Connection) -> None:
            for call, (result, message) in outcomes.items():
                connection.execute(_CLOSE_CALL, (result, message, call.number, call.id))

        self._write(change)

    def place(self) -> LogPlace | None:
        with self._opened_to_read() as connection:
            return _place(connection) if connection else None

    @contextmanager
    def newest_first(self, wanted: Filter, below: int | None) -> Iterator[tuple[int, Iterator[Row]]]:
        """`below`, or the next number if it is None, and the matching records with smaller numbers."""
        with self._opened_to_read() as connection:
            if connection is None:
                yield below or 1, iter(())
                return
            if below is None:
                (below,) = connection.execute("SELECT coalesce(max(number), 0) + 1 FROM record").fetchone()
            yield below, (Row(*row) for row in connection.execute(*_query(wanted, below)))

    @contextmanager
    def _opened_to_read(self) -> Iterator[sqlite3.Connection | None]:
        """None if nothing was ever written, or another service does not allow to read."""
        if self._size:
            # A folder that is gone is a fault.
            self._path.parent.stat()
        if not (self._path.exists() if self._size else os.access(self._path, os.R_OK)):
            yield None
            return
        with closing(databases.connect_to_read(self._path, _PATIENCE, _PATIENCE_ALONE)) as connection:
            # A disk may have been full when the database was made.
            is_made = connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'place'").fetchone()
            yield connection if is_made else None

    def _write(self, change: Callable[[sqlite3.Connection], None]) -> None:
        try:
            self._transaction(change)
        except sqlite3.DatabaseError as error:
            if not databases.is_damaged(error):
                raise
            self._begin_anew(error)
            self._transaction(change)

    def _transaction(self, change: Callable[[sqlite3.Connection], None]) -> None:
        with self._connection() as connection:
            # Not after: a killed process leaves one batch more in the log, and many would leave many.
            size = self._path.with_name(f"{self._path.name}-wal").stat().st_size
            if size > self._emptied_at:
                large = size > self._emptied_at + self.log_size
                self._empty_log(connection, _PATIENCE_WITH_A_LARGE_LOG if large else _PATIENCE_WITH_OTHERS)
            connection.execute("BEGIN IMMEDIATE")
            change(connection)
            connection.execute("COMMIT")

    def _empty_log(self, connection: sqlite3.Connection, patience: int) -> None:
        """SQLite begins its log again only while nobody reads it: busy processes would let it grow."""
        connection.execute(f"PRAGMA busy_timeout = {patience}")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        connection.execute(f"PRAGMA busy_timeout = {int(1000 * _PATIENCE)}")

    def _insert(self, connection: sqlite3.Connection, records: Sequence[str]) -> None:
        connection.executemany("INSERT INTO record (record) VALUES (?)", ((record,) for record in records))
        # Room for a full log and a large batch after it, whose indexes take more pages than its records.
        most = (self._size - self._emptied_at - 3 * self.log_size) // _PAGE
        while pragma(connection, "page_count") - pragma(connection, "freelist_count") > most:
            if not connection.execute(_DELETE_OLDEST).rowcount:
                break
        # The size may have been larger before.
        for _ in range(pragma(connection, "page_count") - most):
            # Python's sqlite3 takes one step of it, whatever the number of pages.
            connection.execute("PRAGMA incremental_vacuum(1)")

    @contextmanager
    def _connection(self) -> Iterator[sqlite3.Connection]:
        """A connection for writing that no other thread uses."""
        connection = self._take()
        try:
            yield connection
        except BaseException:
            # This rolls its transaction back.
            connection.close()
            raise
        self._idle.append(connection)

    def _take(self) -> DatabaseFile:
        with suppress(IndexError):
            while True:
                connection = self._idle.pop()
                if connection.is_current:
                    return connection
                # Records in a file that was removed or replaced would be lost.
                connection.close()
        return self._open()

    def _open(self) -> DatabaseFile:
        pragmas = ("auto_vacuum = INCREMENTAL", "journal_mode = WAL", *self._durability())
        with databases.alone(self._path.parent):
            return databases.connect(self._path, *pragmas, timeout=_PATIENCE, schema=_SCHEMA, mode=_MODE)

    def _durability(self) -> tuple[str, ...]:
        if self._synced:
            return ("synchronous = FULL",)
        # By itself SQLite would also empty a log of 4 MiB, after any commit.
        return ("synchronous = NORMAL", "wal_autocheckpoint = 0")

    def _begin_anew(self, error: sqlite3.DatabaseError) -> None:
        with databases.alone(self._path.parent):
            if databases.is_whole(self._path):
                # Another process has replaced it.
                return
            aside = databases.set_aside(self._path)
        LOG.error("began a new audit log, the old one is damaged and is now %s: %s", aside, error)
        self.append([gap(time.time(), f"The records before this one are damaged: {aside.name}").text()])


def _place(connection: sqlite3.Connection) -> LogPlace | None:
    row = connection.execute("SELECT log, sequence FROM place").fetchone()
    return LogPlace(*row) if row else None


def _query(wanted: Filter, below: int) -> tuple[str, list[Any]]:
    conditions = ["number < ?"]
    values: list[Any] = [below]
    for name in ("user", "action", "route", "result"):
        if (value := getattr(wanted, name)) is not None:
            conditions.append(f"{name} = ?")
            values.append(value)
    if wanted.since is not None or wanted.until is not None:
        conditions.append(_IN_TIME)
        values += 3 * [wanted.since or 0, inf if wanted.until is None else wanted.until]
    return _SELECT.format(" AND ".join(conditions)), values


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
        start = decode_numbers(page.cursor, len(trails))
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
                return FoundPage(records, encode_cursor(reached))
            text = f'{{"id":"{trails[index].label}-{row.number}",{row.record[1:]}'
            records.append(msgspec.Raw(text.encode()))
            reached[index] = row.number
    return FoundPage(records)

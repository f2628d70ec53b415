"""Reader of the history, with a scheduler for searches, and the timeline of a subscriber. A quick search
never waits for a long search, and no user waits for another user. Any process can read while another process
writes.

Each search starts in the queue of quick searches. A search that takes too long for this queue starts again in
the queue of long searches, and pauses there while a quick search runs. Both queues are fair to users. The
long searches of all workers take turns on one processor core, in time slices. A search ends at its deadline
in any case, so that no search keeps an old snapshot of the database for long.
"""

# ruff: noqa: S608 - values of requests are never in a text of SQL.

import fcntl
import os
import signal
import sqlite3
import time
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from copy import copy
from datetime import timedelta
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

from gateway_api.history.database import connect_to_read, decode_ipv4
from gateway_api.history.sign_ons import read_failed_sign_ons
from gateway_contract.base.databases import get_result_code
from gateway_contract.base.errors import HistoryUnavailable, NotFound, SearchTooLong
from gateway_contract.base.pages import FoundPage, decode_numeric_cursor, encode_cursor
from gateway_contract.base.process import ThreadPool, run_on_thread
from gateway_contract.base.texts import format_rate, format_utc
from gateway_contract.base.turns import FairQueue
from gateway_contract.contract import Page
from gateway_contract.history import ClockState, TimelineEntry, TimelineEvent

P = ParamSpec("P")
T = TypeVar("T")

#: Seconds from the request of a search to its end.
DEADLINE_SECONDS = 5.0
#: Seconds after which a client should try again.
_RETRY_AFTER_SECONDS = 5
#: Seconds that a quick search takes at most, and that it has even if others wait.
_MAX_QUICK_SECONDS, _MIN_QUICK_SECONDS = 0.1, 0.02
#: Seconds of a slice of a long search, and of a pause.
_SLICE_SECONDS, _PAUSE_SECONDS = 0.05, 0.002
#: Searches in each queue, and of one user.
_MAX_WAITING_SEARCHES, _MAX_WAITING_SEARCHES_OF_USER = 256, 64
#: Long searches at a time, of different users: the pool has few threads.
_MAX_LONG_SEARCHES = 2
#: SQLite's steps between two looks at the clock: about half a millisecond.
_STEPS_PER_CLOCK_CHECK = 10_000


class Reader:
    """Reader of the history in the database at `path`, for one user. Safe for greenlets."""

    def __init__(self, path: Path, pool: ThreadPool) -> None:
        self._path = path
        self._pool = pool
        self._user = ""
        self._quick_queue = FairQueue(
            _MAX_WAITING_SEARCHES, _MAX_WAITING_SEARCHES_OF_USER, self._make_timeout_error
        )
        self._long_queue = FairQueue(
            _MAX_WAITING_SEARCHES,
            _MAX_WAITING_SEARCHES_OF_USER,
            self._make_timeout_error,
            max_running_turns=_MAX_LONG_SEARCHES,
        )

    def for_user(self, user: str) -> "Reader":
        """Return a reader for the searches of another user. Both readers use the same queues."""
        reader = copy(self)
        reader._user = user
        return reader

    def search(
        self, find: Callable[Concatenate[sqlite3.Connection, P], T], *arguments: P.args, **more: P.kwargs
    ) -> T:
        """Call `find` with a connection and the arguments, and return the result of `find`. All reads of
        `find` see the same snapshot of the database. Raises HistoryUnavailable if the history cannot be read,
        SearchTooLong if the search does not end before its deadline or too many searches wait, and whatever
        `find` raises."""
        try:
            return self._search(lambda connection: find(connection, *arguments, **more))
        except (OSError, sqlite3.Error) as error:
            raise HistoryUnavailable(f"cannot read the history: {error}") from error

    def _search(self, find: Callable[[sqlite3.Connection], T]) -> T:
        deadline = time.monotonic() + DEADLINE_SECONDS
        try:
            with self._quick_queue.turn(self._user, DEADLINE_SECONDS):
                began = time.monotonic()
                earliest_end = began + _MIN_QUICK_SECONDS
                latest_end = min(began + _MAX_QUICK_SECONDS, deadline)
                return self._run(lambda: self._is_too_long(earliest_end, latest_end), find)
        except sqlite3.OperationalError as error:
            if not _is_interrupt(error):
                raise
            if time.monotonic() >= deadline:
                raise self._make_timeout_error() from error
        with self._long_queue.turn(self._user, max(0.0, deadline - time.monotonic())):
            try:
                with closing(_TimeSlices(self._path.parent)) as slices:
                    return self._run(lambda: self._is_late(slices, deadline), find)
            except sqlite3.OperationalError as error:
                if not _is_interrupt(error):
                    raise
                raise self._make_timeout_error() from error

    def _is_too_long(self, earliest_end: float, latest_end: float) -> bool:
        """Return True if a quick search must end: at `latest_end`, or from `earliest_end` if another quick
        search waits. Times are monotonic seconds."""
        now = time.monotonic()
        return now >= latest_end or (now >= earliest_end and bool(self._quick_queue.waiting))

    def _is_late(self, slices: "_TimeSlices", deadline: float) -> bool:
        """Wait until a long search has a time slice and no quick search runs. Return True if the long search
        must end because `deadline`, in monotonic seconds, has passed."""
        must_pause = slices.is_over or bool(self._quick_queue.served)
        if must_pause:
            slices.end()
        # One pause without the lock: another worker looks for it once in this time.
        while (now := time.monotonic()) < deadline and (
            must_pause or self._quick_queue.served or not slices.begin()
        ):
            # `time.sleep` is gevent's in a worker, and this is a native thread.
            signal.sigtimedwait((), _PAUSE_SECONDS)
            must_pause = False
        return now >= deadline

    def _run(self, must_end: Callable[[], bool], find: Callable[[sqlite3.Connection], T]) -> T:
        result: T = run_on_thread(self._pool, _run_with_connection, self._path, must_end, find)
        return result

    def _make_timeout_error(self) -> SearchTooLong:
        return SearchTooLong(DEADLINE_SECONDS, _RETRY_AFTER_SECONDS)


class _TimeSlices:
    """Time slices of one long search. Of all workers whose history is in this folder, only one worker at a
    time has a slice. The worker locks the folder itself, which is possible on a full disk, too."""

    def __init__(self, folder: Path) -> None:
        self._lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        #: The end of the slice, monotonic seconds. None between slices.
        self._end: float | None = None

    @property
    def is_over(self) -> bool:
        return self._end is not None and time.monotonic() >= self._end

    def begin(self) -> bool:
        """Begin a slice unless another worker has a slice. Return True if the search is in a slice now."""
        if self._end is None:
            with suppress(BlockingIOError):
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                self._end = time.monotonic() + _SLICE_SECONDS
        return self._end is not None

    def end(self) -> None:
        """End the slice. Do nothing if there is no slice."""
        if self._end is not None:
            fcntl.flock(self._lock, fcntl.LOCK_UN)
            self._end = None

    def close(self) -> None:
        """Close the folder, which also ends the slice."""
        os.close(self._lock)


def _is_interrupt(error: sqlite3.Error) -> bool:
    return get_result_code(error) == sqlite3.SQLITE_INTERRUPT


def _run_with_connection(
    path: Path, must_end: Callable[[], bool], find: Callable[[sqlite3.Connection], T]
) -> T:
    with closing(connect_to_read(path)) as connection:
        connection.set_progress_handler(must_end, _STEPS_PER_CLOCK_CHECK)
        connection.execute("BEGIN")
        return find(connection)


_UP, _RATE, _DOWN, _FAILED = range(4)
_SELECT_SUBSCRIBER = "SELECT username, mac FROM session WHERE id = ? ORDER BY started DESC LIMIT 1"
_SELECT_ENTRIES = f"""
SELECT * FROM (
    SELECT started AS at, number, {_UP} AS kind, 0 AS sequence, NULL AS down, NULL AS up, NULL AS expires,
        NULL AS author
    FROM session WHERE username = :username
    UNION ALL
    SELECT rate.at, rate.session, {_RATE}, rate.sequence, rate.down, rate.up, rate.expires, rate.author
    FROM rate_change AS rate JOIN session ON session.number = rate.session WHERE username = :username
    UNION ALL
    SELECT ended, number, {_DOWN}, 0, NULL, NULL, NULL, author
    FROM session WHERE username = :username AND ended IS NOT NULL
    UNION ALL
    SELECT began, number, {_FAILED}, 0, NULL, NULL, NULL, NULL
    FROM failed_sign_on WHERE username = :username OR mac = :mac
) AS entry WHERE (at, number, kind, sequence) < (:at, :number, :kind, :sequence)
ORDER BY at DESC, number DESC, kind DESC, sequence DESC LIMIT :limit
"""
_SELECT_SESSION = """
SELECT id, started, ended, seen, reason, ip, access.text,
    EXISTS (SELECT 1 FROM clock_step AS step WHERE session.number <= step.session AND ? > step.at)
FROM session JOIN text AS access ON access.number = session.access WHERE session.number = ?
"""
#: The place before all entries.
_START_POSITION = (1 << 62,) * 4


def read_timeline(connection: sqlite3.Connection, id: int, page: Page) -> FoundPage[TimelineEntry]:
    """Return a page of the timeline of the subscriber to whom the session with this id belongs or belonged,
    newest entry first. Raises NotFound if no session had this id, and Invalid if the cursor is wrong."""
    subscriber = connection.execute(_SELECT_SUBSCRIBER, (id,)).fetchone()
    if subscriber is None:
        raise NotFound("No such session")
    position = (
        _START_POSITION if page.cursor is None else decode_numeric_cursor(page.cursor, len(_START_POSITION))
    )
    values = dict(zip(("at", "number", "kind", "sequence"), position, strict=True))
    query = values | {"username": subscriber[0], "mac": subscriber[1], "limit": page.limit + 1}
    rows = connection.execute(_SELECT_ENTRIES, query).fetchall()
    entries = [_make_entry(connection, row) for row in rows[: page.limit]]
    last = None if len(rows) <= page.limit else encode_cursor(rows[page.limit - 1][: len(_START_POSITION)])
    return FoundPage(entries, last)


def _make_entry(connection: sqlite3.Connection, row: Sequence[Any]) -> TimelineEntry:
    at, number, kind, _, down, up, expires, author = row
    author_text = "" if author is None else f", by {author}"
    id, reason = None, None
    if kind == _FAILED:
        failed = read_failed_sign_ons(connection, number)
        event, reason, is_wrong = TimelineEvent.FAILED, failed.reason, failed.clock is ClockState.UNSET
        who = failed.username or failed.mac_address or "an unknown subscriber"
        times = f", {failed.attempts} times until {format_utc(failed.last_at)}" if failed.attempts > 1 else ""
        message = f"Sign-on of {who} on {failed.access_interface} failed, {reason}{times}"
    else:
        result = connection.execute(_SELECT_SESSION, (at, number)).fetchone()
        id, started, ended, seen, end_reason, ip, access, is_wrong = result
        if kind == _UP:
            event = TimelineEvent.UP
            address = "no IPv4 address" if ip is None else decode_ipv4(ip)
            message = f"Session {id} started on {access} with {address}"
        elif kind == _RATE:
            event = TimelineEvent.RATE
            until = "" if expires is None else f" until {format_utc(expires)}"
            message = (
                f"Session {id} got {format_rate(down)} down and {format_rate(up)} up{until}{author_text}"
            )
        elif seen is None:
            event, reason = TimelineEvent.DOWN, end_reason
            lasted = timedelta(seconds=max(0, ended - started))
            message = f"Session {id} ended after {lasted}, {reason}{author_text}"
        else:
            event = TimelineEvent.LOST
            times = f"{format_utc(seen)} and {format_utc(ended)}"
            message = f"Session {id} ended between {times}: nobody saw the end"
    return TimelineEntry(
        at=at,
        event=event,
        session_id=id,
        message=message,
        author=author,
        reason=reason,
        rate_down=down,
        rate_up=up,
        rate_expires_at=expires,
        clock=ClockState.UNSET if is_wrong else ClockState.SET,
    )

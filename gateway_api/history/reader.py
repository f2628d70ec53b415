"""The history for requests, and which search in it runs next: a quick one never waits for a long one, nor a
user for another. Any process may read, while another one writes.

Each search begins in the queue of quick ones. One that takes longer begins again in the queue of long ones,
and pauses there while a quick one runs. Both queues are fair to users. The long searches of all workers share
one processor core, a slice of time each. Its deadline ends a search wherever it is, so that no reader holds
an old state of the file for longer.
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
from typing import Any, TypeVar

from gateway_api.history.database import decode_ipv4, open_to_read
from gateway_api.history.sessions import HistoryFilter, find, flapping
from gateway_api.history.sign_ons import WantedFailures, failed_sign_ons, numbered
from gateway_api.history.traffic import FoundTraffic, TrafficSpan, traffic
from gateway_contract.base.databases import kind_of
from gateway_contract.base.errors import HistoryUnavailable, NotFound, SearchTooLong
from gateway_contract.base.pages import FoundPage, decode_numbers, encode_cursor
from gateway_contract.base.process import ThreadPool, on_thread
from gateway_contract.base.texts import format_rate, format_utc
from gateway_contract.base.turns import FairQueue
from gateway_contract.contract import Page
from gateway_contract.history import (
    ClockState,
    FailedSignOns,
    FlappingSubscriber,
    PastSession,
    TimelineEntry,
    TimelineEvent,
)

T = TypeVar("T")

#: Seconds from the request of a search to its end.
DEADLINE = 5.0
#: Seconds after which a client should try again.
_RETRY_AFTER = 5
#: Seconds that a quick search takes at most, and that it has even if others wait.
_QUICK, _LEAST = 0.1, 0.02
#: Seconds of a slice of a long search, and of a pause.
_SLICE, _PAUSE = 0.05, 0.002
#: Searches in each queue, and of one user. Long searches at a time, of different users: the pool has few
#: threads.
_MOST, _MOST_FROM_ONE, _LONG_AT_ONCE = 256, 64, 2
#: SQLite's steps between two looks at the clock: about half a millisecond.
_STEPS = 10_000


class Reader:
    """The history in the database at `path`, for a user. Methods raise HistoryUnavailable and SearchTooLong.
    Any greenlet may call."""

    def __init__(self, path: Path, pool: ThreadPool) -> None:
        self._searches = Searches(path, pool)
        self._user = ""

    def for_user(self, user: str) -> "Reader":
        """Return a reader for the searches of another user."""
        reader = copy(self)
        reader._user = user
        return reader

    def sessions(self, wanted: HistoryFilter, page: Page | None) -> FoundPage[PastSession]:
        """Return the matching sessions, newest first: a page of them, or all. Raises Invalid for a wrong
        cursor, and ListTooLarge."""
        return self._result(find, wanted, page)

    def failed_sign_ons(self, wanted: WantedFailures, page: Page) -> FoundPage[FailedSignOns]:
        """Return the matching attempts, the newest first. Raises Invalid for a wrong cursor."""
        return self._result(failed_sign_ons, wanted, page)

    def traffic(self, span: TrafficSpan) -> FoundTraffic:
        """Return the traffic of all trunks in a span. Raises Invalid for too small a step."""
        return self._result(traffic, span)

    def flapping(self, since: float, until: float, limit: int) -> list[FlappingSubscriber]:
        """Return the subscribers with the most sessions that started in the window, and more than one."""
        return self._result(flapping, since, until, limit)

    def timeline(self, id: int, page: Page) -> FoundPage[TimelineEntry]:
        """Return the timeline of the subscriber that has or had a session. Raises NotFound if no session had
        this id, and Invalid for a wrong cursor."""
        found = self._result(timeline, id, page)
        if found is None:
            raise NotFound("No such session")
        return found

    def _result(self, search: Callable[..., T], *arguments: Any) -> T:
        try:
            return self._searches.result(self._user, search, *arguments)
        except (OSError, sqlite3.Error) as error:
            raise HistoryUnavailable(f"cannot read the history: {error}") from error


class Searches:
    """The searches of one process in the database at `path`. Any greenlet may call."""

    def __init__(self, path: Path, pool: ThreadPool) -> None:
        self._path = path
        self._pool = pool
        self._quick = FairQueue(_MOST, _MOST_FROM_ONE, self._too_long)
        self._long = FairQueue(_MOST, _MOST_FROM_ONE, self._too_long, at_once=_LONG_AT_ONCE)

    def result(self, user: str, search: Callable[..., T], *arguments: Any) -> T:
        """Return the result of `search` for a connection and the arguments; all its reads are of one moment.
        Raises SearchTooLong, sqlite3.Error, and what the search raises."""
        deadline = time.monotonic() + DEADLINE
        try:
            with self._quick.turn(user, DEADLINE):
                began = time.monotonic()
                least, most = began + _LEAST, min(began + _QUICK, deadline)
                return self._run(lambda: self._is_too_long(least, most), search, *arguments)
        except sqlite3.OperationalError as error:
            if kind_of(error) != sqlite3.SQLITE_INTERRUPT or time.monotonic() >= deadline:
                raise self._known(error) from error
        with self._long.turn(user, max(0.0, deadline - time.monotonic())):
            try:
                with closing(_Slices(self._path.parent)) as slices:
                    return self._run(lambda: self._is_late(slices, deadline), search, *arguments)
            except sqlite3.OperationalError as error:
                raise self._known(error) from error

    def _is_too_long(self, least: float, most: float) -> bool:
        now = time.monotonic()
        return now >= most or (now >= least and bool(self._quick.waiting))

    def _is_late(self, slices: "_Slices", deadline: float) -> bool:
        """Return whether a long search must end. It returns in a slice."""
        rests = slices.is_over or bool(self._quick.served)
        if rests:
            slices.end()
        # One pause without the lock: another worker looks for it once in this time.
        while (now := time.monotonic()) < deadline and (rests or self._quick.served or not slices.begin()):
            # `time.sleep` is gevent's in a worker, and this is a native thread.
            signal.sigtimedwait((), _PAUSE)
            rests = False
        return now >= deadline

    def _run(self, stop: Callable[[], bool], search: Callable[..., T], *arguments: Any) -> T:
        found: T = on_thread(self._pool, _with_connection, self._path, stop, search, *arguments)
        return found

    def _known(self, error: sqlite3.OperationalError) -> Exception:
        return self._too_long() if kind_of(error) == sqlite3.SQLITE_INTERRUPT else error

    def _too_long(self) -> SearchTooLong:
        return SearchTooLong(DEADLINE, _RETRY_AFTER)


class _Slices:
    """The slices of one long search: of all workers with a history in the folder, one has one at a time. The
    folder is the lock, so that a full disk is no reason to have none."""

    def __init__(self, folder: Path) -> None:
        self._lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        #: The end of the slice, monotonic seconds. None between slices.
        self._end: float | None = None

    @property
    def is_over(self) -> bool:
        return self._end is not None and time.monotonic() >= self._end

    def begin(self) -> bool:
        """Return True in a slice."""
        if self._end is None:
            with suppress(BlockingIOError):
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                self._end = time.monotonic() + _SLICE
        return self._end is not None

    def end(self) -> None:
        if self._end is not None:
            fcntl.flock(self._lock, fcntl.LOCK_UN)
            self._end = None

    def close(self) -> None:
        """End the slice, too."""
        os.close(self._lock)


def _with_connection(path: Path, stop: Callable[[], bool], search: Callable[..., T], *arguments: Any) -> T:
    with closing(open_to_read(path)) as connection:
        connection.set_progress_handler(stop, _STEPS)
        connection.execute("BEGIN")
        return search(connection, *arguments)


_UP, _RATE, _DOWN, _FAILED = range(4)
_SUBSCRIBER = "SELECT username, mac FROM session WHERE id = ? ORDER BY started DESC LIMIT 1"
_ENTRIES = f"""
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
_SESSION = """
SELECT id, started, ended, seen, reason, ip, access.text,
    EXISTS (SELECT 1 FROM clock_step AS step WHERE session.number <= step.session AND ? > step.at)
FROM session JOIN text AS access ON access.number = session.access WHERE session.number = ?
"""
_FIRST = (1 << 62,) * 4


def timeline(connection: sqlite3.Connection, id: int, page: Page) -> FoundPage[TimelineEntry] | None:
    """Return the timeline of the subscriber that has or had the session; None if no session had this id.
    Raises Invalid for a wrong cursor."""
    known = connection.execute(_SUBSCRIBER, (id,)).fetchone()
    if known is None:
        return None
    place = _FIRST if page.cursor is None else decode_numbers(page.cursor, len(_FIRST))
    values = dict(zip(("at", "number", "kind", "sequence"), place, strict=True))
    query = values | {"username": known[0], "mac": known[1], "limit": page.limit + 1}
    rows = connection.execute(_ENTRIES, query).fetchall()
    entries = [_entry(connection, row) for row in rows[: page.limit]]
    last = None if len(rows) <= page.limit else encode_cursor(rows[page.limit - 1][: len(_FIRST)])
    return FoundPage(entries, last)


def _entry(connection: sqlite3.Connection, row: Sequence[Any]) -> TimelineEntry:
    at, number, kind, _, down, up, expires, author = row
    if kind == _FAILED:
        return _failed_entry(numbered(connection, number))
    found = connection.execute(_SESSION, (at, number)).fetchone()
    id, started, ended, seen, reason, ip, access, is_wrong = found
    is_rate = kind == _RATE
    if kind == _UP:
        event = TimelineEvent.UP
        address = "no IPv4 address" if ip is None else decode_ipv4(ip)
        message = f"Session {id} started on {access} with {address}"
    elif is_rate:
        event = TimelineEvent.RATE
        until = "" if expires is None else f" until {format_utc(expires)}"
        message = f"Session {id} got {format_rate(down)} down and {format_rate(up)} up{until}{_by(author)}"
    elif seen is None:
        event = TimelineEvent.DOWN
        message = (
            f"Session {id} ended after {timedelta(seconds=max(0, ended - started))}, {reason}{_by(author)}"
        )
    else:
        event = TimelineEvent.LOST
        message = f"Session {id} ended between {format_utc(seen)} and {format_utc(ended)}: nobody saw the end"
    return TimelineEntry(
        at=at,
        event=event,
        session_id=id,
        message=message,
        author=author,
        reason=reason if event is TimelineEvent.DOWN else None,
        rate_down=down,
        rate_up=up,
        rate_expires_at=expires,
        clock=ClockState.UNSET if is_wrong else ClockState.SET,
    )


def _failed_entry(failed: FailedSignOns) -> TimelineEntry:
    who = failed.username or failed.mac_address or "an unknown subscriber"
    times = f", {failed.attempts} times until {format_utc(failed.last_at)}" if failed.attempts > 1 else ""
    return TimelineEntry(
        at=failed.first_at,
        event=TimelineEvent.FAILED,
        session_id=None,
        message=f"Sign-on of {who} on {failed.access_interface} failed, {failed.reason}{times}",
        author=None,
        reason=failed.reason,
        rate_down=None,
        rate_up=None,
        rate_expires_at=None,
        clock=failed.clock,
    )


def _by(author: str | None) -> str:
    return "" if author is None else f", by {author}"

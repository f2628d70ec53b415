"""Sessions in the history: the writer of sessions, and searches for sessions.

One commit stores a batch of events together with the position of the last event. After a kill or a power cut,
the writer continues after the stored position, and the core sends the later events again. So a commit need
not wait for the disk.
"""

# ruff: noqa: S608 - values of requests are never in a text of SQL.

import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

from msgspec import json

from gateway_api.history import sign_ons, traffic
from gateway_api.history.database import (
    ADDRESS,
    COLUMNS,
    DELEGATED,
    END_FIELDS,
    NUMBER_OF_TEXT,
    PREFIX,
    START_FIELDS,
    WRONG_START_CONDITION,
    Condition,
    HistoryWriter,
    decode_ipv4,
    decode_mac,
    decode_network,
    encode_ipv4,
    encode_mac,
    encode_network,
    find_enclosing_keys,
    find_inner_key_ranges,
    join_any,
    list_required,
    match_macs,
    match_names,
)
from gateway_contract.base import ipv6
from gateway_contract.base.errors import ListTooLarge
from gateway_contract.base.logs import LOG
from gateway_contract.base.pages import FoundPage, decode_numeric_cursor, encode_cursor
from gateway_contract.base.search import SearchText, parse_search
from gateway_contract.contract import MAX_LIMIT, Page
from gateway_contract.core.configuration import HistoryLimits
from gateway_contract.core.sessions import EventName, SessionEvent, SessionSummary
from gateway_contract.history import ClockState, FlappingSubscriber, PastSession

_INSERT_SESSION = f"""
INSERT INTO session ({", ".join(COLUMNS[field] for field in START_FIELDS)}, started)
VALUES ({", ".join("?" * len(START_FIELDS))}, ?) RETURNING number
"""
_UPDATE_END = f"""
UPDATE session SET started = ?, ended = ?, seen = NULL,
    {", ".join(f"{COLUMNS[field]} = ?" for field in END_FIELDS)}
WHERE number = ?
"""
_INSERT_RATE = "INSERT OR IGNORE INTO rate_change VALUES (?, ?, ?, ?, ?, ?, ?)"
_MARK_LOST = "UPDATE session SET ended = :now, seen = max(started, min(:seen, :now)) WHERE "
#: The plus keeps SQLite from the index of `ended`, which has all sessions that are up in one place.
_MARK_FORMER_LOST = f"{_MARK_LOST} id = :id AND +ended IS NULL"
_MARK_UNLISTED_LOST = f"""
{_MARK_LOST} ended IS NULL
    AND NOT EXISTS (SELECT 1 FROM temp.listed WHERE id = session.id AND started = session.started)
"""
#: A source may date a start by the clock as it is set now. A session that started before the core was last
#: heard was up then, so it is the one that had its id. Not in the lab, which makes other sessions with the
#: same ids, names and earlier starts.
_MOVE_START = """
UPDATE session SET started = :started WHERE id = :id AND +ended IS NULL AND started <> :started
    AND username = (SELECT number FROM text WHERE text = :username)
    AND :started <= :heard AND :source <> 'lab'
"""
_SELECT_UP = "SELECT number FROM session WHERE id = ? AND +ended IS NULL ORDER BY started = ? DESC"
_DELETE_OLDEST = """
DELETE FROM session WHERE number IN (
    SELECT number FROM session WHERE ended < ? ORDER BY ended LIMIT ?
) RETURNING ended, number, username, mac, interface, access
"""
#: The oldest changes of rates, also those of sessions that are up.
_DELETE_OLD_RATES = """
DELETE FROM rate_change WHERE (session, at, sequence) IN (
    SELECT session, at, sequence FROM rate_change WHERE at < ? ORDER BY at LIMIT ?
)
"""
#: Changes of rates that take as many bytes as one session with its indexes.
_RATE_CHANGES_PER_SESSION = 4
_DELETE_UNUSED_TEXT = """
DELETE FROM text WHERE number = :text
    AND NOT EXISTS (SELECT 1 FROM session WHERE username = :text)
    AND NOT EXISTS (SELECT 1 FROM session WHERE mac = :text)
    AND NOT EXISTS (SELECT 1 FROM session WHERE interface = :text)
    AND NOT EXISTS (SELECT 1 FROM session WHERE access = :text)
    AND NOT EXISTS (SELECT 1 FROM failed_sign_on WHERE username = :text)
    AND NOT EXISTS (SELECT 1 FROM failed_sign_on WHERE mac = :text)
    AND NOT EXISTS (SELECT 1 FROM failed_sign_on WHERE access = :text)
"""
#: Somebody who tries many names must not push sessions out of the history: failed sign-ons get a quarter of
#: its size, by the bytes of a row with its indexes.
_FAILURES_SIZE_DIVISOR, _FAILURE_BYTES = 4, 256
#: The traffic gets an eighth of the size.
_TRAFFIC_SIZE_DIVISOR, _SAMPLE_BYTES = 8, 32
#: SQLite's log of writes gets three eighths, at most so many bytes. It is emptied at half of that: the rest
#: is for what is written until then.
_WAL_SIZE_EIGHTHS, _MAX_WAL_BYTES = 3, 32 << 20
#: A clock that moves by more seconds was set.
_MIN_CLOCK_STEP_SECONDS = 60
_INSERT_STEP = """
INSERT INTO clock_step (session, failure, at) SELECT
    (SELECT coalesce(max(number), 0) FROM session), (SELECT coalesce(max(number), 0) FROM failed_sign_on), ?
"""
_MOVE_LAST_STEP = "UPDATE clock_step SET at = at + ? WHERE number = (SELECT max(number) FROM clock_step)"
#: SQLite gives the highest number again once its row is removed: the next row is not from before the step.
_FORGET_NUMBERS = """
UPDATE clock_step SET session = min(session, last_session), failure = min(failure, last_failure)
FROM (
    SELECT (SELECT coalesce(max(number), 0) FROM session) AS last_session,
        (SELECT coalesce(max(number), 0) FROM failed_sign_on) AS last_failure
) WHERE session > last_session OR failure > last_failure
"""
#: Each row costs time in each search.
_FORGET_STEPS = "DELETE FROM clock_step WHERE number <= (SELECT max(number) FROM clock_step) - ?"
_MAX_CLOCK_STEPS = 20
#: Sessions in one removal: one for each so many bytes above the limit, between two bounds.
_MIN_REMOVED_SESSIONS, _MAX_REMOVED_SESSIONS, _EXCESS_BYTES_PER_REMOVED_SESSION = 250, 5000, 1024
_INSTALLED_AT = Path(__file__).stat().st_mtime
_DAY_SECONDS = 86_400
_END_OF_TIME = 1 << 62

#: Fields with the number of a name, and where the name is.
_TEXT_COLUMNS = {
    "username": "name.text",
    "mac_address": "mac.text",
    "interface": "own.text",
    "access_interface": "access.text",
}
_SELECTED_COLUMNS = f"""
session.number, started, ended, seen, {WRONG_START_CONDITION},
{", ".join(_TEXT_COLUMNS.get(field, f"session.{COLUMNS[field]}") for field in COLUMNS)}
"""
_JOINED_TABLES = """
session
JOIN text AS name ON name.number = session.username
LEFT JOIN text AS mac ON mac.number = session.mac
JOIN text AS own ON own.number = session.interface
JOIN text AS access ON access.number = session.access
"""
_NEWEST_FIRST = "ORDER BY started DESC, session.number DESC LIMIT ?"
#: With max(), SQLite takes the other columns from the row that has it (section 2.5 of its SELECT document).
_SELECT_FLAPPING = f"""
SELECT name.text, sessions, mac.text, access.text, started, reason FROM (
    SELECT username, count(*) AS sessions, mac, access, max(started) AS started, reason, interface
    FROM session WHERE started >= ? AND started < ? AND NOT {WRONG_START_CONDITION}
    GROUP BY username HAVING count(*) > 1
    ORDER BY sessions DESC, started DESC LIMIT ?
) AS {_JOINED_TABLES} ORDER BY sessions DESC, started DESC
"""
#: Fields that have another form in the file: how they are encoded, and decoded.
_ENCODERS: dict[str, Callable[[Any], Any]] = {
    "mac_address": encode_mac,
    "ip_address": encode_ipv4,
    "type": str,
}
_DECODERS: dict[str, Callable[[Any], Any]] = {"mac_address": decode_mac, "ip_address": decode_ipv4}
#: The values of a new row to encode: index, encoder, and whether the text gets a number.
_ENCODED_FIELDS = [
    (index, _ENCODERS.get(field, str), field in _TEXT_COLUMNS)
    for index, field in enumerate(START_FIELDS)
    if field in _ENCODERS or field in _TEXT_COLUMNS
]
_read_start, _read_end = attrgetter(*START_FIELDS), attrgetter(*END_FIELDS)


def prepare(path: Path) -> None:
    """Create the database, so that the database can be read before any record exists. An error is only
    logged, because the service also works without a history."""
    try:
        SessionWriter(path).close()
    except (OSError, sqlite3.Error) as error:
        LOG.error(
            "cannot open or create the history %s (GATEWAY_API_STATE), nothing is recorded: %s", path, error
        )


class EventPosition(NamedTuple):
    """Position in the core's events: the last event that is in the history, and the time when the core last
    sent a batch, in epoch seconds."""

    boot_id: str
    sequence: int
    at: int


class SessionWriter(HistoryWriter):
    """Writer of sessions. The writer also trims the failed sign-ons and the traffic, and records when the
    clock was set back. `steady` returns the seconds of a clock that is never set. `made` is the time when the
    program was installed, in epoch seconds: a wall clock with an earlier time has not been set yet."""

    repairs = True

    def __init__(
        self, path: Path, steady: Callable[[], float] = time.monotonic, made: float = _INSTALLED_AT
    ) -> None:
        super().__init__(path)
        self._steady = steady
        self._made = made
        #: Seconds by which the wall clock was ahead of the steady one at the last place.
        self._wall_minus_steady: float | None = None
        #: Sessions whose end is not known, since the begin of a comparison.
        self._lost_count = 0

    def read_position(self) -> EventPosition | None:
        """Return the position of the last event that is in the history, or None for a new history."""
        row = self._connection.execute("SELECT boot_id, sequence, at FROM place").fetchone()
        return EventPosition(*row) if row else None

    def add(self, events: Sequence[SessionEvent], position: EventPosition) -> None:
        """Add all events and set the position, or change nothing after an error. Events that are already in
        the history are skipped."""
        self._require_room()
        with self._write():
            for event in events:
                match event.event:
                    case EventName.UP:
                        self._add_session(event, event.at if event.started_at is None else event.started_at)
                    case EventName.DOWN:
                        self._end_session(event)
                    case EventName.RATE:
                        self._add_rate_change(event)
            self._set_position(position)

    def begin_comparison(self) -> None:
        """Begin a comparison with the sessions that are up. The caller then passes each of these sessions to
        `compare` once."""
        self._lost_count = 0
        self._connection.executescript(
            "DROP TABLE IF EXISTS temp.listed;"
            "CREATE TEMP TABLE listed (id INTEGER PRIMARY KEY, started INTEGER NOT NULL)"
        )

    def compare(self, sessions: Sequence[SessionSummary], now: int) -> None:
        """Add the sessions that are missing in the history, and remember all passed sessions until
        `end_comparison`. `now` is epoch seconds."""
        with self._write():
            position = self.read_position()
            heard_at = position.at if position else 0
            for session in sessions:
                id, started = session.id, session.started_at
                self._connection.execute("INSERT OR REPLACE INTO temp.listed VALUES (?, ?)", (id, started))
                values = {"username": session.username, "source": session.source, "heard": heard_at}
                self._connection.execute(_MOVE_START, values | {"id": id, "started": started})
                self._add_session(session, started, now)

    def end_comparison(self, position: EventPosition) -> int:
        """Record the end of every stored session that is up and was not passed to `compare`. These sessions
        ended after the last recorded position. Then set the recorded position to `position`. Return the
        number of sessions whose end time is unknown."""
        with self._write():
            self._mark_lost(_MARK_UNLISTED_LOST, position.at)
            self._set_position(position)
        self._connection.execute("DROP TABLE temp.listed")
        return self._lost_count

    def trim(self, limits: HistoryLimits, now: int) -> bool:
        """Remove some of the oldest ended sessions, rate changes, failed sign-ons and traffic samples if the
        history is larger than `limits` allow, or if these rows are older than `limits` allow. `now` is epoch
        seconds. Return True if more rows may have to be removed."""
        size = limits.mebibytes << 20
        log = min(size * _WAL_SIZE_EIGHTHS // 8, _MAX_WAL_BYTES)
        self._log_bytes = log // 2
        page = self._connection.read_pragma("page_size")
        excess = self._connection.used_pages * page - size + log
        # A few write little into the log. Far above the limit, emptying it for each few would take too long.
        batch_size = min(
            max(_MIN_REMOVED_SESSIONS, excess // _EXCESS_BYTES_PER_REMOVED_SESSION), _MAX_REMOVED_SESSIONS
        )
        with self._connection.transaction():
            oldest_kept = now - limits.days * _DAY_SECONDS
            removed_rows = self._connection.execute(
                _DELETE_OLDEST, (_END_OF_TIME if excess > 0 else oldest_kept, batch_size)
            ).fetchall()
            for _, number, *_ in removed_rows:
                for table in ("network", "rate_change"):
                    self._connection.execute(f"DELETE FROM {table} WHERE session = ?", (number,))
            removed_rate_count = 0
            if excess > 0:
                # Changes of the time of the removed sessions. Without such sessions, the oldest changes.
                until = (
                    _END_OF_TIME
                    if len(removed_rows) < batch_size
                    else max(ended for ended, *_ in removed_rows)
                )
                max_rate_changes = batch_size * _RATE_CHANGES_PER_SESSION
                removed_rate_count = self._connection.execute(
                    _DELETE_OLD_RATES, (until, max_rate_changes)
                ).rowcount
            max_failures = size // _FAILURES_SIZE_DIVISOR // _FAILURE_BYTES
            failures = sign_ons.trim(self._connection, oldest_kept, max_failures)
            max_samples = size // _TRAFFIC_SIZE_DIVISOR // _SAMPLE_BYTES
            has_more = traffic.trim(self._connection, oldest_kept, max_samples)
            for text in {text for _, _, *texts in removed_rows for text in texts} | {*chain(*failures)}:
                self._connection.execute(_DELETE_UNUSED_TEXT, {"text": text})
            self._connection.execute(_FORGET_NUMBERS)
        # As a script: `execute` would free one page only.
        self._connection.executescript("PRAGMA incremental_vacuum")
        self._bound_log()
        return bool(removed_rows or removed_rate_count or failures or has_more)

    def _add_session(
        self, session: SessionEvent | SessionSummary, started: int, now: int | None = None
    ) -> int:
        """Insert a session if the history lacks the session, and return the number of the session. A stored
        session with the same id that is still up belongs to an earlier run of the core: record that it ended
        by `now`, or by `started` if `now` is None. Times are epoch seconds."""
        username = self._number_text(session.username)
        existing_row = self._connection.execute(
            "SELECT number FROM session WHERE id = ? AND started = ? AND username = ?",
            (session.id, started, username),
        ).fetchone()
        if existing_row:
            return int(existing_row[0])
        # A session with the same id is of a former run of the core.
        self._mark_lost(_MARK_FORMER_LOST, started if now is None else now, session.id)
        row = [*_read_start(session), started]
        for index, encode, is_text in _ENCODED_FIELDS:
            if row[index] is not None:
                value = encode(row[index])
                row[index] = self._number_text(value) if is_text else value
        (number,) = self._connection.execute(_INSERT_SESSION, row).fetchone()
        self._add_networks(number, session)
        return int(number)

    def _end_session(self, event: SessionEvent) -> None:
        duration = event.duration_seconds or 0
        started = event.at - duration if event.started_at is None else event.started_at
        number = self._find_open_session(event.id, started) or self._add_session(event, started)
        (is_known,) = self._connection.execute(
            "SELECT ended IS NOT NULL AND seen IS NULL FROM session WHERE number = ?", (number,)
        ).fetchone()
        if is_known:
            return
        self._connection.execute(_UPDATE_END, (started, event.at, *_read_end(event), number))
        # DHCPv6 may have delegated a prefix since the start.
        self._add_networks(number, event)

    def _add_rate_change(self, event: SessionEvent) -> None:
        started = event.at if event.started_at is None else event.started_at
        number = self._find_open_session(event.id, started) or self._add_session(event, started)
        rate_values = event.rate_down, event.rate_up, event.rate_expires_at, event.author
        self._connection.execute(_INSERT_RATE, (number, event.at, event.sequence, *rate_values))

    def _find_open_session(self, id: int, started: int) -> int | None:
        """Return the number of the session with this id that is up, or None if there is no such session. The
        start time in the history may differ from `started`, because the clock may have been set."""
        row = self._connection.execute(_SELECT_UP, (id, started)).fetchone()
        return int(row[0]) if row else None

    def _mark_lost(self, update: str, now: int, id: int | None = None) -> None:
        """End sessions whose end time is unknown, and count these sessions. `update` is the SQL statement
        that selects and ends the sessions. `now` is the latest possible end time, in epoch seconds. `id` is
        the session id for a statement that selects by id."""
        position = self.read_position()
        values = {"now": now, "seen": position.at if position else 0, "id": id}
        self._lost_count += self._connection.execute(update, values).rowcount

    def _add_networks(self, number: int, session: SessionEvent | SessionSummary) -> None:
        networks = [(ADDRESS, session.ipv6_address), (PREFIX, session.ipv6_prefix)]
        networks += [(DELEGATED, prefix) for prefix in session.delegated_prefixes]
        for kind, text in networks:
            if text is not None:
                self._connection.execute(
                    "INSERT OR IGNORE INTO network VALUES (?, ?, ?)", (encode_network(text), number, kind)
                )

    def _set_position(self, position: EventPosition) -> None:
        self._follow_clock(position)
        self._connection.execute("INSERT OR REPLACE INTO place VALUES (1, ?, ?, ?)", position)

    def _follow_clock(self, position: EventPosition) -> None:
        """Record a step of the wall clock since the last call. If the clock was set back, store a new step.
        If the clock was set forward, add the difference to the time of the last stored step instead: the
        clock was behind until now, for example during a boot before the network provided the time."""
        last, ahead = self.read_position(), position.at - self._steady()
        if self._wall_minus_steady is not None and ahead - self._wall_minus_steady > _MIN_CLOCK_STEP_SECONDS:
            self._connection.execute(_MOVE_LAST_STEP, (round(ahead - self._wall_minus_steady),))
        elif (
            last is not None and last.at - position.at > _MIN_CLOCK_STEP_SECONDS and position.at >= self._made
        ):
            self._connection.execute(_INSERT_STEP, (position.at,))
            self._connection.execute(_FORGET_STEPS, (_MAX_CLOCK_STEPS,))
        self._wall_minus_steady = ahead


class HistoryFilter(NamedTuple):
    """Filter for sessions: all conditions must hold. Times are Unix epoch seconds. Addresses have the normal
    form of `base.texts`."""

    id: int | None = None
    #: `pppoe` or `dhcp`.
    type: str | None = None
    username: str | None = None
    mac_address: str | None = None
    ip_address: str | None = None
    #: The session's own or its access interface.
    interface: str | None = None
    #: The session was up then.
    at: float | None = None
    #: The session was up then or later.
    since: float | None = None
    #: The session started before.
    until: float | None = None
    reason: str | None = None
    search: str | None = None

    @property
    def is_for_subscriber(self) -> bool:
        """True if the filter names one subscriber or has a search text. Only such a filter also matches
        records with wrong times: in a list of all subscribers, a record with a time in the future would be
        the newest record for years."""
        return any((self.id, self.username, self.mac_address, self.ip_address, self.search))


def find_sessions(
    connection: sqlite3.Connection, wanted: HistoryFilter, page: Page | None
) -> FoundPage[PastSession]:
    """Return the matching sessions, newest first: one page, or all sessions if `page` is None. Raises Invalid
    if the cursor is wrong, and ListTooLarge if `page` is None and too many sessions match."""
    conditions, values = _list_conditions(connection, wanted)
    if page is not None and page.cursor is not None:
        conditions.append("(started, session.number) < (?, ?)")
        values += decode_numeric_cursor(page.cursor, 2)
    limit = MAX_LIMIT if page is None else page.limit
    where = " AND ".join(conditions) or "TRUE"
    query = f"SELECT {_SELECTED_COLUMNS} FROM {_JOINED_TABLES} WHERE {where} {_NEWEST_FIRST}"
    rows = connection.execute(query, (*values, limit + 1)).fetchall()
    networks = _read_networks(connection, [row[0] for row in rows[:limit]])
    sessions = [_make_record(row, networks.get(row[0], ())) for row in rows[:limit]]
    if len(rows) == len(sessions):
        return FoundPage(sessions)
    if page is None:
        raise ListTooLarge
    number, started = rows[limit - 1][0], sessions[-1].started_at
    return FoundPage(sessions, encode_cursor((started, number)))


def find_flapping(
    connection: sqlite3.Connection, since: float, until: float, limit: int
) -> list[FlappingSubscriber]:
    """Return the subscribers that started the most sessions from `since` to `until`, in epoch seconds: at
    most `limit` subscribers, each with at least two sessions."""
    rows = connection.execute(_SELECT_FLAPPING, (since, until, limit))
    return [
        FlappingSubscriber(
            username, sessions, None if mac is None else decode_mac(mac), access, started, reason
        )
        for username, sessions, mac, access, started, reason in rows
    ]


def _list_conditions(connection: sqlite3.Connection, wanted: HistoryFilter) -> tuple[list[str], list[Any]]:
    """Return the SQL conditions of a filter, and the values to bind."""
    interface = f"(session.interface = {NUMBER_OF_TEXT} OR session.access = {NUMBER_OF_TEXT})"
    conditions, values = list_required(
        [
            ("session.id = ?", wanted.id),
            ("lower(type) = ?", wanted.type),
            (f"session.username = {NUMBER_OF_TEXT}", wanted.username),
            (f"session.mac = {NUMBER_OF_TEXT}", wanted.mac_address and encode_mac(wanted.mac_address)),
            (interface, wanted.interface),
            ("started <= ? AND (ended IS NULL OR ended > ?)", wanted.at),
            ("(ended IS NULL OR ended >= ?)", wanted.since),
            ("started < ?", wanted.until),
            ("reason = ?", wanted.reason),
        ]
    )
    if not wanted.is_for_subscriber:
        conditions.append(f"NOT {WRONG_START_CONDITION}")
    further_conditions = [] if wanted.ip_address is None else [_match_address(wanted.ip_address)]
    if wanted.search is not None:
        further_conditions.append(join_any(_match_search(connection, parse_search(wanted.search))))
    for condition, condition_values in further_conditions:
        conditions.append(condition)
        values.extend(condition_values)
    return conditions, values


def _match_search(connection: sqlite3.Connection, wanted: SearchText) -> Iterator[Condition]:
    """Yield an SQL condition for each possible meaning of a search text."""
    # A number with few digits is a part of a name here: the history has no other search for it.
    name = wanted.name or wanted.short_name
    if name is not None:
        columns = ("username",) if wanted.key is None else ("username", "interface", "access")
        yield from match_names(connection, name, [f"session.{column}" for column in columns])
    if wanted.id is not None:
        yield "session.id = ?", [wanted.id]
    if wanted.mac is not None:
        yield from match_macs(connection, wanted.mac, "session.mac")
    if wanted.ipv4 is not None:
        yield "ip BETWEEN ? AND ?", wanted.ipv4
    if wanted.ipv6 is not None:
        enclosing_keys = list(find_enclosing_keys(wanted.ipv6))
        inner_ranges = list(find_inner_key_ranges(wanted.ipv6))
        networks = [
            f"network IN ({', '.join('?' * len(enclosing_keys))})",
            *len(inner_ranges) * ["network BETWEEN ? AND ?"],
        ]
        condition_values = [*enclosing_keys, *chain.from_iterable(inner_ranges)]
        yield (
            f"session.number IN (SELECT session FROM network WHERE {' OR '.join(networks)})",
            condition_values,
        )


def _match_address(address: str) -> Condition:
    """Return the SQL condition that a session had this address."""
    if ":" not in address:
        return "ip = ?", [encode_ipv4(address)]
    enclosing_keys = list(find_enclosing_keys(ipv6.parse_address(address)))
    placeholders = ", ".join("?" * len(enclosing_keys))
    return (
        f"session.number IN (SELECT session FROM network WHERE network IN ({placeholders}))",
        enclosing_keys,
    )


def _read_networks(
    connection: sqlite3.Connection, numbers: Sequence[int]
) -> Mapping[int, list[tuple[bytes, int]]]:
    """Return a map from the number of each session to the networks of the session, each with its kind. One
    query reads the networks of all sessions: many queries would block the other threads of the
    interpreter."""
    query = "SELECT session, network, kind FROM network WHERE session IN (SELECT value FROM json_each(?))"
    found: dict[int, list[tuple[bytes, int]]] = {}
    for number, key, kind in connection.execute(query, (json.encode(numbers).decode(),)):
        found.setdefault(number, []).append((key, kind))
    return found


def _make_record(row: Sequence[Any], found: Sequence[tuple[bytes, int]]) -> PastSession:
    _, started, ended, seen, is_wrong, *stored = row
    fields = dict(zip(COLUMNS, stored, strict=True))
    for field, read in _DECODERS.items():
        if fields[field] is not None:
            fields[field] = read(fields[field])
    networks: dict[int, list[str]] = {ADDRESS: [], PREFIX: [], DELEGATED: []}
    for key, kind in found:
        networks[kind].append(decode_network(key))
    is_whole = ended is not None and seen is None
    return PastSession(
        **fields,
        ipv6_address=next(iter(networks[ADDRESS]), None),
        ipv6_prefix=next(iter(networks[PREFIX]), None),
        delegated_prefixes=tuple(networks[DELEGATED]),
        started_at=started,
        ended_at=ended if is_whole else None,
        ended_after=seen,
        ended_before=None if is_whole else ended,
        duration_seconds=max(0, ended - started) if is_whole else None,
        clock=ClockState.UNSET if is_wrong else ClockState.SET,
    )

"""Searches in the history. Any process may read, while another one writes."""

# ruff: noqa: S608 - values of requests are never in a text of SQL.

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias, TypeVar

from msgspec import json

from gateway_api.base import cursors
from gateway_api.base.errors import HistoryUnavailable, ListTooLarge, NotFound
from gateway_api.base.process import ThreadPool
from gateway_api.history import keys
from gateway_api.history.database import ADDRESS, DELEGATED, PREFIX, WRONG_START
from gateway_api.history.record import (
    ClockState,
    FlappingSubscriber,
    HistoryFilter,
    PastSession,
    WantedFailures,
)
from gateway_api.history.search import among_names, ipv4_network
from gateway_api.history.searches import Searches
from gateway_api.history.sign_ons import FoundFailures, failed_sign_ons
from gateway_api.history.timeline import Entries, timeline
from gateway_api.history.traffic import FoundTraffic, TrafficSpan, traffic
from gateway_api.wire.contract import Page

T = TypeVar("T")

#: Sessions in one response.
MOST = 10_000

_COLUMNS = f"""
session.number, session.id, type, name.text, mac.text, ip, own.text, access.text, outer_vlan, inner_vlan,
started, ended, seen, reason, bytes_in, bytes_out, packets_in, packets_out, author,
{WRONG_START}
"""
_TABLES = """
session
JOIN text AS name ON name.number = session.username
LEFT JOIN text AS mac ON mac.number = session.mac
JOIN text AS own ON own.number = session.interface
JOIN text AS access ON access.number = session.access
"""
_NAMES = ("session.username", "session.mac", "session.interface", "session.access")
_NEWEST_FIRST = "ORDER BY started DESC, session.number DESC LIMIT ?"
_NUMBER = "(SELECT number FROM text WHERE text = ?)"
#: With max(), SQLite takes the other columns from the row that has it (section 2.5 of its SELECT document).
_FLAPPING = f"""
SELECT name.text, sessions, mac.text, access.text, started, reason FROM (
    SELECT username, count(*) AS sessions, mac, access, max(started) AS started, reason, interface
    FROM session WHERE started >= ? AND started < ? AND NOT {WRONG_START}
    GROUP BY username HAVING count(*) > 1
    ORDER BY sessions DESC, started DESC LIMIT ?
) AS {_TABLES} ORDER BY sessions DESC, started DESC
"""
_OF_SESSIONS = """
SELECT session, network, kind FROM network WHERE session IN (SELECT value FROM json_each(?))
ORDER BY session, network
"""
_Networks: TypeAlias = Mapping[int, list[tuple[bytes, int]]]


class Found(NamedTuple):
    """The newest sessions first; `next_cursor` is None at the end."""

    sessions: list[PastSession]
    next_cursor: str | None


class Reader:
    """The history in the database at `path`, for a user. Methods raise HistoryUnavailable and SearchTooLong.
    Any greenlet may call."""

    def __init__(self, path: Path, pool: ThreadPool) -> None:
        self._searches = Searches(path, pool)
        self._user = ""

    def for_user(self, user: str) -> "Reader":
        """A reader for the searches of another user."""
        reader = copy(self)
        reader._user = user
        return reader

    def sessions(self, wanted: HistoryFilter, page: Page | None) -> Found:
        """The matching sessions, newest first: a page of them, or all. Raises Invalid for a wrong cursor, and
        ListTooLarge."""
        return self._result(_sessions, wanted, page)

    def failed_sign_ons(self, wanted: WantedFailures, page: Page) -> FoundFailures:
        """The matching attempts, the newest first. Raises Invalid for a wrong cursor."""
        return self._result(failed_sign_ons, wanted, page)

    def traffic(self, span: TrafficSpan) -> FoundTraffic:
        """The traffic of all trunks in a span. Raises Invalid for too small a step."""
        return self._result(traffic, span)

    def flapping(self, since: float, until: float, limit: int) -> list[FlappingSubscriber]:
        """The subscribers with the most sessions that started in the window, and more than one."""
        return self._result(_flapping, since, until, limit)

    def timeline(self, id: int, page: Page) -> Entries:
        """The timeline of the subscriber that has or had a session. Raises NotFound if no session had this
        id, and Invalid for a wrong cursor."""
        found = self._result(timeline, id, page)
        if found is None:
            raise NotFound("No such session")
        return found

    def _result(self, search: Callable[..., T], *arguments: Any) -> T:
        try:
            return self._searches.result(self._user, search, *arguments)
        except (OSError, sqlite3.Error) as error:
            raise HistoryUnavailable(error) from error


def _sessions(connection: sqlite3.Connection, wanted: HistoryFilter, page: Page | None) -> Found:
    conditions, values = _conditions(connection, wanted)
    if page is not None and page.cursor is not None:
        conditions.append("(started, session.number) < (?, ?)")
        values += cursors.decoded(page.cursor, 2)
    most = MOST if page is None else page.limit
    where = " AND ".join(conditions) or "TRUE"
    query = f"SELECT {_COLUMNS} FROM {_TABLES} WHERE {where} {_NEWEST_FIRST}"
    rows = connection.execute(query, (*values, most + 1)).fetchall()
    networks = _networks(connection, [row[0] for row in rows[:most]])
    sessions = [_record(row, networks.get(row[0], ())) for row in rows[:most]]
    if len(rows) == len(sessions):
        return Found(sessions, None)
    if page is None:
        raise ListTooLarge("The whole list is too large for one answer; use limit")
    number, started = rows[most - 1][0], sessions[-1].started_at
    return Found(sessions, cursors.encoded((started, number)))


def _flapping(
    connection: sqlite3.Connection, since: float, until: float, limit: int
) -> list[FlappingSubscriber]:
    rows = connection.execute(_FLAPPING, (since, until, limit))
    return [
        FlappingSubscriber(
            username, sessions, None if mac is None else keys.mac_text(mac), access, started, reason
        )
        for username, sessions, mac, access, started, reason in rows
    ]


def _conditions(connection: sqlite3.Connection, wanted: HistoryFilter) -> tuple[list[str], list[Any]]:
    """Conditions in SQL, and their values."""
    conditions: list[str] = []
    values: list[Any] = []

    def require(condition: str, *given: Any) -> None:
        conditions.append(condition)
        values.extend(given)

    if wanted.type is not None:
        require("lower(type) = ?", wanted.type)
    if wanted.username is not None:
        require(f"session.username = {_NUMBER}", wanted.username)
    if wanted.mac_address is not None:
        require(f"session.mac = {_NUMBER}", keys.of_mac(wanted.mac_address))
    if wanted.ip_address is not None:
        require(*_with_address(wanted.ip_address))
    if wanted.interface is not None:
        require(f"(session.interface = {_NUMBER} OR session.access = {_NUMBER})", *2 * [wanted.interface])
    if wanted.at is not None:
        require("started <= ? AND (ended IS NULL OR ended > ?)", *2 * [wanted.at])
    if wanted.since is not None:
        require("(ended IS NULL OR ended >= ?)", wanted.since)
    if wanted.until is not None:
        require("started < ?", wanted.until)
    if wanted.reason is not None:
        require("reason = ?", wanted.reason)
    if not wanted.names_a_subscriber:
        require(f"NOT {WRONG_START}")
    if wanted.search is not None:
        network = ipv4_network(wanted.search)
        if network is None:
            require(*among_names(connection, wanted.search, _NAMES))
        else:
            require("ip BETWEEN ? AND ?", int(network[0]), int(network[-1]))
    return conditions, values


def _with_address(address: str) -> list[Any]:
    if ":" not in address:
        return ["ip = ?", keys.of_ipv4(address)]
    around = list(keys.around(address))
    marks = ", ".join("?" * len(around))
    return [f"session.number IN (SELECT session FROM network WHERE network IN ({marks}))", *around]


def _networks(
    connection: sqlite3.Connection, numbers: Sequence[int]
) -> Mapping[int, list[tuple[bytes, int]]]:
    """The networks of sessions, with their kinds, by the number of the session. In one query: a query for
    each of many sessions would keep other threads from the interpreter."""
    query = "SELECT session, network, kind FROM network WHERE session IN (SELECT value FROM json_each(?))"
    found: dict[int, list[tuple[bytes, int]]] = {}
    for number, key, kind in connection.execute(query, (json.encode(numbers).decode(),)):
        found.setdefault(number, []).append((key, kind))
    return found


def _record(row: Sequence[Any], found: Sequence[tuple[bytes, int]]) -> PastSession:
    (_, id, type, username, mac, ip, interface, access, outer, inner, started, ended, seen, reason,
     *counters) = row  # fmt: skip
    networks: dict[int, list[str]] = {ADDRESS: [], PREFIX: [], DELEGATED: []}
    for key, kind in found:
        networks[kind].append(keys.network_text(key))
    is_whole = ended is not None and seen is None
    return PastSession(
        id=id,
        type=type,
        username=username,
        mac_address=None if mac is None else keys.mac_text(mac),
        ip_address=None if ip is None else keys.ipv4_text(ip),
        ipv6_address=next(iter(networks[ADDRESS]), None),
        ipv6_prefix=next(iter(networks[PREFIX]), None),
        delegated_prefixes=tuple(networks[DELEGATED]),
        interface=interface,
        access_interface=access,
        outer_vlan_id=outer,
        inner_vlan_id=inner,
        started_at=started,
        ended_at=ended if is_whole else None,
        ended_after=seen,
        ended_before=None if is_whole else ended,
        duration_seconds=max(0, ended - started) if is_whole else None,
        reason=reason,
        bytes_in=counters[0],
        bytes_out=counters[1],
        packets_in=counters[2],
        packets_out=counters[3],
        author=counters[4],
        clock=ClockState.UNSET if counters[5] else ClockState.SET,
    )

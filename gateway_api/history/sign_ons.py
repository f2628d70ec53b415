"""Failed sign-ons in the history: their writer, their recorder, and searches for them.

Routers try again for as long as they are on, so attempts that follow one another are one row. As for
sessions, a batch and the place of its last failure are one commit.
"""

# ruff: noqa: S608 - values of requests are never in a text of SQL.

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import gevent

from gateway_api.base.retry import UNTIL_ANOTHER_CORE_SECONDS
from gateway_api.history.database import (
    NUMBER_OF_TEXT,
    WRONG_FAILURE,
    Condition,
    Writer,
    decode_mac,
    encode_mac,
    in_use,
    join_any,
    match_macs,
    match_names,
    require_room,
)
from gateway_contract.base.errors import CoreLacksMethod
from gateway_contract.base.logs import LOG
from gateway_contract.base.pages import FoundPage, decode_numbers, encode_cursor
from gateway_contract.base.process import ThreadPool, on_thread
from gateway_contract.base.search import SearchText, parse_search
from gateway_contract.contract import Page
from gateway_contract.core.sign_ons import FailedSignOn, SubscribeFailedSignOns
from gateway_contract.core_client import CoreClient
from gateway_contract.history import MAX_PAUSE, ClockState, FailedSignOns

_AGAIN = f"""
UPDATE failed_sign_on SET last = max(last, :at), attempts = attempts + 1 WHERE number = (
    SELECT number FROM failed_sign_on
    WHERE username IS :username AND mac IS :mac AND access = :access AND reason = :reason
        AND began <= :at AND last >= :at - {MAX_PAUSE}
    ORDER BY began DESC LIMIT 1
)
"""
_FIRST = """
INSERT INTO failed_sign_on
    (type, username, mac, access, outer_vlan, inner_vlan, source, reason, began, last, attempts)
VALUES (:type, :username, :mac, :access, :outer_vlan, :inner_vlan, :source, :reason, :at, :at, 1)
"""
_OLD = """
SELECT number FROM failed_sign_on WHERE began < :before AND last < :before ORDER BY began LIMIT 1000
"""
_TOO_MANY = """
SELECT number FROM failed_sign_on WHERE number <= (SELECT max(number) FROM failed_sign_on) - :most
ORDER BY number LIMIT 1000
"""
_COLUMNS = f"""
failed.number, type, name.text, mac.text, access.text, outer_vlan, inner_vlan, source, reason, attempts,
began, last, {WRONG_FAILURE}
"""
_TABLES = """
failed_sign_on AS failed
LEFT JOIN text AS name ON name.number = failed.username
LEFT JOIN text AS mac ON mac.number = failed.mac
JOIN text AS access ON access.number = failed.access
"""
_NEWEST_FIRST = "ORDER BY began DESC, failed.number DESC LIMIT ?"


class SignOnPlace(NamedTuple):
    """The last failure at the core that is in the history."""

    boot_id: str
    sequence: int


#: No run of the core has this name.
_NOWHERE = SignOnPlace("none", 0)


class SignOnStore(Writer):
    """The writer of failed sign-ons, as `Writer`."""

    def place(self) -> SignOnPlace | None:
        row = self._connection.execute("SELECT boot_id, sequence FROM sign_on_place").fetchone()
        return SignOnPlace(*row) if row else None

    def add(self, failures: Sequence[FailedSignOn], place: SignOnPlace) -> None:
        """All of them, or none."""
        require_room(self._path)
        with self._transaction():
            for failure in failures:
                self._add(failure)
            self._connection.execute("INSERT OR REPLACE INTO sign_on_place VALUES (1, ?, ?)", place)
        self._bound_log()

    def _add(self, failure: FailedSignOn) -> None:
        mac = failure.mac_address
        values = {
            "type": str(failure.type),
            "username": None if failure.username is None else self._text(failure.username),
            "mac": None if mac is None else self._text(encode_mac(mac)),
            "access": self._text(failure.access_interface),
            "outer_vlan": failure.outer_vlan_id,
            "inner_vlan": failure.inner_vlan_id,
            "source": failure.source,
            "reason": failure.reason,
            "at": failure.at,
        }
        if not self._connection.execute(_AGAIN, values).rowcount:
            self._connection.execute(_FIRST, values)


def trim(connection: sqlite3.Connection, before: int, most: int) -> list[tuple[int | None, ...]]:
    """Remove some of the rows whose last attempt was before a time, and of those that are more than so many.
    Return the numbers of their names."""
    removed = []
    for rows in _OLD, _TOO_MANY:
        removed += connection.execute(
            f"DELETE FROM failed_sign_on WHERE number IN ({rows}) RETURNING username, mac, access",
            {"before": before, "most": most},
        ).fetchall()
    return removed


class SignOnRecorder:
    """`pause` takes seconds."""

    def __init__(
        self,
        core: CoreClient,
        path: Path,
        pool: ThreadPool,
        pause: Callable[[float], None] = gevent.sleep,
    ) -> None:
        self._core = core
        self._path = path
        self._pool = pool
        self._pause = pause
        self._warned = False

    def record(self) -> None:
        """Record until the core breaks off, or the file is replaced. Raises CoreUnavailable, OSError and
        sqlite3.Error."""
        with in_use(on_thread(self._pool, SignOnStore, self._path), self._pool) as store:
            place = on_thread(self._pool, store.place) or _NOWHERE
            while store.is_current:
                try:
                    place = self._follow(store, place)
                except CoreLacksMethod as error:
                    if not self._warned:
                        LOG.warning("the history has no failed sign-ons: %s", error)
                    self._warned = True
                    self._pause(UNTIL_ANOTHER_CORE_SECONDS)

    def _follow(self, store: SignOnStore, place: SignOnPlace) -> SignOnPlace:
        """Record up to the next hole. Return where it has come to."""
        for batch in self._core.follow(SubscribeFailedSignOns(*place)):
            self._warned = False
            if batch.gap:
                if place.boot_id == batch.boot_id:
                    lost = batch.oldest - 1 - place.sequence
                    LOG.warning("the history has a hole: %d failed sign-ons are not known", lost)
                return SignOnPlace(batch.boot_id, batch.oldest - 1)
            if batch.failures:
                place = SignOnPlace(batch.boot_id, batch.failures[-1].sequence)
                on_thread(self._pool, store.add, batch.failures, place)
            if not store.is_current:
                break
        return place


class WantedFailures(NamedTuple):
    """Which failed sign-ons: as `HistoryFilter`."""

    type: str | None = None
    username: str | None = None
    mac_address: str | None = None
    #: The access interface.
    interface: str | None = None
    #: Those whose last attempt was then or later.
    since: float | None = None
    #: Those that began before.
    until: float | None = None
    reason: str | None = None
    search: str | None = None

    @property
    def names_a_subscriber(self) -> bool:
        """As that of `HistoryFilter`."""
        return any((self.username, self.mac_address, self.search))


def failed_sign_ons(
    connection: sqlite3.Connection, wanted: WantedFailures, page: Page
) -> FoundPage[FailedSignOns]:
    """Return a page of the matching ones. Raises Invalid for a wrong cursor."""
    conditions, values = _conditions(connection, wanted)
    if not wanted.names_a_subscriber:
        conditions.append(f"NOT {WRONG_FAILURE}")
    if page.cursor is not None:
        conditions.append("(began, failed.number) < (?, ?)")
        values += decode_numbers(page.cursor, 2)
    where = " AND ".join(conditions) or "TRUE"
    query = f"SELECT {_COLUMNS} FROM {_TABLES} WHERE {where} {_NEWEST_FIRST}"
    rows = connection.execute(query, (*values, page.limit + 1)).fetchall()
    found = [_record(row) for row in rows[: page.limit]]
    if len(rows) == len(found):
        return FoundPage(found)
    return FoundPage(found, encode_cursor((found[-1].first_at, rows[page.limit - 1][0])))


def numbered(connection: sqlite3.Connection, number: int) -> FailedSignOns:
    """One that exists."""
    query = f"SELECT {_COLUMNS} FROM {_TABLES} WHERE failed.number = ?"
    return _record(connection.execute(query, (number,)).fetchone())


def _conditions(connection: sqlite3.Connection, wanted: WantedFailures) -> tuple[list[str], list[Any]]:
    """Conditions in SQL, and their values."""
    mac = None if wanted.mac_address is None else encode_mac(wanted.mac_address)
    required = [
        ("lower(type) = ?", wanted.type),
        (f"failed.username = {NUMBER_OF_TEXT}", wanted.username),
        (f"failed.mac = {NUMBER_OF_TEXT}", mac),
        (f"failed.access = {NUMBER_OF_TEXT}", wanted.interface),
        ("reason = ?", wanted.reason),
        ("last >= ?", wanted.since),
        ("began < ?", wanted.until),
    ]
    conditions = [condition for condition, value in required if value is not None]
    values = [value for _, value in required if value is not None]
    if wanted.search is not None:
        condition, given = join_any(_make_conditions(connection, parse_search(wanted.search)))
        return [*conditions, condition], [*values, *given]
    return conditions, values


def _make_conditions(connection: sqlite3.Connection, wanted: SearchText) -> Iterator[Condition]:
    """Yield a condition for each meaning of the text of a search. A failed sign-on has neither an id nor an
    IP address."""
    name = wanted.name or wanted.short_name
    if name is not None:
        columns = ["failed.username"] if wanted.key is None else ["failed.username", "failed.access"]
        yield from match_names(connection, name, columns)
    if wanted.mac is not None:
        yield from match_macs(connection, wanted.mac, "failed.mac")


def _record(row: Sequence[Any]) -> FailedSignOns:
    """From a row with the `_COLUMNS`, which are in the order of the record's fields."""
    _, type, username, mac, *others, is_wrong = row
    clock = ClockState.UNSET if is_wrong else ClockState.SET
    return FailedSignOns(*(type, username, None if mac is None else decode_mac(mac), *others, clock))

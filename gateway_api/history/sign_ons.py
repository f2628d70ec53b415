"""Failed sign-ons in the history: their writer, their recorder, and searches for failed sign-ons.

A router repeats a failed sign-on for as long as the router is on, so consecutive attempts are one row. One
commit stores a batch together with the position of the last failure in the batch, as for sessions.
"""

# ruff: noqa: S608 - values of requests are never in a text of SQL.

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import gevent

from gateway_api.history.database import (
    NUMBER_OF_TEXT,
    WRONG_FAILURE_CONDITION,
    Condition,
    HistoryWriter,
    decode_mac,
    encode_mac,
    join_any,
    list_required,
    match_macs,
    match_names,
    use_writer,
)
from gateway_contract.base.errors import CoreLacksMethod
from gateway_contract.base.logs import LOG
from gateway_contract.base.pages import FoundPage, decode_numeric_cursor, encode_cursor
from gateway_contract.base.process import ThreadPool, run_on_thread
from gateway_contract.base.retry import MISSING_METHOD_RETRY_SECONDS
from gateway_contract.base.search import SearchText, parse_search
from gateway_contract.contract import Page
from gateway_contract.core.sign_ons import FailedSignOn, SubscribeFailedSignOns
from gateway_contract.core_client import CoreClient
from gateway_contract.history import MAX_PAUSE_SECONDS, ClockState, FailedSignOns

_UPDATE_ATTEMPTS = f"""
UPDATE failed_sign_on SET last = max(last, :at), attempts = attempts + 1 WHERE number = (
    SELECT number FROM failed_sign_on
    WHERE username IS :username AND mac IS :mac AND access = :access AND reason = :reason
        AND began <= :at AND last >= :at - {MAX_PAUSE_SECONDS}
    ORDER BY began DESC LIMIT 1
)
"""
_INSERT_FAILURE = """
INSERT INTO failed_sign_on
    (type, username, mac, access, outer_vlan, inner_vlan, source, reason, began, last, attempts)
VALUES (:type, :username, :mac, :access, :outer_vlan, :inner_vlan, :source, :reason, :at, :at, 1)
"""
_SELECT_OLD = """
SELECT number FROM failed_sign_on WHERE began < :before AND last < :before ORDER BY began LIMIT 1000
"""
_SELECT_TOO_MANY = """
SELECT number FROM failed_sign_on WHERE number <= (SELECT max(number) FROM failed_sign_on) - :most
ORDER BY number LIMIT 1000
"""
_SELECTED_COLUMNS = f"""
failed.number, type, name.text, mac.text, access.text, outer_vlan, inner_vlan, source, reason, attempts,
began, last, {WRONG_FAILURE_CONDITION}
"""
_JOINED_TABLES = """
failed_sign_on AS failed
LEFT JOIN text AS name ON name.number = failed.username
LEFT JOIN text AS mac ON mac.number = failed.mac
JOIN text AS access ON access.number = failed.access
"""
_NEWEST_FIRST = "ORDER BY began DESC, failed.number DESC LIMIT ?"


class SignOnPosition(NamedTuple):
    """Position in the core's failed sign-ons: the last failure that is in the history."""

    boot_id: str
    sequence: int


#: No run of the core has this name.
_START_POSITION = SignOnPosition("none", 0)


class SignOnWriter(HistoryWriter):
    """Writer of failed sign-ons."""

    def read_position(self) -> SignOnPosition | None:
        """Return the position of the last failure that is in the history, or None for a new history."""
        row = self._connection.execute("SELECT boot_id, sequence FROM sign_on_place").fetchone()
        return SignOnPosition(*row) if row else None

    def add(self, failures: Sequence[FailedSignOn], position: SignOnPosition) -> None:
        """Add all failures and set the position, or change nothing after an error."""
        self._require_room()
        with self._write():
            for failure in failures:
                self._add(failure)
            self._connection.execute("INSERT OR REPLACE INTO sign_on_place VALUES (1, ?, ?)", position)

    def _add(self, failure: FailedSignOn) -> None:
        mac = failure.mac_address
        values = {
            "type": str(failure.type),
            "username": None if failure.username is None else self._number_text(failure.username),
            "mac": None if mac is None else self._number_text(encode_mac(mac)),
            "access": self._number_text(failure.access_interface),
            "outer_vlan": failure.outer_vlan_id,
            "inner_vlan": failure.inner_vlan_id,
            "source": failure.source,
            "reason": failure.reason,
            "at": failure.at,
        }
        if not self._connection.execute(_UPDATE_ATTEMPTS, values).rowcount:
            self._connection.execute(_INSERT_FAILURE, values)


def trim(connection: sqlite3.Connection, before: int, max_rows: int) -> list[tuple[int | None, ...]]:
    """Remove some of the rows whose last attempt was before `before`, in epoch seconds, and some of the
    oldest rows if there are more than `max_rows`. Return for each removed row the text numbers of its user
    name, MAC address and access interface."""
    removed_texts = []
    for rows in _SELECT_OLD, _SELECT_TOO_MANY:
        removed_texts += connection.execute(
            f"DELETE FROM failed_sign_on WHERE number IN ({rows}) RETURNING username, mac, access",
            {"before": before, "most": max_rows},
        ).fetchall()
    return removed_texts


class SignOnRecorder:
    """Recorder of failed sign-ons, which follows the core's stream of failures. `pause` waits for a number of
    seconds."""

    def __init__(
        self, core: CoreClient, path: Path, pool: ThreadPool, pause: Callable[[float], None] = gevent.sleep
    ) -> None:
        self._core = core
        self._path = path
        self._pool = pool
        self._pause = pause
        self._has_warned = False

    def record(self) -> None:
        """Record failed sign-ons until the core ends the stream of failed sign-ons, or the database file of
        the history is replaced. Raises CoreUnavailable if the core is unavailable, and OSError or
        sqlite3.Error if the history cannot be written."""
        with use_writer(SignOnWriter, self._path, self._pool) as writer:
            position = run_on_thread(self._pool, writer.read_position) or _START_POSITION
            while writer.is_current:
                try:
                    position = self._follow(writer, position)
                except CoreLacksMethod as error:
                    if not self._has_warned:
                        LOG.warning("cannot record failed sign-ons in the history, trying again: %s", error)
                    self._has_warned = True
                    self._pause(MISSING_METHOD_RETRY_SECONDS)

    def _follow(self, writer: SignOnWriter, position: SignOnPosition) -> SignOnPosition:
        """Record the failures after `position` up to the next gap, or until the file is replaced. Return the
        position after which to continue: of the last recorded failure, or after the gap."""
        for batch in self._core.follow(SubscribeFailedSignOns(*position)):
            self._has_warned = False
            if batch.gap:
                if position.boot_id == batch.boot_id:
                    lost_count = batch.oldest - 1 - position.sequence
                    LOG.warning("the history has a gap: %d failed sign-ons were not recorded", lost_count)
                return SignOnPosition(batch.boot_id, batch.oldest - 1)
            if batch.failures:
                position = SignOnPosition(batch.boot_id, batch.failures[-1].sequence)
                run_on_thread(self._pool, writer.add, batch.failures, position)
            if not writer.is_current:
                break
        return position


class SignOnFilter(NamedTuple):
    """Filter for failed sign-ons: all conditions must hold. Times are Unix epoch seconds."""

    type: str | None = None
    username: str | None = None
    mac_address: str | None = None
    #: The access interface.
    interface: str | None = None
    #: The last attempt was then or later.
    since: float | None = None
    #: The first attempt was before.
    until: float | None = None
    reason: str | None = None
    search: str | None = None

    @property
    def is_for_subscriber(self) -> bool:
        """True if the filter is for one subscriber or a search text, and so also matches records with wrong
        times."""
        return any((self.username, self.mac_address, self.search))


def find_failed_sign_ons(
    connection: sqlite3.Connection, wanted: SignOnFilter, page: Page
) -> FoundPage[FailedSignOns]:
    """Return a page of the matching failed sign-ons, newest first. Raises Invalid if the cursor is wrong."""
    conditions, values = _list_conditions(connection, wanted)
    if not wanted.is_for_subscriber:
        conditions.append(f"NOT {WRONG_FAILURE_CONDITION}")
    if page.cursor is not None:
        conditions.append("(began, failed.number) < (?, ?)")
        values += decode_numeric_cursor(page.cursor, 2)
    where = " AND ".join(conditions) or "TRUE"
    query = f"SELECT {_SELECTED_COLUMNS} FROM {_JOINED_TABLES} WHERE {where} {_NEWEST_FIRST}"
    rows = connection.execute(query, (*values, page.limit + 1)).fetchall()
    records = [_make_record(row) for row in rows[: page.limit]]
    if len(rows) == len(records):
        return FoundPage(records)
    return FoundPage(records, encode_cursor((records[-1].first_at, rows[page.limit - 1][0])))


def read_failed_sign_ons(connection: sqlite3.Connection, number: int) -> FailedSignOns:
    """Return the record of the failed sign-ons with this row number. The row must exist."""
    query = f"SELECT {_SELECTED_COLUMNS} FROM {_JOINED_TABLES} WHERE failed.number = ?"
    return _make_record(connection.execute(query, (number,)).fetchone())


def _list_conditions(connection: sqlite3.Connection, wanted: SignOnFilter) -> tuple[list[str], list[Any]]:
    """Return the SQL conditions of a filter, and the values to bind."""
    conditions, values = list_required(
        [
            ("lower(type) = ?", wanted.type),
            (f"failed.username = {NUMBER_OF_TEXT}", wanted.username),
            (f"failed.mac = {NUMBER_OF_TEXT}", wanted.mac_address and encode_mac(wanted.mac_address)),
            (f"failed.access = {NUMBER_OF_TEXT}", wanted.interface),
            ("reason = ?", wanted.reason),
            ("last >= ?", wanted.since),
            ("began < ?", wanted.until),
        ]
    )
    if wanted.search is not None:
        condition, condition_values = join_any(_match_search(connection, parse_search(wanted.search)))
        return [*conditions, condition], [*values, *condition_values]
    return conditions, values


def _match_search(connection: sqlite3.Connection, wanted: SearchText) -> Iterator[Condition]:
    """Yield an SQL condition for each possible meaning of a search text. A failed sign-on has neither an id
    nor an IP address."""
    name = wanted.name or wanted.short_name
    if name is not None:
        columns = ["failed.username"] if wanted.key is None else ["failed.username", "failed.access"]
        yield from match_names(connection, name, columns)
    if wanted.mac is not None:
        yield from match_macs(connection, wanted.mac, "failed.mac")


def _make_record(row: Sequence[Any]) -> FailedSignOns:
    """Return the record for a row of `_SELECTED_COLUMNS`. These columns have the order of the record's
    fields."""
    _, type, username, mac, *others, is_wrong = row
    clock = ClockState.UNSET if is_wrong else ClockState.SET
    return FailedSignOns(*(type, username, None if mac is None else decode_mac(mac), *others, clock))

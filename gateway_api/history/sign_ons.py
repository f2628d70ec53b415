"""Searches for sign-ons that failed."""

# ruff: noqa: S608 - values of requests are never in a text of SQL.

import sqlite3
from typing import Any, NamedTuple

from gateway_api.history import cursors, keys
from gateway_api.history.database import WRONG_FAILURE
from gateway_api.history.record import ClockState, FailedSignOns, WantedFailures
from gateway_api.history.search import among_names
from gateway_api.wire.contract import Page

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
_NUMBER = "(SELECT number FROM text WHERE text = ?)"
_NAMES = ("failed.username", "failed.mac", "failed.access")


class FoundFailures(NamedTuple):
    """The newest first; `next_cursor` is None at the end."""

    failures: list[FailedSignOns]
    next_cursor: str | None


def failed_sign_ons(connection: sqlite3.Connection, wanted: WantedFailures, page: Page) -> FoundFailures:
    """A page of the matching ones. Raises Invalid for a wrong cursor."""
    conditions, values = _conditions(connection, wanted)
    if not wanted.names_a_subscriber:
        conditions.append(f"NOT {WRONG_FAILURE}")
    if page.cursor is not None:
        conditions.append("(began, failed.number) < (?, ?)")
        values += cursors.decoded(page.cursor, 2)
    where = " AND ".join(conditions) or "TRUE"
    query = f"SELECT {_COLUMNS} FROM {_TABLES} WHERE {where} {_NEWEST_FIRST}"
    rows = connection.execute(query, (*values, page.limit + 1)).fetchall()
    found = [_record(*row) for row in rows[: page.limit]]
    if len(rows) == len(found):
        return FoundFailures(found, None)
    return FoundFailures(found, cursors.encoded((found[-1].first_at, rows[page.limit - 1][0])))


def numbered(connection: sqlite3.Connection, number: int) -> FailedSignOns:
    """One that exists."""
    query = f"SELECT {_COLUMNS} FROM {_TABLES} WHERE failed.number = ?"
    return _record(*connection.execute(query, (number,)).fetchone())


def _conditions(connection: sqlite3.Connection, wanted: WantedFailures) -> tuple[list[str], list[Any]]:
    """Conditions in SQL, and their values."""
    among = None if wanted.search is None else among_names(connection, wanted.search, _NAMES)
    mac = None if wanted.mac_address is None else keys.of_mac(wanted.mac_address)
    required = [
        ("lower(type) = ?", wanted.type),
        (f"failed.username = {_NUMBER}", wanted.username),
        (f"failed.mac = {_NUMBER}", mac),
        (f"failed.access = {_NUMBER}", wanted.interface),
        ("reason = ?", wanted.reason),
        ("last >= ?", wanted.since),
        ("began < ?", wanted.until),
    ]
    conditions = [condition for condition, value in required if value is not None]
    values = [value for _, value in required if value is not None]
    if among is not None:
        condition, *patterns = among
        return [*conditions, condition], [*values, *patterns]
    return conditions, values


def _record(
    _: int,
    type: str,
    username: str | None,
    mac: str | None,
    access: str,
    outer: int | None,
    inner: int | None,
    source: str,
    reason: str,
    attempts: int,
    began: int,
    last: int,
    is_wrong: int,
) -> FailedSignOns:
    return FailedSignOns(
        type=type,  # type: ignore[arg-type]
        username=username,
        mac_address=None if mac is None else keys.mac_text(mac),
        access_interface=access,
        outer_vlan_id=outer,
        inner_vlan_id=inner,
        source=source,
        reason=reason,
        attempts=attempts,
        first_at=began,
        last_at=last,
        clock=ClockState.UNSET if is_wrong else ClockState.SET,
    )

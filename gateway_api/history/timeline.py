"""The timeline of one subscriber, the newest entry first."""

# ruff: noqa: S608 - values of requests are never in a text of SQL.

import sqlite3
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from gateway_api.history import keys
from gateway_api.history.sign_ons import numbered
from gateway_contract.base.pages import FoundPage, cursor_of, place_at
from gateway_contract.base.texts import rate_text, utc_text
from gateway_contract.contract import Page
from gateway_contract.history import ClockState, FailedSignOns, TimelineEntry, TimelineEvent

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
    place = _FIRST if page.cursor is None else place_at(page.cursor, len(_FIRST))
    values = dict(zip(("at", "number", "kind", "sequence"), place, strict=True))
    query = values | {"username": known[0], "mac": known[1], "limit": page.limit + 1}
    rows = connection.execute(_ENTRIES, query).fetchall()
    entries = [_entry(connection, row) for row in rows[: page.limit]]
    last = None if len(rows) <= page.limit else cursor_of(rows[page.limit - 1][: len(_FIRST)])
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
        address = "no IPv4 address" if ip is None else keys.ipv4_text(ip)
        message = f"Session {id} started on {access} with {address}"
    elif is_rate:
        event = TimelineEvent.RATE
        until = "" if expires is None else f" until {utc_text(expires)}"
        message = f"Session {id} got {rate_text(down)} down and {rate_text(up)} up{until}{_by(author)}"
    elif seen is None:
        event = TimelineEvent.DOWN
        message = (
            f"Session {id} ended after {timedelta(seconds=max(0, ended - started))}, {reason}{_by(author)}"
        )
    else:
        event = TimelineEvent.LOST
        message = f"Session {id} ended between {utc_text(seen)} and {utc_text(ended)}: nobody saw the end"
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
    times = f", {failed.attempts} times until {utc_text(failed.last_at)}" if failed.attempts > 1 else ""
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

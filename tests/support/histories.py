"""Events of sessions, and histories of them."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from gateway_api.history import sign_ons
from gateway_api.history.reader import Reader
from gateway_api.history.sessions import EventPosition, HistoryFilter, SessionWriter, find_sessions
from gateway_api.history.sign_ons import SignOnFilter, SignOnWriter, find_failed_sign_ons
from gateway_contract.contract import Page
from gateway_contract.core.sessions import SessionEvent, SessionSummary, SessionType
from gateway_contract.core.sign_ons import FailedSignOn
from gateway_contract.history import FailedSignOns, PastSession
from tests.support.pools import Here
from tests.support.records import session

BOOT = "84a7e8343baf37f9"


def listed(id: int, started_at: int, **fields: Any) -> SessionSummary:
    """Return a session that is up, with a username of its own."""
    return session(id, started_at=started_at, **fields)


def up(id: int, at: int, **fields: Any) -> SessionEvent:
    return _event("session.up", listed(id, at, **fields), at)


def down(
    id: int, started_at: int, at: int, reason: str = "user_request", author: str | None = None, **fields: Any
) -> SessionEvent:
    ended = {
        "author": author,
        "reason": reason,
        "bytes_in": 10,
        "bytes_out": 20,
        "packets_in": 1,
        "packets_out": 2,
    }
    lasted = {"duration_seconds": at - started_at}
    return _event("session.down", listed(id, started_at, **fields), at, **ended, **lasted)


def rate(
    id: int,
    started_at: int,
    at: int,
    down: int,
    up: int,
    expires_at: int | None = None,
    author: str | None = None,
    sequence: int = 1,
    **fields: Any,
) -> SessionEvent:
    rates = {"rate_down": down, "rate_up": up, "rate_expires_at": expires_at}
    return _event("session.rate", listed(id, started_at, **fields), at, sequence, author=author, **rates)


def _event(name: str, of: SessionSummary, at: int, sequence: int = 1, **more: Any) -> SessionEvent:
    shared = {field for field in SessionEvent.__struct_fields__ if hasattr(of, field)} - {
        "rate_down",
        "rate_up",
    }
    return SessionEvent(sequence=sequence, event=name, at=at, **{f: getattr(of, f) for f in shared}, **more)  # type: ignore[arg-type]


def failed(at: int, **fields: Any) -> FailedSignOn:
    return FailedSignOn(
        **{
            "sequence": 1,
            "at": at,
            "type": SessionType.PPPOE,
            "username": "ann",
            "mac_address": "02:00:00:00:00:07",
            "access_interface": "trunk0.7",
            "outer_vlan_id": None,
            "inner_vlan_id": 7,
            "source": "lab",
            "reason": "rejected",
            **fields,
        }
    )


def remember(path: Path, *events: SessionEvent) -> None:
    """Add events that no service recorded: the place up to which a service has read stays."""
    with closing(SessionWriter(path)) as store:
        store.add(events, store.read_position() or EventPosition(BOOT, 0, 0))


def remember_failures(path: Path, *failures: FailedSignOn) -> None:
    """Add failed sign-ons that no service recorded."""
    with closing(SignOnWriter(path)) as store:
        store.add(failures, store.read_position() or sign_ons.SignOnPosition(BOOT, 0))


def damage(path: Path, name: str) -> None:
    """Overwrite the first page of a table or an index, while nobody has the file open."""
    with closing(sqlite3.connect(path)) as connection:
        row = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = ?", (name,)).fetchone()
        (size,) = connection.execute("PRAGMA page_size").fetchone()
    with path.open("r+b") as file:
        file.seek((row[0] - 1) * size)
        file.write(bytes(size))


_NAMES = """
INSERT OR IGNORE INTO text (number, text) SELECT value, printf('subscriber%06d@lab.example', value)
FROM generated WHERE value <= 2000
"""
_SESSIONS = """
INSERT INTO session (id, type, username, mac, ip, interface, access, started, ended, reason)
SELECT value, 'PPPoE', 1 + value % 2000, NULL, 1681915904 + value % 60000, 1 + value % 1000, 1 + value % 100,
    :until - 30 * (:sessions - value), :until - 20 * (:sessions - value), 'user_request'
FROM generated
"""


def crowd(path: Path, sessions: int, until: int) -> None:
    """Add ended sessions, as a store would keep them, but faster. The last one started at `until`, in
    epoch seconds."""
    SessionWriter(path).close()
    numbers = f"""
    WITH RECURSIVE generated (value) AS (SELECT 1 UNION ALL SELECT value + 1 FROM generated
    WHERE value < {sessions})
    """
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA synchronous = OFF")
        connection.execute("BEGIN")
        connection.execute(f"{numbers} {_NAMES}")
        connection.execute(f"{numbers} {_SESSIONS}", {"until": until, "sessions": sessions})
        connection.execute("COMMIT")


class History:
    """A store, and a reader of it."""

    def __init__(self, path: Path, store: SessionWriter) -> None:
        self.path = path
        self.store = store
        self.reader = Reader(path, Here())

    def add(self, *events: SessionEvent, at: int = 0) -> None:
        """Add events of one run of the core. `at` is the time at which the last one was heard."""
        self.store.add(events, EventPosition(BOOT, 1, at))

    def fail(self, *failures: FailedSignOn, sequence: int = 1) -> None:
        """Add failed sign-ons of one run of the core."""
        with closing(SignOnWriter(self.path)) as store:
            store.add(failures, sign_ons.SignOnPosition(BOOT, sequence))

    def compare(self, *sessions: SessionSummary, at: int) -> int:
        """Compare the store with the sessions that are up at a time."""
        self.store.begin_comparison()
        self.store.compare(sessions, at)
        return self.store.end_comparison(EventPosition(BOOT, 1, at))

    def found(self, **wanted: Any) -> list[PastSession]:
        return self.reader.search(find_sessions, HistoryFilter(**wanted), None).records

    def failures(self, **wanted: Any) -> list[FailedSignOns]:
        return self.reader.search(find_failed_sign_ons, SignOnFilter(**wanted), Page(1000)).records

    def ids(self, **wanted: Any) -> list[int]:
        return [found.id for found in self.found(**wanted)]


@contextmanager
def history(path: Path) -> Iterator[History]:
    with closing(SessionWriter(path)) as store:
        yield History(path, store)

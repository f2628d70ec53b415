"""Spool of the relay: the messages that JetStream has not acknowledged yet, in one SQLite file.

A message and the position up to which the relay has read are written in one transaction. So a relay that is
killed continues with the next event, and publishes what it has not published yet. The file is not synced
after each message: after a power cut, the relay reads the last messages again, with the same ids.
"""

import sqlite3
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, TypeVar

import msgspec

from gateway_contract.base.databases import Database
from gateway_relay.messages import Message, Reason, Snapshot

T = TypeVar("T")

#: An entry without a subject is a snapshot.
_SCHEMA = """
CREATE TABLE IF NOT EXISTS entry (
    number INTEGER PRIMARY KEY AUTOINCREMENT, subject TEXT, id TEXT, event TEXT, body BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS position (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID
"""
_PRAGMAS = ("journal_mode = WAL", "synchronous = NORMAL")
#: Bytes of a row besides its body: the ids, the subject and what SQLite adds.
_ROW_BYTES = 150
#: Position of the session events.
EVENTS = "events"


class Entry(NamedTuple):
    """Entry of the spool. `number` grows with each entry, and is never used again."""

    number: int
    content: Message | Snapshot


class Spool:
    """Spool in the file `path`. The entries have at most `max_bytes`. `notify` is called after entries were
    added. Any thread may use the spool.

    Every method raises OSError or sqlite3.Error if the file cannot be read or written."""

    def __init__(self, path: Path, max_bytes: int) -> None:
        self._database = Database(path, "spool of the relay", _SCHEMA, timeout=5.0, pragmas=_PRAGMAS)
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        self._bytes = 0
        self.notify: Callable[[], object] = lambda: None
        with suppress(OSError, sqlite3.Error):
            # A full disk: the first use tries again.
            self._bytes = self._use(_measure)

    @property
    def is_half_full(self) -> bool:
        """True if the spool has room for events only. Other records wait at the gateway."""
        return self._bytes > self._max_bytes // 2

    def read_position(self, name: str) -> str | None:
        """Return the stored position `name`, or None if there is none yet."""
        return self._use(lambda connection: _read_position(connection, name))

    def add(self, messages: Sequence[Message], name: str, position: str) -> None:
        """Add messages, and store the position after them."""
        with self._lock:
            size = _measure_messages(messages)
            self._database.use(lambda connection: _insert(connection, messages, name, position))
            self._bytes += size
        self.notify()

    def add_events(self, messages: Sequence[Message]) -> bool:
        """Add session events, and store the position after them. If there is no room for the events, drop
        all events of the spool and these events, and add a snapshot in their place. Return False if events
        were dropped."""
        if self._bytes + _measure_messages(messages) <= self._max_bytes:
            self.add(messages, EVENTS, str(messages[-1].event))
            return True
        with self._lock:
            self._database.use(lambda connection: _replace_events(connection, messages))
            self._bytes = self._database.use(_measure)
        self.notify()
        return False

    def add_snapshot(self, reason: Reason, after: str) -> None:
        """Add a snapshot, after which the events after the event `after` follow."""
        with self._lock:
            self._database.use(lambda connection: _insert_snapshot(connection, Snapshot(reason, after)))
        self.notify()

    def read(self, limit: int) -> list[Entry]:
        """Return the oldest entries, at most `limit`."""
        query = "SELECT number, subject, id, event, body FROM entry ORDER BY number LIMIT ?"
        rows = self._use(lambda connection: connection.execute(query, (limit,)).fetchall())
        return [_parse_row(*row) for row in rows]

    def remove(self, entries: Sequence[Entry]) -> None:
        """Remove entries after they were acknowledged."""
        numbers = [(entry.number,) for entry in entries]
        with self._lock:
            self._database.use(
                lambda connection: connection.executemany("DELETE FROM entry WHERE number = ?", numbers)
            )
            self._bytes -= sum(map(_measure_entry, entries))
            if self._bytes < 0:
                # Dropped before they were acknowledged.
                self._bytes = self._database.use(_measure)

    def _use(self, work: Callable[[sqlite3.Connection], T]) -> T:
        with self._lock:
            return self._database.use(work)


def _read_position(connection: sqlite3.Connection, name: str) -> str | None:
    row = connection.execute("SELECT value FROM position WHERE name = ?", (name,)).fetchone()
    return row and str(row[0])


def _insert(connection: sqlite3.Connection, messages: Sequence[Message], name: str, position: str) -> None:
    rows = [(each.subject, each.id, each.event, each.body) for each in messages]
    connection.executemany("INSERT INTO entry (subject, id, event, body) VALUES (?, ?, ?, ?)", rows)
    connection.execute("INSERT OR REPLACE INTO position VALUES (?, ?)", (name, position))


def _insert_snapshot(connection: sqlite3.Connection, snapshot: Snapshot) -> None:
    connection.execute("INSERT INTO entry (body) VALUES (?)", (msgspec.json.encode(snapshot),))
    connection.execute("INSERT OR REPLACE INTO position VALUES (?, ?)", (EVENTS, snapshot.after))


def _replace_events(connection: sqlite3.Connection, messages: Sequence[Message]) -> None:
    """Drop all events of the spool and the given events. Earlier snapshots are dropped, too, because the new
    snapshot replaces them."""
    rows = connection.execute("SELECT body FROM entry WHERE subject IS NULL").fetchall()
    earlier_count = sum(msgspec.json.decode(body, type=Snapshot).dropped_events for (body,) in rows)
    dropped_count = connection.execute("DELETE FROM entry WHERE event IS NOT NULL").rowcount
    connection.execute("DELETE FROM entry WHERE subject IS NULL")
    count = earlier_count + dropped_count + len(messages)
    _insert_snapshot(connection, Snapshot(Reason.SPOOL_FULL, str(messages[-1].event), count))


def _parse_row(number: int, subject: str | None, id: str, event: str | None, body: bytes) -> Entry:
    if subject is None:
        return Entry(number, msgspec.json.decode(body, type=Snapshot))
    return Entry(number, Message(id, subject, body, event))


def _measure_messages(messages: Sequence[Message]) -> int:
    return sum(_ROW_BYTES + len(message.body) for message in messages)


def _measure_entry(entry: Entry) -> int:
    return _measure_messages([entry.content]) if isinstance(entry.content, Message) else 0


def _measure(connection: sqlite3.Connection) -> int:
    query = "SELECT count(*) * ? + coalesce(sum(length(body)), 0) FROM entry WHERE subject IS NOT NULL"
    (size,) = connection.execute(query, (_ROW_BYTES,)).fetchone()
    return int(size)

"""Spool of the relay: the messages that JetStream has not acknowledged yet, in one SQLite file.

A message and the position up to which the relay has read are written in one transaction. So a relay that is
killed continues with the next event, and publishes what it has not published yet. The file is not synced
after each message: after a power cut, the relay reads the last messages again, with the same ids.
"""

import errno
import logging
import os
import secrets
import sqlite3
import threading
from collections.abc import Callable, Sequence
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
#: Without secure_delete, SQLite does not write the pages that become free.
_PRAGMAS = (
    "journal_mode = WAL",
    "synchronous = NORMAL",
    "journal_size_limit = 4194304",
    "secure_delete = OFF",
)
#: Bytes of messages that are added until the size of the spool and of its disk are measured again.
_MEASURE_BYTES = 16_384
#: Bytes of a row besides its body, about.
_ROW_BYTES = 150
#: Space that stays free for SQLite's log: without it, no entry could be removed.
_MIN_FREE_BYTES = 8 << 20
#: Position of the session events.
EVENTS = "events"
#: Name under which the key of the message ids is stored among the positions.
_KEY = "key"

_log = logging.getLogger("gateway_relay")


class Entry(NamedTuple):
    """Entry of the spool. `number` grows with each entry, and is never used again."""

    number: int
    content: Message | Snapshot


class Spool:
    """Spool in the file `path`, with at most `max_bytes` of messages. `notify` is called after entries were
    added. Any thread may use the spool.

    Every method raises OSError or sqlite3.Error if the file cannot be read or written. A damaged file is
    replaced by an empty one."""

    def __init__(self, path: Path, max_bytes: int) -> None:
        self._database = Database(
            path, "spool of the relay", _SCHEMA, timeout=5.0, pragmas=_PRAGMAS, restore=_add_key
        )
        self._folder = path.parent
        self._max_bytes = max_bytes
        self._unmeasured_bytes = _MEASURE_BYTES
        self._lock = threading.Lock()
        self.notify: Callable[[], object] = lambda: None

    def read_key(self) -> bytes:
        """Return the key of the message ids, which is as old as the file."""
        return bytes.fromhex(str(self.read_position(_KEY)))

    def read_position(self, name: str) -> str | None:
        """Return the stored position `name`, or None if there is none yet."""
        return self._use(lambda connection: _read_position(connection, name))

    def is_half_full(self) -> bool:
        """Return True if the spool has room for events only. Other records wait at the gateway."""
        return self._use(_measure) > self._max_bytes // 2

    def add(self, messages: Sequence[Message], name: str, position: str) -> None:
        """Add messages, and store the position after them."""
        self._add(lambda connection: _insert(connection, messages, name, position), messages)

    def add_event(self, event: Message) -> None:
        """Add a session event, and store the position after it. If the spool is full, drop all events of the
        spool and this event, and add a snapshot in their place. The first event of a file is a snapshot, too:
        the file may have replaced a damaged one."""
        dropped_count = self._add(lambda connection: self._insert_event(connection, event), [event])
        if dropped_count:
            _log.error(
                "the spool is full: dropped its %d session events, a snapshot will follow", dropped_count
            )

    def add_snapshot(self, reason: Reason, after: str) -> None:
        """Add a snapshot, after which the events after the event `after` follow."""
        self._add(lambda connection: _insert_snapshot(connection, Snapshot(reason, after)))

    def read(self, limit: int) -> list[Entry]:
        """Return the oldest entries, at most `limit`."""
        query = "SELECT number, subject, id, event, body FROM entry ORDER BY number LIMIT ?"
        rows = self._use(lambda connection: connection.execute(query, (limit,)).fetchall())
        return [_parse_row(*row) for row in rows]

    def remove(self, entries: Sequence[Entry]) -> None:
        """Remove entries after they were acknowledged."""
        numbers = [(entry.number,) for entry in entries]
        self._use(lambda connection: connection.executemany("DELETE FROM entry WHERE number = ?", numbers))

    def _add(self, insert: Callable[[sqlite3.Connection], T], messages: Sequence[Message] = ()) -> T:
        """Call `insert`, which adds these messages, in a transaction."""

        def insert_if_free(connection: sqlite3.Connection) -> T:
            self._unmeasured_bytes += sum(_ROW_BYTES + len(message.body) for message in messages)
            if self._unmeasured_bytes >= _MEASURE_BYTES:
                _check_space(connection, self._folder)
            result = insert(connection)
            self._unmeasured_bytes %= _MEASURE_BYTES
            return result

        result = self._use(insert_if_free)
        self.notify()
        return result

    def _insert_event(self, connection: sqlite3.Connection, event: Message) -> int:
        """Insert an event, or a snapshot in its place. Return the number of events that were dropped."""
        if self._unmeasured_bytes >= _MEASURE_BYTES and _measure(connection) > self._max_bytes:
            return _replace_events(connection, event)
        query = "UPDATE position SET value = ? WHERE name = ?"
        if connection.execute(query, (event.event, EVENTS)).rowcount == 0:
            _insert_snapshot(connection, Snapshot(Reason.FIRST_CONTACT, str(event.event)))
            return 0
        _insert_messages(connection, [event])
        return 0

    def _use(self, work: Callable[[sqlite3.Connection], T]) -> T:
        with self._lock:
            return self._database.use(work)


def _add_key(connection: sqlite3.Connection) -> None:
    connection.execute("INSERT OR IGNORE INTO position VALUES (?, ?)", (_KEY, secrets.token_hex(16)))


def _read_position(connection: sqlite3.Connection, name: str) -> str | None:
    row = connection.execute("SELECT value FROM position WHERE name = ?", (name,)).fetchone()
    return row and str(row[0])


def _insert(connection: sqlite3.Connection, messages: Sequence[Message], name: str, position: str) -> None:
    _insert_messages(connection, messages)
    connection.execute("INSERT OR REPLACE INTO position VALUES (?, ?)", (name, position))


def _insert_messages(connection: sqlite3.Connection, messages: Sequence[Message]) -> None:
    rows = [(each.subject, each.id, each.event, each.body) for each in messages]
    connection.executemany("INSERT INTO entry (subject, id, event, body) VALUES (?, ?, ?, ?)", rows)


def _insert_snapshot(connection: sqlite3.Connection, snapshot: Snapshot) -> None:
    connection.execute("INSERT INTO entry (body) VALUES (?)", (msgspec.json.encode(snapshot),))
    connection.execute("INSERT OR REPLACE INTO position VALUES (?, ?)", (EVENTS, snapshot.after))


def _replace_events(connection: sqlite3.Connection, last: Message) -> int:
    """Replace all events of the spool, and the event `last` after them, by a snapshot. Earlier snapshots are
    replaced, too. Return the number of events."""
    rows = connection.execute("SELECT body FROM entry WHERE subject IS NULL").fetchall()
    earlier_count = sum(msgspec.json.decode(body, type=Snapshot).dropped_events for (body,) in rows)
    query = "SELECT number, subject, id, body FROM entry WHERE event IS NULL AND subject IS NOT NULL"
    records = connection.execute(query).fetchall()
    (count,) = connection.execute("SELECT count(*) + 1 FROM entry WHERE event IS NOT NULL").fetchone()
    # Without a condition: otherwise SQLite would write each page of the spool to its log.
    connection.execute("DELETE FROM entry")
    connection.executemany("INSERT INTO entry (number, subject, id, body) VALUES (?, ?, ?, ?)", records)
    _insert_snapshot(connection, Snapshot(Reason.SPOOL_FULL, str(last.event), earlier_count + count))
    return int(count)


def _check_space(connection: sqlite3.Connection, folder: Path) -> None:
    """Raise OSError if the disk has too little space."""
    disk = os.statvfs(folder)
    if disk.f_bavail * disk.f_frsize + _measure_free(connection) < _MIN_FREE_BYTES:
        raise OSError(errno.ENOSPC, f"less than {_MIN_FREE_BYTES >> 20} MiB free", str(folder))


def _measure(connection: sqlite3.Connection) -> int:
    """Return the bytes of the file that contain data."""
    (pages,), (page_bytes,) = (
        connection.execute(f"PRAGMA {name}").fetchone() for name in ("page_count", "page_size")
    )
    return int(pages * page_bytes) - _measure_free(connection)


def _measure_free(connection: sqlite3.Connection) -> int:
    """Return the bytes of the file that contain no data."""
    (pages,), (page_bytes,) = (
        connection.execute(f"PRAGMA {name}").fetchone() for name in ("freelist_count", "page_size")
    )
    return int(pages * page_bytes)


def _parse_row(number: int, subject: str | None, id: str, event: str | None, body: bytes) -> Entry:
    if subject is None:
        return Entry(number, msgspec.json.decode(body, type=Snapshot))
    return Entry(number, Message(id, subject, body, event))

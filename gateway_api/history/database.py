"""The database of the history: a SQLite file with one row for each session, and for attempts to sign on that
failed one after another.

One process at a time writes each table, any number read.
"""

# ruff: noqa: S608 - values of requests are never in a text of SQL.

import re
import signal
import socket
import sqlite3
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import partial
from ipaddress import IPv4Address, IPv6Network
from pathlib import Path
from typing import Any, TypeVar, get_args, get_type_hints

from gateway_contract.base import databases, durable
from gateway_contract.base.databases import DatabaseFile
from gateway_contract.base.process import ThreadPool, on_thread
from gateway_contract.core.sessions import SessionEvent, SessionSummary
from gateway_contract.history import PastSession

# Names and MAC addresses repeat with each session of a subscriber, so they have numbers. `folded` is a text
# with its case folded, for searches: SQLite folds only ASCII, so a text of ASCII has none. `ended` is the
# last moment that a session can have been up, and null while it is. `seen` is null unless the history has a
# hole at the end of the session: then it is the last moment that the session is known to have been up. A
# failed sign-on has the attempts from `began` to `last`. At a step of the clock it was set back to `at`: of
# the rows up to those numbers, those with a later time have it from a clock that was ahead.
_SCHEMA = """
BEGIN IMMEDIATE;
CREATE TABLE IF NOT EXISTS text (number INTEGER PRIMARY KEY, text TEXT NOT NULL UNIQUE, folded TEXT);
CREATE TABLE IF NOT EXISTS session (
    number INTEGER PRIMARY KEY,
    id INTEGER NOT NULL,
    type TEXT NOT NULL,
    username INTEGER NOT NULL,
    mac INTEGER,
    ip INTEGER,
    interface INTEGER NOT NULL,
    access INTEGER NOT NULL,
    outer_vlan INTEGER,
    inner_vlan INTEGER,
    started INTEGER NOT NULL,
    ended INTEGER,
    seen INTEGER,
    reason TEXT,
    bytes_in INTEGER,
    bytes_out INTEGER,
    packets_in INTEGER,
    packets_out INTEGER,
    author TEXT
);
CREATE INDEX IF NOT EXISTS session_id ON session (id, started);
CREATE INDEX IF NOT EXISTS session_username ON session (username, started);
CREATE INDEX IF NOT EXISTS session_mac ON session (mac, started);
CREATE INDEX IF NOT EXISTS session_ip ON session (ip, started, ended) WHERE ip IS NOT NULL;
CREATE INDEX IF NOT EXISTS session_interface ON session (interface, started);
CREATE INDEX IF NOT EXISTS session_access ON session (access, started);
CREATE INDEX IF NOT EXISTS session_started ON session (started);
CREATE INDEX IF NOT EXISTS session_ended ON session (ended);
CREATE TABLE IF NOT EXISTS network (
    network BLOB NOT NULL,
    session INTEGER NOT NULL,
    kind INTEGER NOT NULL,
    PRIMARY KEY (network, session, kind)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS network_session ON network (session);
CREATE TABLE IF NOT EXISTS rate_change (
    session INTEGER NOT NULL,
    at INTEGER NOT NULL,
    sequence INTEGER NOT NULL,
    down INTEGER NOT NULL,
    up INTEGER NOT NULL,
    expires INTEGER,
    author TEXT,
    PRIMARY KEY (session, at, sequence)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS rate_change_at ON rate_change (at);
CREATE TABLE IF NOT EXISTS place (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    boot_id TEXT NOT NULL,
    sequence INTEGER NOT NULL,
    at INTEGER NOT NULL
);
CREATE TABLE IF NOT EXISTS failed_sign_on (
    number INTEGER PRIMARY KEY,
    type TEXT NOT NULL,
    username INTEGER,
    mac INTEGER,
    access INTEGER NOT NULL,
    outer_vlan INTEGER,
    inner_vlan INTEGER,
    source TEXT NOT NULL,
    reason TEXT NOT NULL,
    began INTEGER NOT NULL,
    last INTEGER NOT NULL,
    attempts INTEGER NOT NULL
);
CREATE INDEX IF NOT EXISTS failed_username ON failed_sign_on (username, mac, access, reason, began);
CREATE INDEX IF NOT EXISTS failed_mac ON failed_sign_on (mac, began);
CREATE INDEX IF NOT EXISTS failed_access ON failed_sign_on (access, began);
CREATE INDEX IF NOT EXISTS failed_began ON failed_sign_on (began);
CREATE TABLE IF NOT EXISTS sign_on_place (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    boot_id TEXT NOT NULL,
    sequence INTEGER NOT NULL
);
CREATE TABLE IF NOT EXISTS clock_step (
    number INTEGER PRIMARY KEY, session INTEGER NOT NULL, failure INTEGER NOT NULL, at INTEGER NOT NULL
);
CREATE TABLE IF NOT EXISTS traffic (at INTEGER PRIMARY KEY, down INTEGER NOT NULL, up INTEGER NOT NULL);
COMMIT;
"""
# An older version kept changes of rates by their values: of two alike within a second, one was lost.
_OLDER = "SELECT 1 FROM sqlite_master WHERE name = 'rate'"
_FROM_OLDER = """
INSERT INTO rate_change
SELECT session, at, row_number() OVER (PARTITION BY session, at ORDER BY down, up), down, up, expires, author
FROM rate
"""
#: Conditions in SQL: a clock that was ahead gave the row its time. `failed` is the name of a failed sign-on.
WRONG_START = """
EXISTS (SELECT 1 FROM clock_step AS step WHERE session.number <= step.session AND session.started > step.at)
"""
WRONG_FAILURE = """
EXISTS (SELECT 1 FROM clock_step AS step WHERE failed.number <= step.failure AND failed.began > step.at)
"""
#: The kinds of a session's networks.
ADDRESS, PREFIX, DELEGATED = range(3)

_NETWORKS = {"ipv6_address", "ipv6_prefix", "delegated_prefixes"}
#: Fields whose columns have other names. A new field of PastSession gets a column of its own name.
_RENAMED = {
    "mac_address": "mac",
    "ip_address": "ip",
    "access_interface": "access",
    "outer_vlan_id": "outer_vlan",
    "inner_vlan_id": "inner_vlan",
}
_OF_SUMMARY = {*SessionSummary.__struct_fields__} - _NETWORKS - {"started_at"}
_OF_END = {*SessionEvent.__struct_fields__} - {*SessionSummary.__struct_fields__} - {"duration_seconds"}
#: Fields of PastSession that are known at the start of a session, and at its end: text or integers. The
#: others come from the times of its row, or are networks.
AT_START = [field for field in PastSession.__struct_fields__ if field in _OF_SUMMARY]
AT_END = [field for field in PastSession.__struct_fields__ if field in _OF_END]
#: The columns of the session table by field.
COLUMNS = {field: _RENAMED.get(field, field) for field in (*AT_START, *AT_END)}

_MODE = 0o640
#: The name of the file in the log.
WHAT = "history"
#: Bytes.
_ROOM = 16 << 20
#: Bytes of SQLite's log at which it is emptied: enough for the smallest history.
_LOG_BYTES = 3 << 20
#: Attempts to empty it, and the milliseconds that each waits for readers: together, twice the deadline of a
#: search. An attempt that has failed at its begin does not succeed later, but the next one does (measured
#: with SQLite 3.40). Seconds until the next attempt where another writer copies the log, for which SQLite has
#: no wait; and until more attempts, where a backup reads for longer.
_ATTEMPTS, _READERS, _COPIED, _NEXT_ATTEMPTS = 10, 1000, 0.25, 30.0
#: Seconds that a commit waits for a reader that copies the log, and a reader for a commit.
WRITER_WAITS, _READER_WAITS = 30.0, 1.0


def require_room(path: Path) -> None:
    """The last part of a disk is for logins. Raises OSError."""
    durable.require_room(path.parent, _ROOM)


def open_to_write(path: Path) -> DatabaseFile:
    """Open the file, or make it. A damaged one is set aside. Raises OSError and sqlite3.Error."""
    require_room(path)
    return databases.opened(path, WHAT, partial(_connect, path))


def open_beside(path: Path) -> DatabaseFile:
    """Open the file for a writer beside that of the sessions. Raises OSError and sqlite3.Error, also for a
    damaged file."""
    require_room(path)
    return _connect(path)


def open_to_read(path: Path) -> sqlite3.Connection:
    """Raises sqlite3.Error, also if there is no file."""
    return databases.connect_by("mode=ro", path, _READER_WAITS)


def _connect(path: Path) -> DatabaseFile:
    # The core gives later events again after a power cut: a commit need not wait for the disk.
    pragmas = ("auto_vacuum = INCREMENTAL", "journal_mode = WAL", "synchronous = NORMAL")
    return databases.connect(
        path, *pragmas, timeout=WRITER_WAITS, schema=_SCHEMA, prepare=_update, mode=_MODE
    )


def _update(connection: sqlite3.Connection) -> None:
    """Take over what an older version has recorded."""
    connection.execute("BEGIN IMMEDIATE")
    if "folded" not in _columns(connection, "text"):
        connection.execute("ALTER TABLE text ADD COLUMN folded TEXT")
        found = connection.execute("SELECT number, text FROM text").fetchall()
        folded = [(_fold(text), number) for number, text in found if not text.isascii()]
        connection.executemany("UPDATE text SET folded = ? WHERE number = ?", folded)
    known = _columns(connection, "session")
    for field, column in COLUMNS.items():
        if column not in known:
            kind = "INTEGER" if int in get_args(get_type_hints(PastSession)[field]) else "TEXT"
            connection.execute(f"ALTER TABLE session ADD COLUMN {column} {kind}")
    if connection.execute(_OLDER).fetchone():
        connection.execute(_FROM_OLDER)
        connection.execute("DROP TABLE rate")
    connection.execute("COMMIT")


def _columns(connection: sqlite3.Connection, table: str) -> set[str]:
    return {name for _, name, *_ in connection.execute(f"PRAGMA table_info({table})")}


def _fold(text: str) -> str | None:
    return None if text.isascii() else text.casefold()


class Writer:
    """The base of the writers of the tables. One thread at a time may call. Methods raise OSError and
    sqlite3.Error.

    At its opening, a damaged file is left to the writer of sessions, which sets it aside: two would set the
    new one aside, too."""

    open = staticmethod(open_beside)

    def __init__(self, path: Path) -> None:
        self._path = path
        self._connection = self.open(path)
        self._log = path.with_name(f"{path.name}-wal")
        #: Bytes of the log at which it is emptied, and when that may be tried, monotonic seconds.
        self._log_bytes, self._may_empty = _LOG_BYTES, 0.0

    def close(self) -> None:
        self._connection.close()

    def set_aside(self) -> None:
        """End the use of a file that turned out to be damaged: the next store begins a new one."""
        if self.is_current:
            databases.begin_anew(self._path, WHAT)
        self.close()

    @property
    def is_current(self) -> bool:
        return self._connection.is_current

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            # A full disk has rolled it back already.
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            raise
        self._connection.execute("COMMIT")

    def _bound_log(self) -> None:
        """Empty a log that is too long. SQLite does so by itself only in a moment without any reader of the
        log, which may never come. This waits for the readers of now, and new ones don't read the log."""
        if self._log.stat().st_size <= self._log_bytes or time.monotonic() < self._may_empty:
            return
        self._connection.execute(f"PRAGMA busy_timeout = {_READERS}")
        is_empty = any(self._empties_log() for _ in range(_ATTEMPTS))
        self._connection.execute(f"PRAGMA busy_timeout = {int(1000 * WRITER_WAITS)}")
        if not is_empty:
            self._may_empty = time.monotonic() + _NEXT_ATTEMPTS

    def _empties_log(self) -> bool:
        failed, pages, _ = self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        if failed and pages < 0:
            # `time.sleep` is gevent's in a worker, and this is a native thread.
            signal.sigtimedwait((), _COPIED)
        return not failed

    def _text(self, text: str) -> int:
        """Return the number of a name."""
        row = self._connection.execute("SELECT number FROM text WHERE text = ?", (text,)).fetchone()
        if row is None:
            insert = "INSERT INTO text (text, folded) VALUES (?, ?) RETURNING number"
            row = self._connection.execute(insert, (text, _fold(text))).fetchone()
        return int(row[0])


W = TypeVar("W", bound=Writer)


@contextmanager
def in_use(store: W, pool: ThreadPool) -> Iterator[W]:
    """Closes the store at the end, and sets its file aside if that turns out to be damaged."""
    with closing(store):
        try:
            yield store
        except sqlite3.DatabaseError as error:
            # The opening reads few pages of the file, so each new attempt would fail here again.
            if databases.is_damaged(error):
                on_thread(pool, store.set_aside)
            raise


#: The number of a name, in SQL.
NUMBER_OF_TEXT = "(SELECT number FROM text WHERE text = ?)"
_BITS = 128
#: A text that means more names than these is compared with each row, instead of looked up.
_MOST_NAMES = 500
_MAC_DIGITS = 12


def encode_ipv4(address: str) -> int:
    return int.from_bytes(socket.inet_aton(address))


def decode_ipv4(key: int) -> str:
    return str(IPv4Address(key))


def encode_mac(address: str) -> str:
    """Twelve digits, from a MAC address with colons."""
    return address.replace(":", "")


def decode_mac(key: str) -> str:
    return bytes.fromhex(key).hex(":")


def encode_network(text: str) -> bytes:
    """Return the key of an IPv6 prefix or address: its length, then as many bytes as have a bit of it."""
    written, _, length = text.partition("/")
    return _key(int.from_bytes(socket.inet_pton(socket.AF_INET6, written)), int(length or _BITS))


def decode_network(key: bytes) -> str:
    """Return an address, or a prefix with its length."""
    network = IPv6Network((key[1:].ljust(_BITS // 8, b"\0"), key[0]))
    return str(network.network_address if key[0] == _BITS else network)


def find_enclosing_keys(network: int) -> Iterator[bytes]:
    """Return the keys of an IPv6 network and of those that contain it. The network is as `ipv6.network` makes
    it."""
    length = network.bit_length() - 1
    first = (network ^ 1 << length) << _BITS - length
    return (_key(first, shorter) for shorter in range(length + 1))


def _key(number: int, length: int) -> bytes:
    masked = number >> _BITS - length << _BITS - length
    return bytes([length]) + masked.to_bytes(_BITS // 8)[: -(-length // 8)]


def find_inner_key_ranges(network: int) -> Iterator[tuple[bytes, bytes]]:
    """Return the first and the last key, for each length of prefix, of the smaller networks in an IPv6
    network. The network is as `ipv6.network` makes it."""
    length = network.bit_length() - 1
    first = (network ^ 1 << length) << _BITS - length
    last = first | (1 << _BITS - length) - 1
    return ((_key(first, longer), _key(last, longer)) for longer in range(length + 1, _BITS + 1))


#: A condition in SQL, and its values.
Condition = tuple[str, Sequence[Any]]


def join_any(conditions: Iterable[Condition]) -> Condition:
    """Return the condition that one of several holds. Without any, it never holds."""
    held = list(conditions)
    text = " OR ".join(condition for condition, _ in held) or "FALSE"
    return f"({text})", [value for _, values in held for value in values]


def match_names(connection: sqlite3.Connection, part: str, columns: Sequence[str]) -> Iterator[Condition]:
    """Yield conditions, of which one holds if a column has a name with this part. The columns have numbers of
    names. None if there is no such name. The part is case-folded."""
    pattern = "%" + re.sub("([%_|])", r"|\1", part) + "%"
    # LIKE folds the case of ASCII. A name with other characters has its folded text beside it.
    return _among(connection, "coalesce(folded, text) LIKE ? ESCAPE '|'", [pattern], columns)


def match_macs(connection: sqlite3.Connection, part: str, column: str) -> Iterator[Condition]:
    """Yield the condition that a column, which has numbers of MAC addresses, has one with this part. None if
    there is no such address. The part is as `SearchText` has it."""
    digits = encode_mac(part)
    if digits == part:
        patterns = [f"*{digits}*"]
    else:
        # Whole bytes, unless the first one is cut.
        begin = len(part.partition(":")[0]) % 2
        patterns = [f"{'?' * at}{digits}*" for at in range(begin, _MAC_DIGITS - len(digits) + 1, 2)]
    wanted = f"length(text) = {_MAC_DIGITS} AND ({' OR '.join(len(patterns) * ['text GLOB ?'])})"
    return _among(connection, wanted, patterns, [column])


def _among(
    connection: sqlite3.Connection, wanted: str, values: Sequence[Any], columns: Sequence[str]
) -> Iterator[Condition]:
    names = f"SELECT number FROM text WHERE {wanted}"
    found = [number for (number,) in connection.execute(f"{names} LIMIT {_MOST_NAMES + 1}", values)]
    if len(found) > _MOST_NAMES:
        # The plus keeps SQLite from collecting most rows by an index before it sorts them.
        yield from ((f"+{column} IN ({names})", values) for column in columns)
    elif found:
        yield from ((f"{column} IN ({', '.join(map(str, found))})", ()) for column in columns)

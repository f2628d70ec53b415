"""Database of the history: an SQLite file. Each session and each series of failed sign-on attempts is
one row. Addresses are stored as keys, which are short and the same for every spelling of an address.

Each table has one writing process at a time. Any number of processes can read.
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
from typing import Any, TypeVar

from gateway_contract.base import databases, durable
from gateway_contract.base.databases import DatabaseFile
from gateway_contract.base.process import ThreadPool, run_on_thread
from gateway_contract.core.sessions import SessionEvent, SessionSummary
from gateway_contract.history import PastSession

# Names and MAC addresses repeat with each session of a subscriber, so they have numbers. `folded` is a text
# with its case folded, for searches: SQLite folds only ASCII, so a text of ASCII has none. `ended` is the
# last moment that a session can have been up, and null while it is. `seen` is null unless the history has a
# gap at the end of the session: then it is the last moment that the session is known to have been up. A
# failed sign-on has the attempts from `began` to `last`. A clock step has the time `at` to which the clock
# was set back: rows up to the numbers of the step with a later time got this time from a clock that was
# ahead.
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
#: Conditions in SQL: a clock that was ahead gave the row its time. `failed` is the name of a failed sign-on.
WRONG_START_CONDITION = """
EXISTS (SELECT 1 FROM clock_step AS step WHERE session.number <= step.session AND session.started > step.at)
"""
WRONG_FAILURE_CONDITION = """
EXISTS (SELECT 1 FROM clock_step AS step WHERE failed.number <= step.failure AND failed.began > step.at)
"""
#: The kinds of a session's networks.
ADDRESS, PREFIX, DELEGATED = range(3)

_NETWORKS = {"ipv6_address", "ipv6_prefix", "delegated_prefixes"}
#: Fields whose columns have other names. A new field of PastSession gets a column of its own name.
_COLUMN_NAMES = {
    "mac_address": "mac",
    "ip_address": "ip",
    "access_interface": "access",
    "outer_vlan_id": "outer_vlan",
    "inner_vlan_id": "inner_vlan",
}
_SUMMARY_FIELDS = {*SessionSummary.__struct_fields__} - _NETWORKS - {"started_at"}
_END_FIELDS = {*SessionEvent.__struct_fields__} - {*SessionSummary.__struct_fields__} - {"duration_seconds"}
#: Fields of PastSession that are known at the start of a session, and at its end: text or integers. The
#: others come from the times of its row, or are networks.
START_FIELDS = [field for field in PastSession.__struct_fields__ if field in _SUMMARY_FIELDS]
END_FIELDS = [field for field in PastSession.__struct_fields__ if field in _END_FIELDS]
#: The columns of the session table by field.
COLUMNS = {field: _COLUMN_NAMES.get(field, field) for field in (*START_FIELDS, *END_FIELDS)}

_FILE_MODE = 0o640
#: The name of the file in the log.
_LOG_NAME = "history"
#: Free bytes of the disk below which nothing is written: the last part of a disk is for logins.
_MIN_FREE_BYTES = 16 << 20
#: Bytes of SQLite's write-ahead log at which it is emptied: enough for the smallest history.
_MAX_WAL_BYTES = 3 << 20
#: Attempts to empty the log, and the wait of each for readers: together, twice the deadline of a search. An
#: attempt that has failed at its begin does not succeed later, but the next one does (measured with SQLite
#: 3.40).
_MAX_EMPTY_ATTEMPTS, _READER_WAIT_MS = 10, 1000
#: Seconds until the next attempt where another writer empties the log; and until more attempts, where a
#: backup reads for longer.
_OTHER_WRITER_SECONDS, _BACKUP_SECONDS = 0.25, 30.0
#: Seconds that a commit waits for a reader that empties the log, and a reader for a commit.
_WRITER_TIMEOUT_SECONDS, _READER_TIMEOUT_SECONDS = 30.0, 1.0


def connect_to_read(path: Path) -> sqlite3.Connection:
    """Open the history for reading, and return the connection. Raises sqlite3.Error if the file does not
    exist or cannot be opened."""
    return databases.connect_with_query("mode=ro", path, _READER_TIMEOUT_SECONDS)


def _connect(path: Path) -> DatabaseFile:
    # The core gives later events again after a power cut: a commit need not wait for the disk.
    pragmas = ("auto_vacuum = INCREMENTAL", "journal_mode = WAL", "synchronous = NORMAL")
    return databases.connect(
        path, *pragmas, timeout=_WRITER_TIMEOUT_SECONDS, schema=_SCHEMA, prepare=_add_columns, mode=_FILE_MODE
    )


def _add_columns(connection: DatabaseFile) -> None:
    """Add the columns that a file of an older version lacks."""
    with connection.transaction():
        if "folded" not in _read_columns(connection, "text"):
            connection.execute("ALTER TABLE text ADD COLUMN folded TEXT")
            rows = connection.execute("SELECT number, text FROM text").fetchall()
            folded = [(_fold(text), number) for number, text in rows if not text.isascii()]
            connection.executemany("UPDATE text SET folded = ? WHERE number = ?", folded)


def _read_columns(connection: sqlite3.Connection, table: str) -> set[str]:
    return {name for _, name, *_ in connection.execute(f"PRAGMA table_info({table})")}


def _fold(text: str) -> str | None:
    return None if text.isascii() else text.casefold()


class HistoryWriter:
    """Base class of the writers of the history's tables. Not thread-safe. Methods raise OSError if the disk
    has too little free space, and sqlite3.Error if the file cannot be read or written.

    Only the writer of sessions sets `repairs`: when the writer of sessions opens a damaged file, this writer
    renames the file and begins a new file. If a second writer did the same, the second writer would rename
    the new file."""

    repairs = False

    def __init__(self, path: Path) -> None:
        self._path = path
        self._require_room()
        connect = partial(_connect, path)
        repair = partial(databases.begin_anew, path, _LOG_NAME)
        self._connection = databases.repair_and_retry(connect, repair) if self.repairs else connect()
        #: Bytes of the log at which it is emptied, and when that may be tried, monotonic seconds.
        self._log_bytes, self._next_empty_at = _MAX_WAL_BYTES, 0.0

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    def set_aside(self) -> None:
        """Rename the damaged file, unless another process has replaced the file. Close the connection. The
        next writer begins a new file."""
        if self.is_current:
            databases.begin_anew(self._path, _LOG_NAME)
        self.close()

    @property
    def is_current(self) -> bool:
        """True until the open file is removed or replaced."""
        return self._connection.is_current

    def _require_room(self) -> None:
        durable.require_room(self._path.parent, _MIN_FREE_BYTES)

    @contextmanager
    def _write(self) -> Iterator[None]:
        """Run the block in a transaction: commit all its changes, or none after an error."""
        with self._connection.transaction():
            yield
        self._bound_log()

    def _bound_log(self) -> None:
        """Empty the write-ahead log if the log is longer than its limit. If a reader or another writer
        prevents the emptying, a later call tries again."""
        if self._connection.log_bytes <= self._log_bytes or time.monotonic() < self._next_empty_at:
            return
        for _ in range(_MAX_EMPTY_ATTEMPTS):
            is_empty, is_emptied_by_other = self._connection.empty_log(_READER_WAIT_MS)
            if is_empty:
                return
            if is_emptied_by_other:
                # `time.sleep` is gevent's in a worker, and this is a native thread.
                signal.sigtimedwait((), _OTHER_WRITER_SECONDS)
        self._next_empty_at = time.monotonic() + _BACKUP_SECONDS

    def _number_text(self, text: str) -> int:
        """Return the number of a text in the table of texts. The text is a name or the key of a MAC address.
        Insert the text if the table lacks the text."""
        row = self._connection.execute("SELECT number FROM text WHERE text = ?", (text,)).fetchone()
        if row is None:
            insert = "INSERT INTO text (text, folded) VALUES (?, ?) RETURNING number"
            row = self._connection.execute(insert, (text, _fold(text))).fetchone()
        return int(row[0])


W = TypeVar("W", bound=HistoryWriter)


@contextmanager
def use_writer(kind: type[W], path: Path, pool: ThreadPool) -> Iterator[W]:
    """Open a writer of the class `kind`, and close the writer after the block. If the file turns out to be
    damaged during the block, rename the file. Raises OSError or sqlite3.Error if the file cannot be opened,
    and whatever the block raises."""
    with closing(run_on_thread(pool, kind, path)) as writer:
        try:
            yield writer
        except sqlite3.DatabaseError as error:
            # The opening reads few pages of the file, so each new attempt would fail here again.
            if databases.is_damaged(error):
                run_on_thread(pool, writer.set_aside)
            raise


#: SQL for the number of a text.
NUMBER_OF_TEXT = "(SELECT number FROM text WHERE text = ?)"
_IPV6_BITS = 128
#: With more matching texts, the condition selects the texts itself, instead of listing their numbers.
_MAX_LISTED_NUMBERS = 500
_MAC_DIGITS = 12


def encode_ipv4(address: str) -> int:
    """Return the key of an IPv4 address: the address as an integer."""
    return int.from_bytes(socket.inet_aton(address))


def decode_ipv4(key: int) -> str:
    """Return the IPv4 address with this key."""
    return str(IPv4Address(key))


def encode_mac(address: str) -> str:
    """Return the key of a MAC address, or of a part of a MAC address: the hexadecimal digits without
    colons."""
    return address.replace(":", "")


def decode_mac(key: str) -> str:
    """Return the MAC address with this key, written with colons."""
    return bytes.fromhex(key).hex(":")


def encode_network(text: str) -> bytes:
    """Return the key of an IPv6 prefix or address: one byte with the prefix length, then the bytes that
    contain bits of the prefix."""
    written, _, length = text.partition("/")
    return _make_key(int.from_bytes(socket.inet_pton(socket.AF_INET6, written)), int(length or _IPV6_BITS))


def decode_network(key: bytes) -> str:
    """Return the IPv6 address or prefix with this key. A prefix is written with its length."""
    network = IPv6Network((key[1:].ljust(_IPV6_BITS // 8, b"\0"), key[0]))
    return str(network.network_address if key[0] == _IPV6_BITS else network)


def find_enclosing_keys(network: int) -> Iterator[bytes]:
    """Return the keys of an IPv6 network and of all networks that contain it. `network` is a number as in
    `ipv6.parse_network`."""
    length = network.bit_length() - 1
    first = (network ^ 1 << length) << _IPV6_BITS - length
    return (_make_key(first, prefix_length) for prefix_length in range(length + 1))


def _make_key(number: int, length: int) -> bytes:
    masked = number >> _IPV6_BITS - length << _IPV6_BITS - length
    return bytes([length]) + masked.to_bytes(_IPV6_BITS // 8)[: -(-length // 8)]


def find_inner_key_ranges(network: int) -> Iterator[tuple[bytes, bytes]]:
    """Return the key ranges of the smaller networks inside an IPv6 network: the first and the last key for
    each longer prefix length. `network` is a number as in `ipv6.parse_network`."""
    length = network.bit_length() - 1
    first = (network ^ 1 << length) << _IPV6_BITS - length
    last = first | (1 << _IPV6_BITS - length) - 1
    return (
        (_make_key(first, prefix_length), _make_key(last, prefix_length))
        for prefix_length in range(length + 1, _IPV6_BITS + 1)
    )


#: A condition in SQL, and its values.
Condition = tuple[str, Sequence[Any]]


def list_required(wanted: Iterable[tuple[str, Any]]) -> tuple[list[str], list[Any]]:
    """Return the SQL conditions whose value is not None, and the list of values to bind. `wanted` contains
    pairs of a condition and a value. The list contains a value once for each `?` in the condition."""
    required = [(condition, value) for condition, value in wanted if value is not None]
    values = [value for condition, value in required for _ in range(condition.count("?"))]
    return [condition for condition, _ in required], values


def join_any(conditions: Iterable[Condition]) -> Condition:
    """Return an SQL condition that is true if at least one of the conditions is true. Without conditions, the
    returned condition is never true."""
    condition_list = list(conditions)
    text = " OR ".join(condition for condition, _ in condition_list) or "FALSE"
    return f"({text})", [value for _, values in condition_list for value in values]


def match_names(connection: sqlite3.Connection, part: str, columns: Sequence[str]) -> Iterator[Condition]:
    """Yield an SQL condition for each column: the name in the column contains `part`. The columns contain the
    numbers of names. `part` is case-folded. Yield nothing if no name contains `part`."""
    pattern = "%" + re.sub("([%_|])", r"|\1", part) + "%"
    # LIKE folds the case of ASCII. A name with other characters has its folded text beside it.
    return _match_texts(connection, "coalesce(folded, text) LIKE ? ESCAPE '|'", [pattern], columns)


def match_macs(connection: sqlite3.Connection, part: str, column: str) -> Iterator[Condition]:
    """Yield the SQL condition that the MAC address in a column contains `part`. The column contains the
    numbers of MAC addresses. `part` is a `mac` of `SearchText`. Yield nothing if no address contains
    `part`."""
    digits = encode_mac(part)
    if digits == part:
        patterns = [f"*{digits}*"]
    else:
        # Whole bytes, unless the first one is cut.
        begin = len(part.partition(":")[0]) % 2
        patterns = [f"{'?' * at}{digits}*" for at in range(begin, _MAC_DIGITS - len(digits) + 1, 2)]
    wanted = f"length(text) = {_MAC_DIGITS} AND ({' OR '.join(len(patterns) * ['text GLOB ?'])})"
    return _match_texts(connection, wanted, patterns, [column])


def _match_texts(
    connection: sqlite3.Connection, wanted: str, values: Sequence[Any], columns: Sequence[str]
) -> Iterator[Condition]:
    """Yield an SQL condition for each column: the column contains the number of a matching text. `wanted` is
    the SQL condition for matching texts, with `values` to bind. Yield nothing if no text matches."""
    names = f"SELECT number FROM text WHERE {wanted}"
    rows = [number for (number,) in connection.execute(f"{names} LIMIT {_MAX_LISTED_NUMBERS + 1}", values)]
    if len(rows) > _MAX_LISTED_NUMBERS:
        # The plus keeps SQLite from collecting most rows by an index before it sorts them.
        yield from ((f"+{column} IN ({names})", values) for column in columns)
    elif rows:
        yield from ((f"{column} IN ({', '.join(map(str, rows))})", ()) for column in columns)

"""Forwarding of the audit log to a syslog receiver or to the journal: one thread of gunicorn's arbiter.

The audit log itself is the queue. A file has the position of the last record of each trail that the receiver
has confirmed, and is synced after each batch. While the receiver is away, the records stay in the audit log,
up to its size limit. Records that the log drops before they are forwarded are counted, and the stream has a
record with their number.

Syslog over TLS (RFC 5425) has no acknowledgement: bytes that the kernel has accepted can be lost with the
connection. So each batch has its own connection, and counts as delivered when the receiver has closed the
connection after our close_notify: until then, the receiver's kernel would reset a connection with unread
bytes. A batch without this confirmation is sent again, with the same ids.
"""

import os
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from heapq import merge
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from gateway_api.audit.log import (
    AuditDatabase,
    StoredRecord,
    TrailPosition,
    list_trails,
    list_trails_beside,
)
from gateway_api.audit.record import make_gap
from gateway_api.audit.syslog import ForwardedRecord
from gateway_api.base.settings import TOKEN, USERS, Settings
from gateway_contract.base import durable
from gateway_contract.base.errors import GatewayApiError
from gateway_contract.base.logs import LOG
from gateway_contract.base.receivers import JOURNAL, SYSLOG_TLS_PORT
from gateway_contract.base.retry import repeat
from gateway_contract.core.configuration import ApiSettings

#: Opens a TLS connection to a host and a port.
Connect = Callable[[str, int], ssl.SSLSocket]

#: Records of each trail in one batch.
_RECORDS_PER_TRAIL = 250
#: Seconds between two looks for new records, and the longest wait after failures in a row.
_POLL_SECONDS, _MAX_RETRY_SECONDS = 1.0, 60.0
#: Forwarding begins with the records of this time before it, so that the record of the commit that turns it
#: on is one of the first.
_LEAD_SECONDS = 5.0
_JOURNAL_SOCKET = Path("/run/systemd/journal/socket")
_JOURNAL_TIMEOUT_SECONDS = 5.0

#: A fork must find no open database: SQLite's locks belong to the process that opened the file.
_database_lock = threading.Lock()
os.register_at_fork(
    before=_database_lock.acquire,
    after_in_parent=_database_lock.release,
    after_in_child=_database_lock.release,
)


class Progress(msgspec.Struct, frozen=True):
    """Progress of forwarding, as the file stores it. `since` is the time from which records are forwarded.
    `positions` maps the label of a trail to the last confirmed record, and `missing` maps it to the number of
    lost records that the receiver has not been told yet. `forwarded` and `lost` are numbers of records since
    forwarding was turned on. `failing_since` and `failure` describe the present failure. Times are epoch
    seconds."""

    destination: str
    since: float
    positions: dict[str, TrailPosition] = {}
    missing: dict[str, int] = {}
    forwarded: int = 0
    lost: int = 0
    failing_since: float | None = None
    failure: str = ""


def get_progress_path(folder: Path) -> Path:
    """Return the path of the file with the progress, in the folder of the audit log."""
    return folder / "forward.json"


def read_progress(path: Path) -> Progress | None:
    """Return the stored progress, or None if nothing is forwarded. If the file cannot be read, log an error
    and return None: the next start of forwarding begins with new records."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Progress)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.MsgspecError) as error:
        LOG.error("cannot read the progress of forwarding the audit log from %s: %s", path, error)
        return None


class Forwarder:
    """Forwarder of the audit log. `trails` returns the trails, each with the name of the program that writes
    it. `deliver` sends records to a destination, and returns when the receiver has all of them. `clock`
    returns epoch seconds."""

    def __init__(
        self,
        trails: Callable[[], Mapping[str, Sequence[AuditDatabase]]],
        path: Path,
        deliver: Callable[[str, Sequence[ForwardedRecord]], None],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._trails = trails
        self._path = path
        self._deliver = deliver
        self._clock = clock
        self._progress = read_progress(path)
        #: Seconds until the next look. Each failure in a row doubles the time.
        self._wait_seconds = _POLL_SECONDS

    def run(self, get_destination: Callable[[], str | None], sleep: Callable[[float], object]) -> None:
        """Forward records until the process ends. `get_destination` returns the present destination, or None
        if nothing is forwarded; it may wait for the first setting."""

        def forward() -> Iterator[None]:
            while self.forward_batch(get_destination()):
                yield

        def pause(_: float) -> None:
            sleep(self._wait_seconds)

        what = "forward the audit log"
        for _ in repeat(forward, pause, what, LOG, fault=f"cannot {what}"):
            pass

    def forward_batch(self, destination: str | None) -> bool:
        """Forward the next batch. Return True if the receiver has confirmed a batch. Return False if no
        record waits, or after a failure: the next call then sends the same records again. Raises OSError or
        sqlite3.Error if the audit log cannot be read, or the progress cannot be stored."""
        if destination is None:
            self._progress = None
            self._path.unlink(missing_ok=True)
            return False
        progress = self._progress or Progress(destination, self._clock() - _LEAD_SECONDS)
        if progress.destination != destination:
            progress = msgspec.structs.replace(
                progress, destination=destination, failing_since=None, failure=""
            )
        progress, records, after = self._read(progress)
        self._save(progress)
        if not records:
            return False
        try:
            self._deliver(destination, records)
        except (OSError, GatewayApiError) as error:
            self._note_failure(progress, error)
            return False
        if progress.failing_since is not None:
            LOG.info("the audit log is forwarded to %s again", destination)
        self._wait_seconds = _POLL_SECONDS
        reported = progress.missing.keys() & after.keys()
        if reported:
            lost_count = sum(progress.missing[label] for label in reported)
            LOG.error("%d records of the audit log did not reach %s", lost_count, destination)
        self._save(
            msgspec.structs.replace(
                progress,
                positions=progress.positions | after,
                missing={label: count for label, count in progress.missing.items() if label not in after},
                forwarded=progress.forwarded + len(records) - len(reported),
                failing_since=None,
                failure="",
            )
        )
        return True

    def _note_failure(self, progress: Progress, error: Exception) -> None:
        if self._wait_seconds == _POLL_SECONDS:
            LOG.error(
                "cannot forward the audit log to %s, new records wait in the audit log: %s",
                progress.destination,
                error,
            )
        self._wait_seconds = min(2 * self._wait_seconds, _MAX_RETRY_SECONDS)
        if progress.failing_since is None:
            failing_since = self._clock()
            self._save(msgspec.structs.replace(progress, failing_since=failing_since, failure=str(error)))

    def _read(self, progress: Progress) -> tuple[Progress, list[ForwardedRecord], dict[str, TrailPosition]]:
        """Return three values: the progress with the positions and the lost records that the trails have now,
        the next batch, and the positions after this batch."""
        positions, missing = dict(progress.positions), dict(progress.missing)
        after: dict[str, TrailPosition] = {}
        found: list[Iterator[tuple[float, ForwardedRecord]]] = []
        lost_count = 0
        for program, trails in self._trails().items():
            for trail in trails:
                known = positions.get(trail.label, TrailPosition(None, progress.since))
                with _database_lock:
                    start, records = trail.read_after(known, self._clock(), _RECORDS_PER_TRAIL)
                if records and start.number is not None:
                    dropped_count = records[0].number - start.number - 1
                    if dropped_count:
                        missing[trail.label] = missing.get(trail.label, 0) + dropped_count
                        lost_count += dropped_count
                        start = TrailPosition(records[0].number - 1, start.at)
                    after[trail.label] = TrailPosition(records[-1].number, records[-1].at)
                positions[trail.label] = start
                found.append(_make_records(program, trail.label, missing.get(trail.label, 0), records))
        if lost_count:
            if not progress.missing:
                LOG.error(
                    "the audit log reached its size limit, and drops records before they reach %s",
                    progress.destination,
                )
            progress = msgspec.structs.replace(progress, lost=progress.lost + lost_count)
        batch = [record for _, record in merge(*found, key=lambda each: each[0])]
        return msgspec.structs.replace(progress, positions=positions, missing=missing), batch, after

    def _save(self, progress: Progress) -> None:
        if progress == self._progress:
            return
        # First: if the disk is full, this process must not send the same records again.
        self._progress = progress
        durable.replace(self._path, msgspec.json.encode(progress))


def _make_records(
    program: str, label: str, missing_count: int, records: Sequence[StoredRecord]
) -> Iterator[tuple[float, ForwardedRecord]]:
    """Yield the records of a trail with their times. If records before them are missing, begin with a record
    that has the number of these records."""
    if missing_count and records:
        number, at = records[0].number - 1, records[0].at
        message = (
            f"{missing_count} records up to {label}-{number} were dropped before they could be forwarded"
        )
        yield at, ForwardedRecord.of(program, f"{label}-gap-{number}", make_gap(at, message).text())
    for record in records:
        yield record.at, ForwardedRecord.of(program, f"{label}-{record.number}", record.record)


def make_deliver(
    connect: Connect, get_hostname: Callable[[], str], journal: Path = _JOURNAL_SOCKET
) -> Callable[[str, Sequence[ForwardedRecord]], None]:
    """Return a function that delivers records to a destination of the configuration, and returns when the
    receiver has all of them. The function raises OSError or GatewayApiError if the receiver may lack some of
    the records."""

    def deliver(destination: str, records: Sequence[ForwardedRecord]) -> None:
        if destination == JOURNAL:
            _send_to_journal(journal, [record.format_entry() for record in records])
            return
        address = urlsplit(destination)
        hostname = get_hostname()
        messages = [record.format_message(hostname) for record in records]
        with connect(address.hostname or "", address.port or SYSLOG_TLS_PORT) as connection:
            _send_messages(connection, messages)

    return deliver


def _send_messages(connection: ssl.SSLSocket, messages: Sequence[bytes]) -> None:
    """Send syslog messages with octet counting (RFC 5425 section 4.3), and close the TLS connection. Raises
    OSError if the receiver has not read all messages."""
    connection.sendall(b"".join(b"%d %s" % (len(message), message) for message in messages))
    try:
        connection.unwrap()
    except ssl.SSLEOFError:
        # rsyslog closes the connection without a close_notify of its own. The kernel of a receiver that ended
        # before it has read all bytes sends a reset instead.
        LOG.debug("the receiver of the audit log closed its connection without close_notify")


def _send_to_journal(path: Path, entries: Sequence[bytes]) -> None:
    """Send entries to the journal's socket, which keeps them while systemd-journald restarts. Raises OSError
    if the journal is not reachable, or its queue stays full."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as journal:
        journal.settimeout(_JOURNAL_TIMEOUT_SECONDS)
        journal.connect(str(path))
        for entry in entries:
            journal.send(entry)


class Destination:
    """The destination in the running configuration, which one thread sets and another thread reads."""

    def __init__(self) -> None:
        self._text: str | None = None
        self._is_known = threading.Event()

    def set(self, settings: ApiSettings) -> None:
        """Set the destination after a start or a commit."""
        self._text = settings.audit_forward
        self._is_known.set()

    def get(self) -> str | None:
        """Return the present destination, or None if nothing is forwarded. Wait until the core has reported
        its configuration once."""
        self._is_known.wait()
        return self._text


def start(settings: Settings, destination: Destination, connect: Connect) -> None:
    """Start the thread that forwards the audit log, after `destination` is set for the first time."""

    def list_all() -> dict[str, list[AuditDatabase]]:
        return {
            USERS.name: list_trails(settings.audit, settings.max_audit_bytes),
            TOKEN.name: list_trails_beside(settings.token_audit),
        }

    deliver = make_deliver(connect, socket.gethostname)
    forwarder = Forwarder(list_all, get_progress_path(settings.audit), deliver)
    threading.Thread(target=forwarder.run, args=(destination.get, time.sleep), daemon=True).start()

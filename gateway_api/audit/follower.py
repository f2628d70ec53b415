"""Has everything in the audit log that was changed at the core by anybody but the API.

The core keeps these changes, so nothing is lost while the API is down. A record says which change it is
about; a file beside the records says how far they go, and where to look for later ones. So each change is
recorded once, whoever is killed in between. One process at a time follows: the file's lock is gone with it.
"""

import fcntl
import logging
import os
import threading
import time
from pathlib import Path

import msgspec

from gateway_api.audit.log import KNOWN, segments_in
from gateway_api.audit.masking import masked
from gateway_api.audit.record import Record, gap, line_of
from gateway_api.base.errors import GatewayApiError
from gateway_api.base.segments import Segments
from gateway_api.base.settings import Settings
from gateway_api.daemon.calls import Calls
from gateway_api.daemon.changes import Change, ChangeLog, Told
from gateway_api.wire.varlink.client import Client

_log = logging.getLogger("gunicorn.error")

#: The role of who is known by the core's socket alone.
ROLE = "system"
#: Of the request id of such a record; the name of the core's log and the number of the change follow.
_PREFIX = "core"
#: Seconds between two questions.
_PAUSE = 1.0
_CALL_TIMEOUT = 3.0


class _Place(msgspec.Struct, frozen=True):
    """The last change that is recorded, and the position in the records up to which it is the last."""

    log: str | None = None
    sequence: int = 0
    position: int = 0


class _Head(msgspec.Struct, frozen=True):
    role: str | None
    request_id: str


class Follower:
    """Records in `segments` what `changes` tells of. `path` is the file that says how far."""

    def __init__(self, changes: ChangeLog, segments: Segments, path: Path) -> None:
        self._changes = changes
        self._segments = segments
        self._path = path
        self._place: _Place | None = None
        self._file: int | None = None

    def step(self) -> bool:
        """Records what is new; True where there may be more. Raises CoreUnavailable and OSError: then it is
        to be called again."""
        if not self._is_alone():
            return False
        if self._place is None:
            self._place = self._found()
        told = self._changes.after(self._place.log, self._place.sequence)
        lines = _lines(told, self._place)
        if not lines:
            return False
        place, self._place = self._place, None
        self._segments.append(b"".join(lines))
        sequence = told.changes[-1].sequence if told.changes else told.newest
        self._place = msgspec.structs.replace(place, log=told.log, sequence=sequence)
        self._keep()
        return sequence < told.newest

    def _is_alone(self) -> bool:
        if self._file is None:
            file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
            try:
                # Not flock: a worker that is forked must not have the lock, too.
                fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(file)
                return False
            self._file = file
        return True

    def _found(self) -> _Place:
        """As the file says, and the records after it."""
        kept = self._kept()
        for position, line in self._segments.newest_first(self._segments.end):
            if position < kept.position:
                break
            if (found := _told_in(line)) is not None:
                return msgspec.structs.replace(kept, log=found[0], sequence=found[1])
        return kept

    def _kept(self) -> _Place:
        assert self._file is not None  # noqa: S101 - opened before
        held = os.pread(self._file, 4096, 0)
        try:
            return msgspec.json.decode(held, type=_Place)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            if held:
                _log.error("%s is damaged, so all records are looked through: %s", self._path, error)
            return _Place()

    def _keep(self) -> None:
        """Only a hint that saves a search, but for records that have made room for newer ones: so it needs
        no rename, which would take the lock away."""
        assert self._file is not None  # noqa: S101 - opened before
        assert self._place is not None  # noqa: S101 - just recorded
        self._place = msgspec.structs.replace(self._place, position=self._segments.end)
        text = msgspec.json.encode(self._place)
        os.pwrite(self._file, text.ljust(os.fstat(self._file).st_size), 0)
        os.fsync(self._file)


def start(settings: Settings) -> None:
    """Follows on a thread of this process, as long as it lives."""
    client = Client(settings.core_socket, timeout=_CALL_TIMEOUT)
    known = segments_in(settings.audit, settings.audit_size)[KNOWN]
    follower = Follower(ChangeLog(Calls(client)), known, settings.audit / "core-changes")
    threading.Thread(target=_follow, args=(follower,), daemon=True).start()


def _follow(follower: Follower) -> None:
    told = False
    while True:
        more = False
        try:
            more = follower.step()
            told = False
        except (GatewayApiError, OSError) as error:
            (_log.debug if told else _log.warning)("cannot record what others change at the core: %s", error)
            told = True
        except Exception:  # noqa: BLE001 - logged
            # A thread that ended would take every change to come with it.
            _log.exception("cannot record what others change at the core")
        if not more:
            time.sleep(_PAUSE)


def _lines(told: Told, place: _Place) -> list[bytes]:
    if told.log == place.log and told.newest < place.sequence:
        # What follows has numbers that were recorded before: the newest record says how far it goes.
        way = f"from {place.sequence} to {told.newest}"
        message = f"The core's log of changes went back {way}: changes may be missing"
        return [line_of(_gap(told.log, told.newest, message))]
    expected = place.sequence + 1 if told.log == place.log else 1
    first = told.changes[0].sequence if told.changes else told.newest + 1
    lines = []
    if first > expected:
        lost = first - expected
        message = f"{lost} changes at the core before this one are lost: they were more than it keeps"
        lines.append(line_of(_gap(told.log, first - 1, message)))
    return lines + [line_of(_record(told.log, change)) for change in told.changes]


def _told_in(line: bytes) -> tuple[str, int] | None:
    """Which change a record is about."""
    if b'"role":"system"' not in line:
        return None
    try:
        head = msgspec.json.decode(line, type=_Head)
        prefix, log, sequence = head.request_id.split("-")
        return (log, int(sequence)) if (prefix, head.role) == (_PREFIX, ROLE) else None
    except (msgspec.MsgspecError, UnicodeDecodeError, ValueError):
        return None


def _record(log: str, change: Change) -> Record:
    made = {"author": change.author, "comment": change.comment}
    by = "the core itself" if change.process is None else f"process {change.process} at the core's socket"
    return Record(
        at=float(change.at),
        user=change.user,
        role=ROLE,
        address=None,
        request_id=_id(log, change.sequence),
        method="",
        action=change.action,
        route=None,
        path="",
        status=None,
        result="done",
        message=f"By {by}",
        body=None if change.author is None else masked(made),
        before=masked(change.before),
        after=masked(change.after),
    )


def _gap(log: str, sequence: int, message: str) -> Record:
    return gap(time.time(), message, user="core", role=ROLE, request_id=_id(log, sequence))


def _id(log: str, sequence: int) -> str:
    """The request id of a record about a change, which `_told_in` reads."""
    return f"{_PREFIX}-{log}-{sequence}"

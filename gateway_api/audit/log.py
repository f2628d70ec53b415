"""The audit log of a worker: two trails in one folder, of those who are known and of those who are not.

They are rotated apart, so that no flood of strangers pushes out what somebody changed.
"""

import os
import threading
import time
from pathlib import Path

from gateway_api.audit.reader import Found, Wanted, found
from gateway_api.audit.record import Record, gap, line_of
from gateway_api.audit.trail import Pool, Trail
from gateway_api.base.errors import AuditUnavailable
from gateway_api.base.segments import Segments
from gateway_api.daemon.commands import Page

#: Files of a trail.
_KEPT = 8
#: Bytes on the disk below which nothing is changed: more than all who are changing something might write.
_ROOM = 4 << 20

KNOWN, STRANGERS = "known", "strangers"


class AuditLog:
    """`size` is the most bytes that each of the two trails takes. `beside` is the folder of another
    service's, read with this one wherever it is there and may be read."""

    def __init__(self, folder: Path, size: int, pool: Pool, beside: Path | None = None) -> None:
        self._folder = folder
        self._pool = pool
        self._beside = beside
        self._size = size
        self._segments = list(segments_in(folder, size).values())
        self._known, self._strangers = (Trail(segments, pool) for segments in self._segments)
        self._lost = 0
        self._reading = threading.Lock()

    def check(self) -> None:
        """Raises AuditUnavailable when what is done now could not be recorded afterwards."""
        try:
            disk = os.statvfs(self._folder)
            if disk.f_bavail * disk.f_frsize < _ROOM:
                raise AuditUnavailable("write", f"less than {_ROOM} bytes are free in {self._folder}")
            if self._lost:
                self._tell_of_the_lost()
        except OSError as error:
            raise AuditUnavailable("write", error) from error

    def add(self, record: Record) -> None:
        """Returns when it is on disk. Raises AuditUnavailable."""
        try:
            (self._known if record.role else self._strangers).add(line_of(record))
        except OSError as error:
            if record.role:
                self._lost += 1
            raise AuditUnavailable("write", error) from error

    def read(self, wanted: Wanted, page: Page | None) -> Found:
        """The records that fit, the newest first; a page of them, or all. Raises Invalid for a cursor that is
        none, AnswerTooLarge and AuditUnavailable."""
        # One at a time: the threads are for others as well.
        with self._reading:
            outcome = self._pool.apply(self._read, (wanted, page))
        if isinstance(outcome, Exception):
            raise outcome
        done: Found = outcome
        return done

    def _segments_beside(self) -> list[Segments]:
        if self._beside is None or not os.access(self._beside, os.R_OK | os.X_OK):
            return []
        return list(segments_in(self._beside, self._size, "beside-").values())

    def _tell_of_the_lost(self) -> None:
        lost, self._lost = self._lost, 0
        try:
            message = f"{lost} records before this one could not be written; they are in the log"
            self._known.add(line_of(gap(time.time(), message)))
        except OSError:
            self._lost += lost
            raise

    def _read(self, wanted: Wanted, page: Page | None) -> Found | Exception:
        # Given back, not raised: gevent prints what a function on a thread raises.
        try:
            return found([*self._segments, *self._segments_beside()], wanted, page)
        except OSError as error:
            return AuditUnavailable("read", error)
        except Exception as error:  # noqa: BLE001 - raised by who waits
            return error


def segments_in(folder: Path, size: int, label: str = "") -> dict[str, Segments]:
    """The files of each trail in a folder."""
    return {
        name: Segments(folder, name, size=size // _KEPT, kept=_KEPT, label=label + name)
        for name in (KNOWN, STRANGERS)
    }


def prepare_folder(folder: Path) -> None:
    """Makes the folder, if its own is there. Raises OSError for one that can't be written to."""
    folder.mkdir(mode=0o750, exist_ok=True)
    if not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
        raise PermissionError(f"{folder} can't be written to")

"""Lines of many requests at once, written by few writes and syncs.

While one batch is on its way to the disk, whatever comes joins the next. The disk is waited for on a thread
of its own, so that a worker's other requests go on.
"""

import errno
import os
import threading
from collections.abc import Callable
from typing import Any, Protocol

from gateway_api.base.segments import Segments


class Pool(Protocol):
    """Runs a function on a thread of its own, and meanwhile lets others go on (gevent's ThreadPool)."""

    def apply(self, function: Callable[..., Any], args: tuple[Any, ...]) -> Any: ...


class _Batch:
    def __init__(self) -> None:
        self.lines: list[bytes] = []
        self.over = False
        #: Of one whose writer is stopped, nobody knows whether it was written.
        self.failure: OSError | None = OSError(errno.EINTR, os.strerror(errno.EINTR))


class Trail:
    """Lines for one set of files, from any greenlet or thread of a process."""

    def __init__(self, segments: Segments, pool: Pool) -> None:
        self._segments = segments
        self._pool = pool
        self._guard = threading.Lock()
        self._turn = threading.Lock()
        self._joining = _Batch()

    def add(self, line: bytes) -> None:
        """Returns when the line is on disk. Raises OSError."""
        with self._guard:
            batch = self._joining
            batch.lines.append(line)
        with self._turn:
            if not batch.over:
                self._write(batch)
        if batch.failure is not None:
            raise OSError(batch.failure.errno, batch.failure.strerror) from batch.failure

    def _write(self, batch: _Batch) -> None:
        with self._guard:
            self._joining = _Batch()
        # Before it is: who comes after one that was stopped in between must not write the lines again.
        batch.over = True
        batch.failure = self._pool.apply(self._attempt, (b"".join(batch.lines),))

    def _attempt(self, lines: bytes) -> OSError | None:
        # Given back, not raised: gevent prints what a function on a thread raises.
        try:
            self._segments.append(lines)
        except OSError as error:
            return error
        return None

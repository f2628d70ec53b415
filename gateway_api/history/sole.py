"""Work on the history that one worker at a time does."""

import fcntl
import logging
import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import gevent

from gateway_api.base.errors import CoreUnavailable, GatewayApiError

_log = logging.getLogger("gunicorn.error")

#: Seconds between two attempts, to record or to become the worker that records.
_PAUSE = 1.0


class Sole:
    """Runs `record` while this process has the lock, again after each fault. `what` it records is for the
    log. `pause` takes seconds."""

    def __init__(
        self,
        record: Callable[[], None],
        what: str,
        lock: Path,
        pause: Callable[[float], None] = gevent.sleep,
    ) -> None:
        self._record = record
        self._what = what
        self._lock = lock
        self._pause = pause

    def run(self) -> None:
        failed = False
        while True:
            try:
                with self._alone() as is_alone:
                    if is_alone:
                        self._record()
                failed = False
            except (GatewayApiError, OSError, sqlite3.Error) as error:
                # The core reports its own absence elsewhere, and a full disk fails each second.
                is_known = failed or isinstance(error, CoreUnavailable)
                log = _log.debug if is_known else _log.error
                log("cannot record %s in the history: %s", self._what, error)
                failed = True
            except Exception:  # noqa: BLE001 - logged
                # If this greenlet ended, nothing later would be recorded.
                _log.exception("cannot record %s in the history", self._what)
            self._pause(_PAUSE)

    @contextmanager
    def _alone(self) -> Iterator[bool]:
        """Whether no other worker records."""
        lock = os.open(self._lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield False
            else:
                yield True
        finally:
            os.close(lock)

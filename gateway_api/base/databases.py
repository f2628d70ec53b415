"""Databases that one process owns: SQLite files that begin anew when they are damaged or removed."""

import logging
import sqlite3
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from gateway_api.base import durable

T = TypeVar("T")

_log = logging.getLogger(__name__)


class _Damaged(sqlite3.DatabaseError):
    sqlite_errorcode = sqlite3.SQLITE_CORRUPT


def opened(path: Path, what: str, open: Callable[[], T]) -> T:
    """Opens the file at `path` with `open`, and returns its result. A damaged one is set aside, and
    `open` is called again; the log says so, with `what` the file is. Raises OSError and sqlite3.Error."""
    try:
        return open()
    except sqlite3.DatabaseError as error:
        if not durable.is_damaged(error):
            raise
        _set_aside(path, what)
        return open()


class Database:
    """The file at `path`, which opens with its first use. For one thread at a time.

    `prepare` gets each new connection: it makes tables, and puts in them what its owner has in memory. So
    nothing is lost with a file that is damaged or removed while it is in use. `what` the file is, is for the
    log. Connections wait `timeout` seconds for other processes that read.
    """

    def __init__(
        self, path: Path, what: str, prepare: Callable[[sqlite3.Connection], None], timeout: float
    ) -> None:
        self._path = path
        self._what = what
        self._prepare = prepare
        self._timeout = timeout
        self._connection: sqlite3.Connection | None = None
        self._inode = 0

    def use(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """The result of `work` in one transaction, which is on disk. If the file is damaged, `work` is called
        again with a new one. Raises OSError and sqlite3.Error: then it is unknown what is on disk, and the
        next use opens the file again."""
        try:
            return self._transaction(work)
        except sqlite3.DatabaseError as error:
            self.close()
            if not durable.is_damaged(error):
                raise
            _set_aside(self._path, self._what)
            return self._transaction(work)

    def open(self) -> sqlite3.Connection:
        """The connection: a new one if there is none, or if its file was removed. Raises OSError and
        sqlite3.Error."""
        if self._connection is not None and not self._is_current():
            _log.error("began a new %s: %s was removed or replaced", self._what, self._path)
            self.close()
        if self._connection is None:
            durable.make_folder(self._path.parent)
            self._connection = opened(self._path, self._what, self._opened)
            self._inode = self._path.stat().st_ino
        return self._connection

    def close(self) -> None:
        """The next use opens the file again."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _transaction(self, work: Callable[[sqlite3.Connection], T]) -> T:
        try:
            with self.open() as connection:
                connection.execute("BEGIN IMMEDIATE")
                return work(connection)
        except (OSError, sqlite3.Error):
            self.close()
            raise

    def _opened(self) -> sqlite3.Connection:
        connection = durable.database(self._path, timeout=self._timeout)
        try:
            if ("ok",) not in connection.execute("PRAGMA quick_check(1)"):
                raise _Damaged("the check of the file failed")
            self._prepare(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _is_current(self) -> bool:
        with suppress(FileNotFoundError):
            return self._path.stat().st_ino == self._inode
        return False


def _set_aside(path: Path, what: str) -> None:
    _log.error("began a new %s: the old one is damaged, and is now %s", what, durable.set_aside(path))

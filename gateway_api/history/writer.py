"""The base of the writers of the history's tables: a connection, and names that have numbers."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class Writer:
    """A `connection` to the file with an `inode` at `path`. One thread at a time may call. Methods raise
    OSError and sqlite3.Error."""

    def __init__(self, path: Path, connection: sqlite3.Connection, inode: int) -> None:
        self._path = path
        self._connection = connection
        self._inode = inode

    def close(self) -> None:
        self._connection.close()

    @property
    def is_current(self) -> bool:
        """False if the file was removed or replaced: what is written now would be lost."""
        return self._path.exists() and self._path.stat().st_ino == self._inode

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

    def _text(self, text: str) -> int:
        """The number of a name."""
        row = self._connection.execute("SELECT number FROM text WHERE text = ?", (text,)).fetchone()
        if row is None:
            insert = "INSERT INTO text (text) VALUES (?) RETURNING number"
            row = self._connection.execute(insert, (text,)).fetchone()
        return int(row[0])

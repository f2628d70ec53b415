"""Files and databases that survive a power cut.

A power cut can leave a name without its content, or a content without its name. So a file is synced before it
gets its name, and the folder after.
"""

import os
import shutil
import sqlite3
from contextlib import closing, suppress
from pathlib import Path

_MODE = 0o600
_DAMAGED = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}


class NotSynced(OSError):
    """The file has its new content, but may lose it in a power cut."""


def make_folder(path: Path) -> None:
    """Makes a folder and its parents for the owner alone, unless they exist. Raises OSError."""
    if path.is_dir():
        return
    make_folder(path.parent)
    path.mkdir(mode=0o700, exist_ok=True)
    sync(path.parent)


def write(path: Path, data: bytes, *, mode: int = _MODE, group: str | None = None) -> None:
    """Writes a new file and syncs it. Its name is safe only after `sync` of its folder. Raises OSError."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, _MODE)
    try:
        left = memoryview(data)
        while left:
            left = left[os.write(descriptor, left) :]
        if group is not None:
            shutil.chown(path, group=group)
        if mode != _MODE:
            os.fchmod(descriptor, mode)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def replace(path: Path, data: bytes, *, mode: int = _MODE, group: str | None = None) -> None:
    """Replaces the whole content of a file, or nothing. Raises OSError: then the file has its old content,
    unless the error is NotSynced."""
    draft = path.with_name(f".{path.name}.new")
    try:
        write(draft, data, mode=mode, group=group)
        draft.rename(path)
    except OSError:
        # A part of it would use the last space of a full disk.
        draft.unlink(missing_ok=True)
        raise
    try:
        sync(path.parent)
    except OSError as error:
        raise NotSynced(error.errno, error.strerror) from error


def sync(folder: Path) -> None:
    """Syncs the names in a folder. Raises OSError."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def database(path: Path, *, timeout: float, mode: int = _MODE) -> sqlite3.Connection:
    """A connection without implicit transactions, not to be used after a fork. It waits `timeout` seconds for
    locks of other processes. Raises OSError and sqlite3.Error."""
    with suppress(FileExistsError):
        # SQLite's other files get the mode of this one. An existing file must not be opened here: closing it
        # would release SQLite's locks of this process (fcntl(2)).
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
        try:
            os.fchmod(descriptor, mode)
        finally:
            os.close(descriptor)
        sync(path.parent)
    return sqlite3.connect(path, timeout=timeout, isolation_level=None, check_same_thread=False)


def is_damaged(error: sqlite3.Error) -> bool:
    # The low byte is the kind of error.
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in _DAMAGED


def is_whole(path: Path) -> bool:
    """True if SQLite can read the whole database, or there is none. Raises sqlite3.Error."""
    if not path.exists():
        return True
    try:
        with closing(sqlite3.connect(path)) as connection:
            return ("ok",) in connection.execute("PRAGMA quick_check(1)")
    except sqlite3.DatabaseError as error:
        if not is_damaged(error):
            raise
        return False


def set_aside(path: Path) -> Path:
    """Renames a database with SQLite's other files, and returns its new path. Raises OSError."""
    aside = path.with_name(f"{path.name}.damaged")
    # The database comes last: a new one must not find the log of the old one.
    for suffix in ("-wal", "-shm", "-journal", ""):
        with suppress(FileNotFoundError):
            path.with_name(path.name + suffix).rename(aside.with_name(aside.name + suffix))
    sync(path.parent)
    return aside

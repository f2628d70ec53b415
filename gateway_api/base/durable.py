"""Files that are whole after a power cut, and there if the call that wrote them has returned.

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
    """The file has its new content, but might not after a power cut."""


def make_folder(path: Path) -> None:
    """A folder for the owner alone, and those above it, where there are none yet. Raises OSError."""
    if path.is_dir():
        return
    make_folder(path.parent)
    path.mkdir(mode=0o700, exist_ok=True)
    sync(path.parent)


def write(path: Path, data: bytes, *, mode: int = _MODE, group: str | None = None) -> None:
    """A new file, synced, for its owner unless `mode` and `group` let others read it. Its name is safe only
    after `sync` of its folder. Raises OSError."""
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
    """A file's new content, all of it or none; `mode` and `group` are as in `write`. Raises OSError: then it
    has the old one, unless it is NotSynced."""
    draft = path.with_name(f".{path.name}.new")
    try:
        write(draft, data, mode=mode, group=group)
        draft.rename(path)
    except OSError:
        # On a full disk a part of it would take what is left.
        draft.unlink(missing_ok=True)
        raise
    try:
        sync(path.parent)
    except OSError as error:
        raise NotSynced(error.errno, error.strerror) from error


def sync(folder: Path) -> None:
    """The names in a folder. Raises OSError."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def database(path: Path, *, timeout: float, mode: int = _MODE) -> sqlite3.Connection:
    """A connection that commits each statement outside of a transaction. It must not be used after a fork.
    It waits for locks of other processes for `timeout` seconds. Raises OSError and sqlite3.Error."""
    with suppress(FileExistsError):
        # SQLite gives the mode of this file to those that it adds. It must not be opened and closed here once
        # SQLite has it open: that would release the locks of this process (fcntl(2)).
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
        try:
            os.fchmod(descriptor, mode)
        finally:
            os.close(descriptor)
        sync(path.parent)
    return sqlite3.connect(path, timeout=timeout, isolation_level=None, check_same_thread=False)


def is_damaged(error: sqlite3.Error) -> bool:
    """True for an error that another try does not repair."""
    # The low byte is the kind of error.
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in _DAMAGED


def is_whole(path: Path) -> bool:
    """Whether SQLite can read all of a database, or there is none. Raises sqlite3.Error."""
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
    """Renames a database with the files that SQLite keeps beside it. Raises OSError."""
    aside = path.with_name(f"{path.name}.damaged")
    # The database comes last: a new one must not find the log of the old one.
    for suffix in ("-wal", "-shm", "-journal", ""):
        with suppress(FileNotFoundError):
            path.with_name(path.name + suffix).rename(aside.with_name(aside.name + suffix))
    sync(path.parent)
    return aside

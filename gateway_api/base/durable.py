"""Files that are there after a power cut: whole, and only when they were said to be.

A name without its content, and a content without its name, both survive a power cut that comes between
the two: so a file is synced before it gets its name, and the folder after.
"""

import os
import shutil
from pathlib import Path

_MODE = 0o600


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

"""Files that survive a power cut.

A power cut can leave a name without its content, or a content without its name. So a file is synced before
the file gets its name, and the folder is synced after that.
"""

import errno
import os
import shutil
from pathlib import Path

_FILE_MODE = 0o600
#: Errors of a folder in which no file can be written until an operator changes the folder or the disk.
_UNWRITABLE_ERRORS = {errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOSPC, errno.EDQUOT}


def is_unwritable(error: OSError) -> bool:
    """Return True if the error says that a folder is read-only or full."""
    return error.errno in _UNWRITABLE_ERRORS


def require_writable(folder: Path) -> None:
    """Check that this process can create files in a folder. Raises OSError if it cannot."""
    if not os.access(folder, os.W_OK | os.X_OK):
        number = errno.EROFS if os.statvfs(folder).f_flag & os.ST_RDONLY else errno.EACCES
        raise OSError(number, os.strerror(number), str(folder))


def require_room(folder: Path, min_bytes: int) -> None:
    """Check that the disk of a folder has at least `min_bytes` free bytes. Raises OSError if the disk has
    less."""
    disk = os.statvfs(folder)
    if disk.f_bavail * disk.f_frsize < min_bytes:
        raise OSError(errno.ENOSPC, f"less than {min_bytes} bytes are free in {folder}")


class NotSynced(OSError):
    """Error of a file that has its new content but could not be synced: a power cut may bring the old content
    back."""


def make_folder(path: Path) -> None:
    """Create a folder and its missing parents, with access for the owner only. Raises OSError if the folder
    cannot be created."""
    if path.is_dir():
        return
    make_folder(path.parent)
    path.mkdir(mode=0o700, exist_ok=True)
    sync(path.parent)


def write(path: Path, data: bytes, *, mode: int = _FILE_MODE, group: str | None = None) -> None:
    """Write a new file and sync its content. The name of the file survives a power cut only after a `sync` of
    its folder. Raises OSError if the file cannot be written."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, _FILE_MODE)
    try:
        remaining = memoryview(data)
        while remaining:
            remaining = remaining[os.write(descriptor, remaining) :]
        if group is not None:
            shutil.chown(path, group=group)
        if mode != _FILE_MODE:
            os.fchmod(descriptor, mode)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def replace(path: Path, data: bytes, *, mode: int = _FILE_MODE, group: str | None = None) -> None:
    """Replace the whole content of a file, or change nothing. Raises OSError if the file cannot be replaced:
    the file then has its old content, unless the error is NotSynced."""
    draft = path.with_name(f".{path.name}.new")
    try:
        write(draft, data, mode=mode, group=group)
        draft.rename(path)
    except OSError:
        # A part of the draft would use the last space of a full disk.
        draft.unlink(missing_ok=True)
        raise
    try:
        sync(path.parent)
    except OSError as error:
        raise NotSynced(error.errno, error.strerror) from error


def sync(folder: Path) -> None:
    """Sync the names of the files in a folder. Raises OSError if the folder cannot be synced."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

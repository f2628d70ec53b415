"""Files in which workers count, and which a scrape adds up.

`prometheus_client` names the files by process id, and makes them without reserving their space: on a full
disk the kernel would kill the process that writes to them. So a worker makes its files first, with room for
all series that there can be; without that room it does not count. A worker takes over the files of one that
has ended: no sum ever decreases, and the number of files does not grow.

This module must not import `prometheus_client`, which looks for the folder when it is imported.
"""

import mmap
import os
from collections.abc import Container
from pathlib import Path

from gateway_contract.base.durable import is_unwritable
from gateway_contract.base.logs import LOG

#: The variable in which prometheus_client looks for the folder.
_FOLDER_VARIABLE = "PROMETHEUS_MULTIPROC_DIR"
#: Bytes of a file by its kind: enough for the labels, which are the methods, routes and statuses of the API.
FILE_BYTES = {"histogram": 3 << 20, "counter": 1 << 16, "gauge_max": 1 << 12, "gauge_livesum": 1 << 12}

# A byte for each worker, by its process id: 1 if the worker does not count. Shared by all processes that are
# forked after the import. A full disk could not keep it.
_without_room = mmap.mmap(-1, mmap.PAGESIZE)


def prepare(folder: Path) -> None:
    """Make the folder, before prometheus_client is imported. Raises OSError, except where its parent is full
    or read-only: the workers try again."""
    os.environ[_FOLDER_VARIABLE] = str(folder)
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        if not is_unwritable(error):
            raise


def delete_former() -> None:
    """Delete the files of the last run. A file that cannot be deleted is logged, and still counted."""
    for file in Path(os.environ[_FOLDER_VARIABLE]).glob("*"):
        try:
            file.unlink()
        except OSError as error:
            LOG.error("cannot delete counters of the last run, which stay in the metrics: %s", error)


def find_ended_worker(known: Container[int | None]) -> int | None:
    """Return the id of an unknown process that has left files, None without any."""
    pids = (int(file.stem.rpartition("_")[2]) for file in Path(os.environ[_FOLDER_VARIABLE]).glob("*.db"))
    return next((pid for pid in pids if pid not in known), None)


def prepare_worker(ended: int | None) -> None:
    """Take over the files of a process that has ended, and make missing ones. Without room, log an error."""
    folder, pid = Path(os.environ[_FOLDER_VARIABLE]), os.getpid()
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        for kind, size in FILE_BYTES.items():
            own, former = folder / f"{kind}_{pid}.db", folder / f"{kind}_{ended}.db"
            if own.exists():
                # A former process with this id has left the file.
                continue
            if former.exists():
                former.rename(own)
            else:
                _make_file(own, size)
    except OSError as error:
        _without_room[pid % mmap.PAGESIZE] = 1
        LOG.error("metrics lack the counters of a worker: %s", error)


def _make_file(file: Path, size: int) -> None:
    draft = file.with_suffix(".new")
    try:
        with draft.open("wb") as made:
            os.posix_fallocate(made.fileno(), 0, size)
        # A scrape fails on an empty file.
        draft.rename(file)
    finally:
        draft.unlink(missing_ok=True)


def has_room() -> bool:
    """Return True if this process has room to count. A process that is no worker counts in memory."""
    return not _without_room[os.getpid() % mmap.PAGESIZE]


def forget(pid: int) -> None:
    """Remove a worker that has ended from those without room."""
    _without_room[pid % mmap.PAGESIZE] = 0


def count_workers_without_room() -> int:
    """Return the number of workers of this service that do not count."""
    return sum(_without_room[:])

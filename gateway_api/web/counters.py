"""Counter files: each worker counts requests in its own files, and a scrape adds up the files of all workers.

`prometheus_client` names the files by process id, and creates them without reserving disk space: on a full
disk, the kernel would kill the process that writes to a file. So a worker first creates its files, with space
for all possible series. A worker without this space does not count. A new worker takes over the files of an
ended worker, so that no sum decreases and the number of files does not grow.

This module must not import `prometheus_client`, which looks for the folder when it is imported.
"""

import mmap
import os
from collections.abc import Container
from pathlib import Path

from gateway_contract.base.durable import is_unwritable
from gateway_contract.base.logs import LOG

#: Environment variable from which prometheus_client reads the path of the folder.
_FOLDER_VARIABLE = "PROMETHEUS_MULTIPROC_DIR"
#: Size of a file by its kind, in bytes: enough for the labels, which are the methods, routes and statuses of
#: the API.
FILE_BYTES = {"histogram": 3 << 20, "counter": 1 << 16, "gauge_max": 1 << 12, "gauge_livesum": 1 << 12}

# A byte for each worker, by its process id: 1 if the worker does not count. All processes that are forked
# after the import share this memory. A file would not do, as the disk may be full.
_workers_without_space = mmap.mmap(-1, mmap.PAGESIZE)


def prepare(folder: Path) -> None:
    """Create the folder of the counter files. Must be called before prometheus_client is imported. Raises
    OSError if the folder cannot be created for a reason other than a full or read-only disk. On such a disk,
    each worker later tries to create the folder again."""
    os.environ[_FOLDER_VARIABLE] = str(folder)
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        if not is_unwritable(error):
            raise


def delete_former_files() -> None:
    """Delete the counter files of the last run. If a file cannot be deleted, an error is logged, and the
    counts in the file stay in the metrics."""
    for file in Path(os.environ[_FOLDER_VARIABLE]).glob("*"):
        try:
            file.unlink()
        except OSError as error:
            LOG.error(
                "cannot delete a counter file of the last run, its counts stay in the metrics: %s", error
            )


def find_ended_worker(used_pids: Container[int | None]) -> int | None:
    """Return the id of a process that left counter files and has ended: an id that is not in `used_pids`.
    Return None if there is no such process."""
    pids = (int(file.stem.rpartition("_")[2]) for file in Path(os.environ[_FOLDER_VARIABLE]).glob("*.db"))
    return next((pid for pid in pids if pid not in used_pids), None)


def prepare_worker(ended_pid: int | None) -> None:
    """Take over the counter files of the ended process `ended_pid`, if any, and create missing counter files.
    If a file cannot be created, log an error: then this worker does not count requests."""
    folder, pid = Path(os.environ[_FOLDER_VARIABLE]), os.getpid()
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        for kind, size in FILE_BYTES.items():
            own, former = folder / f"{kind}_{pid}.db", folder / f"{kind}_{ended_pid}.db"
            if own.exists():
                # An earlier process with the same id has left the file.
                continue
            if former.exists():
                former.rename(own)
            else:
                _create_file(own, size)
    except OSError as error:
        _workers_without_space[pid % mmap.PAGESIZE] = 1
        LOG.error(
            "cannot create the counter files of a worker, the metrics lack the counts of this worker: %s",
            error,
        )


def _create_file(file: Path, size: int) -> None:
    draft = file.with_suffix(".new")
    try:
        with draft.open("wb") as stream:
            os.posix_fallocate(stream.fileno(), 0, size)
        # A scrape fails on an empty file.
        draft.rename(file)
    finally:
        draft.unlink(missing_ok=True)


def has_space() -> bool:
    """Return True if this process counts requests: either it has disk space for its counter files, or it is
    not a worker and counts in memory."""
    return not _workers_without_space[os.getpid() % mmap.PAGESIZE]


def forget_worker(pid: int) -> None:
    """Remove the ended worker with the process id `pid` from the workers without disk space."""
    _workers_without_space[pid % mmap.PAGESIZE] = 0


def count_workers_without_space() -> int:
    """Return the number of workers of this service that do not count requests because they have no disk
    space."""
    return sum(_workers_without_space[:])

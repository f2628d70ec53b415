"""The files in which workers count. A scrape adds them up.

`prometheus_client` names them by process id, and makes them without asking for their space: on a full disk
the kernel would kill the process that writes there. So a worker makes them first, with room for all series
that there can be; without that room it does not count. It takes over the files of a worker that has ended: no
sum ever decreases, and files do not become more.

`prometheus_client` looks for their folder when it is imported: nothing here may import it.
"""

import mmap
import os
from collections.abc import Container
from pathlib import Path

from gateway_contract.base.durable import is_unwritable
from gateway_contract.base.logs import LOG

#: The variable in which prometheus_client looks for the folder.
_FOLDER = "PROMETHEUS_MULTIPROC_DIR"
#: Bytes of a file, by its kind. The labels are the methods, routes and statuses of the API.
SIZES = {"histogram": 3 << 20, "counter": 1 << 16, "gauge_max": 1 << 12, "gauge_livesum": 1 << 12}

# A byte for each worker, by its id, which all processes share that are forked after the import: 1 if it does
# not count. The disk cannot say it while it is full.
_without_room = mmap.mmap(-1, mmap.PAGESIZE)


def prepare(folder: Path) -> None:
    """Make the folder, before prometheus_client is imported. Raises OSError, but not where its parent is full
    or read-only: the workers try again."""
    os.environ[_FOLDER] = str(folder)
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        if not is_unwritable(error):
            raise


def empty() -> None:
    """Delete the files of the last run. One that cannot be deleted is still counted: the log says so."""
    for file in Path(os.environ[_FOLDER]).glob("*"):
        try:
            file.unlink()
        except OSError as error:
            LOG.error("old counters stay in the metrics: %s", error)


def find_ended(known: Container[int | None]) -> int | None:
    """Return the id of a process that has left files and is not a known one. None if there is none."""
    pids = (int(file.stem.rpartition("_")[2]) for file in Path(os.environ[_FOLDER]).glob("*.db"))
    return next((pid for pid in pids if pid not in known), None)


def begin(ended: int | None) -> None:
    """Take over the files of a process that has ended, and make the others. Without room, logs an error."""
    folder, pid = Path(os.environ[_FOLDER]), os.getpid()
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        for kind, size in SIZES.items():
            own, former = folder / f"{kind}_{pid}.db", folder / f"{kind}_{ended}.db"
            if own.exists():
                # The process that had this id before has left it.
                continue
            if former.exists():
                former.rename(own)
            else:
                _make(own, size)
    except OSError as error:
        _without_room[pid % mmap.PAGESIZE] = 1
        LOG.error("metrics lack the counters of a worker: %s", error)


def _make(file: Path, size: int) -> None:
    draft = file.with_suffix(".new")
    try:
        with draft.open("wb") as made:
            os.posix_fallocate(made.fileno(), 0, size)
        # A scrape fails on an empty file.
        draft.rename(file)
    finally:
        draft.unlink(missing_ok=True)


def may_count() -> bool:
    """Return whether this process has room to count. One that is no worker counts in memory."""
    return not _without_room[os.getpid() % mmap.PAGESIZE]


def forget(pid: int) -> None:
    """No longer counts a worker that has ended among those without room."""
    _without_room[pid % mmap.PAGESIZE] = 0


def workers_without_room() -> int:
    """Return the number of workers of this service that do not count."""
    return sum(_without_room[:])

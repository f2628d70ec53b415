"""The metric files of workers, which `prometheus_client` adds up: each worker has the files of its slot.

A slot is the lowest number that no living worker has. `prometheus_client` would name files by process id, and
each scrape would read the files of every worker that ever ended. The next worker in a slot continues its
counters, so no sum ever decreases.

All of it runs in the arbiter.
"""

import errno
import logging
import os
from collections.abc import Iterable
from itertools import count
from pathlib import Path

from gateway_api.web import counters

#: The variable in which prometheus_client looks for the folder.
_FOLDER = "PROMETHEUS_MULTIPROC_DIR"

_log = logging.getLogger("gunicorn.error")


def prepare(folder: Path) -> None:
    """Makes the folder, before anything else here; on a full disk the workers try again. Raises OSError."""
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        _log.error("cannot make the folder of the counters: %s", error)
    os.environ[_FOLDER] = str(folder)


def empty() -> None:
    """Deletes the files of the last run, at the start of the service. Raises OSError."""
    for pattern in ("*.db", "*.new"):
        for file in _folder().glob(pattern):
            file.unlink()


def lowest_free(taken: Iterable[int]) -> int:
    others = set(taken)
    return next(slot for slot in count() if slot not in others)


def vacate(slot: int) -> None:
    """Deletes the gauges of a worker that has ended. Its counters stay."""
    counters.forget(slot)
    for file in _folder().glob(f"gauge_live*_{slot}.db"):
        file.unlink(missing_ok=True)


def _folder() -> Path:
    return Path(os.environ[_FOLDER])

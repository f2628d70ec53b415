"""The metric files of workers, which `prometheus_client` adds up: each worker has the files of its slot.

A slot is the lowest number that no living worker has. `prometheus_client` would name files by process id, and
each scrape would read the files of every worker that ever ended. The next worker in a slot continues its
counters, so no sum ever decreases.

All but `take` runs in the arbiter, which must not import `prometheus_client`: that imports `threading`, and
workers would inherit it unpatched.

Internals of prometheus_client, read in 0.26: `values.ValueClass`, `MultiProcessValue` and the names of files.
"""

import os
from collections.abc import Iterable
from itertools import count
from pathlib import Path

#: The variable in which prometheus_client looks for the folder.
_FOLDER = "PROMETHEUS_MULTIPROC_DIR"
#: The kinds of files, and the size of a new one.
_KINDS = ("counter", "histogram", "gauge_livesum")
_NEW_BYTES = 1 << 16


def prepare(folder: Path) -> None:
    """Makes the folder, before anything else here. Raises OSError."""
    folder.mkdir(mode=0o700, exist_ok=True)
    os.environ[_FOLDER] = str(folder)


def empty() -> None:
    """Deletes the files of the last run, at the start of the service. Raises OSError."""
    for file in _folder().glob("*.db"):
        file.unlink()


def lowest_free(taken: Iterable[int]) -> int:
    others = set(taken)
    return next(slot for slot in count() if slot not in others)


def take(slot: int) -> None:
    """Makes the files of a slot, in a worker, before its first metric. Raises OSError."""
    from prometheus_client import values

    for kind in _KINDS:
        file = _folder() / f"{kind}_{slot}.db"
        if not file.exists():
            # Renamed when complete: a scrape fails on an incomplete file.
            draft = file.with_suffix(".new")
            with draft.open("wb") as made:
                os.posix_fallocate(made.fileno(), 0, _NEW_BYTES)
            draft.replace(file)
    values.ValueClass = values.MultiProcessValue(lambda: slot)  # type: ignore[no-untyped-call]


def vacate(slot: int) -> None:
    """Deletes the gauges of a worker that has ended. Its counters stay."""
    for file in _folder().glob(f"gauge_live*_{slot}.db"):
        file.unlink(missing_ok=True)


def _folder() -> Path:
    return Path(os.environ[_FOLDER])

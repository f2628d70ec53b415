"""The files in which workers count, for `prometheus_client` to add up: each has those of its slot.

A slot is the lowest number that no living worker has. By process ids, its default, each worker that ever
ended would leave files behind, to be read at every scrape. Whoever takes a dead worker's slot goes on with
its counters instead: there are as many files as workers lived at a time, and no sum ever goes down.

All but `take` runs in the arbiter, which must not import `prometheus_client`: that takes `threading`, and
workers would inherit it from before gevent patched it.
"""

import os
from collections.abc import Iterable
from itertools import count
from pathlib import Path

#: Where `prometheus_client` looks for the folder.
_FOLDER = "PROMETHEUS_MULTIPROC_DIR"
#: Its names for what there is in a file, and the size that it gives a new one.
_KINDS = ("counter", "histogram", "gauge_livesum")
_NEW_BYTES = 1 << 16


def prepare(folder: Path) -> None:
    """Once, before anything else here. Raises OSError."""
    folder.mkdir(mode=0o700, exist_ok=True)
    os.environ[_FOLDER] = str(folder)


def empty() -> None:
    """When the service starts: what another life of it counted is none of this one's. Raises OSError."""
    for file in _folder().glob("*.db"):
        file.unlink()


def lowest_free(taken: Iterable[int]) -> int:
    """The slot of a worker beside whom these are taken."""
    others = set(taken)
    return next(slot for slot in count() if slot not in others)


def take(slot: int) -> None:
    """In a worker, before a metric is made: has all of them count in this slot's files. Raises OSError."""
    from prometheus_client import values

    for kind in _KINDS:
        file = _folder() / f"{kind}_{slot}.db"
        if not file.exists():
            # Made whole: a scrape that met it without its first bytes would fail.
            draft = file.with_suffix(".new")
            with draft.open("wb") as made:
                os.posix_fallocate(made.fileno(), 0, _NEW_BYTES)
            draft.replace(file)
    values.ValueClass = values.MultiProcessValue(lambda: slot)  # type: ignore[no-untyped-call]


def vacate(slot: int) -> None:
    """When a worker has died: what it had open is closed, what it counted stays."""
    for file in _folder().glob(f"gauge_live*_{slot}.db"):
        file.unlink(missing_ok=True)


def _folder() -> Path:
    return Path(os.environ[_FOLDER])

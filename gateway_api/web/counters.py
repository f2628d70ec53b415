"""The counters of a worker: in files, which a scrape adds up, or in memory while a disk has no room for them.

`prometheus_client` maps its files into memory, and makes them larger without asking for the space: on a full
disk the kernel kills the process that writes there. So each file has its space before it is mapped.

Each worker has the files of its slot, which is the lowest number that no living worker has.
`prometheus_client` would name files by process id, and each scrape would read the files of every worker that
ever ended. The next worker in a slot continues its counters, so no sum ever decreases.

Internals of prometheus_client, read in 0.26: `mmap_dict.MmapedDict`, and `values.MmapedDict`, which makes the
file of a kind of metric.
"""

import mmap
import os
import struct
from collections.abc import Iterable
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

from prometheus_client import values
from prometheus_client.mmap_dict import MmapedDict

from gateway_api.base.durable import is_unwritable
from gateway_api.base.logs import LOG

#: The variable in which prometheus_client looks for the folder.
_FOLDER = "PROMETHEUS_MULTIPROC_DIR"
#: Bytes of a new file, and of its header.
_NEW, _HEADER = 1 << 16, 8
#: The content of a file without a value.
_EMPTY = struct.pack("ii", _HEADER, 0)
#: How the names of the files begin whose values count only while their worker lives.
_GAUGE = "gauge_live"
#: Bytes of a value besides its key: the key's length, its padding, and two floats.
_BESIDE_KEY = 4 + 8 + 16

# One byte for each slot, which all processes share that are forked after the import: 1 while the counters of
# its worker are in memory. The disk cannot say it while it is full.
_in_memory = mmap.mmap(-1, mmap.PAGESIZE)


def workers_without_room() -> int:
    """The number of workers of this service whose counters are in memory, and so in no scrape."""
    return sum(_in_memory[:])


# In the arbiter


def prepare(folder: Path) -> None:
    """Makes the folder, before anything else here. Where its parent is read-only or full, the workers try
    again. Raises OSError for any other reason."""
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        if not is_unwritable(error):
            raise
        LOG.error("cannot make the folder of the counters: %s", error)
    os.environ[_FOLDER] = str(folder)


def empty() -> None:
    """Deletes the files of the last run, at the start of the service."""
    for pattern in ("*.db", "*.new"):
        _delete(pattern)


def lowest_free(taken: Iterable[int]) -> int:
    others = set(taken)
    return next(slot for slot in count() if slot not in others)


def vacate(slot: int) -> None:
    """Deletes the gauges of a worker that has ended. Its counters stay."""
    _in_memory[slot] = 0
    _delete(f"{_GAUGE}*_{slot}.db")


def _delete(pattern: str) -> None:
    """Delete files of the folder. One that cannot be deleted is still counted: the log says so."""
    for file in _folder().glob(pattern):
        try:
            file.unlink(missing_ok=True)
        except OSError as error:
            LOG.error("old counters stay in the metrics: %s", error)


def _folder() -> Path:
    return Path(os.environ[_FOLDER])


# In a worker


class WorkerCounters:
    """The counters of the worker in a slot, from now on. Raises no error of the disk."""

    def __init__(self, slot: int) -> None:
        self._slot = slot
        self._files: list[CounterFile] = []
        values.MmapedDict = self._file  # type: ignore[attr-defined, assignment]
        values.ValueClass = values.MultiProcessValue(lambda: slot)  # type: ignore[no-untyped-call]

    def settle(self) -> None:
        """Moves what is in memory to its files, if there is room. To be called from time to time."""
        reasons = [reason for file in self._files if (reason := file.settle()) is not None]
        if bool(reasons) == bool(_in_memory[self._slot]):
            return
        _in_memory[self._slot] = bool(reasons)
        if reasons:
            LOG.error("metrics lack the counters of a worker, which are in memory: %s", reasons[0])
        else:
            LOG.warning("metrics have the counters of the worker again")

    def _file(self, name: str) -> "CounterFile":
        file = CounterFile(Path(name))
        self._files.append(file)
        self.settle()
        return file


class CounterFile(MmapedDict):
    """The counters of one kind. In memory they have the same form as in their file."""

    #: None in memory.
    _f: Any

    def __init__(self, path: Path) -> None:
        # Not MmapedDict's, which opens the file.
        self._path = path
        if path.exists():
            # Of the last worker in the slot.
            self._continue()
        else:
            self._to_memory(_NEW, _EMPTY)

    def settle(self) -> OSError | None:
        """Moves the counters to their file if they are in memory. Returns why it is not possible."""
        if self._f is not None:
            return None
        # Renamed when complete: a scrape fails on an incomplete file.
        draft = self._path.with_suffix(".new")
        try:
            self._path.parent.mkdir(mode=0o700, exist_ok=True)
            with draft.open("wb") as made:
                os.posix_fallocate(made.fileno(), 0, self._capacity)
                made.write(self._m[: self._used])
            draft.replace(self._path)
        except OSError as error:
            # A part of it would use the last space. In a read-only folder there is none.
            with suppress(OSError):
                draft.unlink()
            return error
        self._open()
        return None

    def _continue(self) -> None:
        try:
            self._open()
        except OSError as error:
            # The folder is read-only. Counters continue; a gauge is only that of the worker which has ended.
            LOG.debug("cannot count in %s: %s", self._path, error)
            content = _EMPTY if self._path.name.startswith(_GAUGE) else self._path.read_bytes()
            self._to_memory(max(_NEW, len(content)), content)

    def _open(self) -> None:
        super().__init__(str(self._path))  # type: ignore[no-untyped-call]

    def _to_memory(self, size: int, content: bytes) -> None:
        self._f = None
        self._capacity = size
        self._m = mmap.mmap(-1, size)
        self._m[: len(content)] = content
        self._used = struct.unpack_from("i", content)[0]
        held = self._read_all_values()  # type: ignore[no-untyped-call]
        self._positions = {key: position for key, _, _, position in held}

    def _init_value(self, key: str) -> None:
        while self._used + len(key.encode()) + _BESIDE_KEY > self._capacity:
            self._grow(2 * self._capacity)
        super()._init_value(key)  # type: ignore[no-untyped-call]

    def _grow(self, size: int) -> None:
        if self._f is not None:
            try:
                os.posix_fallocate(self._f.fileno(), 0, size)
            except OSError as error:
                LOG.debug("no room for more counters: %s", error)
                self._f.close()
            else:
                self._m = mmap.mmap(self._f.fileno(), size)
                self._capacity = size
                return
        self._to_memory(size, self._m[: self._used])

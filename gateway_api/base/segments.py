"""Lines that are only ever appended, in files of a bounded size, of which the oldest goes.

A file is named after the position of its first byte among all that were ever written, so a line's position
is that plus its place in the file: it rises, and stays what it is when files come and go. Several processes
append to the newest file. Each does so alone, under a lock on the folder, and none keeps anything in mind in
between: whoever is killed leaves at most the beginning of a line behind.
"""

import errno
import fcntl
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

#: The service's user writes; its group may read.
MODE = 0o640
_BLOCK = 1 << 16


@dataclass(frozen=True)
class Segment:
    """A file; `first` is the position of its first byte."""

    path: Path
    first: int


class Segments:
    """The files of one `name` in a folder: at most `kept`, of `size` bytes each, if no line is longer.
    `label` tells them from those of the same name in another folder."""

    def __init__(self, folder: Path, name: str, *, size: int, kept: int, label: str | None = None) -> None:
        self.label = label or name
        self._name = name
        self._folder = folder
        self._size = size
        self._kept = kept
        self._pattern = re.compile(rf"{name}-(\d{{20}})\.jsonl", re.ASCII)

    def append(self, lines: bytes) -> None:
        """Whole lines: when it returns they are all on disk. Raises OSError, and then none of them is, unless
        it was the last step, the sync, that failed."""
        with self._alone() as folder:
            file = self._open_newest(folder, len(lines))
            try:
                self._write(file, lines)
            except BaseException:
                os.close(file)
                raise
        try:
            os.fsync(file)
        finally:
            os.close(file)

    def newest_first(self, below: int) -> Iterator[tuple[int, bytes]]:
        """Lines before a position, with theirs and without their ends. Raises OSError."""
        for segment in reversed(self._all()):
            if segment.first >= below:
                continue
            try:
                file = os.open(segment.path, os.O_RDONLY)
            except FileNotFoundError:
                # It was the oldest, and has gone meanwhile, with all before it.
                return
            try:
                end = min(os.fstat(file).st_size, below - segment.first)
                for offset, line in _backwards(file, end):
                    yield segment.first + offset, line
            finally:
                os.close(file)

    @property
    def end(self) -> int:
        """The position that the next byte gets."""
        for segment in reversed(self._all()):
            return segment.first + segment.path.stat().st_size
        return 0

    def _all(self) -> list[Segment]:
        """The oldest first."""
        matches = ((path, self._pattern.fullmatch(path.name)) for path in self._folder.iterdir())
        found = [Segment(path, int(match[1])) for path, match in matches if match]
        return sorted(found, key=lambda segment: segment.first)

    @contextmanager
    def _alone(self) -> Iterator[int]:
        folder = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(folder, fcntl.LOCK_EX)
            yield folder
        finally:
            # Not by closing alone: a process that was forked meanwhile has the descriptor, and the lock, too.
            fcntl.flock(folder, fcntl.LOCK_UN)
            os.close(folder)

    def _open_newest(self, folder: int, more: int) -> int:
        """A descriptor of the file that so many bytes fit into."""
        segments = self._all()
        if segments:
            newest = segments[-1]
            size = newest.path.stat().st_size
            if not size or size + more <= self._size:
                return os.open(newest.path, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC)
        first = newest.first + size if segments else 0
        path = self._folder / f"{self._name}-{first:020d}.jsonl"
        file = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, MODE)
        os.fchmod(file, MODE)
        for old in segments[: max(0, len(segments) + 1 - self._kept)]:
            old.path.unlink()
        # Or a power cut would take the file along, with all lines in it.
        os.fsync(folder)
        return file

    def _write(self, file: int, lines: bytes) -> None:
        size = os.fstat(file).st_size
        if size and os.pread(file, 1, size - 1) != b"\n":
            # Somebody died in the middle of a line: ours must not become its end.
            lines = b"\n" + lines
        written = os.write(file, lines)
        if written < len(lines):
            os.ftruncate(file, size)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _backwards(file: int, end: int) -> Iterator[tuple[int, bytes]]:
    """The lines before an offset, the last one first. What has no end is no line."""
    tail, ended = b"", False
    while end > 0:
        start = max(0, end - _BLOCK)
        data = os.pread(file, end - start, start) + tail
        end = start
        if not ended:
            data = data[: data.rfind(b"\n") + 1]
            ended = bool(data)
            if not ended:
                continue
        first, *others = data[:-1].split(b"\n")
        offset = start + len(data)
        for line in reversed(others):
            offset -= len(line) + 1
            yield offset, line
        # It may begin in the block before.
        tail = first + b"\n"
    if ended:
        yield 0, tail[:-1]

"""Configurations on disk: a folder for each revision, and one small file that names those that count.

    state.json                      which revision runs, which are archived, the candidate, a deadline
    revisions/18/configuration.json the document
    revisions/18/commit.json        when, by whom, why

The files of the services are rendered anew: here, their secrets would stand in each revision.

A revision never changes, and does not count until `state.json` names it. So each change of the configuration
is one rename, that of `state.json`. A revision that it does not name never took effect.
"""

import fcntl
import logging
import os
import shutil
import sqlite3
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from gateway_contract.base import durable
from gateway_contract.base.errors import GatewayApiError, StepFailed
from gateway_contract.core.configuration import LONGEST_CONFIRMATION
from gateway_core.records.changes import Note
from gateway_core.records.clock import Moment

T = TypeVar("T")

_log = logging.getLogger(__name__)


class Unreadable(GatewayApiError):
    """A file is missing or has unexpected content."""


@contextmanager
def disk_step(step: str) -> Iterator[None]:
    """Raises StepFailed for an error of the disk, or of SQLite, in the block."""
    try:
        yield
    except (OSError, sqlite3.Error) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise StepFailed(step, reason or "an error without a name") from error


class Deadline(Moment, frozen=True, kw_only=True):
    """Unless confirmed in time, the revision `baseline` is to run again. After a reboot, a wall clock that is
    ahead undoes the commit too early. That is the safe side: an operator who cannot confirm may be locked
    out.

    The default is for a deadline of an earlier version, which stored `at` alone.
    """

    baseline: int
    seconds: int = LONGEST_CONFIRMATION


class Commit(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """When, by whom and why a revision was committed. `committed_at` is epoch seconds."""

    committed_at: int
    author: str
    comment: str | None


_UNKNOWN = Commit(0, "unknown", "the time and author of this commit are lost")


class State(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`running` and the `archive`, newest first, are numbers of revisions. Without a `candidate`, nothing is
    staged. `key` is for entity tags: without it, a client could find out secrets by trying. `generations` are
    those of the API's users, by name; None in a state of an older version. `change` is the last noted change,
    which the log of changes may not have yet."""

    running: int
    archive: tuple[int, ...] = ()
    candidate: dict[str, Any] | None = None
    deadline: Deadline | None = None
    key: str = ""
    generations: dict[str, str] | None = None
    change: Note | None = None

    def names(self) -> set[int]:
        """Return the revisions that must not be removed."""
        return {self.running, *self.archive, *([self.deadline.baseline] if self.deadline else [])}


def read_json(path: Path, type: type[T]) -> T:
    """Return the content of a file. Raises Unreadable."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=type)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise Unreadable(f"cannot read the configuration in {path}: {error}") from error


def _json_bytes(value: Any) -> bytes:
    """Return the content of a file, indented for readers."""
    return msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n"


class ConfigurationStore:
    """The configurations in a folder, which is created if missing. For one process, and one thread at a time.

    Raises Unreadable.
    """

    def __init__(self, folder: Path) -> None:
        self._state_file = folder / "state.json"
        self._revisions = folder / "revisions"
        self._lock = _locked(folder)
        #: True when the file may hold another state than the one that counts.
        self._ahead = False
        try:
            durable.make_folder(self._revisions)
            #: The state that counts; None before the first commit.
            self.state = read_json(self._state_file, State) if self._state_file.exists() else None
            numbers = self._numbers()
            if self.state is None and len(numbers) > 1:
                # An interrupted first start leaves one revision. More are configurations that were in use.
                raise Unreadable(f"{folder} has revisions, but no state.json that says which one runs")
        except OSError as error:
            self.close()
            raise Unreadable(f"cannot read the configuration in {folder}: {error.strerror}") from error
        except Unreadable:
            self.close()
            raise
        self._last = max(numbers, default=0)
        self._remove_rendered(numbers)

    def document(self, number: int) -> dict[str, Any]:
        """Return the configuration of a revision. Raises Unreadable."""
        return read_json(self._revision(number) / "configuration.json", dict[str, Any])

    def commit(self, number: int) -> Commit:
        """Return the commit of a revision; an unknown one if its file cannot be read. The gateway must start,
        and return to a former configuration, without it."""
        try:
            return read_json(self._revision(number) / "commit.json", Commit)
        except Unreadable as error:
            _log.error("the time and author of revision %d are lost: %s", number, error)
            return _UNKNOWN

    def add(self, document: dict[str, Any], commit: Commit, keep: Collection[int] = ()) -> int:
        """Write a new revision to disk, and return its number. It does not count yet. Remove all others that
        do not count, except `keep`. Raises StepFailed."""
        with disk_step("remove old revisions"):
            # First: a state on disk that is ahead could name a removed revision.
            self._mend()
            for old in self._numbers().difference(keep, self.state.names() if self.state else ()):
                shutil.rmtree(self._revision(old))
        number = self._last + 1
        folder = self._revision(number)
        with disk_step("write the revision"):
            self._last = number
            folder.mkdir(mode=0o700)
            durable.write(folder / "configuration.json", _json_bytes(document))
            durable.write(folder / "commit.json", _json_bytes(commit))
            durable.sync(folder)
            durable.sync(self._revisions)
        return number

    def publish(self, state: State, step: str) -> None:
        """Make the state count, for good. Raises StepFailed with the name `step`."""
        with disk_step(step):
            try:
                durable.replace(self._state_file, _json_bytes(state))
            except durable.NotSynced:
                self._ahead = True
                try:
                    # Else the next start would find a change that was reported as failed.
                    self._mend()
                except OSError as error:
                    _log.critical("the state on disk may be ahead of the one that counts: %s", error.strerror)
                raise
        self.state, self._ahead = state, False

    def _remove_rendered(self, numbers: Collection[int]) -> None:
        """Remove the files of services, with their secrets, that a former version kept in each revision."""
        for number in numbers:
            try:
                shutil.rmtree(self._revision(number) / "services")
            except FileNotFoundError:
                continue
            except OSError as error:
                # The gateway must start anyway. The next start tries again.
                _log.error("cannot remove the services' files of revision %d: %s", number, error.strerror)

    def close(self) -> None:
        """Unlock the folder for another core."""
        os.close(self._lock)

    def _mend(self) -> None:
        if self._ahead and self.state is not None:
            durable.replace(self._state_file, _json_bytes(self.state))
            self._ahead = False

    def _numbers(self) -> set[int]:
        return {int(entry.name) for entry in self._revisions.iterdir() if entry.name.isdigit()}

    def _revision(self, number: int) -> Path:
        return self._revisions / str(number)


def _locked(folder: Path) -> int:
    try:
        durable.make_folder(folder)
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise Unreadable(f"cannot read the configuration in {folder}: {error.strerror}") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(descriptor)
        raise Unreadable(f"another core keeps its configuration in {folder}") from error
    return descriptor

"""Configurations on disk: a folder for each revision, and one small file that names the revisions in use.

    state.json                       the running and the archived revisions, the candidate, a deadline
    revisions/18/configuration.json  the document of revision 18
    revisions/18/commit.json         the time, author and comment of its commit

A revision never changes, and takes effect when `state.json` names the revision. So each change of the
configuration is one rename, of `state.json`. The files of the services are not stored, because each revision
would then contain their secrets.
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
from gateway_contract.core.configuration import MAX_CONFIRM_SECONDS
from gateway_core.records.changes import Note
from gateway_core.records.clock import Moment

T = TypeVar("T")

_log = logging.getLogger(__name__)


class Unreadable(GatewayApiError):
    """Error of a file of the configuration that is missing or has unexpected content."""


@contextmanager
def disk_step(step: str) -> Iterator[None]:
    """Convert each error of the disk or of SQLite in the with block to StepFailed. `step` describes the
    failed step."""
    try:
        yield
    except (OSError, sqlite3.Error) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise StepFailed(step, reason or "an error without a name") from error


class Deadline(Moment, frozen=True, kw_only=True):
    """Moment at which the revision `baseline` runs again unless the commit is confirmed. After a reboot, a
    wall clock that is ahead undoes the commit too early. This is the safe side: after the commit, the
    operator may have no access to the gateway."""

    baseline: int
    # The default is for a deadline of an earlier version, which stored `at` alone.
    seconds: int = MAX_CONFIRM_SECONDS


class Commit(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Commit of a revision: time in epoch seconds, author and comment."""

    committed_at: int
    author: str
    comment: str | None


_UNKNOWN_COMMIT = Commit(0, "unknown", "the time and author of this commit are lost")


class State(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Content of the file state.json."""

    #: The number of the running revision; 0 before the first one.
    running: int
    #: The numbers of the archived revisions, newest first.
    archive: tuple[int, ...] = ()
    #: The candidate; None if nothing is staged.
    candidate: dict[str, Any] | None = None
    deadline: Deadline | None = None
    #: The key of the ETags: without it, a client could find out secrets by trying.
    key: str = ""
    #: The generations of the API's users, by name; None in a state of an older version.
    generations: dict[str, str] | None = None
    #: The last noted change, which the log of changes may not have yet.
    change: Note | None = None

    @property
    def revisions(self) -> set[int]:
        """Numbers of the revisions that must not be removed."""
        return {self.running, *self.archive, *([self.deadline.baseline] if self.deadline else [])}


def read_json(path: Path, type: type[T]) -> T:
    """Read a JSON file, and return its content as an object of `type`. Raises Unreadable if the file cannot
    be read or has unexpected content."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=type)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise Unreadable(f"cannot read the configuration in {path}: {error}") from error


def _encode(value: Any) -> bytes:
    """Encode a value as JSON, indented for human readers."""
    return msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n"


class ConfigurationStore:
    """Store of configurations in a folder, which is created if it is missing. Only one process can use the
    store, and only one thread at a time."""

    def __init__(self, folder: Path) -> None:
        """Lock the folder, and read the state. Raises Unreadable if another process has locked the folder, or
        if the folder or the state cannot be read."""
        self._state_file = folder / "state.json"
        self._revisions = folder / "revisions"
        self._lock_descriptor = _lock_folder(folder)
        #: True if state.json may have a state that was reported as failed.
        self._is_ahead = False
        try:
            durable.make_folder(self._revisions)
            #: The current state; None before the first commit.
            self.state = read_json(self._state_file, State) if self._state_file.exists() else None
            numbers = self._list_revisions()
            if self.state is None and len(numbers) > 1:
                # An interrupted first start leaves one revision. Several revisions were in use.
                raise Unreadable(f"{folder} has revisions, but no state.json that says which one runs")
        except OSError as error:
            self.close()
            raise Unreadable(f"cannot read the configuration in {folder}: {error.strerror}") from error
        except Unreadable:
            self.close()
            raise
        self._last_number = max(numbers, default=0)

    def read_document(self, number: int) -> dict[str, Any]:
        """Return the configuration of a revision. Raises Unreadable if the file cannot be read."""
        return read_json(self._get_folder(number) / "configuration.json", dict[str, Any])

    def read_commit(self, number: int) -> Commit:
        """Return the commit of a revision. If the file of the commit cannot be read, return a commit with an
        unknown author, because the gateway must be able to start without this file."""
        try:
            return read_json(self._get_folder(number) / "commit.json", Commit)
        except Unreadable as error:
            _log.error(
                "cannot read the time and author of revision %d, which are shown as unknown: %s",
                number,
                error,
            )
            return _UNKNOWN_COMMIT

    def add(self, document: dict[str, Any], commit: Commit, keep: Collection[int] = ()) -> int:
        """Write a new revision, which is not in use yet, and return its number. Remove all other revisions
        that are not in use, except the revisions in `keep`. Raises StepFailed if the disk fails."""
        with disk_step("remove old revisions"):
            # First: a state on disk that is ahead could name a removed revision.
            self._restore_state()
            for old in self._list_revisions().difference(keep, self.state.revisions if self.state else ()):
                shutil.rmtree(self._get_folder(old))
        number = self._last_number + 1
        folder = self._get_folder(number)
        with disk_step("write the revision"):
            self._last_number = number
            folder.mkdir(mode=0o700)
            durable.write(folder / "configuration.json", _encode(document))
            durable.write(folder / "commit.json", _encode(commit))
            durable.sync(folder)
            durable.sync(self._revisions)
        return number

    def publish(self, state: State, step: str) -> None:
        """Write a state to disk, and make it the current state. Raises StepFailed with the name `step` if the
        disk fails."""
        with disk_step(step):
            try:
                durable.replace(self._state_file, _encode(state))
            except durable.NotSynced:
                self._is_ahead = True
                try:
                    # So that the next start does not find a change that was reported as failed.
                    self._restore_state()
                except OSError as error:
                    text = "cannot undo a failed change, which may take effect at the next start: %s"
                    _log.critical(text, error.strerror)
                raise
        self.state, self._is_ahead = state, False

    def close(self) -> None:
        """Unlock the folder, so that another core can use it."""
        os.close(self._lock_descriptor)

    def _restore_state(self) -> None:
        if self._is_ahead and self.state is not None:
            durable.replace(self._state_file, _encode(self.state))
            self._is_ahead = False

    def _list_revisions(self) -> set[int]:
        return {int(entry.name) for entry in self._revisions.iterdir() if entry.name.isdigit()}

    def _get_folder(self, number: int) -> Path:
        return self._revisions / str(number)


def _lock_folder(folder: Path) -> int:
    """Lock the folder against other processes, and return the file descriptor that holds the lock. Raises
    Unreadable if the folder cannot be opened, or if another process holds the lock."""
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

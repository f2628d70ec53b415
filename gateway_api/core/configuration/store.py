"""Configurations on disk: a folder for each revision, and one small file that names those that count.

    state.json                      which revision runs, which are archived, the candidate, a deadline
    revisions/18/configuration.json the document
    revisions/18/commit.json        when, by whom, why
    revisions/18/services/...       the files rendered for the services

A revision never changes, and does not count until `state.json` names it. So each change of the configuration
is one rename, that of `state.json`. A revision that it does not name never took effect.
"""

import fcntl
import logging
import os
import shutil
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from gateway_api.base import durable
from gateway_api.core.configuration.outcome import Unreadable, disk_step
from gateway_api.core.configuration.state import Commit, State

T = TypeVar("T")

_log = logging.getLogger(__name__)


def read_json(path: Path, type: type[T]) -> T:
    """The content of a file. Raises Unreadable."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=type)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise Unreadable(f"cannot read the configuration in {path}: {error}") from error


def json_bytes(value: Any) -> bytes:
    """The content of a file, indented for readers."""
    return msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n"


class Store:
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
            self._state = read_json(self._state_file, State) if self._state_file.exists() else None
            numbers = self._numbers()
        except OSError as error:
            self.close()
            raise Unreadable(f"cannot read the configuration in {folder}: {error.strerror}") from error
        except Unreadable:
            self.close()
            raise
        if self._state is None and len(numbers) > 1:
            self.close()
            # An interrupted first start leaves one revision. More are configurations that were in use.
            raise Unreadable(f"{folder} has revisions, but no state.json that says which one runs")
        self._last = max(numbers, default=0)

    @property
    def state(self) -> State | None:
        """The state that counts; None before the first commit."""
        return self._state

    def document(self, number: int) -> dict[str, Any]:
        """The configuration of a revision. Raises Unreadable."""
        return read_json(self._revision(number) / "configuration.json", dict[str, Any])

    def commit(self, number: int) -> Commit:
        """Raises Unreadable."""
        return read_json(self._revision(number) / "commit.json", Commit)

    def services(self, number: int) -> Path:
        """The folder with the rendered files of a revision."""
        return self._revision(number) / "services"

    def add(
        self,
        document: dict[str, Any],
        commit: Commit,
        services: Mapping[str, str],
        keep: Collection[int] = (),
    ) -> int:
        """Writes a new revision to disk, and returns its number. It does not count yet. Removes all others
        that do not count, except `keep`. Raises StepFailed."""
        self._sweep(set(keep))
        number = self._last + 1
        folder = self._revision(number)
        with disk_step("write the revision"):
            self._last = number
            # One by one: a mode applies to the last folder of a path only.
            folder.mkdir(mode=0o700)
            (folder / "services").mkdir(mode=0o700)
            for name, text in services.items():
                durable.write(folder / "services" / name, text.encode())
            durable.sync(folder / "services")
            durable.write(folder / "configuration.json", json_bytes(document))
            durable.write(folder / "commit.json", json_bytes(commit))
            durable.sync(folder)
            durable.sync(self._revisions)
        return number

    def publish(self, state: State, step: str) -> None:
        """Makes the state count, for good. Raises StepFailed with the name `step`."""
        with disk_step(step):
            try:
                durable.replace(self._state_file, json_bytes(state))
            except durable.NotSynced:
                self._ahead = True
                self._restore()
                raise
        self._state, self._ahead = state, False

    def close(self) -> None:
        """Unlocks the folder for another core."""
        os.close(self._lock)

    def _restore(self) -> None:
        # Else the next start would find a change that was reported as failed.
        try:
            self._mend()
        except OSError as error:
            _log.critical("the state on disk may be ahead of the one that counts: %s", error.strerror)

    def _mend(self) -> None:
        if self._ahead and self._state is not None:
            durable.replace(self._state_file, json_bytes(self._state))
            self._ahead = False

    def _sweep(self, keep: set[int]) -> None:
        """Removes the revisions that do not count: old ones, and those of failed commits."""
        with disk_step("remove old revisions"):
            # First: a state on disk that is ahead could name a removed revision.
            self._mend()
            for number in self._numbers() - keep - (self._state.names() if self._state else set()):
                shutil.rmtree(self._revision(number))

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

"""What a daemon beside the core is at a commit, and the files that daemons read."""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Protocol

from gateway_api.base import durable
from gateway_api.core.configuration.sections import Configuration
from gateway_api.core.configuration.store import StepFailed, disk_step
from gateway_api.core.gateways.linux.daemons.time_limit import CommitLimits
from gateway_api.wire.core.impact import ServiceAction

#: The text of each rendered file, by its name.
Rendered = Mapping[str, str]
#: What a commit does to a daemon; None for nothing.
DaemonAction = ServiceAction | None
#: Makes all as before. Raises StepFailed.
PutBack = Callable[[], None]

_log = logging.getLogger(__name__)


class ServiceDaemon(Protocol):
    """A daemon, or several of a kind. One commit at a time calls; a source may call the same object
    meanwhile."""

    @property
    def name(self) -> str:
        """For operators: `accel-ppp`."""

    def apply(self, rendered: Rendered, configuration: Configuration, limits: CommitLimits) -> PutBack:
        """Makes it run by the files. If it does, nothing happens to it. Raises StepFailed, also if it does
        not reply in time: then it runs as before."""

    def action(self, rendered: Rendered, configuration: Configuration) -> DaemonAction:
        """What `apply` would do to it now. It asks no daemon. Raises StepFailed."""


def all_or_none(steps: Iterable[Callable[[], PutBack]]) -> PutBack:
    """Takes all steps. After a StepFailed of one, those before it are put back."""
    done: list[PutBack] = []
    try:
        done.extend(step() for step in steps)
    except StepFailed:
        undo(done)
        raise
    return partial(undo, done)


def undo(done: Sequence[PutBack]) -> None:
    """Puts all back, the last one first. A failure is logged, and does not keep the others."""
    for put_back in reversed(done):
        try:
            put_back()
        except StepFailed as error:
            # The cause is raised already. The next commit, or the next start of the core, tries again.
            _log.critical("cannot put a service back as it was: %s", error)


class PlacedFiles:
    """Files in a folder, where daemons read them. Only root and the core enter the folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def read(self, name: str) -> str | None:
        """None if it is missing. Raises StepFailed."""
        with disk_step(f"read {name}"):
            try:
                return (self._folder / name).read_bytes().decode("latin-1")
            except FileNotFoundError:
                return None

    def place(self, name: str, text: str | None) -> PutBack:
        """Writes a file, or removes it. Raises StepFailed: then it is as before."""
        before = self.read(name)
        if text != before:
            self._write(name, text)
        return partial(self._write, name, before)

    def _write(self, name: str, text: str | None) -> None:
        path = self._folder / name
        with disk_step(f"write {name}"):
            if text is None:
                path.unlink(missing_ok=True)
                return
            durable.make_folder(self._folder)
            try:
                durable.replace(path, text.encode("latin-1"))
            except durable.NotSynced as error:
                # The file is there. If a power cut takes it, the next start of the core brings it back.
                _log.warning("cannot sync %s: %s", path, error.strerror)

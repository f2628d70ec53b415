"""Interface of a daemon that the core configures: the rendered files, the commit, and the rollback."""

import logging
import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Self

from jinja2 import Template

from gateway_contract.base import durable
from gateway_contract.base.errors import StepFailed
from gateway_contract.configuration import Configuration
from gateway_contract.core.impact import ServiceAction
from gateway_core.configuration.store import disk_step
from gateway_core.configuration.workspace import RenderedFiles
from gateway_core.gateways.linux.daemons.source import FailureSource, RadiusClient, Source
from gateway_core.gateways.linux.daemons.systemd import Systemd
from gateway_core.gateways.linux.program import CommitLimits
from gateway_core.gateways.linux.templates import make_environment
from gateway_core.records.clock import Clock

#: Folder of the rendered files, which only root and the core enter. The units and `packaging/pppoe` name the
#: same folder.
SERVICES_FOLDER = Path("/var/lib/gateway-core/services")

#: Effect of a commit on a daemon; None for no effect.
DaemonAction = ServiceAction | None
#: Function that restores the state before a step. Raises StepFailed.
UndoStep = Callable[[], None]

_log = logging.getLogger(__name__)

_environment = make_environment(__package__)


@dataclass(frozen=True)
class MissingRequirement:
    """Missing requirement of the machine, such as `programs: pppd`. The remedy is a shell command if
    possible, or else a sentence."""

    description: str
    remedy: str


class ServiceDaemon(ABC):
    """Daemon that a commit reconfigures. Only one commit runs at a time, but the source of the daemon may run
    at the same time as a commit."""

    #: For operators: `accel-ppp`.
    name: ClassVar[str]
    #: Required programs, each with its Debian package; None for a program that is not in Debian.
    programs: ClassVar[Mapping[str, str | None]] = {}
    #: How the operator gets the programs that are not in Debian.
    remedy: ClassVar[str] = ""
    #: Required kernel modules, in addition to the modules that every gateway needs.
    modules: ClassVar[tuple[str, ...]] = ()
    #: Effects of a commit, for the reference, by the beginning of the changed path: an action, or a sentence
    #: if the effect depends on the value.
    effects: ClassVar[Mapping[str, ServiceAction | str]] = {}

    @classmethod
    @abstractmethod
    def create(cls, files: "PlacedFiles", systemd: Systemd, is_source: bool) -> Self | None:
        """Create the daemon of this machine. Return None if the gateway does not configure the daemon.
        `is_source` is True if the operator has chosen the daemon as a source of sessions. Raises
        SourceRefused if a file of the daemon cannot be read or written."""

    @classmethod
    def find_missing_requirements(cls, root: Path) -> Iterator[MissingRequirement]:
        """Yield the missing requirements of the daemon other than programs and modules. `root` is the root of
        the machine's file system. Raises OSError if a file cannot be read."""
        yield from ()

    def render(self, configuration: Configuration) -> RenderedFiles:
        """Return a map from file name to text with each configuration file of the daemon. Return an empty map
        if the settings of the daemon depend on more than the configuration. Values are not escaped, because
        the schema allows no text that a daemon would misread. Raises StepFailed if the files cannot be
        rendered."""
        return {}

    def verify(self, rendered: RenderedFiles) -> None:  # noqa: B027 - a daemon without files has nothing to verify
        """Check the rendered files. Raises StepFailed if the daemon would misread or refuse a file."""

    @abstractmethod
    def apply(
        self,
        rendered: RenderedFiles,
        configuration: Configuration,
        limits: CommitLimits,
        rollback: "Rollback",
    ) -> None:
        """Make the daemon run with the rendered files. Do nothing if the daemon already uses these files.
        Before each step that may fail halfway, add the step's undo step to `rollback`. Raises StepFailed if
        the daemon refuses the files or does not reply in time."""

    def is_unfinished(self) -> bool:
        """Return True if `finish` still has work to do. Raises StepFailed if a file cannot be read."""
        return False

    def finish(self, running: Configuration) -> None:  # noqa: B027 - most daemons have nothing to do
        """End the sessions that the commit preview has announced to end. Called after `running` has become
        the running configuration. Raises StepFailed if the sessions cannot be ended: then `is_unfinished`
        stays True, even after a restart of the core."""

    @abstractmethod
    def preview_action(self, rendered: RenderedFiles, configuration: Configuration) -> DaemonAction:
        """Return the effect that `apply` with the same arguments would have now. Sends no request to the
        daemon. Raises StepFailed if a file cannot be read."""


class SourceDaemon(ServiceDaemon):
    """Daemon that the operator can choose as a source of sessions."""

    #: Session types that the daemon serves, as VLAN profiles name them.
    types: ClassVar[tuple[str, ...]]

    @abstractmethod
    def create_source(self, configuration: Configuration, clock: Clock) -> Source:
        """Create the source of the daemon's sessions, with the name of the daemon. `configuration` is the
        running configuration. Raises SourceRefused if a file of the source cannot be read or written."""

    def create_radius_client(self, clock: Clock) -> RadiusClient | None:
        """Create the RADIUS client of the daemon. Return None if the daemon has no RADIUS client."""
        return None

    def create_failure_source(self, clock: Clock) -> FailureSource | None:
        """Create a reader of the sign-ons that fail from now on. Return None if the daemon does not report
        failed sign-ons."""
        return None


def load_template(name: str) -> Template:
    """Load the template of a configuration file from the folder of this module. Call this function only while
    a module is imported, because an upgrade may replace the template files while a commit runs."""
    return _environment.get_template(f"{name}.j2")


def fill_template(template: Template, configuration: Configuration, **values: Any) -> str:
    """Render a template with the sections of a configuration and the further values `values`."""
    return template.render(vars(configuration), services_folder=SERVICES_FOLDER, **values)


class CheckFailed(StepFailed):
    """Failed check of a rendered file. The error is raised before any daemon is changed."""

    def __init__(self, reason: str) -> None:
        super().__init__("check the services' files", reason)


def check_lines(name: str, text: str, line_pattern: re.Pattern[str] | None = None) -> None:
    """Raise CheckFailed unless all lines are printable ASCII and match `line_pattern`, and each `[section]`
    occurs only once."""
    if not re.fullmatch(r"([ -~]*\n)+", text):
        raise CheckFailed(f"{name} is not lines of printable ASCII")
    lines = text[:-1].split("\n")
    for number, line in enumerate(lines, 1):
        if line_pattern is not None and not line_pattern.fullmatch(line):
            raise CheckFailed(f"{name}, line {number} is not of its form")
    if repeated := [line for line, times in Counter(lines).items() if line.startswith("[") and times > 1]:
        raise CheckFailed(f"{name} has {repeated[0]} twice")


class Rollback(ExitStack):
    """Undo steps of a commit. The steps run in reverse order: the step that was added last runs first."""

    def add(self, step: UndoStep) -> None:
        """Add an undo step. If the step fails during a rollback, the failure is logged, and all other steps
        still run."""
        self.callback(_run_step, step)


def _run_step(step: UndoStep) -> None:
    try:
        step()
    except StepFailed as error:
        # The cause of the rollback is raised already.
        _log.critical("rollback of a commit failed, the next commit or core start tries again: %s", error)


class PlacedFiles:
    """Folder of rendered files, from which daemons read their configuration."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def list_names(self) -> list[str]:
        """Return the names of all files in the folder. Raises StepFailed if the folder cannot be read."""
        with disk_step(f"list {self._folder.name}"):
            return [path.name for path in self._folder.iterdir()] if self._folder.exists() else []

    def read(self, name: str) -> str | None:
        """Return the text of a file, or None if the file is missing. Raises StepFailed if the file cannot be
        read."""
        with disk_step(f"read {name}"):
            try:
                # Latin-1 makes one character of any byte.
                return (self._folder / name).read_bytes().decode("latin-1")
            except FileNotFoundError:
                return None

    def place(self, name: str, text: str | None) -> UndoStep:
        """Write a file, or remove the file if the text is None. Return an undo step that restores the former
        file. Raises StepFailed if the file cannot be written or removed: then the former file stays."""
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
                _log.warning(
                    "cannot sync %s to disk, a power cut may lose the change: %s", path, error.strerror
                )

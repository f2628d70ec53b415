"""Daemon beside the core: the files that the core renders for it, and a commit that it takes or refuses."""

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

from jinja2 import Environment, PackageLoader, StrictUndefined, Template

from gateway_contract.base import durable
from gateway_contract.base.errors import StepFailed
from gateway_contract.configuration import Configuration
from gateway_contract.core.impact import ServiceAction
from gateway_core.configuration.store import disk_step
from gateway_core.configuration.workspace import Rendered
from gateway_core.gateways.linux.daemons.source import FailureSource, RadiusClient, Source
from gateway_core.gateways.linux.daemons.systemd import Systemd
from gateway_core.gateways.linux.program import CommitLimits
from gateway_core.records.clock import Clock

#: Folder of the rendered files, which only root and the core enter. The units and `packaging/pppoe` name the
#: same folder.
SERVICES = Path("/var/lib/gateway-core/services")

#: Effect of a commit on a daemon; None for no effect.
DaemonAction = ServiceAction | None
#: Restores what was there before. Raises StepFailed.
UndoStep = Callable[[], None]

_log = logging.getLogger(__name__)

_environment = Environment(
    loader=PackageLoader(__package__, "."),
    undefined=StrictUndefined,
    autoescape=False,  # noqa: S701 - these are no web pages
    auto_reload=False,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
)


@dataclass(frozen=True)
class Lack:
    """Missing part of the machine, such as `programs: pppd`, with its remedy: a shell command where there is
    one."""

    what: str
    remedy: str


class ServiceDaemon(ABC):
    """Daemon that a commit reconfigures. One commit at a time uses it, and its source may use it at the same
    time."""

    #: For operators: `accel-ppp`.
    name: ClassVar[str]
    #: Required programs, each with its Debian package; None for a program that is not in Debian.
    programs: ClassVar[Mapping[str, str | None]] = {}
    #: How the operator gets the programs that are not in Debian.
    remedy: ClassVar[str] = ""
    #: Required kernel modules, beside those that every gateway needs.
    modules: ClassVar[tuple[str, ...]] = ()
    #: Effects of a commit, for the reference, by the beginning of the changed path: an action, or a sentence
    #: if the effect depends on the value.
    effects: ClassVar[Mapping[str, ServiceAction | str]] = {}

    @classmethod
    @abstractmethod
    def create(cls, files: "PlacedFiles", systemd: Systemd, is_source: bool) -> Self | None:
        """Return the daemon of a machine; None if the gateway leaves it alone there. `is_source` is True if
        the operator chooses it as a source of sessions. Raises SourceRefused."""

    @classmethod
    def find_lacks(cls, root: Path) -> Iterator[Lack]:
        """Yield what is missing beside programs and modules. `root` is the root of the machine's file system.
        Raises OSError."""
        yield from ()

    def render(self, configuration: Configuration) -> Rendered:
        """Return the files of the daemon by name; no files if its settings depend on more than the
        configuration. Nothing is escaped: the schema allows no text that a daemon would misread. Raises
        StepFailed."""
        return {}

    def verify(self, rendered: Rendered) -> None:  # noqa: B027 - a daemon without files has nothing to verify
        """Check the files. Raises StepFailed if the daemon would misread or refuse one of them."""

    @abstractmethod
    def apply(
        self, rendered: Rendered, configuration: Configuration, limits: CommitLimits, rollback: "Rollback"
    ) -> None:
        """Make the daemon run with the files; do nothing if it does already. Add the way back to `rollback`
        before a step that may be done in part. Raises StepFailed, also for a daemon that does not reply in
        time."""

    def is_unfinished(self) -> bool:
        """Return True if `finish` has something to do. Raises StepFailed."""
        return False

    def finish(self, running: Configuration) -> None:  # noqa: B027 - most daemons have nothing to do
        """End the sessions that a commit has announced to end, once its configuration is the running one.
        Raises StepFailed: then this is still to be done, also after a restart of the core."""

    @abstractmethod
    def preview_action(self, rendered: Rendered, configuration: Configuration) -> DaemonAction:
        """Return the effect that `apply` would have now, without a request to a daemon. Raises StepFailed."""


class SourceDaemon(ServiceDaemon):
    """Daemon that is a source of sessions too, if the operator chooses it."""

    #: Session types that the daemon serves, as VLAN profiles name them.
    types: ClassVar[tuple[str, ...]]

    @abstractmethod
    def create_source(self, configuration: Configuration, clock: Clock) -> Source:
        """Return the source, which has the name of the daemon. `configuration` is the running one, which the
        core has applied before its start. Raises SourceRefused."""

    def create_radius_client(self, clock: Clock) -> RadiusClient | None:
        """Return the RADIUS client, or None if the daemon has none."""
        return None

    def create_failures(self, clock: Clock) -> FailureSource | None:
        """Return the sign-ons that fail from now on, or None if the daemon does not tell them."""
        return None


def load_template(name: str) -> Template:
    """Return the template of a file, which stands beside this module. Load it at the start: a commit must not
    depend on files that an upgrade may be replacing."""
    return _environment.get_template(f"{name}.j2")


def fill_template(template: Template, configuration: Configuration, **values: Any) -> str:
    """Return the text of a file, from the sections of a configuration and further values."""
    return template.render(vars(configuration), services_folder=SERVICES, **values)


class CheckFailed(StepFailed):
    """Refusal of a rendered file before any daemon changes."""

    def __init__(self, reason: str) -> None:
        super().__init__("check the services' files", reason)


def check_lines(name: str, text: str, form: re.Pattern[str] | None = None) -> None:
    """Raise CheckFailed unless all lines are printable ASCII and match `form`, and no section stands
    twice."""
    if not re.fullmatch(r"([ -~]*\n)+", text):
        raise CheckFailed(f"{name} is not lines of printable ASCII")
    lines = text[:-1].split("\n")
    for number, line in enumerate(lines, 1):
        if form is not None and not form.fullmatch(line):
            raise CheckFailed(f"{name}, line {number} is not of its form")
    if repeated := [line for line, times in Counter(lines).items() if line.startswith("[") and times > 1]:
        raise CheckFailed(f"{name} has {repeated[0]} twice")


class Rollback(ExitStack):
    """Steps that restore what was there before a commit. The last one added runs first."""

    def add(self, step: UndoStep) -> None:
        """Add a step. If the step fails, the failure is logged, and the others run all the same."""
        self.callback(_run_step, step)


def _run_step(step: UndoStep) -> None:
    try:
        step()
    except StepFailed as error:
        # The cause of the rollback is raised already.
        _log.critical("cannot restore a service, the next commit or start of the core tries again: %s", error)


class PlacedFiles:
    """Files in a folder, where daemons read them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def list_names(self) -> list[str]:
        """Return the names of all files. Raises StepFailed."""
        with disk_step(f"list {self._folder.name}"):
            return [path.name for path in self._folder.iterdir()] if self._folder.exists() else []

    def read(self, name: str) -> str | None:
        """Return the text of a file, or None if it is missing. Raises StepFailed."""
        with disk_step(f"read {name}"):
            try:
                # Latin-1 makes one character of any byte.
                return (self._folder / name).read_bytes().decode("latin-1")
            except FileNotFoundError:
                return None

    def place(self, name: str, text: str | None) -> UndoStep:
        """Write a file, or remove it if the text is None. Return a step that restores the former file. Raises
        StepFailed: then the file is as before."""
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

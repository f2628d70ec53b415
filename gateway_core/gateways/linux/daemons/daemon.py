"""A daemon beside the core: its rendered files, and a commit that it takes or refuses."""

import logging
import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Self

from jinja2 import Environment, PackageLoader, StrictUndefined, Template, TemplateError

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

#: What the core writes for the daemons. Only root and the core enter it. The units and `packaging/pppoe` name
#: the same place.
SERVICES = Path("/var/lib/gateway-core/services")

#: What a commit does to a daemon; None for nothing.
DaemonAction = ServiceAction | None
#: Makes all as before. Raises StepFailed.
PutBack = Callable[[], None]

_CHECK = "check the services' files"

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
    """A thing that is missing, such as `programs: pppd`, and what the operator does: a command for a shell,
    where there is one."""

    what: str
    remedy: str


class ServiceDaemon(ABC):
    """A daemon, or several of a kind, with all that the gateway knows of it. One commit at a time calls; a
    source may call the same object meanwhile."""

    #: For operators: `accel-ppp`.
    name: ClassVar[str]
    #: Those that it needs, each with its package in Debian; None for none.
    programs: ClassVar[Mapping[str, str | None]] = {}
    #: How the operator gets those that are not in Debian.
    remedy: ClassVar[str] = ""
    #: Those of the kernel, beside those that every gateway needs.
    modules: ClassVar[tuple[str, ...]] = ()
    #: What a commit does to it, for the reference, by the beginning of the changed path: an action, or a
    #: sentence if that depends on the value.
    effects: ClassVar[Mapping[str, ServiceAction | str]] = {}

    @classmethod
    @abstractmethod
    def on(cls, host: "DaemonHost") -> Self | None:
        """Return the daemon of a machine; None if the gateway leaves it alone there. Raises SourceRefused."""

    @classmethod
    def lacks(cls, root: Path) -> Iterator[Lack]:
        """Further things that it needs and does not have. `root` is the root of the machine's file system.
        Raises OSError."""
        yield from ()

    def render(self, configuration: Configuration) -> Rendered:
        """Return the files that it runs by; none for one whose settings depend on more than the
        configuration. Nothing is escaped: the schema allows no text that a daemon would misread. Raises
        StepFailed."""
        return {}

    def verify(self, rendered: Rendered) -> None:  # noqa: B027 - one without files has nothing to verify
        """Raises StepFailed if it would misread or refuse one of its files."""

    @abstractmethod
    def apply(self, rendered: Rendered, configuration: Configuration, limits: CommitLimits) -> PutBack:
        """Make it run by the files. If it does, nothing happens to it. Raises StepFailed, also if it does not
        reply in time: then it runs as before."""

    def is_unfinished(self) -> bool:
        """Return True if `finish` has something to do. Raises StepFailed."""
        return False

    def finish(self, running: Configuration) -> None:  # noqa: B027 - most have nothing to do
        """Does, once a commit counts and its configuration is the running one, what ends sessions: those that
        the commit has announced. Raises StepFailed: then it is still to be done, also by another life of the
        core."""

    @abstractmethod
    def action(self, rendered: Rendered, configuration: Configuration) -> DaemonAction:
        """Return the effect that `apply` would have on it now. It asks no daemon. Raises StepFailed."""


class SourceDaemon(ServiceDaemon):
    """A daemon that is a source of sessions too, if the operator chooses it."""

    #: Those of the VLAN profiles that it serves.
    types: ClassVar[tuple[str, ...]]

    @abstractmethod
    def source(self, configuration: Configuration, clock: Clock) -> Source:
        """Return the source, which has the name of the daemon. `configuration` is the running one, which an
        earlier life of the core has applied. Raises SourceRefused."""

    def radius_client(self, clock: Clock) -> RadiusClient | None:
        """None if it signs nobody on by RADIUS."""
        return None

    def failures(self, clock: Clock) -> FailureSource | None:
        """Return the sign-ons that fail from now on; None if it does not tell them."""
        return None


def template(name: str) -> Template:
    """Return the template of a file, beside the modules of the daemons. Load it at the start: a commit must
    not depend on files that an upgrade may be replacing."""
    return _environment.get_template(f"{name}.j2")


def filled(template: Template, configuration: Configuration, **values: Any) -> str:
    """Return the text of a file. Raises StepFailed."""
    try:
        return template.render(vars(configuration), services_folder=SERVICES, **values)
    except TemplateError as error:
        name = str(template.name).removesuffix(".j2")
        raise StepFailed(f"render {name}", str(error)) from error


def check_lines(name: str, text: str, form: re.Pattern[str] | None = None) -> None:
    """Raises StepFailed unless all lines are printable ASCII and of a form, and each section stands once."""
    if not re.fullmatch(r"([ -~]*\n)+", text):
        raise check_failed(f"{name} is not lines of printable ASCII")
    lines = text[:-1].split("\n")
    for number, line in enumerate(lines, 1):
        if form is not None and not form.fullmatch(line):
            raise check_failed(f"{name}, line {number} is not of its form")
    if repeated := [line for line, times in Counter(lines).items() if line.startswith("[") and times > 1]:
        raise check_failed(f"{name} has {repeated[0]} twice")


def check_failed(reason: str) -> StepFailed:
    return StepFailed(_CHECK, reason)


def all_or_none(steps: Iterable[Callable[[], PutBack]]) -> PutBack:
    """Take all steps. After a StepFailed of one, those before it are put back."""
    done: list[PutBack] = []
    try:
        done.extend(step() for step in steps)
    except StepFailed:
        undo(done)
        raise
    return partial(undo, done)


def put_back_after(act: Callable[[], None], put_back: PutBack) -> PutBack:
    """Does one act, and returns what puts all back as before. After a StepFailed it is put back: the act may
    have been done in part."""
    try:
        act()
    except StepFailed:
        undo([put_back])
        raise
    return put_back


def undo(done: Sequence[PutBack]) -> None:
    """Put all back, the last one first. A failure is logged, and does not keep the others."""
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
                # Latin-1 makes one character of any byte.
                return (self._folder / name).read_bytes().decode("latin-1")
            except FileNotFoundError:
                return None

    def place(self, name: str, text: str | None) -> PutBack:
        """Write a file, or remove it. Raises StepFailed: then it is as before."""
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


@dataclass(frozen=True)
class DaemonHost:
    """The machine's part that its daemons share: where their files are, its systemd, and the names of the
    daemons that are its sources of sessions."""

    files: PlacedFiles
    systemd: Systemd
    sources: Collection[str]

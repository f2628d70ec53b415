"""Health of the gateway on Linux: requirements of the gateway, and the state of the gateway's dependencies.

Names of packages and paths of files are for Debian 12 and 13.
"""

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from gateway_contract.base.errors import GatewayApiError
from gateway_contract.base.texts import format_utc, join_names
from gateway_contract.configuration import Bgp, Configuration, Radius
from gateway_contract.core.health import Dependency, DependencyState
from gateway_core.gateways.linux.daemons.daemon import MissingRequirement, ServiceDaemon, SourceDaemon
from gateway_core.gateways.linux.daemons.frr import (
    REMEDY,
    BgpReader,
    FrrUnavailable,
    FrrUnreadable,
    summarize_lines,
)
from gateway_core.gateways.linux.daemons.linux_services import DAEMONS
from gateway_core.gateways.linux.daemons.source import RadiusClient
from gateway_core.gateways.linux.program import ProgramFailed, run
from gateway_core.gateways.linux.sessions.tracker import SourceWatch, Tracker

#: The daemons that may be sources of sessions, by name.
SOURCE_DAEMONS = {each.name: each for each in DAEMONS if issubclass(each, SourceDaemon)}

#: Kernel modules that every gateway needs, and programs with their Debian packages.
KERNEL_MODULES = (
    "8021q", "ifb", "sch_tbf", "sch_fq_codel", "sch_ingress", "act_mirred", "cls_u32", "nft_fib_inet",
)  # fmt: skip
_PACKAGE_OF_PROGRAM: dict[str, str | None] = {"polkitd": "polkitd", "nft": "nftables"}
_PROGRAM_FOLDERS = (
    "usr/sbin", "usr/bin", "usr/local/sbin", "usr/local/bin", "usr/lib/frr", "usr/lib/polkit-1",
)  # fmt: skip
_MAX_MODPROBE_SECONDS, _MAX_MODPROBE_BYTES = 10.0, 1 << 16

#: systemd 252 or newer prints the kernel's state of the clock, with any NTP client.
TIMEDATECTL = ("timedatectl", "show", "--property=NTPSynchronized", "--value")
_MAX_TIMEDATECTL_SECONDS, _MAX_TIMEDATECTL_BYTES = 3.0, 1 << 12
_CLOCK_UNKNOWN_TEXT = "Nothing tells whether the clock of the machine is synchronized"
_CLOCK_STATES = {
    b"yes": (DependencyState.OK, "The clock of the machine is synchronized."),
    b"no": (
        DependencyState.DEGRADED,
        "The clock of the machine is not synchronized: times of sessions and events may be wrong.",
    ),
}
#: Time between two checks of all dependencies. Each check has its own deadline, of ten seconds at most.
_CHECK_INTERVAL_SECONDS = 10.0
#: Time between two checks of the clock: longer, because systemd starts a service for each call.
_CLOCK_CHECK_INTERVAL_SECONDS = 60.0


class SourcesOverlap(GatewayApiError):
    """Error of a choice of sources: two sources serve the same session type."""


def list_interfaces(root: Path) -> list[str]:
    """Return the names of the machine's interfaces, without the loopback. `root` is the root of the machine's
    file system."""
    paths = (root / "sys/class/net").iterdir()
    # The bonding driver has a regular file in this folder.
    return sorted(path.name for path in paths if path.name != "lo" and path.is_dir())


def map_types_to_sources(names: Iterable[str]) -> dict[str, str]:
    """Return a map from session type to the name of the source of that type. Raises SourcesOverlap if two of
    the sources serve the same session type."""
    source_of_type: dict[str, str] = {}
    for name in names:
        for type in SOURCE_DAEMONS[name].types:
            if (other := source_of_type.setdefault(type, name)) != name:
                raise SourcesOverlap(f"{other} and {name} both serve {type}: choose one")
    return source_of_type


def choose_sources(root: Path) -> list[str]:
    """Return the names of the sources whose programs are installed, one source for each session type.
    accel-ppp is preferred to the daemons of Debian, because an operator who has built and installed accel-ppp
    wants to use accel-ppp."""
    source_of_type: dict[str, str] = {}
    for name, source in reversed(SOURCE_DAEMONS.items()):
        if not source_of_type.keys() & set(source.types) and not _find_missing_programs(
            root, source.programs
        ):
            source_of_type |= dict.fromkeys(source.types, name)
    return list(dict.fromkeys(source_of_type.values()))


def find_missing_requirements(
    root: Path, used: Sequence[str], sources: Sequence[str]
) -> Iterator[MissingRequirement]:
    """Yield the requirements of the gateway that the machine lacks. `used` are the names of the gateway's
    interfaces, and `sources` are keys of `SOURCE_DAEMONS`. Raises ProgramFailed if a program of the check,
    such as modprobe, cannot run, and OSError if a file or folder cannot be read."""
    interfaces = list_interfaces(root)
    if missing_interfaces := [name for name in used if name not in interfaces]:
        yield MissingRequirement(
            f"interfaces: {', '.join(missing_interfaces)}",
            f"this machine has {', '.join(interfaces) or 'none'}",
        )
    common_daemons: list[type[ServiceDaemon]] = [each for each in DAEMONS if each.name not in SOURCE_DAEMONS]
    chosen_daemons = [SOURCE_DAEMONS[name] for name in sources]
    daemons = [*common_daemons, *chosen_daemons]
    if modules := _find_missing_modules(root, daemons):
        # Debian's cloud kernel, for example, has no PPP.
        kernel = "apt-get install linux-image-$(dpkg --print-architecture), then reboot into that kernel"
        yield MissingRequirement(f"kernel modules: {', '.join(modules)}", kernel)
    missing_programs = _find_missing_programs(
        root, _list_programs(common_daemons) | _PACKAGE_OF_PROGRAM | _list_programs(chosen_daemons)
    )
    if in_debian := {name: package for name, package in missing_programs.items() if package}:
        packages = " ".join(dict.fromkeys(in_debian.values()))
        yield MissingRequirement(f"programs: {', '.join(in_debian)}", f"apt-get install {packages}")
    for daemon in daemons:
        if other_programs := [
            name for name in daemon.programs if name in missing_programs and name not in in_debian
        ]:
            yield MissingRequirement(f"programs: {', '.join(other_programs)}", daemon.remedy)
    for daemon in daemons:
        yield from daemon.find_missing_requirements(root)


def _list_programs(daemons: Iterable[type[ServiceDaemon]]) -> dict[str, str | None]:
    return {name: package for each in daemons for name, package in each.programs.items()}


def _find_missing_programs(root: Path, programs: Mapping[str, str | None]) -> dict[str, str | None]:
    return {
        name: package
        for name, package in programs.items()
        if not any(_is_program(root / folder / name) for folder in _PROGRAM_FOLDERS)
    }


def _is_program(path: Path) -> bool:
    # Not os.access: only root and a group may run pppd, and the core, which calls this too, is neither.
    return path.is_file() and path.stat().st_mode & 0o111 != 0


def _find_missing_modules(root: Path, daemons: Sequence[type[ServiceDaemon]]) -> list[str]:
    release = (root / "proc/sys/kernel/osrelease").read_text().strip()
    modprobe = ["modprobe", "--dry-run", "--quiet", "--dirname", str(root), "--set-version", release]

    def is_missing(name: str) -> bool:
        if (root / "sys/module" / name).exists():
            return False
        return (
            run([*modprobe, name], seconds=_MAX_MODPROBE_SECONDS, max_bytes=_MAX_MODPROBE_BYTES).status != 0
        )

    needed = [*KERNEL_MODULES, *(module for daemon in daemons for module in daemon.modules)]
    return [name for name in dict.fromkeys(needed) if is_missing(name)]


def check_clock(command: Sequence[str] = TIMEDATECTL) -> Dependency:
    """Check whether the clock is synchronized. Return the dependency `clock`. The check takes at most 3 s."""
    try:
        result = run(command, seconds=_MAX_TIMEDATECTL_SECONDS, max_bytes=_MAX_TIMEDATECTL_BYTES)
    except ProgramFailed as error:
        return Dependency("clock", DependencyState.UNKNOWN, f"{_CLOCK_UNKNOWN_TEXT}: {error}.")
    unknown = DependencyState.UNKNOWN, f"{_CLOCK_UNKNOWN_TEXT}: timedatectl failed."
    state = unknown if result.status else _CLOCK_STATES.get(result.output.strip(), unknown)
    return Dependency("clock", *state)


def check_radius(section: Radius, client: RadiusClient | None) -> Dependency:
    """Check RADIUS. Return the dependency `radius`. `client` is None if no source of sessions uses RADIUS."""
    if section.server is None:
        return Dependency("radius", DependencyState.UNUSED, "The configuration has no RADIUS server.")
    if client is None:
        return Dependency("radius", DependencyState.UNUSED, "No source of sessions uses RADIUS.")
    return Dependency("radius", *client.read_state())


def check_frr(section: Bgp | None, daemon: BgpReader, foreign_lines: Sequence[str] = ()) -> Dependency:
    """Check FRR. Return the dependency `frr`. The check ends within the deadline of `daemon`. `foreign_lines`
    are lines of FRR's configuration that prevent the gateway from managing BGP."""
    if section is None or not section.neighbors:
        return Dependency("frr", DependencyState.UNUSED, "The configuration has no BGP neighbours.")
    if foreign_lines:
        reason = f"FRR has a BGP instance that is not the gateway's: {summarize_lines(foreign_lines)}"
        message = f"Routing is not managed: {reason}. {REMEDY}."
        return Dependency("frr", DependencyState.FAILED, message)
    try:
        summary = daemon.read_bgp_summary()
    except FrrUnreadable:
        return Dependency("frr", DependencyState.UNKNOWN, "FRR gave a BGP summary that is not as expected.")
    except FrrUnavailable as error:
        return Dependency("frr", DependencyState.FAILED, f"FRR gave no BGP summary: {error.reason}.")
    established = {
        address
        for family in summary.values()
        for address, neighbour in family.get("peers", {}).items()
        if neighbour.get("state") == "Established"
    }
    addresses = [str(neighbour.address) for neighbour in section.neighbors]
    missing = [address for address in addresses if address not in established]
    if not missing:
        return Dependency("frr", DependencyState.OK, f"All BGP sessions are established: {len(addresses)}.")
    state = DependencyState.DEGRADED if len(missing) < len(addresses) else DependencyState.FAILED
    message = (
        f"{len(missing)} of {len(addresses)} BGP sessions are not established: {join_names(missing, 3)}."
    )
    return Dependency("frr", state, message)


def check_source(watch: SourceWatch) -> Dependency:
    """Return the dependency of a source of sessions. The state is the result of the last poll."""
    name, since = watch.name, watch.silent_since
    if watch.is_available:
        concern = watch.source.find_concern()
        if concern is not None:
            return Dependency(name, DependencyState.DEGRADED, f"{name} lists its sessions: {concern}.")
        return Dependency(name, DependencyState.OK, f"{name} lists its sessions.")
    if since is None:
        message = f"{name} has not replied yet: the core has just started."
        return Dependency(name, DependencyState.UNKNOWN, message)
    message = f"{name} has not replied since {format_utc(since)}, and its sessions are stale."
    return Dependency(name, DependencyState.FAILED, message)


@dataclass
class DependencyWatch:
    """Watch that checks all dependencies regularly, so that no request waits for a check. Thread-safe.

    `find_foreign_lines` returns the `foreign_lines` of `check_frr`.
    """

    configuration: Configuration
    tracker: Tracker
    radius_client: RadiusClient | None
    frr: BgpReader
    find_foreign_lines: Callable[[], Sequence[str]]
    check_clock: Callable[[], Dependency] = check_clock

    def __post_init__(self) -> None:
        self._next_clock_check = 0.0
        self._changed = threading.Event()
        not_checked = DependencyState.UNKNOWN, "The core has not asked yet: it has just started."
        self._last_dependencies = {
            name: Dependency(name, *not_checked) for name in ("radius", "frr", "clock")
        }

    def configure(self, configuration: Configuration) -> None:
        """Request a check of the dependencies with a new configuration. `run` starts the check at once."""
        self.configuration = configuration
        self._changed.set()

    def run(self) -> None:
        """Check the dependencies every _CHECK_INTERVAL_SECONDS until the process ends."""
        while True:
            self._changed.clear()
            self.check()
            self._changed.wait(_CHECK_INTERVAL_SECONDS)

    def check(self) -> None:
        """Check RADIUS and FRR. Check the clock too if the last check of the clock was
        _CLOCK_CHECK_INTERVAL_SECONDS ago."""
        configuration = self.configuration
        self._last_dependencies["radius"] = check_radius(configuration.radius, self.radius_client)
        self._last_dependencies["frr"] = check_frr(configuration.bgp, self.frr, self.find_foreign_lines())
        if (now := time.monotonic()) >= self._next_clock_check:
            self._last_dependencies["clock"] = self.check_clock()
            self._next_clock_check = now + _CLOCK_CHECK_INTERVAL_SECONDS

    def list_dependencies(self) -> tuple[Dependency, ...]:
        """Return the dependencies of the sources, followed by the results of the last check of RADIUS, FRR
        and the clock."""
        return *map(check_source, self.tracker.watches), *self._last_dependencies.values()

"""Asks the dependencies of the gateway from time to time, so that no request waits for one."""

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from gateway_contract.base.texts import format_utc, join_names
from gateway_contract.configuration import Bgp, Configuration, Radius
from gateway_contract.core.health import Dependency, DependencyState
from gateway_core.gateways.linux.daemons.frr import REMEDY, Frr, RoutingUnavailable, RoutingUnreadable, shown
from gateway_core.gateways.linux.daemons.source import RadiusClient
from gateway_core.gateways.linux.program import ProgramFailed, run
from gateway_core.gateways.linux.sessions.tracker import SourceWatch, Tracker

TIMEDATECTL = ("timedatectl", "show", "--property=NTPSynchronized", "--value")
#: Seconds and bytes of its reply.
_CLOCK_SECONDS, _CLOCK_BYTES = 3.0, 1 << 12
_CLOCK_UNKNOWN = "Nothing tells whether the clock of the machine is synchronized"


def clock(command: Sequence[str] = TIMEDATECTL) -> Dependency:
    """Return whether the clock of the machine is synchronized, as `timedatectl` of systemd 252 or newer tells
    it: the kernel's own word, whichever NTP client runs. Takes up to 3 s."""
    try:
        ended = run(command, seconds=_CLOCK_SECONDS, most=_CLOCK_BYTES)
    except ProgramFailed as error:
        return Dependency("clock", DependencyState.UNKNOWN, f"{_CLOCK_UNKNOWN}: {error}.")
    match ended.status, ended.output.strip():
        case 0, b"yes":
            return Dependency("clock", DependencyState.OK, "The clock of the machine is synchronized.")
        case 0, b"no":
            message = (
                "The clock of the machine is not synchronized: times of sessions and events may be wrong."
            )
            return Dependency("clock", DependencyState.DEGRADED, message)
        case _:
            return Dependency("clock", DependencyState.UNKNOWN, f"{_CLOCK_UNKNOWN}: timedatectl failed.")


def radius(configured: Radius, client: RadiusClient | None) -> Dependency:
    """Return whether the RADIUS server responds, as a source of sessions tells it. `client` is None without a
    source that signs subscribers on by RADIUS."""
    if configured.server is None:
        return Dependency("radius", DependencyState.UNUSED, "The configuration has no RADIUS server.")
    if client is None:
        return Dependency("radius", DependencyState.UNUSED, "No source of sessions uses RADIUS.")
    return Dependency("radius", *client.look())


def frr(configured: Bgp | None, daemon: Frr, foreign: Sequence[str] = ()) -> Dependency:
    """Return whether FRR replies, and has its BGP neighbours. `foreign` lines keep FRR from running by the
    configuration. Ends by the deadline of `daemon`."""
    if configured is None or not configured.neighbors:
        return Dependency("frr", DependencyState.UNUSED, "The configuration has no BGP neighbours.")
    if foreign:
        reason = f"FRR has a BGP instance that is not the gateway's: {shown(foreign)}"
        message = f"Routing is not managed: {reason}. {REMEDY}."
        return Dependency("frr", DependencyState.FAILED, message)
    try:
        established = _established(daemon.bgp_summary())
    except RoutingUnreadable:
        return Dependency("frr", DependencyState.UNKNOWN, "FRR gave a BGP summary that is not as expected.")
    except RoutingUnavailable as error:
        return Dependency("frr", DependencyState.FAILED, f"FRR gave no BGP summary: {error.reason}.")
    all_of_them = [str(neighbour.address) for neighbour in configured.neighbors]
    missing = [address for address in all_of_them if address not in established]
    if not missing:
        return Dependency("frr", DependencyState.OK, f"All BGP sessions are established: {len(all_of_them)}.")
    state = DependencyState.DEGRADED if len(missing) < len(all_of_them) else DependencyState.FAILED
    message = (
        f"{len(missing)} of {len(all_of_them)} BGP sessions are not established: {join_names(missing, 3)}."
    )
    return Dependency("frr", state, message)


def _established(summary: dict[str, Any]) -> set[str]:
    """Return the addresses of the neighbours whose session is up."""
    return {
        address
        for family in summary.values()
        for address, neighbour in family.get("peers", {}).items()
        if neighbour.get("state") == "Established"
    }


#: Seconds between two looks. Each dependency has a deadline of its own, of ten at most.
_PAUSE = 10.0
#: The same for the clock: systemd starts a service for each question.
_CLOCK_PAUSE = 60.0


class DependencyWatch:
    """`foreign` returns the lines that keep FRR from running by the configuration, `ask_clock` the dependency
    `clock`. Any thread may call."""

    def __init__(
        self,
        configuration: Configuration,
        tracker: Tracker,
        radius_client: RadiusClient | None,
        daemon: Frr,
        foreign: Callable[[], Sequence[str]],
        ask_clock: Callable[[], Dependency] = clock,
    ) -> None:
        self._configuration = configuration
        self._tracker = tracker
        self._radius_client = radius_client
        self._daemon = daemon
        self._foreign = foreign
        self._ask_clock = ask_clock
        self._ask_clock_from = 0.0
        self._changed = threading.Event()
        self._found = {
            name: Dependency(
                name, DependencyState.UNKNOWN, "The core has not asked yet: it has just started."
            )
            for name in ("radius", "frr", "clock")
        }

    def configure(self, configuration: Configuration) -> None:
        """Look again, with a new configuration."""
        self._configuration = configuration
        self._changed.set()

    def run(self) -> None:
        """Look until the process ends."""
        while True:
            self._changed.clear()
            self.look()
            self._changed.wait(_PAUSE)

    def look(self) -> None:
        """Ask each, one after the other."""
        self._keep(radius(self._configuration.radius, self._radius_client))
        self._keep(frr(self._configuration.bgp, self._daemon, self._foreign()))
        if (now := time.monotonic()) >= self._ask_clock_from:
            self._keep(self._ask_clock())
            self._ask_clock_from = now + _CLOCK_PAUSE

    def now(self) -> tuple[Dependency, ...]:
        """Return the dependencies as they were found last."""
        return *map(_source, self._tracker.watches), *self._found.values()

    def _keep(self, found: Dependency) -> None:
        self._found[found.name] = found


def _source(watch: SourceWatch) -> Dependency:
    if watch.is_available:
        concern = watch.source.concern()
        if concern is not None:
            message = f"{watch.name} lists its sessions: {concern}."
            return Dependency(watch.name, DependencyState.DEGRADED, message)
        return Dependency(watch.name, DependencyState.OK, f"{watch.name} lists its sessions.")
    if watch.silent_since is None:
        message = f"{watch.name} has not replied yet: the core has just started."
        return Dependency(watch.name, DependencyState.UNKNOWN, message)
    message = (
        f"{watch.name} has not replied since {format_utc(watch.silent_since)}, and its sessions are stale."
    )
    return Dependency(watch.name, DependencyState.FAILED, message)

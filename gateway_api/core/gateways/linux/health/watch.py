"""Asks the dependencies of the gateway from time to time, so that no request waits for one."""

import threading
import time
from collections.abc import Callable, Sequence

from gateway_api.base.texts import utc_text
from gateway_api.core.configuration.sections import Configuration
from gateway_api.core.gateways.linux.daemons.frr import Frr
from gateway_api.core.gateways.linux.health.clock import clock
from gateway_api.core.gateways.linux.health.radius import RadiusClient, radius
from gateway_api.core.gateways.linux.health.routing import frr
from gateway_api.core.gateways.linux.sessions.source_watch import SourceWatch
from gateway_api.core.gateways.linux.sessions.tracker import Tracker
from gateway_api.wire.core.dependencies import Dependency, DependencyState

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
        """Looks again, with a new configuration."""
        self._configuration = configuration
        self._changed.set()

    def run(self) -> None:
        """Looks until the process ends."""
        while True:
            self._changed.clear()
            self.look()
            self._changed.wait(_PAUSE)

    def look(self) -> None:
        """Asks each, one after the other."""
        self._keep(radius(self._configuration.radius, self._radius_client))
        self._keep(frr(self._configuration.bgp, self._daemon, self._foreign()))
        if (now := time.monotonic()) >= self._ask_clock_from:
            self._keep(self._ask_clock())
            self._ask_clock_from = now + _CLOCK_PAUSE

    def now(self) -> tuple[Dependency, ...]:
        """The dependencies as they were found last."""
        return *map(_source, self._tracker.watches), *self._found.values()

    def _keep(self, found: Dependency) -> None:
        self._found[found.name] = found


def _source(watch: SourceWatch) -> Dependency:
    if watch.is_available:
        return Dependency(watch.name, DependencyState.OK, f"{watch.name} lists its sessions.")
    if watch.silent_since is None:
        message = f"{watch.name} has not replied yet: the core has just started."
        return Dependency(watch.name, DependencyState.UNKNOWN, message)
    message = (
        f"{watch.name} has not replied since {utc_text(watch.silent_since)}, and its sessions are stale."
    )
    return Dependency(watch.name, DependencyState.FAILED, message)

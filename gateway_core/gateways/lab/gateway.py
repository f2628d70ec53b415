"""Gateway with simulated subscribers, for demonstrations and tests."""

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import Any, NoReturn

from gateway_contract.configuration import Configuration
from gateway_contract.core.health import Dependency, DependencyState, TriggerRefusal
from gateway_contract.core.impact import Impact
from gateway_contract.core.network import Interface
from gateway_contract.core.sessions import SessionDetail
from gateway_core.configuration.workspace import RenderedFiles
from gateway_core.gateways.lab import network
from gateway_core.gateways.lab.access import LabSession, ManagedVlan
from gateway_core.gateways.lab.population import Population
from gateway_core.gateways.lab.world import TemporaryRates, World
from gateway_core.gateways.protocols import Gateway
from gateway_core.records.clock import Clock, Expiry
from gateway_core.records.orders import Ordering
from gateway_core.records.paging import ChainedRows, Rows, SortedRows
from gateway_core.sessions.journal import Journal
from gateway_core.sessions.session import Counters

#: Sessions with an IPv6 prefix.
_DUAL_STACK: Ordering[LabSession] = Ordering(attrgetter("summary.id"), attrgetter("summary.ipv6_prefix"))
#: Time between two advances of the lab.
_ADVANCE_INTERVAL_SECONDS = 0.05
#: Maximum number of arrivals and departures while the lock is held once: about ten milliseconds.
_MAX_EVENTS_PER_HOLD = 500
#: Pause after each release of the lock. Without the pause, the thread would take the lock again before
#: another thread wakes up, and a lab that lags behind would not answer requests.
_PAUSE_SECONDS = 0.001
#: The lab depends on no service of its machine.
_DEPENDENCIES = (
    Dependency("lab", DependencyState.OK, "The lab simulates its subscribers."),
    *(
        Dependency(name, DependencyState.UNUSED, f"The lab is a simulation, and {reason}.")
        for name, reason in (
            ("radius", "asks no RADIUS server"),
            ("frr", "runs no FRR"),
            ("clock", "does not check the clock of its machine"),
        )
    ),
)


class LabServices:
    """`GatewayServices` of the lab, which has no services."""

    def render(self, configuration: Configuration) -> RenderedFiles:
        """Return no files, because the lab has no services."""
        return {}

    def apply(self, rendered: RenderedFiles, configuration: Configuration) -> None:
        """Do nothing, because the lab has no services."""

    def resume(self, configuration: Configuration) -> None:
        """Do nothing, because the lab has no services."""


class LabGateway(Gateway):
    """Gateway with the simulated subscribers of a `Population`. Arrivals and departures of subscribers are
    added to the `journal`.

    Subscribers arrive and depart only in `advance`. Counters are always up to date. The lock of the session
    table protects the whole world. `rates` is the file that keeps temporary rates over a restart, or None.
    """

    def __init__(
        self,
        configuration: Configuration,
        population: Population,
        journal: Journal,
        clock: Clock,
        rates: Path | None = None,
    ) -> None:
        self._clock = clock
        self._boot_time = clock.wall() - clock.steady()
        self._world = World(configuration, population, journal, self._read_time(), TemporaryRates(rates))
        self.sessions = self._world.sessions
        self._lock = self.sessions.lock

    def run(self) -> NoReturn:
        while True:
            self.advance()
            time.sleep(_ADVANCE_INTERVAL_SECONDS)

    def advance(self, pause: Callable[[float], object] = time.sleep) -> None:
        """Simulate all due arrivals and departures in batches, so that a request waits for one batch at most.
        `pause` waits between two batches, for the given number of seconds."""
        now, has_more = self._read_time(), True
        while has_more:
            with self._lock:
                has_more = self._world.advance(now, _MAX_EVENTS_PER_HOLD)
            if has_more:
                pause(_PAUSE_SECONDS)

    def apply_in_kernel(self, configuration: Configuration) -> AbstractContextManager[None]:
        """Change nothing, because the lab does not use the kernel."""
        return nullcontext()

    def configure(self, configuration: Configuration) -> None:
        # Without due arrivals and departures, because `freeze_sessions` has not counted them.
        with self._lock:
            self._world.configure(configuration, self._read_time())

    def preview_impact(self, configuration: Configuration) -> Impact:
        with self.freeze_sessions(configuration) as impact:
            return impact

    @contextmanager
    def freeze_sessions(self, configuration: Configuration) -> Iterator[Impact]:
        with self._lock_and_advance():
            yield Impact.of(self._world.find_sessions_to_end(configuration))

    def read_detail(self, id: int) -> SessionDetail | None:
        # Without the lock, which would delay this method during arrivals and departures.
        session = self.sessions.get(id)
        return (
            None
            if session is None
            else session.make_detail(session.traffic.compute_counters(self._read_usage()))
        )

    def read_counters(self) -> dict[int, Counters]:
        usage = self._read_usage()
        return {session.id: session.traffic.compute_counters(usage) for session in self.sessions.all()}

    def disconnect(self, ids: Sequence[int]) -> list[SessionDetail]:
        with self._lock_and_advance() as now:
            sessions = [session for session in map(self.sessions.get, ids) if session is not None]
            self._world.disconnect(sessions, now)
            usage = self._world.compute_usage(now)
            return [session.make_detail(session.traffic.compute_counters(usage)) for session in sessions]

    def has_interface(self, name: str) -> bool:
        with self._lock_and_advance():
            if name in self._world.vlans or self.sessions.has_interface(name):
                return True
            return any(interface.name == name for interface in self._list_fixed_interfaces(usage=0))

    def set_rate(
        self, id: int, down_bps: int, up_bps: int, expiry: Expiry | None = None
    ) -> tuple[SessionDetail, SessionDetail] | None:
        with self._lock_and_advance() as now:
            session = self.sessions.get(id)
            if session is None:
                return None
            changed = self._world.set_rate(session, down_bps, up_bps, expiry, now)
            # A change of rates leaves the counters as they are.
            counters = session.traffic.compute_counters(self._world.compute_usage(now))
            return session.make_detail(counters), changed.make_detail(counters)

    def list_vlans(self) -> SortedRows[ManagedVlan]:
        with self._lock:
            return SortedRows(self._world.vlans.list_sorted(), ManagedVlan.get_key, ManagedVlan.to_record)

    def count_refusals(self) -> Counter[TriggerRefusal]:
        with self._lock:
            return self._world.vlans.refusals.copy()

    def list_interfaces(self) -> Rows:
        with self._lock:
            usage, sessions, vlans = (
                self._read_usage(),
                self.sessions.all(),
                self._world.vlans.list_sorted(),
            )
            fixed_interfaces = sorted(
                self._list_fixed_interfaces(usage), key=lambda interface: interface.ifindex
            )
        return ChainedRows(
            SortedRows(
                fixed_interfaces, lambda interface: (0, interface.ifindex), lambda interface: interface
            ),
            SortedRows(
                vlans, lambda vlan: (1, *vlan.get_key()), partial(network.make_vlan_interface, usage=usage)
            ),
            SortedRows(
                sessions,
                lambda session: (2, session.id),
                partial(network.make_session_interface, usage=usage),
            ),
            SortedRows(
                sessions, lambda session: (3, session.id), partial(network.make_ifb_interface, usage=usage)
            ),
        )

    def list_routes(self) -> Rows:
        with self._lock:
            configuration, sessions = self._world.configuration, self.sessions.all()
            dual_stack = self.sessions.snapshot(_DUAL_STACK)
        numbered_routes = list(enumerate(network.list_network_routes(configuration)))
        make_route = partial(network.make_session_route, configuration.cgnat)
        return ChainedRows(
            SortedRows(numbered_routes, lambda numbered: (0, numbered[0]), lambda numbered: numbered[1]),
            SortedRows(sessions, lambda session: (1, session.id), make_route),
            SortedRows(dual_stack, lambda session: (2, session.id), network.make_prefix_route),
            SortedRows(dual_stack, lambda session: (3, session.id), network.make_delegated_route),
        )

    def read_bgp_summary(self) -> dict[str, Any]:
        with self._lock:
            bgp, sessions = self._world.configuration.bgp, len(self.sessions)
        started = self._world.started
        return network.make_bgp_summary(bgp, sessions, int(self._read_time() - started), int(started))

    def list_dependencies(self) -> tuple[Dependency, ...]:
        return _DEPENDENCIES

    @contextmanager
    def _lock_and_advance(self) -> Iterator[float]:
        """Hold the lock during the block, advance the world to the current time, and yield the current time.
        Without the advance, a change could precede arrivals that were due earlier, and counters would
        decrease."""
        with self._lock:
            now = self._read_time()
            while self._world.advance(now, _MAX_EVENTS_PER_HOLD):
                pass
            yield now

    def _read_time(self) -> float:
        """Return the time of the lab in epoch seconds. The time never jumps; see `World`."""
        return self._boot_time + self._clock.steady()

    def _read_usage(self) -> int:
        return self._world.compute_usage(self._read_time())

    def _list_fixed_interfaces(self, usage: int) -> Iterator[Interface]:
        world = self._world
        return network.list_fixed_interfaces(
            world.configuration, world.ifindex_of, world.vlans.traffic_of_trunk, usage
        )

"""Gateway with real subscribers, on a Debian machine."""

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from ipaddress import IPv4Network, IPv6Network
from typing import Any, NoReturn

from msgspec.structs import replace

from gateway_contract.base.errors import StepFailed
from gateway_contract.configuration import Cgnat, Configuration
from gateway_contract.core.health import (
    Dependency,
    FaultKind,
    LimitDelays,
    PacketDrops,
    SkippedEntries,
    TriggerRefusal,
)
from gateway_contract.core.impact import Impact
from gateway_contract.core.sessions import SessionDetail, SessionType
from gateway_core.configuration.running import add_former_range, get_former_range, remove_former_range
from gateway_core.gateways.linux.daemons.frr import BgpReader
from gateway_core.gateways.linux.daemons.linux_services import LinuxServices
from gateway_core.gateways.linux.dataplane.dhcp_guard import DhcpGuard
from gateway_core.gateways.linux.dataplane.fault_register import FaultRegister
from gateway_core.gateways.linux.dataplane.firewall import ArpLimit, Firewall
from gateway_core.gateways.linux.dataplane.nftables import OwnTable, keep_tables
from gateway_core.gateways.linux.dataplane.plane import DataPlane
from gateway_core.gateways.linux.dataplane.reconciler import Reconciler
from gateway_core.gateways.linux.demux.admission import ManagedVlan
from gateway_core.gateways.linux.demux.demultiplexer import Demultiplexer
from gateway_core.gateways.linux.demux.vlan_devices import VlanDevices
from gateway_core.gateways.linux.entries import count_skipped
from gateway_core.gateways.linux.health import DependencyWatch
from gateway_core.gateways.linux.kernel.fib import MAIN_TABLE
from gateway_core.gateways.linux.kernel.netlink import KernelError, NoDevice
from gateway_core.gateways.linux.kernel.reader import KernelReader
from gateway_core.gateways.linux.kernel.watcher import ChangedPart, RulesetEvents, Watcher
from gateway_core.gateways.linux.sessions.commit_ends import (
    PendingCommit,
    PendingCommits,
    find_sessions_to_end,
)
from gateway_core.gateways.linux.sessions.provision import DeviceCounters, Provision, make_wanted_session
from gateway_core.gateways.linux.sessions.session import LinuxSession
from gateway_core.gateways.linux.sessions.tracker import HookSocket, SignOnWatch, Tracker
from gateway_core.gateways.linux.threads import DebouncedAction, ThreadGroup
from gateway_core.gateways.linux.views import CachedReading, Links, list_routes, list_vlans
from gateway_core.gateways.protocols import make_fault_rows
from gateway_core.records.clock import Clock, Expiry
from gateway_core.records.paging import Rows, SortedRows
from gateway_core.sessions.session import Counters

#: Neighbours that the kernel keeps; the kernel allows four times as many, in about 100 MB. A lower number
#: would let the flood of a single subscriber fill the tables; a higher number would let a scan use more
#: memory.
_KEPT_NEIGHBOURS = 65_536
#: Time for which changes of links are collected. Then all links are read for each trunk, in half a second
#: with 10,000 sessions.
_ADOPTION_PAUSE_SECONDS = 5.0
#: Time for sessions to end by request before the restart of a service ends them, and time until the next
#: attempt to restart.
_END_REQUEST_SECONDS, _RETRY_SECONDS = 3.0, 60.0
#: Time between two sweeps of all counters.
_COUNTER_SWEEP_SECONDS = 5.0

_log = logging.getLogger(__name__)


@dataclass(eq=False)
class LinuxGateway:
    """`Gateway` on a Linux machine, made of the parts that the module `assembly` creates. `configuration` is
    the running configuration."""

    configuration: Configuration
    clock: Clock
    tracker: Tracker
    provision: Provision
    plane: DataPlane
    firewall: Firewall
    arp_limit: ArpLimit
    reconciler: Reconciler
    demux: Demultiplexer
    vlan_devices: VlanDevices
    kernel_reader: KernelReader
    device_counters: DeviceCounters
    services: LinuxServices
    frr: BgpReader
    hook_socket: HookSocket
    dependency_watch: DependencyWatch
    sign_on_watch: SignOnWatch
    raise_thresholds: Callable[[int], bool]
    pending_commits: PendingCommits
    dhcp_guard: DhcpGuard

    def __post_init__(self) -> None:
        self.sessions = self.tracker.sessions
        self._links = CachedReading(lambda: Links(self.kernel_reader), self.clock.steady)

    def run(self) -> NoReturn:
        """Start all threads, and work until the process ends. Raises the first error that ends a thread."""
        # Before the reconciler: otherwise routes from before a restart would belong to no session.
        self._steer_sessions()
        self._raise_neighbour_limit()
        self._set_trunks_up()
        thread_group = ThreadGroup()
        for work in (
            lambda: self.tracker.run(self.hook_socket, thread_group),
            self._watch_rules,
            lambda: self.reconciler.run(thread_group),
            lambda: self.demux.run(thread_group),
            self._watch_links,
            self.dependency_watch.run,
            self.sign_on_watch.run,
            self._sweep_counters,
            self.dhcp_guard.run,
            # The core may have ended between a commit and the restart of a service.
            self._finish_services,
        ):
            thread_group.start(work)
        for commit in self.pending_commits.commits:
            thread_group.start(partial(self._end_sessions, commit))
        thread_group.wait()

    @contextmanager
    def apply_in_kernel(self, configuration: Configuration) -> Iterator[None]:
        # A missing interface is no error: the interface may appear later, and is served then.
        running, raised_trunks = self.configuration, list[str]()
        try:
            if _get_steering(configuration) != _get_steering(running):
                with gateway_step("steer the sessions"):
                    self.plane.configure(*_get_steering(configuration))
            with gateway_step("filter the packets of subscribers"):
                self.firewall.apply(configuration)
            with gateway_step("set the trunks up"):
                for trunk in sorted({*configuration.demux.trunks} - {*running.demux.trunks}):
                    with suppress(NoDevice):
                        if self.vlan_devices.set_trunk_up(trunk):
                            raised_trunks.append(trunk)
            yield
        except BaseException:
            self._restore_kernel(raised_trunks)
            raise

    def configure(self, configuration: Configuration) -> None:
        addresses = self.provision.addresses
        commit = self._make_pending_commit(configuration)
        self.configuration = configuration
        self.firewall.configure(configuration)
        self.provision.configure(configuration)
        self.tracker.configure(configuration.cgnat)
        if not self._is_steered():
            self._steer_sessions()
        self._raise_neighbour_limit()
        self._set_trunks_up()
        self.demux.configure(configuration.demux)
        self.dhcp_guard.configure(configuration.demux)
        self.dependency_watch.configure(configuration)
        self.sign_on_watch.configure(configuration)
        if self.provision.addresses != addresses:
            self.demux.serve_again(SessionType.DHCP)
        if commit.session_ids:
            threading.Thread(target=self._end_sessions, args=(commit,), daemon=True).start()
        threading.Thread(target=self._finish_services, daemon=True).start()

    def preview_impact(self, configuration: Configuration) -> Impact:
        # The impact is without services if the plan of a service fails.
        try:
            services = self.services.plan(configuration)
        except StepFailed as error:
            _log.error(
                "cannot plan the reloads and restarts of a commit, the preview shows no services: %s", error
            )
            services = ()
        if get_former_range(configuration) is None:
            running = self.configuration
            configuration = add_former_range(
                configuration, get_former_range(running) or running.cgnat.source_range
            )
        return replace(self._find_impact_on_sessions(configuration), services=services)

    @contextmanager
    def freeze_sessions(self, configuration: Configuration) -> Iterator[Impact]:
        with self.tracker.block_changes():
            commit = self._make_pending_commit(configuration)
            self.pending_commits.replace([*self._list_pending_commits(), commit])
            yield self._find_impact_on_sessions(configuration)

    def read_detail(self, id: int) -> SessionDetail | None:
        session = self.sessions.get(id)
        if session is None:
            return None
        faults = self.reconciler.fault_register.list_faults_of(session.id)
        return session.make_detail(self._read_traffic(session), faults)

    def read_counters(self) -> Mapping[int, Counters]:
        sessions, counters = self.sessions.all(), self.device_counters
        with gateway_step("read the counters of all sessions"):
            counters.sweep(sessions)
        return {session.id: counters.get_swept_traffic(session) for session in sessions}

    def disconnect(self, ids: Sequence[int]) -> list[SessionDetail]:
        ends = self.tracker.disconnect(ids)
        self._links.forget()
        return [end.session.make_detail(end.traffic) for end in ends]

    def has_interface(self, name: str) -> bool:
        return self.sessions.has_interface(name) or name in self._read_links()

    def set_rate(
        self, id: int, down_bps: int, up_bps: int, expiry: Expiry | None = None
    ) -> tuple[SessionDetail, SessionDetail] | None:
        session = self.sessions.get(id)
        if session is None:
            return None
        counters, wanted = self._read_traffic(session), make_wanted_session(session)
        with gateway_step("shape the session"):
            # The kernel first: it may refuse.
            self.plane.apply(replace(wanted, rate_down=down_bps, rate_up=up_bps))
            try:
                session_versions = self.tracker.set_rates(id, down_bps, up_bps, expiry)
            except StepFailed:
                self.plane.apply(wanted)
                raise
        self._links.forget()
        return (
            None
            if session_versions is None
            else (session_versions[0].make_detail(counters), session_versions[1].make_detail(counters))
        )

    def list_interfaces(self) -> Rows:
        links = self._read_links()
        vlans = [served.vlan for served in self.demux.list_vlans()]
        return links.list_interfaces(self.configuration.interfaces.trunks, vlans, self.sessions.all())

    def list_vlans(self) -> SortedRows[ManagedVlan]:
        epoch_offset = self.clock.wall() - self.clock.steady()
        return list_vlans(self.demux.list_vlans(), self._read_links(), self.sessions, epoch_offset)

    def count_refusals(self) -> Counter[TriggerRefusal]:
        return self.demux.count_refusals() + self.dhcp_guard.count_refusals()

    def list_packet_drops(self) -> tuple[PacketDrops, ...]:
        return self.firewall.list_drops()

    def count_skipped_entries(self) -> tuple[SkippedEntries, ...]:
        return count_skipped()

    def list_routes(self) -> Rows:
        cgnat = self.configuration.cgnat
        tables = [MAIN_TABLE, cgnat.vrf_table] if cgnat.enabled else [MAIN_TABLE]
        with gateway_step("read the routes"):
            entries, links = self.kernel_reader.read_routes(tables), self._links.get()
        return list_routes(entries, links.map_names(), self.sessions.all())

    def read_bgp_summary(self) -> dict[str, Any]:
        bgp = self.configuration.bgp
        return self.frr.read_bgp_summary() if bgp is not None and bgp.neighbors else {}

    def list_faults(self) -> Rows:
        return make_fault_rows(
            [fault for each in self._list_fault_registers() for fault in each.list_faults()]
        )

    def count_repairs(self) -> Mapping[FaultKind, int]:
        counts = [each.count_repairs() for each in self._list_fault_registers()]
        return {kind: sum(each[kind] for each in counts) for kind in FaultKind}

    def read_limit_delays(self) -> LimitDelays:
        return self.reconciler.limit_delays.read()

    def list_unavailable_sources(self) -> Sequence[str]:
        return self.tracker.unavailable_sources

    def list_dependencies(self) -> Sequence[Dependency]:
        return self.dependency_watch.list_dependencies()

    def _list_fault_registers(self) -> list[FaultRegister]:
        tables = (each.fault_register for each in self._list_tables())
        return [self.reconciler.fault_register, *tables]

    def _list_tables(self) -> list[OwnTable]:
        return [self.firewall, self.arp_limit, self.dhcp_guard]

    def _make_pending_commit(self, configuration: Configuration) -> PendingCommit:
        ids = find_sessions_to_end(self.sessions.all(), self.configuration, configuration)
        return PendingCommit(tuple(ids), self.configuration)

    def _find_impact_on_sessions(self, configuration: Configuration) -> Impact:
        """Return the impact of a commit on sessions, including sessions that end only at the confirmation."""
        ends, held_count = self._make_pending_commit(remove_former_range(configuration)).session_ids, 0
        if get_former_range(configuration) is not None:
            held_count = len(ends) - len(self._make_pending_commit(configuration).session_ids)
        return Impact.of(ends, held=held_count)

    def _end_sessions(self, commit: PendingCommit) -> None:
        def find_remaining_sessions() -> tuple[int, ...]:
            # Another commit may restore the configuration that a session needs.
            return commit.drop_ended(self.sessions.all(), self.configuration).session_ids

        self.tracker.end(find_remaining_sessions)
        try:
            # Not during a commit: the commit is pending, and ends no session before it takes effect.
            with self.tracker.block_changes():
                self.pending_commits.replace(self._list_pending_commits())
        except StepFailed as error:
            _log.error(
                "cannot remove ended sessions from the commits on disk, the next commit tries again: %s",
                error,
            )

    def _list_pending_commits(self) -> list[PendingCommit]:
        sessions, commits = self.sessions.all(), self.pending_commits.commits
        return [commit.drop_ended(sessions, self.configuration) for commit in commits]

    def _finish_services(self) -> None:
        """Do the postponed restarts of services, after a pause in which the sessions of these services can be
        ended by request. Try again after a failure."""
        pause = _END_REQUEST_SECONDS
        while True:
            try:
                if not self.services.is_unfinished():
                    return
                time.sleep(pause)
                self.services.finish(self.configuration)
            except StepFailed as error:
                pause = _RETRY_SECONDS
                _log.error("a commit is not finished, trying again in %g s: %s", pause, error)

    def _restore_kernel(self, raised_trunks: Sequence[str]) -> None:
        """Restore the running configuration in the kernel after a failed commit."""
        if not self._is_steered():
            self._steer_sessions()
        self.firewall.configure(self.configuration)
        for trunk in raised_trunks:
            try:
                self.vlan_devices.set_trunk_down(trunk)
            except KernelError as error:
                _log.error(
                    "cannot set trunk %s down after a failed commit, the trunk stays up: %s", trunk, error
                )

    def _is_steered(self) -> bool:
        plane = self.plane
        return (plane.cgnat, plane.pools) == _get_steering(self.configuration)

    def _steer_sessions(self) -> None:
        try:
            self.plane.configure(*_get_steering(self.configuration))
        except KernelError as error:
            _log.error("cannot steer sessions into the VRF, the reconciler tries again: %s", error)

    def _raise_neighbour_limit(self) -> None:
        # Each DHCP session is a neighbour, and the kernel's default limit is 1,024 neighbours.
        try:
            if self.raise_thresholds(_KEPT_NEIGHBOURS):
                _log.info(
                    "raised the kernel's limit of neighbours: %d of each address family are kept",
                    _KEPT_NEIGHBOURS,
                )
        except KernelError as error:
            _log.warning(
                "cannot raise the limit of neighbours, subscribers beyond the limit have no service: %s",
                error,
            )

    def _set_trunks_up(self) -> None:
        # Only at the start and at a commit: at other times, an operator may have set a trunk down.
        for trunk in self.configuration.demux.trunks:
            try:
                self.vlan_devices.set_trunk_up(trunk)
            except KernelError as error:
                _log.error("cannot set trunk %s up, its subscribers have no service: %s", trunk, error)

    def _watch_links(self) -> None:
        """Look for new and ended sessions and VLANs when links appear or disappear. Changes of the data
        plane's IFBs are ignored."""
        links = Watcher(frozenset({ChangedPart.LINKS}))
        action = DebouncedAction("set new trunks up", self._adopt_links, _ADOPTION_PAUSE_SECONDS)
        with closing(action) as adoption, links as watcher:
            for changed in watcher:
                self._links.forget()
                if ChangedPart.LINKS in changed:
                    self.tracker.trigger()
                    adoption.request()

    def _sweep_counters(self) -> NoReturn:
        """Read the counters of all devices every few seconds, so that the traffic of a session is known after
        the device has disappeared."""
        while True:
            try:
                self.device_counters.sweep(self.sessions.all())
            except KernelError as error:
                _log.warning(
                    "cannot read the counters, the traffic of sessions that end now may be too low: %s", error
                )
            time.sleep(_COUNTER_SWEEP_SECONDS)

    def _read_traffic(self, session: LinuxSession) -> Counters:
        with gateway_step("read the counters of the session"):
            return self.device_counters.read_traffic(session)

    def _watch_rules(self) -> None:
        with RulesetEvents() as events:
            keep_tables(self._list_tables(), events)

    def _adopt_links(self) -> None:
        kernel_error: KernelError | None = None
        for trunk in self.configuration.demux.trunks:
            try:
                # After a boot, the device of a trunk may appear later than the core starts.
                self.vlan_devices.set_new_trunk_up(trunk)
            except KernelError as error:
                # The other trunks must not wait.
                kernel_error = error
            self.demux.adopt(trunk)
        if kernel_error is not None:
            raise kernel_error

    def _read_links(self) -> Links:
        with gateway_step("read the interfaces"):
            return self._links.get()


def _get_steering(configuration: Configuration) -> tuple[Cgnat, tuple[IPv4Network | IPv6Network, ...]]:
    """Return the part of a configuration that steers sessions: the CGNAT section and the pool networks."""
    return configuration.cgnat, configuration.subscribers.pool_networks


@contextmanager
def gateway_step(step: str) -> Iterator[None]:
    """Convert a KernelError or StepFailed of the block into StepFailed with this `step`. The texts of these
    errors contain no secret and no data that a subscriber sent."""
    try:
        yield
    except (KernelError, StepFailed) as error:
        raise StepFailed(step, str(error)) from error

"""Assembly of the Linux gateway: creation of all parts, and the connections between the parts."""

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from gateway_contract.configuration import Configuration
from gateway_contract.core.sessions import SessionType
from gateway_core.gateways.linux.daemons.accel_ppp import COMMAND_LINE, AccelPppDaemon
from gateway_core.gateways.linux.daemons.daemon import SERVICES_FOLDER, PlacedFiles, SourceDaemon
from gateway_core.gateways.linux.daemons.dnsmasq import DnsmasqDaemon, DnsmasqSource
from gateway_core.gateways.linux.daemons.frr import BgpReader, FrrDaemon, FrrFolders
from gateway_core.gateways.linux.daemons.linux_services import DAEMONS, LinuxServices
from gateway_core.gateways.linux.daemons.source import Source, SourceUnavailable
from gateway_core.gateways.linux.daemons.systemd import Systemd
from gateway_core.gateways.linux.dataplane.dhcp_guard import DhcpGuard, list_bindings
from gateway_core.gateways.linux.dataplane.firewall import ArpLimit, Firewall
from gateway_core.gateways.linux.dataplane.plane import DataPlane, WantedSession
from gateway_core.gateways.linux.dataplane.reconciler import Reconciler
from gateway_core.gateways.linux.demux.admission import AccessVlan, Occupancy
from gateway_core.gateways.linux.demux.demultiplexer import Demultiplexer
from gateway_core.gateways.linux.demux.vlan_devices import VlanDevices, VlanService
from gateway_core.gateways.linux.gateway import LinuxGateway
from gateway_core.gateways.linux.health import DependencyWatch, map_types_to_sources
from gateway_core.gateways.linux.kernel.links import raise_thresholds
from gateway_core.gateways.linux.kernel.reader import KernelReader
from gateway_core.gateways.linux.sessions.commit_ends import PendingCommits
from gateway_core.gateways.linux.sessions.provision import DeviceCounters, Provision
from gateway_core.gateways.linux.sessions.session_store import SessionStore
from gateway_core.gateways.linux.sessions.tracker import TRIGGER_SOCKET, HookSocket, SignOnWatch, Tracker
from gateway_core.records.clock import Clock
from gateway_core.sessions.journal import Journal

_MAX_FRR_SECONDS = 2.0
#: Time limits for applying a commit to the daemons, and for restoring them after a failure. Their sum is the
#: limit that GatewayServices promises.
_MAX_APPLY_SECONDS, _MAX_PUT_BACK_SECONDS = 12.0, 8.0
#: The folder of the sessions, and of the commits whose sessions have not ended.
_SESSIONS_FOLDER = Path("/var/lib/gateway-core/sessions")

_log = logging.getLogger(__name__)


class LinuxMachine:
    """Debian machine with its daemons. `names` are the names of the session sources, which are keys of
    `health.SOURCE_DAEMONS`.

    `services` are the daemons that a commit configures. Raises SourcesOverlap if two sources serve the same
    session type, and SourceRefused if the disk fails.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self._names = dict.fromkeys(names)
        self._source_of_type = map_types_to_sources(names)
        files, systemd = PlacedFiles(SERVICES_FOLDER), Systemd()
        daemons = (each.create(files, systemd, each.name in names) for each in DAEMONS)
        self._daemons = [daemon for daemon in daemons if daemon is not None]
        self.services = LinuxServices(self._daemons, _MAX_APPLY_SECONDS, _MAX_PUT_BACK_SECONDS)

    def make_gateway(self, configuration: Configuration, journal: Journal, clock: Clock) -> LinuxGateway:
        """Assemble and return the gateway. The gateway starts to work when `run` is called. Raises
        GatewayApiError or OSError if a part of the gateway cannot be created."""
        reader = KernelReader()
        source_daemons = {each.name: each for each in self._daemons if isinstance(each, SourceDaemon)}
        chosen_daemons = [source_daemons[name] for name in self._names]
        sources = {each.name: each.create_source(configuration, clock) for each in chosen_daemons}
        serving = {SessionType[type.upper()]: sources[name] for type, name in self._source_of_type.items()}
        counters = DeviceCounters(reader)
        provision = Provision(configuration, counters)
        store = SessionStore(_SESSIONS_FOLDER)
        tracker = Tracker(sources.values(), store, journal, clock, configuration.cgnat, provision)
        devices = VlanDevices(reader)
        vlan_serving = VlanService(serving, reader, lambda: provision.addresses)
        demux = Demultiplexer(
            configuration.demux,
            devices,
            vlan_serving,
            partial(find_occupancy, tracker, {type: source.name for type, source in serving.items()}),
            clock.steady,
            _list_leased_interfaces(sources.values()),
        )
        self.services.await_vlans = demux.wait_until_restored
        # The leases of a DHCP server are sessions as soon as the server has started.
        self.services.on_dhcp_started = tracker.trigger
        plane = DataPlane(reader)
        desired = DesiredSessions(provision, tracker, devices, vlan_serving, demux)
        reconciler = Reconciler(plane, desired, clock)
        is_guarded = any(isinstance(each, DnsmasqSource) for each in sources.values())
        guard = DhcpGuard(
            configuration.demux,
            (lambda: list_bindings(tracker.sessions.all(), DnsmasqDaemon.name)) if is_guarded else None,
            clock.steady,
            clock.wall,
        )

        def handle_changes(*ids: int) -> None:
            reconciler.apply_soon(*ids)
            guard.request_sync()

        provision.changes = handle_changes
        (frr_daemon,) = (each for each in self._daemons if isinstance(each, FrrDaemon))
        frr = BgpReader(FrrFolders(), _MAX_FRR_SECONDS)
        command_line = COMMAND_LINE if AccelPppDaemon.name in self._names else None
        firewall = Firewall(clock.wall, command_line=command_line)
        # Before any VLAN is created: no packet may be forwarded without the rules.
        firewall.configure(configuration)
        return LinuxGateway(
            configuration=configuration,
            clock=clock,
            tracker=tracker,
            provision=provision,
            plane=plane,
            firewall=firewall,
            arp_limit=ArpLimit(clock.wall),
            reconciler=reconciler,
            demux=demux,
            vlan_devices=devices,
            kernel_reader=reader,
            device_counters=counters,
            services=self.services,
            frr=frr,
            hook_socket=HookSocket(TRIGGER_SOCKET),
            dependency_watch=DependencyWatch(
                configuration,
                tracker,
                next(filter(None, (each.create_radius_client(clock) for each in chosen_daemons)), None),
                frr,
                lambda: frr_daemon.foreign_lines,
            ),
            sign_on_watch=SignOnWatch(
                configuration,
                next(filter(None, (each.create_failure_source(clock) for each in chosen_daemons)), None),
                journal,
            ),
            raise_thresholds=raise_thresholds,
            pending_commits=PendingCommits(_SESSIONS_FOLDER, configuration),
            dhcp_guard=guard,
        )


@dataclass
class DesiredSessions:
    """`DesiredState` of the reconciler, made from the tracker's sessions. Thread-safe."""

    provision: Provision
    tracker: Tracker
    devices: VlanDevices
    serving: VlanService
    demux: Demultiplexer

    def __post_init__(self) -> None:
        #: Sources that have not replied since the start.
        self._silent_sources = set(self.tracker.unavailable_sources)

    def get_wanted(self) -> Mapping[int, WantedSession]:
        return self.provision.get_wanted()

    def is_complete(self) -> bool:
        self._silent_sources.intersection_update(self.tracker.unavailable_sources)
        return not self._silent_sources

    def is_fresh(self) -> bool:
        return not self.tracker.unavailable_sources

    def restore_vlan(self, interface: str) -> bool:
        """Recreate the device of a VLAN, as `DesiredState` describes. Return False if `interface` is not the
        name of a VLAN on a trunk.

        The sessions of the VLAN end if the daemon of the sessions has sockets on the deleted device; sessions
        of dnsmasq go on. A VLAN without a profile belongs to the operator, and is recreated as a VLAN of the
        operator: otherwise the core would remove the VLAN at the next start.
        """
        vlan = AccessVlan.parse(interface, self.provision.trunks)
        if vlan is None:
            return False
        # Before the device exists: after a failure, the reconciler tries again while the device is missing.
        sessions = self.tracker.sessions.find_on_access_interface(interface)
        self.serving.release(interface, {session.summary.type for session in sessions})
        self.devices.make(vlan, is_own=self.demux.is_managed(vlan))
        self.demux.adopt(vlan.trunk)
        return True


def find_occupancy(tracker: Tracker, sources: Mapping[SessionType, str]) -> Occupancy:
    """Return the access interfaces with sessions. Stale sessions count as sessions. `sources` maps each
    session type to the name of the source."""
    # Before the sessions are read: a source that replies meanwhile may have more sessions.
    incomplete = tracker.incomplete_sources
    unknown = {type for type, source in sources.items() if source in incomplete}
    return Occupancy({session.access_interface for session in tracker.sessions.all()}, unknown)


def _list_leased_interfaces(sources: Iterable[Source]) -> list[str]:
    """Return the access interfaces of the DHCP subscribers with a lease, sorted by name."""
    interfaces: set[str] = set()
    for source in sources:
        if isinstance(source, DnsmasqSource):
            try:
                interfaces |= source.find_leased_interfaces()
            except SourceUnavailable as error:
                _log.warning(
                    "cannot restore the VLANs of DHCP leases, lease renewals will create the VLANs: %s", error
                )
    return sorted(interfaces)

"""Puts the Linux gateway together: which part gets which."""

import logging
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path

from gateway_contract.configuration import Configuration
from gateway_contract.core.sessions import SessionType
from gateway_core.gateways.linux.daemons.accel_ppp import COMMAND_LINE, AccelPppDaemon
from gateway_core.gateways.linux.daemons.daemon import SERVICES, DaemonHost, PlacedFiles, SourceDaemon
from gateway_core.gateways.linux.daemons.dnsmasq import DnsmasqDaemon, DnsmasqSource
from gateway_core.gateways.linux.daemons.frr import Frr, FrrDaemon, FrrFolders
from gateway_core.gateways.linux.daemons.linux_services import DAEMONS, LinuxServices
from gateway_core.gateways.linux.daemons.source import Source, SourceUnavailable
from gateway_core.gateways.linux.daemons.systemd import Systemd
from gateway_core.gateways.linux.dataplane.dhcp_guard import DhcpGuard, list_bindings
from gateway_core.gateways.linux.dataplane.firewall import ArpLimit, Firewall
from gateway_core.gateways.linux.dataplane.plane import DataPlane
from gateway_core.gateways.linux.dataplane.reconciler import Reconciler
from gateway_core.gateways.linux.demux.admission import Occupancy
from gateway_core.gateways.linux.demux.demultiplexer import Demultiplexer
from gateway_core.gateways.linux.demux.vlan_devices import VlanDevices, VlanServing
from gateway_core.gateways.linux.gateway import GatewayParts, LinuxGateway
from gateway_core.gateways.linux.health import DependencyWatch, sources_by_type
from gateway_core.gateways.linux.kernel.links import raise_thresholds
from gateway_core.gateways.linux.kernel.reader import KernelReader
from gateway_core.gateways.linux.sessions.commit_ends import PendingCommits
from gateway_core.gateways.linux.sessions.hooks import TRIGGER, HookSocket
from gateway_core.gateways.linux.sessions.provision import DesiredSessions, DeviceCounters, Provision
from gateway_core.gateways.linux.sessions.session_store import SessionStore
from gateway_core.gateways.linux.sessions.tracker import SignOnWatch, Tracker
from gateway_core.records.clock import Clock
from gateway_core.sessions.journal import Journal

#: Seconds for FRR's reply to a question.
_ASK_FRR = 2.0
#: Seconds of a commit for the daemons, in all what GatewayServices promises.
_APPLY, _PUT_BACK = 12.0, 8.0
#: The sessions, their ids, and which of them are to end.
_SESSIONS = Path("/var/lib/gateway-core/sessions")


_log = logging.getLogger(__name__)


class LinuxMachine:
    """A Debian machine with sources, by their names in `requirements.SOURCES`. `services` are what a commit
    applies to. Raises TwoSources, and SourceRefused where the disk does."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = dict.fromkeys(names)
        self._serving = sources_by_type(names)
        host = DaemonHost(PlacedFiles(SERVICES), Systemd(), names)
        self._daemons = [daemon for each in DAEMONS if (daemon := each.create(host)) is not None]
        self.services = LinuxServices(self._daemons, _APPLY, _PUT_BACK)

    def gateway(self, configuration: Configuration, journal: Journal, clock: Clock) -> LinuxGateway:
        """Return the gateway, with its rules loaded, which begins to work with its `run`. Raises
        GatewayApiError and OSError."""
        reader = KernelReader()
        could_be = {each.name: each for each in self._daemons if isinstance(each, SourceDaemon)}
        chosen = [could_be[name] for name in self._names]
        sources = {each.name: each.source(configuration, clock) for each in chosen}
        serving = {SessionType[type.upper()]: sources[name] for type, name in self._serving.items()}
        counters = DeviceCounters(reader)
        provision = Provision(configuration, counters)
        store = SessionStore(_SESSIONS)
        tracker = Tracker(sources.values(), store, journal, clock, configuration.cgnat, provision)
        devices = VlanDevices(reader)
        vlan_serving = VlanServing(serving, reader, lambda: provision.addresses)
        demux = Demultiplexer(
            configuration.demux,
            devices,
            vlan_serving,
            partial(occupancy, tracker, {type: source.name for type, source in serving.items()}),
            clock.steady,
            _leased(sources.values()),
        )
        self.services.await_vlans = demux.wait_until_restored
        # The leases of a DHCP server are sessions from its start on.
        self.services.dhcp_started = tracker.trigger
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

        def changed(*ids: int) -> None:
            reconciler.changed(*ids)
            guard.request()

        provision.changes = changed
        (routing,) = (each for each in self._daemons if isinstance(each, FrrDaemon))
        frr = Frr(FrrFolders(), _ASK_FRR)
        command_line = COMMAND_LINE if AccelPppDaemon.name in self._names else None
        firewall = Firewall(clock.wall, command_line=command_line)
        # Now: no VLAN may be made without the rules, and no packet forwarded.
        firewall.configure(configuration)
        parts = GatewayParts(
            clock=clock,
            tracker=tracker,
            provision=provision,
            plane=plane,
            firewall=firewall,
            arp_limit=ArpLimit(clock.wall),
            reconciler=reconciler,
            demux=demux,
            devices=devices,
            reader=reader,
            counters=counters,
            services=self.services,
            frr=frr,
            hooks=HookSocket(TRIGGER),
            dependencies=DependencyWatch(
                configuration,
                tracker,
                next(filter(None, (each.radius_client(clock) for each in chosen)), None),
                frr,
                lambda: routing.foreign,
            ),
            sign_ons=SignOnWatch(
                configuration,
                next(filter(None, (each.failures(clock) for each in chosen)), None),
                journal,
            ),
            raise_thresholds=raise_thresholds,
            pending_commits=PendingCommits(_SESSIONS, configuration),
            guard=guard,
        )
        return LinuxGateway(configuration, parts)


def occupancy(tracker: Tracker, sources: Mapping[SessionType, str]) -> Occupancy:
    """Return the access interfaces with sessions. `sources` has the name of the source of each session
    type."""
    # Before the sessions are read: a source that replies meanwhile may have more of them.
    incomplete = tracker.incomplete_sources
    unknown = {type for type, source in sources.items() if source in incomplete}
    return Occupancy({session.access_interface for session in tracker.sessions.all()}, unknown)


def _leased(sources: Iterable[Source]) -> list[str]:
    """Return the access interfaces of DHCP subscribers with a lease, in order."""
    found: set[str] = set()
    for source in sources:
        if isinstance(source, DnsmasqSource):
            try:
                found |= source.leased_interfaces()
            except SourceUnavailable as error:
                # As before the first lease. A renewal makes the VLAN.
                _log.warning("the VLANs of DHCP leases are not known: %s", error)
    return sorted(found)

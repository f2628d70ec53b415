"""Puts the Linux gateway together: which part gets which."""

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

from gateway_api.core.configuration.sections import Configuration
from gateway_api.core.gateways.linux.daemons import accel_ppp, dnsmasq, pppd, pppoe_server
from gateway_api.core.gateways.linux.daemons.daemon import SERVICES, PlacedFiles, ServiceDaemon
from gateway_api.core.gateways.linux.daemons.frr import Frr, FrrByDifference, FrrFolders
from gateway_api.core.gateways.linux.daemons.linux_services import LinuxServices
from gateway_api.core.gateways.linux.daemons.systemd import Systemd
from gateway_api.core.gateways.linux.dataplane.device_counters import DeviceCounters
from gateway_api.core.gateways.linux.dataplane.plane import DataPlane
from gateway_api.core.gateways.linux.dataplane.reconciler import Reconciler
from gateway_api.core.gateways.linux.demux.demultiplexer import Demultiplexer
from gateway_api.core.gateways.linux.demux.vlan_devices import VlanDevices, VlanServing
from gateway_api.core.gateways.linux.gateway import GatewayParts, LinuxGateway
from gateway_api.core.gateways.linux.health.radius import Pppd, RadiusClient
from gateway_api.core.gateways.linux.health.requirements import serving
from gateway_api.core.gateways.linux.health.watch import DependencyWatch
from gateway_api.core.gateways.linux.kernel.neighbours import raise_thresholds
from gateway_api.core.gateways.linux.kernel.reader import KernelReader
from gateway_api.core.gateways.linux.sessions.hooks import TRIGGER, HookSocket
from gateway_api.core.gateways.linux.sessions.provision import DesiredSessions, Provision
from gateway_api.core.gateways.linux.sessions.session_store import SessionStore
from gateway_api.core.gateways.linux.sessions.sign_ons import SignOnWatch
from gateway_api.core.gateways.linux.sessions.tracker import Tracker
from gateway_api.core.gateways.linux.sources.accel_cli import (
    CommandLine,
    MetricsPage,
    kept_password,
)
from gateway_api.core.gateways.linux.sources.accel_ppp import AccelPpp
from gateway_api.core.gateways.linux.sources.accel_stat import AccelPppStatistics
from gateway_api.core.gateways.linux.sources.dnsmasq import Dnsmasq
from gateway_api.core.gateways.linux.sources.pppd_failures import PppdFailures
from gateway_api.core.gateways.linux.sources.pppd_log import JournalTail, SystemdJournal
from gateway_api.core.gateways.linux.sources.pppoe_server import PppoeServer
from gateway_api.core.gateways.linux.sources.source import Source
from gateway_api.core.records.clock import Clock
from gateway_api.core.sessions.journal import Journal
from gateway_api.wire.core.sessions import SessionType

#: Seconds for FRR's reply to a question.
_ASK_FRR = 2.0
#: Seconds of a commit for the daemons, in all what GatewayServices promises.
_APPLY, _PUT_BACK = 12.0, 8.0
#: The sessions and their ids.
_SESSIONS = Path("/var/lib/gateway-core/sessions")


class LinuxMachine:
    """A Debian machine with sources, by their names in `requirements.SOURCES`. `services` are what a commit
    applies to. Raises TwoSources, and SourceRefused where the disk does."""

    def __init__(self, names: Sequence[str]) -> None:
        self._serving = serving(names)
        #: Each once: the operator may have named one twice.
        self._names = dict.fromkeys(names)
        files, systemd = PlacedFiles(SERVICES), Systemd()
        self._pppoe = pppoe_server.PppoeUnits(
            systemd, pppoe_server.SETTINGS, is_source="pppoe-server" in self._names
        )
        daemons: list[ServiceDaemon] = [
            pppd.SignOnFiles(files),
            self._pppoe,
            dnsmasq.DhcpServer(systemd, files, is_source="dnsmasq" in self._names),
        ]
        if "accel-ppp" in self._names:
            daemons.append(accel_ppp.AccelPppReload(files, self._command_line))
        self._routing = FrrByDifference(files, FrrFolders())
        daemons.append(self._routing)
        self.services = LinuxServices(daemons, _APPLY, _PUT_BACK)

    @cached_property
    def _command_line(self) -> CommandLine:
        """The command line of accel-ppp. Without accel-ppp, there is no password to keep."""
        return CommandLine(accel_ppp.COMMAND_LINE, password=kept_password(accel_ppp.PASSWORD))

    def gateway(self, configuration: Configuration, journal: Journal, clock: Clock) -> LinuxGateway:
        """The gateway, which begins to work with its `run`. Raises GatewayApiError and OSError."""
        reader = KernelReader()
        self._pppoe.begin(configuration)
        sources = {name: self._source(name, clock) for name in self._names}
        serving = {SessionType[type.upper()]: sources[name] for type, name in self._serving.items()}
        counters = DeviceCounters(reader)
        provision = Provision(configuration, counters)
        store = SessionStore(_SESSIONS)
        tracker = Tracker(sources.values(), store, journal, clock, configuration.cgnat, provision)
        devices = VlanDevices(reader)
        vlan_serving = VlanServing(serving, reader, lambda: provision.address)
        demux = Demultiplexer(configuration.demux, devices, vlan_serving, tracker.occupied, clock.steady)
        plane = DataPlane(reader)
        desired = DesiredSessions(provision, tracker, devices, vlan_serving, demux)
        reconciler = Reconciler(plane, desired, clock)
        provision.changes = reconciler.changed
        frr = Frr(FrrFolders(), _ASK_FRR)
        parts = GatewayParts(
            clock=clock,
            tracker=tracker,
            provision=provision,
            plane=plane,
            reconciler=reconciler,
            demux=demux,
            devices=devices,
            reader=reader,
            counters=counters,
            services=self.services,
            frr=frr,
            hooks=HookSocket(TRIGGER),
            dependencies=DependencyWatch(
                configuration, tracker, self._radius_client(clock), frr, lambda: self._routing.foreign
            ),
            sign_ons=SignOnWatch(configuration, self._failures(clock), journal),
            raise_thresholds=raise_thresholds,
        )
        return LinuxGateway(configuration, parts)

    def _radius_client(self, clock: Clock) -> RadiusClient | None:
        """dnsmasq uses no RADIUS."""
        if "accel-ppp" in self._names:
            return AccelPppStatistics(lambda: self._command_line.run("show stat"), clock.wall)
        return Pppd() if "pppoe-server" in self._names else None

    def _failures(self, clock: Clock) -> PppdFailures | None:
        """dnsmasq knows no password, and accel-ppp tells failures in no format."""
        name = "pppoe-server"
        return PppdFailures(name, JournalTail(clock.wall())) if name in self._names else None

    def _source(self, name: str, clock: Clock) -> Source:
        match name:
            case "pppoe-server":
                return PppoeServer(name, self._pppoe, SystemdJournal(), pppd.RECORDS, clock)
            case "dnsmasq":
                return Dnsmasq(name, dnsmasq.LEASES, dnsmasq.PID_FILE, dnsmasq.RECORDS, clock)
            case "accel-ppp":
                metrics = MetricsPage(accel_ppp.METRICS)
                return AccelPpp(name, self._command_line, metrics, accel_ppp.IPOE_INTERFACES, clock)
            case _:
                raise ValueError(f"{name} is no source")

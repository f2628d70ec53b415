"""The provision of sessions: terms by the configuration, and the state that the kernel must have for them."""

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from ipaddress import IPv4Address, IPv6Address, IPv6Network

from msgspec.structs import replace

from gateway_contract.configuration import Configuration
from gateway_contract.core.network import OVERHEAD_PROFILES
from gateway_contract.core.sessions import SessionType
from gateway_core.gateways.linux.daemons.source import SourceSession, SourceTraffic
from gateway_core.gateways.linux.dataplane.plane import WantedSession
from gateway_core.gateways.linux.demux.admission import AccessVlan
from gateway_core.gateways.linux.demux.demultiplexer import Demultiplexer
from gateway_core.gateways.linux.demux.vlan_devices import VlanDevices, VlanServing
from gateway_core.gateways.linux.kernel.netlink import KernelError
from gateway_core.gateways.linux.sessions.session import (
    NO_COUNTERS,
    ConfiguredTerms,
    DeviceCounters,
    LinuxSession,
    SessionTerms,
)
from gateway_core.gateways.linux.sessions.tracker import Tracker
from gateway_core.sessions.session import Counters

#: Of a source's counters.
_MODULUS = 2**32

_log = logging.getLogger(__name__)


class Provision:
    """The surroundings of the tracker's sessions (`SessionSurroundings`), and their desired state in the
    kernel. Any thread may call."""

    def __init__(
        self,
        configuration: Configuration,
        counters: DeviceCounters,
    ) -> None:
        self.configure(configuration)
        self._counters = counters
        #: Gets the ids of sessions that appear, change or go.
        self.changes: Callable[..., None] = lambda *_: None
        self._lock = threading.Lock()
        #: Replaced as a whole: readers iterate over it.
        self._wanted: Mapping[int, WantedSession] = {}

    def configure(self, configuration: Configuration) -> None:
        """New sessions get the terms of another configuration."""
        self._terms = ConfiguredTerms(configuration)
        self.trunks = configuration.interfaces.trunks
        #: The gateway's addresses towards subscribers, one in each of their ranges.
        self.addresses = tuple(network[1] for network in configuration.cgnat.source_ranges)

    def wanted(self) -> Mapping[int, WantedSession]:
        """By session id. Nobody changes it."""
        return self._wanted

    def terms(self, listed: SourceSession) -> SessionTerms:
        return self._terms(listed)

    def baseline(self, listed: SourceSession) -> Counters:
        try:
            return self._counters.now(listed.access_interface)
        except KernelError as error:
            _log.warning("a session counts what was before it, too: %s", error)
            return NO_COUNTERS

    def traffic(self, session: LinuxSession, counted: SourceTraffic | None) -> Counters:
        """Return the counters that the last sweep saw and, where the source tells it, the bytes since."""
        seen = session.traffic(self._counters.last(session.interface))
        if counted is None:
            return seen
        return replace(
            seen,
            bytes_in=_later(seen.bytes_in, counted.bytes_in),
            bytes_out=_later(seen.bytes_out, counted.bytes_out),
        )

    def appeared(self, sessions: Sequence[LinuxSession]) -> None:
        self._counters.forget(session.interface for session in sessions if session.has_own_device)
        self.changed(sessions)

    def changed(self, sessions: Sequence[LinuxSession]) -> None:
        with self._lock:
            self._wanted = {**self._wanted, **{session.id: wanted_by(session) for session in sessions}}
        self.changes(*(session.id for session in sessions))

    def gone(self, sessions: Sequence[LinuxSession]) -> None:
        ended = {session.id for session in sessions}
        with self._lock:
            self._wanted = {id: wanted for id, wanted in self._wanted.items() if id not in ended}
        self.changes(*ended)


def _later(seen: int, counted: int) -> int:
    """Return a counter after a sweep that has seen it, of which the source tells the lower 32 bits. A source
    may have counted less, and not 4 GiB more: pppd counts from IPCP, the device from LCP."""
    since = (counted - seen) % _MODULUS
    return seen + since if since < _MODULUS // 2 else seen


def wanted_by(session: LinuxSession) -> WantedSession:
    """Return the state that the kernel must have for a session."""
    summary = session.summary
    gateway, prefix = session.record.listed.ipv6_gateway, summary.ipv6_prefix
    return WantedSession(
        session_id=session.id,
        device=session.interface,
        ifb=session.ifb_device,
        access_interface=session.access_interface,
        rate_down=summary.rate_down,
        rate_up=summary.rate_up,
        profile=OVERHEAD_PROFILES[session.overhead_profile],
        address=None if summary.ip_address is None else IPv4Address(summary.ip_address),
        sets_host_route=summary.type is SessionType.DHCP,
        gateway=None if session.gateway is None else IPv4Address(session.gateway),
        delegated=tuple(map(IPv6Network, summary.delegated_prefixes)),
        prefix=None if gateway is None or prefix is None else IPv6Network(prefix),
        ipv6_gateway=None if gateway is None else IPv6Address(gateway),
    )


class DesiredSessions:
    """The `DesiredState` of the tracker's sessions. Any thread may call."""

    def __init__(
        self,
        provision: Provision,
        tracker: Tracker,
        devices: VlanDevices,
        serving: VlanServing,
        demux: Demultiplexer,
    ) -> None:
        self._provision = provision
        self._tracker = tracker
        self._devices = devices
        self._serving = serving
        self._demux = demux
        #: Sources that have not replied since the start.
        self._silent = set(tracker.unavailable_sources)

    def wanted(self) -> Mapping[int, WantedSession]:
        return self._provision.wanted()

    def is_complete(self) -> bool:
        self._silent.intersection_update(self._tracker.unavailable_sources)
        return not self._silent

    def is_fresh(self) -> bool:
        return not self._tracker.unavailable_sources

    def restore_vlan(self, interface: str) -> bool:
        """Its sessions end if their daemon has sockets of the device that is gone; with dnsmasq
        they go on. A name that is no VLAN of a trunk is left alone. An operator's VLAN stays one: no profile
        has it, and at its next start the core would remove what is its own."""
        vlan = AccessVlan.named(interface, self._provision.trunks)
        if vlan is None:
            return False
        # Before the device is there: what fails now is tried again while it is missing.
        sessions = self._tracker.sessions.on_access_interface(interface)
        self._serving.release(interface, {session.summary.type for session in sessions})
        self._devices.make(vlan, is_own=self._demux.manages(vlan))
        self._demux.adopt(vlan.trunk)
        return True

"""Provision of sessions: the terms from the configuration, the counters of the sessions' devices, and the
desired state of the kernel."""

import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from ipaddress import IPv4Address, IPv6Address, IPv6Network

from msgspec.structs import replace

from gateway_contract.configuration import Configuration
from gateway_contract.core.network import OVERHEAD_PROFILES, InterfaceStats
from gateway_contract.core.sessions import SessionType
from gateway_core.gateways.linux.daemons.source import SourceSession, SourceTraffic
from gateway_core.gateways.linux.dataplane.plane import WantedSession
from gateway_core.gateways.linux.demux.admission import AccessVlan, VlanProfiles, get_session_type
from gateway_core.gateways.linux.kernel.netlink import KernelError, NoDevice
from gateway_core.gateways.linux.kernel.reader import KernelReader
from gateway_core.gateways.linux.sessions.session import NO_COUNTERS, LinuxSession, SessionTerms
from gateway_core.sessions.session import Counters

#: The traffic counters of a source have 32 bits.
_SOURCE_COUNTER_MODULUS = 2**32
#: Overhead profile on a VLAN without a VLAN profile, by session type and by whether the VLAN has two tags.
_DEFAULT_OVERHEAD = {
    (SessionType.PPPOE, False): "pppoe_ethernet",
    (SessionType.PPPOE, True): "pppoe_qinq",
    (SessionType.DHCP, False): "ipoe_ethernet",
    (SessionType.DHCP, True): "ipoe_qinq",
}

_log = logging.getLogger(__name__)


class DeviceCounters:
    """Counters of devices, and the traffic of the sessions on the devices. Thread-safe. Methods that read
    counters raise KernelError if the kernel refuses the query.

    Bytes received on a device are the subscriber's upload.
    """

    def __init__(self, reader: KernelReader) -> None:
        self._reader = reader
        self._lock = threading.Lock()
        #: Interface index and counters of each device at the last sweep, by the name of the device.
        self._sweep_entries: dict[str, tuple[int, InterfaceStats]] = {}

    def sweep(self, sessions: Iterable[LinuxSession]) -> None:
        """Read the counters of all devices.

        The last counters of a deleted device are kept while a session uses the device, because the session
        may end long after the device if the source does not reply. The last counters of a session's own
        device are also kept when a new device of another session has the same name.
        """
        current_entries = self._reader.read_statistics()
        with self._lock:
            kept_entries = {}
            for session in sessions:
                device = session.interface
                last_entry = self._sweep_entries.get(device)
                if last_entry is None:
                    continue
                if device not in current_entries or (
                    session.has_own_device and current_entries[device][0] != last_entry[0]
                ):
                    kept_entries[device] = last_entry
            self._sweep_entries = {**current_entries, **kept_entries}

    def forget(self, devices: Iterable[str]) -> None:
        """Forget the counters of devices that were recreated. Otherwise the counters of former devices with
        the same names would be used until the next sweep."""
        with self._lock:
            for device in devices:
                self._sweep_entries.pop(device, None)

    def read(self, device: str, *, is_own: bool = False) -> Counters:
        """Return the current counters of a device. If the device was deleted, return the counters of the last
        sweep. `is_own` is True for a device that only one session uses: then a new device with the same name
        does not count as this device."""
        try:
            link = self._reader.find_link(device)
        except NoDevice:
            return self._get_swept_counters(device)
        index, swept_stats = self._sweep_entries.get(device, (link.index, link.stats))
        return _to_counters(swept_stats if is_own and index != link.index else link.stats)

    def read_traffic(self, session: LinuxSession) -> Counters:
        """Read the current counters, and return the traffic of a session."""
        return session.count_traffic(self.read(session.interface, is_own=session.has_own_device))

    def get_swept_traffic(self, session: LinuxSession) -> Counters:
        """Return the traffic of a session at the last sweep that found the session's device."""
        return session.count_traffic(self._get_swept_counters(session.interface))

    def _get_swept_counters(self, device: str) -> Counters:
        _, stats = self._sweep_entries.get(device, (0, InterfaceStats()))
        return _to_counters(stats)


def _to_counters(stats: InterfaceStats) -> Counters:
    return Counters(
        bytes_in=stats.rx_bytes,
        bytes_out=stats.tx_bytes,
        packets_in=stats.rx_packets,
        packets_out=stats.tx_packets,
    )


class Provision:
    """Provision of the tracker's sessions: the terms of each session, and the desired state of the kernel.
    Thread-safe.

    No method raises an error or calls the tracker. Methods without a return value return at once, and are
    called in the order in which sessions change. `changes` is called with the ids of added, changed and
    removed sessions.
    """

    def __init__(self, configuration: Configuration, counters: DeviceCounters) -> None:
        self.configure(configuration)
        self._counters = counters
        self.changes: Callable[..., None] = lambda *_: None
        self._lock = threading.Lock()
        #: Replaced as a whole: readers iterate over it.
        self._wanted_sessions: Mapping[int, WantedSession] = {}

    def configure(self, configuration: Configuration) -> None:
        """Use the terms of a new configuration for later sessions."""
        self._qos_section = configuration.qos
        self._profiles = VlanProfiles(configuration.demux)
        self._gateway = str(configuration.cgnat.subscriber_gateway)
        self.trunks = configuration.interfaces.trunks
        #: The gateway's addresses for subscribers, one address in each source range.
        self.addresses = tuple(network[1] for network in configuration.cgnat.source_ranges)

    def get_wanted(self) -> Mapping[int, WantedSession]:
        """Return a map from session id to the desired state of the session. The map is never changed."""
        return self._wanted_sessions

    def make_terms(self, source_session: SourceSession) -> SessionTerms:
        """Return the terms of a new session. The access interface determines the terms. On a VLAN without a
        VLAN profile of the session's type, the number of tags determines the overhead profile."""
        vlan = AccessVlan.parse(source_session.access_interface, self.trunks)
        profile = None if vlan is None else self._profiles.find(vlan)
        outer_vlan_id = None if vlan is None else vlan.outer_vlan_id
        overhead = _DEFAULT_OVERHEAD[source_session.type, outer_vlan_id is not None]
        if profile is not None and get_session_type(profile) == source_session.type:
            overhead = profile.overhead_profile
        return SessionTerms(
            gateway=self._gateway,
            overhead_profile=overhead,
            rate_down=self._qos_section.default_down,
            rate_up=self._qos_section.default_up,
            outer_vlan_id=outer_vlan_id,
            inner_vlan_id=None if vlan is None else vlan.vlan_id,
        )

    def read_baseline(self, source_session: SourceSession) -> Counters:
        """Return the counters of the access interface at the start of a session. Earlier sessions may have
        used the same interface. If the counters cannot be read, log a warning and return zeros."""
        try:
            return self._counters.read(source_session.access_interface)
        except KernelError as error:
            name = source_session.access_interface
            _log.warning(
                "cannot read the counters of %s, a new session also counts former traffic: %s",
                name,
                error,
            )
            return NO_COUNTERS

    def find_traffic(self, session: LinuxSession, source_traffic: SourceTraffic | None) -> Counters:
        """Return the traffic of an ended session, from the counters of the last sweep. If the source has
        reported the `source_traffic`, add the bytes after that sweep."""
        swept_traffic = self._counters.get_swept_traffic(session)
        if source_traffic is None:
            return swept_traffic
        return replace(
            swept_traffic,
            bytes_in=_add_since_sweep(swept_traffic.bytes_in, source_traffic.bytes_in),
            bytes_out=_add_since_sweep(swept_traffic.bytes_out, source_traffic.bytes_out),
        )

    def add_sessions(self, sessions: Sequence[LinuxSession]) -> None:
        """Handle sessions that were added to the table. Sessions restored at the start arrive first, in one
        call."""
        self._counters.forget(session.interface for session in sessions if session.has_own_device)
        self.update_sessions(sessions)

    def update_sessions(self, sessions: Sequence[LinuxSession]) -> None:
        """Handle sessions whose addresses, rates or steering have changed."""
        with self._lock:
            self._wanted_sessions = {
                **self._wanted_sessions,
                **{session.id: make_wanted_session(session) for session in sessions},
            }
        self.changes(*(session.id for session in sessions))

    def remove_sessions(self, sessions: Sequence[LinuxSession]) -> None:
        """Handle sessions that were removed from the table."""
        ended_ids = {session.id for session in sessions}
        with self._lock:
            self._wanted_sessions = {
                id: wanted for id, wanted in self._wanted_sessions.items() if id not in ended_ids
            }
        self.changes(*ended_ids)


def _add_since_sweep(swept_bytes: int, source_bytes: int) -> int:
    """Return the byte counter at the end of a session. `swept_bytes` is the counter at the last sweep, and
    `source_bytes` is the lower 32 bits of the source's counter. The source's counter may be lower than
    `swept_bytes`, because pppd counts from IPCP on and the device from LCP on; then return `swept_bytes`. The
    source's counter is never 2 GiB higher than `swept_bytes`."""
    difference = (source_bytes - swept_bytes) % _SOURCE_COUNTER_MODULUS
    return swept_bytes + difference if difference < _SOURCE_COUNTER_MODULUS // 2 else swept_bytes


def make_wanted_session(session: LinuxSession) -> WantedSession:
    """Return the desired state of the kernel for a session."""
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

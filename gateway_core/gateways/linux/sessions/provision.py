"""Provision of sessions: their terms by the configuration, the counters of their devices, and the state that
the kernel must have for them."""

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

#: The counters of a source have 32 bits.
_SOURCE_COUNTER_MODULUS = 2**32
#: Overhead on a VLAN without a profile, by session type and whether there are two tags.
_DEFAULT_OVERHEAD = {
    (SessionType.PPPOE, False): "pppoe_ethernet",
    (SessionType.PPPOE, True): "pppoe_qinq",
    (SessionType.DHCP, False): "ipoe_ethernet",
    (SessionType.DHCP, True): "ipoe_qinq",
}

_log = logging.getLogger(__name__)


class DeviceCounters:
    """Counters of devices, and the traffic of the sessions on them. Thread-safe. Raises KernelError.

    What a device receives comes from the subscriber.
    """

    def __init__(self, reader: KernelReader) -> None:
        self._reader = reader
        self._lock = threading.Lock()
        #: The index and the counters of each device, from the last sweep.
        self._swept: dict[str, tuple[int, InterfaceStats]] = {}

    def sweep(self, sessions: Iterable[LinuxSession]) -> None:
        """Read the counters of all devices.

        A device of a session that is gone keeps its last counters: the session may end long after its device,
        while its source does not reply. So does a session's own device when another one has its name, which
        belongs to a session to come.
        """
        present = self._reader.read_statistics()
        with self._lock:
            kept = {}
            for session in sessions:
                device = session.interface
                held = self._swept.get(device)
                if held is None:
                    continue
                if device not in present or (session.has_own_device and present[device][0] != held[0]):
                    kept[device] = held
            self._swept = {**present, **kept}

    def forget(self, devices: Iterable[str]) -> None:
        """Forget the counters of devices that were made anew: until the next sweep, their names would have
        the counters of former ones."""
        with self._lock:
            for device in devices:
                self._swept.pop(device, None)

    def read(self, device: str, *, is_own: bool = False) -> Counters:
        """Return the counters of a device now. If it is gone, return those of the last sweep that saw it;
        also if it is a session's own device, and another one has its name."""
        try:
            link = self._reader.find_link(device)
        except NoDevice:
            return self._get_last(device)
        index, last = self._swept.get(device, (link.index, link.stats))
        return _to_counters(last if is_own and index != link.index else link.stats)

    def read_traffic(self, session: LinuxSession) -> Counters:
        """Return the traffic of a session until now."""
        return session.count_traffic(self.read(session.interface, is_own=session.has_own_device))

    def get_swept_traffic(self, session: LinuxSession) -> Counters:
        """Return the traffic of a session until the last sweep that saw its device."""
        return session.count_traffic(self._get_last(session.interface))

    def _get_last(self, device: str) -> Counters:
        _, stats = self._swept.get(device, (0, InterfaceStats()))
        return _to_counters(stats)


def _to_counters(stats: InterfaceStats) -> Counters:
    return Counters(
        bytes_in=stats.rx_bytes,
        bytes_out=stats.tx_bytes,
        packets_in=stats.rx_packets,
        packets_out=stats.tx_packets,
    )


class Provision:
    """Surroundings of the tracker's sessions: the configuration, and the desired state in the kernel.
    Thread-safe.

    No method raises, and none may call the tracker. Methods that return None return at once; they are called
    in the order of the changes. `changes` is called with the ids of sessions that appear, change or go.
    """

    def __init__(self, configuration: Configuration, counters: DeviceCounters) -> None:
        self.configure(configuration)
        self._counters = counters
        self.changes: Callable[..., None] = lambda *_: None
        self._lock = threading.Lock()
        #: Replaced as a whole: readers iterate over it.
        self._wanted: Mapping[int, WantedSession] = {}

    def configure(self, configuration: Configuration) -> None:
        """Give the terms of another configuration to new sessions."""
        self._qos = configuration.qos
        self._profiles = VlanProfiles(configuration.demux)
        self._gateway = str(configuration.cgnat.subscriber_gateway)
        self.trunks = configuration.interfaces.trunks
        #: The gateway's addresses towards subscribers, one in each of their ranges.
        self.addresses = tuple(network[1] for network in configuration.cgnat.source_ranges)

    def get_wanted(self) -> Mapping[int, WantedSession]:
        """Return the desired state of the sessions by id. Nobody changes the mapping afterwards."""
        return self._wanted

    def make_terms(self, listed: SourceSession) -> SessionTerms:
        """Return the terms of a new session, by its access interface. On a VLAN without a profile of the
        session's type, the number of tags determines the overhead."""
        vlan = AccessVlan.parse(listed.access_interface, self.trunks)
        profile = None if vlan is None else self._profiles.find(vlan)
        outer = None if vlan is None else vlan.outer_vlan_id
        overhead = _DEFAULT_OVERHEAD[listed.type, outer is not None]
        if profile is not None and get_session_type(profile) == listed.type:
            overhead = profile.overhead_profile
        return SessionTerms(
            gateway=self._gateway,
            overhead_profile=overhead,
            rate_down=self._qos.default_down,
            rate_up=self._qos.default_up,
            outer_vlan_id=outer,
            inner_vlan_id=None if vlan is None else vlan.vlan_id,
        )

    def read_baseline(self, listed: SourceSession) -> Counters:
        """Return the counters of the access interface of a new session, which others may have used before."""
        try:
            return self._counters.read(listed.access_interface)
        except KernelError as error:
            name = listed.access_interface
            _log.warning("a new session on %s also counts former traffic: %s", name, error)
            return NO_COUNTERS

    def find_traffic(self, session: LinuxSession, counted: SourceTraffic | None) -> Counters:
        """Return the known traffic of a session that has ended. `counted` is what its source counted."""
        seen = self._counters.get_swept_traffic(session)
        if counted is None:
            return seen
        return replace(
            seen,
            bytes_in=_add_since_sweep(seen.bytes_in, counted.bytes_in),
            bytes_out=_add_since_sweep(seen.bytes_out, counted.bytes_out),
        )

    def add_sessions(self, sessions: Sequence[LinuxSession]) -> None:
        """Handle sessions that were added to the table. Sessions restored at the start come first, in one
        call."""
        self._counters.forget(session.interface for session in sessions if session.has_own_device)
        self.update_sessions(sessions)

    def update_sessions(self, sessions: Sequence[LinuxSession]) -> None:
        """Handle other addresses, rates or steering of sessions."""
        with self._lock:
            self._wanted = {**self._wanted, **{session.id: make_wanted(session) for session in sessions}}
        self.changes(*(session.id for session in sessions))

    def remove_sessions(self, sessions: Sequence[LinuxSession]) -> None:
        """Handle sessions that were removed from the table."""
        ended = {session.id for session in sessions}
        with self._lock:
            self._wanted = {id: wanted for id, wanted in self._wanted.items() if id not in ended}
        self.changes(*ended)


def _add_since_sweep(seen: int, counted: int) -> int:
    """Return a counter at the end of a session, from that of the last sweep and the lower 32 bits that the
    source tells. A source may have counted less, and not 4 GiB more: pppd counts from IPCP, the device from
    LCP."""
    since = (counted - seen) % _SOURCE_COUNTER_MODULUS
    return seen + since if since < _SOURCE_COUNTER_MODULUS // 2 else seen


def make_wanted(session: LinuxSession) -> WantedSession:
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

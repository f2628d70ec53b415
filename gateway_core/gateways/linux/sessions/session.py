"""A session of the Linux gateway: what its source lists, what the configuration gave to it, and the counters
of its device."""

import threading
from collections.abc import Container, Iterable

from msgspec.structs import astuple, replace

from gateway_contract.configuration import Configuration
from gateway_contract.contract import Record, record_of
from gateway_contract.core.network import InterfaceStats
from gateway_contract.core.sessions import SessionState, SessionSummary, SessionType
from gateway_core.gateways.linux.daemons.source import START_JITTER, SourceSession
from gateway_core.gateways.linux.demux.admission import AccessVlan, VlanProfiles, session_type
from gateway_core.gateways.linux.kernel.netlink import NoDevice
from gateway_core.gateways.linux.kernel.reader import KernelReader
from gateway_core.gateways.linux.sessions.session_store import SessionKey
from gateway_core.records.clock import Expiry
from gateway_core.sessions.session import Counters, Session

NO_COUNTERS = Counters(0, 0, 0, 0)

#: Without a profile: by the number of tags.
_OVERHEAD = {
    (SessionType.PPPOE, False): "pppoe_ethernet",
    (SessionType.PPPOE, True): "pppoe_qinq",
    (SessionType.DHCP, False): "ipoe_ethernet",
    (SessionType.DHCP, True): "ipoe_qinq",
}


class SessionTerms(Record, frozen=True):
    """The terms that the configuration gives to a new session. Rates are the default ones, bits per
    second."""

    gateway: str | None
    overhead_profile: str
    rate_down: int
    rate_up: int
    outer_vlan_id: int | None
    inner_vlan_id: int | None


class SessionRecord(Record, frozen=True):
    """A session but for its id. The rates of `terms` are those in force; `baseline` is what the session's
    device had counted at its start, `expiry` is that of temporary rates. `boot_id` is the boot in which it
    began, None in a record of a version that did not store it."""

    listed: SourceSession
    terms: SessionTerms
    baseline: Counters
    expiry: Expiry | None = None
    boot_id: str | None = None

    @classmethod
    def new(
        cls,
        listed: SourceSession,
        terms: SessionTerms,
        baseline: Counters = NO_COUNTERS,
        boot_id: str | None = None,
    ) -> "SessionRecord":
        """Return the record of a session that starts: a rate that its source was told comes before the
        default."""
        return cls(
            listed,
            replace(
                terms,
                rate_down=terms.rate_down if listed.rate_down is None else listed.rate_down,
                rate_up=terms.rate_up if listed.rate_up is None else listed.rate_up,
            ),
            baseline,
            boot_id=boot_id,
        )

    def following(self, listed: SourceSession) -> "SessionRecord":
        """After the source listed the session so: the same object if nothing changed. The last change of a
        rate is in force, whether by an operator or by the source."""
        before, terms = self.listed, self.terms
        if abs(listed.started_at - before.started_at) <= START_JITTER:
            listed = replace(listed, started_at=before.started_at)
        if listed.rate_down is None:
            listed = replace(listed, rate_down=before.rate_down)
        if listed.rate_up is None:
            listed = replace(listed, rate_up=before.rate_up)
        if listed == before:
            return self
        if listed.rate_down is not None and listed.rate_down != before.rate_down:
            terms = replace(terms, rate_down=listed.rate_down)
        if listed.rate_up is not None and listed.rate_up != before.rate_up:
            terms = replace(terms, rate_up=listed.rate_up)
        # A rate that the source was told is for good.
        expiry = self.expiry if terms is self.terms else None
        return replace(self, listed=listed, terms=terms, expiry=expiry)

    def shaped(self, down_bps: int, up_bps: int, expiry: Expiry | None = None) -> "SessionRecord":
        """With other rates in force."""
        terms = replace(self.terms, rate_down=down_bps, rate_up=up_bps)
        return replace(self, terms=terms, expiry=expiry)


class LinuxSession(Session, frozen=True, kw_only=True):
    key: SessionKey
    record: SessionRecord

    @classmethod
    def of(
        cls, id: int, key: SessionKey, record: SessionRecord, state: SessionState, steering: tuple[bool, bool]
    ) -> "LinuxSession":
        """`steering` is that of the session's address in the SessionTable."""
        listed, terms = record.listed, record.terms
        vrf_steered, shared_address = steering
        return cls(
            # The rates in force are those of the terms.
            summary=record_of(SessionSummary, terms, listed, id=id, state=state, source=key.source),
            gateway=terms.gateway if listed.ip_address else None,
            overhead_profile=terms.overhead_profile,
            acct_session_id=listed.acct_session_id,
            vrf_steered=vrf_steered,
            shared_address=shared_address,
            expiry=record.expiry,
            key=key,
            record=record,
        )

    def in_state(self, state: SessionState) -> "LinuxSession":
        return replace(self, summary=replace(self.summary, state=state))

    @property
    def has_own_device(self) -> bool:
        return self.interface != self.access_interface

    def traffic(self, counted: Counters) -> Counters:
        """Return the traffic of the session, of what its device has counted. A device that has counted less
        than at the session's start was made anew."""
        before = self.record.baseline
        since = Counters(
            counted.bytes_in - before.bytes_in,
            counted.bytes_out - before.bytes_out,
            counted.packets_in - before.packets_in,
            counted.packets_out - before.packets_out,
        )
        return counted if min(astuple(since)) < 0 else since


class ConfiguredTerms:
    """The terms of new sessions, by a configuration."""

    def __init__(self, configuration: Configuration) -> None:
        self._qos = configuration.qos
        self._trunks = configuration.interfaces.trunks
        self._profiles = VlanProfiles(configuration.demux)
        self._gateway = str(configuration.cgnat.subscriber_gateway)

    def __call__(self, listed: SourceSession) -> SessionTerms:
        """By the access interface. One that is no VLAN of a profile gets the overhead of its tags."""
        vlan = AccessVlan.named(listed.access_interface, self._trunks)
        profile = None if vlan is None else self._profiles.of(vlan)
        outer = None if vlan is None else vlan.outer_vlan_id
        overhead = _OVERHEAD[listed.type, outer is not None]
        if profile is not None and session_type(profile) == listed.type:
            overhead = profile.overhead_profile
        return SessionTerms(
            gateway=self._gateway,
            overhead_profile=overhead,
            rate_down=self._qos.default_down,
            rate_up=self._qos.default_up,
            outer_vlan_id=outer,
            inner_vlan_id=None if vlan is None else vlan.vlan_id,
        )


class DeviceCounters:
    """Counters by the name of a device. What a device receives comes from the subscriber. Raises KernelError.
    Any thread may call."""

    def __init__(self, reader: KernelReader) -> None:
        self._reader = reader
        self._lock = threading.Lock()
        #: The index of each device, and its counters.
        self._last: dict[str, tuple[int, InterfaceStats]] = {}

    def sweep(self, used: Iterable[str], own: Container[str] = ()) -> None:
        """Read those of all devices. Of the devices that sessions use, one that is gone keeps its last ones:
        a session may end long after its device, while its source does not reply. So does one of `own`, which
        one session has alone, when another device has its name: that is of a session to come."""
        present = self._reader.read_statistics()
        with self._lock:
            kept = {
                device: held
                for device in used
                if (held := self._last.get(device)) is not None
                and (device not in present or (device in own and present[device][0] != held[0]))
            }
            self._last = {**present, **kept}

    def forget(self, devices: Iterable[str]) -> None:
        """Forget the counters of devices that were made anew: until the next sweep, their names would have
        the counters of former ones."""
        with self._lock:
            for device in devices:
                self._last.pop(device, None)

    def now(self, device: str, *, is_own: bool = False) -> Counters:
        """If the device is gone, those of the last sweep that saw it. So too of a session's own device, when
        another one has its name."""
        try:
            link = self._reader.find_link(device)
        except NoDevice:
            return self.last(device)
        index, last = self._last.get(device, (link.index, link.stats))
        return _counters(last if is_own and index != link.index else link.stats)

    def last(self, device: str) -> Counters:
        """Return the counters of the last sweep that saw the device; zeros without one."""
        _, stats = self._last.get(device, (0, InterfaceStats()))
        return _counters(stats)


def _counters(stats: InterfaceStats) -> Counters:
    return Counters(
        bytes_in=stats.rx_bytes,
        bytes_out=stats.tx_bytes,
        packets_in=stats.rx_packets,
        packets_out=stats.tx_packets,
    )

"""The demux component of the lab: VLAN sub-interfaces that appear with their first session."""

from collections.abc import Iterator

from msgspec.structs import asdict, replace

from gateway_api.core.configuration.sections import Demux, RateLimits, VlanProfile
from gateway_api.core.gateways.lab.traffic import LabSession, Traffic
from gateway_api.wire.contract import Record
from gateway_api.wire.core.network import DemuxState, DemuxVlan, Vlan, VlanProtocol


class Line(Record, frozen=True):
    """A VLAN on which subscribers arrive. With a single tag, `outer_vlan_id` is None."""

    trunk: str
    vlan_id: int
    outer_vlan_id: int | None
    profile: VlanProfile

    @property
    def name(self) -> str:
        tags = (self.outer_vlan_id, self.vlan_id)
        return ".".join([self.trunk, *(str(tag) for tag in tags if tag is not None)])


class ManagedVlan(Record, frozen=True):
    """An existing VLAN. `created_at` is in the lab's own time."""

    line: Line
    ifindex: int
    created_at: float
    session_count: int
    traffic: Traffic

    def record(self, ahead: int) -> Vlan:
        """With times of a clock that is so many seconds ahead of the lab's."""
        return Vlan(
            name=self.line.name,
            trunk=self.line.trunk,
            vlan_id=self.line.vlan_id,
            outer_vlan_id=self.line.outer_vlan_id,
            protocol=VlanProtocol.DOT1Q if self.line.outer_vlan_id is None else VlanProtocol.DOT1AD,
            oper_state="up",
            session_count=self.session_count,
            created_at=int(self.created_at) + ahead,
        )

    def demux_record(self, ahead: int) -> DemuxVlan:
        state = DemuxState.ACTIVE if self.session_count else DemuxState.IDLE
        return DemuxVlan(**asdict(self.record(ahead)), state=state)


class _TokenBucket:
    def __init__(self, limits: RateLimits, now: float) -> None:
        self._limits = limits
        self._tokens = float(limits.burst)
        self._at = now

    def take(self, now: float) -> bool:
        earned = max(0.0, now - self._at) * self._limits.vlans_per_second
        self._tokens = min(float(self._limits.burst), self._tokens + earned)
        self._at = now
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True


class VlanTable:
    """All managed VLANs, and the limits on new ones."""

    def __init__(self, demux: Demux, now: float) -> None:
        self._vlans: dict[str, ManagedVlan] = {}
        self._idle: dict[str, float] = {}
        self._demux = demux
        self._bucket = _TokenBucket(demux.rate_limits, now)
        self.rate_limited_total = 0

    def __iter__(self) -> Iterator[ManagedVlan]:
        return iter(self._vlans.values())

    def __contains__(self, name: str) -> bool:
        return name in self._vlans

    def __getitem__(self, name: str) -> ManagedVlan:
        return self._vlans[name]

    def configure(self, demux: Demux, now: float) -> None:
        """Applies new limits, with a full bucket as after a start."""
        self._demux = demux
        self._bucket = _TokenBucket(demux.rate_limits, now)

    def admit(self, line: Line, ifindexes: Iterator[int], now: float, *, limited: bool = True) -> bool:
        """True when the line's VLAN exists or was created; else the rejection is counted."""
        if line.name in self._vlans:
            return True
        if len(self._vlans) >= self._demux.rate_limits.max_vlans or (limited and not self._bucket.take(now)):
            self.rate_limited_total += 1
            return False
        self._vlans[line.name] = ManagedVlan(line, next(ifindexes), now, 0, Traffic.none(now))
        self._idle[line.name] = now
        return True

    def join(self, session: LabSession, started: float, now: float) -> None:
        vlan = self._vlans[session.access_interface]
        self._idle.pop(vlan.line.name, None)
        self._vlans[vlan.line.name] = replace(
            vlan,
            # The first sessions are older than the lab.
            created_at=min(vlan.created_at, started),
            session_count=vlan.session_count + 1,
            traffic=vlan.traffic.plus(session.traffic, now),
        )

    def leave(self, session: LabSession, now: float) -> None:
        vlan = self._vlans[session.access_interface]
        if vlan.session_count == 1:
            self._idle[vlan.line.name] = now
        self._vlans[vlan.line.name] = replace(
            vlan,
            session_count=vlan.session_count - 1,
            traffic=vlan.traffic.less(session.traffic, now),
        )

    def changed(self, before: LabSession, after: LabSession, now: float) -> None:
        """Applies the new rates of a session to its VLAN."""
        vlan = self._vlans[after.access_interface]
        traffic = vlan.traffic.changed(before.traffic, after.traffic, now)
        self._vlans[vlan.line.name] = replace(vlan, traffic=traffic)

    def expire(self, now: float) -> None:
        """Removes the VLANs without sessions for the idle timeout."""
        # The order of _idle is that in which VLANs became idle: the first that stays ends the search.
        while self._idle:
            name, since = next(iter(self._idle.items()))
            if now - since < self._demux.idle_timeout:
                return
            self.remove(name)

    def remove(self, name: str) -> None:
        """Removes a VLAN at once."""
        self._idle.pop(name, None)
        del self._vlans[name]

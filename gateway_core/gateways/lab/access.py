"""The access side of the lab: sessions and VLANs. Times are epoch seconds."""

from collections import Counter
from collections.abc import Callable, Iterator

from msgspec.structs import replace

from gateway_contract.configuration import Demux, VlanProfile
from gateway_contract.contract import Record, record_of
from gateway_contract.core.health import TriggerRefusal
from gateway_contract.core.network import DemuxVlan, Vlan, VlanProtocol
from gateway_contract.core.sessions import SessionDetail
from gateway_core.gateways.lab.traffic import SumTraffic, Traffic
from gateway_core.gateways.protocols import demux_vlan
from gateway_core.records.clock import TokenBucket
from gateway_core.records.orders import Ordering, SortedSnapshot, SortedViews
from gateway_core.records.paging import Key
from gateway_core.sessions.session import Session


class LabSession(Session, frozen=True, kw_only=True):
    ifindex: int
    traffic: Traffic

    @property
    def ifb_ifindex(self) -> int:
        """The lab makes the IFB right after the device of the session."""
        return self.ifindex + 1

    def detail_at(self, now: float) -> SessionDetail:
        return self.detail(self.traffic.counters(now))


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
    session_count: int = 0
    traffic: SumTraffic = SumTraffic()

    def key(self) -> Key:
        return self.line.trunk, self.line.outer_vlan_id or 0, self.line.vlan_id

    def record(self, ahead: int) -> Vlan:
        """With times of a clock that is so many seconds ahead of the lab's."""
        return record_of(
            Vlan, self.line, self,
            protocol=VlanProtocol.DOT1Q if self.line.outer_vlan_id is None else VlanProtocol.DOT1AD,
            oper_state="up",
            created_at=int(self.created_at) + ahead,
        )  # fmt: skip

    def demux_record(self, ahead: int) -> DemuxVlan:
        return demux_vlan(self.record(ahead))


_BY_TAGS = Ordering(ManagedVlan.key)


class VlanTable:
    """All managed VLANs, the limits on new ones, and the `traffic` by trunk."""

    def __init__(self, demux: Demux) -> None:
        self._vlans: dict[str, ManagedVlan] = {}
        self._views = SortedViews(self._vlans)
        self._idle: dict[str, float] = {}
        #: With what the VLANs carried that are gone.
        self.traffic: dict[str, SumTraffic] = {}
        self.refusals: Counter[TriggerRefusal] = Counter()
        self.configure(demux)

    def __iter__(self) -> Iterator[ManagedVlan]:
        return iter(self._vlans.values())

    def __contains__(self, name: str) -> bool:
        return name in self._vlans

    def ordered(self) -> SortedSnapshot[ManagedVlan]:
        """By trunk and tags."""
        return self._views.snapshot(_BY_TAGS)

    def configure(self, demux: Demux) -> None:
        """Apply new limits, with a full bucket as after a start."""
        self._demux = demux
        limits = demux.rate_limits
        self._bucket = TokenBucket(limits.vlans_per_second, limits.burst)

    def admit(self, line: Line, ifindexes: Iterator[int], now: float, *, limited: bool = True) -> bool:
        """Return True when the line's VLAN exists or was created; else the rejection is counted."""
        if line.name in self._vlans:
            return True
        if len(self._vlans) >= self._demux.rate_limits.max_vlans:
            self.refusals[TriggerRefusal.FULL] += 1
            return False
        if limited and not self._bucket.take(now):
            self.refusals[TriggerRefusal.RATE_LIMITED] += 1
            return False
        self._put(line.name, ManagedVlan(line, next(ifindexes), now))
        self._idle[line.name] = now
        return True

    def join(self, session: LabSession, started: float) -> None:
        name = session.access_interface
        vlan = self._vlans[name]
        self._idle.pop(name, None)
        # The first sessions are older than the lab.
        created_at = min(vlan.created_at, started)
        self._put(name, replace(vlan, created_at=created_at, session_count=vlan.session_count + 1))
        self._count(name, lambda traffic: traffic.plus(session.traffic))

    def leave(self, session: LabSession, now: float) -> None:
        name = session.access_interface
        vlan = self._vlans[name]
        if vlan.session_count == 1:
            self._idle[name] = now
        self._put(name, replace(vlan, session_count=vlan.session_count - 1))
        self._count(name, lambda traffic: traffic.stopped(session.traffic, now))

    def changed(self, before: LabSession, after: LabSession) -> None:
        """Apply the new rates of a session to its VLAN and trunk."""
        name = after.access_interface
        self._count(name, lambda traffic: traffic.changed(before.traffic, after.traffic))

    def expire(self, now: float) -> None:
        """Remove the VLANs without sessions for the idle timeout."""
        # The order of _idle is that in which VLANs became idle: the first that stays ends the search.
        while self._idle:
            name, since = next(iter(self._idle.items()))
            if now - since < self._demux.idle_timeout:
                return
            self.remove(name)

    def remove(self, name: str) -> None:
        """Remove a VLAN at once."""
        self._idle.pop(name, None)
        self._views.note_change(name, self._vlans.pop(name))

    def _count(self, name: str, change: Callable[[SumTraffic], SumTraffic]) -> None:
        """Change the traffic of a VLAN and of its trunk."""
        vlan = self._vlans[name]
        self._put(name, replace(vlan, traffic=change(vlan.traffic)))
        trunk = vlan.line.trunk
        self.traffic[trunk] = change(self.traffic.get(trunk, SumTraffic()))

    def _put(self, name: str, vlan: ManagedVlan) -> None:
        self._views.note_change(name, self._vlans.get(name))
        self._vlans[name] = vlan

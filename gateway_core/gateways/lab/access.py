"""Access side of the lab: sessions, and the VLANs that carry the sessions. Times are epoch seconds."""

from collections import Counter
from collections.abc import Iterator

from msgspec.structs import replace

from gateway_contract.configuration import Demux, VlanProfile
from gateway_contract.contract import Record, record_of
from gateway_contract.core.health import TriggerRefusal
from gateway_contract.core.network import Vlan, VlanProtocol
from gateway_core.gateways.lab.traffic import Traffic
from gateway_core.records.clock import TokenBucket
from gateway_core.records.paging import Key
from gateway_core.sessions.session import Session


class LabSession(Session, frozen=True, kw_only=True):
    """Session of the lab, with the traffic of the session and the interface index of the session's device.
    The IFB of the session has the next interface index."""

    ifindex: int
    traffic: Traffic


class AccessVlan(Record, frozen=True):
    """VLAN on which subscribers may sign on. `outer_vlan_id` is None for a VLAN with one tag."""

    trunk: str
    vlan_id: int
    outer_vlan_id: int | None
    profile: VlanProfile

    @property
    def name(self) -> str:
        tags = (self.outer_vlan_id, self.vlan_id)
        return ".".join([self.trunk, *(str(tag) for tag in tags if tag is not None)])


class ManagedVlan(Record, frozen=True):
    """Existing VLAN, with the number of sessions on the VLAN and the traffic of the VLAN."""

    access_vlan: AccessVlan
    ifindex: int
    created_at: float
    session_count: int = 0
    traffic: Traffic = Traffic()

    def get_key(self) -> Key:
        return self.access_vlan.trunk, self.access_vlan.outer_vlan_id or 0, self.access_vlan.vlan_id

    def to_record(self) -> Vlan:
        return record_of(
            Vlan, self.access_vlan, self,
            protocol=VlanProtocol.DOT1Q if self.access_vlan.outer_vlan_id is None else VlanProtocol.DOT1AD,
            oper_state="up",
            created_at=int(self.created_at),
        )  # fmt: skip


class VlanTable:
    """Table of all managed VLANs, with the limits for new VLANs.

    `traffic_of_trunk` includes the traffic of removed VLANs.
    """

    def __init__(self, demux: Demux) -> None:
        self._vlan_of_name: dict[str, ManagedVlan] = {}
        #: Time at which each VLAN without sessions became idle, ordered by time.
        self._idle_since: dict[str, float] = {}
        self.traffic_of_trunk: dict[str, Traffic] = {}
        self.refusals: Counter[TriggerRefusal] = Counter()
        self.configure(demux)

    def __iter__(self) -> Iterator[ManagedVlan]:
        return iter(self._vlan_of_name.values())

    def __contains__(self, name: str) -> bool:
        return name in self._vlan_of_name

    def list_sorted(self) -> list[ManagedVlan]:
        """Return the VLANs sorted by trunk and tags."""
        return sorted(self, key=ManagedVlan.get_key)

    def configure(self, demux: Demux) -> None:
        """Apply the VLAN limits of a new configuration, and refill the token bucket."""
        self._demux = demux
        limits = demux.rate_limits
        self._bucket = TokenBucket(limits.vlans_per_second, limits.burst)

    def admit(
        self, access_vlan: AccessVlan, ifindexes: Iterator[int], now: float, *, is_limited: bool
    ) -> bool:
        """Create a VLAN if the VLAN does not exist. Return False, and count the refusal, if a limit is
        reached. `ifindexes` yields the interface index of a new VLAN. If `is_limited` is False, the rate of
        new VLANs is not limited."""
        if access_vlan.name in self._vlan_of_name:
            return True
        if len(self._vlan_of_name) >= self._demux.rate_limits.max_vlans:
            self.refusals[TriggerRefusal.FULL] += 1
            return False
        if is_limited and not self._bucket.take(now):
            self.refusals[TriggerRefusal.RATE_LIMITED] += 1
            return False
        self._vlan_of_name[access_vlan.name] = ManagedVlan(access_vlan, next(ifindexes), now)
        self._idle_since[access_vlan.name] = now
        return True

    def add_session(self, session: LabSession, started_at: float) -> None:
        """Add a session to the VLAN that carries the session. The VLAN must exist."""
        vlan = self._vlan_of_name[session.access_interface]
        self._idle_since.pop(vlan.access_vlan.name, None)
        # The first sessions are older than the lab.
        created_at = min(vlan.created_at, started_at)
        vlan = replace(vlan, created_at=created_at, session_count=vlan.session_count + 1)
        self._add_traffic(vlan, session.traffic)

    def remove_session(self, session: LabSession, now: float, usage: int) -> None:
        """Remove a session from the VLAN that carries the session. The traffic of the session stays in the
        counters of the VLAN."""
        vlan = self._vlan_of_name[session.access_interface]
        if vlan.session_count == 1:
            self._idle_since[vlan.access_vlan.name] = now
        vlan = replace(vlan, session_count=vlan.session_count - 1)
        self._add_traffic(vlan, session.traffic.stop_at(usage) - session.traffic)

    def change_traffic(self, before: LabSession, after: LabSession) -> None:
        """Update the traffic of a VLAN after the traffic of a session has changed from `before` to
        `after`."""
        self._add_traffic(self._vlan_of_name[after.access_interface], after.traffic - before.traffic)

    def _add_traffic(self, vlan: ManagedVlan, change: Traffic) -> None:
        """Store a VLAN in the table, and add `change` to the traffic of the VLAN and to the traffic of the
        trunk."""
        self._vlan_of_name[vlan.access_vlan.name] = replace(vlan, traffic=vlan.traffic + change)
        trunk = vlan.access_vlan.trunk
        self.traffic_of_trunk[trunk] = self.traffic_of_trunk.get(trunk, Traffic()) + change

    def expire(self, now: float) -> None:
        """Remove the VLANs that had no session for the idle timeout of the configuration."""
        while self._idle_since:
            name, since = next(iter(self._idle_since.items()))
            if now - since < self._demux.idle_timeout:
                return
            self.remove(name)

    def remove(self, name: str) -> None:
        self._idle_since.pop(name, None)
        del self._vlan_of_name[name]

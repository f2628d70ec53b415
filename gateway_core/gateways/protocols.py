"""A gateway as the core uses it: sessions, a data plane and routing.

Any thread may call any method. Each result shows one moment. Rates are in bits per second. A change shows in
every list when its method returns. Methods raise StepFailed where the machine fails.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from gateway_contract.configuration import Configuration
from gateway_contract.contract import record_of
from gateway_contract.core.health import (
    Dependency,
    Fault,
    FaultKind,
    LimitDelays,
    PacketDrops,
    SkippedEntries,
    TriggerRefusal,
)
from gateway_contract.core.impact import Impact
from gateway_contract.core.network import DemuxState, DemuxVlan, Vlan
from gateway_contract.core.sessions import SessionDetail
from gateway_core.records.clock import Expiry
from gateway_core.records.paging import Key, Rows, SortedRows
from gateway_core.sessions.session import Counters, Session
from gateway_core.sessions.table import SessionTable


class Gateway(Protocol):
    """A gateway that keeps the table of its sessions and the journal up to date."""

    @property
    def sessions(self) -> SessionTable[Any]:
        """All sessions that the gateway has now."""

    def applying(self, configuration: Configuration) -> AbstractContextManager[None]:
        """In the block, the kernel has what a configuration that is about to run changes there. Raises
        StepFailed where it refuses. Then, and after an error of the block, the kernel is as before."""

    def configure(self, configuration: Configuration) -> None:
        """Apply a new running configuration. Sessions that cannot go on with it, such as those on a trunk
        that `demux.trunks` loses, end with the reason admin_disconnect; the others stay. Steering and limits
        change at once; default rates apply to new sessions. What the kernel refuses now is logged, and tried
        again."""

    def impact(self, configuration: Configuration) -> Impact:
        """Return the sessions that a commit of the configuration would end now, those that a commit with a
        deadline would hold, and the services that reload or restart. Never fails: a return to the former
        configuration asks, too."""

    def ending(self, configuration: Configuration) -> AbstractContextManager[Impact]:
        """Return the effect on sessions if the block calls `configure`: in the block, no session starts or
        ends. Without services."""

    def detail(self, id: int) -> SessionDetail | None:
        """Return the record of a session, with its traffic until now. None for an unknown id."""

    def counters(self) -> Mapping[int, Counters]:
        """Return the traffic of all sessions by id, from one reading."""

    def disconnect(self, id: int) -> SessionDetail | None:
        """End a session, and return its last record. None for an unknown id. Raises StillConnected, with
        EndedSession records."""

    def disconnect_many(self, ids: Sequence[int]) -> Sequence[int]:
        """End sessions, and return the ids of those that it has ended: not of those that had ended before.
        Raises StillConnected, with EndedSession records."""

    def disconnect_interface(self, interface: str, *, dry_run: bool) -> Sequence[Session] | None:
        """Ends, or only finds, the sessions that arrived on an interface. None for an unknown interface,
        of whatever type. Raises StillConnected, with EndedSession records."""

    def set_rate(
        self, id: int, down_bps: int, up_bps: int, expiry: Expiry | None = None
    ) -> tuple[SessionDetail, SessionDetail] | None:
        """Shape a session, and return its record before and after. None for an unknown id. The session keeps
        the `expiry`, over a restart too, or has none from now on; the gateway does not act on it."""

    def interfaces(self) -> Rows:
        """Interface: the fixed ones, VLANs, the devices of the sessions, their IFBs."""

    def vlans(self) -> Rows:
        """Vlan by trunk and tags."""

    def demux_vlans(self) -> Rows:
        """DemuxVlan by trunk and tags."""

    def refusals(self) -> Counter[TriggerRefusal]:
        """Return the first frames of subscribers that made no VLAN since the start of the core."""

    def packet_drops(self) -> tuple[PacketDrops, ...]:
        """Return the packets of subscribers that were dropped, by trunk, as they were last counted."""

    def skipped_entries(self) -> tuple[SkippedEntries, ...]:
        """Return the entries that could not be read since the start of the core, by what they are."""

    def routes(self) -> Rows:
        """Route: those of the network, then those of the sessions."""

    def bgp_summary(self) -> dict[str, Any]:
        """As FRR's `show bgp summary json`; empty without BGP."""

    def faults(self) -> Rows:
        """Fault by since, then object: see `fault_rows`."""

    def repairs(self) -> Mapping[FaultKind, int]:
        """Return the successful repairs of every kind since the start of the core."""

    def limit_delays(self) -> LimitDelays | None:
        """How long new sessions had no limit. None if the gateway has no time without one."""

    def unavailable_sources(self) -> Sequence[str]:
        """Return the names of the sources of sessions that do not reply now. Their sessions are stale."""

    def dependencies(self) -> Sequence[Dependency]:
        """Return the sources of sessions, radius, frr and clock, as they were found last. Never waits for
        one."""


def demux_vlan(vlan: Vlan) -> DemuxVlan:
    """Return a VLAN with its state by its sessions."""
    return record_of(DemuxVlan, vlan, state=DemuxState.ACTIVE if vlan.session_count else DemuxState.IDLE)


def fault_rows(faults: Sequence[Fault]) -> Rows:
    """Fault by since, object, kind and session id, from faults in any order. No two may have all of them in
    common."""
    return SortedRows(sorted(faults, key=_key), _key, lambda fault: fault)


def _key(fault: Fault) -> Key:
    return fault.since, fault.object, fault.kind, fault.session_id or 0

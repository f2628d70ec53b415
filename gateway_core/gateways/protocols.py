"""Gateway as the core uses it: sessions, a data plane and routing.

All methods are thread-safe. Each result shows one moment. A change shows in every list when its method
returns. Methods raise StepFailed where the machine fails.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, NoReturn, Protocol

from gateway_contract.configuration import Configuration
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
from gateway_contract.core.sessions import SessionDetail
from gateway_core.records.clock import Expiry
from gateway_core.records.paging import Key, Rows, SortedRows
from gateway_core.sessions.session import Counters
from gateway_core.sessions.table import SessionTable


class Gateway(Protocol):
    """A gateway that keeps the table of its `sessions` and the journal up to date."""

    sessions: SessionTable[Any]

    def run(self) -> NoReturn:
        """Work until the process ends."""

    def apply_in_kernel(self, configuration: Configuration) -> AbstractContextManager[None]:
        """Put what a new configuration changes in the kernel there before the block. After an error of the
        block, put the former state back. Raises StepFailed where the kernel refuses: then nothing is
        changed."""

    def configure(self, configuration: Configuration) -> None:
        """Apply a new running configuration. Sessions that cannot go on with it, such as those on a trunk
        that `demux.trunks` loses, end with the reason admin_disconnect; the others stay. Steering and limits
        change at once; default rates apply to new sessions. What the kernel refuses is logged and tried
        again."""

    def preview_impact(self, configuration: Configuration) -> Impact:
        """Return the sessions that a commit of the configuration would end now, those that a commit with a
        deadline would hold, and the services that reload or restart. Never raises: an automatic rollback
        calls it too."""

    def freeze_sessions(self, configuration: Configuration) -> AbstractContextManager[Impact]:
        """Return the effect on sessions, without services, if the block calls `configure`. No session starts
        or ends in the block."""

    def detail(self, id: int) -> SessionDetail | None:
        """Return the record of a session, with its traffic until now. None for an unknown id."""

    def counters(self) -> Mapping[int, Counters]:
        """Return the traffic of all sessions by id, from one reading."""

    def disconnect(self, ids: Sequence[int]) -> Sequence[SessionDetail]:
        """End sessions, and return the last records of those that this call has ended. Raises StillConnected,
        with EndedSession records."""

    def has_interface(self, name: str) -> bool:
        """Return True if there is an interface of this name, of whatever type."""

    def set_rate(
        self, id: int, down_bps: int, up_bps: int, expiry: Expiry | None = None
    ) -> tuple[SessionDetail, SessionDetail] | None:
        """Shape a session, and return its record before and after. None for an unknown id. The session keeps
        the `expiry`, over a restart too, or has none from now on; the gateway does not act on it."""

    def interfaces(self) -> Rows:
        """Return Interface rows: the fixed ones, VLANs, the devices of the sessions, their IFBs."""

    def vlans(self) -> SortedRows[Any]:
        """Return Vlan rows by trunk and tags."""

    def refusals(self) -> Counter[TriggerRefusal]:
        """Return the number of first frames of subscribers that made no VLAN since the start of the core, by
        reason."""

    def packet_drops(self) -> tuple[PacketDrops, ...]:
        """Return the latest counters of dropped packets of subscribers, by trunk."""
        return ()

    def skipped_entries(self) -> tuple[SkippedEntries, ...]:
        """Return the number of unreadable entries since the start of the core, by source and kind."""
        return ()

    def routes(self) -> Rows:
        """Return Route rows: those of the network, then those of the sessions."""

    def bgp_summary(self) -> dict[str, Any]:
        """Return what FRR shows by `show bgp summary json`; empty without BGP."""

    def faults(self) -> Rows:
        """Return Fault rows in the order of `fault_rows`."""
        return fault_rows(())

    def repairs(self) -> Mapping[FaultKind, int]:
        """Return the successful repairs of every kind since the start of the core."""
        return dict.fromkeys(FaultKind, 0)

    def limit_delays(self) -> LimitDelays | None:
        """Return how long new sessions had no limit. None if sessions have their limit from the start."""
        return None

    def unavailable_sources(self) -> Sequence[str]:
        """Return the names of the sources of sessions that do not reply now. Their sessions are stale."""
        return ()

    def dependencies(self) -> Sequence[Dependency]:
        """Return the last known state of the sources of sessions, radius, frr and clock, without a wait."""


def fault_rows(faults: Sequence[Fault]) -> Rows:
    """Return Fault rows by since, object, kind and session id, of which no two may have all in common."""
    return SortedRows(sorted(faults, key=_fault_key), _fault_key, lambda fault: fault)


def _fault_key(fault: Fault) -> Key:
    return fault.since, fault.object, fault.kind, fault.session_id or 0

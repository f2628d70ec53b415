"""Gateway as the core uses it: sessions, a data plane and routing.

All methods are thread-safe. Each result is a consistent snapshot. When a method that changes something
returns, all lists show the change. Methods raise StepFailed if a step on the machine fails, such as a read of
the kernel or a write to the disk.
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
    """Gateway that keeps the table `sessions` and the journal up to date."""

    sessions: SessionTable[Any]

    def run(self) -> NoReturn:
        """Work until the process ends."""

    def apply_in_kernel(self, configuration: Configuration) -> AbstractContextManager[None]:
        """Return a context manager that applies the kernel part of a new configuration before the block.
        After an error of the block, the former state is restored. Raises StepFailed if the kernel refuses the
        change; nothing is then changed."""

    def configure(self, configuration: Configuration) -> None:
        """Apply a new running configuration. Sessions that cannot go on with the configuration, such as
        sessions on a trunk that is removed from `demux.trunks`, end with the reason admin_disconnect; all
        other sessions stay. Steering and limits change at once; default rates apply to new sessions. If the
        kernel refuses a change, the failure is logged and the change is tried again."""

    def preview_impact(self, configuration: Configuration) -> Impact:
        """Return the impact of a commit of the configuration: sessions that would end now, sessions that
        would end only at the confirmation, and services that would reload or restart. Raises no error,
        because an automatic rollback calls this method too."""

    def freeze_sessions(self, configuration: Configuration) -> AbstractContextManager[Impact]:
        """Return a context manager. Inside the block of the context manager, no session starts or ends. The
        value of the context manager is the impact of `configure` on sessions; the impact on services is not
        included."""

    def read_detail(self, id: int) -> SessionDetail | None:
        """Return the record of a session, with the current traffic of the session; None for an unknown id."""

    def read_counters(self) -> Mapping[int, Counters]:
        """Return a map from session id to traffic, for all sessions, from one reading."""

    def disconnect(self, ids: Sequence[int]) -> Sequence[SessionDetail]:
        """End sessions. Return the last records of the sessions that this call has ended. Raises
        StillConnected if some of the sessions have not ended; the error contains the EndedSession records of
        the sessions that have ended."""

    def has_interface(self, name: str) -> bool:
        """Return True if an interface of any type has this name."""

    def set_rate(
        self, id: int, down_bps: int, up_bps: int, expiry: Expiry | None = None
    ) -> tuple[SessionDetail, SessionDetail] | None:
        """Change the rates of a session. Return the record of the session before and after the change; None
        for an unknown id. The `expiry` is stored with the session, also over a restart; None removes a former
        expiry. The caller must restore the rates at the expiry."""

    def list_interfaces(self) -> Rows:
        """Return Interface rows: fixed interfaces, VLANs, the devices of the sessions, and the IFBs of the
        sessions."""

    def list_vlans(self) -> SortedRows[Any]:
        """Return Vlan rows, sorted by trunk and tags."""

    def count_refusals(self) -> Counter[TriggerRefusal]:
        """Return the number of first frames of subscribers that created no VLAN since the start of the core,
        by reason."""

    def list_packet_drops(self) -> tuple[PacketDrops, ...]:
        """Return the latest counters of dropped subscriber packets, by trunk."""
        return ()

    def count_skipped_entries(self) -> tuple[SkippedEntries, ...]:
        """Return the number of unreadable entries since the start of the core, by source and kind."""
        return ()

    def list_routes(self) -> Rows:
        """Return Route rows: network routes, then the routes of the sessions."""

    def read_bgp_summary(self) -> dict[str, Any]:
        """Return the output of FRR's `show bgp summary json`; an empty dict if no BGP neighbour is
        configured."""

    def list_faults(self) -> Rows:
        """Return Fault rows in the order of `make_fault_rows`."""
        return make_fault_rows(())

    def count_repairs(self) -> Mapping[FaultKind, int]:
        """Return the number of successful repairs since the start of the core, by kind of fault."""
        return dict.fromkeys(FaultKind, 0)

    def read_limit_delays(self) -> LimitDelays | None:
        """Return the histogram of the time from the start of a session to the active rate limit of the
        session; None if the gateway sets the limit of a session at the start of the session."""
        return None

    def list_unavailable_sources(self) -> Sequence[str]:
        """Return the names of the session sources that do not reply. The sessions of these sources are
        stale."""
        return ()

    def list_dependencies(self) -> Sequence[Dependency]:
        """Return the last known state of the session sources, RADIUS, FRR and the clock, without waiting."""


def make_fault_rows(faults: Sequence[Fault]) -> Rows:
    """Return Fault rows sorted by time, object, kind and session id. No two faults may have the same sort
    key."""
    return SortedRows(sorted(faults, key=_get_fault_key), _get_fault_key, lambda fault: fault)


def _get_fault_key(fault: Fault) -> Key:
    return fault.since, fault.object, fault.kind, fault.session_id or 0

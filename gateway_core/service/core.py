"""The methods of the core's interface, for a gateway and its configuration."""

import logging
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from operator import attrgetter
from typing import Any

from gateway_contract.base.errors import StepFailed, StillConnected
from gateway_contract.contract import Method, SelectingMethod, bind_handlers, record_of
from gateway_contract.core.configuration import ChangesReply, ListChanges, StepFailedError
from gateway_contract.core.health import (
    DependenciesReply,
    FaultKind,
    ListFaults,
    RefusalCount,
    RepairCount,
    TriggerRefusal,
)
from gateway_contract.core.interface import CORE
from gateway_contract.core.network import (
    OVERHEAD_PROFILES,
    ListCgnatSessions,
    ListInterfaces,
    ListQos,
    ListRoutes,
    ListVlans,
)
from gateway_contract.core.sessions import (
    DisconnectInterface,
    DisconnectSession,
    EndedSession,
    EventsReply,
    GetSession,
    Health,
    InterfaceNotFoundError,
    ListSessions,
    SessionDetail,
    SessionFilter,
    SessionNotFoundError,
    SessionRateReply,
    SessionRates,
    SessionReply,
    SessionsConnectedError,
    SessionSnapshot,
    SessionSummary,
    SessionsVersionReply,
    SetSessionRate,
    Statistics,
    SubscribeEvents,
)
from gateway_contract.core.sign_ons import FailedSignOnsReply, SubscribeFailedSignOns
from gateway_contract.varlink.dispatcher import Identity, ServedInterface, invalid_parameter
from gateway_contract.varlink.protocol import Peer
from gateway_contract.version import PRODUCT, VERSION
from gateway_core.configuration.service import ConfigurationService
from gateway_core.configuration.workspace import Workspace
from gateway_core.gateways.protocols import Gateway
from gateway_core.records.changes import Caller, ChangeLog, Note
from gateway_core.records.clock import Clock
from gateway_core.records.paging import (
    FieldSortedRows,
    Reply,
    Rows,
    SortedRows,
    encode_records,
    list_reply,
    select_records,
)
from gateway_core.service.rates import Rates, Wanted
from gateway_core.sessions.journal import Journal
from gateway_core.sessions.session import Session, session_ordering
from gateway_core.sessions.table import SessionTable

IDENTITY = Identity("gateway-api", f"{PRODUCT} core (embedded)", VERSION, "urn:gateway-api")

#: The refusals for which the limits of the configuration are the reason.
_LIMITS = (
    TriggerRefusal.RATE_LIMITED,
    TriggerRefusal.OUTER_VLAN_RATE_LIMITED,
    TriggerRefusal.FULL,
    TriggerRefusal.OUTER_VLAN_FULL,
)

_log = logging.getLogger(__name__)

_summary = attrgetter("summary")
#: The rows of each list whose fields select its records.
LISTS: dict[type[Method[Any]], Callable[[Gateway], Rows]] = {
    ListInterfaces: lambda gateway: gateway.interfaces(),
    ListVlans: lambda gateway: gateway.vlans(),
    ListQos: lambda gateway: gateway.sessions.rows(Session.qos),
    ListRoutes: lambda gateway: gateway.routes(),
    ListCgnatSessions: lambda gateway: gateway.sessions.cgnat_sessions(),
    ListFaults: lambda gateway: gateway.faults(),
}


class CoreService:
    """Serves one gateway, the journal of its sessions, the workspace of its configuration, and the log of
    changes that did not come through the API."""

    def __init__(
        self, gateway: Gateway, journal: Journal, workspace: Workspace, changes: ChangeLog, clock: Clock
    ) -> None:
        self._gateway = gateway
        self._sessions: SessionTable[Any] = gateway.sessions
        self._journal = journal
        self._changes = changes
        self._clock = clock
        self._started = clock.steady()
        self._configuration = ConfigurationService(workspace)
        self.rates = Rates(gateway, journal, clock, self._note_return)

    def interface(self, *others: object) -> ServedInterface:
        """Return the interface with a handler for each of its methods, some of which `others` have."""
        lists = {method: partial(self._selected, rows) for method, rows in LISTS.items()}
        return bind_handlers(CORE, self, self._configuration, *others, handlers=lists)

    def get_health(self, _: Method[Any]) -> Health:
        return Health(
            uptime_seconds=int(self._clock.steady() - self._started),
            active_sessions=len(self._sessions),
            stale_sessions=self._sessions.statistics().stale_sessions,
            unavailable_sources=tuple(self._gateway.unavailable_sources()),
            product=PRODUCT,
            version=VERSION,
        )

    def get_statistics(self, _: Method[Any]) -> Statistics:
        repairs, refusals = self._gateway.repairs(), self._gateway.refusals()
        return record_of(
            Statistics, self._sessions.statistics(),
            unavailable_sources=tuple(self._gateway.unavailable_sources()),
            faults=len(self._gateway.faults()),
            repairs=tuple(RepairCount(kind, repairs[kind]) for kind in FaultKind),
            demux_refusals=_refusal_counts(refusals),
            packet_drops=self._gateway.packet_drops(),
            limit_delays=self._gateway.limit_delays(),
            skipped_entries=self._gateway.skipped_entries(),
        )  # fmt: skip

    def get_sessions_version(self, _: Method[Any]) -> SessionsVersionReply:
        return SessionsVersionReply(f"{self._journal.boot_id}-{self._sessions.version}")

    def list_sessions(self, call: ListSessions) -> Reply:
        order = call.sort or "id"
        field = order.removeprefix("-")
        if field not in SessionSummary.__struct_fields__:
            raise invalid_parameter("sort")

        wanted, descending = call.filter or SessionFilter(), order.startswith("-")
        rows: Rows
        if call.page is None and order == "id" and wanted == SessionFilter():
            return self._sessions.whole()
        if wanted == SessionFilter(type=wanted.type):
            ordering = session_ordering(field, wanted.type)
            rows = SortedRows(self._sessions.ordered(ordering), ordering.key, _summary, descending)
        else:
            by_id = session_ordering("id").key
            rows = SortedRows(self._sessions.find(wanted), by_id, _summary, order == "-id")
            if field != "id":
                rows, order = FieldSortedRows(rows, field, descending), f"found {order}"
        return list_reply("sessions", rows, call.page, order)

    def get_session(self, call: GetSession) -> SessionReply:
        with errors():
            session = self._gateway.detail(call.id)
        if session is None:
            raise CORE.error(SessionNotFoundError(call.id))
        return SessionReply(session)

    def disconnect_session(self, call: DisconnectSession, peer: Peer | None) -> SessionReply:
        self._journal.disconnects(call.author, [call.id])
        with errors():
            session = self._gateway.disconnect(call.id)
        if session is None:
            raise CORE.error(SessionNotFoundError(call.id))
        if call.request_id is None:
            self._note("subscribers.disconnect", peer, SessionSnapshot.of(session))
        return SessionReply(session)

    def disconnect_interface(self, call: DisconnectInterface, peer: Peer | None) -> dict[str, Any]:
        def note(ended: Sequence[EndedSession]) -> None:
            if call.request_id is None and not call.dry_run:
                before = {"interface": call.interface, "sessions": ended}
                self._note("subscribers.disconnect_by_interface", peer, before)

        if not call.dry_run:
            arrived = self._sessions.on_access_interface(call.interface)
            self._journal.disconnects(call.author, [session.id for session in arrived])
        with errors():
            try:
                found = self._gateway.disconnect_interface(call.interface, dry_run=call.dry_run)
            except StillConnected as error:
                if error.ended:
                    note(error.ended)
                raise
        if found is None:
            raise CORE.error(InterfaceNotFoundError(call.interface))
        note([EndedSession.of(session.summary) for session in found])
        return {"sessions": encode_records(map(_summary, found))}

    def set_session_rate(self, call: SetSessionRate, peer: Peer | None) -> SessionRateReply:
        wanted = Wanted(call.rate_down_bps, call.rate_up_bps, call.expires_in, call.until)
        with errors():
            changed = self.rates.change(call.id, wanted.checked(self._clock), call.author)
        if changed is None:
            raise CORE.error(SessionNotFoundError(call.id))
        before, after = changed
        if call.request_id is None:
            self._note("subscribers.change_rate", peer, SessionSnapshot.of(before), SessionRates.of(after))
        return SessionRateReply(before, after)

    def list_changes(self, call: ListChanges) -> ChangesReply:
        try:
            return self._changes.after(call.log, call.after_sequence or 0)
        except StepFailed as error:
            # The log of changes has told why, once.
            raise CORE.error(StepFailedError(error.step, error.reason)) from error

    def subscribe_events(self, call: SubscribeEvents) -> Iterator[EventsReply | None]:
        return self._journal.follow(call.boot_id, call.after_sequence)

    def subscribe_failed_sign_ons(self, call: SubscribeFailedSignOns) -> Iterator[FailedSignOnsReply | None]:
        return self._journal.follow_failed_sign_ons(call.boot_id, call.after_sequence)

    def list_overhead_profiles(self, _: Method[Any]) -> dict[str, Any]:
        return {"profiles": list(OVERHEAD_PROFILES.values()), "count": len(OVERHEAD_PROFILES)}

    def get_bgp_summary(self, _: Method[Any]) -> dict[str, Any]:
        with errors():
            return {"summary": self._gateway.bgp_summary()}

    def get_demux_state(self, call: SelectingMethod[Any]) -> Reply:
        with errors():
            vlans, refused = self._gateway.demux_vlans(), self._gateway.refusals()
        return select_records(
            vlans,
            call,
            rate_limited_total=sum(refused[reason] for reason in _LIMITS),
            refusals=_refusal_counts(refused),
        )

    def get_dependencies(self, _: Method[Any]) -> DependenciesReply:
        return DependenciesReply(tuple(self._gateway.dependencies()))

    def _selected(self, rows: Callable[[Gateway], Rows], call: SelectingMethod[Any]) -> Reply:
        with errors():
            return select_records(rows(self._gateway), call)

    def _note_return(self, changed: tuple[SessionDetail, SessionDetail]) -> None:
        before, after = changed
        self._note("subscribers.return_rate", None, SessionSnapshot.of(before), SessionRates.of(after))

    def _note(self, action: str, peer: Peer | None, before: Any, after: Any = None) -> None:
        self._changes.add(Note.of(Caller(action, peer), self._clock.wall(), before=before, after=after))


def _refusal_counts(refusals: Counter[TriggerRefusal]) -> tuple[RefusalCount, ...]:
    return tuple(RefusalCount(reason, refusals[reason]) for reason in TriggerRefusal)


@contextmanager
def errors() -> Iterator[None]:
    """The gateway's errors as those of the interface."""
    try:
        yield
    except StepFailed as error:
        _log.error("%s", error.sentence)
        raise CORE.error(StepFailedError(error.step, error.reason)) from error
    except StillConnected as error:
        _log.error("%s", error)
        raise CORE.error(SessionsConnectedError(error.connected, error.ended, error.reason)) from error

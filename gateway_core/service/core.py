"""Core service: handlers of the core's interface, for a gateway and its configuration."""

import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from operator import attrgetter
from typing import Any

from gateway_contract.base.errors import GatewayApiError, Invalid, Problem, Stale, StepFailed, StillConnected
from gateway_contract.base.texts import format_path
from gateway_contract.contract import Command, Failure, Method, SelectingMethod, bind_handlers, record_of
from gateway_contract.core import configuration, health, network, sessions, sign_ons
from gateway_contract.core.health import FaultKind, TriggerRefusal
from gateway_contract.core.interface import CORE
from gateway_contract.varlink.dispatcher import Handler, Identity, ServedInterface, make_parameter_error
from gateway_contract.varlink.protocol import Peer
from gateway_contract.version import PRODUCT, VERSION
from gateway_core.configuration.documents import AbsentPath, InvalidDocument, OperationRefused
from gateway_core.configuration.service import ConfigurationService
from gateway_core.configuration.store import Unreadable
from gateway_core.configuration.workspace import Workspace
from gateway_core.gateways.protocols import Gateway
from gateway_core.records import paging
from gateway_core.records.changes import MAX_CHANGES, Caller, ChangeLog, Note
from gateway_core.records.clock import Clock
from gateway_core.records.paging import Reply, Rows
from gateway_core.service.jobs import Jobs, JobService
from gateway_core.service.rates import NewRates, RateChange, Rates
from gateway_core.service.traffic import TopTalkers, TrafficWatcher
from gateway_core.sessions.journal import Journal
from gateway_core.sessions.session import Session, get_session_ordering
from gateway_core.sessions.table import SessionTable

IDENTITY = Identity("gateway-api", f"{PRODUCT} core (embedded)", VERSION, "urn:gateway-api")

#: The refusals whose reason is a limit of the configuration.
_LIMIT_REFUSALS = (
    TriggerRefusal.RATE_LIMITED,
    TriggerRefusal.OUTER_VLAN_RATE_LIMITED,
    TriggerRefusal.FULL,
    TriggerRefusal.OUTER_VLAN_FULL,
)

_log = logging.getLogger(__name__)

_summary = attrgetter("summary")
#: The rows of each list that is filtered and sorted by the fields of its records.
LISTS: dict[type[Method[Any]], Callable[[Gateway], Rows]] = {
    network.ListInterfaces: lambda gateway: gateway.list_interfaces(),
    network.ListVlans: lambda gateway: gateway.list_vlans(),
    network.ListQos: lambda gateway: gateway.sessions.rows(Session.make_qos),
    network.ListRoutes: lambda gateway: gateway.list_routes(),
    network.ListCgnatSessions: lambda gateway: gateway.sessions.cgnat_sessions(),
    health.ListFaults: lambda gateway: gateway.list_faults(),
}


class CoreService:
    """Service of one gateway: the gateway, the journal of its sessions, the workspace of its configuration,
    and the log of the changes that were not made through the API."""

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
        self._outcomes = Outcomes(changes)
        self.rates = Rates(
            gateway, journal, clock, partial(self._note_rates, "subscribers.return_rate", None)
        )

    def make_interface(self, jobs: Jobs) -> ServedInterface:
        """Return the core's interface with a handler for each method."""
        services = (
            self,
            self._configuration,
            self._outcomes,
            JobService(self._gateway, self._journal, self.rates, jobs, self._changes, self._clock),
            TrafficWatcher(self._gateway, self._clock),
            TopTalkers(self._gateway, self._clock),
        )
        lists = {method: partial(self._list_records, rows) for method, rows in LISTS.items()}
        interface = bind_handlers(CORE, *services, handlers=lists)
        return replace(
            interface,
            methods={
                name: self._outcomes.record(translate_errors(handler))
                for name, handler in interface.methods.items()
            },
        )

    def get_health(self, _: Method[Any]) -> sessions.Health:
        return sessions.Health(
            uptime_seconds=int(self._clock.steady() - self._started),
            active_sessions=len(self._sessions),
            stale_sessions=self._sessions.compute_statistics().stale_sessions,
            unavailable_sources=tuple(self._gateway.list_unavailable_sources()),
            product=PRODUCT,
            version=VERSION,
        )

    def get_statistics(self, _: Method[Any]) -> sessions.Statistics:
        repairs, refusals = self._gateway.count_repairs(), self._gateway.count_refusals()
        return record_of(
            sessions.Statistics, self._sessions.compute_statistics(),
            unavailable_sources=tuple(self._gateway.list_unavailable_sources()),
            faults=len(self._gateway.list_faults()),
            repairs=tuple(health.RepairCount(kind, repairs[kind]) for kind in FaultKind),
            demux_refusals=_count_refusals(refusals),
            packet_drops=self._gateway.list_packet_drops(),
            limit_delays=self._gateway.read_limit_delays(),
            skipped_entries=self._gateway.count_skipped_entries(),
        )  # fmt: skip

    def get_sessions_version(self, _: Method[Any]) -> sessions.SessionsVersionReply:
        return sessions.SessionsVersionReply(f"{self._journal.boot_id}-{self._sessions.version}")

    def list_sessions(self, call: sessions.ListSessions) -> Reply:
        order = call.sort or "id"
        field = order.removeprefix("-")
        if field not in sessions.SessionSummary.__struct_fields__:
            raise make_parameter_error("sort")

        wanted, descending = call.filter or sessions.SessionFilter(), order.startswith("-")
        rows: Rows
        if call.page is None and order == "id" and wanted == sessions.SessionFilter():
            return self._sessions.whole()
        if wanted == sessions.SessionFilter(type=wanted.type):
            ordering = get_session_ordering(field, wanted.type)
            rows = paging.SortedRows(self._sessions.snapshot(ordering), ordering.key, _summary, descending)
        else:
            by_id = get_session_ordering("id").key
            rows = paging.SortedRows(self._sessions.find(wanted), by_id, _summary, order == "-id")
            if field != "id":
                rows, order = paging.FieldSortedRows(rows, field, descending), f"found {order}"
        return paging.make_list_reply("sessions", rows, call.page, order)

    def get_session(self, call: sessions.GetSession) -> sessions.SessionReply:
        session = self._gateway.read_detail(call.id)
        if session is None:
            raise CORE.make_error(sessions.SessionNotFoundError(call.id))
        return sessions.SessionReply(session)

    def disconnect_session(
        self, call: sessions.DisconnectSession, peer: Peer | None
    ) -> sessions.SessionReply:
        self._journal.note_disconnect(call.author, [call.id])
        ended = self._gateway.disconnect([call.id])
        if not ended:
            raise CORE.make_error(sessions.SessionNotFoundError(call.id))
        (session,) = ended
        if call.request_id is None:
            self._note("subscribers.disconnect", peer, sessions.SessionSnapshot.of(session))
        return sessions.SessionReply(session)

    def disconnect_interface(self, call: sessions.DisconnectInterface, peer: Peer | None) -> dict[str, Any]:
        def note(ended: Sequence[sessions.EndedSession]) -> None:
            if call.request_id is None and not call.dry_run:
                before = {"interface": call.interface, "sessions": ended}
                self._note("subscribers.disconnect_by_interface", peer, before)

        if not self._gateway.has_interface(call.interface):
            raise CORE.make_error(sessions.InterfaceNotFoundError(call.interface))
        matching_sessions = self._sessions.find_on_access_interface(call.interface)
        if matching_sessions and not call.dry_run:
            ids = [session.id for session in matching_sessions]
            self._journal.note_disconnect(call.author, ids)
            try:
                ended = {session.id for session in self._gateway.disconnect(ids)}
            except StillConnected as error:
                if error.ended:
                    note(error.ended)
                raise
            matching_sessions = [session for session in matching_sessions if session.id in ended]
        note([sessions.EndedSession.of(session.summary) for session in matching_sessions])
        return {"sessions": paging.encode_records(map(_summary, matching_sessions))}

    def set_session_rate(self, call: sessions.SetSessionRate, peer: Peer | None) -> sessions.SessionRateReply:
        new = NewRates(call.rate_down_bps, call.rate_up_bps, call.expires_in, call.until)
        new.check(self._clock)
        rate_change = self.rates.change(call.id, new, call.author)
        if rate_change is None:
            raise CORE.make_error(sessions.SessionNotFoundError(call.id))
        if call.request_id is None:
            self._note_rates("subscribers.change_rate", peer, rate_change)
        return sessions.SessionRateReply(*rate_change)

    def list_changes(self, call: configuration.ListChanges) -> configuration.ChangesReply:
        try:
            return self._changes.read_after(call.log, call.after_sequence or 0)
        except StepFailed as error:
            # The log of changes has logged the reason, once.
            raise CORE.make_error(configuration.StepFailedError(error.step, error.reason)) from error

    def subscribe_events(self, call: sessions.SubscribeEvents) -> Iterator[sessions.EventsReply | None]:
        return self._journal.follow(call.boot_id, call.after_sequence)

    def subscribe_failed_sign_ons(
        self, call: sign_ons.SubscribeFailedSignOns
    ) -> Iterator[sign_ons.FailedSignOnsReply | None]:
        return self._journal.follow_failed_sign_ons(call.boot_id, call.after_sequence)

    def list_overhead_profiles(self, _: Method[Any]) -> dict[str, Any]:
        profiles = list(network.OVERHEAD_PROFILES.values())
        return {"profiles": profiles, "count": len(profiles)}

    def get_bgp_summary(self, _: Method[Any]) -> dict[str, Any]:
        return {"summary": self._gateway.read_bgp_summary()}

    def get_demux_state(self, call: SelectingMethod[Any]) -> Reply:
        vlans, refused = self._gateway.list_vlans().convert(_make_demux_vlan), self._gateway.count_refusals()
        return paging.select_records(
            vlans,
            call,
            rate_limited_total=sum(refused[reason] for reason in _LIMIT_REFUSALS),
            refusals=_count_refusals(refused),
        )

    def get_dependencies(self, _: Method[Any]) -> health.DependenciesReply:
        return health.DependenciesReply(tuple(self._gateway.list_dependencies()))

    def _list_records(self, rows: Callable[[Gateway], Rows], call: SelectingMethod[Any]) -> Reply:
        return paging.select_records(rows(self._gateway), call)

    def _note_rates(self, action: str, peer: Peer | None, rate_change: RateChange) -> None:
        before, after = rate_change
        self._note(action, peer, sessions.SessionSnapshot.of(before), sessions.SessionRates.of(after))

    def _note(self, action: str, peer: Peer | None, before: Any, after: Any = None) -> None:
        self._changes.add(Note.of(Caller(action, peer), self._clock.wall(), before=before, after=after))


def _count_refusals(refusals: Counter[TriggerRefusal]) -> tuple[health.RefusalCount, ...]:
    return tuple(health.RefusalCount(reason, refusals[reason]) for reason in TriggerRefusal)


class Outcomes:
    """Outcomes of the calls that change something, by request id. A caller that lost the reply can ask for
    the outcome. Thread-safe.

    The log of changes stores the ids of the calls that succeeded, so these outcomes are known after a
    restart. If a caller asks for the outcome of a call that has not arrived yet, the outcome is unknown, and
    the call is refused when it arrives.
    """

    def __init__(self, changes: ChangeLog) -> None:
        self._changes = changes
        self._lock = threading.Lock()
        self._running: set[str] = set()
        #: Whether each ended call of this process was done. The newest calls are last.
        self._ended: dict[str, bool] = {}
        #: Calls that were unknown when their callers asked for the outcome. The newest calls are last.
        self._refused: dict[str, None] = {}

    def record(self, handler: Handler) -> Handler:
        """Return a handler that calls `handler` and records the outcome of each call. For a method that
        changes nothing, return `handler` itself."""
        if not issubclass(handler.parameters, Command):
            return handler

        def run(call: Command[Any], *peer: Peer | None) -> Any:
            if call.request_id is None:
                return handler.handler(call, *peer)
            self._begin(call.request_id)
            done = False
            try:
                reply = handler.handler(call, *peer)
                self._changes.add_calls(call.request_id)
                done = True
                return reply
            finally:
                self._end(call.request_id, done)

        return replace(handler, handler=run)

    def resolve_calls(self, call: configuration.ResolveCalls) -> configuration.ResolveCallsReply:
        with self._lock:
            wanted = [id for id in call.request_ids if id not in self._running]
            ended = {id: self._ended[id] for id in wanted if id in self._ended}
            # Before the look-up, which would not find a call that begins meanwhile.
            refused = self._refused | dict.fromkeys(id for id in wanted if id not in ended)
            self._refused = dict(list(refused.items())[-MAX_CHANGES:])
        try:
            done = self._changes.find_calls(wanted)
        except StepFailed as error:
            raise CORE.make_error(configuration.StepFailedError(error.step, error.reason)) from error
        outcomes = dict.fromkeys(done, True) | ended
        return configuration.ResolveCallsReply(
            done=tuple(id for id in wanted if outcomes.get(id) is True),
            failed=tuple(id for id in wanted if outcomes.get(id) is False),
            unknown=tuple(id for id in wanted if id not in outcomes),
        )

    def _begin(self, id: str) -> None:
        with self._lock:
            if id in self._refused:
                reason = "the caller was told that it is not made"
                raise CORE.make_error(configuration.StepFailedError("make the change", reason))
            self._running.add(id)

    def _end(self, id: str, done: bool) -> None:
        with self._lock:
            self._running.discard(id)
            self._ended[id] = done
            if len(self._ended) > MAX_CHANGES:
                del self._ended[next(iter(self._ended))]


def translate_errors(handler: Handler) -> Handler:
    """Return a handler that calls `handler`, and converts errors of the gateway and of the configuration to
    errors of the interface. A failure that the caller did not cause is logged."""

    @contextmanager
    def translate(call: Method[Any]) -> Iterator[None]:
        try:
            yield
        except GatewayApiError as error:
            if isinstance(error, StepFailed | StillConnected | Unreadable):
                _log.error("%s failed: %s", type(call).__name__, error)
            raise CORE.make_error(_make_failure(error)) from error

    def run(call: Method[Any], *peer: Peer | None) -> Any:
        with translate(call):
            return handler.handler(call, *peer)

    def stream(call: Method[Any]) -> Iterator[Any]:
        with translate(call):
            yield from handler.handler(call)

    return replace(handler, handler=stream if handler.streams else run)


def _make_failure(error: GatewayApiError) -> Failure:
    """Return the error of the interface for an error of the gateway or of the configuration."""
    if isinstance(error, StepFailed):
        return configuration.StepFailedError(error.step, error.reason)
    if isinstance(error, StillConnected):
        return sessions.SessionsConnectedError(error.connected, error.ended, error.reason)
    if isinstance(error, OperationRefused):
        if isinstance(error.reason, AbsentPath):
            return configuration.PathNotFoundError(error.number, format_path(error.reason.path))
        return configuration.EditRefusedError(error.number, _make_problems(error.reason.problems))
    if isinstance(error, Invalid):
        problems = error.problems_by_key if isinstance(error, InvalidDocument) else error.problems
        return configuration.ConfigurationInvalidError(_make_problems(problems))
    if isinstance(error, Stale):
        return configuration.ConfigurationChangedError(error.etag)
    if isinstance(error, Unreadable):
        return configuration.StepFailedError("read an archived revision", "the core's log says why")
    raise error


def _make_problems(problems: Iterable[Problem]) -> tuple[configuration.ConfigurationProblem, ...]:
    return tuple(
        configuration.ConfigurationProblem(one.path, configuration.ProblemCode(one.code), one.message)
        for one in problems
    )


def _make_demux_vlan(vlan: network.Vlan) -> network.DemuxVlan:
    state = network.DemuxState.ACTIVE if vlan.session_count else network.DemuxState.IDLE
    return record_of(network.DemuxVlan, vlan, state=state)

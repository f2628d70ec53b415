"""Subscribers: their sessions, which can be disconnected and get other rates; the traffic of these; and their
past, with failed sign-ons."""

from functools import partial
from typing import Any

from flask import Blueprint, Response
from msgspec import UNSET, to_builtins

from gateway_api.history.sessions import HistoryFilter
from gateway_api.web import audit, responses
from gateway_api.web.access import ADMIN, ANY_ROLE
from gateway_api.web.lists import list_operation
from gateway_api.web.operation import Passed, operation, passed
from gateway_api.web.records import (
    FailedSignOnsList,
    FlappingSubscriberList,
    InterfaceDisconnected,
    InterfaceDisconnectPreview,
    Message,
    PastSessionList,
    RateChanged,
    SessionCounts,
    TimelineEntryList,
)
from gateway_api.web.request import caller
from gateway_api.web.responses import EVENT_STREAM
from gateway_api.web.schemas.queries import (
    FailedSignOnsQuery,
    FailedSignOnsSearch,
    FlappingQuery,
    FlappingSearch,
    HistoryQuery,
    ListSelection,
    Search,
    SubscribersQuery,
    TalkersQuery,
    TimelineQuery,
)
from gateway_api.web.schemas.requests import (
    DisconnectInterface,
    DisconnectInterfaceSchema,
    RateChange,
    RateChangeSchema,
)
from gateway_api.web.services import core, history, user_services
from gateway_contract.base.errors import StillConnected
from gateway_contract.contract import Page
from gateway_contract.core.sessions import (
    EndedSession,
    GetStatistics,
    ListSessions,
    SessionDetail,
    SessionSummary,
)
from gateway_contract.core.traffic import ListTalkers, TalkersReply, TrafficReply, WatchTraffic
from gateway_contract.core_client import ListParts, decode_part
from gateway_contract.events import Ended

subscribers = Blueprint("subscribers", __name__, url_prefix="/api/v1/subscribers")
traffic = Blueprint("traffic", __name__, url_prefix="/api/v1/subscribers")
past = Blueprint("history", __name__, url_prefix="/api/v1/subscribers")


@subscribers.get("", endpoint="index")
@list_operation(
    ListSessions, SubscribersQuery, version=lambda: core().get_sessions_version(), may_have=("ETag",)
)
def list_sessions(query: ListSelection) -> ListParts:
    """All sessions that match the filters, or a page of them."""
    return core().list_sessions(query.filter, query.sort, query.page)


@subscribers.get("/summary")
@operation(ANY_ROLE)
def summary() -> SessionCounts:
    """The number of sessions, by type."""
    counts = core().call(GetStatistics())
    return SessionCounts(counts.active_sessions, counts.pppoe_sessions, counts.dhcp_sessions)


@subscribers.get("/<session:id>")
@operation(ANY_ROLE)
def show(id: int) -> Passed[SessionDetail]:
    """One session with its counters."""
    return Passed(core().get_session(id))


@subscribers.delete("/<session:id>")
@operation(ADMIN)
def disconnect(id: int) -> Message:
    """Disconnects a session. It has ended when the response arrives."""
    audit.note(before=core().disconnect_session(id))
    return Message(f"Session {id} disconnected")


@subscribers.post("/disconnect-by-interface")
@operation(ADMIN, body=DisconnectInterfaceSchema, errors=(404,))
def disconnect_by_interface(body: DisconnectInterface) -> InterfaceDisconnectPreview | InterfaceDisconnected:
    """Ends all sessions on an access interface, or lists them."""
    try:
        sessions = core().disconnect_interface(body.interface, dry_run=body.dry_run)
    except StillConnected as error:
        audit.note(before={"sessions": error.ended})
        raise
    count, verb = len(sessions), "would be disconnected" if body.dry_run else "disconnected"
    message = f"{count} session{'' if count == 1 else 's'} {verb} on {body.interface}"
    if body.dry_run:
        return InterfaceDisconnectPreview(message, count, passed(sessions, SessionSummary))
    audit.note(before={"sessions": [decode_part(EndedSession, session) for session in sessions]})
    return InterfaceDisconnected(message, count)


@subscribers.put("/<session:id>/rate")
@operation(ADMIN, body=RateChangeSchema)
def change_rate(body: RateChange, id: int) -> RateChanged:
    """Requests other rates for a session, on its egress device and its IFB.

    With `expires_in` or `until`, the former rates return by themselves, also after a restart of the core. A
    further change ends an earlier temporary one; if it is temporary too, the rates before the first one
    return.
    """
    before, after = core().set_session_rate(id, **body.parameters)
    audit.note(before=before, after=after)
    rates: dict[str, Any] = {**body.texts, **to_builtins(after)}
    return RateChanged(message=f"Rate change requested for session {id}", **rates)


@traffic.get("/traffic", endpoint="index")
@operation(ANY_ROLE, query=TalkersQuery, compressed=True, errors=(501,))
def list_talkers(query: ListTalkers) -> Passed[TalkersReply]:
    """The sessions with the most traffic now, or the least.

    The core daemon reads the counters of all sessions at most every five seconds, and only while a client
    requests them. The first request after a pause takes a second, in which the counters are read twice.
    """
    return Passed(core().list_talkers(query))


@traffic.get("/<session:id>/traffic")
@operation(
    ANY_ROLE,
    media_type=EVENT_STREAM,
    events={"traffic": TrafficReply, "ended": Ended},
    resumable=False,
    errors=(429, 501),
)
def watch(id: int) -> Response:
    """The traffic of a session each second, as an endless stream of events.

    The rates are the difference of two samples of the counters, divided by the time between them. A client
    that reads slowly gets the newest event next. The stream ends with the token, and with the session: its
    last event is `ended`.

        event: traffic
        data: {"at":1795271513,"interval_ms":1000,"down_bps":5213400,"up_bps":301120,"down_pps":543,...}
    """
    services = user_services()
    core().get_session(id)
    core().require_method(WatchTraffic(id))
    services.traffic.check(id)
    follow = partial(services.traffic.pieces, id=id)
    return responses.stream(lambda address: services.streams.open_with(caller(), address, follow))


@past.get("/history", endpoint="index")
@operation(ANY_ROLE, query=HistoryQuery, compressed=True)
def list_past(query: Search[HistoryFilter]) -> PastSessionList:
    """Sessions that are up or have ended, the newest first, or a page of them."""
    found = history().sessions(query.wanted, query.page)
    cursor = UNSET if query.page is None else found.next_cursor
    return PastSessionList(sessions=tuple(found.records), count=len(found.records), next_cursor=cursor)


@past.get("/<session:id>/timeline")
@operation(ANY_ROLE, query=TimelineQuery, compressed=True)
def timeline(query: Page, id: int) -> TimelineEntryList:
    """The timeline of the subscriber that has or had a session, the newest entry first."""
    found = history().timeline(id, query)
    entries = tuple(found.records)
    return TimelineEntryList(entries=entries, count=len(entries), next_cursor=found.next_cursor)


@past.get("/failed-sign-ons")
@operation(ANY_ROLE, query=FailedSignOnsQuery, compressed=True)
def failed_sign_ons(query: FailedSignOnsSearch) -> FailedSignOnsList:
    """Attempts to sign on that failed, and why, the newest first. Those that follow one another are one
    record."""
    found = history().failed_sign_ons(query.wanted, query.page)
    failures = tuple(found.records)
    return FailedSignOnsList(failures=failures, count=len(failures), next_cursor=found.next_cursor)


@past.get("/flapping")
@operation(ANY_ROLE, query=FlappingQuery, compressed=True)
def flapping(query: FlappingSearch) -> FlappingSubscriberList:
    """The subscribers with the most sessions in a window of time, those with one session left out."""
    found = tuple(history().flapping(query.since, query.until, query.limit))
    return FlappingSubscriberList(subscribers=found, count=len(found))

"""Views of subscribers: sessions, the traffic of sessions, and the history with failed sign-ons."""

from functools import partial
from typing import Any

from flask import Blueprint, Response
from msgspec import UNSET, to_builtins

from gateway_api.history.reader import read_timeline
from gateway_api.history.sessions import HistoryFilter, find_flapping, find_sessions
from gateway_api.history.sign_ons import SignOnFilter, find_failed_sign_ons
from gateway_api.web import audit, records, responses
from gateway_api.web.access import ADMIN, ANY_ROLE
from gateway_api.web.operation import RawJson, cast_records, list_operation, operation
from gateway_api.web.request import get_caller_claims
from gateway_api.web.responses import EVENT_STREAM
from gateway_api.web.schemas import queries, requests
from gateway_api.web.services import core, get_user_services, history
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
    ListSessions,
    queries.SubscribersQuery,
    version=lambda: core().get_sessions_version(),
    optional_headers=("ETag",),
)
def list_sessions(query: queries.ListSelection) -> ListParts:
    """List all sessions that match the filters, or a page of them."""
    return core().list_sessions(query.filter, query.sort, query.page)


@subscribers.get("/summary", endpoint="summary")
@operation(ANY_ROLE)
def count_sessions() -> records.SessionCounts:
    """Count the sessions, by type."""
    counts = core().call(GetStatistics())
    return records.SessionCounts(counts.active_sessions, counts.pppoe_sessions, counts.dhcp_sessions)


@subscribers.get("/<session:id>")
@operation(ANY_ROLE)
def show(id: int) -> RawJson[SessionDetail]:
    """Return a session with its counters."""
    return RawJson(core().get_session(id))


@subscribers.delete("/<session:id>")
@operation(ADMIN)
def disconnect(id: int) -> records.Message:
    """Disconnect a session. The session has ended when the response arrives."""
    audit.note(before=core().disconnect_session(id))
    return records.Message(f"Session {id} disconnected")


@subscribers.post("/disconnect-by-interface")
@operation(ADMIN, body=requests.DisconnectInterfaceSchema, errors=(404,))
def disconnect_by_interface(
    body: requests.DisconnectInterface,
) -> records.InterfaceDisconnectPreview | records.InterfaceDisconnected:
    """Disconnect all sessions on an access interface. A dry run only lists the sessions."""
    try:
        sessions = core().disconnect_interface(body.interface, dry_run=body.dry_run)
    except StillConnected as error:
        audit.note(before={"sessions": error.ended})
        raise
    count, verb = len(sessions), "would be disconnected" if body.dry_run else "disconnected"
    message = f"{count} session{'' if count == 1 else 's'} {verb} on {body.interface}"
    if body.dry_run:
        return records.InterfaceDisconnectPreview(message, count, cast_records(sessions, SessionSummary))
    audit.note(before={"sessions": [decode_part(EndedSession, session) for session in sessions]})
    return records.InterfaceDisconnected(message, count)


@subscribers.put("/<session:id>/rate")
@operation(ADMIN, body=requests.RateChangeSchema)
def change_rate(body: requests.RateChange, id: int) -> records.RateChanged:
    """Request new rates for a session, on its egress device and its IFB.

    With `expires_in` or `until`, the former rates return automatically, also after a restart of the core. A
    new change replaces an earlier temporary change. If the new change is temporary too, the rates before the
    first change return."""
    before, after = core().set_session_rate(id, **body.parameters)
    audit.note(before=before, after=after)
    rates: dict[str, Any] = {**body.texts, **to_builtins(after)}
    return records.RateChanged(message=f"Rate change requested for session {id}", **rates)


@traffic.get("/traffic", endpoint="index")
@operation(ANY_ROLE, query=queries.TalkersQuery, is_compressible=True, errors=(501,))
def list_talkers(query: ListTalkers) -> RawJson[TalkersReply]:
    """List the sessions with the most traffic now, or with the least.

    The core daemon reads the counters of all sessions at most every five seconds, and only while clients
    request this list. The first request after a pause takes a second, in which the core reads the counters
    twice."""
    return RawJson(core().list_talkers(query))


@traffic.get("/<session:id>/traffic")
@operation(
    ANY_ROLE,
    media_type=EVENT_STREAM,
    events={"traffic": TrafficReply, "ended": Ended},
    is_resumable=False,
    errors=(429, 501),
)
def watch(id: int) -> Response:
    """Stream the traffic of a session each second, without an end.

    A rate is the difference between two samples of a counter, divided by the time between the samples. A
    client that reads slowly skips events, and gets the newest event next. The stream ends when the token
    ends, or when the session ends: then the last event is `ended`.

    event: traffic
    data: {"at":1795271513,"interval_ms":1000,"down_bps":5213400,"up_bps":301120,"down_pps":543,...}
    """
    services = get_user_services()
    core().get_session(id)
    core().require_method(WatchTraffic(id))
    services.traffic.check(id)
    follow = partial(services.traffic.follow, id=id)
    return responses.make_stream(
        lambda address: services.streams.open_with(get_caller_claims(), address, follow)
    )


@past.get("/history", endpoint="index")
@operation(ANY_ROLE, query=queries.HistoryQuery, is_compressible=True)
def list_past_sessions(query: queries.Search[HistoryFilter, Page | None]) -> records.PastSessionList:
    """List sessions that are up or have ended, newest first, or a page of them."""
    result = history().search(find_sessions, query.conditions, query.page)
    cursor = UNSET if query.page is None else result.next_cursor
    return records.PastSessionList(
        sessions=tuple(result.records), count=len(result.records), next_cursor=cursor
    )


@past.get("/<session:id>/timeline", endpoint="timeline")
@operation(ANY_ROLE, query=queries.TimelineQuery, is_compressible=True)
def show_timeline(query: Page, id: int) -> records.TimelineEntryList:
    """Return the timeline of the subscriber that has or had a session, newest entry first."""
    result = history().search(read_timeline, id, query)
    entries = tuple(result.records)
    return records.TimelineEntryList(entries=entries, count=len(entries), next_cursor=result.next_cursor)


@past.get("/failed-sign-ons", endpoint="failed_sign_ons")
@operation(ANY_ROLE, query=queries.FailedSignOnsQuery, is_compressible=True)
def list_failed_sign_ons(query: queries.Search[SignOnFilter, Page]) -> records.FailedSignOnsList:
    """List failed sign-ons with their reasons, newest first. Repeated attempts of a subscriber are one
    record."""
    result = history().search(find_failed_sign_ons, query.conditions, query.page)
    failures = tuple(result.records)
    return records.FailedSignOnsList(failures=failures, count=len(failures), next_cursor=result.next_cursor)


@past.get("/flapping", endpoint="flapping")
@operation(ANY_ROLE, query=queries.FlappingQuery, is_compressible=True)
def list_flapping_subscribers(query: dict[str, Any]) -> records.FlappingSubscriberList:
    """List the subscribers with the most sessions in a time window. Subscribers with a single session are
    left out."""
    result = tuple(history().search(find_flapping, query["since"], query["until"], query["limit"]))
    return records.FlappingSubscriberList(subscribers=result, count=len(result))

"""Subscribers: their sessions, which can be disconnected and get other rates; the traffic of these; and their
past, with failed sign-ons."""

from functools import partial
from typing import Any

import msgspec
from flask import Response
from msgspec import UNSET

from gateway_api.base.errors import StillConnected
from gateway_api.core_client.calls import Listed, decoded
from gateway_api.core_client.commands import Daemon
from gateway_api.web import audit, responses
from gateway_api.web.lists import shared
from gateway_api.web.operation import (
    ADMIN,
    ANY_ROLE,
    DELETE,
    EVENT_STREAM,
    GET,
    POST,
    PUT,
    Passed,
    Routes,
    passed,
)
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
    listing,
)
from gateway_api.web.request import caller
from gateway_api.web.schemas.queries import (
    FailedSignOnsQuery,
    FlappingQuery,
    HistoryQuery,
    SubscribersQuery,
    TalkersQuery,
    TimelineQuery,
)
from gateway_api.web.schemas.requests import DisconnectInterface, RateChange
from gateway_api.web.services import daemon, history, services
from gateway_api.wire.core.sessions import (
    EndedSession,
    GetStatistics,
    ListSessions,
    SessionDetail,
    SessionSummary,
    Statistics,
)
from gateway_api.wire.core.traffic import TalkersReply, TrafficReply, WatchTraffic
from gateway_api.wire.events import Ended


def listed(core: Daemon, query: dict[str, Any]) -> Listed:
    """The sessions that match a SubscribersQuery, or a page of them."""
    return core.list_sessions(**query)


def summary(counts: Statistics) -> SessionCounts:
    """The number of sessions, by type."""
    return SessionCounts(counts.active_sessions, counts.pppoe_sessions, counts.dhcp_sessions)


def show(session: msgspec.Raw, id: int) -> Passed[SessionDetail]:
    """One session with its counters."""
    return Passed(session)


def disconnect(id: int) -> Message:
    """Disconnects a session. It has ended when the response arrives."""
    audit.note(before=daemon().disconnect_session(id))
    return Message(f"Session {id} disconnected")


def disconnect_by_interface(body: dict[str, Any]) -> InterfaceDisconnectPreview | InterfaceDisconnected:
    """Ends all sessions on an access interface, or lists them."""
    interface, dry_run = body["interface"], body["dry_run"]
    try:
        sessions = daemon().disconnect_interface(interface, dry_run=dry_run)
    except StillConnected as error:
        audit.note(before={"sessions": error.ended})
        raise
    count, verb = len(sessions), "would be disconnected" if dry_run else "disconnected"
    message = f"{count} session{'' if count == 1 else 's'} {verb} on {interface}"
    if dry_run:
        return InterfaceDisconnectPreview(message, count, passed(sessions, SessionSummary))
    audit.note(before={"sessions": [decoded(EndedSession, session) for session in sessions]})
    return InterfaceDisconnected(message, count)


def change_rate(body: dict[str, Any], id: int) -> RateChanged:
    """Requests other rates for a session, on its egress device and its IFB.

    With `expires_in` or `until`, the former rates return by themselves, also after a restart of the core. A
    further change ends an earlier temporary one; if it is temporary too, the rates before the first one
    return.
    """
    before, after = daemon().set_session_rate(id, **body["change"])
    audit.note(before=before, after=after)
    return RateChanged.of(f"Rate change requested for session {id}", body["sent"], after)


def list_talkers(talkers: msgspec.Raw, query: dict[str, Any]) -> Passed[TalkersReply]:
    """The sessions with the most traffic now, or the least.

    The core daemon reads the counters of all sessions at most every five seconds, and only while a client
    requests them. The first request after a pause takes a second, in which the counters are read twice.
    """
    return Passed(talkers)


def watch(id: int) -> Response:
    """The traffic of a session each second, as an endless stream of events.

    The rates are the difference of two samples of the counters, divided by the time between them. A client
    that reads slowly gets the newest event next. The stream ends with the token, and with the session: its
    last event is `ended`.

        event: traffic
        data: {"at":1795271513,"interval_ms":1000,"down_bps":5213400,"up_bps":301120,"down_pps":543,...}
    """
    parts = services()
    daemon().session(id)
    daemon().require(WatchTraffic(id))
    parts.traffic.check(id)
    follow = partial(parts.traffic.pieces, id=id)
    return responses.stream(lambda address: parts.streams.open_with(caller(), address, follow))


def list_past(query: dict[str, Any]) -> PastSessionList:
    """Sessions that are up or have ended, the newest first, or a page of them."""
    found = history().sessions(**query)
    cursor = UNSET if query["page"] is None else found.next_cursor
    return PastSessionList(sessions=tuple(found.records), count=len(found.records), next_cursor=cursor)


def timeline(query: dict[str, Any], id: int) -> TimelineEntryList:
    """The timeline of the subscriber that has or had a session, the newest entry first."""
    found = history().timeline(id, **query)
    entries = tuple(found.records)
    return TimelineEntryList(entries=entries, count=len(entries), next_cursor=found.next_cursor)


def failed_sign_ons(query: dict[str, Any]) -> FailedSignOnsList:
    """Attempts to sign on that failed, and why, the newest first. Those that follow one another are one
    record."""
    found = history().failed_sign_ons(**query)
    failures = tuple(found.records)
    return FailedSignOnsList(failures=failures, count=len(failures), next_cursor=found.next_cursor)


def flapping(query: dict[str, Any]) -> FlappingSubscriberList:
    """The subscribers with the most sessions in a window of time, those with one session left out."""
    found = tuple(history().flapping(**query))
    return FlappingSubscriberList(subscribers=found, count=len(found))


routes = Routes(
    "subscribers",
    "/api/v1/subscribers",
    shared(
        "",
        SubscribersQuery,
        listed,
        "All sessions that match the filters, or a page of them.",
        version=Daemon.sessions_version,
        data=(listing(ListSessions),),
        may_have=("ETag",),
    ),
    GET("/summary", summary, ANY_ROLE, read=lambda core: core.reply(GetStatistics())),
    GET("/<session:id>", show, ANY_ROLE, read=lambda core, id: core.session(id)),
    DELETE("/<session:id>", disconnect, ADMIN),
    POST("/disconnect-by-interface", disconnect_by_interface, ADMIN, body=DisconnectInterface, errors=(404,)),
    PUT("/<session:id>/rate", change_rate, ADMIN, body=RateChange),
)
traffic = Routes(
    "traffic",
    "/api/v1/subscribers",
    GET(
        "/traffic",
        list_talkers,
        ANY_ROLE,
        name="index",
        query=TalkersQuery,
        read=lambda core, query: core.talkers(query),
        compressed=True,
        errors=(501,),
    ),
    GET(
        "/<session:id>/traffic",
        watch,
        ANY_ROLE,
        media_type=EVENT_STREAM,
        events={"traffic": TrafficReply, "ended": Ended},
        resumable=False,
        errors=(429, 501),
    ),
)
past = Routes(
    "history",
    "/api/v1/subscribers",
    GET("/history", list_past, ANY_ROLE, "index", query=HistoryQuery, compressed=True),
    GET("/<session:id>/timeline", timeline, ANY_ROLE, query=TimelineQuery, compressed=True),
    GET("/failed-sign-ons", failed_sign_ons, ANY_ROLE, query=FailedSignOnsQuery, compressed=True),
    GET("/flapping", flapping, ANY_ROLE, query=FlappingQuery, compressed=True),
)

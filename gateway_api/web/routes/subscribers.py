"""Subscriber sessions: list, inspect, disconnect, change their rates."""

from typing import Any

from flask import Blueprint, Response

from gateway_api.base.errors import StillConnected
from gateway_api.core_client.calls import decoded
from gateway_api.core_client.commands import Daemon
from gateway_api.web import access, audit, lists, parse, responses
from gateway_api.web.records import (
    InterfaceDisconnected,
    InterfaceDisconnectPreview,
    Message,
    RateChanged,
    SessionCounts,
    listing,
)
from gateway_api.web.schemas.queries import SubscribersQuery
from gateway_api.web.schemas.requests import DisconnectInterface, RateChange
from gateway_api.web.services import author, daemon
from gateway_api.wire.core.sessions import EndedSession, GetStatistics, ListSessions, SessionDetail

routes = Blueprint("subscribers", __name__, url_prefix="/api/v1/subscribers")


@routes.get("")
@access.any_role
@access.together
@responses.data(listing(ListSessions), optional=("ETag",))
@lists.query(SubscribersQuery, Daemon.sessions_version)
def index(query: dict[str, Any]) -> Response:
    """All sessions that match the filters, or a page of them."""
    return responses.listed(daemon().list_sessions(**query))


@routes.get("/summary")
@access.any_role
@access.together
@responses.data(SessionCounts)
def summary() -> Response:
    """The number of sessions, by type."""
    counts = daemon().reply(GetStatistics())
    return responses.ok(SessionCounts(counts.active_sessions, counts.pppoe_sessions, counts.dhcp_sessions))


@routes.get("/<session:id>")
@access.any_role
@access.together
@responses.data(SessionDetail)
def show(id: str) -> Response:
    """One session with its counters."""
    return responses.ok(daemon().session(parse.session_id(id)))


@routes.delete("/<session:id>")
@access.admin
@responses.data(Message)
def disconnect(id: str) -> Response:
    """Disconnects a session. It has ended when the response arrives."""
    session = parse.session_id(id)
    audit.note(before=daemon().disconnect_session(session, author()))
    return responses.ok(Message(f"Session {session} disconnected"))


@routes.post("/disconnect-by-interface")
@access.admin
@responses.data(InterfaceDisconnectPreview, InterfaceDisconnected, errors=(404,))
@parse.body(DisconnectInterface)
def disconnect_by_interface(body: dict[str, Any]) -> Response:
    """Ends all sessions on an access interface, or lists them."""
    interface, dry_run = body["interface"], body["dry_run"]
    try:
        sessions = daemon().disconnect_interface(interface, dry_run=dry_run, author=author())
    except StillConnected as error:
        audit.note(before={"sessions": error.ended})
        raise
    if not dry_run:
        audit.note(before={"sessions": [decoded(EndedSession, session) for session in sessions]})
    count, verb = len(sessions), "would be disconnected" if dry_run else "disconnected"
    message = f"{count} session{'' if count == 1 else 's'} {verb} on {interface}"
    return responses.ok({"message": message, "count": count, **({"sessions": sessions} if dry_run else {})})


@routes.put("/<session:id>/rate")
@access.admin
@responses.data(RateChanged)
@parse.body(RateChange)
def change_rate(body: dict[str, Any], id: str) -> Response:
    """Requests other rates for a session, on its egress device and its IFB.

    With `expires_in` or `until`, the former rates return by themselves, also after a restart of the core. A
    further change ends an earlier temporary one; if it is temporary too, the rates before the first one
    return.
    """
    session = parse.session_id(id)
    before, after = daemon().set_session_rate(session, **body["change"], author=author())
    audit.note(before=before, after=after)
    message = f"Rate change requested for session {session}"
    return responses.ok(RateChanged.of(message, body["sent"], after))

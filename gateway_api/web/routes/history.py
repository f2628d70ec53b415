"""What happened to subscribers: their sessions, also those that have ended, and failed sign-ons."""

from typing import Any

from flask import Blueprint, Response

from gateway_api.web import access, parse, responses
from gateway_api.web.history_records import (
    FailedSignOnsList,
    FlappingSubscriberList,
    PastSessionList,
    TimelineEntryList,
)
from gateway_api.web.schemas.history import FailedSignOnsQuery, FlappingQuery, HistoryQuery, TimelineQuery
from gateway_api.web.services import history

routes = Blueprint("history", __name__, url_prefix="/api/v1/subscribers")


@routes.get("/history")
@access.any_role
@responses.data(PastSessionList)
@parse.query(HistoryQuery)
def index(query: dict[str, Any]) -> Response:
    """Sessions that are up or have ended, the newest first, or a page of them."""
    found = history().sessions(**query)
    paged = {} if query["page"] is None else {"next_cursor": found.next_cursor}
    return responses.ok({"sessions": found.sessions, "count": len(found.sessions), **paged})


@routes.get("/<session:id>/timeline")
@access.any_role
@responses.data(TimelineEntryList)
@parse.query(TimelineQuery)
def timeline(query: dict[str, Any], id: str) -> Response:
    """What happened to the subscriber that has or had a session, the newest first."""
    found = history().timeline(parse.session_id(id), **query)
    return responses.ok(found._asdict() | {"count": len(found.entries)})


@routes.get("/failed-sign-ons")
@access.any_role
@responses.data(FailedSignOnsList)
@parse.query(FailedSignOnsQuery)
def failed_sign_ons(query: dict[str, Any]) -> Response:
    """Attempts to sign on that failed, and why, the newest first. Those that follow one another are one
    record."""
    found = history().failed_sign_ons(**query)
    return responses.ok(found._asdict() | {"count": len(found.failures)})


@routes.get("/flapping")
@access.any_role
@responses.data(FlappingSubscriberList)
@parse.query(FlappingQuery)
def flapping(query: dict[str, Any]) -> Response:
    """The subscribers with the most sessions in a window of time, those with one session left out."""
    found = history().flapping(**query)
    return responses.ok({"subscribers": found, "count": len(found)})

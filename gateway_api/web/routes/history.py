"""The past of subscribers: their sessions, also those that have ended, and failed sign-ons."""

from typing import Any

from msgspec import UNSET

from gateway_api.web.operation import ANY_ROLE, GET, Routes
from gateway_api.web.records import (
    FailedSignOnsList,
    FlappingSubscriberList,
    PastSessionList,
    TimelineEntryList,
)
from gateway_api.web.schemas.queries import FailedSignOnsQuery, FlappingQuery, HistoryQuery, TimelineQuery
from gateway_api.web.services import history


def index(query: dict[str, Any]) -> PastSessionList:
    """Sessions that are up or have ended, the newest first, or a page of them."""
    found = history().sessions(**query)
    cursor = UNSET if query["page"] is None else found.next_cursor
    return PastSessionList(sessions=tuple(found.records), count=len(found.records), next_cursor=cursor)


def timeline(query: dict[str, Any], id: int) -> TimelineEntryList:
    """What happened to the subscriber that has or had a session, the newest first."""
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
    "history",
    "/api/v1/subscribers",
    GET("/history", index, ANY_ROLE, query=HistoryQuery),
    GET("/<session:id>/timeline", timeline, ANY_ROLE, query=TimelineQuery),
    GET("/failed-sign-ons", failed_sign_ons, ANY_ROLE, query=FailedSignOnsQuery),
    GET("/flapping", flapping, ANY_ROLE, query=FlappingQuery),
)

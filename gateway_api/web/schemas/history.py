"""Schemas of queries about the history of sessions."""

from typing import Any

from marshmallow import post_load, validate

from gateway_api.base.fields import Schema, Text, says
from gateway_api.history.record import Wanted, WantedFailures
from gateway_api.web.schemas.queries import (
    ListQuery,
    SessionConditions,
    cursor,
    mac,
    most,
    seconds,
    session_type,
    time,
)
from gateway_api.wire.contract import Page

_LONGEST_STEP = 86_400


def _search(description: str) -> Text:
    rule = validate.Length(1, 256, error="must have 1 to 256 characters")
    return Text(validate=rule, metadata=says(description, "000006"))


class HistoryQuery(SessionConditions, ListQuery):
    """Filters of the history of sessions, all of which must hold, loaded as `wanted`."""

    at = time("Sessions that were up then.", "2026-03-01T18:00:00Z")
    since = time("Sessions that were up then or later.", "1795271513")
    until = time("Sessions that started before then.", "1795275113")
    reason = Text(metadata=says("Sessions that ended for this reason only.", "lost_carrier"))
    search = _search(
        "Part of a username or of the name of an interface, in any case, or of a MAC address in any "
        "spelling; or an IPv4 address or prefix."
    )

    def _rest(self, data: dict[str, Any]) -> dict[str, Any]:
        return {"wanted": Wanted(**data)}


class TimelineQuery(Schema):
    """Loaded as `page`."""

    limit = most("Most entries of a page.", load_default=100)
    cursor = cursor()

    @post_load
    def _shaped(self, data: dict[str, Any], **_: Any) -> dict[str, Any]:
        return {"page": Page(data["limit"], data.get("cursor"))}


class FailedSignOnsQuery(Schema):
    """Filters of failed sign-ons, all of which must hold, loaded as `wanted`, and `page`."""

    limit = most("Most records of a page.", load_default=100)
    cursor = cursor()
    type = session_type("Sign-ons for sessions of this type only.")
    username = Text(metadata=says("With this login only.", "subscriber000006@lab.example"))
    mac_address = mac()
    interface = Text(metadata=says("On this access interface only.", "trunk0.1001"))
    reason = Text(metadata=says("That failed for this reason only.", "rejected"))
    since = time("Sign-ons that failed then or later.", "1795271513")
    until = time("Sign-ons that began to fail before then.", "1795275113")
    search = _search(
        "Part of a username or of the name of an access interface, in any case, or of a MAC address in any "
        "spelling."
    )

    @post_load
    def _shaped(self, data: dict[str, Any], **_: Any) -> dict[str, Any]:
        page = Page(data.pop("limit"), data.pop("cursor", None))
        return {"wanted": WantedFailures(**data), "page": page}


class FlappingQuery(Schema):
    """A window of time. `until` is None for now, and `since` None for a day before it."""

    since = time("Start of the window, a day before its end if none.", "1795185113", load_default=None)
    until = time("End of the window, now if none.", "1795271513", load_default=None)
    limit = most("Most subscribers.", load_default=20)


class NetworkTrafficQuery(Schema):
    """A span of time. `until` is None for now, and `since` None for an hour before it."""

    since = time("Start of the span, an hour before its end if none.", "1795271513", load_default=None)
    until = time("End of the span, now if none.", "1795275113", load_default=None)
    step = seconds(
        "Length of a step in seconds; 10, or more for at most 360 steps, if none.",
        300,
        _LONGEST_STEP,
        load_default=None,
    )

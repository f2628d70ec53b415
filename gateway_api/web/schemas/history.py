"""Schemas of queries about the history of sessions."""

from time import time as now
from typing import Any

from marshmallow import post_load, validate

from gateway_api.base.fields import Schema, TextField, says
from gateway_api.history.sessions import HistoryFilter
from gateway_api.history.sign_ons import WantedFailures
from gateway_api.web.schemas.queries import (
    ListQuery,
    SessionConditions,
    cursor,
    mac,
    most,
    session_type,
    time,
    up_to,
)
from gateway_api.wire.contract import Page

_LONGEST_STEP = 86_400


def _search(description: str) -> TextField:
    rule = validate.Length(1, 256, error="must have 1 to 256 characters")
    return TextField(validate=rule, metadata=says(description, "000006"))


class HistoryQuery(SessionConditions, ListQuery):
    """Filters of the history of sessions, all of which must hold, loaded as `wanted`."""

    at = time("Sessions that were up then.", "2026-03-01T18:00:00Z")
    since = time("Sessions that were up then or later.", "1795271513")
    until = time("Sessions that started before then.", "1795275113")
    reason = TextField(metadata=says("Sessions that ended for this reason only.", "lost_carrier"))
    search = _search(
        "Part of a username or of the name of an interface, in any case, or of a MAC address in any "
        "spelling; or an IPv4 address or prefix."
    )

    def _rest(self, data: dict[str, Any]) -> dict[str, Any]:
        return {"wanted": HistoryFilter(**data)}


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
    username = TextField(metadata=says("With this login only.", "subscriber000006@lab.example"))
    mac_address = mac()
    interface = TextField(metadata=says("On this access interface only.", "trunk0.1001"))
    reason = TextField(metadata=says("That failed for this reason only.", "rejected"))
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


class _WindowQuery(Schema):
    """A window of time, loaded with both its ends."""

    #: Seconds of a window whose start is not given.
    usual: int

    until = time("End of the window, now if none.", "1795275113")

    @post_load
    def _bounded(self, data: dict[str, Any], **_: Any) -> dict[str, Any]:
        until = data.get("until", now())
        return {"since": until - self.usual, **data, "until": until}


class FlappingQuery(_WindowQuery):
    usual = 86_400

    since = time("Start of the window, a day before its end if none.", "1795185113")
    limit = most("Most subscribers.", load_default=20)


class NetworkTrafficQuery(_WindowQuery):
    usual = 3600

    since = time("Start of the window, an hour before its end if none.", "1795271513")
    step = up_to(
        _LONGEST_STEP, "Length of a step in seconds; 10, or more for at most 360 steps, if none.", 300
    )

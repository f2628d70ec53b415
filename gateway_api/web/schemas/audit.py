"""The audit log: what is asked of it, and its records as they go."""

from datetime import datetime
from typing import Any

from marshmallow import validate
from marshmallow.fields import Float, Raw

from gateway_api.audit.record import RESULTS
from gateway_api.audit.trail import Filter
from gateway_api.base.fields import Parsed, Text, Whole
from gateway_api.web.schemas.describe import says
from gateway_api.web.schemas.queries import ListQuery
from gateway_api.web.schemas.records import Record


def _time(text: str) -> float:
    try:
        if text.isascii() and text.replace(".", "", 1).isdigit() and len(text) <= 20:
            return float(text)
        at = datetime.fromisoformat(text)
        if at.tzinfo is not None:
            return at.timestamp()
    except (ValueError, OverflowError) as error:
        raise ValueError(_TIME_RULE) from error
    raise ValueError(_TIME_RULE)


_TIME_RULE = "must be epoch seconds, or a time with its offset such as 2026-03-01T12:00:00Z"
_TIMES = "Unix epoch seconds, or ISO 8601 with its offset."


class AuditQuery(ListQuery):
    """Filters, all of which must hold, loaded as `wanted`."""

    user = Text(metadata=says("Who did it.", "admin"))
    action = Text(metadata=says("What was done, as records name it.", "subscribers.change_rate"))
    route = Text(metadata=says("Path with names for what differs.", "/api/v1/subscribers/{id}/rate"))
    result = Text(
        validate=validate.OneOf(RESULTS, error="must be one of {choices}"),
        metadata=says("What came of it.", "done"),
    )
    since = Parsed(_time, metadata=says(f"Records from then on. {_TIMES}", "2026-03-01T00:00:00Z"))
    until = Parsed(_time, metadata=says(f"Records before then. {_TIMES}", "1795271513"))

    def _rest(self, data: dict[str, Any]) -> dict[str, Any]:
        return {"wanted": Filter(**data)}


class AuditRecord(Record):
    id = Text(metadata=says("Name of the record.", "known-4711"))
    at = Float(metadata=says("When, Unix epoch seconds.", 1795271513.25))
    user = Text(allow_none=True, metadata=says("Who; without a role, who it claimed to be.", "admin"))
    role = Text(
        allow_none=True,
        validate=validate.OneOf(("admin", "operator", "system")),
        metadata=says(
            "Role of the user, null for nobody; system for a process at the core's socket, or the core.",
            "admin",
        ),
    )
    address = Text(
        allow_none=True,
        metadata=says("Where the request came from, null for a change at the core's socket.", "192.0.2.7"),
    )
    request_id = Text(metadata=says("X-Request-ID of the answer, or the change at the core.", "req-42"))
    method = Text(metadata=says("HTTP method, empty without a request.", "PUT"))
    action = Text(metadata=says("What was asked for.", "subscribers.change_rate"))
    route = Text(
        allow_none=True,
        metadata=says("Path with names for what differs.", "/api/v1/subscribers/{id}/rate"),
    )
    path = Text(metadata=says("Path as it was sent, empty without a request.", "/api/v1/subscribers/7/rate"))
    status = Whole(
        allow_none=True, metadata=says("HTTP status, null when it broke off, or without a request.", 200)
    )
    result = Text(validate=validate.OneOf(RESULTS), metadata=says("What came of it.", "done"))
    message = Text(
        allow_none=True,
        metadata=says("What the answer said.", "Rate change requested for session 7"),
    )
    body = Raw(
        allow_none=True,
        metadata=says("What was sent, secrets masked.", {"rate_down": "250 Mbit", "rate_up": "50mbps"}),
    )
    before = Raw(allow_none=True, metadata=says("What was, secrets masked.", {"rate_down_bps": 100_000_000}))
    after = Raw(
        allow_none=True, metadata=says("What is now, secrets masked.", {"rate_down_bps": 250_000_000})
    )

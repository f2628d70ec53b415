"""Queries of the audit log."""

from datetime import datetime
from typing import Any

from marshmallow import validate

from gateway_api.audit.record import RESULTS
from gateway_api.audit.trail import Filter
from gateway_api.base.fields import Parsed, Text
from gateway_api.web.schemas.describe import says
from gateway_api.web.schemas.queries import ListQuery


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

"""The audit log: what is asked of it, and its records as they go."""

from datetime import datetime
from typing import Any

from marshmallow import validate
from marshmallow.fields import Float, Raw

from gateway_api.audit.reader import Wanted
from gateway_api.audit.record import RESULTS
from gateway_api.validation import Parsed, Text, Whole
from gateway_api.web.schemas.records import Record
from gateway_api.web.schemas.requests import ListQuery


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


class AuditQuery(ListQuery):
    """Filters, all of which must hold, loaded as `wanted`."""

    user = Text()
    action = Text()
    route = Text()
    result = Text(validate=validate.OneOf(RESULTS, error="must be one of {choices}"))
    since = Parsed(_time)
    until = Parsed(_time)

    def _rest(self, data: dict[str, Any]) -> dict[str, Any]:
        return {"wanted": Wanted(**data)}


class AuditRecord(Record):
    id = Text()
    at = Float()
    user = Text(allow_none=True)
    role = Text(allow_none=True, validate=validate.OneOf(("admin", "operator")))
    address = Text(allow_none=True)
    request_id = Text()
    method = Text()
    action = Text()
    route = Text(allow_none=True)
    path = Text()
    status = Whole(allow_none=True)
    result = Text(validate=validate.OneOf(RESULTS))
    message = Text(allow_none=True)
    body = Raw(allow_none=True)
    before = Raw(allow_none=True)
    after = Raw(allow_none=True)

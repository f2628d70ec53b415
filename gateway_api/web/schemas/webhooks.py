"""Records of webhooks, as they go."""

from marshmallow import validate
from marshmallow.fields import Float, List, Nested

from gateway_api.validation import Text, Whole
from gateway_api.web.schemas.records import Record

_COUNT = validate.Range(min=0)


class Webhook(Record):
    id = Text()
    url = Text()
    events = List(Text(validate=validate.OneOf(("session.up", "session.down"))))


class Delivery(Record):
    message_id = Text()
    event = Text()
    attempt = Whole(validate=_COUNT)
    result = Text(validate=validate.OneOf(("delivered", "failed", "skipped", "dropped")))
    status = Whole(allow_none=True)
    error = Text(allow_none=True)
    started_at = Float(allow_none=True)
    duration = Float(allow_none=True)
    next_attempt_at = Float(allow_none=True)
    dropped = Whole(validate=_COUNT)


class Webhooks(Record):
    webhooks = List(Nested(Webhook))
    count = Whole(validate=_COUNT)


class Deliveries(Record):
    deliveries = List(Nested(Delivery))
    count = Whole(validate=_COUNT)


class TestSent(Record):
    message = Text()
    message_id = Text()

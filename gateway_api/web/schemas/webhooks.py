"""Records of webhooks, as they go."""

from marshmallow import validate
from marshmallow.fields import Float, List, Nested

from gateway_api.base.fields import Text, Whole
from gateway_api.web.schemas.describe import says
from gateway_api.web.schemas.records import COUNT, Record

_MESSAGE_ID = says("Same for every attempt of a message.", "84a7e8343baf37f9-57")
_PAUSED_UNTIL = (
    "Set while the receiver is paused, because it failed in a row: when one message is sent to it, or the "
    "next one to come after that, Unix epoch seconds. Null otherwise."
)


class Webhook(Record):
    id = Text(metadata=says("Webhook id, given by the service.", "wh_0123456789abcdef"))
    url = Text(metadata=says("Where events are posted to.", "https://noc.example/hook"))
    events = List(
        Text(validate=validate.OneOf(("session.up", "session.down"))),
        metadata=says("Events that it gets.", ["session.up", "session.down"]),
    )
    paused_until = Float(allow_none=True, metadata=says(_PAUSED_UNTIL, None))


class Delivery(Record):
    message_id = Text(metadata=_MESSAGE_ID)
    event = Text(metadata=says("Event name.", "session.up"))
    attempt = Whole(validate=COUNT, metadata=says("Number of the attempt, from 1 on; 0 for none.", 1))
    result = Text(
        validate=validate.OneOf(("delivered", "failed", "skipped", "dropped")),
        metadata=says("What came of it.", "delivered"),
    )
    status = Whole(allow_none=True, metadata=says("HTTP status of the receiver, null without one.", 204))
    error = Text(allow_none=True, metadata=says("Why it failed, null when it didn't.", None))
    started_at = Float(allow_none=True, metadata=says("When it began, Unix epoch seconds.", 1795271513.25))
    duration = Float(allow_none=True, metadata=says("How long it took, seconds.", 0.012))
    next_attempt_at = Float(
        allow_none=True, metadata=says("When it is tried again, Unix epoch seconds; null for never.", None)
    )
    paused_until = Float(
        allow_none=True,
        metadata=says(
            "Until when its failure paused the receiver, Unix epoch seconds; null if it didn't.", None
        ),
    )
    dropped = Whole(validate=COUNT, metadata=says("Messages dropped, since too many waited.", 0))


class Webhooks(Record):
    webhooks = List(Nested(Webhook), metadata={"description": "All registrations, the oldest first."})
    count = Whole(validate=COUNT, metadata=says("How many there are.", 1))


class Deliveries(Record):
    deliveries = List(Nested(Delivery), metadata={"description": "Attempts, the newest first."})
    count = Whole(validate=COUNT, metadata=says("How many there are.", 1))


class TestSent(Record):
    message = Text(metadata=says("What was done, for people.", "A test is under way"))
    message_id = Text(metadata=_MESSAGE_ID)

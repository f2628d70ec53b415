"""What else than a query or a body a request may have, for the OpenAPI document."""

from marshmallow import validate

from gateway_api.base.fields import Schema, Text, Whole
from gateway_api.web.schemas.describe import says


class PathParameters(Schema):
    """What paths have places for."""

    id = Whole(required=True, validate=validate.Range(1, (1 << 63) - 1), metadata=says("Session id.", 7))
    revision = Whole(
        required=True,
        validate=validate.Range(1),
        metadata=says("Number in the archive, 1 being the newest.", 1),
    )
    webhook = Text(required=True, metadata=says("Webhook id.", "wh_0123456789abcdef"))


#: An entity tag (RFC 9110 section 8.8.3), and a list of at least one (section 5.6.1).
TAG = r'(?:W/)?"[!#-~\x80-\xff]*"'
TAGS = rf"[ \t,]*{TAG}(?:[ \t]*,[ \t,]*{TAG})*[ \t,]*"


class RequestHeaders(Schema):
    """What some requests may say in their head."""

    if_match = Text(
        data_key="If-Match",
        metadata=says(
            "Entity tag that the configuration must still have, or the answer is 412; `*` is any "
            "(RFC 9110 section 13.1.1).",
            "*",
            pattern=rf"^(?:[ \t]*\*[ \t]*|{TAGS})$",
        ),
    )
    if_none_match = Text(
        data_key="If-None-Match",
        metadata=says(
            "Entity tag that the client has: while it is right, the response is 304 "
            "(RFC 9110 section 13.1.2).",
            '"2f9c1a7be0d4"',
        ),
    )
    last_event_id = Text(
        data_key="Last-Event-ID",
        metadata=says(
            "Id of the last event that was seen: what came after it, comes.", "84a7e8343baf37f9-57"
        ),
    )


class DeliveryHeaders(Schema):
    """What identifies and signs an attempt (Standard Webhooks)."""

    webhook_id = Text(
        data_key="webhook-id",
        required=True,
        metadata=says("Same for every attempt of a message.", "84a7e8343baf37f9-57"),
    )
    webhook_timestamp = Text(
        data_key="webhook-timestamp",
        required=True,
        metadata=says("When it was sent, Unix epoch seconds.", "1795271513"),
    )
    webhook_signature = Text(
        data_key="webhook-signature",
        metadata=says("`v1,` and the HMAC-SHA256 in base64, where there is a secret.", "v1,K5oZfzN95Z9UVu1E"),
    )

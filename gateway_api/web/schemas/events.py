"""Events as they go: in the stream, and to webhooks."""

from marshmallow import validate
from marshmallow.fields import Nested

from gateway_api.base.fields import Schema, Text, Whole
from gateway_api.web.schemas.describe import says
from gateway_api.web.schemas.records import ADDRESS, COUNT, MAC, SESSION_TYPE, Answer, Record

_REASON = (
    "Why it ended: `user_request`, `admin_disconnect`, `session_timeout`, `idle_timeout`, or another "
    "Acct-Terminate-Cause of RFC 2866 in snake_case."
)


_AT = Whole(validate=COUNT, metadata=says("When it happened, Unix epoch seconds.", 1795271513))
_MAC = Text(validate=MAC, metadata=says("MAC address of the subscriber.", "02:00:00:00:00:06"))
_ACCESS = Text(metadata=says("Interface that the session arrived on.", "trunk0.1001"))


class SessionUp(Record):
    id = Whole(metadata=says("Session id.", 7))
    type = Text(validate=SESSION_TYPE, metadata=says("Session type.", "PPPoE"))
    username = Text(metadata=says("Subscriber login.", "subscriber000006@lab.example"))
    ip_address = Text(validate=ADDRESS, metadata=says("Assigned address.", "100.64.0.5", format="ipv4"))
    at, mac_address, access_interface = _AT, _MAC, _ACCESS


class SessionDown(Record):
    id = Whole(metadata=says("Session id.", 7))
    username = Text(metadata=says("Subscriber login.", "subscriber000006@lab.example"))
    reason = Text(metadata=says(_REASON, "user_request"))
    at, mac_address, access_interface = _AT, _MAC, _ACCESS
    bytes_in = Whole(validate=COUNT, metadata=says("Bytes from the subscriber.", 117155058))
    bytes_out = Whole(validate=COUNT, metadata=says("Bytes to the subscriber.", 585775294))
    duration_seconds = Whole(validate=COUNT, metadata=says("How long it lasted, seconds.", 3600))


class Gap(Record):
    oldest = Text(metadata=says("Id of the oldest event that is held.", "84a7e8343baf37f9-1"))
    newest = Text(metadata=says("Id of the newest event that is held.", "84a7e8343baf37f9-57"))


class SessionUpOnInterface(SessionUp):
    interface = Text(metadata=says("Interface of the session.", "ppp5"))


class Nothing(Answer):
    """No fields at all."""


class _Delivery(Record):
    timestamp = Text(
        metadata=says("When it happened, ISO 8601 in UTC.", "2026-03-01T12:00:00Z", format="date-time")
    )


class SessionUpDelivery(_Delivery):
    event = Text(validate=validate.Equal("session.up"), metadata=says("Event name.", "session.up"))
    data = Nested(SessionUpOnInterface)


class SessionDownDelivery(_Delivery):
    event = Text(validate=validate.Equal("session.down"), metadata=says("Event name.", "session.down"))
    data = Nested(SessionDown)


class TestDelivery(_Delivery):
    event = Text(validate=validate.Equal("webhook.test"), metadata=says("Event name.", "webhook.test"))
    data = Nested(Nothing)


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

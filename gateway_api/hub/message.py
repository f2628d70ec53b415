"""What a receiver gets: the body of an event, and the headers that go with it."""

import base64
import binascii
import hashlib
import hmac
import secrets
from dataclasses import dataclass
from datetime import UTC, datetime

import msgspec

from gateway_api.wire.core.gateway import EventName, SessionEvent
from gateway_api.wire.events import (
    Empty,
    SessionDown,
    SessionDownDelivery,
    SessionUpDelivery,
    SessionUpOnInterface,
    TestDelivery,
    data_of,
)

NAMES = ("session.up", "session.down")

_PREFIX = "whsec_"


@dataclass(frozen=True, slots=True)
class Message:
    """`id` is the same for every attempt, `body` the same bytes."""

    id: str
    event: str
    body: bytes


def message_of(boot_id: str, event: SessionEvent) -> Message:
    """The message about an event of the core."""
    made: SessionUpDelivery | SessionDownDelivery
    if event.event == EventName.UP:
        made = SessionUpDelivery("session.up", _time(event.at), data_of(event, SessionUpOnInterface))
    else:
        made = SessionDownDelivery("session.down", _time(event.at), data_of(event, SessionDown))
    return Message(f"{boot_id}-{event.sequence}", made.event, msgspec.json.encode(made))


def test_message(now: float) -> Message:
    """One that shows whether a receiver receives."""
    made = TestDelivery("webhook.test", _time(int(now)), Empty())
    return Message(f"test-{secrets.token_hex(8)}", made.event, msgspec.json.encode(made))


def headers(message: Message, secret: str | None, now: float) -> dict[str, str]:
    """What identifies and signs an attempt (Standard Webhooks). `now` is epoch seconds."""
    made = {"webhook-id": message.id, "webhook-timestamp": str(int(now))}
    if secret is not None:
        signed = f"{message.id}.{int(now)}.".encode() + message.body
        digest = hmac.new(key_of(secret), signed, hashlib.sha256).digest()
        made["webhook-signature"] = f"v1,{base64.b64encode(digest).decode()}"
    return made


def key_of(secret: str) -> bytes:
    """The key in a secret: base64 of 24 to 64 bytes, `whsec_` before it or not. Raises ValueError with the
    rule."""
    try:
        key = base64.b64decode(secret.removeprefix(_PREFIX), validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if not 24 <= len(key) <= 64:
        raise ValueError("must be base64 of 24 to 64 bytes, with whsec_ before it or without")
    return key


def _time(at: int) -> str:
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%dT%H:%M:%SZ}"

"""Messages to webhooks: their bodies, and the headers of Standard Webhooks that identify and sign them."""

import base64
import hashlib
import hmac
import secrets
from dataclasses import dataclass

import msgspec

from gateway_api.base.receivers import key_of
from gateway_api.base.texts import utc_text
from gateway_api.wire.contract import record_of
from gateway_api.wire.core.sessions import EventName, SessionEvent
from gateway_api.wire.events import (
    Empty,
    SessionDown,
    SessionDownDelivery,
    SessionUpDelivery,
    SessionUpOnInterface,
    TestDelivery,
)


@dataclass(frozen=True, slots=True)
class WebhookMessage:
    """Every attempt sends the same `id` and the same `body`."""

    id: str
    event: str
    body: bytes


def message_of(boot_id: str, event: SessionEvent) -> WebhookMessage:
    """The message about an event."""
    made: SessionUpDelivery | SessionDownDelivery
    if event.event == EventName.UP:
        made = SessionUpDelivery("session.up", utc_text(event.at), record_of(SessionUpOnInterface, event))
    else:
        made = SessionDownDelivery("session.down", utc_text(event.at), record_of(SessionDown, event))
    return WebhookMessage(f"{boot_id}-{event.sequence}", made.event, msgspec.json.encode(made))


def test_message(now: float) -> WebhookMessage:
    """A message that shows whether the receiver can be reached. `now` is epoch seconds."""
    made = TestDelivery("webhook.test", utc_text(int(now)), Empty())
    return WebhookMessage(f"test-{secrets.token_hex(8)}", made.event, msgspec.json.encode(made))


def headers(message: WebhookMessage, secret: str | None, now: float) -> dict[str, str]:
    """The headers of one attempt, signed if there is a secret. `now` is epoch seconds."""
    made = {"webhook-id": message.id, "webhook-timestamp": str(int(now))}
    if secret is not None:
        signed = f"{message.id}.{int(now)}.".encode() + message.body
        digest = hmac.new(key_of(secret), signed, hashlib.sha256).digest()
        made["webhook-signature"] = f"v1,{base64.b64encode(digest).decode()}"
    return made

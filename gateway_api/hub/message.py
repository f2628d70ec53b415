"""Messages to webhooks: their bodies, and the headers of Standard Webhooks that identify and sign them."""

import base64
import hashlib
import hmac
import secrets
from dataclasses import dataclass

import msgspec

from gateway_contract.base.receivers import key_of
from gateway_contract.base.texts import utc_text
from gateway_contract.core.sessions import SessionEvent
from gateway_contract.events import EVENTS, Empty, TestDelivery


@dataclass(frozen=True, slots=True)
class WebhookMessage:
    """Every attempt sends the same `id` and the same `body`."""

    id: str
    event: str
    body: bytes


def message_of(boot_id: str, event: SessionEvent) -> WebhookMessage:
    """Return the message about an event."""
    kind = EVENTS[event.event]
    body = kind.delivery(event.event, utc_text(event.at), kind.webhook_data.of(event))
    return WebhookMessage(f"{boot_id}-{event.sequence}", event.event, msgspec.json.encode(body))


def test_message(now: float) -> WebhookMessage:
    """Return a message that shows whether the receiver can be reached. `now` is epoch seconds."""
    made = TestDelivery("webhook.test", utc_text(int(now)), Empty())
    return WebhookMessage(f"test-{secrets.token_hex(8)}", made.event, msgspec.json.encode(made))


def headers(message: WebhookMessage, secret: str | None, now: float) -> dict[str, str]:
    """Return the headers of one attempt, signed if there is a secret. `now` is epoch seconds."""
    made = {"webhook-id": message.id, "webhook-timestamp": str(int(now))}
    if secret is not None:
        signed = f"{message.id}.{int(now)}.".encode() + message.body
        digest = hmac.new(key_of(secret), signed, hashlib.sha256).digest()
        made["webhook-signature"] = f"v1,{base64.b64encode(digest).decode()}"
    return made

"""What is sent to webhooks, as the document's `webhooks`: here the receiver is the server."""

from typing import Any

import msgspec
from apispec.ext.marshmallow.openapi import OpenAPIConverter

from gateway_api.web.openapi.converter import reference_to
from gateway_api.web.responses import JSON
from gateway_api.web.schemas.parameters import DeliveryHeaders
from gateway_api.wire.events import SessionDownDelivery, SessionUpDelivery, TestDelivery

_SENT: dict[str, tuple[type[msgspec.Struct], str]] = {
    "session.up": (SessionUpDelivery, "A session is established."),
    "session.down": (SessionDownDelivery, "A session has ended."),
    "webhook.test": (TestDelivery, "A test, which somebody asked for."),
}
#: The records of all messages.
MESSAGES = frozenset(record for record, _ in _SENT.values())

_RETRIES = (
    "Any 2xx within 10 s acknowledges it. After anything else, a redirect too, the same bytes are sent again "
    "5 s, 30 s and 5 min later, each counted from the end of the attempt before. After three failures in a "
    "row, messages that were not sent yet wait 5 s; then one of them is sent, and each failure of such a one "
    "doubles the wait, up to 5 min. Any success ends it, and the rest follows in order."
)


def webhooks(converter: OpenAPIConverter) -> dict[str, Any]:
    """A path item an event, by its name."""
    return {name: {"post": _operation(converter, name, *sent)} for name, sent in _SENT.items()}


def _operation(
    converter: OpenAPIConverter, name: str, record: type[msgspec.Struct], summary: str
) -> dict[str, Any]:
    return {
        "operationId": f"webhook_{name.replace('.', '_')}",
        "tags": ["webhooks"],
        "summary": summary,
        "description": _RETRIES,
        "security": [],
        "parameters": converter.schema2parameters(DeliveryHeaders(), location="header"),
        "requestBody": {"required": True, "content": {JSON: {"schema": reference_to(record)}}},
        "responses": {"2XX": {"description": "The receiver has it."}},
    }

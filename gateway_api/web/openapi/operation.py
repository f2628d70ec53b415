"""The operations of the document: those of the API from its views, and those of webhook receivers."""

import inspect
from collections.abc import Callable
from typing import Any

import msgspec
from apispec.ext.marshmallow.openapi import OpenAPIConverter
from werkzeug.routing import Rule

from gateway_api.web.access import Access, access_of
from gateway_api.web.headers import ENTITY_TAGS
from gateway_api.web.openapi import components
from gateway_api.web.parse import MAX_ID, taken_by
from gateway_api.web.responses import EVENT_STREAM, JSON, ViewResponse
from gateway_api.wire.events import DELIVERIES

View = Callable[..., Any]

_ACCESS = {
    Access.ALWAYS: "No token is needed, and it answers while the API is disabled.",
    Access.OPEN: "No token is needed.",
    Access.ANY_ROLE: "For admins and operators.",
    Access.ADMIN: "For admins.",
}
_ROLES = {Access.ANY_ROLE: ["admin", "operator"], Access.ADMIN: ["admin"]}


# Parameters


def _path(name: str, description: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"in": "path", "name": name, "description": description, "schema": schema, "required": True}


def _header(
    name: str, description: str, example: str, *, required: bool = False, **more: Any
) -> dict[str, Any]:
    schema = {"type": "string", "examples": [example], **more}
    return {"in": "header", "name": name, "description": description, "schema": schema, "required": required}


_PATH = {
    "id": _path("id", "Session id.", {"type": "integer", "minimum": 1, "maximum": MAX_ID, "examples": [7]}),
    "revision": _path(
        "revision",
        "Number in the archive, 1 being the newest.",
        {"type": "integer", "minimum": 1, "examples": [1]},
    ),
    "webhook": _path("webhook", "Webhook id.", {"type": "string", "examples": ["wh_0123456789abcdef"]}),
}
_IF_MATCH = _header(
    "If-Match",
    "Entity tag that the configuration must still have, or the answer is 412; `*` is any "
    "(RFC 9110 section 13.1.1).",
    "*",
    pattern=rf"^(?:[ \t]*\*[ \t]*|{ENTITY_TAGS})$",
)
_IF_NONE_MATCH = _header(
    "If-None-Match",
    "Entity tag that the client has: while it is right, the response is 304 (RFC 9110 section 13.1.2).",
    '"2f9c1a7be0d4"',
)
_LAST_EVENT_ID = _header(
    "Last-Event-ID",
    "Id of the last event that was seen: what came after it, comes.",
    "84a7e8343baf37f9-57",
)
# Those of Standard Webhooks.
_DELIVERY = [
    _header("webhook-id", "Same for every attempt of a message.", "84a7e8343baf37f9-57", required=True),
    _header("webhook-timestamp", "When it was sent, Unix epoch seconds.", "1795271513", required=True),
    _header(
        "webhook-signature",
        "`v1,` and the HMAC-SHA256 in base64, where there is a secret.",
        "v1,K5oZfzN95Z9UVu1E",
    ),
]


# Views


def operation(converter: OpenAPIConverter, rule: Rule, view: View, response: ViewResponse) -> dict[str, Any]:
    """The operation of a view, without an id."""
    takes, access = taken_by(view), access_of(view) or Access.ADMIN
    may_be_304 = "GET" in (rule.methods or ()) and "ETag" in response.headers and response.conditional
    request_headers = [
        *([_IF_MATCH] if 412 in response.errors else ()),
        *([_IF_NONE_MATCH] if may_be_304 else ()),
        *([_LAST_EVENT_ID] if response.events else ()),
    ]
    parameters = [
        *(_PATH[name] for name in sorted(rule.arguments)),
        *([{"in": "query", "schema": takes.query}] if takes.query is not None else ()),
        *request_headers,
    ]
    errors = {
        *response.errors,
        # Every view rejects unknown parameters.
        400,
        500,
        *((304,) if may_be_304 else ()),
        *((401,) if access in _ROLES else ()),
        *((403,) if access is Access.ADMIN else ()),
        *((404,) if rule.arguments else ()),
        *((413,) if takes.body is not None else ()),
        *((414,) if rule.arguments or takes.query is not None else ()),
        *((431,) if request_headers else ()),
        *((503,) if access is not Access.ALWAYS else ()),
    }
    summary, _, more = inspect.cleandoc(view.__doc__ or "").partition("\n\n")
    described: dict[str, Any] = {
        "summary": summary.replace("\n", " "),
        "description": "\n\n".join(filter(None, (more, _ACCESS[access]))),
        # The document as a whole requires a token.
        **({"x-roles": _ROLES[access]} if access in _ROLES else {"security": []}),
    }
    if parameters:
        described["parameters"] = parameters
    if takes.body is not None:
        content = {JSON: {"schema": components.request_reference(converter, takes.body)}}
        described["requestBody"] = {"required": not takes.optional, "content": content}
    success = {
        "description": "Created." if response.status == 201 else "Done.",
        "headers": components.headers(*response.headers),
        "content": {response.media_type: {"schema": _schema(response)}},
    }
    references = {str(status): components.error_reference(status) for status in sorted(errors)}
    described["responses"] = {str(response.status): success, **references}
    return described


def _schema(response: ViewResponse) -> dict[str, Any]:
    if response.media_type == EVENT_STREAM:
        return {"oneOf": [_event(name, record) for name, record in response.events.items()]}
    if response.media_type != JSON:
        return {"type": "string"}
    references = [components.record_reference(record) for record in response.records]
    one = references[0] if len(references) == 1 else {"anyOf": references} if references else {"type": "null"}
    if response.bare:
        return one
    status = {"type": "string", "const": "ok", "description": "Tells it from an error."}
    return {"type": "object", "required": ["status", "data"], "properties": {"status": status, "data": one}}


def _event(name: str, record: type[msgspec.Struct]) -> dict[str, Any]:
    """One event of a stream by its fields, as later versions of OpenAPI have it (3.2 section 4.14.4)."""
    json = {"contentMediaType": JSON, "contentSchema": components.record_reference(record)}
    fields = {
        "id": {"type": "string", "description": "For Last-Event-ID.", "examples": ["84a7e8343baf37f9-57"]},
        "event": {"type": "string", "const": name, "description": "Event name."},
        "data": {"type": "string", "description": "JSON.", **json},
    }
    return {"type": "object", "required": list(fields), "properties": fields}


# Receivers

_SUMMARIES = {
    "session.up": "A session is established.",
    "session.down": "A session has ended.",
    "webhook.test": "A test, which somebody asked for.",
}
_RETRIES = (
    "Any 2xx within 10 s acknowledges it. After anything else, a redirect too, the same bytes are sent again "
    "5 s, 30 s and 5 min later, each counted from the end of the attempt before. After three failures in a "
    "row, messages that were not sent yet wait 5 s; then one of them is sent, and each failure of such a one "
    "doubles the wait, up to 5 min. Any success ends it, and the rest follows in order."
)


def webhooks() -> dict[str, Any]:
    """A path item for each event, by its name. Here the receiver is the server."""
    return {
        name: {
            "post": {
                "operationId": f"webhook_{name.replace('.', '_')}",
                "tags": ["webhooks"],
                "summary": summary,
                "description": _RETRIES,
                "security": [],
                "parameters": _DELIVERY,
                "requestBody": {
                    "required": True,
                    "content": {JSON: {"schema": components.record_reference(DELIVERIES[name])}},
                },
                "responses": {"2XX": {"description": "The receiver has it."}},
            }
        }
        for name, summary in _SUMMARIES.items()
    }

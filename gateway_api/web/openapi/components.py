"""The parts that operations refer to: schemas of requests and records, headers, parameters, and errors."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import msgspec
from apispec import APISpec, BasePlugin

from gateway_api.base.http import REQUEST_ID, guards
from gateway_api.web.headers import ENTITY_TAGS
from gateway_api.web.parse import MAX_BODY
from gateway_api.web.records import Error, InternalError, Refusal, RequestError, RoleRefusal
from gateway_api.web.responses import JSON
from gateway_contract.base.fields import Schema
from gateway_contract.base.texts import MAX_ID

_REFERENCE = "#/components/schemas/{name}"


# Requests


class SchemaRules(BasePlugin):
    """Adds the `json_schema` of a request's schema: rules about more than one field."""

    def schema_helper(self, name: str, definition: dict[str, Any], **more: Any) -> dict[str, Any] | None:
        return getattr(more.get("schema"), "json_schema", None)


def request_schema(body: type[Schema] | type[msgspec.Struct]) -> type[Schema] | dict[str, str]:
    """Return the schema of a body for apispec. A record is in the document already: some response has it."""
    return record_reference(body) if issubclass(body, msgspec.Struct) else body


# Records


def record_reference(record: type[msgspec.Struct]) -> dict[str, str]:
    """Return a reference to the component of a record."""
    return {"$ref": _REFERENCE.format(name=record.__name__)}


def add_records(spec: APISpec, records: Iterable[type[msgspec.Struct]]) -> None:
    """Add the schemas of these records, of those of errors, and of all that they refer to."""
    errors = (shared.record for shared in _ERRORS.values() if shared.record is not None)
    _, made = msgspec.json.schema_components([*records, *errors], ref_template=_REFERENCE)
    for component, schema in made.items():
        schema["description"] = " ".join(schema["description"].split())
        if "enum" in schema:
            schema["type"] = "string"
        for name, described in schema.get("properties", {}).items():
            # A default is for readers on the wire. A response has every field that may not be absent.
            if "default" in described:
                del described["default"]
                schema["required"] = [*schema.get("required", ()), name]
        spec.components.schema(component, schema)


# Headers

_HEADERS: dict[str, tuple[str, str | int]] = {
    REQUEST_ID: (
        "The id of the request, from the client or generated; log lines have it, too.",
        "8a576e8995a64329bbe1797224eb4759",
    ),
    "X-Content-Type-Options": ("Keeps browsers from guessing the type.", "nosniff"),
    "Cache-Control": ("`no-store`, unless the response is the same for every client.", "no-store"),
    "Strict-Transport-Security": ("Keeps browsers from plain HTTP (RFC 6797).", "max-age=31536000"),
    "ETag": ("Entity tag, for If-Match or If-None-Match.", '"2f9c1a7be0d4"'),
    "Location": ("Path of the new record.", "/api/v1/webhooks/wh_0123456789abcdef"),
    "WWW-Authenticate": ("Required scheme (RFC 6750).", "Bearer"),
    "Retry-After": ("Seconds until the next attempt may succeed.", 4),
}


def add_headers(spec: APISpec) -> None:
    """Add the components that `headers` refers to."""
    for name in _HEADERS:
        spec.components.header(name, _response_header(name, required=True))


def headers(*names: str, optional: Iterable[str] = ()) -> dict[str, Any]:
    """Return these headers and those of every response, as references, and the `optional` ones."""
    given = (REQUEST_ID, *guards(tls=True), *names)
    references: dict[str, Any] = {name: name for name in given}
    return references | {name: _response_header(name, required=False) for name in optional}


def _response_header(name: str, *, required: bool) -> dict[str, Any]:
    description, example = _HEADERS[name]
    schema = {"type": "integer" if isinstance(example, int) else "string", "examples": [example]}
    return {"description": description, "required": required, "schema": schema}


# Parameters


def _path(name: str, description: str, type: str, example: Any, **more: Any) -> dict[str, Any]:
    schema = {"type": type, **more, "examples": [example]}
    return {"in": "path", "name": name, "description": description, "schema": schema, "required": True}


def _header(
    name: str, description: str, example: str, *, required: bool = False, **more: Any
) -> dict[str, Any]:
    schema = {"type": "string", "examples": [example], **more}
    return {"in": "header", "name": name, "description": description, "schema": schema, "required": required}


PATH = {
    "id": _path("id", "Session id.", "integer", 7, minimum=1, maximum=MAX_ID),
    "revision": _path("revision", "Number in the archive, 1 being the newest.", "integer", 1, minimum=1),
    "job": _path("job", "Job id.", "integer", 3, minimum=1, maximum=MAX_ID),
    "webhook": _path("webhook", "Webhook id.", "string", "wh_0123456789abcdef"),
}
IF_MATCH = _header(
    "If-Match",
    "Entity tag that the configuration must still have, or the response is 412; `*` is any "
    "(RFC 9110 section 13.1.1).",
    "*",
    pattern=rf"^(?:[ \t]*\*[ \t]*|{ENTITY_TAGS})$",
)
IF_NONE_MATCH = _header(
    "If-None-Match",
    "Entity tag that the client has: while it is current, the response is 304 (RFC 9110 section 13.1.2).",
    '"2f9c1a7be0d4"',
)
LAST_EVENT_ID = _header(
    "Last-Event-ID",
    "Id of the last event that the client has: the events after it follow.",
    "84a7e8343baf37f9-57",
)
# Those of Standard Webhooks.
DELIVERY = [
    _header("webhook-id", "Same for every attempt of a message.", "84a7e8343baf37f9-57", required=True),
    _header("webhook-timestamp", "When it was sent, Unix epoch seconds.", "1795271513", required=True),
    _header(
        "webhook-signature",
        "`v1,` and the HMAC-SHA256 in base64, where there is a secret.",
        "v1,K5oZfzN95Z9UVu1E",
    ),
]


# Errors


@dataclass(frozen=True)
class _Shared:
    name: str
    description: str
    record: type[msgspec.Struct] | None = Error
    headers: tuple[str, ...] = ()


# `web/errors.py` sends them.
_ERRORS = {
    304: _Shared("NotModified", "`If-None-Match` names the current entity tag.", None, ("ETag",)),
    400: _Shared("BadRequest", "The request breaks a rule. Nothing was changed.", RequestError),
    401: _Shared("Unauthorized", "No valid token, or a wrong login.", Refusal, ("WWW-Authenticate",)),
    403: _Shared("Forbidden", "Requires the role admin.", RoleRefusal),
    404: _Shared("NotFound", "The named record does not exist."),
    409: _Shared("Conflict", "The request conflicts with the current state."),
    412: _Shared(
        "PreconditionFailed", "The configuration has changed since. Nothing was changed.", headers=("ETag",)
    ),
    413: _Shared("ContentTooLarge", f"The body is over {MAX_BODY >> 20} MiB."),
    414: _Shared("URITooLong", "Path and query are too long."),
    429: _Shared(
        "TooManyRequests",
        "Too many logins have failed, or too many streams are open.",
        headers=("Retry-After",),
    ),
    431: _Shared("RequestHeaderFieldsTooLarge", "A header is too long."),
    500: _Shared(
        "InternalError", "The core daemon could not be reached, or something failed.", InternalError
    ),
    501: _Shared("NotImplemented", "The core daemon lacks a method that the request requires."),
    # Retry-After does not come with the first. A header of the document is always there.
    503: _Shared(
        "ServiceUnavailable",
        "The running configuration disables the API; or, with `Retry-After`, too many whole lists are being "
        "sent: request a page with `limit`; or the core is too busy for a list: send the request again; or a "
        "search in the history takes too long: narrow it.",
    ),
}


def add_errors(spec: APISpec) -> None:
    """Add the components that `error_responses` refers to."""
    for shared in _ERRORS.values():
        described = {"description": shared.description, "headers": headers(*shared.headers)}
        if shared.record is not None:
            described["content"] = {JSON: {"schema": record_reference(shared.record)}}
        spec.components.response(shared.name, described)


def error_responses(statuses: Iterable[int]) -> dict[str, str]:
    """Return references to the responses with these statuses."""
    return {str(status): _ERRORS[status].name for status in sorted(statuses)}

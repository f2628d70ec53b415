"""The OpenAPI document, generated from the operations, the request schemas and the response records."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from apispec import APISpec, BasePlugin
from apispec.ext.marshmallow import MarshmallowPlugin

from gateway_api.base.http import REQUEST_ID_HEADER, make_security_headers
from gateway_api.hub.interface import (
    FAILURES_BEFORE_PAUSE,
    LONGEST_PAUSE_SECONDS,
    RETRY_DELAYS_SECONDS,
    SHORTEST_PAUSE_SECONDS,
    TIMEOUT,
)
from gateway_api.web.access import Access
from gateway_api.web.operation import ApiOperation, Route
from gateway_api.web.parse import MAX_BODY_BYTES
from gateway_api.web.records import Error, InternalError, Refusal, RequestError, RoleRefusal
from gateway_api.web.request import ENTITY_TAGS_PATTERN
from gateway_api.web.responses import EVENT_STREAM, JSON
from gateway_contract.base.fields import ParsedField
from gateway_contract.base.texts import MAX_ID
from gateway_contract.events import EVENTS, TestDelivery
from gateway_contract.version import PRODUCT, VERSION

_OPENAPI_VERSION = "3.1.0"
_SECURITY_SCHEME = "bearer"
_DESCRIPTION = """\
Lists, inspects and disconnects subscriber sessions, changes their rates, reads the gateway's state,
changes its configuration, and sends events.

Log in, and send the token as `Authorization: Bearer <token>`. Responses are `{"status": "ok", "data": ...}`,
errors `{"status": "error", "message": ...}`; 401 and 403 are `{"detail": ...}`. Times are Unix epoch seconds,
rates bits per second. Later versions may add fields to responses."""

#: Descriptions by resource.
_RESOURCE_DESCRIPTIONS = {
    "login": "Log in and out.",
    "subscribers": "Subscriber sessions: list, inspect, disconnect, change their rates.",
    "history": "Sessions that are up or have ended, failed sign-ons, and what happened to subscribers.",
    "jobs": "Work on many sessions at a time, which the core daemon does by itself.",
    "traffic": "The traffic of sessions now.",
    "system": "The product, and the health of the gateway.",
    "configuration": """\
The running configuration, the candidate, and commits.

The ETag of a response stands for the running configuration and the candidate together. Responses about the
archive or a confirmation have none. Every change of the candidate honours If-Match.""",
    "interfaces": "The interfaces of the system.",
    "qos": "The shaping of sessions.",
    "routing": "Routes and routing neighbours.",
    "cgnat": "Steering to the CGNAT appliance.",
    "demux": "The component that creates a VLAN sub-interface when its first subscriber arrives.",
    "events": "The stream of session events.",
    "webhooks": "Receivers of events, and the log of deliveries to them.",
    "deliveries": "The messages that the gateway sends to webhooks.",
    "audit": "The audit log: changes and rejected requests.",
    "metrics": "The scrape target of Prometheus.",
    "docs": "This API, as a document for programs and as a page for people.",
}

_ACCESS_DESCRIPTIONS = {
    Access.ALWAYS: "Requires no token, and works while the API is disabled.",
    Access.OPEN: "Requires no token.",
    Access.ANY_ROLE: "Requires a token.",
    Access.ADMIN: "Requires the role admin.",
}
_SUCCESS_DESCRIPTIONS = {201: "Created.", 202: "Started."}
_ROLES_BY_ACCESS = {Access.ANY_ROLE: ["admin", "operator"], Access.ADMIN: ["admin"]}


def make_document(routes: Iterable[Route]) -> dict[str, Any]:
    """Return the OpenAPI document of all operations that respond with records or text."""
    requests = MarshmallowPlugin()
    spec = APISpec(
        PRODUCT,
        VERSION,
        _OPENAPI_VERSION,
        [requests, _SchemaRules()],
        info={
            "summary": "Management API of a broadband subscriber gateway",
            "description": _DESCRIPTION,
            "contact": {"name": "gateway-api"},
            "license": {"name": "MIT", "identifier": "MIT"},
        },
        servers=[{"url": "/", "description": "The gateway that serves this document."}],
        security=[{_SECURITY_SCHEME: []}],
    )
    requests.map_to_openapi_type(ParsedField, "string", None)  # type: ignore[no-untyped-call]
    scheme = {"type": "http", "scheme": "bearer", "bearerFormat": "JWT"}
    spec.components.security_scheme(_SECURITY_SCHEME, {**scheme, "description": "The token of a login."})
    for name in _RESPONSE_HEADERS:
        spec.components.header(name, _describe_header(name, required=True))
    _add_errors(spec)
    # A view may have several paths. Each path is an operation of its own, with its own id.
    ids: Counter[str] = Counter()
    records = {record for _, record in _WEBHOOK_MESSAGES.values()}
    for route in routes:
        operation = route.operation
        if operation.records is None:
            continue
        records.update(operation.records, operation.events.values(), filter(None, [operation.preview]))
        id = route.name.replace(".", "_")
        ids[id] += 1
        id = id if ids[id] == 1 else f"{id}_{ids[id]}"
        definition = {"operationId": id, "tags": [route.resource], **_describe_operation(route)}
        spec.path(route.path, operations={route.method.lower(): definition})
    for name, description in _RESOURCE_DESCRIPTIONS.items():
        spec.tag({"name": name, "description": description})
    _add_records(spec, records)
    spec.options["webhooks"] = _describe_deliveries()
    document = spec.to_dict()
    # Sorted, so that a diff of two documents shows only real changes.
    document["components"]["schemas"] = dict(sorted(document["components"]["schemas"].items()))
    member_order = ("openapi", "info", "servers", "security", "tags", "paths", "webhooks", "components")
    document = {name: document[name] for name in member_order}
    _add_formats(document)
    return document


# Operations


def _describe_operation(route: Route) -> dict[str, Any]:
    """Return the Operation Object of a route (OpenAPI 3.1 section 4.8.10), without its operationId."""
    operation = route.operation
    access = operation.access
    variables = [name for name in _PATH_PARAMETERS if f"{{{name}}}" in route.path]
    has_etag = "ETag" in operation.headers + operation.optional_headers
    may_be_304 = route.method == "GET" and has_etag and operation.is_conditional
    request_headers = [
        *([_IF_MATCH_HEADER] if 412 in operation.errors else ()),
        *([_IF_NONE_MATCH_HEADER] if may_be_304 else ()),
        *([_LAST_EVENT_ID_HEADER] if operation.events and operation.is_resumable else ()),
    ]
    parameters = [
        *(_PATH_PARAMETERS[name] for name in variables),
        *([{"in": "query", "schema": operation.query}] if operation.query is not None else ()),
        *request_headers,
    ]
    has_error = {
        304: may_be_304,
        # Unknown parameters.
        400: not operation.ignores_query(route.method),
        401: access in _ROLES_BY_ACCESS,
        403: access is Access.ADMIN,
        404: variables,
        413: operation.body is not None,
        414: variables or operation.query is not None,
        431: request_headers,
        500: True,
        503: access is not Access.ALWAYS,
    }
    errors = {*operation.errors, *filter(has_error.get, has_error)}
    summary, _, more = operation.text.partition("\n\n")
    definition: dict[str, Any] = {
        "summary": summary.replace("\n", " "),
        "description": "\n\n".join(filter(None, (more, _ACCESS_DESCRIPTIONS[access]))),
        # The document as a whole requires a token.
        **({"x-roles": _ROLES_BY_ACCESS[access]} if access in _ROLES_BY_ACCESS else {"security": []}),
    }
    if parameters:
        definition["parameters"] = parameters
    if operation.body is not None:
        body = _refer_to(operation.body) if issubclass(operation.body, msgspec.Struct) else operation.body
        content = {JSON: {"schema": body}}
        definition["requestBody"] = {"required": not operation.is_body_optional, "content": content}
    successes = {str(operation.status): _describe_success(operation)}
    if operation.preview is not None:
        content = {JSON: {"schema": _put_in_envelope([operation.preview])}}
        successes["200"] = {"description": "Done.", "headers": _refer_to_headers(), "content": content}
    definition["responses"] = successes | {
        str(status): _ERROR_RESPONSES[status].name for status in sorted(errors)
    }
    return definition


def _describe_success(operation: ApiOperation) -> dict[str, Any]:
    return {
        "description": _SUCCESS_DESCRIPTIONS.get(operation.status, "Done."),
        "headers": _refer_to_headers(*operation.headers, optional=operation.optional_headers),
        "content": {operation.media_type: {"schema": _describe_body(operation)}},
    }


def _describe_body(operation: ApiOperation) -> dict[str, Any]:
    if operation.media_type == EVENT_STREAM:
        has_id = operation.is_resumable
        return {"oneOf": [_describe_event(*event, has_id=has_id) for event in operation.events.items()]}
    if operation.media_type != JSON:
        return {"type": "string"}
    records = operation.records or ()
    return _describe_any_of(records) if operation.is_bare else _put_in_envelope(records)


def _describe_any_of(records: Sequence[type[msgspec.Struct]]) -> dict[str, Any]:
    """Return a schema that accepts any of these records; without records, a schema that accepts only null."""
    references = [_refer_to(record) for record in records]
    # Client generators accept `const`. The generator for Python fails for the type "null".
    return references[0] if len(references) == 1 else {"anyOf": references} if references else {"const": None}


def _put_in_envelope(records: Sequence[type[msgspec.Struct]]) -> dict[str, Any]:
    """Return the schema of an envelope whose data is any of these records."""
    status = {"type": "string", "const": "ok", "description": "Distinguishes successes from errors."}
    properties = {"status": status, "data": _describe_any_of(records)}
    return {"type": "object", "required": ["status", "data"], "properties": properties}


def _describe_event(name: str, record: type[msgspec.Struct], *, has_id: bool) -> dict[str, Any]:
    """Return the schema of a server-sent event with the given name, whose data is a record, as in OpenAPI 3.2
    section 4.14.4. With `has_id`, the event also has the field `id`."""
    json = {"contentMediaType": JSON, "contentSchema": _refer_to(record)}
    id = {"type": "string", "description": "For Last-Event-ID.", "examples": ["84a7e8343baf37f9-57"]}
    fields = {
        **({"id": id} if has_id else {}),
        "event": {"type": "string", "const": name, "description": "Event name."},
        "data": {"type": "string", "description": "JSON.", **json},
    }
    return {"type": "object", "required": list(fields), "properties": fields}


# Deliveries to webhooks


def _format_duration(seconds: float) -> str:
    return f"{seconds:g} s" if seconds % 60 else f"{seconds / 60:g} min"


_WEBHOOK_MESSAGES: dict[str, tuple[str, type[msgspec.Struct]]] = {
    **{name.value: (event.description, event.delivery) for name, event in EVENTS.items()},
    "webhook.test": ("A test, which an admin requested.", TestDelivery),
}
_FIRST_RETRIES, _LAST_RETRY = (
    ", ".join(map(_format_duration, RETRY_DELAYS_SECONDS[:-1])),
    _format_duration(RETRY_DELAYS_SECONDS[-1]),
)
_RETRY_DESCRIPTION = (
    f"Any 2xx within {_format_duration(TIMEOUT)} acknowledges it. After any other result, a redirect too, "
    f"the same bytes are sent again {_FIRST_RETRIES} and {_LAST_RETRY} after the end of the attempt before. "
    f"After {FAILURES_BEFORE_PAUSE} failures in a row the receiver is paused: messages that were not sent "
    f"yet wait for {_format_duration(SHORTEST_PAUSE_SECONDS)}; then one of them is sent, and each such "
    f"failure doubles the wait, up to {_format_duration(LONGEST_PAUSE_SECONDS)}. Any success ends the pause, "
    "and the others follow in order."
)


def _describe_deliveries() -> dict[str, Any]:
    """Return a map with a path item for each webhook message. In these path items, the receiver is the
    server."""
    return {
        name: {
            "post": {
                "operationId": f"webhook_{name.replace('.', '_')}",
                # Not `webhooks`: generators of clients would make two files of this name.
                "tags": ["deliveries"],
                "summary": summary,
                "description": _RETRY_DESCRIPTION,
                "security": [],
                "parameters": _DELIVERY_HEADERS,
                "requestBody": {"required": True, "content": {JSON: {"schema": _refer_to(record)}}},
                "responses": {"2XX": {"description": "The receiver accepted it."}},
            }
        }
        for name, (summary, record) in _WEBHOOK_MESSAGES.items()
    }


#: Formats by type. Without them, generated clients in Go and Java read rates, counters and times into 32
#: bits.
_FORMAT_BY_TYPE = {"integer": "int64", "number": "double"}


def _add_formats(part: Any) -> None:
    """Add a format to each schema of a number in the given part of the document."""
    if isinstance(part, dict):
        if isinstance(part.get("type"), str) and part["type"] in _FORMAT_BY_TYPE:
            part.setdefault("format", _FORMAT_BY_TYPE[part["type"]])
        for member in part.values():
            _add_formats(member)
    elif isinstance(part, list):
        for item in part:
            _add_formats(item)


# Components

_REFERENCE_TEMPLATE = "#/components/schemas/{name}"


class _SchemaRules(BasePlugin):
    """Plugin of apispec that copies the `json_schema` of a request schema to the document. The `json_schema`
    contains rules about combinations of fields."""

    def schema_helper(self, name: str, definition: dict[str, Any], **more: Any) -> dict[str, Any] | None:
        return getattr(more.get("schema"), "json_schema", None)


def _refer_to(record: type[msgspec.Struct]) -> dict[str, str]:
    return {"$ref": _REFERENCE_TEMPLATE.format(name=record.__name__)}


def _add_records(spec: APISpec, records: Iterable[type[msgspec.Struct]]) -> None:
    """Add the schemas of the given records, of the error records, and of all records that these refer to."""
    errors = (
        error_response.record
        for error_response in _ERROR_RESPONSES.values()
        if error_response.record is not None
    )
    _, schemas = msgspec.json.schema_components([*records, *errors], ref_template=_REFERENCE_TEMPLATE)
    for component, schema in schemas.items():
        schema["description"] = " ".join(schema["description"].split())
        if "enum" in schema:
            schema["type"] = "string"
        for name, member in schema.get("properties", {}).items():
            # A default is for readers on the wire. A response has every field that may not be absent.
            if "default" in member:
                del member["default"]
                schema["required"] = [*schema.get("required", ()), name]
        spec.components.schema(component, schema)


# Headers

_RESPONSE_HEADERS: dict[str, tuple[str, str | int]] = {
    REQUEST_ID_HEADER: (
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


def _refer_to_headers(*names: str, optional: Iterable[str] = ()) -> dict[str, Any]:
    """Return references to the headers with the given names and to the headers of every response. For each
    header in `optional`, add a description instead of a reference."""
    header_names = (REQUEST_ID_HEADER, *make_security_headers(tls=True), *names)
    references: dict[str, Any] = {name: name for name in header_names}
    return references | {name: _describe_header(name, required=False) for name in optional}


def _describe_header(name: str, *, required: bool) -> dict[str, Any]:
    description, example = _RESPONSE_HEADERS[name]
    schema = {"type": "integer" if isinstance(example, int) else "string", "examples": [example]}
    return {"description": description, "required": required, "schema": schema}


# Parameters


def _make_header(
    name: str, description: str, example: str, *, required: bool = False, **more: Any
) -> dict[str, Any]:
    schema = {"type": "string", "examples": [example], **more}
    return {"in": "header", "name": name, "description": description, "schema": schema, "required": required}


#: Variable parts of paths, by name.
_PATH_PARAMETERS = {
    name: {"in": "path", "name": name, "description": description, "schema": schema, "required": True}
    for name, description, schema in (
        ("id", "Session id.", {"type": "integer", "minimum": 1, "maximum": MAX_ID, "examples": [7]}),
        (
            "revision",
            "Number in the archive, 1 being the newest.",
            {"type": "integer", "minimum": 1, "examples": [1]},
        ),
        ("job", "Job id.", {"type": "integer", "minimum": 1, "maximum": MAX_ID, "examples": [3]}),
        ("webhook", "Webhook id.", {"type": "string", "examples": ["wh_0123456789abcdef"]}),
    )
}
_IF_MATCH_HEADER = _make_header(
    "If-Match",
    "Entity tag that the configuration must still have, or the response is 412; `*` is any "
    "(RFC 9110 section 13.1.1).",
    "*",
    pattern=rf"^(?:[ \t]*\*[ \t]*|{ENTITY_TAGS_PATTERN})$",
)
_IF_NONE_MATCH_HEADER = _make_header(
    "If-None-Match",
    "Entity tag that the client has: while it is current, the response is 304 (RFC 9110 section 13.1.2).",
    '"2f9c1a7be0d4"',
)
_LAST_EVENT_ID_HEADER = _make_header(
    "Last-Event-ID",
    "Id of the last event that the client has: the events after it follow.",
    "84a7e8343baf37f9-57",
)
#: Headers of Standard Webhooks.
_DELIVERY_HEADERS = [
    _make_header("webhook-id", "Same for every attempt of a message.", "84a7e8343baf37f9-57", required=True),
    _make_header("webhook-timestamp", "When it was sent, Unix epoch seconds.", "1795271513", required=True),
    _make_header(
        "webhook-signature",
        "`v1,` and the HMAC-SHA256 in base64, where there is a secret.",
        "v1,K5oZfzN95Z9UVu1E",
    ),
]


# Errors


@dataclass(frozen=True)
class _ErrorResponse:
    name: str
    description: str
    record: type[msgspec.Struct] | None = Error
    headers: tuple[str, ...] = ()


#: By status. `web/errors.py` makes these responses.
_ERROR_RESPONSES = {
    304: _ErrorResponse("NotModified", "`If-None-Match` names the current entity tag.", None, ("ETag",)),
    400: _ErrorResponse("BadRequest", "The request breaks a rule. Nothing was changed.", RequestError),
    401: _ErrorResponse("Unauthorized", "No valid token, or a wrong login.", Refusal, ("WWW-Authenticate",)),
    403: _ErrorResponse("Forbidden", "Requires the role admin.", RoleRefusal),
    404: _ErrorResponse("NotFound", "The named record does not exist."),
    409: _ErrorResponse("Conflict", "The request conflicts with the current state."),
    412: _ErrorResponse(
        "PreconditionFailed", "The configuration has changed since. Nothing was changed.", headers=("ETag",)
    ),
    413: _ErrorResponse("ContentTooLarge", f"The body is over {MAX_BODY_BYTES >> 20} MiB."),
    414: _ErrorResponse("URITooLong", "Path and query are too long."),
    429: _ErrorResponse(
        "TooManyRequests",
        "Too many logins have failed, or too many streams are open.",
        headers=("Retry-After",),
    ),
    431: _ErrorResponse("RequestHeaderFieldsTooLarge", "A header is too long."),
    500: _ErrorResponse(
        "InternalError", "The core daemon could not be reached, or something failed.", InternalError
    ),
    501: _ErrorResponse("NotImplemented", "The core daemon lacks a method that the request requires."),
    # Without the header Retry-After, which the document would promise for every 503.
    503: _ErrorResponse(
        "ServiceUnavailable",
        "The running configuration disables the API; or, with `Retry-After`, too many whole lists are being "
        "sent: request a page with `limit`; or the core is too busy for a list: send the request again; or a "
        "search in the history takes too long: narrow it.",
    ),
}


def _add_errors(spec: APISpec) -> None:
    for error_response in _ERROR_RESPONSES.values():
        definition = {
            "description": error_response.description,
            "headers": _refer_to_headers(*error_response.headers),
        }
        if error_response.record is not None:
            definition["content"] = {JSON: {"schema": _refer_to(error_response.record)}}
        spec.components.response(error_response.name, definition)

"""The OpenAPI document as a whole."""

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any

import msgspec
from apispec import APISpec
from apispec.ext.marshmallow import MarshmallowPlugin

from gateway_api.hub.interface import LONGEST_PAUSE, PAUSE_AFTER, RETRIES, SHORTEST_PAUSE, TIMEOUT
from gateway_api.web.access import Access
from gateway_api.web.openapi import components
from gateway_api.web.operation import ApiOperation, Route
from gateway_api.web.responses import EVENT_STREAM, JSON
from gateway_contract.base.fields import ParsedField
from gateway_contract.events import EVENTS, TestDelivery
from gateway_contract.version import PRODUCT, VERSION

_OPENAPI = "3.1.0"
_SCHEME = "bearer"
_DESCRIPTION = """\
Lists, inspects and disconnects subscriber sessions, changes their rates, reads the gateway's state,
changes its configuration, and sends events.

Log in, and send the token as `Authorization: Bearer <token>`. Responses are `{"status": "ok", "data": ...}`,
errors `{"status": "error", "message": ...}`; 401 and 403 are `{"detail": ...}`. Times are Unix epoch seconds,
rates bits per second. Later versions may add fields to responses."""

#: By resource.
_TAGS = {
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

_ACCESS = {
    Access.ALWAYS: "Requires no token, and works while the API is disabled.",
    Access.OPEN: "Requires no token.",
    Access.ANY_ROLE: "Requires a token.",
    Access.ADMIN: "Requires the role admin.",
}
_DONE = {201: "Created.", 202: "Started."}
_ROLES = {Access.ANY_ROLE: ["admin", "operator"], Access.ADMIN: ["admin"]}


def document(routes: Iterable[Route]) -> dict[str, Any]:
    """Return the document of all operations with records, or with text."""
    requests = MarshmallowPlugin()
    spec = APISpec(
        PRODUCT,
        VERSION,
        _OPENAPI,
        [requests, components.SchemaRules()],
        info={
            "summary": "Management API of a broadband subscriber gateway",
            "description": _DESCRIPTION,
            "contact": {"name": "gateway-api"},
            "license": {"name": "MIT", "identifier": "MIT"},
        },
        servers=[{"url": "/", "description": "The gateway that serves this document."}],
        security=[{_SCHEME: []}],
    )
    requests.map_to_openapi_type(ParsedField, "string", None)  # type: ignore[no-untyped-call]
    scheme = {
        "type": "http",
        "scheme": "bearer",
        "bearerFormat": "JWT",
        "description": "The token of a login.",
    }
    spec.components.security_scheme(_SCHEME, scheme)
    components.add_headers(spec)
    components.add_errors(spec)
    # One view may have several paths, but an id is that of one operation.
    ids: Counter[str] = Counter()
    records = {record for _, record in _MESSAGES.values()}
    for route in routes:
        operation = route.operation
        if operation.records is None:
            continue
        found = operation.records, operation.events.values(), filter(None, [operation.preview])
        records.update(chain.from_iterable(found))
        id = route.name.replace(".", "_")
        ids[id] += 1
        id = id if ids[id] == 1 else f"{id}_{ids[id]}"
        made = {"operationId": id, "tags": [route.resource], **_operation(route)}
        spec.path(route.path, operations={route.method.lower(): made})
    for name, description in _TAGS.items():
        spec.tag({"name": name, "description": description})
    components.add_records(spec, records)
    spec.options["webhooks"] = _webhooks()
    made = _ordered(spec.to_dict())
    _add_formats(made)
    return made


# Views


def _operation(route: Route) -> dict[str, Any]:
    """Return an operation without its id."""
    operation = route.operation
    access = operation.access
    arguments = [name for name in components.PATH if f"{{{name}}}" in route.path]
    has_etag = "ETag" in operation.headers + operation.may_have
    may_be_304 = route.method == "GET" and has_etag and operation.conditional
    request_headers = [
        *([components.IF_MATCH] if 412 in operation.errors else ()),
        *([components.IF_NONE_MATCH] if may_be_304 else ()),
        *([components.LAST_EVENT_ID] if operation.events and operation.resumable else ()),
    ]
    parameters = [
        *(components.PATH[name] for name in arguments),
        *([{"in": "query", "schema": operation.query}] if operation.query is not None else ()),
        *request_headers,
    ]
    may_be = {
        304: may_be_304,
        # Unknown parameters.
        400: not operation.ignores_query(route.method),
        401: access in _ROLES,
        403: access is Access.ADMIN,
        404: arguments,
        413: operation.body is not None,
        414: arguments or operation.query is not None,
        431: request_headers,
        500: True,
        503: access is not Access.ALWAYS,
    }
    errors = {*operation.errors, *filter(may_be.get, may_be)}
    summary, _, more = operation.text.partition("\n\n")
    described: dict[str, Any] = {
        "summary": summary.replace("\n", " "),
        "description": "\n\n".join(filter(None, (more, _ACCESS[access]))),
        # The document as a whole requires a token.
        **({"x-roles": _ROLES[access]} if access in _ROLES else {"security": []}),
    }
    if parameters:
        described["parameters"] = parameters
    if operation.body is not None:
        content = {JSON: {"schema": components.request_schema(operation.body)}}
        described["requestBody"] = {"required": not operation.optional, "content": content}
    successes = {str(operation.status): _success(operation)}
    if operation.preview is not None:
        content = {JSON: {"schema": _enveloped([operation.preview])}}
        successes["200"] = {"description": "Done.", "headers": components.headers(), "content": content}
    described["responses"] = successes | components.error_responses(errors)
    return described


def _success(operation: ApiOperation) -> dict[str, Any]:
    return {
        "description": _DONE.get(operation.status, "Done."),
        "headers": components.headers(*operation.headers, optional=operation.may_have),
        "content": {operation.media_type: {"schema": _schema(operation)}},
    }


def _schema(operation: ApiOperation) -> dict[str, Any]:
    if operation.media_type == EVENT_STREAM:
        ids = operation.resumable
        return {"oneOf": [_event(name, record, ids=ids) for name, record in operation.events.items()]}
    if operation.media_type != JSON:
        return {"type": "string"}
    records = operation.records or ()
    return _one_of(records) if operation.bare else _enveloped(records)


def _one_of(records: Sequence[type[msgspec.Struct]]) -> dict[str, Any]:
    references = [components.record_reference(record) for record in records]
    # Generators of clients take `const`; with the type "null" that of Python fails.
    return references[0] if len(references) == 1 else {"anyOf": references} if references else {"const": None}


def _enveloped(records: Sequence[type[msgspec.Struct]]) -> dict[str, Any]:
    one = _one_of(records)
    status = {"type": "string", "const": "ok", "description": "Distinguishes successes from errors."}
    return {"type": "object", "required": ["status", "data"], "properties": {"status": status, "data": one}}


def _event(name: str, record: type[msgspec.Struct], *, ids: bool) -> dict[str, Any]:
    """Return an event of a stream by its fields, as in OpenAPI 3.2 section 4.14.4."""
    json = {"contentMediaType": JSON, "contentSchema": components.record_reference(record)}
    id = {"type": "string", "description": "For Last-Event-ID.", "examples": ["84a7e8343baf37f9-57"]}
    fields = {
        **({"id": id} if ids else {}),
        "event": {"type": "string", "const": name, "description": "Event name."},
        "data": {"type": "string", "description": "JSON.", **json},
    }
    return {"type": "object", "required": list(fields), "properties": fields}


# Receivers


def _duration(seconds: float) -> str:
    return f"{seconds:g} s" if seconds % 60 else f"{seconds / 60:g} min"


_MESSAGES: dict[str, tuple[str, type[msgspec.Struct]]] = {
    **{name.value: (event.description, event.delivery) for name, event in EVENTS.items()},
    "webhook.test": ("A test, which an admin requested.", TestDelivery),
}
_FIRST_RETRIES, _LAST_RETRY = ", ".join(map(_duration, RETRIES[:-1])), _duration(RETRIES[-1])
_RETRIES = (
    f"Any 2xx within {_duration(TIMEOUT)} acknowledges it. After any other result, a redirect too, the same "
    f"bytes are sent again {_FIRST_RETRIES} and {_LAST_RETRY} after the end of the attempt before. After "
    f"{PAUSE_AFTER} failures in a row the receiver is paused: messages that were not sent yet wait for "
    f"{_duration(SHORTEST_PAUSE)}; then one of them is sent, and each such failure doubles the wait, up to "
    f"{_duration(LONGEST_PAUSE)}. Any success ends the pause, and the others follow in order."
)


def _webhooks() -> dict[str, Any]:
    """Return a path item for each message, of which the receiver is the server."""
    return {
        name: {
            "post": {
                "operationId": f"webhook_{name.replace('.', '_')}",
                # Not that of the operations: generators of clients would make two files of one name.
                "tags": ["deliveries"],
                "summary": summary,
                "description": _RETRIES,
                "security": [],
                "parameters": components.DELIVERY,
                "requestBody": {
                    "required": True,
                    "content": {JSON: {"schema": components.record_reference(record)}},
                },
                "responses": {"2XX": {"description": "The receiver accepted it."}},
            }
        }
        for name, (summary, record) in _MESSAGES.items()
    }


#: By the type of a number. Without a format, generated clients in Go and Java read rates, counters and times
#: into 32 bits.
_FORMATS = {"integer": "int64", "number": "double"}


def _add_formats(part: Any) -> None:
    """Add the formats to the schemas of numbers in a part of the document."""
    if isinstance(part, dict):
        if isinstance(part.get("type"), str) and part["type"] in _FORMATS:
            part.setdefault("format", _FORMATS[part["type"]])
        for member in part.values():
            _add_formats(member)
    elif isinstance(part, list):
        for item in part:
            _add_formats(item)


def _ordered(document: dict[str, Any]) -> dict[str, Any]:
    """In a stable order: a diff of two documents shows what has changed."""
    schemas = document["components"]["schemas"]
    document["components"]["schemas"] = dict(sorted(schemas.items()))
    first = ("openapi", "info", "servers", "security", "tags", "paths", "webhooks", "components")
    return {name: document[name] for name in first}

"""The OpenAPI document as a whole."""

import inspect
from collections.abc import Callable
from typing import Any

import msgspec
from apispec import APISpec
from apispec.ext.marshmallow.openapi import OpenAPIConverter
from flask import Flask
from werkzeug.routing import Rule

from gateway_api.version import PRODUCT, VERSION
from gateway_api.web.access import Access, access_of
from gateway_api.web.openapi import components
from gateway_api.web.parse import taken_by, template
from gateway_api.web.responses import EVENT_STREAM, JSON, ViewResponse, response_of
from gateway_api.wire.events import DELIVERIES

_OPENAPI = "3.1.0"
_SCHEME = "bearer"
_DESCRIPTION = """\
Lists, inspects and disconnects subscriber sessions, changes their rates, reads the gateway's state,
changes its configuration, and sends events.

Log in, and send the token as `Authorization: Bearer <token>`. Responses are `{"status": "ok", "data": ...}`,
errors `{"status": "error", "message": ...}`; 401 and 403 are `{"detail": ...}`. Times are Unix epoch seconds,
rates bits per second. Later versions may add fields to responses."""

#: By blueprint.
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


def document(app: Flask) -> dict[str, Any]:
    """The document of all views with a mark of their responses. `app` needs its routes only."""
    plugin = components.RequestPlugin()
    spec = APISpec(
        PRODUCT,
        VERSION,
        _OPENAPI,
        [plugin],
        info={
            "summary": "Management API of a broadband subscriber gateway",
            "description": _DESCRIPTION,
            "contact": {"name": "gateway-api"},
            "license": {"name": "MIT", "identifier": "MIT"},
        },
        servers=[{"url": "/", "description": "The gateway that serves this document."}],
        security=[{_SCHEME: []}],
    )
    scheme = {
        "type": "http",
        "scheme": "bearer",
        "bearerFormat": "JWT",
        "description": "The token of a login.",
    }
    spec.components.security_scheme(_SCHEME, scheme)
    components.add_headers(spec)
    components.add_errors(spec)
    converter = plugin.converter
    assert converter is not None  # noqa: S101 - the document has set it
    ids: set[str] = set()
    records: set[type[msgspec.Struct]] = {*DELIVERIES.values()}
    for rule in app.url_map.iter_rules():
        view = app.view_functions[rule.endpoint]
        response = response_of(view)
        if response is None:
            continue
        records.update(response.records, response.events.values(), filter(None, [response.preview]))
        tag = rule.endpoint.partition(".")[0]
        id = _unused(rule.endpoint.replace(".", "_"), ids)
        ids.add(id)
        made = {"operationId": id, "tags": [tag], **_operation(converter, rule, view, response)}
        (method,) = (rule.methods or set()) - {"HEAD", "OPTIONS"}
        spec.path(template(rule.rule), operations={method.lower(): made})
    for name, description in _TAGS.items():
        spec.tag({"name": name, "description": description})
    components.add_records(spec, records)
    spec.options["webhooks"] = _webhooks()
    return _ordered(spec.to_dict())


# Views


def _operation(
    converter: OpenAPIConverter, rule: Rule, view: Callable[..., Any], response: ViewResponse
) -> dict[str, Any]:
    """The operation of a view, without an id."""
    takes, access = taken_by(view), access_of(view) or Access.ADMIN
    has_etag = "ETag" in response.headers + response.optional
    may_be_304 = "GET" in (rule.methods or ()) and has_etag and response.conditional
    request_headers = [
        *([components.IF_MATCH] if 412 in response.errors else ()),
        *([components.IF_NONE_MATCH] if may_be_304 else ()),
        *([components.LAST_EVENT_ID] if response.events and response.resumable else ()),
    ]
    parameters = [
        *(components.PATH[name] for name in sorted(rule.arguments)),
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
    successes = {str(response.status): _success(response)}
    if response.preview is not None:
        successes["200"] = _success(ViewResponse((response.preview,)))
    references = {str(status): components.error_reference(status) for status in sorted(errors)}
    described["responses"] = {**successes, **references}
    return described


def _success(response: ViewResponse) -> dict[str, Any]:
    return {
        "description": _DONE.get(response.status, "Done."),
        "headers": components.headers(*response.headers, optional=response.optional),
        "content": {response.media_type: {"schema": _schema(response)}},
    }


def _schema(response: ViewResponse) -> dict[str, Any]:
    if response.media_type == EVENT_STREAM:
        ids = response.resumable
        return {"oneOf": [_event(name, record, ids=ids) for name, record in response.events.items()]}
    if response.media_type != JSON:
        return {"type": "string"}
    references = [components.record_reference(record) for record in response.records]
    one = references[0] if len(references) == 1 else {"anyOf": references} if references else {"type": "null"}
    if response.bare:
        return one
    status = {"type": "string", "const": "ok", "description": "Distinguishes successes from errors."}
    return {"type": "object", "required": ["status", "data"], "properties": {"status": status, "data": one}}


def _event(name: str, record: type[msgspec.Struct], *, ids: bool) -> dict[str, Any]:
    """An event of a stream by its fields, as in OpenAPI 3.2 section 4.14.4."""
    json = {"contentMediaType": JSON, "contentSchema": components.record_reference(record)}
    id = {"type": "string", "description": "For Last-Event-ID.", "examples": ["84a7e8343baf37f9-57"]}
    fields = {
        **({"id": id} if ids else {}),
        "event": {"type": "string", "const": name, "description": "Event name."},
        "data": {"type": "string", "description": "JSON.", **json},
    }
    return {"type": "object", "required": list(fields), "properties": fields}


# Receivers

_SUMMARIES = {
    "session.up": "A session is established.",
    "session.down": "A session has ended.",
    "webhook.test": "A test, which an admin requested.",
}
_RETRIES = (
    "Any 2xx within 10 s acknowledges it. After any other result, a redirect too, the same bytes are sent "
    "again 5 s, 30 s and 5 min after the end of the attempt before. After three failures in a row, messages "
    "that were not sent yet wait for 5 s; then one of them is sent, and each such failure doubles the wait, "
    "up to 5 min. Any success ends it, and the others follow in order."
)


def _webhooks() -> dict[str, Any]:
    """A path item for each message, of which the receiver is the server."""
    return {
        name: {
            "post": {
                "operationId": f"webhook_{name.replace('.', '_')}",
                "tags": ["webhooks"],
                "summary": summary,
                "description": _RETRIES,
                "security": [],
                "parameters": components.DELIVERY,
                "requestBody": {
                    "required": True,
                    "content": {JSON: {"schema": components.record_reference(DELIVERIES[name])}},
                },
                "responses": {"2XX": {"description": "The receiver accepted it."}},
            }
        }
        for name, summary in _SUMMARIES.items()
    }


def _unused(wanted: str, ids: set[str]) -> str:
    """An id for each operation: a view may have several paths."""
    id, number = wanted, 1
    while id in ids:
        number += 1
        id = f"{wanted}_{number}"
    return id


def _ordered(document: dict[str, Any]) -> dict[str, Any]:
    """In a stable order: a diff of two documents shows what has changed."""
    schemas = document["components"]["schemas"]
    document["components"]["schemas"] = dict(sorted(schemas.items()))
    first = ("openapi", "info", "servers", "security", "tags", "paths", "webhooks", "components")
    return {name: document[name] for name in first}

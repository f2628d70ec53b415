"""The OpenAPI document as a whole."""

from typing import Any

import msgspec
from apispec import APISpec
from flask import Flask

from gateway_api.version import PRODUCT, VERSION
from gateway_api.web.openapi.components import RequestPlugin, add_errors, add_headers, add_records
from gateway_api.web.openapi.operation import operation, webhooks
from gateway_api.web.parse import template
from gateway_api.web.responses import response_of
from gateway_api.wire.events import DELIVERIES

_OPENAPI = "3.1.0"
_SCHEME = "bearer"
_DESCRIPTION = """\
Lists, inspects and disconnects subscriber sessions, changes their rates, reads the gateway's state,
changes its configuration, and tells of events.

Log in, and send the token as `Authorization: Bearer <token>`. Answers are `{"status": "ok", "data": ...}`,
errors `{"status": "error", "message": ...}`; 401 and 403 are `{"detail": ...}`. Times are Unix epoch seconds,
rates bits a second. Later versions may add fields to answers."""

#: By blueprint.
_TAGS = {
    "login": "Log in and out.",
    "subscribers": "Subscriber sessions: list, inspect, disconnect, change their rates.",
    "system": "What this gateway is, and how it fares.",
    "configuration": """\
The running configuration, the candidate, and commits.

The ETag of a response stands for the running configuration and the candidate together. Responses about the
archive or a confirmation have none. Every change of the candidate honours If-Match.""",
    "interfaces": "The interfaces of the system.",
    "qos": "How sessions are shaped.",
    "routing": "Routes and routing neighbours.",
    "cgnat": "Steering to the CGNAT appliance.",
    "demux": "The component that makes a VLAN sub-interface when its first subscriber comes.",
    "events": "The stream of session events.",
    "webhooks": "Receivers of events, and what became of what was sent to them.",
    "audit": "The audit log: changes and rejected requests.",
    "metrics": "The scrape target of Prometheus.",
    "docs": "What this API is: as a document for programs, and as a page for people.",
}


def document(app: Flask) -> dict[str, Any]:
    """The document of all views with a mark of their responses. `app` needs its routes only."""
    plugin = RequestPlugin()
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
        servers=[{"url": "/", "description": "Where this document comes from."}],
        security=[{_SCHEME: []}],
    )
    scheme = {"type": "http", "scheme": "bearer", "bearerFormat": "JWT", "description": "From log in."}
    spec.components.security_scheme(_SCHEME, scheme)
    add_headers(spec)
    add_errors(spec)
    converter = plugin.converter
    assert converter is not None  # noqa: S101 - the document has set it
    ids: set[str] = set()
    records: set[type[msgspec.Struct]] = {*DELIVERIES.values()}
    for rule in app.url_map.iter_rules():
        view = app.view_functions[rule.endpoint]
        response = response_of(view)
        if response is None:
            continue
        records.update(response.records, response.events.values())
        tag = rule.endpoint.partition(".")[0]
        id = _unused(rule.endpoint.replace(".", "_"), ids)
        ids.add(id)
        made = {"operationId": id, "tags": [tag], **operation(converter, rule, view, response)}
        (method,) = (rule.methods or set()) - {"HEAD", "OPTIONS"}
        spec.path(template(rule.rule), operations={method.lower(): made})
    for name, description in _TAGS.items():
        spec.tag({"name": name, "description": description})
    add_records(spec, records)
    spec.options["webhooks"] = webhooks()
    return _ordered(spec.to_dict())


def _unused(wanted: str, ids: set[str]) -> str:
    """A view may have several paths, and each operation has an id of its own."""
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

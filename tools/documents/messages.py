"""The AsyncAPI document of the relay: its subjects, with the schemas of the OpenAPI document."""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from gateway_contract.version import VERSION
from gateway_relay.messages import EVENT_HEADER, ID_HEADER, SUBJECTS, SnapshotPart

#: Schema of the body on each subject.
_SCHEMAS = {
    "events.session_up": "SessionUp",
    "events.session_down": "SessionDown",
    "events.session_rate": "SessionRate",
    "snapshot": "SnapshotPart",
    "commits": "RunningCommit",
    "faults": "FaultList",
    "health": "HealthDetail",
    "audit": "AuditRecord",
}
_SCHEMAS_PATH = "#/components/schemas/"
_GATEWAY = {"description": "Name of the gateway: 1 to 64 letters, digits, hyphens and underscores."}
_HEADERS = {
    ID_HEADER: "Id by which JetStream recognizes a message that was published twice.",
    EVENT_HEADER: "Id of a session event, as in the event stream of the API.",
}


def generate_document(openapi: Mapping[str, Any]) -> dict[str, Any]:
    """Return the AsyncAPI document (version 3.0.0)."""
    (_, own) = msgspec.json.schema_components([SnapshotPart], ref_template=f"{_SCHEMAS_PATH}{{name}}")
    own["SnapshotPart"]["properties"]["sessions"]["items"] = {"$ref": f"{_SCHEMAS_PATH}SessionSummary"}
    schemas = {**openapi["components"]["schemas"], **own}
    used = {name: schemas[name] for name in sorted(set(_list_names(schemas, _SCHEMAS.values())))}
    return {
        "asyncapi": "3.0.0",
        "info": {
            "title": "Messages of a subscriber gateway",
            "version": VERSION,
            "description": "What gateway-relay publishes to NATS JetStream.",
        },
        "defaultContentType": "application/json",
        "channels": {
            _name(subject): {
                "address": f"gw.{{gateway}}.{subject}",
                "description": about,
                "parameters": {"gateway": _GATEWAY},
                "messages": {_SCHEMAS[subject]: {"$ref": f"#/components/messages/{_SCHEMAS[subject]}"}},
            }
            for subject, about in SUBJECTS.items()
        },
        "operations": {
            f"send_{_name(subject)}": {
                "action": "send",
                "channel": {"$ref": f"#/channels/{_name(subject)}"},
                "summary": about,
            }
            for subject, about in SUBJECTS.items()
        },
        "components": {
            "messages": {
                _SCHEMAS[subject]: {
                    "headers": _make_headers(subject),
                    "payload": {"$ref": f"{_SCHEMAS_PATH}{_SCHEMAS[subject]}"},
                }
                for subject in SUBJECTS
            },
            "schemas": used,
        },
    }


def _name(subject: str) -> str:
    return subject.rpartition(".")[2]


def _make_headers(subject: str) -> dict[str, Any]:
    names = [ID_HEADER, EVENT_HEADER] if subject.startswith("events.") else [ID_HEADER]
    properties = {name: {"type": "string", "description": _HEADERS[name]} for name in names}
    return {"type": "object", "properties": properties, "required": names}


def _list_names(schemas: Mapping[str, Any], names: Any) -> Iterator[str]:
    """Yield these names, and the names of the schemas to which their schemas refer."""
    for name in names:
        yield name
        inner = re.findall(f'"{_SCHEMAS_PATH}([^"]+)"', json.dumps(schemas[name]))
        yield from _list_names(schemas, inner)

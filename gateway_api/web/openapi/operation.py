"""One operation of the document: what its view, the view's marks and its path say."""

import inspect
from collections.abc import Callable
from typing import Any

import msgspec
from apispec.ext.marshmallow.openapi import OpenAPIConverter
from werkzeug.routing import Rule

from gateway_api.web.access import Access, access_of
from gateway_api.web.openapi.converter import reference, reference_to
from gateway_api.web.openapi.errors import error
from gateway_api.web.openapi.headers import headers
from gateway_api.web.parse import Takes, taken_by
from gateway_api.web.responses import EVENT_STREAM, JSON, ViewResponse
from gateway_api.web.schemas.parameters import PathParameters, RequestHeaders

View = Callable[..., Any]

_WHO = {
    Access.ALWAYS: "No token is needed, and it answers while the API is disabled.",
    Access.OPEN: "No token is needed.",
    Access.ANY_ROLE: "For admins and operators.",
    Access.ADMIN: "For admins.",
}
_ROLES = {Access.ANY_ROLE: ["admin", "operator"], Access.ADMIN: ["admin"]}


def operation(converter: OpenAPIConverter, rule: Rule, view: View, response: ViewResponse) -> dict[str, Any]:
    """The operation object, without an id."""
    takes, access = taken_by(view), access_of(view) or Access.ADMIN
    summary, _, more = inspect.cleandoc(view.__doc__ or "").partition("\n\n")
    described: dict[str, Any] = {
        "summary": summary.replace("\n", " "),
        "description": "\n\n".join(filter(None, (more, _WHO[access]))),
        # What needs a token, the document says for all.
        **({"x-roles": _ROLES[access]} if access in _ROLES else {"security": []}),
    }
    if parameters := _parameters(rule, takes, response):
        described["parameters"] = parameters
    if takes.body is not None:
        content = {JSON: {"schema": reference(converter, takes.body)}}
        described["requestBody"] = {"required": not takes.optional, "content": content}
    described["responses"] = {
        str(response.status): _success(response),
        **{str(status): error(status) for status in sorted(_errors(rule, takes, access, response))},
    }
    return described


def _parameters(rule: Rule, takes: Takes, response: ViewResponse) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    if rule.arguments:
        found.append({"in": "path", "schema": PathParameters(only=sorted(rule.arguments))})
    if takes.query is not None:
        found.append({"in": "query", "schema": takes.query})
    if heads := _heads(rule, response):
        found.append({"in": "header", "schema": RequestHeaders(only=heads)})
    return found


def _heads(rule: Rule, response: ViewResponse) -> list[str]:
    names = {
        "if_match": 412 in response.errors,
        "if_none_match": _may_be_left_out(rule, response),
        "last_event_id": bool(response.events),
    }
    return [name for name, taken in names.items() if taken]


def _may_be_left_out(rule: Rule, response: ViewResponse) -> bool:
    return "GET" in (rule.methods or ()) and "ETag" in response.headers and response.conditional


def _errors(rule: Rule, takes: Takes, access: Access, response: ViewResponse) -> set[int]:
    return {
        *response.errors,
        # A parameter that isn't known is refused everywhere.
        400,
        500,
        *({401} if access in _ROLES else ()),
        *({403} if access is Access.ADMIN else ()),
        *({404} if rule.arguments else ()),
        *({413} if takes.body is not None else ()),
        *({414} if rule.arguments or takes.query is not None else ()),
        *({304} if _may_be_left_out(rule, response) else ()),
        *({431} if _heads(rule, response) else ()),
        *({503} if access is not Access.ALWAYS else ()),
    }


def _success(response: ViewResponse) -> dict[str, Any]:
    return {
        "description": "Created." if response.status == 201 else "Done.",
        "headers": headers(*response.headers),
        "content": {response.media_type: {"schema": _schema(response)}},
    }


def _schema(response: ViewResponse) -> dict[str, Any]:
    references = [reference_to(record) for record in response.records]
    if response.media_type == EVENT_STREAM:
        return {"oneOf": [_event(name, record) for name, record in response.events.items()]}
    if response.media_type != JSON:
        return {"type": "string"}
    one = references[0] if len(references) == 1 else {"anyOf": references} if references else {"type": "null"}
    if response.bare:
        return one
    status = {"type": "string", "const": "ok", "description": "Tells it from an error."}
    return {"type": "object", "required": ["status", "data"], "properties": {"status": status, "data": one}}


def _event(name: str, record: type[msgspec.Struct]) -> dict[str, Any]:
    """One event of a stream by its fields, as later versions of OpenAPI have it (3.2 section 4.14.4)."""
    json = {"contentMediaType": JSON, "contentSchema": reference_to(record)}
    fields = {
        "id": {"type": "string", "description": "For Last-Event-ID.", "examples": ["84a7e8343baf37f9-57"]},
        "event": {"type": "string", "const": name, "description": "Event name."},
        "data": {"type": "string", "description": "JSON.", **json},
    }
    return {"type": "object", "required": list(fields), "properties": fields}

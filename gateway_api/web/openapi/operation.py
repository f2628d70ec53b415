"""One operation of the document: what its view, the view's marks and its path say."""

import inspect
from collections.abc import Callable
from typing import Any

import msgspec
from apispec.ext.marshmallow.openapi import OpenAPIConverter
from werkzeug.routing import Rule

from gateway_api.web.access import Access, access_of
from gateway_api.web.envelope import JSON
from gateway_api.web.openapi.converter import reference, reference_to
from gateway_api.web.openapi.errors import error
from gateway_api.web.openapi.headers import headers
from gateway_api.web.parse import Takes, taken_by
from gateway_api.web.responses import EVENT_STREAM, Answers
from gateway_api.web.schemas.parameters import PathParameters, RequestHeaders

View = Callable[..., Any]

_WHO = {
    Access.ALWAYS: "No token is needed, and it answers while the API is disabled.",
    Access.OPEN: "No token is needed.",
    Access.ANY_ROLE: "For admins and operators.",
    Access.ADMIN: "For admins.",
}
_ROLES = {Access.ANY_ROLE: ["admin", "operator"], Access.ADMIN: ["admin"]}


def operation(converter: OpenAPIConverter, rule: Rule, view: View, answers: Answers) -> dict[str, Any]:
    """The operation object, without an id."""
    takes, access = taken_by(view), access_of(view) or Access.ADMIN
    summary, _, more = inspect.cleandoc(view.__doc__ or "").partition("\n\n")
    described: dict[str, Any] = {
        "summary": summary.replace("\n", " "),
        "description": "\n\n".join(filter(None, (more, _WHO[access]))),
        # What needs a token, the document says for all.
        **({"x-roles": _ROLES[access]} if access in _ROLES else {"security": []}),
    }
    if parameters := _parameters(rule, takes, answers):
        described["parameters"] = parameters
    if takes.body is not None:
        content = {JSON: {"schema": reference(converter, takes.body)}}
        described["requestBody"] = {"required": not takes.optional, "content": content}
    described["responses"] = {
        str(answers.status): _success(answers),
        **{str(status): error(status) for status in sorted(_errors(rule, takes, access, answers))},
    }
    return described


def _parameters(rule: Rule, takes: Takes, answers: Answers) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    if rule.arguments:
        found.append({"in": "path", "schema": PathParameters(only=sorted(rule.arguments))})
    if takes.query is not None:
        found.append({"in": "query", "schema": takes.query})
    if heads := _heads(rule, answers):
        found.append({"in": "header", "schema": RequestHeaders(only=heads)})
    return found


def _heads(rule: Rule, answers: Answers) -> list[str]:
    names = {
        "if_match": 412 in answers.errors,
        "if_none_match": _may_be_left_out(rule, answers),
        "last_event_id": bool(answers.events),
    }
    return [name for name, taken in names.items() if taken]


def _may_be_left_out(rule: Rule, answers: Answers) -> bool:
    return "GET" in (rule.methods or ()) and "ETag" in answers.headers and answers.conditional


def _errors(rule: Rule, takes: Takes, access: Access, answers: Answers) -> set[int]:
    return {
        *answers.errors,
        # A parameter that isn't known is refused everywhere.
        400,
        500,
        *({401} if access in _ROLES else ()),
        *({403} if access is Access.ADMIN else ()),
        *({404} if rule.arguments else ()),
        *({413} if takes.body is not None else ()),
        *({414} if rule.arguments or takes.query is not None else ()),
        *({304} if _may_be_left_out(rule, answers) else ()),
        *({431} if _heads(rule, answers) else ()),
        *({503} if access is not Access.ALWAYS else ()),
    }


def _success(answers: Answers) -> dict[str, Any]:
    return {
        "description": "Created." if answers.status == 201 else "Done.",
        "headers": headers(*answers.headers),
        "content": {answers.media_type: {"schema": _schema(answers)}},
    }


def _schema(answers: Answers) -> dict[str, Any]:
    references = [reference_to(record) for record in answers.records]
    if answers.media_type == EVENT_STREAM:
        return {"oneOf": [_event(name, record) for name, record in answers.events.items()]}
    if answers.media_type != JSON:
        return {"type": "string"}
    one = references[0] if len(references) == 1 else {"anyOf": references} if references else {"type": "null"}
    if answers.bare:
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

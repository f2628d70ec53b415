"""Turns what a client sent into what a view can trust."""

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, wraps
from typing import Any
from urllib.parse import parse_qsl

import msgspec
from flask import Flask, g, request
from werkzeug.exceptions import RequestEntityTooLarge
from werkzeug.routing import BaseConverter

from gateway_api.base.errors import Invalid, NotFound, Problem
from gateway_api.base.fields import Schema, decode_json, load

MAX_BODY = 1 << 20

_ID = re.compile(r"[1-9][0-9]{0,18}", re.ASCII)
#: The highest session id.
MAX_ID = (1 << 63) - 1
_MARK = "__takes__"

_View = Callable[..., Any]


@dataclass(frozen=True)
class Takes:
    """The schemas of a view's JSON body, which is `optional` or not, and of its query; None for neither. With
    `any_query`, the query is that of the page's own scripts."""

    body: type[Schema] | None = None
    optional: bool = False
    query: type[Schema] | None = None
    any_query: bool = False


def taken_by(view: _View) -> Takes:
    takes: Takes = getattr(view, _MARK, Takes())
    return takes


def body(schema: type[Schema], *, optional: bool = False) -> Callable[[_View], _View]:
    """The view's first argument is the request's JSON object, loaded with the schema. `g.body` is the object
    as it was sent, once it matches the schema. An `optional` body may be left out, for an empty object."""
    loader = schema()

    def decorate(view: _View) -> _View:
        @wraps(view)
        def parsed(*args: Any, **kwargs: Any) -> Any:
            sent = json_object(optional=optional)
            loaded = load(loader, sent)
            g.body = sent
            return view(loaded, *args, **kwargs)

        setattr(parsed, _MARK, replace(taken_by(view), body=schema, optional=optional))
        return parsed

    return decorate


def query(schema: type[Schema]) -> Callable[[_View], _View]:
    """The view's first argument is the query string, loaded with the schema."""
    loader = schema()

    def decorate(view: _View) -> _View:
        @wraps(view)
        def parsed(*args: Any, **kwargs: Any) -> Any:
            repeated = [name for name, values in request.args.lists() if len(values) > 1]
            if repeated:
                raise Invalid(*(Problem(name, "invalid", "must be given once") for name in repeated))
            return view(load(loader, request.args.to_dict()), *args, **kwargs)

        setattr(parsed, _MARK, replace(taken_by(view), query=schema))
        return parsed

    return decorate


def any_query(view: _View) -> _View:
    """Marks a view that ignores its query."""
    setattr(view, _MARK, replace(taken_by(view), any_query=True))
    return view


def session_id(text: str) -> int:
    """The id in a path. Raises NotFound for any other text."""
    return _number(text, "No such session")


def job_id(text: str) -> int:
    """The id in a path. Raises NotFound for any other text."""
    return _number(text, "No such job")


def revision(text: str) -> int:
    """The number in a path. Raises NotFound for any other text."""
    return _number(text, "No such revision")


def _number(text: str, otherwise: str) -> int:
    if not _ID.fullmatch(text) or int(text) > MAX_ID:
        raise NotFound(otherwise)
    return int(text)


class SessionSegment(BaseConverter):
    """A session's id in a path. Without the names that may stand in its place: a wrong method on one of those
    would be taken for a session that does not exist."""

    regex = (
        r"(?!(?:summary|history|failed-sign-ons|flapping|traffic|jobs|rate|disconnect|disconnect-by-interface)"
        r"\Z)[^/]+"
    )


@cache
def template(rule: str) -> str:
    """werkzeug's `/subscribers/<session:id>` as OpenAPI's `/subscribers/{id}` (OpenAPI 3.1 section 4.8.8)."""
    return re.sub(r"<(?:\w+:)?(\w+)>", r"{\1}", rule)


def install(app: Flask) -> None:
    """Rejects a query where the view takes none: a typo must not silently return something else. To be called
    when all routes are registered."""
    for endpoint, view in app.view_functions.items():
        app.view_functions[endpoint] = _with_checked_query(view)


def _with_checked_query(view: _View) -> _View:
    takes = taken_by(view)
    takes_query = takes.query is not None or takes.any_query

    @wraps(view)
    def checked(**segments: Any) -> Any:
        if request.query_string:
            if b"%" in request.query_string:
                _reject_other_bytes()
            if not takes_query and request.args:
                raise Invalid(
                    *(Problem(name, "unknown", "is not a known parameter") for name in request.args)
                )
        return view(**segments)

    return checked


def _reject_other_bytes() -> None:
    """werkzeug would read `%ff` as three characters."""
    pairs = parse_qsl(
        request.query_string.decode("latin-1"), keep_blank_values=True, errors="surrogateescape"
    )
    wrong = [name if _is_text(name) else "" for name, value in pairs if not _is_text(name + value)]
    if wrong:
        raise Invalid(*(Problem(name, "invalid", "must be percent-encoded UTF-8") for name in wrong))


def _is_text(text: str) -> bool:
    """False with a surrogate, which stands for a byte that is not UTF-8."""
    return not any("\ud800" <= character <= "\udfff" for character in text)


def json_object(*, optional: bool = False) -> dict[str, Any]:
    """The body of the current request. Empty if it is `optional` and left out. Raises Invalid."""
    if (request.content_length or 0) > MAX_BODY:
        raise RequestEntityTooLarge
    try:
        # One byte more tells a body that fits from one that was cut to fit.
        data = request.stream.read(MAX_BODY + 1)
    except Exception as error:
        # PEP 3333 leaves it to the server what its reader raises for a body with wrong framing. The cause is
        # always the client.
        raise Invalid(Problem("", "invalid", "The body could not be read")) from error
    if len(data) > MAX_BODY:
        raise RequestEntityTooLarge
    if optional and not data:
        return {}
    try:
        decoded = decode_json(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise Invalid(Problem("", "invalid", "The body must be JSON in UTF-8")) from error
    if not isinstance(decoded, dict):
        raise Invalid(Problem("", "invalid", "The body must be a JSON object"))
    return decoded

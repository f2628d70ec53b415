"""From what a client sent to what a view can trust."""

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import wraps
from typing import Any
from urllib.parse import parse_qsl

import msgspec
from flask import Flask, Response, g, request
from werkzeug.exceptions import RequestEntityTooLarge
from werkzeug.routing import BaseConverter

from gateway_api.base.errors import Invalid, NotFound, Problem
from gateway_api.base.fields import Schema, decode_json, load
from gateway_api.events.sse import EventId, parse_id
from gateway_api.web import responses
from gateway_api.web.context import parts
from gateway_api.web.schemas.queries import ListQuery

MAX_BODY = 1 << 20

_ID = re.compile(r"[1-9][0-9]{0,18}", re.ASCII)
#: The highest session id.
MAX_ID = (1 << 63) - 1
_TAKES = "__takes__"

#: An entity tag (RFC 9110 section 8.8.3), and a list of at least one (section 5.6.1).
_TAG = r'(?:W/)?"[!#-~\x80-\xff]*"'
ENTITY_TAGS = rf"[ \t,]*{_TAG}(?:[ \t]*,[ \t,]*{_TAG})*[ \t,]*"
_ANY_TAG = "*"

#: Filters that may match most of a list. Others match few records, from an index.
_WIDE = {"type"}

View = Callable[..., Any]


@dataclass(frozen=True)
class Takes:
    """The schemas of a view's JSON body, which is `optional` or not, and of its query; None for neither."""

    body: type[Schema] | None = None
    optional: bool = False
    query: type[Schema] | None = None


def taken_by(view: View) -> Takes:
    takes: Takes = getattr(view, _TAKES, Takes())
    return takes


def body(schema: type[Schema], *, optional: bool = False) -> Callable[[View], View]:
    """The view's first argument is the request's JSON object, loaded with the schema; `g.body` is the object
    as it was sent, once it is known to be of its shape. An `optional` one may
    be left out, which is the same as an empty object."""
    loader = schema()

    def decorate(view: View) -> View:
        @wraps(view)
        def parsed(*args: Any, **kwargs: Any) -> Any:
            document = _json_object(optional=optional)
            loaded = load(loader, document)
            g.body = document
            return view(loaded, *args, **kwargs)

        setattr(parsed, _TAKES, replace(taken_by(view), body=schema, optional=optional))
        return parsed

    return decorate


def document(view: View) -> View:
    """The view's first argument is the request's JSON object, as it is."""

    @wraps(view)
    def parsed(*args: Any, **kwargs: Any) -> Any:
        return view(_json_object(optional=False), *args, **kwargs)

    return parsed


def query(schema: type[Schema]) -> Callable[[View], View]:
    """The view's first argument is the query string, loaded with the schema."""
    loader = schema()

    def decorate(view: View) -> View:
        @wraps(view)
        def parsed(*args: Any, **kwargs: Any) -> Any:
            return view(load(loader, _query()), *args, **kwargs)

        setattr(parsed, _TAKES, replace(taken_by(view), query=schema))
        return parsed

    return decorate


def list_query(schema: type[ListQuery]) -> Callable[[View], View]:
    """As `query`. Equal requests without a page at the same time share one response body."""

    def decorate(view: View) -> View:
        @query(schema)
        @wraps(view)
        def shared(loaded: dict[str, Any]) -> Response:
            if loaded["page"] is not None or loaded.get("filter", {}).keys() - _WIDE:
                made: Response = view(loaded)
                return made
            key = (request.endpoint, msgspec.json.encode(loaded, order="sorted"))
            body, sent = parts().whole_lists.take(key, lambda: view(loaded).get_data())
            response = responses.encoded(body)
            response.call_on_close(sent)
            return response

        return shared

    return decorate


def session_id(text: str) -> int:
    """The id in a path. What can't be one belongs to no session: raises NotFound."""
    return _number(text, "No such session")


def revision(text: str) -> int:
    """The number in a path. What can't be one belongs to no revision: raises NotFound."""
    return _number(text, "No such revision")


def last_event_id() -> EventId | None:
    """What an event source that lost its connection says to have seen last. One that was never ours is
    as good as one that is held no more: it must not be refused, or the source would give up for ever."""
    text = request.headers.get("Last-Event-ID", "")
    try:
        return parse_id(text) if text else None
    except ValueError:
        return EventId("unknown", 0)


def if_match() -> list[str] | None:
    """The entity tags of which one must still be right; None when any will do (RFC 9110 section 13.1.1).
    Raises Invalid for a malformed header: it would never match, and its sender would never learn why."""
    text = request.headers.get("If-Match", _ANY_TAG).strip()
    if text == _ANY_TAG:
        return None
    if not re.fullmatch(ENTITY_TAGS, text):
        raise Invalid(Problem("If-Match", "invalid", "must be entity tags in double quotes, or *"))
    # Weak ones never match.
    return [tag.strip('"') for tag in re.findall(_TAG, text) if not tag.startswith("W/")]


def if_none_match(etag: str | None) -> bool:
    """Whether the client has what this entity tag stands for (RFC 9110 section 13.1.2). A malformed header
    names nothing: the whole answer is right for every client."""
    text = request.headers.get("If-None-Match", "").strip()
    if etag is None:
        return False
    if not re.fullmatch(ENTITY_TAGS, text):
        return text == _ANY_TAG
    return etag.removeprefix("W/") in [tag.removeprefix("W/") for tag in re.findall(_TAG, text)]


class SessionSegment(BaseConverter):
    """The place of a session's id in a path: anything but the names that stand beside it, or a wrong
    method on one of those would be taken for a session that doesn't exist."""

    regex = r"(?!(?:summary|disconnect-by-interface)\Z)[^/]+"


def install(app: Flask) -> None:
    """Has queries refused where none is taken."""

    @app.before_request
    def _refuse_unknown_query() -> None:
        view = app.view_functions.get(request.endpoint or "")
        if view is None:
            return
        if b"%" in request.query_string:
            _refuse_other_bytes()
        if taken_by(view).query is None and request.args:
            # A typo must not silently return something else.
            raise Invalid(*(Problem(name, "unknown", "is not a known parameter") for name in request.args))


def _refuse_other_bytes() -> None:
    """werkzeug would read `%ff` as the three characters that it is written with."""
    query = request.query_string.decode("latin-1")
    pairs = parse_qsl(query, keep_blank_values=True, errors="surrogateescape")
    wrong = [name if _is_text(name) else "" for name, value in pairs if not _is_text(name + value)]
    if wrong:
        raise Invalid(*(Problem(name, "invalid", "must be percent-encoded UTF-8") for name in wrong))


def _is_text(text: str) -> bool:
    """Without what stands for bytes that aren't UTF-8."""
    return not any("\ud800" <= character <= "\udfff" for character in text)


def _number(text: str, otherwise: str) -> int:
    if not _ID.fullmatch(text) or int(text) > MAX_ID:
        raise NotFound(otherwise)
    return int(text)


def _query() -> dict[str, str]:
    repeated = [name for name, values in request.args.lists() if len(values) > 1]
    if repeated:
        raise Invalid(*(Problem(name, "invalid", "must be given once") for name in repeated))
    return request.args.to_dict()


def _json_object(*, optional: bool) -> dict[str, Any]:
    if (request.content_length or 0) > MAX_BODY:
        raise RequestEntityTooLarge
    try:
        # One byte more tells a body that fits from one that was cut to fit.
        data = request.stream.read(MAX_BODY + 1)
    except Exception as error:
        # What a server's reader raises for a body that isn't framed as it says is the server's own
        # affair (PEP 3333 leaves it open), and always the client's fault.
        raise Invalid(Problem("", "invalid", "The body could not be read")) from error
    if len(data) > MAX_BODY:
        raise RequestEntityTooLarge
    if optional and not data:
        return {}
    try:
        document = decode_json(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise Invalid(Problem("", "invalid", "The body must be JSON in UTF-8")) from error
    if not isinstance(document, dict):
        raise Invalid(Problem("", "invalid", "The body must be a JSON object"))
    return document

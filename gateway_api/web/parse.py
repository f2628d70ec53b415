"""Parsing of requests into values that a view can trust."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl

import msgspec
from werkzeug.exceptions import RequestEntityTooLarge
from werkzeug.routing import BaseConverter

from gateway_api.web.request import ApiRequest
from gateway_contract.base.errors import Invalid, NotFound, Problem
from gateway_contract.base.fields import Schema, decode_json, load
from gateway_contract.base.texts import parse_numeric_id

MAX_BODY_BYTES = 1 << 20

#: Path variables that are numbers, and the error message for any other text.
_NUMBER_VARIABLES = {"id": "No such session", "job": "No such job", "revision": "No such revision"}


def parse_query(request: ApiRequest, schema: type[Schema] | None) -> Any:
    """Return the query of a request, loaded by the schema. If the schema is None, return None. Raises Invalid
    if the query does not match the schema, or if there are parameters without a schema: a misspelled
    parameter must not be ignored silently."""
    if b"%" in request.query_string:
        _reject_invalid_utf8(request.query_string)
    if schema is None:
        if request.query_string and request.args:
            raise Invalid(*(Problem(name, "unknown", "is not a known parameter") for name in request.args))
        return None
    repeated = [name for name, values in request.args.lists() if len(values) > 1]
    if repeated:
        raise Invalid(*(Problem(name, "invalid", "must be given once") for name in repeated))
    return load(schema, request.args.to_dict())


def parse_body(request: ApiRequest, schema: type[Schema] | type[msgspec.Struct], *, optional: bool) -> Any:
    """Return the JSON object in the body of a request, loaded by the schema. If the schema is a struct, the
    JSON object is returned unchanged. With `optional`, a missing body counts as an empty object. Raises
    Invalid if the body is not a JSON object or does not match the schema."""
    body = _read_json_object(request, optional=optional)
    if issubclass(schema, msgspec.Struct):
        # Without a schema, the body is kept out of the audit log: it may contain a secret anywhere.
        return body
    result = load(schema, body)
    request.body = body
    return result


def parse_variables(path: Mapping[str, str]) -> dict[str, Any]:
    """Return the variables of a path, with numbers as integers. Raises NotFound if a variable must be a
    number but is not a valid number."""
    return {
        name: _parse_number(text, _NUMBER_VARIABLES[name]) if name in _NUMBER_VARIABLES else text
        for name, text in path.items()
    }


def _parse_number(text: str, message: str) -> int:
    try:
        return parse_numeric_id(text)
    except ValueError as error:
        raise NotFound(message) from error


class SessionIdConverter(BaseConverter):
    """URL converter for a session id in a path. The converter does not match a word that another path has in
    the place of the id, such as `summary`. So the response to a wrong method on the other path is 405, and
    not an error about an unknown session."""

    regex = (
        r"(?!(?:summary|history|failed-sign-ons|flapping|traffic|jobs|rate|disconnect|disconnect-by-interface)"
        r"\Z)[^/]+"
    )


def _reject_invalid_utf8(query: bytes) -> None:
    """Raise Invalid if a query has bytes that are not UTF-8. werkzeug would not reject such bytes: it would
    read `%ff` as three characters."""
    pairs = parse_qsl(query.decode("latin-1"), keep_blank_values=True, errors="surrogateescape")
    invalid_names = [
        name if _is_valid_text(name) else "" for name, value in pairs if not _is_valid_text(name + value)
    ]
    if invalid_names:
        raise Invalid(*(Problem(name, "invalid", "must be percent-encoded UTF-8") for name in invalid_names))


def _is_valid_text(text: str) -> bool:
    """Return False if a text contains a surrogate, which stands for a byte that is not UTF-8."""
    return not any("\ud800" <= character <= "\udfff" for character in text)


def _read_json_object(request: ApiRequest, *, optional: bool) -> dict[str, Any]:
    """Return the JSON object in the body of a request. With `optional`, return an empty object if the body is
    missing. Raises Invalid if the body cannot be read or is not a JSON object, and RequestEntityTooLarge if
    the body is too long."""
    if (request.content_length or 0) > MAX_BODY_BYTES:
        raise RequestEntityTooLarge
    try:
        # One more byte than the limit shows whether the body is too long.
        data = request.stream.read(MAX_BODY_BYTES + 1)
    except Exception as error:
        # PEP 3333 does not define which exception the server's reader raises for wrong framing by a client.
        raise Invalid(Problem("", "invalid", "The body could not be read")) from error
    if len(data) > MAX_BODY_BYTES:
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

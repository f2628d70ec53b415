"""Strict fields for marshmallow, whose error messages become Problems. These fields never convert a value:
marshmallow's own fields accept `true` as an integer and `"yes"` as a boolean."""

import math
import re
from codecs import BOM_UTF8
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from itertools import islice
from typing import Any, ClassVar

import marshmallow
import msgspec
from marshmallow import fields

from gateway_contract.base.errors import Invalid, Problem

_MISSING = "is required"
_UNKNOWN = "is not a known field"
_CODES = {_MISSING: "missing", _UNKNOWN: "unknown"}

#: Maximum number of problems in a response: a body of unknown fields would get a response ten times its size.
MAX_PROBLEMS = 20
_LONGEST_NAME = 64

#: One line that cannot disturb a terminal or hide text: no control characters, no characters without width,
#: no change of direction. Python and ECMA-262 read the expression alike, for the OpenAPI document.
LINE = r"^[^\x00-\x1f\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\uffff]*$"


def is_line(text: str) -> bool:
    # `re.match` would allow a line feed at the end.
    return re.fullmatch(LINE, text) is not None


def decode_json(data: bytes | str) -> Any:
    """Decode JSON in which `65535.0` is an integer (JSON Schema 2020-12, validation, section 6.1.1). A
    byte-order mark before bytes is ignored (RFC 8259 section 8.1). Raises msgspec.MsgspecError if the data is
    not JSON, UnicodeDecodeError if it is not UTF-8, and RecursionError if it is nested too deeply."""
    return _decoder.decode(data.removeprefix(BOM_UTF8) if isinstance(data, bytes) else data)


def _parse_number(text: str) -> int | float:
    value = float(text)
    if math.isinf(value):
        raise ValueError("Number out of range")
    return int(value) if value.is_integer() else value


_decoder = msgspec.json.Decoder(float_hook=_parse_number)


def says(description: str, example: Any, **more: Any) -> dict[str, Any]:
    """Return the `metadata` of a field for the OpenAPI document: a description (with the unit, if there is
    one) and an example as a client sends it. `more` contains keywords of JSON Schema for rules that no
    validator of the field expresses."""
    return {"description": description, "examples": [example], **more}


class Schema(marshmallow.Schema):
    """Schema that rejects unknown fields. Loading an object returns the result of `made` with the fields of
    the object."""

    made: ClassVar[Callable[..., Any]] = dict
    error_messages = {"unknown": _UNKNOWN, "type": "must be an object"}

    class Meta:
        unknown = marshmallow.RAISE

    @marshmallow.post_load
    def make(self, data: dict[str, Any], **_: Any) -> Any:
        return self.made(**data)


class _ApiField(fields.Field[Any]):
    """Base class of all fields, with the error messages of the API."""

    default_error_messages = {"required": _MISSING, "null": "must not be null"}


class ListField(_ApiField, fields.List[Any]):
    """Field for a JSON array."""


class NestedField(_ApiField, fields.Nested):
    """Field for a JSON object that has a schema of its own."""


class JsonField(_ApiField, fields.Raw):
    """Field for any JSON value."""


class _ExactField(_ApiField):
    """Field for a value of exactly one Python type. A value of any other type causes the error `invalid`."""

    TYPE: type

    def _deserialize(self, value: Any, attr: str | None, data: Any, **kwargs: Any) -> Any:
        if type(value) is not self.TYPE:
            raise self.make_error("invalid")
        return value


class TextField(_ApiField, fields.String):
    """Field for a JSON string."""

    default_error_messages = {"invalid": "must be a string"}


class WholeField(_ExactField, fields.Integer):
    """Field for a JSON integer. The field rejects `true`, `1.5` and `"1"`. `1.0` is accepted, because
    `decode_json` turns `1.0` into an integer."""

    TYPE = int
    default_error_messages = {"invalid": "must be an integer"}


class FlagField(_ExactField, fields.Boolean):
    """Field for a JSON `true` or `false`."""

    TYPE = bool
    default_error_messages = {"invalid": "must be true or false"}


class ParsedField(_ApiField):
    """Field for a JSON string, loaded as the result of `parse`. `parse` raises ValueError with the broken
    rule if the string is not valid."""

    default_error_messages = TextField.default_error_messages

    def __init__(self, parse: Callable[[str], Any], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._parse = parse

    def _deserialize(self, value: Any, attr: str | None, data: Any, **kwargs: Any) -> Any:
        if not isinstance(value, str):
            raise self.make_error("invalid")
        try:
            return self._parse(value)
        except ValueError as error:
            raise marshmallow.ValidationError(str(error)) from error


def shorten_name(name: Any) -> str:
    """Return a name from a request, cut to a length that fits in a response."""
    text = str(name)
    return text if len(text) <= _LONGEST_NAME else f"{text[:_LONGEST_NAME]}..."


#: One instance of each schema: making an instance takes longer than loading with it.
_get_instance = cache(lambda schema: schema())


def load(schema: type[Schema], data: Any) -> Any:
    """Load data with a schema, and return the result. Raises Invalid if the data does not match the
    schema."""
    try:
        return _get_instance(schema).load(data)
    except marshmallow.ValidationError as error:
        raise Invalid(*islice(_iterate_problems(error.messages_dict, data), MAX_PROBLEMS)) from error


def _iterate_problems(messages: Mapping[Any, Any], data: Any, above: str = "") -> Iterator[Problem]:
    """Yield the problems in error `messages` of marshmallow: first the problems of fields that `data`
    contains, in the order of `data`, then the problems of missing fields, in the order of the schema. `above`
    is the path of `data`."""
    # marshmallow finds unknown fields in a set, whose order changes with each process.
    given_fields = list(data) if isinstance(data, Mapping) else []
    positions = {key: position for position, key in enumerate(given_fields)}
    for key in sorted(messages, key=lambda key: positions.get(key, len(given_fields))):
        message_part = messages[key]
        # "_schema" has the messages about the whole object.
        path = above if key == "_schema" else f"{above}.{shorten_name(key)}".lstrip(".")
        if isinstance(message_part, Mapping):
            yield from _iterate_problems(message_part, _get_part(data, key), path)
            continue
        for message in message_part:
            yield Problem(path, _CODES.get(message, "invalid"), message)


def _get_part(data: Any, key: Any) -> Any:
    """Return the part of the data at a key (a name or an index), or None if the data has no such part."""
    if isinstance(data, Mapping):
        return data.get(key)
    is_item = isinstance(data, list) and isinstance(key, int) and key < len(data)
    return data[key] if is_item else None

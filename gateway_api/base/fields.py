"""marshmallow as this project uses it: no coercion that hides a mistake, and its messages as Problems.

marshmallow takes `true` for an integer and `"yes"` for a boolean; a management API must not guess.
"""

import math
import re
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Any

import marshmallow
import msgspec
from marshmallow import fields

from gateway_api.base.errors import Invalid, Problem

_MISSING = "is required"
_UNKNOWN = "is not a known field"
_CODES = {_MISSING: "missing", _UNKNOWN: "unknown"}

# A body of unknown fields alone would get an answer ten times its size.
MOST_PROBLEMS = 20
_LONGEST_NAME = 64

# For all fields of the process: nothing else in it uses marshmallow. Read in marshmallow 4.4.0; a test fails
# when that changes.
fields.Field.default_error_messages.update(required=_MISSING, null="must not be null")


#: One line that can't disturb a terminal or hide something in it: no controls, no characters without a width,
#: no other direction, no other line. An expression that Python and ECMA-262 read alike, for the document.
LINE = r"^[^\x00-\x1f\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\uffff]*$"


def is_line(text: str) -> bool:
    """Whether `LINE` fits. Its `$` alone would let a last line feed pass."""
    return re.fullmatch(LINE, text) is not None


def decode_json(data: bytes | str) -> Any:
    """JSON as clients write it: a number without a fraction is an integer, `65535.0` too (JSON Schema
    2020-12, validation, section 6.1.1). Raises msgspec.MsgspecError, UnicodeDecodeError, RecursionError."""
    return _decoder.decode(data)


def _number(text: str) -> int | float:
    value = float(text)
    if math.isinf(value):
        raise ValueError("Number out of range")
    return int(value) if value.is_integer() else value


_decoder = msgspec.json.Decoder(float_hook=_number)


def says(description: str, example: Any, **more: Any) -> dict[str, Any]:
    """The `metadata` of a field, for the OpenAPI document: a sentence, with the unit if there is one, and an
    example as a client sends it. `more` is JSON Schema that marshmallow's validators do not state."""
    return {"description": description, "examples": [example], **more}


class Schema(marshmallow.Schema):
    """A schema that refuses what it doesn't know."""

    error_messages = {"unknown": _UNKNOWN, "type": "must be an object"}

    class Meta:
        unknown = marshmallow.RAISE


class Text(fields.String):
    """A JSON string and nothing else."""

    default_error_messages = {"invalid": "must be a string"}

    def _deserialize(self, value: Any, attr: str | None, data: Any, **kwargs: Any) -> str:
        if not isinstance(value, str):
            raise self.make_error("invalid")
        return value


class Whole(fields.Integer):
    """An integer and nothing else: no `true`, no `1.5`, no `"1"`. `decode_json` makes one of `1.0`."""

    default_error_messages = {"invalid": "must be an integer"}

    def _deserialize(self, value: Any, attr: str | None, data: Any, **kwargs: Any) -> int:
        if type(value) is not int:
            raise self.make_error("invalid")
        return value


class Flag(fields.Boolean):
    """A JSON `true` or `false` and nothing else."""

    default_error_messages = {"invalid": "must be true or false"}

    def _deserialize(self, value: Any, attr: str | None, data: Any, **kwargs: Any) -> bool:
        if not isinstance(value, bool):
            raise self.make_error("invalid")
        return value


class Parsed(fields.Field[Any]):
    """A JSON string, loaded as what `parse` makes of it. `parse` raises ValueError with the rule."""

    default_error_messages = {"invalid": "must be a string"}

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


def shown(name: Any) -> str:
    """A name that somebody sent, short enough to be sent back."""
    text = str(name)
    return text if len(text) <= _LONGEST_NAME else f"{text[:_LONGEST_NAME]}..."


def load(schema: Schema, data: Any) -> Any:
    """What the schema makes of the data. Raises Invalid with the problems that it found."""
    try:
        return schema.load(data)
    except marshmallow.ValidationError as error:
        raise Invalid(*islice(_problems(error.messages_dict), MOST_PROBLEMS)) from error


def _problems(messages: Mapping[Any, Any], above: str = "") -> Iterator[Problem]:
    for key, held in messages.items():
        # marshmallow files a message about the whole object under "_schema".
        path = above if key == "_schema" else f"{above}.{shown(key)}".lstrip(".")
        if isinstance(held, Mapping):
            yield from _problems(held, path)
            continue
        for message in held:
            yield Problem(path, _CODES.get(message, "invalid"), message)

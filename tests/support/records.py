"""Compares a response of the service with its record."""

from typing import Any

import msgspec
from jsonschema import Draft202012Validator

#: Fields that only a page of a list has.
OF_A_PAGE = {"total", "next_cursor"}


def assert_is(record: type[msgspec.Struct], value: Any, *, may_have_more: bool = False) -> None:
    """Fails for a field that is missing, unknown, of another type or out of its documented range."""
    Draft202012Validator(msgspec.json.schema(record)).validate(value)
    # Reading ignores unknown fields and fills in defaults, so either shows as a difference.
    read = msgspec.json.decode(msgspec.json.encode(msgspec.convert(value, record)))
    assert read == ({name: value[name] for name in read} if may_have_more else value)

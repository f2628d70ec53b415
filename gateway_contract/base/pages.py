"""Pages of lists, and their cursors. A cursor is the sort position of the last record of a page, as base64 of
JSON."""

import base64
from collections.abc import Sequence
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec

from gateway_contract.base.errors import Invalid, Problem

T = TypeVar("T")

CURSOR_RULE = "must be what the last page gave as next_cursor"


class FoundPage(NamedTuple, Generic[T]):
    """Page of a list, or the whole list. `next_cursor` is None at the end of the list."""

    records: list[T]
    next_cursor: str | None = None


def encode_cursor(position: Any) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode(position)).rstrip(b"=").decode()


def decode_cursor(cursor: str, type: type[T]) -> T:
    """Return the sort position in a cursor. Raises ValueError if the cursor is not valid."""
    try:
        data = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
        return msgspec.json.decode(data, type=type)
    except RecursionError as error:
        raise ValueError("not a cursor") from error


def decode_numeric_cursor(cursor: str, count: int) -> Sequence[int]:
    """Return the sort position in a cursor, which must consist of `count` numbers. Raises Invalid if the
    cursor is not valid."""
    try:
        position = decode_cursor(cursor, list[int])
        if len(position) != count or not all(0 <= number < 1 << 63 for number in position):
            raise ValueError("not a cursor of this list")
    except ValueError as error:
        raise Invalid(Problem("cursor", "invalid", CURSOR_RULE)) from error
    return position

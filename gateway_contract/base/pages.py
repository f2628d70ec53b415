"""Pages of lists. The cursor of the next page is the place of the last record, as numbers."""

import base64
import binascii
from collections.abc import Sequence
from typing import Generic, NamedTuple, TypeVar

import msgspec

from gateway_contract.base.errors import Invalid, Problem

T = TypeVar("T")

CURSOR_RULE = "must be what the last page gave as next_cursor"


class FoundPage(NamedTuple, Generic[T]):
    """A page, or the whole list; `next_cursor` is None at the end."""

    records: list[T]
    next_cursor: str | None = None


def cursor_of(place: Sequence[int]) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode(list(place))).rstrip(b"=").decode()


def place_at(cursor: str, numbers: int) -> list[int]:
    """Return a place of so many numbers. Raises Invalid."""
    try:
        raw = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
        place = msgspec.json.decode(raw, type=list[int])
        if len(place) != numbers or not all(0 <= number < 1 << 63 for number in place):
            raise ValueError("not of this list")
    except (binascii.Error, ValueError, RecursionError) as error:
        raise Invalid(Problem("cursor", "invalid", CURSOR_RULE)) from error
    return place

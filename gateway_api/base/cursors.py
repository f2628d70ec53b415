"""Cursors of pages: the place of the last record, as numbers."""

import base64
import binascii
from collections.abc import Sequence

import msgspec

from gateway_api.base.errors import Invalid, Problem


def encoded(place: Sequence[int]) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode(list(place))).rstrip(b"=").decode()


def decoded(cursor: str, numbers: int) -> list[int]:
    """A place of so many numbers. Raises Invalid."""
    try:
        raw = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
        place = msgspec.json.decode(raw, type=list[int])
        if len(place) != numbers or not all(0 <= number < 1 << 63 for number in place):
            raise ValueError("not of this list")
    except (binascii.Error, ValueError, RecursionError) as error:
        message = "must be what the last page gave as next_cursor"
        raise Invalid(Problem("cursor", "invalid", message)) from error
    return place

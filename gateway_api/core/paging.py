"""Lists as replies: whole or a page of them, encoded without stopping the daemon."""

import base64
import binascii
import heapq
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import Any, TypeVar

import msgspec

from gateway_api.core.records import Page, Record
from gateway_api.varlink.message import REPLY_CAP, ErrorReply
from gateway_api.varlink.server import invalid_parameter

T = TypeVar("T")

#: What a record sorts by: no two records of a list have the same.
Key = tuple[int | str, ...]

INTERFACE = "org.gatewayapi.core"
MAX_LIMIT = 10_000

# One call into the encoder holds the interpreter lock: 200,000 records at once would keep every
# other thread waiting for a tenth of a second.
_AT_ONCE = 1000

_encoder = msgspec.json.Encoder()


class _Cursor(msgspec.Struct, array_like=True, frozen=True):
    order: str
    after: list[int | str]


def listing(
    field: str,
    keyed: Sequence[tuple[Key, T]],
    build: Callable[[T], Record],
    page: Page | None,
    order: str = "",
) -> dict[str, Any]:
    """The reply's fields for a list of things with their keys.

    `build` makes the record of a thing: only what is on the page is built. `order` names the sort,
    with a leading `-` for descending; a cursor goes on only in the order it was made in. Raises
    InvalidParameter for a bad page, ReplyTooLarge for a whole that doesn't fit into one reply.
    """
    if page is None:
        whole = sorted(keyed, key=_key, reverse=order.startswith("-"))
        records, count = encoded(build(thing) for _, thing in whole)
        return {field: records, "count": count, "total": count, "next_cursor": None}
    things, next_cursor = _cut(keyed, page, order)
    records, count = encoded(map(build, things))
    return {field: records, "count": count, "total": len(keyed), "next_cursor": next_cursor}


def encoded(records: Iterable[Record]) -> tuple[msgspec.Raw, int]:
    """The records as a JSON array, and how many they are. Raises ReplyTooLarge."""
    buffer = bytearray(b"[")
    count = 0
    rest = iter(records)
    while chunk := list(islice(rest, _AT_ONCE)):
        if count:
            buffer += b","
        count += len(chunk)
        buffer += memoryview(_encoder.encode(chunk))[1:-1]
        # The reply has other fields, too; they are small.
        if len(buffer) > REPLY_CAP - 4096:
            raise ErrorReply.of(f"{INTERFACE}.ReplyTooLarge")
    buffer += b"]"
    return msgspec.Raw(buffer), count


def _cut(keyed: Sequence[tuple[Key, T]], page: Page, order: str) -> tuple[list[T], str | None]:
    if not 1 <= page.limit <= MAX_LIMIT:
        raise invalid_parameter("page.limit")
    descending = order.startswith("-")
    if page.cursor is not None:
        after = _decoded(page.cursor, order)
        keyed = _beyond(keyed, after, descending)
    choose = heapq.nlargest if descending else heapq.nsmallest
    # One more than asked for tells whether a next page exists.
    chosen = choose(page.limit + 1, keyed, key=_key)
    if len(chosen) <= page.limit:
        return [thing for _, thing in chosen], None
    del chosen[page.limit :]
    return [thing for _, thing in chosen], _encoded_cursor(order, chosen[-1][0])


def _key(pair: tuple[Key, Any]) -> Key:
    return pair[0]


def _beyond(keyed: Sequence[tuple[Key, T]], after: Key, descending: bool) -> list[tuple[Key, T]]:
    try:
        if descending:
            return [pair for pair in keyed if pair[0] < after]
        return [pair for pair in keyed if pair[0] > after]
    except TypeError as error:
        # A cursor that somebody wrote by hand, with text where this order has numbers.
        raise invalid_parameter("page.cursor") from error


def _encoded_cursor(order: str, key: Key) -> str:
    raw = msgspec.json.encode(_Cursor(order, list(key)))
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def _decoded(cursor: str, order: str) -> Key:
    try:
        raw = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
        decoded = msgspec.json.decode(raw, type=_Cursor)
    except (binascii.Error, ValueError, RecursionError) as error:
        raise invalid_parameter("page.cursor") from error
    if decoded.order != order:
        raise invalid_parameter("page.cursor")
    return tuple(decoded.after)

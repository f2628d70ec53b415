"""Lists as replies: whole or a page of them, encoded without stopping the daemon."""

import base64
import heapq
import operator
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

import msgspec

from gateway_api.core.orders import Snapshot
from gateway_api.wire.contract import Page, Record
from gateway_api.wire.core.interface import CORE
from gateway_api.wire.core.network import ReplyTooLargeError
from gateway_api.wire.varlink.dispatcher import invalid_parameter
from gateway_api.wire.varlink.protocol import REPLY_CAP, JsonArray

T = TypeVar("T")

#: The sort key of a record, unique within a list.
Key: TypeAlias = tuple[int | str, ...]
Row: TypeAlias = tuple[Key, Record]

# One call into the encoder holds the interpreter lock: 200,000 records at once would keep every
# other thread waiting for a tenth of a second.
_AT_ONCE = 1000
#: Bytes of an array that are cheaper to copy than to send by themselves.
_SHORT = 256 << 10
#: The most bytes of an array. The other fields of a reply are small.
_MOST = REPLY_CAP - 4096


class Rows(Protocol):
    """A list of one moment. Records are made on request, so a page costs what it holds."""

    def __len__(self) -> int: ...

    def records(self) -> Iterable[Record]:
        """All of them, in order."""

    def beyond(self, after: Key | None, most: int) -> Iterator[Row]:
        """The rows after a key, in order: at least the first `most` of them. Raises TypeError for a key of
        another kind than the list's."""


@dataclass(frozen=True)
class Sorted(Generic[T]):
    """Rows from things in the order of their keys."""

    things: Sequence[T]
    key: Callable[[T], Key]
    record: Callable[[T], Record]

    def __len__(self) -> int:
        return len(self.things)

    def records(self) -> Iterable[Record]:
        return map(self.record, self.things)

    def beyond(self, after: Key | None, most: int) -> Iterator[Row]:
        start = 0 if after is None else bisect_right(self.things, after, key=self.key)
        things = map(self.things.__getitem__, range(start, len(self.things)))
        return ((self.key(thing), self.record(thing)) for thing in things)


@dataclass(frozen=True)
class Ordered(Generic[T]):
    """Rows from a snapshot, of an order in which these keys ascend."""

    things: Snapshot[T]
    key: Callable[[T], Key]
    record: Callable[[T], Record]
    descending: bool = False

    def __len__(self) -> int:
        return len(self.things)

    def records(self) -> Iterable[Record]:
        return map(self.record, reversed(self.things) if self.descending else self.things)

    def beyond(self, after: Key | None, most: int) -> Iterator[Row]:
        if after is None:
            things = iter(reversed(self.things) if self.descending else self.things)
        else:
            things = (self.things.below if self.descending else self.things.above)(after, self.key)
        return ((self.key(thing), self.record(thing)) for thing in things)


@dataclass(frozen=True)
class Unsorted(Sorted[T]):
    """Rows from things in any order, ascending or descending by their keys."""

    descending: bool

    def records(self) -> Iterable[Record]:
        return map(self.record, sorted(self.things, key=self.key, reverse=self.descending))

    def beyond(self, after: Key | None, most: int) -> Iterator[Row]:
        things: Iterable[T] = self.things
        if after is not None:
            follows = operator.lt if self.descending else operator.gt
            things = [thing for thing in things if follows(self.key(thing), after)]
        choose = heapq.nlargest if self.descending else heapq.nsmallest
        return ((self.key(thing), self.record(thing)) for thing in choose(most, things, key=self.key))


class Chained:
    """Rows one after the other. All keys of a part are below those of the next."""

    def __init__(self, *parts: Rows) -> None:
        self._parts = parts

    def __len__(self) -> int:
        return sum(map(len, self._parts))

    def records(self) -> Iterable[Record]:
        return chain.from_iterable(part.records() for part in self._parts)

    def beyond(self, after: Key | None, most: int) -> Iterator[Row]:
        return chain.from_iterable(part.beyond(after, most) for part in self._parts)


class _Cursor(msgspec.Struct, array_like=True, frozen=True):
    order: str
    after: Key


def listing(field: str, rows: Rows, page: Page | None, order: str) -> dict[str, Any]:
    """The reply's fields for a list: `field` with the records, `count`, `total` and `next_cursor`.

    `order` names the list and its sort: a cursor is valid only in the order in which it was made. Raises
    InvalidParameter for a bad page, ReplyTooLarge for records that do not fit into one reply.
    """
    if page is None:
        records, count = encoded(rows.records(), len(rows))
        return {field: records, "count": count, "total": count, "next_cursor": None}
    after = None if page.cursor is None else _decoded(page.cursor, order)
    try:
        # One more than requested tells whether a next page exists.
        chosen = list(islice(rows.beyond(after, page.limit + 1), page.limit + 1))
    except TypeError as error:
        # A cursor written by hand, with text where this order has numbers.
        raise invalid_parameter("page.cursor") from error
    more = len(chosen) > page.limit
    del chosen[page.limit :]
    records, count = encoded(record for _, record in chosen)
    next_cursor = None
    if more:
        cursor = msgspec.json.encode(_Cursor(order, chosen[-1][0]))
        next_cursor = base64.urlsafe_b64encode(cursor).rstrip(b"=").decode()
    return {field: records, "count": count, "total": len(rows), "next_cursor": next_cursor}


def encoded(records: Iterable[Record], expected: int = 0) -> tuple[msgspec.Raw | JsonArray, int]:
    """The records as a JSON array, and their number. Raises ReplyTooLarge: with the number of records to be
    `expected`, as soon as those made so far are too large for a part of the whole."""
    texts = []
    count = size = 0
    rest = iter(records)
    while chunk := list(islice(rest, _AT_ONCE)):
        texts.append(text_of(chunk))
        count += len(chunk)
        size += len(texts[-1])
        # To make all of them before a refusal would take seconds.
        if size * max(expected, count) > _MOST * count:
            raise CORE.error(ReplyTooLargeError())
    return joined(texts), count


def text_of(records: list[Record]) -> bytes:
    """A part of a JSON array: some records, with a comma before each. There is at least one."""
    return b"," + memoryview(msgspec.json.encode(records))[1:-1]


def joined(texts: Sequence[bytes]) -> msgspec.Raw | JsonArray:
    """A JSON array of its parts. Raises ReplyTooLarge."""
    size = sum(map(len, texts))
    if size > _MOST:
        raise CORE.error(ReplyTooLargeError())
    return JsonArray(texts) if size > _SHORT else msgspec.Raw(b"[" + b"".join(texts)[1:] + b"]")


def _decoded(cursor: str, order: str) -> Key:
    try:
        raw = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
        decoded = msgspec.json.decode(raw, type=_Cursor)
    except (ValueError, RecursionError) as error:
        raise invalid_parameter("page.cursor") from error
    if decoded.order != order:
        raise invalid_parameter("page.cursor")
    return decoded.after

"""Lists as replies: whole or a page of them, encoded without stopping the daemon."""

import base64
import heapq
import operator
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

import msgspec

from gateway_contract.contract import Page, Record
from gateway_contract.core.interface import CORE
from gateway_contract.core.network import ReplyTooLargeError
from gateway_contract.varlink.dispatcher import invalid_parameter
from gateway_contract.varlink.protocol import REPLY_CAP
from gateway_core.records.orders import SortedSnapshot

T = TypeVar("T")

#: The sort key of a record, unique within a list.
Key: TypeAlias = tuple[int | str, ...]
Row: TypeAlias = tuple[Key, Record]
#: A JSON array of some records, at least one, and their number.
Text: TypeAlias = tuple[bytes, int]

# One call into the encoder holds the interpreter lock: 200,000 records at once would keep every
# other thread waiting for a tenth of a second.
_AT_ONCE = 1000
#: The most bytes of the records of a list. The other fields of its replies are small.
_MOST = REPLY_CAP - 4096


class Rows(Protocol):
    """A list of one moment. Records are made on request, so a page costs what it holds."""

    def __len__(self) -> int: ...

    def records(self) -> Iterable[Record]:
        """Return all of them, in order."""

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

    things: SortedSnapshot[T]
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


@dataclass(frozen=True)
class Listing:
    """A whole list, as its reply or as several.

    `texts` are JSON arrays of some records each, with their number, and are made as they are sent: see
    `fitting`. `total` is the number of all records, `more` the other fields of each reply. Its methods raise
    ReplyTooLargeError."""

    field: str
    texts: Iterable[Text]
    total: int
    more: Mapping[str, Any]

    def parts(self) -> Iterator[dict[str, Any]]:
        """The fields of each reply."""
        is_empty = True
        for text, count in self.texts:
            yield self._fields(msgspec.Raw(text), count)
            is_empty = False
        if is_empty:
            yield self._fields(msgspec.Raw(b"[]"), 0)

    def whole(self) -> dict[str, Any]:
        """Return the fields of the only reply."""
        return self._fields(*_joined(self.texts))

    def _fields(self, records: msgspec.Raw, count: int) -> dict[str, Any]:
        return {self.field: records, "count": count, "total": self.total, "next_cursor": None, **self.more}


#: The fields of a page, or a whole list.
Reply: TypeAlias = dict[str, Any] | Listing


def listing(field: str, rows: Rows, page: Page | None, order: str, **more: Any) -> Reply:
    """Return the reply for a list: `field` with the records, `count`, `total`, `next_cursor`, and `more`
    fields.

    `order` names the list and its sort: a cursor is valid only in the order in which it was made. Raises
    ErrorReply: InvalidParameter for a bad page, ReplyTooLargeError for a page that does not fit into one
    reply.
    """
    if page is None:
        return Listing(field, fitting(_texts(rows.records()), len(rows)), len(rows), more)
    after = None if page.cursor is None else _decoded(page.cursor, order)
    try:
        # One more than requested tells whether a next page exists.
        chosen = list(islice(rows.beyond(after, page.limit + 1), page.limit + 1))
    except TypeError as error:
        # A cursor written by hand, with text where this order has numbers.
        raise invalid_parameter("page.cursor") from error
    goes_on = len(chosen) > page.limit
    del chosen[page.limit :]
    records, count = _joined(fitting(_texts(record for _, record in chosen)))
    next_cursor = None
    if goes_on:
        cursor = msgspec.json.encode(_Cursor(order, chosen[-1][0]))
        next_cursor = base64.urlsafe_b64encode(cursor).rstrip(b"=").decode()
    return {field: records, "count": count, "total": len(rows), "next_cursor": next_cursor, **more}


def encoded(records: Iterable[Record]) -> msgspec.Raw:
    """Return the records as a JSON array. Raises ReplyTooLargeError."""
    return _joined(fitting(_texts(records)))[0]


def text_of(records: list[Record]) -> Text:
    return msgspec.json.encode(records), len(records)


def _texts(records: Iterable[Record]) -> Iterator[Text]:
    rest = iter(records)
    while chunk := list(islice(rest, _AT_ONCE)):
        yield text_of(chunk)


def fitting(texts: Iterable[Text], expected: int = 0) -> Iterator[Text]:
    """Pass the texts on. Raises ReplyTooLargeError, when they are too large; with the number of records to be
    `expected`, as soon as those so far are too large for a part of the whole. That is for records of about
    the same size, where to make all of them before a refusal would take seconds."""
    size = count = 0
    for text in texts:
        size += len(text[0])
        count += text[1]
        if size * max(expected, count) > _MOST * count:
            raise CORE.error(ReplyTooLargeError())
        yield text


def _joined(texts: Iterable[Text]) -> tuple[msgspec.Raw, int]:
    """One JSON array, and the number of its records."""
    held = list(texts)
    array = b",".join(memoryview(text)[1:-1] for text, _ in held)
    return msgspec.Raw(b"[" + array + b"]"), sum(count for _, count in held)


def _decoded(cursor: str, order: str) -> Key:
    try:
        raw = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
        decoded = msgspec.json.decode(raw, type=_Cursor)
    except (ValueError, RecursionError) as error:
        raise invalid_parameter("page.cursor") from error
    if decoded.order != order:
        raise invalid_parameter("page.cursor")
    return decoded.after

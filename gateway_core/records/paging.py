"""Replies with lists: a whole list or a page, filtered, sorted, and encoded without stopping the daemon."""

import heapq
import operator
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain, islice
from operator import attrgetter, itemgetter
from socket import inet_aton
from types import SimpleNamespace
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

import msgspec

from gateway_contract.base import ipv6
from gateway_contract.base.pages import decode_cursor, encode_cursor
from gateway_contract.contract import Page, Record, SelectingMethod, get_columns, get_list_field
from gateway_contract.core.interface import CORE
from gateway_contract.core.network import ReplyTooLargeError
from gateway_contract.varlink.dispatcher import make_parameter_error
from gateway_contract.varlink.protocol import MAX_REPLY_BYTES
from gateway_core.records.orders import SortedSnapshot

T = TypeVar("T")

#: The sort key of a record, unique within a list.
Key: TypeAlias = tuple[int | str, ...]
Row: TypeAlias = tuple[Key, Record]
#: A JSON array of one or more records, and the number of records.
EncodedChunk: TypeAlias = tuple[bytes, int]

# One call of the encoder holds the interpreter lock: encoding 200,000 records at once would stop every
# other thread for a tenth of a second.
_RECORDS_PER_CHUNK = 1000
#: Bytes of all records of a list. The other fields of its replies are small.
_MAX_RECORDS_SIZE = MAX_REPLY_BYTES - 4096


def make_ipv4_key(address: str | None) -> int:
    """Return the sort key of an IPv4 address: the address as a number, or -1 for None."""
    return -1 if address is None else int.from_bytes(inet_aton(address))


def _make_ipv6_key(text: str | None) -> str:
    return "" if text is None else ipv6.make_sort_key(text)


#: The sort keys for the values of fields whose text has another order.
ADDRESS_KEYS: dict[str, Callable[[Any], int | str]] = {
    "ip_address": make_ipv4_key,
    "ipv6_address": _make_ipv6_key,
    "ipv6_prefix": _make_ipv6_key,
    "delegated_prefixes": lambda prefixes: "".join(map(ipv6.make_sort_key, prefixes)),
}


class Rows(Protocol):
    """Rows of a list at one moment. The record of a row is made only on request, so a page costs only the
    records in the page."""

    def __len__(self) -> int: ...

    def records(self) -> Iterable[Record]:
        """Return the records of all rows, in order."""

    def rows_after(self, key: Key | None, count: int) -> Iterator[Row]:
        """Return the first rows after a key, in order: at least `count` rows if there are so many. A key of
        None means the start of the list. Raises TypeError if the key does not have the type of the list's
        keys."""


class SortedRows(Generic[T]):
    """Rows of `items`, which must be in ascending order of their keys. With `descending`, the rows are in
    reverse order."""

    def __init__(
        self,
        items: Collection[T],
        key: Callable[[T], Key],
        record: Callable[[T], Record],
        descending: bool = False,
    ) -> None:
        if not isinstance(items, SortedSnapshot):
            items = SortedSnapshot([list(items)] if items else [], len(items))
        self._items = items
        self._key = key
        self._record = record
        self._descending = descending

    def __len__(self) -> int:
        return len(self._items)

    def convert(self, convert: Callable[[Any], Record]) -> "SortedRows[T]":
        """Return rows of the same items with other records. `convert` makes each new record from the record
        of the present row."""
        return SortedRows(self._items, self._key, lambda item: convert(self._record(item)), self._descending)

    def records(self) -> Iterable[Record]:
        return map(self._record, reversed(self._items) if self._descending else self._items)

    def rows_after(self, key: Key | None, count: int) -> Iterator[Row]:
        if key is None:
            items = iter(reversed(self._items) if self._descending else self._items)
        elif self._descending:
            items = self._items.iterate_below(key, self._key)
        else:
            items = self._items.iterate_above(key, self._key)
        return ((self._key(item), self._record(item)) for item in items)


class ChainedRows:
    """Rows of several lists, one list after the other. All keys of a list must be less than the keys of the
    next list."""

    def __init__(self, *parts: Rows) -> None:
        self._parts = parts

    def __len__(self) -> int:
        return sum(map(len, self._parts))

    def records(self) -> Iterable[Record]:
        return chain.from_iterable(part.records() for part in self._parts)

    def rows_after(self, key: Key | None, count: int) -> Iterator[Row]:
        return chain.from_iterable(part.rows_after(key, count) for part in self._parts)


@dataclass(frozen=True)
class FieldSortedRows:
    """Rows of `rows`, sorted by a field: null values first, and rows with the same value in the order of
    their keys. With `descending`, the whole order is reversed. No index has this order, so each page reads
    all rows."""

    rows: Rows
    field: str
    descending: bool

    def __len__(self) -> int:
        return len(self.rows)

    def records(self) -> Iterable[Record]:
        sorted_rows = sorted(self._iterate_keyed_rows(), key=itemgetter(0), reverse=self.descending)
        return (record for _, record in sorted_rows)

    def rows_after(self, key: Key | None, count: int) -> Iterator[Row]:
        rows = self._iterate_keyed_rows()
        if key is not None:
            follows = operator.lt if self.descending else operator.gt
            rows = (row for row in rows if follows(row[0], key))
        select = heapq.nlargest if self.descending else heapq.nsmallest
        return iter(select(count, rows, key=itemgetter(0)))

    def _iterate_keyed_rows(self) -> Iterator[Row]:
        read = attrgetter(self.field)
        value_key: Callable[[Any], int | str] = ADDRESS_KEYS.get(self.field, lambda value: value)
        for key, record in self.rows.rows_after(None, len(self.rows)):
            value = read(record)
            yield (0, *key) if value is None else (1, value_key(value), *key), record


def select_records(rows: Rows, call: SelectingMethod[Any], **more: Any) -> "Reply":
    """Return the reply to a call for a list, filtered and sorted as the call requests. `more` contains
    further fields of the reply. Raises ErrorReply: InvalidParameter if the filter, the sort field or the
    cursor is not valid, ReplyTooLargeError if the page is too large for one reply."""
    method, order = type(call), type(call).__name__
    if call.filter:
        read = attrgetter(*call.filter)
        values = read(SimpleNamespace(**_convert_filter(method, call.filter)))
        matching_rows = [row for row in rows.rows_after(None, len(rows)) if read(row[1]) == values]
        rows = SortedRows(matching_rows, itemgetter(0), itemgetter(1))
    if call.sort is not None:
        field = call.sort.removeprefix("-")
        if field not in get_columns(method):
            raise make_parameter_error("sort")
        rows, order = FieldSortedRows(rows, field, descending=field != call.sort), f"{order} {call.sort}"
    return make_list_reply(get_list_field(method), rows, call.page, order, **more)


def _convert_filter(method: type[SelectingMethod[Any]], filter: Mapping[str, Any]) -> dict[str, Any]:
    columns = get_columns(method)
    try:
        return {name: msgspec.convert(value, columns[name].type) for name, value in filter.items()}
    except (KeyError, msgspec.ValidationError) as error:
        raise make_parameter_error("filter") from error


@dataclass(frozen=True)
class WholeList:
    """Whole list, which is sent as one reply or as several replies.

    `chunks` are encoded while they are sent. `total` is the number of all records. `more` contains further
    fields of each reply. The methods raise ReplyTooLargeError if the list is too large (see `limit_size`).
    """

    field: str
    chunks: Iterable[EncodedChunk]
    total: int
    more: Mapping[str, Any]

    def parts(self) -> Iterator[dict[str, Any]]:
        """Yield the fields of each reply. For an empty list, yield the fields of one reply without
        records."""
        is_empty = True
        for text, count in self.chunks:
            yield self._make_fields(msgspec.Raw(text), count)
            is_empty = False
        if is_empty:
            yield self._make_fields(msgspec.Raw(b"[]"), 0)

    def whole(self) -> dict[str, Any]:
        """Return the fields of one reply with all records."""
        return self._make_fields(*_join_chunks(self.chunks))

    def _make_fields(self, records: msgspec.Raw, count: int) -> dict[str, Any]:
        return {self.field: records, "count": count, "total": self.total, "next_cursor": None, **self.more}


#: The fields of a page, or a whole list.
Reply: TypeAlias = dict[str, Any] | WholeList


def make_list_reply(field: str, rows: Rows, page: Page | None, order: str, **more: Any) -> Reply:
    """Return the reply for a list: `field` with the records, `count`, `total`, `next_cursor`, and the fields
    in `more`.

    `order` names the list and its sort order: a cursor is valid only for the same order. Raises ErrorReply:
    InvalidParameter if the cursor is not valid, ReplyTooLargeError if the page is too large for one reply.
    """
    if page is None:
        return WholeList(field, limit_size(_encode_chunks(rows.records()), len(rows)), len(rows), more)
    key = None
    try:
        if page.cursor is not None:
            cursor_order, key = decode_cursor(page.cursor, tuple[str, Key])
            if cursor_order != order:
                raise make_parameter_error("page.cursor")
        # An additional row tells whether there is a next page.
        page_rows = list(islice(rows.rows_after(key, page.limit + 1), page.limit + 1))
    except (ValueError, TypeError) as error:
        # TypeError: a cursor written by hand, with text where this order has numbers.
        raise make_parameter_error("page.cursor") from error
    has_next = len(page_rows) > page.limit
    del page_rows[page.limit :]
    records, count = _join_chunks(limit_size(_encode_chunks(record for _, record in page_rows)))
    next_cursor = encode_cursor((order, page_rows[-1][0])) if has_next else None
    return {field: records, "count": count, "total": len(rows), "next_cursor": next_cursor, **more}


def encode_records(records: Iterable[Record]) -> msgspec.Raw:
    """Encode records as a JSON array. Raises ReplyTooLargeError if the array is too large for one reply."""
    return _join_chunks(limit_size(_encode_chunks(records)))[0]


def encode_chunk(records: list[Record]) -> EncodedChunk:
    return msgspec.json.encode(records), len(records)


def _encode_chunks(records: Iterable[Record]) -> Iterator[EncodedChunk]:
    iterator = iter(records)
    while chunk := list(islice(iterator, _RECORDS_PER_CHUNK)):
        yield encode_chunk(chunk)


def limit_size(chunks: Iterable[EncodedChunk], expected: int = 0) -> Iterator[EncodedChunk]:
    """Yield the chunks unchanged. Raises ReplyTooLargeError as soon as the chunks are too large for a reply.

    If the number of `expected` records is given, the size of the whole list is estimated from the first
    chunks: encoding the whole list before the error would take seconds.
    """
    size = count = 0
    for text, records in chunks:
        size += len(text)
        count += records
        if size * max(expected, count) > _MAX_RECORDS_SIZE * count:
            raise CORE.make_error(ReplyTooLargeError())
        yield text, records


def _join_chunks(chunks: Iterable[EncodedChunk]) -> tuple[msgspec.Raw, int]:
    """Join chunks into one JSON array. Return the array and the number of records in the array."""
    chunk_list = list(chunks)
    array = b",".join(memoryview(text)[1:-1] for text, _ in chunk_list)
    return msgspec.Raw(b"[" + array + b"]"), sum(count for _, count in chunk_list)

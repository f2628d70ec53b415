"""Lists by the fields of their records: no index has them, so each page costs a pass over the list."""

import heapq
import operator
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from operator import attrgetter, itemgetter
from types import SimpleNamespace
from typing import Any

import msgspec

from gateway_contract.contract import Record, SelectingMethod, columns, list_field
from gateway_contract.varlink.dispatcher import invalid_parameter
from gateway_core.records.paging import Key, Reply, Row, Rows, Sorted, listing
from gateway_core.sessions.session import value_key


def selected(rows: Rows, call: SelectingMethod[Any], **more: Any) -> Reply:
    """Return the reply to a call for a list, as `paging.listing` makes it. Raises ErrorReply:
    InvalidParameter, and ReplyTooLargeError."""
    method, order = type(call), type(call).__name__
    if call.filter:
        rows = _matching(rows, _wanted(call))
    if call.sort is not None:
        field = call.sort.removeprefix("-")
        if field not in columns(method):
            raise invalid_parameter("sort")
        rows, order = ByField(rows, field, descending=field != call.sort), f"{order} {call.sort}"
    return listing(list_field(method), rows, call.page, order, **more)


def _wanted(call: SelectingMethod[Any]) -> dict[str, int | str]:
    known = columns(type(call))
    try:
        return {name: msgspec.convert(given, known[name].type) for name, given in (call.filter or {}).items()}
    except (KeyError, msgspec.ValidationError) as error:
        raise invalid_parameter("filter") from error


def _matching(rows: Rows, wanted: dict[str, int | str]) -> Rows:
    """Return the rows of which each of these fields has this value."""
    read = attrgetter(*wanted)
    held = read(SimpleNamespace(**wanted))
    found = [row for row in rows.beyond(None, len(rows)) if read(row[1]) == held]
    return Sorted(found, itemgetter(0), itemgetter(1))


@dataclass(frozen=True)
class ByField:
    """Rows by a field, null first. Those with the same value are in their former order."""

    rows: Rows
    field: str
    descending: bool

    def __len__(self) -> int:
        return len(self.rows)

    def records(self) -> Iterable[Record]:
        return (record for _, record in sorted(self._rows(), key=itemgetter(0), reverse=self.descending))

    def beyond(self, after: Key | None, most: int) -> Iterator[Row]:
        rows = self._rows()
        if after is not None:
            follows = operator.lt if self.descending else operator.gt
            rows = (row for row in rows if follows(row[0], after))
        choose = heapq.nlargest if self.descending else heapq.nsmallest
        return iter(choose(most, rows, key=itemgetter(0)))

    def _rows(self) -> Iterator[Row]:
        read, made = attrgetter(self.field), value_key(self.field)
        for key, record in self.rows.beyond(None, len(self.rows)):
            held = read(record)
            yield (0, *key) if held is None else (1, made(held), *key), record

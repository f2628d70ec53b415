"""Records, the newest first, from several trails and through all files of each.

A page ends at a position in each trail, and the next one goes on below these: it neither misses nor repeats a
record, whatever was added or dropped meanwhile, and however often the clock was set.
"""

import base64
import binascii
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from heapq import merge

import msgspec

from gateway_api.audit.record import Result, json_of
from gateway_api.base.errors import AnswerTooLarge, Invalid, Problem
from gateway_api.base.segments import Segments
from gateway_api.daemon.commands import Page

#: Records in one answer.
MOST = 10_000


@dataclass(frozen=True)
class Wanted:
    """What must hold for a record, all of it; None is anything. `since` and `until` are epoch seconds, and
    the time of the second is not wanted any more."""

    user: str | None = None
    action: str | None = None
    route: str | None = None
    result: str | None = None
    since: float | None = None
    until: float | None = None

    def texts(self) -> list[bytes]:
        """What is in every line that fits."""
        exact = {"user": self.user, "action": self.action, "route": self.route, "result": self.result}
        return [json_of({name: held})[1:-1].encode() for name, held in exact.items() if held is not None]


@dataclass(frozen=True)
class Found:
    """Records as JSON, each with an `id`; `next_cursor` is None at the end."""

    records: list[msgspec.Raw]
    next_cursor: str | None


class _Head(msgspec.Struct, frozen=True):
    at: float
    user: str | None
    action: str
    route: str | None
    result: Result


@dataclass(frozen=True)
class _Row:
    trail: int
    position: int
    line: bytes
    head: _Head


def found(trails: Sequence[Segments], wanted: Wanted, page: Page | None) -> Found:
    """What fits. Raises Invalid for a cursor that no page gave, AnswerTooLarge for too many without a page,
    and OSError."""
    most = MOST if page is None else page.limit
    start = _positions(page, trails)
    records: list[msgspec.Raw] = []
    reached = list(start)
    rows = (_rows(number, trail, start[number], wanted.texts()) for number, trail in enumerate(trails))
    cursor: list[int] = []
    for row in merge(*rows, key=lambda row: -row.head.at):
        if _fits(row.head, wanted):
            if len(records) == most:
                if page is None:
                    raise AnswerTooLarge("The whole list is too large for one answer; use limit")
                return Found(records, _encoded(cursor))
            name = f"{trails[row.trail].label}-{row.position}"
            records.append(msgspec.Raw(b'{"id":"%s",%s' % (name.encode(), row.line[1:])))
        reached[row.trail] = row.position
        if len(records) == most and not cursor:
            cursor = list(reached)
    return Found(records, None)


def _rows(number: int, trail: Segments, below: int, texts: Sequence[bytes]) -> Iterator[_Row]:
    """The records before a position, but for some that lack one of the texts."""
    for position, line in trail.newest_first(below):
        # Much quicker than to take apart what doesn't fit anyway.
        if not all(text in line for text in texts):
            continue
        try:
            head = msgspec.json.decode(line, type=_Head)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            # The beginning of a line whose writer died, or what a power cut made of one.
            continue
        yield _Row(number, position, line, head)


def _fits(head: _Head, wanted: Wanted) -> bool:
    return (
        (wanted.user is None or head.user == wanted.user)
        and (wanted.action is None or head.action == wanted.action)
        and (wanted.route is None or head.route == wanted.route)
        and (wanted.result is None or head.result == wanted.result)
        and (wanted.since is None or head.at >= wanted.since)
        and (wanted.until is None or head.at < wanted.until)
    )


def _encoded(positions: list[int]) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode(positions)).rstrip(b"=").decode()


def _positions(page: Page | None, trails: Sequence[Segments]) -> list[int]:
    if page is None or page.cursor is None:
        return [trail.end for trail in trails]
    try:
        raw = base64.b64decode(page.cursor + "=" * (-len(page.cursor) % 4), altchars=b"-_", validate=True)
        positions = msgspec.json.decode(raw, type=list[int])
        if len(positions) != len(trails) or min(positions) < 0:
            raise ValueError("not of these trails")
    except (binascii.Error, ValueError, RecursionError) as error:
        message = "must be what the last page gave as next_cursor"
        raise Invalid(Problem("cursor", "invalid", message)) from error
    return positions

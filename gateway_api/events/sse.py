"""Server-sent events as bytes (HTML Living Standard, section 9.2)."""

import re
from typing import NamedTuple

import msgspec

from gateway_api.wire.contract import Record, record_of
from gateway_api.wire.core.sessions import EventName, SessionEvent
from gateway_api.wire.events import Gap, SessionDown, SessionUp

NAMES = {EventName.UP: "session_up", EventName.DOWN: "session_down"}

#: A comment: some clients would take a blank line for an empty message.
HEARTBEAT = b":\n"

_ID = re.compile(r"([0-9a-z]{1,64})-(0|[1-9][0-9]{0,17})", re.ASCII)


class EventId(NamedTuple):
    """`sequence` is the number of the event in one run of the core, and `boot_id` identifies the run."""

    boot_id: str
    sequence: int

    def __str__(self) -> str:
        return f"{self.boot_id}-{self.sequence}"


def parse_id(text: str) -> EventId:
    """The id of an event, as a client sends it back. Raises ValueError."""
    match = _ID.fullmatch(text)
    if match is None:
        raise ValueError("must be the id of an event")
    return EventId(match[1], int(match[2]))


def block(boot_id: str, event: SessionEvent) -> bytes:
    """One event."""
    record: type[Record] = SessionUp if event.event == EventName.UP else SessionDown
    return _block(EventId(boot_id, event.sequence), NAMES[event.event], record_of(record, event))


def gap(boot_id: str, oldest: int, newest: int) -> bytes:
    """Reports lost events, and which ones the core holds. A client that resumes from it loses no others."""
    last = EventId(boot_id, newest)
    return _block(last, "gap", Gap(str(EventId(boot_id, oldest)), str(last)))


def unnumbered(name: str, data: Record) -> bytes:
    """An event of a stream that a client cannot resume."""
    # JSON has no line breaks, so the data is one line.
    return b"event: %s\ndata: %s\n\n" % (name.encode(), msgspec.json.encode(data))


def _block(id: EventId, name: str, data: Record) -> bytes:
    return b"id: %s\n%b" % (str(id).encode(), unnumbered(name, data))

"""Server-sent events as bytes (HTML Living Standard, section 9.2)."""

import re
from typing import NamedTuple

import msgspec

from gateway_contract.contract import Record
from gateway_contract.core.sessions import SessionEvent
from gateway_contract.events import EVENTS, Gap

#: A comment: some clients would take a blank line for an empty message.
HEARTBEAT = b":\n"

#: Characters that JSON leaves as they are and many clients take for the end of a line (Python's
#: `str.splitlines`, JavaScript before ES2019): U+0085, U+2028 and U+2029, with their escapes in JSON.
_LINE_BREAKS = [(character.encode(), f"\\u{ord(character):04x}".encode()) for character in "\x85\u2028\u2029"]

_ID = re.compile(r"([0-9a-z]{1,64})-(0|[1-9][0-9]{0,17})", re.ASCII)


class EventId(NamedTuple):
    """`sequence` is the number of the event in one run of the core, and `boot_id` identifies the run."""

    boot_id: str
    sequence: int

    def __str__(self) -> str:
        return f"{self.boot_id}-{self.sequence}"


def parse_id(text: str) -> EventId:
    """Return the id of an event, as a client sends it back. Raises ValueError."""
    match = _ID.fullmatch(text)
    if match is None:
        raise ValueError("must be the id of an event")
    return EventId(match[1], int(match[2]))


def block(boot_id: str, event: SessionEvent) -> bytes:
    """Return one event of the core as bytes."""
    kind = EVENTS[event.event]
    return _block(EventId(boot_id, event.sequence), kind.stream_name, kind.stream_data.of(event))


def gap(boot_id: str, oldest: int, newest: int) -> bytes:
    """Report lost events, and which ones the core holds. A client that resumes from it loses no others."""
    last = EventId(boot_id, newest)
    return _block(last, "gap", Gap(str(EventId(boot_id, oldest)), str(last)))


def unnumbered(name: str, data: Record) -> bytes:
    """Return an event of a stream that a client cannot resume."""
    text = msgspec.json.encode(data)
    for character, escape in _LINE_BREAKS:
        text = text.replace(character, escape)
    return b"event: %s\ndata: %s\n\n" % (name.encode(), text)


def _block(id: EventId, name: str, data: Record) -> bytes:
    return b"id: %s\n%b" % (str(id).encode(), unnumbered(name, data))

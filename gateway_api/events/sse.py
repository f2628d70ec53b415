"""Server-sent events as bytes (HTML Living Standard, section 9.2)."""

import re
from typing import NamedTuple

import msgspec

from gateway_api.daemon.events import common_data
from gateway_api.wire.core.gateway import SessionEvent

NAMES = {"session.up": "session_up", "session.down": "session_down"}

#: A comment, and not a blank line: there are clients that would take that for an empty message.
HEARTBEAT = b":\n"

_ID = re.compile(r"([0-9a-z]{1,64})-(0|[1-9][0-9]{0,17})", re.ASCII)


class EventId(NamedTuple):
    """The event's number in one life of the core, which `boot_id` tells from any other."""

    boot_id: str
    sequence: int

    def __str__(self) -> str:
        return f"{self.boot_id}-{self.sequence}"


def parse_id(text: str) -> EventId:
    """What a client got as an event's id. Raises ValueError."""
    match = _ID.fullmatch(text)
    if match is None:
        raise ValueError("must be the id of an event")
    return EventId(match[1], int(match[2]))


def block(boot_id: str, event: SessionEvent) -> bytes:
    """One event, as every client gets it."""
    if event.event == "session.up":
        data: dict[str, object] = {
            "id": event.id,
            "type": event.type,
            "username": event.username,
            "ip_address": event.ip_address,
        }
    else:
        data = {"id": event.id, "username": event.username, "reason": event.reason}
    data.update(common_data(event))
    return _block(EventId(boot_id, event.sequence), NAMES[event.event], data)


def gap(boot_id: str, oldest: int, newest: int) -> bytes:
    """Says that events are lost to the client, and which are held. Who resumes after it misses no more."""
    last = EventId(boot_id, newest)
    return _block(last, "gap", {"oldest": str(EventId(boot_id, oldest)), "newest": str(last)})


def _block(id: EventId, name: str, data: object) -> bytes:
    # JSON has no line breaks, so the data is one line.
    return b"id: %s\nevent: %s\ndata: %s\n\n" % (str(id).encode(), name.encode(), msgspec.json.encode(data))

"""Server-sent events, as the gateway streams them (HTML Living Standard, section 9.2)."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from gateway_api.cli.ctl.gateway import Record


@dataclass(frozen=True)
class Event:
    """`id` is for the resumption after this event."""

    id: str
    name: str
    data: Record


def events(stream: Iterable[bytes]) -> Iterator[Event | None]:
    """The events of a stream of lines, and None for each heartbeat. An incomplete event at its end is none:
    the stream is resumed after the event before it."""
    fields: dict[str, Any] = {}
    for raw in stream:
        text = raw.decode(errors="replace")
        if text.startswith(":"):
            yield None
        elif text:
            name, _, value = text.partition(":")
            fields[name] = value.removeprefix(" ")
        elif "data" in fields:
            yield Event(fields.get("id", ""), fields.get("event", "message"), json.loads(fields["data"]))
            fields = {}

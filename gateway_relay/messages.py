"""Messages of the relay. `SUBJECTS` lists their subjects, and docs/reference/relay.md describes them.

The id of a message depends only on its content and on a key of the relay, so a message that is published
twice has the same id both times. JetStream drops the second one if both arrive within the stream's duplicate
window.
"""

import hashlib
from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated, Any

import msgspec
from msgspec import Meta

#: Header with which JetStream recognises duplicates.
ID_HEADER = "Nats-Msg-Id"
#: Header with the id of a session event, BOOT-SEQUENCE, as in the event stream of the API.
EVENT_HEADER = "Gateway-Event"

#: Subjects below `gw.NAME`, with their meaning.
SUBJECTS = {
    "events.session_up": "A session started.",
    "events.session_down": "A session ended.",
    "events.session_rate": "The rates of a session changed.",
    "snapshot": "All sessions, in parts.",
    "commits": "A configuration was committed.",
    "faults": "The faults of the data plane have changed.",
    "health": "The state of the gateway or of a dependency has changed.",
    "audit": "An audit record was written.",
}


class Reason(StrEnum):
    """Reason of a snapshot."""

    FIRST_CONTACT = "first_contact"
    GAP = "gap"
    SPOOL_FULL = "spool_full"


class Message(msgspec.Struct, frozen=True):
    """Message to publish. `subject` is relative to `gw.NAME`, and `body` is JSON. `event` is the id of a
    session event, and None for other messages."""

    id: str
    subject: str
    body: bytes
    event: str | None = None


class Snapshot(msgspec.Struct, frozen=True):
    """Place in the order of messages at which the relay publishes all sessions. The sessions are read from
    the gateway when their turn has come. `after` is the id of the event that precedes the snapshot.
    `dropped_events` is the number of events before the snapshot that the relay had and did not publish."""

    reason: Reason
    after: str
    dropped_events: int = 0


class SnapshotPart(msgspec.Struct, frozen=True):
    """Part of a snapshot of all sessions of a gateway. The last part has `is_last`."""

    id: Annotated[str, Meta(description="Id of the snapshot, the same in each of its parts.")]
    reason: Annotated[
        Reason,
        Meta(
            description="Reason of the snapshot: the first contact, events that the relay did not get, or"
            " events that the relay dropped because its spool was full."
        ),
    ]
    after: Annotated[
        str, Meta(description="Id of an event. The next event is the one that follows this event.")
    ]
    dropped_events: Annotated[int, Meta(description="Number of events that the relay had and dropped.", ge=0)]
    part: Annotated[int, Meta(description="Number of the part, from 1.", ge=1)]
    is_last: Annotated[bool, Meta(description="True in the last part of the snapshot.")]
    sessions: Annotated[Sequence[Any], Meta(description="At most 500 sessions, as in the list of the API.")]


def make_event(id: str, name: str, data: Any) -> Message:
    """Create the message of a session event. `name` and `data` are those of the event stream."""
    return Message(id, f"events.{name}", msgspec.json.encode(data), id)


def make_record(subject: str, record: Any, key: str | None = None) -> Message:
    """Create the message of a record. `key` identifies the record; without a key, its content does."""
    body = msgspec.json.encode(record)
    return Message(f"{subject}-{key or hashlib.blake2b(body, digest_size=12).hexdigest()}", subject, body)


def make_published_id(gateway: str, id: str, key: bytes) -> str:
    """Create the id that JetStream sees. JetStream compares the ids of all gateways in a stream. Without the
    key, another gateway could send the id of a future message, and JetStream would drop that message."""
    text = f"{gateway}-{id}"
    return f"{text}-{hashlib.blake2b(text.encode(), digest_size=8, key=key).hexdigest()}"


def make_part(
    snapshot: Snapshot, attempt: str, part: int, sessions: Sequence[Any], *, is_last: bool
) -> Message:
    """Create the message of one part of a snapshot. Parts are counted from 1. `attempt` identifies this
    reading of the sessions: after a restart, the relay reads the sessions again."""
    body = SnapshotPart(
        attempt, snapshot.reason, snapshot.after, snapshot.dropped_events, part, is_last, sessions
    )
    return Message(f"snapshot-{attempt}-{part}", "snapshot", msgspec.json.encode(body))

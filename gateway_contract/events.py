"""Events as clients receive them, in event streams and from webhooks. `EVENTS` maps each event to its data.
JSON objects have their fields in the order of the records."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal, Self

from gateway_contract.contract import Record, about, count, record_of
from gateway_contract.core import sessions
from gateway_contract.core.sessions import EventName, SessionEvent


class EventData(Record, frozen=True):
    """Data of an event."""

    @classmethod
    def of(cls, event: SessionEvent) -> Self:
        """Create the data from an event of the core."""
        return record_of(cls, event)


class SessionUp(EventData, frozen=True):
    """Data of the event that a session started."""

    id: sessions.SessionId
    type: sessions.Type
    username: sessions.Username
    ip_address: sessions.AssignedAddress
    at: sessions.HappenedAt
    mac_address: sessions.MacAddress
    access_interface: sessions.AccessInterface


class SessionUpOnInterface(EventData, frozen=True):
    """Data of the event that a session started, including the interface of the session."""

    id: sessions.SessionId
    type: sessions.Type
    username: sessions.Username
    ip_address: sessions.AssignedAddress
    interface: sessions.SessionInterface
    at: sessions.HappenedAt
    mac_address: sessions.MacAddress
    access_interface: sessions.AccessInterface


class SessionDown(EventData, frozen=True):
    """Data of the event that a session ended."""

    id: sessions.SessionId
    username: sessions.Username
    reason: Annotated[str, sessions.REASON]
    at: sessions.HappenedAt
    mac_address: sessions.MacAddress
    access_interface: sessions.AccessInterface
    bytes_in: Annotated[int, sessions.RECEIVED]
    bytes_out: Annotated[int, sessions.SENT]
    duration_seconds: Annotated[int, sessions.DURATION]


class SessionRate(EventData, frozen=True):
    """Data of the event that the rates of a session changed."""

    id: sessions.SessionId
    type: sessions.Type
    username: sessions.Username
    ip_address: sessions.AssignedAddress
    rate_down: sessions.RateDown
    rate_up: sessions.RateUp
    expires_at: Annotated[
        int | None,
        count("When the former rates return, Unix epoch seconds; null for rates without an end.", 1795275113),
    ]
    at: sessions.HappenedAt
    mac_address: sessions.MacAddress
    access_interface: sessions.AccessInterface

    @classmethod
    def of(cls, event: SessionEvent) -> Self:
        """Create the data from an event of the core."""
        return record_of(cls, event, expires_at=event.rate_expires_at)


class Gap(Record, frozen=True):
    """Range of the events that the gateway still holds, sent after the client has missed events."""

    oldest: Annotated[str, about("Id of the oldest event that is held.", "84a7e8343baf37f9-1")]
    newest: Annotated[str, about("Id of the newest event that is held.", "84a7e8343baf37f9-57")]


class Ended(Record, frozen=True):
    """End of the session that a stream follows. The stream ends, too."""

    id: sessions.SessionId


_Time = Annotated[
    str, about("When it happened, ISO 8601 in UTC.", "2026-03-01T12:00:00Z", format="date-time")
]


class SessionUpDelivery(Record, frozen=True):
    """Message to a webhook: a session started."""

    event: Annotated[Literal["session.up"], about("Event name.", "session.up", type="string")]
    timestamp: _Time
    data: SessionUpOnInterface


class SessionDownDelivery(Record, frozen=True):
    """Message to a webhook: a session ended."""

    event: Annotated[Literal["session.down"], about("Event name.", "session.down", type="string")]
    timestamp: _Time
    data: SessionDown


class SessionRateDelivery(Record, frozen=True):
    """Message to a webhook: the rates of a session changed."""

    event: Annotated[Literal["session.rate"], about("Event name.", "session.rate", type="string")]
    timestamp: _Time
    data: SessionRate


class Empty(Record, frozen=True):
    """Object without fields."""


class TestDelivery(Record, frozen=True):
    """Message to a webhook that only tests the delivery."""

    event: Annotated[Literal["webhook.test"], about("Event name.", "webhook.test", type="string")]
    timestamp: _Time
    data: Empty


@dataclass(frozen=True)
class ClientEvent:
    """Event in the forms that clients receive. `stream_name` is the name of the event in event streams;
    webhooks use the core's name of the event. `delivery` is the record of the whole message to a webhook. If
    `is_default` is True, a client that chooses no events receives the event."""

    stream_name: str
    stream_data: type[EventData]
    webhook_data: type[EventData]
    delivery: type[Record]
    description: str
    is_default: bool = True


EVENTS: Mapping[EventName, ClientEvent] = {
    EventName.UP: ClientEvent(
        "session_up", SessionUp, SessionUpOnInterface, SessionUpDelivery, "A session is established."
    ),
    EventName.DOWN: ClientEvent(
        "session_down", SessionDown, SessionDown, SessionDownDelivery, "A session has ended."
    ),
    EventName.RATE: ClientEvent(
        "session_rate",
        SessionRate,
        SessionRate,
        SessionRateDelivery,
        "The rates of a session have changed.",
        is_default=False,
    ),
}
#: Names of the default events of webhooks and of streams, for clients that choose no events.
DEFAULT_WEBHOOK_EVENTS = tuple(name.value for name, event in EVENTS.items() if event.is_default)
DEFAULT_STREAM_EVENTS = tuple(event.stream_name for event in EVENTS.values() if event.is_default)

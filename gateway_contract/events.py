"""Events as clients get them, in event streams and from webhooks. `EVENTS` says which data each event has.
Fields are sent in the order of the records."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal, Self

from gateway_contract.contract import Record, about, count, record_of
from gateway_contract.core import sessions
from gateway_contract.core.sessions import EventName, SessionEvent


class EventData(Record, frozen=True):
    """The data of an event."""

    @classmethod
    def of(cls, event: SessionEvent) -> Self:
        """Return the data of an event of the core."""
        return record_of(cls, event)


class SessionUp(EventData, frozen=True):
    """A session that started."""

    id: sessions.SessionId
    type: sessions.Type
    username: sessions.Username
    ip_address: sessions.AssignedAddress
    at: sessions.HappenedAt
    mac_address: sessions.MacAddress
    access_interface: sessions.AccessInterface


class SessionUpOnInterface(EventData, frozen=True):
    """A session that started, with its interface."""

    id: sessions.SessionId
    type: sessions.Type
    username: sessions.Username
    ip_address: sessions.AssignedAddress
    interface: sessions.SessionInterface
    at: sessions.HappenedAt
    mac_address: sessions.MacAddress
    access_interface: sessions.AccessInterface


class SessionDown(EventData, frozen=True):
    """A session that ended."""

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
    """A session whose rates changed."""

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
        """Return the data of an event of the core."""
        return record_of(cls, event, expires_at=event.rate_expires_at)


class Gap(Record, frozen=True):
    """Events that are lost to the client."""

    oldest: Annotated[str, about("Id of the oldest event that is held.", "84a7e8343baf37f9-1")]
    newest: Annotated[str, about("Id of the newest event that is held.", "84a7e8343baf37f9-57")]


class Ended(Record, frozen=True):
    """The session of a stream has ended, and the stream with it."""

    id: sessions.SessionId


_Time = Annotated[
    str, about("When it happened, ISO 8601 in UTC.", "2026-03-01T12:00:00Z", format="date-time")
]


class SessionUpDelivery(Record, frozen=True):
    """The message about a session that started."""

    event: Annotated[Literal["session.up"], about("Event name.", "session.up", type="string")]
    timestamp: _Time
    data: SessionUpOnInterface


class SessionDownDelivery(Record, frozen=True):
    """The message about a session that ended."""

    event: Annotated[Literal["session.down"], about("Event name.", "session.down", type="string")]
    timestamp: _Time
    data: SessionDown


class SessionRateDelivery(Record, frozen=True):
    """The message about a session whose rates changed."""

    event: Annotated[Literal["session.rate"], about("Event name.", "session.rate", type="string")]
    timestamp: _Time
    data: SessionRate


class Empty(Record, frozen=True):
    """An object without fields."""


class TestDelivery(Record, frozen=True):
    """A message that is only a test."""

    event: Annotated[Literal["webhook.test"], about("Event name.", "webhook.test", type="string")]
    timestamp: _Time
    data: Empty


@dataclass(frozen=True)
class ClientEvent:
    """An event of the core, as clients get it. Webhooks call it by its name in the core. `delivery` is the
    whole message to a webhook. Clients that name no events get it if it `is_default`."""

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
#: Names of the events that a client gets if it names none: of a webhook, and in a stream.
DEFAULT_EVENTS = tuple(name.value for name, event in EVENTS.items() if event.is_default)
DEFAULT_STREAM_EVENTS = tuple(event.stream_name for event in EVENTS.values() if event.is_default)

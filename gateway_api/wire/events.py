"""Events as clients get them, in the stream and from webhooks. Fields are sent in this order."""

from typing import Annotated, Literal

from gateway_api.wire.contract import Enumeration, Record, about
from gateway_api.wire.core import sessions


class WebhookEvent(Enumeration):
    """Which events a webhook delivers, by their names in the core."""

    UP = "session.up", "A session started."
    DOWN = "session.down", "A session ended."


class SessionUp(Record, frozen=True):
    """A session that started."""

    id: sessions.SessionId
    type: sessions.Type
    username: sessions.Username
    ip_address: sessions.AssignedAddress
    at: sessions.HappenedAt
    mac_address: sessions.MacAddress
    access_interface: sessions.AccessInterface


class SessionUpOnInterface(Record, frozen=True):
    """A session that started, with its interface."""

    id: sessions.SessionId
    type: sessions.Type
    username: sessions.Username
    ip_address: sessions.AssignedAddress
    interface: sessions.SessionInterface
    at: sessions.HappenedAt
    mac_address: sessions.MacAddress
    access_interface: sessions.AccessInterface


class SessionDown(Record, frozen=True):
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


class Empty(Record, frozen=True):
    """An object without fields."""


class TestDelivery(Record, frozen=True):
    """A message that is only a test."""

    event: Annotated[Literal["webhook.test"], about("Event name.", "webhook.test", type="string")]
    timestamp: _Time
    data: Empty


#: By event name.
DELIVERIES: dict[str, type[Record]] = {
    "session.up": SessionUpDelivery,
    "session.down": SessionDownDelivery,
    "webhook.test": TestDelivery,
}

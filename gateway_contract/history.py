"""Records of the history, in the form that the API sends to clients."""

from typing import Annotated

from gateway_contract.contract import Enumeration, Record, about, count
from gateway_contract.core import sessions as wire
from gateway_contract.core.sessions import EventName
from gateway_contract.core.sign_ons import SignOnReason, SignOnUsername


class ClockState(Enumeration):
    """State of the gateway's clock when the times of a record were taken."""

    SET = "set", "The clock was right, as far as is known."
    UNSET = "unset", "The clock was ahead, and was set back later: the times are wrong."


Clock = Annotated[ClockState, about("unset if the clock was ahead when the times were taken.", "set")]


class PastSession(Record, frozen=True):
    """Session of the past, or a session that is still up. The fields after started_at are null while the
    session is up.

    If the history has a gap, the end is unknown: ended_at is null, and the session ended between ended_after
    and ended_before.
    """

    id: wire.SessionId
    type: wire.Type
    username: wire.Username
    mac_address: wire.MacAddress
    ip_address: wire.AssignedAddress
    ipv6_address: wire.Ipv6Address
    ipv6_prefix: wire.Ipv6Prefix
    delegated_prefixes: wire.DelegatedPrefixes
    interface: wire.SessionInterface
    access_interface: wire.AccessInterface
    outer_vlan_id: wire.OuterVlanId
    inner_vlan_id: wire.InnerVlanId
    started_at: wire.StartedAt
    ended_at: Annotated[int | None, count("End, Unix epoch seconds.", 1795275113)]
    ended_after: Annotated[int | None, count("With a gap: when it was last known to be up.", 1795275100)]
    ended_before: Annotated[int | None, count("With a gap: when it was found to be gone.", 1795275160)]
    duration_seconds: Annotated[int | None, wire.DURATION]
    reason: Annotated[str | None, wire.REASON]
    bytes_in: Annotated[int | None, wire.RECEIVED]
    bytes_out: Annotated[int | None, wire.SENT]
    packets_in: Annotated[int | None, wire.PACKETS_RECEIVED]
    packets_out: Annotated[int | None, wire.PACKETS_SENT]
    author: wire.Author
    clock: Clock


class FlappingSubscriber(Record, frozen=True):
    """Subscriber with more than one session in a window of time. The fields after sessions describe the last
    session."""

    username: wire.Username
    sessions: Annotated[int, count("Sessions that started in the window.", 12)]
    mac_address: wire.MacAddress
    access_interface: wire.AccessInterface
    started_at: wire.StartedAt
    reason: Annotated[str | None, wire.REASON]


#: Maximum time between two failed attempts of one record.
MAX_PAUSE_SECONDS = 900


class FailedSignOns(Record, frozen=True):
    """Series of failed attempts to sign on, with the same reason and with short pauses. A router repeats the
    attempt as long as it is switched on."""

    type: wire.Type
    username: SignOnUsername
    mac_address: wire.MacAddress
    access_interface: wire.AccessInterface
    outer_vlan_id: wire.OuterVlanId
    inner_vlan_id: wire.InnerVlanId
    source: wire.SourceName
    reason: SignOnReason
    attempts: Annotated[
        int,
        about(
            f"Number of attempts, each at most {MAX_PAUSE_SECONDS // 60} minutes after the previous attempt.",
            12,
            minimum=1,
        ),
    ]
    first_at: Annotated[int, count("First attempt, Unix epoch seconds.", 1795271513)]
    last_at: Annotated[int, count("Last attempt, Unix epoch seconds.", 1795275113)]
    clock: Clock


class TimelineEvent(Enumeration):
    """Kind of a timeline entry."""

    UP = EventName.UP.value, "A session started."
    RATE = EventName.RATE.value, "The rates of a session changed."
    DOWN = EventName.DOWN.value, "A session ended."
    LOST = "session.lost", "A session was found to be gone: the history has a gap."
    FAILED = "sign_on.failed", "Attempts to sign on failed, the first of them at this time."


class TimelineEntry(Record, frozen=True):
    """Event in the timeline of a subscriber. A field that does not apply to the kind of event is null, for
    example session_id of sign_on.failed."""

    at: wire.HappenedAt
    event: Annotated[TimelineEvent, about("What happened.", "session.down")]
    session_id: Annotated[int | None, about("Session id, null if there was no session.", 7)]
    message: Annotated[
        str,
        about("Text that describes the event.", "Session 7 ended after 1:02:03, admin_disconnect, by admin"),
    ]
    author: wire.Author
    reason: Annotated[
        str | None, about("Why the session ended, or why the sign-ons failed.", "user_request", "rejected")
    ]
    rate_down: Annotated[int | None, count("New downstream rate, bits per second.", 250_000_000)]
    rate_up: Annotated[int | None, count("New upstream rate, bits per second.", 50_000_000)]
    rate_expires_at: Annotated[
        int | None, count("When the former rates return, Unix epoch seconds.", 1795275113)
    ]
    clock: Clock


class TrafficSample(Record, frozen=True):
    """Traffic of all trunks, averaged over one sampling interval."""

    at: Annotated[int, count("Unix epoch seconds.", 1795271510)]
    down_bps: Annotated[int, count("Downstream, bits per second.", 1_250_000_000)]
    up_bps: Annotated[int, count("Upstream, bits per second.", 140_000_000)]

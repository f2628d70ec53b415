"""The core's contract for the present traffic of sessions: rates, computed from two samples of the
counters."""

from typing import Annotated

from msgspec import Meta

from gateway_contract.contract import Enumeration, Method, Record, about, count
from gateway_contract.core import sessions

#: The most sessions of a list by traffic.
MAX_TALKERS = 1000

DownBps = Annotated[int, count("Bits per second to the subscriber.", 5_213_400)]
UpBps = Annotated[int, count("Bits per second from the subscriber.", 301_120)]
DownPps = Annotated[int, count("Packets per second to the subscriber.", 543)]
UpPps = Annotated[int, count("Packets per second from the subscriber.", 94)]
SampledAt = Annotated[int, count("Time of the later sample, Unix epoch seconds.", 1795271513)]
IntervalMs = Annotated[int, count("Milliseconds between the two samples from which the rates are.", 1000)]


class TrafficReply(Record, frozen=True):
    """The traffic of a session between two samples of its counters."""

    at: SampledAt
    interval_ms: IntervalMs
    down_bps: DownBps
    up_bps: UpBps
    down_pps: DownPps
    up_pps: UpPps


class WatchTraffic(Method[TrafficReply], frozen=True):
    """Stream the traffic of a session every second. The call must have the flag `more`. All callers share the
    samples. When the session ends, the last reply is SessionNotFound."""

    streams = True
    silence = 10.0

    id: sessions.SessionId


class TalkerOrder(Enumeration):
    """The order of sessions by traffic. Some values are not valid names in varlink, so varlink declares a
    string."""

    MOST_DOWN = "-down", "The most bits to the subscriber first."
    MOST_UP = "-up", "The most bits from the subscriber first."
    LEAST_DOWN = "down", "The least bits to the subscriber first."
    LEAST_UP = "up", "The least bits from the subscriber first."


class Talker(Record, frozen=True):
    """A session with its present traffic."""

    id: sessions.SessionId
    type: sessions.Type
    username: sessions.Username
    ip_address: sessions.AssignedAddress
    interface: sessions.SessionInterface
    access_interface: sessions.AccessInterface
    rate_down: sessions.RateDown
    rate_up: sessions.RateUp
    down_bps: DownBps
    up_bps: UpBps
    down_pps: DownPps
    up_pps: UpPps


class TalkersReply(Record, frozen=True):
    """A list of sessions, ordered by traffic. All rates are computed from the same two samples."""

    sessions: Annotated[tuple[Talker, ...], about("The sessions.")]
    count: Annotated[int, count("Number of records in this reply.", 1)]
    at: SampledAt
    interval_ms: IntervalMs


class ListTalkers(Method[TalkersReply], frozen=True):
    """List the sessions with the most traffic. All calls within five seconds share two samples of the
    counters. The first call after a longer pause takes both samples, which takes one second."""

    sort: Annotated[TalkerOrder, about("Which ones first.", "-down")] = TalkerOrder.MOST_DOWN
    limit: Annotated[
        Annotated[int, Meta(ge=1, le=MAX_TALKERS)], about("Most sessions of the reply, 1 to 1000.", 20)
    ] = 20

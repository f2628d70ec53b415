"""The events that a worker holds for all of its streams."""

from itertools import islice

import gevent
import msgspec
import pytest

from gateway_api.base.core_events import Events
from gateway_api.events.broadcast import (
    MAX_HELD,
    Broadcast,
    EncodedEvent,
    EventId,
    Span,
    StreamTimes,
    encode_events,
    encode_gap,
    parse_id,
)
from gateway_contract.base.errors import CoreUnavailable
from gateway_contract.core.sessions import EventsReply
from gateway_contract.core_client import CoreClient
from gateway_core.sessions.journal import Journal
from gateway_core.sessions.session import Counters
from tests.support.journal import InProcessCore, grow
from tests.support.records import session


def test_a_span_holds_what_came_after_events_of_its_life_from_where_it_began() -> None:
    span = Span("life", 10, 1, held=3)
    assert [span.holds(EventId("life", number)) for number in (9, 10, 11)] == [False, True, False]
    for _ in range(4):
        span.ring.add(EncodedEvent("session_up", "pppoe", b""))
    assert [span.holds(EventId("life", number)) for number in (10, 11, 14, 15)] == [False, True, True, False]
    assert not span.holds(EventId("other", 12))


def test_a_span_tells_of_the_gap_before_it() -> None:
    assert Span("life", 10, 3).encode_gap() == encode_gap("life", 3, 10)


def test_a_worker_begins_with_the_last_10000_events_and_holds_as_many() -> None:
    assert (StreamTimes().past_events, MAX_HELD) == (10_000, 10_000)


def test_there_is_no_span_until_the_core_has_told_of_one() -> None:
    with pytest.raises(CoreUnavailable):
        _ = Broadcast(Events(CoreClient(InProcessCore(None))), StreamTimes(core_patience=0.02)).span  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("id", "there"),
    [("life-7", True), ("life-10", True), ("life-11", False), ("other-7", False)],
)
def test_an_event_that_does_not_come_is_not_waited_for_for_ever(
    greenlets: None, id: str, there: bool
) -> None:
    journal = Journal("life")
    grow(journal, 10)
    times = StreamTimes()
    broadcast = Broadcast(Events(CoreClient(InProcessCore(journal))), times)  # type: ignore[arg-type]
    gevent.spawn(broadcast.run)
    span = broadcast.span
    times.core_patience = 0.05
    assert broadcast.wait_for_span(parse_id(id)) == (span if there else None)


def test_an_event_on_its_way_is_waited_for(greenlets: None) -> None:
    journal = Journal("life")
    broadcast = Broadcast(Events(CoreClient(InProcessCore(journal))), StreamTimes())  # type: ignore[arg-type]
    gevent.spawn(broadcast.run)
    waits = gevent.spawn(broadcast.wait_for_span, EventId("life", 3))
    for _ in range(3):
        assert broadcast.span
        assert not waits.dead
        grow(journal, 1)
    assert waits.get(timeout=5) is broadcast.span


def test_each_event_of_the_core_has_a_name_and_bytes() -> None:
    journal = Journal("life")
    grow(journal, 1)
    journal.add_rate_change(session(1), 2.0, None, "admin")
    journal.add_session_down(session(1), "user_request", 3.0, Counters(0, 0, 0, 0))
    (reply,) = islice(journal.follow("life", 0), 1)
    held = msgspec.json.decode(msgspec.json.encode(reply), type=EventsReply)
    found = list(encode_events("life", held.events))
    assert [entry.name for entry in found] == ["session_up", "session_rate", "session_down"]
    assert all(b"event: %s\n" % entry.name.encode() in entry.block for entry in found)

"""The journal of a core, and those that follow it."""

import threading
from contextlib import closing
from itertools import islice
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from gateway_contract.core.sessions import EventsReply
from gateway_core.sessions import journal as feed
from gateway_core.sessions.journal import MAX_EVENTS, MAX_FAILED_SIGN_ONS, Journal
from gateway_core.sessions.session import Counters
from tests.support.journal import fail, grow
from tests.support.records import session


def sequences(reply: EventsReply) -> list[int]:
    return [msgspec.json.decode(event)["sequence"] for event in reply.events]


def events_of(journal: Journal) -> list[dict[str, Any]]:
    (reply,) = islice(journal.follow("life", 0), 1)
    return [msgspec.json.decode(event) for event in reply.events]


def test_an_event_has_all_that_its_readers_need() -> None:
    journal = Journal("life")
    networks = {
        "ipv6_address": "2001:db8::7",
        "ipv6_prefix": "2001:db8::/64",
        "delegated_prefixes": ["2001:db8:8000::/56"],
        "outer_vlan_id": 100,
    }
    subscriber = session(7, **networks)
    journal.add_session_up(subscriber, 12.9)
    journal.add_session_down(subscriber, "user_request", 13.1, Counters(1200, 34000, 12, 34))
    counters = {"bytes_in": 1200, "bytes_out": 34000, "packets_in": 12, "packets_out": 34}
    ended = {**counters, "duration_seconds": 10, "reason": "user_request"}
    common = {
        **networks,
        "id": 7,
        "type": "PPPoE",
        "username": "user7",
        "ip_address": "100.64.0.7",
        "interface": "ppp6",
        "mac_address": "02:00:00:00:00:07",
        "access_interface": "trunk0.7",
        "inner_vlan_id": 7,
        "started_at": 3,
        **dict.fromkeys(("rate_down", "rate_up", "rate_expires_at", "author")),
    }
    assert events_of(journal) == [
        {"sequence": 1, "event": "session.up", "at": 12, **common, **dict.fromkeys(ended)},
        {"sequence": 2, "event": "session.down", "at": 13, **common, **ended},
    ]


def test_other_rates_are_an_event_with_their_author_and_their_end() -> None:
    journal = Journal("life")
    journal.add_rate_change(session(7), 12.9, 99, "admin")
    (event,) = events_of(journal)
    assert (event["event"], event["at"], event["id"]) == ("session.rate", 12, 7)
    assert (event["rate_down"], event["rate_up"], event["rate_expires_at"]) == (1000, 2000, 99)
    assert (event["author"], event["reason"]) == ("admin", None)


def test_the_end_of_a_session_names_the_user_who_ordered_it() -> None:
    journal = Journal("life")
    journal.note_disconnect("admin", [7, 8])
    journal.add_session_down(session(7), "admin_disconnect", 13.1, Counters(0, 0, 0, 0))
    # The order failed.
    journal.add_session_down(session(8), "lost_carrier", 13.1, Counters(0, 0, 0, 0))
    journal.add_session_down(session(9), "admin_disconnect", 13.1, Counters(0, 0, 0, 0))
    # Another run of the same id was not ordered to end.
    journal.add_session_down(session(7), "admin_disconnect", 14.1, Counters(0, 0, 0, 0))
    # The clock went back: no session lasted less than no time.
    journal.add_session_down(session(7, started_at=20), "user_request", 13.1, Counters(0, 0, 0, 0))
    events = events_of(journal)
    assert [event["author"] for event in events] == ["admin", None, None, None, None]
    assert [event["duration_seconds"] for event in events] == [10, 10, 10, 11, 0]


def test_who_follows_from_now_on_first_hears_where_that_is() -> None:
    journal = Journal("life")
    grow(journal, 3)
    with closing(journal.follow(None, None)) as replies:
        first = next(replies)
        assert (first.boot_id, first.oldest, first.newest, first.gap, first.events) == (
            "life",
            1,
            3,
            False,
            [],
        )
        grow(journal, 2)
        assert sequences(next(replies)) == [4, 5]


@pytest.mark.parametrize(
    ("boot_id", "after", "expected"),
    [("life", 0, [1, 2, 3]), ("life", 2, [3]), ("life", 3, []), (None, 1, [2, 3]), ("life", None, [1, 2, 3])],
)
def test_a_client_that_comes_back_gets_what_came_after(
    boot_id: str | None, after: int | None, expected: list[int]
) -> None:
    journal = Journal("life")
    grow(journal, 3)
    reply = next(journal.follow(boot_id, after))
    assert (reply.gap, sequences(reply)) == (False, expected)


@pytest.mark.parametrize(
    ("boot_id", "after"),
    [("other", 2), ("other", None), ("other", 0), ("life", 4), ("life", 1 << 62), (None, 9)],
)
def test_what_was_never_there_is_a_gap_and_then_it_goes_on(boot_id: str | None, after: int | None) -> None:
    journal = Journal("life")
    grow(journal, 3)
    replies = journal.follow(boot_id, after)
    gap = next(replies)
    assert (gap.boot_id, gap.oldest, gap.newest, gap.gap, gap.events) == ("life", 1, 3, True, [])
    grow(journal, 2)
    following = next(replies)
    assert (following.gap, sequences(following)) == (False, [4, 5])


def test_a_follower_of_what_is_held_no_more_hears_of_a_gap() -> None:
    # As many are held as the interface promises.
    assert min(MAX_EVENTS, MAX_FAILED_SIGN_ONS) >= 65_536
    journal = Journal("life", size=4)
    replies = journal.follow(None, None)
    next(replies)
    grow(journal, 10)
    gap = next(journal.follow("life", 5))
    assert (gap.oldest, gap.newest, gap.gap, gap.events) == (7, 10, True, [])
    assert sequences(next(journal.follow("life", 6))) == [7, 8, 9, 10]
    gap = next(replies)
    assert (gap.newest, gap.gap, gap.events) == (10, True, [])
    grow(journal, 1)
    assert sequences(next(replies)) == [11]


def test_many_events_come_in_several_replies() -> None:
    journal = Journal("life")
    grow(journal, 2500)
    replies = list(islice(journal.follow("life", 0), 3))
    assert [len(reply.events) for reply in replies] == [1000, 1000, 500]
    assert [number for reply in replies for number in sequences(reply)] == list(range(1, 2501))
    assert {reply.newest for reply in replies} == {2500}


def test_a_follower_hears_of_silence_after_15_looks_at_whether_it_is_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(feed, "_WAIT_SECONDS", 0.001)
    journal = Journal("life")
    grow(journal, 2)
    found = list(islice(journal.follow(None, None), 33))
    assert [reply is None for reply in found] == ([False] + [True] * 15) * 2 + [False]
    for reply in found:
        assert reply is None or (reply.newest, reply.gap, reply.events) == (2, False, [])


def test_an_event_wakes_the_follower_that_waits_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    waits = threading.Event()

    class Condition(threading.Condition):
        def wait(self, timeout: float | None = None) -> bool:
            # Nobody can add an event before the lock is free, which is in the wait.
            waits.set()
            return super().wait(timeout)

    monkeypatch.setattr(feed, "_WAIT_SECONDS", 20.0)
    monkeypatch.setattr(feed, "threading", SimpleNamespace(Condition=Condition, Lock=threading.Lock))
    journal, found = Journal("life"), []
    replies = journal.follow(None, None)
    next(replies)
    follower = threading.Thread(target=lambda: found.append(next(replies)), daemon=True)
    follower.start()
    assert waits.wait(20)
    grow(journal, 1)
    follower.join(10)
    assert [sequences(reply) for reply in found] == [[1]]


def test_failed_sign_ons_are_numbered_apart_from_session_events() -> None:
    journal = Journal("life")
    grow(journal, 2)
    fail(journal, "ann", 12.9)
    (failures,) = islice(journal.follow_failed_sign_ons("life", 0), 1)
    assert [event["sequence"] for event in events_of(journal)] == [1, 2]
    subscriber = {"type": "PPPoE", "username": "ann", "mac_address": None, "access_interface": "trunk0.7"}
    place = {"outer_vlan_id": None, "inner_vlan_id": 7, "source": "lab"}
    failed = {"sequence": 1, "at": 12, "reason": "rejected", **subscriber, **place}
    begin = {"boot_id": "life", "oldest": 1, "newest": 1, "gap": False}
    assert msgspec.json.decode(msgspec.json.encode(failures)) == {**begin, "failures": [failed]}


def test_subscribers_who_fail_again_and_again_push_no_session_event_out() -> None:
    journal = Journal("life", size=4)
    grow(journal, 4)
    for _ in range(MAX_FAILED_SIGN_ONS + 1):
        fail(journal, "ann")
    (events,) = islice(journal.follow("life", 0), 1)
    (failures,) = islice(journal.follow_failed_sign_ons("life", 0), 1)
    assert events is not None
    assert failures is not None
    assert (sequences(events), failures.gap, failures.oldest) == ([1, 2, 3, 4], True, 2)

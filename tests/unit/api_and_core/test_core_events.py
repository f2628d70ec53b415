"""The client of the core's events, before a core that can be taken away and one that lies."""

import logging
from collections.abc import Iterator
from contextlib import ExitStack, closing
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from gateway_api.base import core_events as following
from gateway_api.base.core_events import Events
from gateway_contract.base.errors import CoreUnavailable
from gateway_contract.core.interface import CORE
from gateway_contract.core.sessions import EventsReply, SessionEvent
from gateway_contract.core_client import CoreClient
from gateway_contract.varlink.client import Client
from gateway_contract.varlink.protocol import ErrorReply
from gateway_core.sessions.journal import Journal
from gateway_core.sessions.session import Counters
from tests.support.journal import grow, no_pause, numbers, serving
from tests.support.records import session


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "core.sock"


@pytest.fixture
def events(path: Path) -> Iterator[Events]:
    client = Client(path, timeout=5)
    yield Events(CoreClient(client))
    client.close()


def test_events_after_an_event_come_as_they_happened(path: Path, events: Events) -> None:
    journal = Journal("life")
    with serving(path, journal):
        journal.add_session_up(session(7), 12.0)
        journal.add_session_down(session(7, type="DHCP"), "lost_carrier", 13.0, Counters(1, 2, 1, 2))
        with closing(events.follow_after("life", 0)) as batches:
            batch = next(batches)
    common = {"id": 7, "username": "user7", "ip_address": "100.64.0.7", "interface": "ppp6"}
    common |= {"mac_address": "02:00:00:00:00:07", "access_interface": "trunk0.7", "inner_vlan_id": 7}
    common |= {"started_at": 3}
    ended = {"bytes_in": 1, "bytes_out": 2, "packets_in": 1, "packets_out": 2, "duration_seconds": 10}
    assert batch.events == (
        SessionEvent(sequence=1, event="session.up", at=12, type="PPPoE", **common),
        SessionEvent(
            sequence=2, event="session.down", at=13, type="DHCP", reason="lost_carrier", **common, **ended
        ),
    )
    assert (batch.boot_id, batch.oldest, batch.newest, batch.gap) == ("life", 1, 2, False)


def test_a_follower_goes_on_behind_the_last_event_after_a_break(path: Path, events: Events) -> None:
    journal = Journal("life")
    grow(journal, 1)
    with closing(events.follow_for_ever(no_pause)) as batches:
        with serving(path, journal):
            found = [next(batches)]
        # Nobody is there when these happen.
        grow(journal, 2)
        with serving(path, journal) as core:
            found += islice(batches, 1)
            grow(journal, 1)
            found += islice(batches, 1)
        assert core.asked == [("life", 1)]
    assert numbers(found) == [2, 3, 4]
    assert not any(batch.gap for batch in found)


def test_a_follower_is_told_of_another_life_once(path: Path, events: Events) -> None:
    with closing(events.follow_for_ever(no_pause)) as batches:
        first, second = Journal("first"), Journal("second")
        with serving(path, first):
            next(batches)
            grow(first, 9)
            assert numbers([next(batches)]) == list(range(1, 10))
        grow(second, 2)
        with serving(path, second):
            gap = next(batches)
            assert (gap.boot_id, gap.newest, gap.gap, gap.events) == ("second", 2, True, ())
            grow(second, 1)
            following = next(batches)
            assert (following.gap, numbers([following])) == (False, [3])


@pytest.mark.parametrize(
    ("held", "happened", "behind", "after"),
    [(100, 10, 3, 7), (100, 2, 10, 0), (4, 10, 9, 6)],
)
def test_who_begins_behind_now_gets_the_last_events_and_then_the_next(
    path: Path, events: Events, held: int, happened: int, behind: int, after: int
) -> None:
    journal = Journal("life", held)
    grow(journal, happened)
    with serving(path, journal) as core, closing(events.follow_for_ever(no_pause, behind=behind)) as batches:
        found = [next(batches)]
        grow(journal, 1)
        found.append(next(batches))
    assert core.asked == [(None, None), ("life", after)]
    assert numbers(found) == list(range(after + 1, happened + 2))
    assert not any(batch.gap for batch in found)


def test_who_wants_all_that_is_held_gets_it_after_another_life_began(path: Path, events: Events) -> None:
    first, second = Journal("first"), Journal("second")
    grow(second, 5)
    with closing(events.follow_for_ever(no_pause, all_held=True)) as batches:
        with serving(path, first):
            next(batches)
            grow(first, 9)
            next(batches)
        with serving(path, second) as core:
            gap, found = next(batches), next(batches)
    assert (gap.boot_id, gap.oldest, gap.newest, gap.gap, gap.events) == ("second", 1, 5, True, ())
    assert core.asked == [("first", 9), ("second", 0)]
    assert numbers([found]) == [1, 2, 3, 4, 5]
    assert not found.gap


def test_who_wants_all_that_is_held_begins_with_the_oldest_after_a_gap(path: Path, events: Events) -> None:
    journal = Journal("life", size=4)
    with closing(events.follow_for_ever(no_pause, all_held=True)) as batches:
        with serving(path, journal):
            next(batches)
        grow(journal, 10)
        with serving(path, journal) as core:
            gap, found = next(batches), next(batches)
    assert (gap.oldest, gap.newest, gap.gap) == (7, 10, True)
    assert core.asked == [("life", 0), ("life", 6)]
    assert numbers([found]) == [7, 8, 9, 10]


def test_a_follower_pauses_before_each_try_and_tells_of_an_outage_once(
    path: Path, events: Events, caplog: pytest.LogCaptureFixture
) -> None:
    class Enough(Exception):
        """Ends the follower."""

    def pause(seconds: float) -> None:
        assert 0 < seconds <= 1
        tries.append(len(caplog.records))
        if len(tries) == 10:
            core.enter_context(serving(path, Journal("life")))
        elif len(tries) == 20:
            raise Enough

    tries: list[int] = []
    caplog.set_level(logging.DEBUG, following.__name__)
    batches = events.follow_for_ever(pause)
    with ExitStack() as core:
        next(batches)
    with pytest.raises(Enough):
        next(batches)
    told = [record.levelno for record in caplog.records if record.name == following.__name__]
    assert told == ([logging.WARNING] + [logging.DEBUG] * 9) * 2


class Scripted(Journal):
    """Tells each follower the same, whatever it was asked."""

    def __init__(self, *replies: Any) -> None:
        super().__init__("life")
        self._replies = replies

    def follow(self, *_: object) -> Iterator[Any]:
        for reply in self._replies:
            if isinstance(reply, ErrorReply):
                raise reply
            yield reply


def reply(**fields: Any) -> dict[str, Any]:
    return {"boot_id": "life", "oldest": 1, "newest": 0, "gap": False, "events": [], **fields}


@pytest.mark.parametrize(
    "nonsense",
    [ErrorReply.of(f"{CORE.name}.Whatever"), *({"boot_id": id} for id in ("a\nb", "", "a" * 65)), {}],
)
def test_a_core_that_says_what_it_must_not_is_as_good_as_none(
    path: Path, events: Events, nonsense: dict[str, Any] | ErrorReply
) -> None:
    answer = nonsense if isinstance(nonsense, ErrorReply) or not nonsense else reply(**nonsense)
    with serving(path, Scripted(reply(), answer)), closing(events.follow_after("life", 0)) as batches:
        assert next(batches) == EventsReply("life", 1, 0, False, ())
        with pytest.raises(CoreUnavailable):
            next(batches)


def test_a_follower_goes_on_where_it_was_after_a_core_that_is_wrong(path: Path, events: Events) -> None:
    journal = Journal("life")
    grow(journal, 3)
    first = next(journal.follow("life", 0)).events[0]
    with closing(events.follow_for_ever(no_pause)) as batches:
        replies = reply(), reply(newest=3, events=[first]), reply(newest="3")
        with serving(path, Scripted(*replies)):
            found = [next(batches), next(batches)]
        with serving(path, journal) as core:
            found.append(next(batches))
    assert core.asked == [("life", 1)]
    assert numbers(found) == [1, 2, 3]

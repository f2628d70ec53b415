"""The client of the core's events, before a core that can be taken away and one that lies."""

import logging
import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack, closing
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from gateway_api.base import core_events as following
from gateway_api.base.core_events import Events
from gateway_api.history.reader import Reader
from gateway_api.history.sign_ons import SignOnFilter, SignOnRecorder, find_failed_sign_ons
from gateway_contract.base.errors import CoreUnavailable
from gateway_contract.contract import Method, Page
from gateway_contract.core.interface import CORE
from gateway_contract.core.sessions import EventsReply, SessionEvent
from gateway_contract.core_client import CoreClient
from gateway_contract.varlink.client import Client
from gateway_contract.varlink.protocol import ErrorReply
from gateway_core.sessions import journal as journals
from gateway_core.sessions.journal import Journal
from gateway_core.sessions.session import Counters
from tests.support.histories import damage
from tests.support.journal import fail, grow, no_pause, numbers, serving
from tests.support.pools import Here
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
    with serving(path, journal) as core, closing(events.follow_for_ever(no_pause, recent=behind)) as batches:
        found = [next(batches)]
        grow(journal, 1)
        found.append(next(batches))
    assert core.asked == [(None, None), ("life", after)]
    assert numbers(found) == list(range(after + 1, happened + 2))
    assert not any(batch.gap for batch in found)


def test_who_wants_all_that_is_held_gets_it_after_another_life_began(path: Path, events: Events) -> None:
    first, second = Journal("first"), Journal("second")
    grow(second, 5)
    with closing(events.follow_for_ever(no_pause, with_all_held=True)) as batches:
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
    with closing(events.follow_for_ever(no_pause, with_all_held=True)) as batches:
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


class Enough(Exception):
    """Ends the recorder."""


class Recording:
    """A recorder of the core at `socket`, which ends when it has nothing more to read."""

    def __init__(self, folder: Path) -> None:
        self.socket, self.path = folder / "core", folder / "history.sqlite"
        self.pauses: list[float] = []
        self.client = Client(self.socket, timeout=10)

    def run(self, ends_with: type[Exception] = Enough) -> None:
        """Until the core has told all, or has been asked three times in vain."""
        with pytest.raises(ends_with):
            SignOnRecorder(Told(self.client), self.path, Here(), self._pause).record()

    def _pause(self, seconds: float) -> None:
        self.pauses.append(seconds)
        if len(self.pauses) == 3:
            raise Enough

    def usernames(self) -> list[str | None]:
        found = Reader(self.path, Here()).search(find_failed_sign_ons, SignOnFilter(), Page(100)).records
        return [one.username for one in found]


class Told(CoreClient):
    """Ends after the last failure that the core has."""

    def follow(self, call: Method[Any]) -> Iterator[Any]:
        for batch in super().follow(call):
            yield batch
            if not batch.gap and (not batch.failures or batch.failures[-1].sequence == batch.newest):
                raise Enough


@pytest.fixture
def recording(tmp_path: Path) -> Recording:
    return Recording(tmp_path)


def test_a_recorder_goes_on_behind_the_last_failure_that_it_has(recording: Recording) -> None:
    journal = Journal("life")
    fail(journal, "ann")
    with serving(recording.socket, journal, tells_failures=True) as core:
        recording.run()
        fail(journal, "bob", 2.0)
        recording.run()
    assert recording.usernames() == ["bob", "ann"]
    assert core.asked[-1] == ("life", 1)


def test_a_history_that_is_damaged_where_the_failures_are_costs_one_attempt(recording: Recording) -> None:
    journal = Journal("life")
    fail(journal, "ann")
    with serving(recording.socket, journal, tells_failures=True):
        recording.run()
        damage(recording.path, "failed_username")
        fail(journal, "bob", 2.0)
        recording.run(ends_with=sqlite3.DatabaseError)
        recording.run()
    assert recording.usernames() == ["bob", "ann"]


def test_failures_of_another_run_of_the_core_come_from_its_first_on(recording: Recording) -> None:
    for boot, username, at in (("first", "ann", 1.0), ("second", "bob", 2.0)):
        journal = Journal(boot)
        fail(journal, username, at)
        with serving(recording.socket, journal, tells_failures=True):
            recording.run()
    assert recording.usernames() == ["bob", "ann"]


def test_failures_that_the_core_no_longer_holds_are_counted_in_the_log(
    recording: Recording, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(journals, "MAX_FAILED_SIGN_ONS", 2)
    journal = Journal("life")
    with serving(recording.socket, journal, tells_failures=True), caplog.at_level(logging.WARNING):
        fail(journal, "ann")
        recording.run()
        for number in range(5):
            fail(journal, f"bob{number}", 2.0 + number)
        recording.run()
    assert recording.usernames() == ["bob4", "bob3", "ann"]
    assert [record.message for record in caplog.records] == [
        "the history has a gap: 3 failed sign-ons were not recorded"
    ]


def test_a_core_that_does_not_tell_of_failures_is_asked_each_minute_and_named_once(
    recording: Recording, caplog: pytest.LogCaptureFixture
) -> None:
    with serving(recording.socket, Journal("life")), caplog.at_level(logging.WARNING):
        recording.run()
    assert recording.pauses == [60.0] * 3
    assert [record.message for record in caplog.records] == [
        "cannot record failed sign-ons in the history, trying again:"
        " The core daemon lacks the method SubscribeFailedSignOns"
    ]
    assert recording.usernames() == []

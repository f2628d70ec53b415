"""The recorder of failed sign-ons, beside a core behind a real socket."""

import logging
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gateway_api.history.reader import Reader
from gateway_api.history.sign_ons import SignOnFilter, SignOnRecorder, find_failed_sign_ons
from gateway_contract.contract import Method, Page
from gateway_contract.core_client import CoreClient
from gateway_contract.varlink.client import Client
from gateway_core.sessions import journal as journals
from gateway_core.sessions.journal import Journal
from tests.support.histories import damage
from tests.support.journal import fail, serving
from tests.support.pools import Here


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
        "the history has a hole: 3 failed sign-ons are not known"
    ]


def test_a_core_that_does_not_tell_of_failures_is_asked_each_minute_and_named_once(
    recording: Recording, caplog: pytest.LogCaptureFixture
) -> None:
    with serving(recording.socket, Journal("life")), caplog.at_level(logging.WARNING):
        recording.run()
    assert recording.pauses == [60.0] * 3
    assert [record.message for record in caplog.records] == [
        "the history has no failed sign-ons: The core daemon lacks the method SubscribeFailedSignOns"
    ]
    assert recording.usernames() == []

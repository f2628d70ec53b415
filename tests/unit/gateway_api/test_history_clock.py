"""Records of the history from a clock that was ahead."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from gateway_api.history.reader import read_timeline
from gateway_api.history.sessions import SessionWriter
from gateway_api.history.sign_ons import SignOnFilter, find_failed_sign_ons
from gateway_contract.contract import Page
from gateway_contract.core.configuration import HistoryLimits
from tests.support.clocks import NOW, MachineClock
from tests.support.histories import History, down, failed, up

DAY = 86_400
YEARS = 10 * 365 * DAY


class Gateway:
    """A history, whose events have the times of a clock that is set."""

    def __init__(self, folder: Path) -> None:
        self.clock = MachineClock()
        self._path = folder / "history.sqlite"
        self.start()

    def start(self) -> None:
        """Another worker writes from now on."""
        self.past = History(self._path, SessionWriter(self._path, self.clock.steady, made=NOW - DAY))

    def session(self, id: int, **fields: str) -> None:
        """One that starts, and ends after a minute."""
        started = int(self.clock.wall())
        self.clock.now += 60
        ended = int(self.clock.wall())
        self.past.add(up(id, started, **fields), down(id, started, ended, **fields), at=ended)

    def set(self, ahead: float) -> None:
        """Sets the clock. A moment later, the core is heard."""
        self.clock.ahead = ahead
        self.clock.now += 1
        self.past.add(at=int(self.clock.wall()))


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[Gateway]:
    made = Gateway(tmp_path)
    with closing(made.past.store):
        yield made


def clocks(gateway: Gateway, **wanted: str) -> list[tuple[int, str]]:
    return [(found.id, str(found.clock)) for found in gateway.past.found(**wanted)]


@pytest.mark.parametrize("ahead", [DAY, YEARS])
def test_sessions_of_a_clock_that_was_ahead_are_marked_and_not_among_the_newest(
    gateway: Gateway, ahead: float
) -> None:
    # A clock that is slewed marks nothing.
    gateway.clock.ahead = 30
    gateway.session(1)
    gateway.set(0.0)
    gateway.clock.ahead = ahead
    gateway.session(2, username="ann")
    gateway.set(0.0)
    gateway.session(3, username="ann")
    assert clocks(gateway) == [(3, "set"), (1, "set")]
    # Who names the subscriber finds them.
    assert clocks(gateway, username="ann") == [(2, "unset"), (3, "set")]
    entries = gateway.past.reader.search(read_timeline, 3, Page(9)).records
    assert [str(entry.clock) for entry in entries] == ["unset", "unset", "set", "set"]


def test_a_clock_that_is_set_while_no_worker_runs_marks_them_too(gateway: Gateway) -> None:
    gateway.clock.ahead = YEARS
    gateway.session(1)
    gateway.past.store.close()
    gateway.clock.reboot()
    gateway.start()
    gateway.session(2)
    assert clocks(gateway) == [(2, "set")]


@pytest.mark.parametrize("behind", [600, 50 * YEARS])
def test_a_boot_with_a_clock_that_is_behind_marks_nothing_once_the_clock_is_right(
    gateway: Gateway, behind: float
) -> None:
    gateway.session(1)
    gateway.past.store.close()
    gateway.clock.reboot(ahead=-behind)
    gateway.start()
    gateway.session(2)
    gateway.set(0.0)
    gateway.session(3)
    assert sorted(clocks(gateway)) == [(1, "set"), (2, "set"), (3, "set")]


def test_failed_sign_ons_of_a_clock_that_was_ahead_are_not_among_the_newest(gateway: Gateway) -> None:
    def found(**wanted: str) -> list[tuple[int, str]]:
        failures = gateway.past.reader.search(find_failed_sign_ons, SignOnFilter(**wanted), Page(9)).records
        return [(failure.first_at, str(failure.clock)) for failure in failures]

    gateway.set(DAY)
    gateway.past.fail(failed(NOW + DAY))
    gateway.set(0.0)
    gateway.past.fail(failed(NOW))
    assert found() == [(NOW, "set")]
    assert found(username="ann") == [(NOW + DAY, "unset"), (NOW, "set")]


def test_what_came_after_a_quiet_time_that_emptied_the_history_is_not_taken_for_older(
    gateway: Gateway,
) -> None:
    gateway.set(DAY)
    gateway.session(1)
    gateway.past.fail(failed(int(gateway.clock.wall())))
    gateway.set(0.0)
    gateway.clock.now += 100 * DAY
    while gateway.past.store.trim(HistoryLimits(90, 1024), int(gateway.clock.wall())):
        pass
    assert clocks(gateway, username="user1") == []
    gateway.session(2)
    now = int(gateway.clock.wall())
    gateway.past.fail(failed(now))
    assert clocks(gateway) == [(2, "set")]
    assert [failure.first_at for failure in gateway.past.failures()] == [now]

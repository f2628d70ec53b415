"""Sessions and failed sign-ons in the history: events that come twice, late or not at all; wrong clocks."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from gateway_api.history import database, sessions
from gateway_api.history.reader import read_timeline
from gateway_api.history.recorder import SessionRecorder
from gateway_api.history.sessions import EventPosition, SessionWriter, prepare
from gateway_api.history.sign_ons import SignOnFilter, find_failed_sign_ons
from gateway_contract.base.errors import CoreUnavailable, Invalid
from gateway_contract.contract import Page
from gateway_contract.core.configuration import HistoryLimits
from gateway_contract.core.sessions import EventsReply
from tests.support.clocks import NOW, MachineClock
from tests.support.histories import BOOT, History, down, failed, history, listed, rate, up
from tests.support.pools import Here

_DAY = 86_400


@pytest.fixture
def past(tmp_path: Path) -> Iterator[History]:
    with history(tmp_path / "history.sqlite") as opened:
        yield opened


def ends(past: History) -> list[tuple[int, int | None, int | None, int | None]]:
    return [(one.id, one.ended_at, one.ended_after, one.ended_before) for one in past.found()]


def test_a_session_has_its_end_and_its_counters_once(past: History) -> None:
    for _ in range(2):
        # The start of one is unknown.
        past.add(up(7, 100), down(7, 100, 160, "lost_carrier"), down(8, 170, 180), up(9, 200))
    is_up, unknown, found = past.found()
    assert (is_up.id, is_up.username, is_up.started_at) == (9, "user9", 200)
    assert (is_up.ended_at, is_up.duration_seconds, is_up.reason, is_up.bytes_in) == (None, None, None, None)
    assert (unknown.started_at, unknown.ended_at) == (170, 180)
    assert (found.started_at, found.ended_at, found.duration_seconds) == (100, 160, 60)
    assert (found.reason, found.bytes_in, found.bytes_out) == ("lost_carrier", 10, 20)
    assert (found.packets_in, found.packets_out) == (1, 2)


def test_names_that_an_older_version_has_recorded_are_found_in_any_case(past: History) -> None:
    past.add(up(7, 100, username="MÜLLER"), up(8, 100, username="Иван"), up(9, 100, username="ANN"))
    past.store.close()
    with closing(sqlite3.connect(past.path)) as older, older:
        older.execute("ALTER TABLE text DROP COLUMN folded")
    with history(past.path) as upgraded:
        assert [upgraded.ids(search=text) for text in ("müller", "иван", "ann")] == [[7], [8], [9]]


def test_a_session_whose_clock_was_set_meanwhile_is_one_session(past: History) -> None:
    past.add(up(7, 100), down(7, 4000, 4060))
    assert [(one.started_at, one.ended_at) for one in past.found()] == [(4000, 4060)]


def test_a_batch_that_fails_leaves_nothing_and_no_place(past: History) -> None:
    bad = up(8, 100, ip_address="no address")
    with pytest.raises(OSError, match="illegal IP address"):
        past.add(up(7, 100), bad)
    assert (past.found(), past.store.read_position()) == ([], None)
    past.store.add([up(7, 100)], EventPosition(BOOT, 17, 105))
    past.store.add([], EventPosition(BOOT, 17, 120))
    assert past.store.read_position() == EventPosition(BOOT, 17, 120)


def test_a_session_that_is_gone_after_a_hole_ended_in_it(past: History) -> None:
    past.add(up(7, 100), up(8, 100), at=130)
    assert past.compare(listed(8, 100), at=190) == 1
    assert ends(past) == [(8, None, None, None), (7, None, 130, 190)]
    assert (past.found()[1].duration_seconds, past.found()[1].reason) == (None, None)


def test_a_session_that_started_in_a_hole_has_the_start_that_the_core_knows(past: History) -> None:
    past.add(at=130)
    assert past.compare(listed(9, 150), at=190) == 0
    assert [(one.id, one.started_at, one.ended_at) for one in past.found()] == [(9, 150, None)]


@pytest.mark.parametrize("other", [{"username": "other"}, {"source": "accel-ppp"}])
def test_an_id_that_another_run_of_the_core_gives_again_is_another_session(
    past: History, other: dict[str, str]
) -> None:
    past.add(up(7, 100), at=130)
    assert past.compare(listed(7, 180, **other), at=190) == 1
    assert ends(past) == [(7, None, None, None), (7, None, 130, 190)]


@pytest.mark.parametrize(("before", "after", "heard"), [(3700, 100, 3800), (100, 3700, 3800)])
def test_a_session_whose_start_moved_with_the_clock_goes_on_after_a_hole(
    past: History, before: int, after: int, heard: int
) -> None:
    past.add(up(7, before), at=heard)
    assert past.compare(listed(7, after, source="accel-ppp"), at=after + 200) == 0
    assert [(one.id, one.started_at, one.ended_before) for one in past.found()] == [(7, after, None)]


def test_an_end_that_the_core_still_held_closes_the_hole(past: History) -> None:
    past.add(up(7, 100), at=130)
    past.compare(at=190)
    past.add(down(7, 100, 150, "idle_timeout"))
    assert ends(past) == [(7, 150, None, None)]


def trimmed(past: History, days: int, mebibytes: int, now: int) -> list[int]:
    while past.store.trim(HistoryLimits(days, mebibytes), now):
        pass
    return past.ids()


def test_sessions_go_days_after_their_end_and_those_that_are_up_stay(past: History) -> None:
    past.add(up(1, 100), up(2, 100), down(2, 100, 200), up(3, 100), down(3, 100, 201))
    assert trimmed(past, 1, 1024, 200 + _DAY) == [3, 2, 1]
    assert trimmed(past, 1, 1024, 201 + _DAY) == [3, 1]


def test_over_its_size_the_sessions_that_ended_first_go_and_the_file_shrinks(past: History) -> None:
    for id in range(1, 4001):
        past.add(down(id, id, id + 1, username=f"{id:>200}", delegated_prefixes=(f"2001:db8:{id:x}::/56",)))
    large = past.path.stat().st_size
    left = trimmed(past, 90, 1, 4001)
    assert left == sorted(left, reverse=True)
    assert left[0] == 4000
    assert 0 < len(left) < 3000
    past.store.close()
    assert past.path.stat().st_size < large * 3 / 4


def size(past: History) -> float:
    """Of all files of the history, in MiB."""
    return sum(path.stat().st_size for path in past.path.parent.iterdir()) / (1 << 20)


def test_the_limit_holds_while_sessions_that_stay_up_change_their_rates(past: History) -> None:
    limits, sequences = HistoryLimits(90, 16), count(1)
    past.add(*(up(id, 0) for id in range(1, 101)))
    sizes = []
    # Half an hour at 100 changes a second. The limit is looked at each minute.
    for at in range(0, 1800, 60):
        past.add(
            *(
                rate(id, 0, at + each, 1, 1, author=f"{id:>100}", sequence=next(sequences))
                for id in range(1, 101)
                for each in range(60)
            )
        )
        while past.store.trim(limits, at):
            pass
        sizes.append(size(past))
    assert 10 <= max(sizes) <= 16
    # All sessions are there, with the newest changes.
    assert len(past.ids()) == 100


def test_the_log_is_emptied_behind_the_readers_of_now_and_another_writer_that_copies_it(
    past: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []
    # Another writer copies the log; a reader reads it; nobody does.
    replies = iter([(False, True), (False, False), (True, False)])

    def empty_log(wait_ms: int) -> tuple[bool, bool]:
        waits.append(wait_ms)
        return next(replies)

    past.add(up(1, 1))
    monkeypatch.setattr(database.signal, "sigtimedwait", lambda _, seconds: waits.append(seconds))
    monkeypatch.setattr(past.store, "_connection", SimpleNamespace(log_bytes=1, empty_log=empty_log))
    monkeypatch.setattr(past.store, "_log_bytes", 0)
    past.store._bound_log()
    readers = database._READER_WAIT_MS
    assert waits == [readers, database._OTHER_WRITER_SECONDS, readers, readers]
    assert next(replies, None) is None


def test_a_store_that_was_removed_is_not_current(past: History) -> None:
    assert past.store.is_current
    past.path.unlink()
    assert not past.store.is_current


def test_a_damaged_history_is_set_aside_and_named_in_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "history.sqlite"
    path.write_bytes(b"no database" * 1000)
    with history(path) as past:
        past.add(up(7, 100))
        assert past.ids() == [7]
    assert "history.sqlite.damaged" in caplog.text
    assert (tmp_path / "history.sqlite.damaged").read_bytes().startswith(b"no database")


def test_a_history_that_is_damaged_in_its_middle_costs_one_attempt(
    past: History, caplog: pytest.LogCaptureFixture
) -> None:
    past.add(*(up(id, 100) for id in range(2000)))
    past.store.close()
    half = past.path.stat().st_size // 2
    with past.path.open("r+b") as file:
        file.seek(half)
        file.write(bytes(half))

    def told(*_: object) -> Iterator[EventsReply]:
        new = tuple(up(id, 200) for id in range(5000, 5300))
        yield EventsReply(boot_id=BOOT, oldest=1, newest=300, gap=False, events=new)
        raise CoreUnavailable("it ended")

    core = cast(
        Any,
        SimpleNamespace(
            follow_after=told, get_settings=lambda: SimpleNamespace(history=HistoryLimits(90, 64))
        ),
    )
    recorder = SessionRecorder(core, core, past.path, Here())
    with pytest.raises(sqlite3.DatabaseError, match="malformed"):
        recorder.record()
    with pytest.raises(CoreUnavailable, match="it ended"):
        recorder.record()
    assert past.ids() == [*reversed(range(5000, 5300))]
    assert "history.sqlite.damaged" in caplog.text


def test_a_service_without_room_for_a_history_starts_and_logs_why(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    prepare(tmp_path / "nowhere" / "history.sqlite")
    assert "cannot open or create the history" in caplog.text


# Failed sign-ons.


AT = 1_700_000_000


def spans(past: History) -> list[tuple[int, int, int]]:
    return [(one.first_at - AT, one.last_at - AT, one.attempts) for one in past.failures()]


def test_a_failed_sign_on_is_there_with_all_that_was_known_of_it(past: History) -> None:
    past.fail(failed(AT, outer_vlan_id=100, inner_vlan_id=7))
    (found,) = past.failures()
    assert (found.type, found.username, found.mac_address) == ("PPPoE", "ann", "02:00:00:00:00:07")
    assert (found.access_interface, found.outer_vlan_id, found.inner_vlan_id) == ("trunk0.7", 100, 7)
    assert (found.source, found.reason) == ("lab", "rejected")
    assert (found.attempts, found.first_at, found.last_at) == (1, AT, AT)


def test_attempts_that_follow_one_another_are_one_record(past: History) -> None:
    # Also where nothing but the port is known.
    nobody: dict[str, Any] = {"username": None, "mac_address": None}
    past.fail(failed(AT, **nobody), failed(AT + 10, **nobody), failed(AT + 910, **nobody))
    past.fail(failed(AT + 1000, **nobody), failed(AT + 1901, **nobody))
    assert spans(past) == [(1901, 1901, 1), (0, 1000, 4)]
    assert {(one.username, one.mac_address) for one in past.failures()} == {(None, None)}


@pytest.mark.parametrize(
    "other",
    [
        {"reason": "radius_timeout"},
        {"username": None},
        {"mac_address": "02:00:00:00:00:08"},
        {"access_interface": "trunk0.8"},
    ],
)
def test_an_attempt_that_differs_is_another_record(past: History, other: dict[str, Any]) -> None:
    past.fail(failed(AT), failed(AT + 1, **other), failed(AT + 2), failed(AT + 3, **other))
    assert spans(past) == [(1, 3, 2), (0, 2, 2)]


def test_after_a_clock_was_set_back_no_record_ends_before_it_began(past: History) -> None:
    past.fail(failed(AT + _DAY), failed(AT))
    assert spans(past) == [(_DAY, _DAY, 1), (0, 0, 1)]


def test_each_condition_finds_what_matches(past: History) -> None:
    other = {"mac_address": "02:00:00:00:00:08", "access_interface": "trunk0.8", "type": "DHCP"}
    past.fail(failed(AT), failed(AT + 10), failed(AT + 100, username="bob", reason="no_address", **other))
    conditions: list[tuple[dict[str, Any], list[str]]] = [
        *(({}, ["bob", "ann"]), ({"username": "ann"}, ["ann"]), ({"username": "an"}, [])),
        *(({"mac_address": "02:00:00:00:00:08"}, ["bob"]), ({"interface": "trunk0.7"}, ["ann"])),
        *(({"reason": "no_address"}, ["bob"]), ({"type": "dhcp"}, ["bob"]), ({"since": AT + 11}, ["bob"])),
        *(({"since": AT + 10}, ["bob", "ann"]), ({"until": AT + 100}, ["ann"])),
        ({"search": "trunk0", "reason": "rejected"}, ["ann"]),
    ]
    for wanted, found in conditions:
        assert [one.username for one in past.failures(**wanted)] == found, wanted


def test_pages_have_each_record_once(past: History) -> None:
    past.fail(*(failed(AT + number // 2, username=str(number)) for number in range(5)))
    found, cursor = [], None
    for _ in range(3):
        page = past.reader.search(find_failed_sign_ons, SignOnFilter(), Page(2, cursor))
        found += [one.username for one in page.records]
        cursor = page.next_cursor
    assert (found, cursor) == (["4", "3", "2", "1", "0"], None)
    with pytest.raises(Invalid):
        past.reader.search(find_failed_sign_ons, SignOnFilter(), Page(2, "x"))


def trimmed_sign_ons(past: History, days: int, mebibytes: int, now: int) -> list[str | None]:
    while past.store.trim(HistoryLimits(days, mebibytes), now):
        pass
    return [one.username for one in past.failures()]


def test_failed_sign_ons_go_days_after_their_last_attempt(past: History) -> None:
    past.fail(failed(AT), failed(AT + 200), failed(AT + 100, username="bob"))
    assert trimmed_sign_ons(past, 1, 1024, AT + 100 + _DAY) == ["bob", "ann"]
    assert trimmed_sign_ons(past, 1, 1024, AT + 150 + _DAY) == ["ann"]
    assert trimmed_sign_ons(past, 1, 1024, AT + 201 + _DAY) == []


def test_failed_sign_ons_take_no_more_than_their_share_and_leave_the_sessions(
    past: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "_FAILURE_BYTES", 1 << 16)
    past.add(up(7, AT), down(7, AT, AT + 1))
    past.fail(*(failed(AT + 10 + number, username=str(number)) for number in range(20)))
    assert trimmed_sign_ons(past, 90, 1, AT + 100) == ["19", "18", "17", "16"]
    assert past.ids() == [7]


def test_a_name_goes_with_the_last_that_has_it(past: History) -> None:
    def kept() -> set[str]:
        with closing(sqlite3.connect(past.path)) as connection:
            return {text for (text,) in connection.execute("SELECT text FROM text")}

    past.add(up(1, AT, username="carl"), down(1, AT, AT + 1, username="carl"))
    past.fail(failed(AT, username="carl"), failed(AT, username="dora"), failed(AT + _DAY, username="eve"))
    trimmed_sign_ons(past, 1, 1024, AT + _DAY + 1)
    assert {"carl", "dora", "eve"} & kept() == {"carl", "eve"}
    trimmed_sign_ons(past, 1, 1024, AT + _DAY + 2)
    assert kept() == {"eve", "020000000007", "trunk0.7"}


# Records from a clock that was ahead.


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

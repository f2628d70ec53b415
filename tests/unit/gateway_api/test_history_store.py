"""What the history keeps of the core's events, whatever comes twice, late or not at all."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from gateway_api.history import database
from gateway_api.history.recorder import SessionRecorder
from gateway_api.history.sessions import FeedPlace, prepare
from gateway_contract.base.errors import CoreUnavailable
from gateway_contract.core.configuration import HistoryLimits
from gateway_contract.core.sessions import EventsReply
from tests.support.histories import BOOT, History, down, history, listed, rate, up
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


def test_a_column_that_an_older_version_lacks_is_added(past: History) -> None:
    past.add(up(7, 100), down(7, 100, 160))
    past.store.close()
    with closing(sqlite3.connect(past.path)) as older, older:
        older.executescript(
            "ALTER TABLE session DROP COLUMN packets_in; ALTER TABLE session DROP COLUMN outer_vlan"
        )
    with history(past.path) as upgraded:
        upgraded.add(up(8, 170, outer_vlan_id=100), down(8, 170, 180))
        new, old = upgraded.found()
    assert (old.id, old.packets_in, old.packets_out, old.outer_vlan_id) == (7, None, 2, None)
    assert (new.id, new.packets_in, new.packets_out, new.outer_vlan_id) == (8, 1, 2, 100)


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
    assert (past.found(), past.store.read_place()) == ([], None)
    past.store.add([up(7, 100)], FeedPlace(BOOT, 17, 105))
    past.store.add([], FeedPlace(BOOT, 17, 120))
    assert past.store.read_place() == FeedPlace(BOOT, 17, 120)


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
    readers = database._READERS_MS
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

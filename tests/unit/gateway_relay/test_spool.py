"""The spool of the relay: no message is lost silently, whatever happens to the file."""

import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from gateway_relay.messages import Message, Reason, Snapshot, make_event, make_published_id, make_record
from gateway_relay.spool import EVENTS, Spool
from tests.support.workspaces import no_file_longer_than

SIZE = 128 << 10


def make_events(first: int, last: int) -> list[Message]:
    return [make_event(f"boot-{number}", "session_up", {"id": number}) for number in range(first, last + 1)]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "spool.sqlite"


@pytest.fixture
def spool(path: Path) -> Spool:
    """A spool after the first contact, without a message."""
    made = Spool(path, SIZE)
    made.add_snapshot(Reason.FIRST_CONTACT, "boot-0")
    made.remove(made.read(1))
    return made


def read_contents(spool: Spool) -> list[Message | Snapshot]:
    return [entry.content for entry in spool.read(100_000)]


def test_messages_come_back_in_their_order(spool: Spool) -> None:
    events, commit = make_events(1, 3), make_record("commits", {"author": "admin"}, "1795271513-1")
    spool.add_event(events[0])
    spool.add([commit], "commits", "a position")
    spool.add_event(events[1])
    spool.add_snapshot(Reason.GAP, "other-7")
    spool.add_event(events[2])
    assert read_contents(spool) == [events[0], commit, events[1], Snapshot(Reason.GAP, "other-7"), events[2]]
    assert [entry.content for entry in spool.read(2)] == [events[0], commit]


def test_a_removed_message_does_not_come_back(spool: Spool) -> None:
    first, second = make_events(1, 2)
    spool.add_event(first)
    spool.add_event(second)
    spool.remove(spool.read(1))
    assert read_contents(spool) == [second]


def test_another_process_continues_with_messages_and_positions(spool: Spool, path: Path) -> None:
    (event,) = make_events(1, 1)
    spool.add_event(event)
    spool.add([], "audit", "after the last record")
    again = Spool(path, SIZE)
    assert read_contents(again) == [event]
    assert again.read_position(EVENTS) == "boot-1"
    assert again.read_position("audit") == "after the last record"
    assert again.read_key() == spool.read_key()


def test_a_full_spool_drops_its_events_and_says_how_many_in_a_snapshot(
    spool: Spool, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    commit = make_record("commits", {"author": "admin"})
    spool.add([commit], "commits", "one")
    number = 0
    while not any(isinstance(content, Snapshot) for content in read_contents(spool)[1:2]):
        for event in make_events(number + 1, number + 100):
            spool.add_event(event)
        number += 100
    contents = read_contents(spool)
    snapshot = contents[1]
    assert isinstance(snapshot, Snapshot)
    # The commit stays. The snapshot stands where the events were, and what follows it is complete.
    assert contents[0] == commit
    assert snapshot == Snapshot(Reason.SPOOL_FULL, f"boot-{snapshot.dropped_events}", snapshot.dropped_events)
    assert contents[2:] == make_events(snapshot.dropped_events + 1, number)
    assert path.stat().st_size < 2 * SIZE
    assert f"dropped its {snapshot.dropped_events} session events" in caplog.text


def test_snapshots_of_a_spool_that_is_full_again_are_one_with_the_sum(path: Path) -> None:
    spool = Spool(path, SIZE)
    spool.add_snapshot(Reason.FIRST_CONTACT, "boot-0")
    for event in make_events(1, 5000):
        spool.add_event(event)
    snapshots = [content for content in read_contents(spool) if isinstance(content, Snapshot)]
    (snapshot,) = snapshots
    assert snapshot.after == f"boot-{snapshot.dropped_events}"
    assert read_contents(spool)[1:] == make_events(snapshot.dropped_events + 1, 5000)


def test_records_wait_at_the_gateway_when_the_spool_is_half_full(spool: Spool) -> None:
    assert not spool.is_half_full()
    number = 0
    while not spool.is_half_full():
        number += 1
        spool.add_event(make_events(number, number)[0])
    spool.remove(spool.read(number))
    assert not spool.is_half_full()


def damage(path: Path) -> None:
    with path.open("r+b") as file:
        file.write(b"no database" * 400)
    for suffix in ("-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)


@pytest.mark.parametrize("lose", [damage, Path.unlink])
def test_a_spool_in_place_of_a_lost_file_begins_with_a_snapshot(
    path: Path, caplog: pytest.LogCaptureFixture, lose: Callable[[Path], None]
) -> None:
    spool = Spool(path, SIZE)
    spool.add_snapshot(Reason.FIRST_CONTACT, "boot-0")
    for event in make_events(1, 100):
        spool.add_event(event)
    if lose is damage:
        # As after a restart: a running process reads its write-ahead log.
        spool = Spool(path, SIZE)
    lose(path)
    first, second = make_events(101, 102)
    spool.add_event(first)
    spool.add_event(second)
    assert read_contents(spool) == [Snapshot(Reason.FIRST_CONTACT, "boot-101"), second]
    assert "began a new spool of the relay" in caplog.text


def test_a_full_disk_is_an_error_and_changes_nothing(spool: Spool, path: Path) -> None:
    spool.add_event(make_events(1, 1)[0])
    with no_file_longer_than(path.stat().st_size // 2), pytest.raises((OSError, sqlite3.Error)):
        for number in range(2, 5000):
            spool.add_event(make_events(number, number)[0])
    read_so_far = len(read_contents(spool))
    assert spool.read_position(EVENTS) == f"boot-{read_so_far}"
    assert read_contents(spool) == make_events(1, read_so_far)


def test_a_spool_opens_after_the_disk_was_full_at_the_start(path: Path) -> None:
    path.parent.mkdir()
    with no_file_longer_than(0):
        spool = Spool(path, SIZE)
        with pytest.raises((OSError, sqlite3.Error)):
            spool.read_position(EVENTS)
    spool.add_snapshot(Reason.FIRST_CONTACT, "boot-0")
    assert read_contents(spool) == [Snapshot(Reason.FIRST_CONTACT, "boot-0")]


def test_the_owner_is_told_of_each_addition(spool: Spool) -> None:
    told = []
    spool.notify = lambda: told.append(len(spool.read(10)))
    spool.add_event(make_events(1, 1)[0])
    spool.add([], "audit", "1")
    spool.add_snapshot(Reason.GAP, "boot-2")
    assert told == [1, 1, 2]


def test_two_spools_have_different_keys(spool: Spool, tmp_path: Path) -> None:
    assert Spool(tmp_path / "other", SIZE).read_key() != spool.read_key()


def test_the_id_of_a_message_depends_on_gateway_content_and_key() -> None:
    ids = {
        make_published_id(gateway, id, key)
        for gateway in ("bng-1", "bng-2")
        for id in ("boot-1", "boot-2")
        for key in (b"one", b"two")
    }
    assert len(ids) == 8
    assert make_published_id("bng-1", "boot-1", b"one") in ids
    assert all(id.startswith("bng-") for id in ids)


def test_dropping_the_events_of_a_full_spool_needs_little_space(path: Path) -> None:
    size = 12 << 20
    spool = Spool(path, size)
    spool.add_snapshot(Reason.FIRST_CONTACT, "boot-0")
    for number in range(1, 2 * size // 4000):
        spool.add_event(Message(f"boot-{number}", "events.session_up", b"x" * 4000, f"boot-{number}"))
    (first,) = spool.read(1)
    assert isinstance(first.content, Snapshot)
    assert first.content.reason == Reason.SPOOL_FULL
    assert path.with_name("spool.sqlite-wal").stat().st_size < size / 2

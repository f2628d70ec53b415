"""The spool at its bound."""

from collections.abc import Iterator
from pathlib import Path

from gateway_relay.messages import Message, Reason, Snapshot, make_record
from gateway_relay.spool import EVENTS, Spool

_MEBIBYTE = 1 << 20


def list_events() -> Iterator[Message]:
    for number in range(1, 1 << 20):
        yield Message(f"boot-{number}", "events.session_up", b"x" * 1000, f"boot-{number}")


def fill(spool: Spool) -> int:
    """Add events until the spool has dropped them. Return their number."""
    spool.add_snapshot(Reason.FIRST_CONTACT, "boot-0")
    spool.remove(spool.read(1))
    for count, event in enumerate(list_events(), 1):
        spool.add_event(event)
        if count > 1 and len(spool.read(2)) == 1:
            return count
    raise AssertionError("never full")


def test_a_full_spool_becomes_a_snapshot_that_counts_the_dropped_events(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "spool.sqlite", _MEBIBYTE)
    count = fill(spool)
    (entry,) = spool.read(10)
    assert entry.content == Snapshot(Reason.SPOOL_FULL, f"boot-{count}", count)
    assert spool.read_position(EVENTS) == f"boot-{count}"


def test_a_full_spool_keeps_records_in_their_order(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "spool.sqlite", _MEBIBYTE)
    records = [make_record("commits", {"committed_at": at}) for at in (1, 2)]
    for record in records:
        spool.add([record], "commits", record.id)
    spool.add_snapshot(Reason.FIRST_CONTACT, "boot-0")
    for event in list_events():
        spool.add_event(event)
        entries = spool.read(10)
        if event.event != "boot-1" and len(entries) == 3:
            break
    first, second, third = (entry.content for entry in entries)
    assert [first, second] == records
    assert isinstance(third, Snapshot)
    assert third.reason == Reason.SPOOL_FULL


def test_dropping_the_events_of_a_full_spool_needs_little_space(tmp_path: Path) -> None:
    size = 16 * _MEBIBYTE
    fill(Spool(tmp_path / "spool.sqlite", size))
    assert (tmp_path / "spool.sqlite-wal").stat().st_size < size / 2

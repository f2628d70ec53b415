"""A database of the audit log: bounded, written by several processes, and read by pages."""

import os
import sqlite3
import stat
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from gateway_api.audit.log import AuditDatabase, Filter, LogPlace, _make_query
from gateway_contract.base.databases import DatabaseFile
from tests.support.audit_records import full_disk, names, rows, texts

SIZE = 1 << 20


@pytest.fixture
def trail(tmp_path: Path) -> AuditDatabase:
    return AuditDatabase(tmp_path, "known", SIZE)


def close(*trails: AuditDatabase) -> None:
    """As at the end of their processes."""
    for trail in trails:
        while trail._idle:
            trail._idle.pop().close()


def size_of(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.glob("known.sqlite*") if file.suffix != ".sqlite-shm")


def test_records_are_read_from_the_newest_to_the_oldest(trail: AuditDatabase) -> None:
    assert rows(trail) == []
    # A disk may have been full when the database was made.
    trail._path.touch()
    assert rows(trail) == []
    assert trail.read_place() is None
    trail.append(texts("one", "two"))
    trail.append(texts("three"))
    assert rows(trail) == [(1, "one"), (2, "two"), (3, "three")]
    with trail.read_newest(Filter(), 3) as (below, found):
        assert (below, [row.number for row in found]) == (3, [2, 1])


def test_the_group_may_read_and_others_nothing(trail: AuditDatabase, tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        trail.append(texts("one"))
    finally:
        os.umask(before)
    modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in tmp_path.iterdir()}
    assert modes == dict.fromkeys(("known.sqlite", "known.sqlite-shm", "known.sqlite-wal"), 0o640)


def test_the_size_is_kept_and_the_oldest_go_whose_numbers_no_other_gets(
    trail: AuditDatabase, tmp_path: Path
) -> None:
    sizes = []
    for number in range(0, 2000, 20):
        trail.append(texts(*range(number, number + 20), body="x" * 400))
        sizes.append(size_of(tmp_path))
    assert max(sizes) <= SIZE
    kept = rows(trail)
    assert kept == [(number + 1, str(number)) for number in range(2000 - len(kept), 2000)]
    assert len(kept) * 700 > SIZE // 2


def test_a_smaller_size_frees_the_disk_with_the_next_record(trail: AuditDatabase, tmp_path: Path) -> None:
    trail.append(texts(*range(1000), body="x" * 400))
    smaller = AuditDatabase(tmp_path, "known", SIZE // 4)
    smaller.append(texts(1000))
    with closing(sqlite3.connect(tmp_path / "known.sqlite")) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    assert (tmp_path / "known.sqlite").stat().st_size <= SIZE // 4
    assert names(smaller)[-1] == "1000"


def test_a_log_that_grew_beside_a_reader_is_emptied_after_another_write(
    trail: AuditDatabase, tmp_path: Path
) -> None:
    log = tmp_path / "known.sqlite-wal"
    trail.append(texts("first"))
    with closing(sqlite3.connect(tmp_path / "known.sqlite", isolation_level=None)) as other:
        other.execute("BEGIN")
        other.execute("SELECT count(*) FROM record").fetchone()
        while log.stat().st_size <= 2 * SIZE // 16:
            trail.append(texts(*range(50)))
        other.execute("COMMIT")
        other.execute("BEGIN IMMEDIATE")
        with ThreadPoolExecutor(1) as pool:
            written = pool.submit(trail.append, texts("last"))
            threading.Event().wait(0.3)
            assert not written.done()
            other.execute("ROLLBACK")
            written.result()
    assert log.stat().st_size < SIZE // 16


def test_a_record_larger_than_the_size_is_kept_until_the_next(tmp_path: Path) -> None:
    trail = AuditDatabase(tmp_path, "known", 1 << 15)
    for name in ("before", "large", "after"):
        trail.append(texts(name, path="x" * (100_000 if name == "large" else 1)))
        assert names(trail)[-1] == name


@pytest.mark.parametrize("replaced", [True, False])
def test_a_database_that_was_removed_or_replaced_is_written_to(
    trail: AuditDatabase, tmp_path: Path, replaced: bool
) -> None:
    trail.append(texts("one"))
    for file in tmp_path.glob("known.sqlite*"):
        file.unlink()
    if replaced:
        restored = AuditDatabase(tmp_path, "restored", SIZE)
        restored.append(texts("restored"))
        close(restored)
        (tmp_path / "restored.sqlite").rename(tmp_path / "known.sqlite")
    trail.append(texts("two"))
    assert names(AuditDatabase(tmp_path, "known", SIZE)) == (["restored", "two"] if replaced else ["two"])


@pytest.mark.parametrize(("synced", "level", "checkpoint"), [(True, 2, 1000), (False, 1, 0)])
def test_a_commit_is_synced_unless_it_only_counts_requests(
    tmp_path: Path, synced: bool, level: int, checkpoint: int
) -> None:
    trail = AuditDatabase(tmp_path, "known", SIZE, synced=synced)
    with trail._connection() as connection:
        # FULL, or NORMAL without a checkpoint of SQLite's own, which would be a sync.
        assert connection.read_pragma("synchronous") == level
        assert connection.read_pragma("wal_autocheckpoint") == checkpoint


def test_a_damaged_database_is_set_aside_and_a_new_one_says_so(
    trail: AuditDatabase, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    other = AuditDatabase(tmp_path, "known", SIZE)
    for each in (trail, other):
        each.append(texts("one"))
    close(trail, other)
    (tmp_path / "known.sqlite").write_bytes(b"x" * 8192)
    trail.append(texts("two"))
    # The other process saw the damage, too, and comes later.
    other._begin_anew()
    other.append(texts("three"))
    with trail.read_newest(Filter(action="audit.gap"), None) as (_, found):
        (gap,) = found
    assert "damaged: known.sqlite.damaged" in gap.record
    assert names(trail) == ["", "two", "three"]
    assert (tmp_path / "known.sqlite.damaged").read_bytes() == b"x" * 8192
    assert "began a new audit log" in caplog.text


def test_a_batch_that_fails_leaves_nothing_and_earlier_records_stay(
    trail: AuditDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError("after the insert")

    trail.append(texts("one"))
    with full_disk(tmp_path), pytest.raises(sqlite3.OperationalError, match="full"):
        trail.append(texts("two"))
    with monkeypatch.context() as patch, pytest.raises(OSError, match="after"):
        patch.setattr(DatabaseFile, "read_pragma", fail)
        trail.append(texts("three", "four"))
    trail.append(texts("five"))
    assert names(trail) == ["one", "five"]


def test_the_place_in_the_log_of_the_core_moves_with_its_records_and_for_one_process(tmp_path: Path) -> None:
    first, second = AuditDatabase(tmp_path, "known", SIZE), AuditDatabase(tmp_path, "known", SIZE)
    assert first.read_place() is second.read_place() is None
    first.append_changes(texts("one"), None, LogPlace("log", 1))
    second.append_changes(texts("one"), None, LogPlace("log", 1))
    second.append_changes(texts("two"), LogPlace("log", 1), LogPlace("log", 2))
    assert first.read_place() == LogPlace("log", 2)
    assert names(first) == ["one", "two"]


def test_a_reader_that_may_not_write_to_the_folder_reads_a_database_at_rest(
    trail: AuditDatabase, tmp_path: Path
) -> None:
    trail.append(texts("one"))
    close(trail)
    assert [file.name for file in tmp_path.iterdir()] == ["known.sqlite"]
    tmp_path.chmod(0o500)
    try:
        assert names(AuditDatabase(tmp_path, "known")) == ["one"]
    finally:
        tmp_path.chmod(0o700)


def test_a_write_whose_greenlet_is_stopped_does_not_share_its_connection(trail: AuditDatabase) -> None:
    # Its thread goes on, while the next one writes.
    with trail._connection() as held:
        held.execute("BEGIN IMMEDIATE")
        threading.Timer(0.2, held.execute, ("COMMIT",)).start()
        trail.append(texts("one"))
    assert names(trail) == ["one"]


@pytest.mark.parametrize(
    ("wanted", "index"),
    [
        *((Filter(**{name: "done"}), f"record_{name}") for name in ("user", "action", "route", "result")),
        (Filter(since=1.0), "record_at"),
        (Filter(until=1.0), "record_at"),
    ],
)
def test_a_filter_uses_an_index(trail: AuditDatabase, wanted: Filter, index: str) -> None:
    with trail._connection() as connection:
        query, values = _make_query(wanted, 100)
        plan = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {query}", values)]
    assert any(f"INDEX {index} " in step for step in plan), plan
    assert not any("TEMP B-TREE" in step for step in plan), plan

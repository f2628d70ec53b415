"""The audit log of a worker and its database: batches, counted requests, pages, bounds, and a full disk."""

import errno
import json
import os
import sqlite3
import stat
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway_api.audit.log import (
    AuditDatabase,
    AuditLog,
    BatchWriter,
    Filter,
    LogPosition,
    RequestCounter,
    _make_query,
    prepare_folder,
)
from gateway_api.audit.record import AuditEntry, RequestCount
from gateway_contract.base.databases import DatabaseFile
from gateway_contract.base.errors import AuditUnavailable, Invalid, ListTooLarge
from gateway_contract.contract import Page
from tests.support.audit import a_record, full_disk, names, rows, texts
from tests.support.pools import Here

SIZE = 1 << 20


# Batches


class SlowTrail(AuditDatabase):
    """Keeps its batches in memory, and takes its time."""

    def __init__(self) -> None:
        self.batches: list[list[str]] = []
        self.failure: OSError | None = None
        #: Whether a batch may be written.
        self.is_ready: Callable[[list[str]], bool] = lambda _: True

    def append(self, records: Sequence[str]) -> None:
        while not self.is_ready(list(records)):
            time.sleep(0.01)
        if self.failure:
            raise self.failure
        self.batches.append(list(records))


def all_at_once(number: int, act: Callable[[int], None]) -> None:
    threads = [threading.Thread(target=act, args=(each,)) for each in range(number)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_records_that_come_together_are_written_together_before_they_are_acknowledged() -> None:
    trail = SlowTrail()
    writer = BatchWriter(trail, Here())
    trail.is_ready = lambda records: sum(map(len, trail.batches)) + len(records + writer._next.records) >= 100
    missing = []

    def add(each: int) -> None:
        writer.add(str(each))
        written = [record for batch in trail.batches for record in batch]
        if str(each) not in written:
            missing.append(each)

    all_at_once(100, add)
    assert missing == []
    # The first of them, and all that came while it was written.
    assert len(trail.batches) <= 2
    assert sorted(int(record) for batch in trail.batches for record in batch) == list(range(100))


def test_every_record_of_a_batch_is_told_of_its_failure() -> None:
    trail = SlowTrail()
    trail.failure = OSError(errno.EIO, "broken")
    writer = BatchWriter(trail, Here())
    errors = []

    def add(_: int) -> None:
        try:
            writer.add("x")
        except AuditUnavailable as error:
            errors.append((error.verb, error.__cause__))

    all_at_once(20, add)
    assert errors == [("write", trail.failure)] * 20


def test_a_batch_whose_writer_is_stopped_is_not_written_twice() -> None:
    class Stopped(Here):
        def apply(self, function: Callable[..., Any], args: tuple[Any, ...]) -> Any:
            function(*args)
            raise KeyboardInterrupt

    trail = SlowTrail()
    writer = BatchWriter(trail, Stopped())
    with pytest.raises(KeyboardInterrupt):
        writer.add("one")
    writer._pool = Here()
    writer.add("two")
    assert trail.batches == [["one"], ["two"]]


# Requests that are only counted


@pytest.fixture
def log(tmp_path: Path) -> AuditLog:
    return AuditLog(tmp_path, SIZE, Here())


def records(log: AuditLog, page: Page | None = None, **wanted: Any) -> list[dict[str, Any]]:
    return [json.loads(bytes(record)) for record in log.read(Filter(**wanted), page).records]


def ids(log: AuditLog, page: Page | None = None, **wanted: Any) -> list[str]:
    return [record["request_id"] for record in records(log, page, **wanted)]


def stranger(**more: Any) -> AuditEntry:
    return a_record(**({"role": None, "user": None, "status": 401, "result": "refused", "at": 60.0} | more))


def test_requests_without_a_token_that_are_alike_are_one_record_whichever_worker_counts_them(
    tmp_path: Path,
) -> None:
    workers = [AuditLog(tmp_path, SIZE, Here()) for _ in range(2)]
    for number in range(40):
        workers[number % 2].add(stranger(at=60.0 + number, request_id=str(number), path=f"/x/{number}"))
    # The last request is not written last.
    for log in reversed(workers):
        log.close()
    (record,) = records(workers[0])
    assert (record["request_id"], record["path"], record["at"]) in [("0", "/x/0", 60.0), ("1", "/x/1", 61.0)]
    assert (record["count"], record["last_at"]) == (40, 99.0)


@pytest.mark.parametrize(
    "other",
    [
        {"address": "192.0.2.8"},
        {"method": "GET"},
        {"route": "/api/v1/qos"},
        {"user": "operator"},
        {"status": 429},
        {"at": 120.0},
    ],
)
def test_requests_that_differ_have_records_of_their_own(log: AuditLog, other: dict[str, Any]) -> None:
    log.add(stranger(request_id="one"))
    log.add(stranger(request_id="two", **other))
    log.close()
    found = [(record["request_id"], record["count"], record["last_at"]) for record in records(log)]
    assert found == [("two", 1, None), ("one", 1, None)]


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        # The clock was set back.
        ([600.0, 60.0, 600.0], [(1, 600.0), (1, 60.0), (1, 600.0)]),
        # Those of a minute may be written when it has ended.
        ([60.0, 120.0, 61.0], [(1, 120.0), (2, 60.0)]),
    ],
)
def test_requests_are_counted_beside_those_of_the_minutes_around(
    log: AuditLog, times: list[float], expected: list[tuple[int, float]]
) -> None:
    for at in times:
        log.add(stranger(at=at))
        log.close()
    assert [(record["count"], record["at"]) for record in records(log)] == expected


def test_counted_requests_are_written_at_most_every_two_seconds() -> None:
    waits: list[float] = []
    written: list[int] = []
    now = 100.0

    class Written(AuditDatabase):
        def __init__(self) -> None:
            pass

        def count(self, counted: Iterable[RequestCount]) -> None:
            written.extend(each.count for each in counted)

    def later(wait: float, act: Callable[[], None]) -> threading.Timer:
        waits.append(wait)
        return threading.Timer(600, act)

    counter = RequestCounter(Written(), Here(), SIZE, clock=lambda: now, make_timer=later)
    for _ in range(3):
        counter.add(stranger())
    counter.write()
    now += 0.5
    for _ in range(2):
        counter.add(stranger())
    assert (waits, written) == ([0, 1.5], [3])
    counter.write()
    now += 10
    counter.add(stranger())
    assert (waits, written) == ([0, 1.5, 0], [3, 2])


def test_a_flood_of_strangers_pushes_no_change_out_and_keeps_the_size(log: AuditLog, tmp_path: Path) -> None:
    log.add(a_record(request_id="the change"))
    sizes = []
    for number in range(0, 3000, 60):
        for each in range(number, number + 60):
            log.add(stranger(request_id=str(each), address=str(each)))
        log.close()
        sizes.append(sum((tmp_path / f"strangers.sqlite{end}").stat().st_size for end in ("", "-wal")))
    kept = [int(name) for name in names(AuditDatabase(tmp_path, "strangers"))]
    assert kept == list(range(3000 - len(kept), 3000))
    assert 100 < len(kept) < 2000
    assert names(AuditDatabase(tmp_path, "known")) == ["the change"]
    assert max(sizes) <= SIZE


def test_the_log_has_the_number_of_requests_that_differ_too_much_to_be_counted(
    caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    trail = AuditDatabase(tmp_path, "strangers", SIZE)
    counter = RequestCounter(trail, Here(), 10_000, make_timer=lambda wait, act: threading.Timer(600, act))
    for number in range(100):
        counter.add(stranger(request_id=str(number), address=str(number)))
    counter.write()
    kept = len(names(trail))
    assert 10 < kept < 50
    assert f"{100 - kept} requests without a valid token are not in the audit log" in caplog.text


# Reading


def test_users_and_strangers_are_kept_apart_and_read_together(log: AuditLog, tmp_path: Path) -> None:
    for number in range(4):
        role, address = ("admin", None)[number % 2], f"192.0.2.{number}"
        log.add(a_record(at=float(number), request_id=f"{number}", role=role, address=address))
    log.close()
    assert names(AuditDatabase(tmp_path, "known")) == ["0", "2"]
    assert names(AuditDatabase(tmp_path, "strangers")) == ["1", "3"]
    assert ids(log) == ["3", "2", "1", "0"]
    assert [record["id"] for record in records(log)] == ["strangers-2", "known-2", "strangers-1", "known-1"]


@settings(max_examples=30)
@given(st.lists(st.tuples(st.booleans(), st.integers(0, 5)), max_size=20), st.integers(1, 7), st.booleans())
def test_pages_have_each_record_once_whatever_comes_meanwhile_and_however_clocks_run(
    written: list[tuple[bool, int]], limit: int, refused: bool
) -> None:
    with TemporaryDirectory() as folder:
        log = AuditLog(Path(folder), SIZE, Here())
        for number, (known, at) in enumerate(written):
            result = "refused" if number % 3 else "done"
            role, address = "admin" if known else None, f"{number}"
            log.add(a_record(at=float(at), request_id=f"{number}", role=role, address=address, result=result))
        log.close()
        wanted = Filter(result="refused" if refused else None)
        whole = [bytes(record) for record in log.read(wanted, None).records]
        pages: list[bytes] = []
        cursor = None
        while True:
            page = log.read(wanted, Page(limit, cursor))
            pages += [bytes(record) for record in page.records]
            cursor = page.next_cursor
            if cursor is None:
                break
            assert len(page.records) == limit
            log.add(a_record(at=9.0, request_id="later"))
            log.add(a_record(at=9.0, request_id="later", role=None))
            log.close()
        assert pages == whole


@pytest.mark.parametrize("cursor", ["x", "%%%", "W10", "WzFd", "Wy0xLDBd", "bnVsbA", "eyJhIjoxfQ", "é"])
def test_a_cursor_that_no_page_gave_is_invalid(log: AuditLog, cursor: str) -> None:
    with pytest.raises(Invalid):
        log.read(Filter(), Page(1, cursor))


def test_too_many_records_for_one_response_require_pages(
    log: AuditLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway_api.audit.log.MAX_LIMIT", 3)
    for number in range(4):
        log.add(a_record(request_id=f"{number}"))
        if number == 2:
            assert len(ids(log)) == 3
    with pytest.raises(ListTooLarge):
        log.read(Filter(), None)
    assert len(ids(log, Page(4))) == 4


# Disks


def test_while_nothing_can_be_written_no_change_may_be_made(log: AuditLog, tmp_path: Path) -> None:
    log.add(a_record(request_id="a"))
    log.check()
    with full_disk(tmp_path):
        with pytest.raises(AuditUnavailable):
            log.add(a_record(request_id="lost"))
        for _ in range(2):
            with pytest.raises(AuditUnavailable):
                log.check()
    log.check()
    log.add(a_record(request_id="b"))
    newest, gap, oldest = records(log)
    assert (newest["request_id"], oldest["request_id"]) == ("b", "a")
    assert (gap["action"], gap["message"][:9]) == ("audit.gap", "1 records")
    assert abs(gap["at"] - time.time()) < 600


def test_strangers_on_a_full_disk_hold_up_nobody_and_the_log_has_their_number(
    log: AuditLog, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log.close()
    with full_disk(tmp_path, "strangers"):
        for _ in range(3):
            log.add(a_record(role=None))
        log.close()
        log.check()
    lost = "requests without a valid token are not in the audit log: database or disk is full"
    assert sum(int(line.split()[0]) for line in caplog.messages if lost in line) == 3


def test_a_disk_that_is_nearly_full_is_full_before_a_change_is_made(
    log: AuditLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Disk:
        f_frsize = 4096
        f_bavail = 1024

    monkeypatch.setattr(os, "statvfs", lambda _: Disk)
    log.check()
    Disk.f_bavail = 1023
    with pytest.raises(AuditUnavailable, match="are free"):
        log.check()


def test_in_a_folder_that_is_read_only_no_change_may_be_made(
    log: AuditLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(AuditUnavailable, match="Permission denied"):
        log.check()


@pytest.mark.parametrize("exists", [False, True])
def test_the_group_reads_the_folder_whatever_the_umask_is(tmp_path: Path, exists: bool) -> None:
    folder = tmp_path / "audit"
    former = os.umask(0o077)
    try:
        if exists:
            folder.mkdir()
        prepare_folder(folder)
    finally:
        os.umask(former)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o750


def test_a_folder_that_is_gone_is_no_log(tmp_path: Path) -> None:
    log = AuditLog(tmp_path / "none", SIZE, Here())
    with pytest.raises(AuditUnavailable):
        log.check()
    with pytest.raises(AuditUnavailable):
        log.read(Filter(), None)


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
    assert trail.read_position() is None
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
    with trail._lend_connection() as connection:
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
    assert first.read_position() is second.read_position() is None
    first.append_changes(texts("one"), None, LogPosition("log", 1))
    second.append_changes(texts("one"), None, LogPosition("log", 1))
    second.append_changes(texts("two"), LogPosition("log", 1), LogPosition("log", 2))
    assert first.read_position() == LogPosition("log", 2)
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
    with trail._lend_connection() as held:
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
    with trail._lend_connection() as connection:
        query, values = _make_query(wanted, 100)
        plan = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {query}", values)]
    assert any(f"INDEX {index} " in step for step in plan), plan
    assert not any("TEMP B-TREE" in step for step in plan), plan

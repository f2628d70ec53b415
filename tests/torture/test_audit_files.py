"""The audit log's databases: written by many, bounded, read by pages, whatever disks and SIGKILL do."""

import errno
import json
import os
import random
import shutil
import signal
import sqlite3
import stat
import string
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway_api.audit.log import AuditLog, BatchWriter, Counter
from gateway_api.audit.record import MOST, AuditEntry, Counted, masked
from gateway_api.audit.trail import Filter, LogPlace, Trail, _query
from gateway_api.base.errors import AuditUnavailable, Invalid, ListTooLarge
from gateway_api.base.logs import MASK, masked_text
from gateway_api.wire.configuration import masked_path
from gateway_api.wire.contract import Page
from tests.support.documents import SECRET_HASH
from tests.support.pools import Here
from tests.support.stack import PATIENCE, wait_for


def a_record(**more: Any) -> AuditEntry:
    fields = {
        "at": 1000.0,
        "user": "admin",
        "role": "admin",
        "address": "192.0.2.7",
        "request_id": "req",
        "method": "PUT",
        "action": "subscribers.change_rate",
        "route": "/api/v1/subscribers/{id}/rate",
        "path": "/api/v1/subscribers/7/rate",
        "status": 200,
        "result": "done",
        "message": None,
    }
    return AuditEntry(**(fields | more))  # type: ignore[arg-type]


SIZE = 1 << 20


@pytest.fixture
def trail(tmp_path: Path) -> Trail:
    return Trail(tmp_path, "known", SIZE)


def texts(*request_ids: object, **more: Any) -> list[str]:
    return [a_record(request_id=str(id), **more).text() for id in request_ids]


def rows(trail: Trail) -> list[tuple[int, str]]:
    """Numbers and request ids, the oldest first."""
    with trail.newest_first(Filter(), None) as (_, found):
        return [(row.number, json.loads(row.record)["request_id"]) for row in found][::-1]


def names(trail: Trail) -> list[str]:
    return [name for _, name in rows(trail)]


def close(trail: Trail) -> None:
    """As at the end of a process."""
    for connection in trail._idle:
        connection.close()
    trail._idle.clear()


def size_of(folder: Path, name: str = "known") -> int:
    return sum(file.stat().st_size for file in folder.glob(f"{name}.sqlite*") if file.suffix != ".sqlite-shm")


# Databases


def test_what_was_appended_is_read_from_the_end(trail: Trail) -> None:
    trail.append(texts("one", "two"))
    trail.append(texts("three"))
    assert rows(trail) == [(1, "one"), (2, "two"), (3, "three")]


def test_nothing_is_read_where_nothing_is(trail: Trail) -> None:
    assert rows(trail) == []


def test_the_group_may_read_and_others_nothing(trail: Trail, tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        trail.append(texts("one"))
    finally:
        os.umask(before)
    modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in tmp_path.iterdir()}
    assert modes == dict.fromkeys(("known.sqlite", "known.sqlite-shm", "known.sqlite-wal"), 0o640)


def test_the_size_is_kept_and_the_oldest_go(trail: Trail, tmp_path: Path) -> None:
    sizes = []
    for number in range(0, 3000, 10):
        trail.append(texts(*range(number, number + 10), body="x" * 400))
        sizes.append(size_of(tmp_path))
    assert max(sizes) <= SIZE
    kept = [int(name) for name in names(trail)]
    assert kept == list(range(3000 - len(kept), 3000))
    assert len(kept) * 700 > SIZE // 2


def test_a_smaller_size_frees_the_disk_with_the_next_record(trail: Trail, tmp_path: Path) -> None:
    trail.append(texts(*range(1000), body="x" * 400))
    smaller = Trail(tmp_path, "known", SIZE // 4)
    smaller.append(texts(1000))
    with closing(sqlite3.connect(tmp_path / "known.sqlite")) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    assert (tmp_path / "known.sqlite").stat().st_size <= SIZE // 4


def test_a_size_that_became_smaller_is_kept_too(trail: Trail, tmp_path: Path) -> None:
    trail.append(texts(*range(1000), body="x" * 400))
    smaller = Trail(tmp_path, "known", SIZE // 4)
    for number in range(1000, 1300):
        smaller.append(texts(number))
    assert size_of(tmp_path) <= SIZE // 4 + SIZE // 8
    assert names(smaller)[-1] == "1299"


def test_a_log_that_grew_beside_a_reader_is_emptied_after_another_write(trail: Trail, tmp_path: Path) -> None:
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
            time.sleep(0.5)
            assert not written.done()
            other.execute("ROLLBACK")
            written.result()
    assert log.stat().st_size < SIZE // 16


def test_a_number_stays_what_it_is_when_records_go(tmp_path: Path) -> None:
    trail = Trail(tmp_path, "known", 1 << 17)
    seen: dict[str, int] = {}
    for number in range(30):
        trail.append(texts(number, body="x" * 4000))
        for held, name in rows(trail):
            assert seen.setdefault(name, held) == held
    assert len(names(trail)) < 30
    assert list(seen.values()) == list(range(1, 31))


def test_a_record_larger_than_the_size_is_kept_until_the_next(tmp_path: Path) -> None:
    trail = Trail(tmp_path, "known", 1 << 15)
    for name in ("before", "large", "after"):
        trail.append(texts(name, path="x" * (100_000 if name == "large" else 1)))
        assert names(trail)[-1] == name


@pytest.mark.parametrize("replaced", [True, False])
def test_a_database_that_was_removed_or_replaced_is_written_to(tmp_path: Path, replaced: bool) -> None:
    trail, other = Trail(tmp_path, "known", SIZE), tmp_path / "other"
    other.mkdir()
    trail.append(texts("one"))
    for file in tmp_path.glob("known.sqlite*"):
        file.unlink()
    if replaced:
        source = Trail(other, "known", SIZE)
        source.append(texts("restored"))
        close(source)
        (other / "known.sqlite").rename(tmp_path / "known.sqlite")
    trail.append(texts("two"))
    assert names(Trail(tmp_path, "known", SIZE)) == (["restored", "two"] if replaced else ["two"])


def test_a_damaged_database_is_set_aside_and_a_new_one_says_so(
    trail: Trail, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    other = Trail(tmp_path, "known", SIZE)
    for each in (trail, other):
        each.append(texts("one"))
    for each in (trail, other):
        close(each)
    (tmp_path / "known.sqlite").write_bytes(b"x" * 8192)
    trail.append(texts("two"))
    other.append(texts("three"))
    with trail.newest_first(Filter(action="audit.gap"), None) as (_, found):
        (gap,) = found
    assert "damaged: known.sqlite.damaged" in gap.record
    assert names(trail) == ["", "two", "three"]
    assert (tmp_path / "known.sqlite.damaged").read_bytes() == b"x" * 8192
    assert "began a new audit log" in caplog.text


@contextmanager
def full(folder: Path, name: str = "known") -> Iterator[None]:
    """Has whatever is written in the block meet a full disk."""
    path = folder / f"{name}.sqlite"
    with pytest.MonkeyPatch.context() as patch:
        insert = Trail._insert

        def inserted(trail: Trail, connection: sqlite3.Connection, records: Sequence[str]) -> None:
            if trail._path == path:
                connection.execute("PRAGMA max_page_count = 1")
                records = [record + " " * 100_000 for record in records]
            insert(trail, connection, records)

        patch.setattr(Trail, "_insert", inserted)
        yield


def test_a_full_disk_is_an_error_and_what_was_there_stays(trail: Trail, tmp_path: Path) -> None:
    trail.append(texts("one"))
    with full(tmp_path), pytest.raises(sqlite3.OperationalError, match="full"):
        trail.append(texts("two"))
    trail.append(texts("three"))
    assert names(trail) == ["one", "three"]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own, of 1 MiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)]
    if not shutil.which("mount") or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("nothing can be mounted here")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def test_on_a_disk_that_fills_up_everything_that_was_acknowledged_is_read(small_disk: Path) -> None:
    written = 0
    with pytest.raises(sqlite3.OperationalError):
        while True:
            Trail(small_disk, "known", 64 << 20).append(texts(written, body="x" * 3000))
            written += 1
    assert written > 20
    # By a process that is started on the full disk, too.
    for trail in (Trail(small_disk, "known", 64 << 20), Trail(small_disk, "known")):
        assert names(trail) == [str(number) for number in range(written)]


def test_a_reader_without_rights_to_the_folder_reads_what_is_at_rest(trail: Trail, tmp_path: Path) -> None:
    trail.append(texts("one"))
    close(trail)
    assert [file.name for file in tmp_path.iterdir()] == ["known.sqlite"]
    program = f"""
import os
from pathlib import Path
from gateway_api.audit.trail import Filter, Trail
os.setgid(65534)
os.setuid(65534)
with Trail(Path({str(tmp_path)!r}), "known").newest_first(Filter(), None) as (_, found):
    print([row.number for row in found])
"""
    (tmp_path / "known.sqlite").chmod(0o644)
    own = ("pytest-", "popen-", "test_a_reader")
    for folder in (tmp_path, *tmp_path.parents):
        if folder.stat().st_uid == os.getuid() and folder.name.startswith(own):
            folder.chmod(0o755)
    for _ in range(2):
        assert subprocess.check_output([sys.executable, "-c", program]) == b"[1]\n"
        # Now with the files that SQLite adds.
        list(rows(trail))


WRITER = """
import sys
from pathlib import Path
from gateway_api.audit.record import gap
from gateway_api.audit.trail import Trail
trail = Trail(Path(sys.argv[1]), "known", 64 << 20)
number = 0
while True:
    ids = (f"{sys.argv[2]} {n}" for n in (number, number + 1))
    trail.append([gap(1.0, "x" * 300, request_id=id).text() for id in ids])
    sys.stdout.write(f"{number + 1}\\n")
    sys.stdout.flush()
    number += 2
"""


def test_killed_writers_lose_and_double_nothing_that_they_were_told_is_there(tmp_path: Path) -> None:
    acknowledged: dict[str, int] = {}
    choice = random.Random(7)
    for round_ in range(10):
        names = [f"{round_}-{writer}" for writer in range(3)]
        writers = [
            subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path), name], stdout=subprocess.PIPE)
            for name in names
        ]
        for writer in writers:
            assert writer.stdout
            writer.stdout.readline()
        time.sleep(choice.uniform(0, 0.1))
        for name, writer in zip(names, writers, strict=True):
            os.kill(writer.pid, signal.SIGKILL)
            told = writer.communicate()[0].split(b"\n")[:-1]
            acknowledged[name] = int(told[-1]) if told else 1
    kept: dict[str, list[int]] = {}
    for _, id in rows(Trail(tmp_path, "known", 64 << 20)):
        name, number = id.split()
        kept.setdefault(name, []).append(int(number))
    for name, last in acknowledged.items():
        # One more batch may be there, of which the writer wasn't told.
        assert kept[name] == list(range(len(kept[name])))
        assert last + 1 <= len(kept[name]) <= last + 3


SYSCALLS = "fdatasync,fsync,pwrite64,write,ftruncate,openat,fcntl,unlink"


@pytest.mark.parametrize("is_full", [False, True])
@pytest.mark.skipif(not shutil.which("strace"), reason="strace is missing")
def test_a_writer_that_is_killed_at_any_call_leaves_all_or_nothing_of_a_batch(
    tmp_path: Path, is_full: bool
) -> None:
    body = "x" * 3000 if is_full else None
    program = f"""
import sys
from pathlib import Path
from gateway_api.audit.trail import Trail
Trail(Path(sys.argv[1]), "known", {SIZE}).append(sys.argv[2:])
print("told")
"""
    Trail(tmp_path, "known", SIZE).append(texts("before"))
    while is_full and names(Trail(tmp_path, "known", SIZE))[0] == "before":
        Trail(tmp_path, "known", SIZE).append(texts(*range(10), body=body))
    expected = names(Trail(tmp_path, "known", SIZE))
    killed = 0
    for call in SYSCALLS.split(","):
        for when in range(1, 60, 6):
            command = ["strace", "-f", "-o", os.devnull, "-P", str(tmp_path / "known.sqlite-wal")]
            command += ["-P", str(tmp_path / "known.sqlite"), "-P", str(tmp_path / "known.sqlite-shm")]
            command += ["-e", f"trace={call}", "-e", f"inject={call}:signal=KILL:when={when}"]
            pair = [f"{call} {when} one", f"{call} {when} two"]
            command += [sys.executable, "-c", program, str(tmp_path), *texts(*pair, body=body)]
            ended = subprocess.run(command, capture_output=True, check=False)
            killed += ended.returncode != 0
            found = names(Trail(tmp_path, "known", SIZE))
            if ended.stdout or found[-1] == pair[1]:
                expected += pair
            # Only the oldest make room.
            assert found == expected[-len(found) :], (call, when)
            assert len(found) > 20 if is_full else len(found) == len(expected)
            assert size_of(tmp_path) <= SIZE
            if ended.returncode == 0:
                break
    assert killed >= 10


def test_the_place_in_the_core_s_log_moves_with_its_records_and_for_one_process(tmp_path: Path) -> None:
    first, second = Trail(tmp_path, "known", SIZE), Trail(tmp_path, "known", SIZE)
    assert first.place() is second.place() is None
    first.append_changes(texts("one"), None, LogPlace("log", 1))
    second.append_changes(texts("one"), None, LogPlace("log", 1))
    second.append_changes(texts("two"), LogPlace("log", 1), LogPlace("log", 2))
    assert first.place() == LogPlace("log", 2)
    assert names(first) == ["one", "two"]


# Batches


class Slow(Trail):
    """A trail that takes its time."""

    def __init__(self, until: Callable[[], bool] = lambda: True) -> None:
        self.batches: list[list[str]] = []
        self.failure: OSError | None = None
        self._until = until

    def append(self, records: Sequence[str]) -> None:
        time.sleep(0.05)
        wait_for("the other records", self._until)
        if self.failure:
            raise self.failure
        self.batches.append(list(records))


def all_at_once(number: int, act: Callable[[int], None]) -> None:
    threads = [threading.Thread(target=act, args=(each,)) for each in range(number)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_records_that_come_together_are_written_together() -> None:
    come: list[int] = []
    slow = Slow(until=lambda: len(come) == 100)
    writer = BatchWriter(slow, Here())

    def add(each: int) -> None:
        come.append(each)
        writer.add(str(each))

    all_at_once(100, add)
    assert sorted(int(record) for batch in slow.batches for record in batch) == list(range(100))
    # What came while the first one was written, and what came a moment later.
    assert len(slow.batches) <= 20


def test_a_record_is_there_when_it_was_added() -> None:
    slow = Slow()
    writer = BatchWriter(slow, Here())
    missing = []

    def add(each: int) -> None:
        writer.add(str(each))
        if not any(str(each) in batch for batch in slow.batches):
            missing.append(each)

    all_at_once(50, add)
    assert missing == []


def test_all_of_a_batch_hear_of_its_failure() -> None:
    slow = Slow()
    slow.failure = OSError(errno.EIO, "broken")
    writer = BatchWriter(slow, Here())
    heard = []

    def add(each: int) -> None:
        try:
            writer.add("x")
        except AuditUnavailable as error:
            heard.append((error.verb, error.__cause__))

    all_at_once(20, add)
    assert heard == [("write", slow.failure)] * 20


def test_a_batch_whose_writer_is_stopped_is_not_written_twice() -> None:
    class Stopped(Here):
        def apply(self, function: Callable[..., Any], args: tuple[Any, ...]) -> Any:
            function(*args)
            raise KeyboardInterrupt

    slow = Slow()
    writer = BatchWriter(slow, Stopped())
    with pytest.raises(KeyboardInterrupt):
        writer.add("one")
    writer._pool = Here()
    writer.add("two")
    assert slow.batches == [["one"], ["two"]]


def test_a_write_whose_greenlet_is_stopped_does_not_share_its_connection(trail: Trail) -> None:
    # Its thread goes on, while the next one writes.
    with trail._connection() as held:
        held.execute("BEGIN IMMEDIATE")
        threading.Timer(0.2, held.execute, ("COMMIT",)).start()
        trail.append(texts("one"))
    assert names(trail) == ["one"]


# The log of a worker


@pytest.fixture
def log(tmp_path: Path) -> AuditLog:
    return AuditLog(tmp_path, 1 << 20, Here())


def ids(log: AuditLog, page: Page | None = None, **wanted: Any) -> list[str]:
    """The request ids of what fits."""
    records = log.read(Filter(**wanted), page).records
    return [json.loads(bytes(record))["request_id"] for record in records]


def test_who_is_known_and_who_is_not_are_kept_apart_and_read_together(log: AuditLog, tmp_path: Path) -> None:
    for number in range(4):
        role, address = ("admin", None)[number % 2], f"192.0.2.{number}"
        log.add(a_record(at=float(number), request_id=f"{number}", role=role, address=address))
    log.close()
    assert names(Trail(tmp_path, "known")) == ["0", "2"]
    assert names(Trail(tmp_path, "strangers")) == ["1", "3"]
    assert ids(log) == ["3", "2", "1", "0"]


def stranger(**more: Any) -> AuditEntry:
    return a_record(**({"role": None, "user": None, "status": 401, "result": "refused", "at": 60.0} | more))


def counted(log: AuditLog) -> list[tuple[str, int, float, float | None]]:
    """Request id, count, first and last time of all records, the newest first."""
    found = [json.loads(bytes(record)) for record in log.read(Filter(), None).records]
    return [(record["request_id"], record["count"], record["at"], record["last_at"]) for record in found]


def test_requests_without_a_token_that_are_alike_are_one_record_whichever_worker_counts_them(
    tmp_path: Path,
) -> None:
    workers = [AuditLog(tmp_path, SIZE, Here()) for _ in range(2)]
    for number in range(40):
        workers[number % 2].add(stranger(at=60.0 + number, request_id=str(number), path=f"/x/{number}"))
    for log in workers:
        log.close()
    ((first, count, at, last_at),) = counted(workers[0])
    assert (count, last_at) == (40, 99.0)
    assert (first, at) in [("0", 60.0), ("1", 61.0)]


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
    assert [(name, count) for name, count, *_ in counted(log)] == [("two", 1), ("one", 1)]


def test_what_was_counted_before_the_clock_was_set_back_is_counted_again(log: AuditLog) -> None:
    for at in (600.0, 60.0, 600.0):
        log.add(stranger(at=at))
        log.close()
    assert [(count, at) for _, count, at, _ in counted(log)] == [(1, 600.0), (1, 60.0), (1, 600.0)]


def test_what_is_counted_is_written_at_most_every_two_seconds() -> None:
    class Steps:
        now, due = 0.0, -1.0

    class Timer(threading.Timer):
        """Rings when the test says so."""

        def start(self) -> None:
            Steps.due = Steps.now + self.interval

    class Written(Trail):
        def __init__(self) -> None:
            self.times: list[float] = []
            self.number = 0

        def count(self, counted: Iterable[Counted]) -> None:
            self.times.append(Steps.now)
            self.number += sum(each.count for each in counted)

    trail = Written()
    counter = Counter(trail, Here(), SIZE, clock=lambda: Steps.now, later=Timer)
    for _ in range(1000):
        counter.add(stranger(request_id=str(Steps.now)))
        if Steps.now >= Steps.due:
            counter.write()
        Steps.now += 0.01
    counter.write()
    assert trail.number == 1000
    assert trail.times[0] == 0
    assert len(trail.times) <= 7


def test_a_flood_of_strangers_pushes_no_change_out_and_keeps_the_size(tmp_path: Path) -> None:
    log = AuditLog(tmp_path, SIZE, Here())
    log.add(a_record(request_id="the change"))
    sizes = []
    for number in range(0, 8000, 40):
        for each in range(number, number + 40):
            log.add(stranger(request_id=str(each), address=str(each)))
        log.close()
        sizes.append(size_of(tmp_path, "strangers"))
    kept = [int(name) for name in names(Trail(tmp_path, "strangers"))]
    assert kept == list(range(8000 - len(kept), 8000))
    assert len(kept) < 4000
    assert names(Trail(tmp_path, "known")) == ["the change"]
    assert max(sizes) <= SIZE


def test_more_that_differ_than_may_wait_are_left_out_and_the_log_has_their_number(
    caplog: pytest.LogCaptureFixture, trail: Trail
) -> None:
    counter = Counter(trail, Here(), 10_000, later=lambda wait, act: threading.Timer(PATIENCE, act))
    for number in range(100):
        counter.add(stranger(request_id=str(number), address=str(number)))
    counter.write()
    kept = len(rows(trail))
    assert 10 < kept < 50
    assert f"{100 - kept} requests without a valid token are not in the audit log" in caplog.text


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        ({}, ["d", "c", "b", "a"]),
        ({"user": "admin"}, ["d", "a"]),
        ({"user": "nobody"}, []),
        ({"action": "login.log_in"}, ["c"]),
        ({"route": "/x/{id}"}, ["b"]),
        ({"result": "refused"}, ["c", "b"]),
        ({"since": 2.0}, ["d", "c", "b"]),
        ({"until": 2.0}, ["a"]),
        ({"since": 2.0, "until": 4.0, "result": "refused", "user": "operator"}, ["b"]),
    ],
)
def test_all_filters_must_hold(log: AuditLog, wanted: dict[str, Any], expected: list[str]) -> None:
    log.add(a_record(at=1.0, request_id="a"))
    log.add(a_record(at=2.0, request_id="b", user="operator", route="/x/{id}", result="refused"))
    log.add(a_record(at=3.0, request_id="c", user=None, role=None, action="login.log_in", result="refused"))
    log.add(a_record(at=4.0, request_id="d"))
    log.close()
    assert ids(log, **wanted) == expected


@settings(max_examples=30)
@given(st.lists(st.tuples(st.booleans(), st.integers(0, 5)), max_size=20), st.integers(1, 7), st.booleans())
def test_pages_have_each_record_once_whatever_comes_meanwhile_and_however_clocks_run(
    written: list[tuple[bool, int]], limit: int, refused: bool
) -> None:
    with TemporaryDirectory() as folder:
        log = AuditLog(Path(folder), 1 << 20, Here())
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


def test_every_record_has_an_id_of_its_own_that_stays(log: AuditLog) -> None:
    for number in range(50):
        role, address = ("admin", None)[number % 2], f"192.0.2.{number}"
        log.add(a_record(request_id=f"{number}", role=role, address=address))
    log.close()
    first = {
        json.loads(bytes(r))["request_id"]: json.loads(bytes(r))["id"]
        for r in log.read(Filter(), None).records
    }
    log.add(a_record(request_id="later"))
    later = {
        json.loads(bytes(r))["request_id"]: json.loads(bytes(r))["id"]
        for r in log.read(Filter(), None).records
    }
    assert len(set(later.values())) == 51
    assert first.items() <= later.items()


def test_a_page_goes_on_where_rotation_has_taken_the_rest(tmp_path: Path) -> None:
    log = AuditLog(tmp_path, 1 << 18, Here())
    for number in range(60):
        log.add(a_record(request_id=f"{number}", body="x" * 1000))
    page = log.read(Filter(), Page(10))
    for number in range(40):
        log.add(a_record(request_id=f"later {number}", body="x" * 1000))
    after = ids(log, Page(1000, page.next_cursor))
    assert after == [f"{number}" for number in range(49, 49 - len(after), -1)]
    assert 0 < len(after) < 50


@pytest.mark.parametrize(
    "cursor", ["x", "%%%", "W10", "WzFd", "Wy0xLDBd", "bnVsbA", "eyJhIjoxfQ", "é", "WzEsMSwxXQ"]
)
def test_a_cursor_that_no_page_gave_is_invalid(log: AuditLog, cursor: str) -> None:
    with pytest.raises(Invalid):
        log.read(Filter(), Page(1, cursor))


def test_too_many_for_one_answer_want_pages(log: AuditLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway_api.audit.log.MAX_LIMIT", 3)
    for number in range(4):
        log.add(a_record(request_id=f"{number}"))
    with pytest.raises(ListTooLarge):
        log.read(Filter(), None)
    assert len(ids(log, Page(4))) == 4


@pytest.mark.parametrize(
    ("wanted", "index"),
    [
        *((Filter(**{name: "done"}), f"record_{name}") for name in ("user", "action", "route", "result")),
        (Filter(since=1.0), "record_at"),
        (Filter(until=1.0), "record_at"),
    ],
)
def test_a_filter_is_answered_from_an_index(trail: Trail, wanted: Filter, index: str) -> None:
    with trail._connection() as connection:
        query, values = _query(wanted, 100)
        plan = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {query}", values)]
    assert any(f"INDEX {index} " in step for step in plan), plan
    assert not any("TEMP B-TREE" in step for step in plan), plan


def test_while_nothing_can_be_written_a_change_is_not_to_be_made(log: AuditLog, tmp_path: Path) -> None:
    log.add(a_record(request_id="a"))
    log.check()
    with full(tmp_path):
        with pytest.raises(AuditUnavailable):
            log.add(a_record(request_id="lost"))
        for _ in range(2):
            with pytest.raises(AuditUnavailable):
                log.check()
    log.check()
    log.add(a_record(request_id="b"))
    newest, gap, oldest = (json.loads(bytes(record)) for record in log.read(Filter(), None).records)
    assert (newest["request_id"], oldest["request_id"]) == ("b", "a")
    assert (gap["action"], gap["message"][:9]) == ("audit.gap", "1 records")


def test_strangers_that_cannot_be_recorded_hold_up_nobody_and_the_log_has_their_number(
    log: AuditLog, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log.close()
    with full(tmp_path, "strangers"):
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


def test_a_folder_that_is_gone_is_no_log(tmp_path: Path) -> None:
    log = AuditLog(tmp_path / "none", 1 << 20, Here())
    with pytest.raises(AuditUnavailable):
        log.check()
    with pytest.raises(AuditUnavailable):
        log.read(Filter(), None)


# Records


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_a_record_is_one_line_of_ascii_whatever_is_in_it(text: str) -> None:
    line = a_record(path=text, message=text, body={text: [text]}).text()
    assert all(32 <= ord(character) < 127 for character in line)
    assert json.loads(line)["body"] == {text: [text]}


@pytest.mark.parametrize("name", ["body", "before", "after"])
def test_what_is_too_long_is_cut_and_says_so(name: str) -> None:
    kept = json.loads(a_record(**{name: {"events": ["\u2028" * 5000]}}).text())[name]
    assert kept["cut"] is True
    assert kept["characters"] > 30_000
    assert kept["beginning"].startswith('{"events":["')
    assert len(json.dumps(kept)) < 2 * MOST


# Secrets

words = st.text(string.ascii_letters + string.digits, min_size=12, max_size=24)
SECRET_PATHS = [
    *(
        "radius.secret",
        "api.users.alice.password_hash",
        'bgp.neighbors."10.0.0.1".password',
        "subscribers.local.0.password",
    ),
    *('radius."secret"', "RADIUS.SECRET", "radius.secrets", "radius.secret.0", "api.token_lifetime"),
    *(
        "radius secret",
        "radius.secret ",
        "",
        "radius..secret",
        "radius.secret=",
        '"radius.secret',
        "radius/secret",
    ),
]


def places(secret: str) -> Iterator[Any]:
    """Bodies with a secret where one might be."""
    yield {"username": "admin", "password": secret}
    yield {"url": "http://x/", "events": [], "secret": secret}
    yield {"url": "http://x/", "events": [], "secret": {"a": [secret]}}
    for path in SECRET_PATHS:
        for value in (secret, [secret], {"a": secret}, json.dumps({"a": secret})):
            yield {"path": path, "value": value}
            yield {"operations": [{"op": "set", "path": path, "value": value}]}
    for value in (
        {"secret": secret},
        [{"username": "a", "password_hash": secret}],
        {"a": {"api-token": secret}},
    ):
        yield {"path": "radius", "value": value}
        yield {"path": "radius", "value": json.dumps(value)}
        yield {"path": "radius", "value": f" {json.dumps(value)}"}
        yield {"path": "radius", "value": json.dumps(value)[:-1]}
    yield {"path": f"radius.secret {secret}"}
    yield {"path": f"radius.secret.{secret}"}
    yield {"path": f"radius.secret={secret}", "value": 1}
    yield {"path": {"secret": secret}, "value": secret}


@given(words)
def test_a_secret_is_nowhere_in_what_is_kept(secret: str) -> None:
    for body in places(secret):
        for refused in (False, True):
            assert secret not in json.dumps(masked(body, refused=refused)), body


@given(words)
def test_a_value_that_was_refused_is_not_kept(value: str) -> None:
    kept = masked({"path": "qos.default_down", "value": value}, refused=True)
    assert kept == {"path": "qos.default_down", "value": MASK}


def test_a_value_that_was_taken_is_kept() -> None:
    body = {"path": "qos.default_down", "value": "200mbit"}
    assert masked(body) == body


@pytest.mark.parametrize(
    "text",
    [
        SECRET_HASH,
        "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJhZG1pbiJ9.c2lnbmF0dXJl",
    ],
)
def test_what_looks_like_a_secret_is_masked_wherever_it_is(text: str) -> None:
    assert masked_text(f"see {text} there") == f"see {MASK} there"
    assert masked({"comment": text, "value": [text]}) == {"comment": MASK, "value": [MASK]}


def test_the_query_of_a_url_is_masked() -> None:
    assert (
        masked_text("https://hooks.example.net/a?token=abc123&b=1#c")
        == f"https://hooks.example.net/a?{MASK}#c"
    )


@pytest.mark.parametrize("text", ["what? a=b", "is it so?", "x?y"])
def test_a_question_is_no_query(text: str) -> None:
    assert masked_text(text) == text


@pytest.mark.parametrize(
    ("path", "shown"),
    [
        ("qos.default_down", "qos.default_down"),
        ("radius.secret", "radius.secret"),
        ('api.users."al ice".password_hash', 'api.users."al ice".password_hash'),
        ("radius.secret.hunter2", f"radius.secret.{MASK}"),
        ("radius.secret hunter2", MASK),
    ],
)
def test_a_path_is_shown_up_to_the_name_of_a_secret(path: str, shown: str) -> None:
    assert masked_path(path) == shown

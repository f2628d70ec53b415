"""The audit log's files: appended to by many, rotated, read from the end, whatever disks and SIGKILL do."""

import errno
import fcntl
import json
import os
import random
import signal
import stat
import string
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway_api.audit.log import AuditLog
from gateway_api.audit.masking import masked, masked_path
from gateway_api.audit.places import value_at
from gateway_api.audit.reader import Wanted
from gateway_api.audit.record import MOST, Record, line_of
from gateway_api.audit.trail import Trail
from gateway_api.base.errors import AnswerTooLarge, AuditUnavailable, Invalid
from gateway_api.base.redact import MASK, masked_text
from gateway_api.base.segments import Segments
from gateway_api.daemon.commands import Page
from tests.support.documents import SECRET_HASH

ENDLESS = 1 << 62


class Here:
    """A pool that runs what it is given at once."""

    def apply(self, function: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        return function(*args)


def a_record(**more: Any) -> Record:
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
    return Record(**(fields | more))  # type: ignore[arg-type]


@pytest.fixture
def segments(tmp_path: Path) -> Segments:
    return Segments(tmp_path, "known", size=1000, kept=3)


def lines(segments: Segments) -> list[bytes]:
    """The oldest first."""
    return [line for _, line in segments.newest_first(ENDLESS)][::-1]


def files(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.jsonl"))


# Files


def test_what_was_appended_is_read_from_the_end(segments: Segments) -> None:
    segments.append(b"one\ntwo\n")
    segments.append(b"three\n")
    assert list(segments.newest_first(ENDLESS)) == [(8, b"three"), (4, b"two"), (0, b"one")]


def test_nothing_is_read_where_nothing_is(segments: Segments) -> None:
    assert (lines(segments), segments.end) == ([], 0)


def test_the_group_may_read_and_others_nothing(segments: Segments, tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        segments.append(b"one\n")
    finally:
        os.umask(before)
    (file,) = files(tmp_path)
    assert stat.S_IMODE(file.stat().st_mode) == 0o640


def test_a_file_that_is_full_is_followed_by_one_named_after_its_first_byte(
    segments: Segments, tmp_path: Path
) -> None:
    for _ in range(3):
        segments.append(b"x" * 399 + b"\n")
    assert [file.name for file in files(tmp_path)] == [f"known-{first:020d}.jsonl" for first in (0, 800)]


def test_so_many_files_are_kept_and_the_oldest_goes(segments: Segments, tmp_path: Path) -> None:
    for number in range(20):
        segments.append(b"%0399d\n" % number)
    assert len(files(tmp_path)) == 3
    assert [int(line) for line in lines(segments)] == list(range(14, 20))


def test_a_position_stays_what_it_is_when_files_come_and_go(segments: Segments) -> None:
    seen: dict[bytes, int] = {}
    for number in range(30):
        segments.append(b"%0199d\n" % number)
        for position, line in segments.newest_first(ENDLESS):
            assert seen.setdefault(line, position) == position
    assert sorted(seen.values()) == [seen[line] for line in sorted(seen)]


def test_a_line_longer_than_a_file_has_one_of_its_own(segments: Segments) -> None:
    segments.append(b"before\n")
    segments.append(b"x" * 5000 + b"\n")
    segments.append(b"after\n")
    assert lines(segments) == [b"before", b"x" * 5000, b"after"]


def test_a_line_without_its_end_is_not_read(segments: Segments, tmp_path: Path) -> None:
    segments.append(b"one\n")
    with files(tmp_path)[0].open("ab") as file:
        file.write(b"half a l")
    assert lines(segments) == [b"one"]


def test_a_line_is_not_glued_to_one_without_its_end(segments: Segments, tmp_path: Path) -> None:
    segments.append(b"one\n")
    with files(tmp_path)[0].open("ab") as file:
        file.write(b"half a l")
    segments.append(b"two\n")
    assert lines(segments) == [b"one", b"half a l", b"two"]


@given(st.lists(st.integers(0, 200_000), max_size=8), st.integers(0, 200_000))
def test_lines_of_any_length_are_read_whatever_comes_after_the_last(lengths: list[int], torn: int) -> None:
    with TemporaryDirectory() as folder:
        segments = Segments(Path(folder), "known", size=1 << 30, kept=2)
        written = [bytes([97 + number]) * length for number, length in enumerate(lengths)]
        if written:
            segments.append(b"".join(line + b"\n" for line in written))
            with files(Path(folder))[0].open("ab") as file:
                file.write(b"z" * torn)
        assert lines(segments) == written


def test_a_folder_that_was_emptied_is_written_to(segments: Segments, tmp_path: Path) -> None:
    segments.append(b"one\n")
    files(tmp_path)[0].unlink()
    segments.append(b"two\n")
    assert lines(segments) == [b"two"]


def test_a_file_that_goes_while_it_is_read_ends_the_reading(segments: Segments, tmp_path: Path) -> None:
    for number in range(5):
        segments.append(b"%0499d\n" % number)
    reading = segments.newest_first(ENDLESS)
    assert int(next(reading)[1]) == 4
    for file in files(tmp_path)[:-1]:
        file.unlink()
    assert list(reading) == []


def full(folder: Path, name: str = "known") -> Path:
    """Has whatever is written next meet a full disk, until the path is removed."""
    path = folder / f"{name}-{10**19}.jsonl"
    path.symlink_to("/dev/full")
    return path


def test_a_full_disk_is_an_error_and_what_was_there_stays(segments: Segments, tmp_path: Path) -> None:
    segments.append(b"one\n")
    fill = full(tmp_path)
    with pytest.raises(OSError, match="No space left"):
        segments.append(b"two\n")
    fill.unlink()
    assert lines(segments) == [b"one"]


def test_a_disk_that_takes_a_part_of_a_line_has_nothing_of_it(
    segments: Segments, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    segments.append(b"one\n")
    write = os.write
    monkeypatch.setattr(os, "write", lambda file, data: write(file, data[:5]))
    with pytest.raises(OSError, match="No space left"):
        segments.append(b"twenty\n")
    assert files(tmp_path)[0].read_bytes() == b"one\n"


WRITER = """
import sys
from pathlib import Path
from gateway_api.base.segments import Segments
segments = Segments(Path(sys.argv[1]), "known", size=20_000, kept=100_000)
number = 0
while True:
    batch = (b"%s %d %s\\n" % (sys.argv[2].encode(), n, b"x" * 300) for n in (number, number + 1))
    segments.append(b"".join(batch))
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
    for line in lines(Segments(tmp_path, "known", size=20_000, kept=100_000)):
        parts = line.split()
        if len(parts) == 3 and len(parts[2]) == 300:
            kept.setdefault(parts[0].decode(), []).append(int(parts[1]))
    assert len(files(tmp_path)) > 5
    for name, last in acknowledged.items():
        # One more batch may be there, of which the writer wasn't told.
        assert kept[name] == list(range(len(kept[name])))
        assert last + 1 <= len(kept[name]) <= last + 3


# Batches


class Slow:
    """Segments that take their time."""

    def __init__(self) -> None:
        self.batches: list[list[bytes]] = []
        self.failure: OSError | None = None

    def append(self, data: bytes) -> None:
        time.sleep(0.05)
        if self.failure:
            raise self.failure
        self.batches.append(data.splitlines())


def all_at_once(number: int, act: Callable[[int], None]) -> None:
    threads = [threading.Thread(target=act, args=(each,)) for each in range(number)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_lines_that_come_together_are_written_together() -> None:
    slow = Slow()
    trail = Trail(slow, Here())  # type: ignore[arg-type]
    all_at_once(100, lambda each: trail.add(b"%d\n" % each))
    assert sorted(int(line) for batch in slow.batches for line in batch) == list(range(100))
    assert len(slow.batches) <= 20


def test_a_line_is_there_when_it_was_added() -> None:
    slow = Slow()
    trail = Trail(slow, Here())  # type: ignore[arg-type]
    missing = []

    def add(each: int) -> None:
        line = b"%d\n" % each
        trail.add(line)
        if not any(line.strip() in batch for batch in slow.batches):
            missing.append(each)

    all_at_once(50, add)
    assert missing == []


def test_all_of_a_batch_hear_of_its_failure() -> None:
    slow = Slow()
    slow.failure = OSError(errno.EIO, "broken")
    trail = Trail(slow, Here())  # type: ignore[arg-type]
    heard = []

    def add(each: int) -> None:
        try:
            trail.add(b"x\n")
        except OSError as error:
            heard.append(error.errno)

    all_at_once(20, add)
    assert heard == [errno.EIO] * 20


def test_a_batch_whose_writer_is_stopped_is_not_written_twice() -> None:
    class Stopped(Here):
        def apply(self, function: Callable[..., Any], args: tuple[Any, ...]) -> Any:
            function(*args)
            raise KeyboardInterrupt

    slow = Slow()
    trail = Trail(slow, Stopped())
    with pytest.raises(KeyboardInterrupt):
        trail.add(b"one\n")
    trail._pool = Here()
    trail.add(b"two\n")
    assert slow.batches == [[b"one"], [b"two"]]


# The log of a worker


@pytest.fixture
def log(tmp_path: Path) -> AuditLog:
    return AuditLog(tmp_path, 1 << 20, Here())


def ids(log: AuditLog, page: Page | None = None, **wanted: Any) -> list[str]:
    """The request ids of what fits."""
    records = log.read(Wanted(**wanted), page).records
    return [json.loads(bytes(record))["request_id"] for record in records]


def test_who_is_known_and_who_is_not_are_kept_apart_and_read_together(log: AuditLog, tmp_path: Path) -> None:
    for number in range(4):
        log.add(a_record(at=float(number), request_id=f"{number}", role=("admin", None)[number % 2]))
    assert {file.name.partition("-")[0] for file in files(tmp_path)} == {"known", "strangers"}
    assert ids(log) == ["3", "2", "1", "0"]


def test_a_flood_of_strangers_pushes_no_change_out(tmp_path: Path) -> None:
    log = AuditLog(tmp_path, 1 << 17, Here())
    log.add(a_record(request_id="the change"))
    for number in range(1000):
        log.add(a_record(role=None, request_id=f"{number}"))
    assert "the change" in ids(log, user="admin")
    assert sum(file.stat().st_size for file in files(tmp_path)) < 1.1 * (1 << 17)


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
    assert ids(log, **wanted) == expected


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 5)), max_size=40), st.integers(1, 7), st.booleans())
def test_pages_have_each_record_once_whatever_comes_meanwhile_and_however_clocks_run(
    written: list[tuple[bool, int]], limit: int, refused: bool
) -> None:
    with TemporaryDirectory() as folder:
        log = AuditLog(Path(folder), 1 << 20, Here())
        for number, (known, at) in enumerate(written):
            result = "refused" if number % 3 else "done"
            log.add(
                a_record(at=float(at), request_id=f"{number}", role="admin" if known else None, result=result)
            )
        wanted = Wanted(result="refused" if refused else None)
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
        assert pages == whole


def test_every_record_has_an_id_of_its_own_that_stays(log: AuditLog) -> None:
    for number in range(50):
        log.add(a_record(request_id=f"{number}", role=("admin", None)[number % 2]))
    first = {
        json.loads(bytes(r))["request_id"]: json.loads(bytes(r))["id"]
        for r in log.read(Wanted(), None).records
    }
    log.add(a_record(request_id="later"))
    later = {
        json.loads(bytes(r))["request_id"]: json.loads(bytes(r))["id"]
        for r in log.read(Wanted(), None).records
    }
    assert len(set(later.values())) == 51
    assert first.items() <= later.items()


def test_a_page_goes_on_where_rotation_has_taken_the_rest(tmp_path: Path) -> None:
    log = AuditLog(tmp_path, 32_000, Here())
    for number in range(60):
        log.add(a_record(request_id=f"{number}"))
    page = log.read(Wanted(), Page(10))
    for number in range(70):
        log.add(a_record(request_id=f"later {number}"))
    after = ids(log, Page(1000, page.next_cursor))
    assert after == [f"{number}" for number in range(49, 49 - len(after), -1)]
    assert 0 < len(after) < 50


@pytest.mark.parametrize(
    "cursor", ["x", "%%%", "W10", "WzFd", "Wy0xLDBd", "bnVsbA", "eyJhIjoxfQ", "é", "WzEsMSwxXQ"]
)
def test_a_cursor_that_no_page_gave_is_invalid(log: AuditLog, cursor: str) -> None:
    with pytest.raises(Invalid):
        log.read(Wanted(), Page(1, cursor))


def test_too_many_for_one_answer_want_pages(log: AuditLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway_api.audit.reader.MOST", 3)
    for number in range(4):
        log.add(a_record(request_id=f"{number}"))
    with pytest.raises(AnswerTooLarge):
        log.read(Wanted(), None)
    assert len(ids(log, Page(4))) == 4


def test_what_is_no_record_is_passed_over(log: AuditLog, tmp_path: Path) -> None:
    log.add(a_record(request_id="a"))
    with files(tmp_path)[0].open("ab") as file:
        file.write(b'\x00\x00\n\xff\xfe\n[]\n\n{"at":1}\n{"at":1.0,"us')
    log.add(a_record(request_id="b"))
    assert ids(log) == ["b", "a"]


def test_while_nothing_can_be_written_a_change_is_not_to_be_made(log: AuditLog, tmp_path: Path) -> None:
    log.add(a_record(request_id="a"))
    log.check()
    fill = full(tmp_path)
    with pytest.raises(AuditUnavailable):
        log.add(a_record(request_id="lost"))
    for _ in range(2):
        with pytest.raises(AuditUnavailable):
            log.check()
    fill.unlink()
    log.check()
    log.add(a_record(request_id="b"))
    newest, gap, oldest = (json.loads(bytes(record)) for record in log.read(Wanted(), None).records)
    assert (newest["request_id"], oldest["request_id"]) == ("b", "a")
    assert (gap["action"], gap["message"][:9]) == ("audit.gap", "1 records")


def test_strangers_that_cannot_be_recorded_hold_up_nobody(log: AuditLog, tmp_path: Path) -> None:
    full(tmp_path, "strangers")
    with pytest.raises(AuditUnavailable):
        log.add(a_record(role=None))
    log.check()


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
        log.read(Wanted(), None)


# Records


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_a_record_is_one_line_of_ascii_whatever_is_in_it(text: str) -> None:
    line = line_of(a_record(path=text, message=text, body={text: [text]}))
    assert line.count(b"\n") == 1
    assert all(32 <= byte < 127 for byte in line[:-1])
    assert json.loads(line)["body"] == {text: [text]}


@pytest.mark.parametrize("name", ["body", "before", "after"])
def test_what_is_too_long_is_cut_and_says_so(name: str) -> None:
    kept = json.loads(line_of(a_record(**{name: {"events": ["\u2028" * 5000]}})))[name]
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


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("system.hostname", "bng1"),
        ("interfaces.trunks.1", "trunk1"),
        ("interfaces.trunks.7", None),
        ("demux.vlan_profiles.ipoe.vlan_range", "100-999"),
        ("demux.vlan_profiles.0.name", "pppoe"),
        ('bgp.neighbors."10.255.0.2".remote_as', 64513),
        ("api.users.operator.role", "operator"),
        ("system.hostname.below", None),
        ("nowhere.at.all", None),
        ("no path", None),
    ],
)
def test_a_value_is_found_at_its_path(document: dict[str, Any], path: str, value: Any) -> None:
    assert value_at(document, path) == value


class Forking(Segments):
    """Forks a process while it writes, as the arbiter may."""

    child = 0

    def _write(self, file: int, lines: bytes) -> None:
        self.child = os.fork()
        if not self.child:
            time.sleep(30)
            os._exit(0)
        super()._write(file, lines)


def test_a_process_that_was_forked_during_a_write_keeps_nobody_from_writing(tmp_path: Path) -> None:
    segments = Forking(tmp_path, "known", size=1000, kept=2)
    try:
        segments.append(b"{}\n")
        folder = os.open(tmp_path, os.O_RDONLY)
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.close(folder)
    finally:
        os.kill(segments.child, signal.SIGKILL)
        os.waitpid(segments.child, 0)

"""The configuration against SIGKILL at every call of a change, and against disks that fail.

strace says which system calls a change is made of, kills the core at each of them, or has each of them fail.
What is seen after that must be what was before the change or what it makes, and nothing in between.
"""

import json
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import count, pairwise, product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import pytest

from gateway_api.wire.configuration import masked
from gateway_api.wire.varlink.client import Client, Unreachable
from gateway_api.wire.varlink.protocol import ErrorReply
from tests.support.stack import descendants, running_core, wait_for
from tests.torture.fork_server import Core, ForkServer

pytestmark = pytest.mark.slow

INTERFACE = "org.gatewayapi.core"

#: How many configurations stay besides the running one.
ARCHIVED = 49
LIVES = 1000
#: Of a clock that two processes read, in seconds.
SLACK = 0.1

#: All that may concern a file, and the sockets, for the answer.
TRACED = "trace=%file,%desc,%network"
#: How often these come depends on when strace comes, on the allocator, on how fast a child is.
UNSTEADY = {"recvfrom", "mmap", "poll", "ppoll"}
#: What a disk without space refuses.
TAKES_SPACE = {"open", "openat", "mkdir", "mkdirat", "write", "fsync", "fdatasync", "close"}
TAKES_SPACE |= {"rename", "renameat", "renameat2"}
#: What nobody can go on without, once it failed at a file of the configuration. Others say something
#: about a file that is read: the interpreter does without an answer.
VITAL = TAKES_SPACE - {"close"} | {"getdents64", "unlink", "unlinkat", "rmdir", "read"}


# What strace says


class Call(NamedTuple):
    """One system call. `paths` are those that it names, by text or by descriptor."""

    name: str
    arguments: str
    result: str
    paths: tuple[str, ...]

    @property
    def succeeded(self) -> bool:
        return not self.result.startswith(("-", "?"))

    @property
    def injected(self) -> bool:
        return self.result.endswith("(INJECTED)")

    @property
    def is_ours(self) -> bool:
        """Whether it concerns the folder of a configuration, but for its log of changes: that is written
        when the change counts already, and again when it fails."""
        parts = [Path(path).parts for path in self.paths]
        return any("configuration" in part and "changes" not in part for part in parts)

    @property
    def changes(self) -> bool:
        """Whether it may make a difference to what is on the disk, or to what others know."""
        kinds = ("write", "mkdir", "rename", "unlink", "rmdir", "sync", "send")
        return "O_CREAT" in self.arguments or any(kind in self.name for kind in kinds)

    def __str__(self) -> str:
        return f"{self.name}({self.arguments}) = {self.result}"


def _parsed(trace: str) -> list[Call]:
    lines = (re.fullmatch(r"(\w+)\((.*)\)\s+= (.+)", line) for line in trace.splitlines())
    return [Call(*line.groups(), _paths(line[2])) for line in lines if line]


def _paths(arguments: str) -> tuple[str, ...]:
    """With -y, a descriptor comes with its path, as does the folder that a relative path starts from."""
    held = re.search(r"\w<(/[^>]*)>", arguments)
    base = held[1] if held else ""
    texts = [text for text in re.findall(r'"([^"]*)"', arguments) if text]
    return tuple(str(Path(base, text)) for text in texts) or ((base,) if base else ())


@contextmanager
def _strace(threads: Iterable[int], output: Path, *options: str) -> Iterator[None]:
    """strace on these threads alone, in the block, with what it saw in a file."""
    process = _started_strace([*(f"--attach={thread}" for thread in threads), "-o", str(output), *options])
    with process:
        assert process.stderr is not None
        try:
            for _ in threads:
                line = process.stderr.readline()
                if "attached" not in line:
                    pytest.fail(f"strace is not allowed to trace a process here, which this needs: {line}")
            yield
        finally:
            process.terminate()


def _started_strace(options: list[str]) -> "subprocess.Popen[str]":
    try:
        return subprocess.Popen(["strace", "-y", "-s", "0", *options], stderr=subprocess.PIPE, text=True)
    except FileNotFoundError:
        pytest.fail("strace is not installed, and this needs it: apt-get install strace")


# What a configuration holds. All of one have the number that was set, in two places.


def _edits(number: int) -> list[dict[str, str]]:
    values = {"system.hostname": f"bng{number}", "qos.default_down": f"{1000 + number}kbit"}
    return [{"action": "set", "path": path, "value_json": json.dumps(v)} for path, v in values.items()]


def _number(document: dict[str, Any]) -> int:
    hostname, rate = document["system"]["hostname"], document["qos"]["default_down"]
    number = int(hostname.removeprefix("bng"))
    assert rate == f"{1000 + number}kbit", f"a configuration of two: {hostname}, {rate}"
    return number


def _edit(core: Core, number: int) -> None:
    core.call("EditCandidate", edits=_edits(number))


def _commit(core: Core, number: int, confirm_seconds: int | None = None) -> Any:
    _edit(core, number)
    return core.call("CommitCandidate", author="alice", comment=f"{number}", confirm_seconds=confirm_seconds)


class Revision(NamedTuple):
    document: dict[str, Any]
    author: str
    comment: str | None


class Kept(NamedTuple):
    """What a folder holds, without the times of its commits."""

    running: Revision
    candidate: dict[str, Any] | None
    archive: tuple[Revision, ...]
    baseline: Revision | None


class Seen(NamedTuple):
    """What clients of a core see, and what is in its folder; they were the same."""

    etag: str
    kept: Kept


def _kept(folder: Path) -> Kept:
    """What is in a folder, which must be whole."""
    state = json.loads((folder / "state.json").read_bytes())
    deadline = state["deadline"]
    return Kept(
        _revision(folder, state["running"]),
        state["candidate"],
        tuple(_revision(folder, number) for number in state["archive"]),
        None if deadline is None else _revision(folder, deadline["baseline"]),
    )


def _revision(folder: Path, number: int) -> Revision:
    """A revision whose files fit together."""
    revision = folder / "revisions" / str(number)
    document = (revision / "configuration.json").read_bytes()
    commit = json.loads((revision / "commit.json").read_bytes())
    assert commit.pop("committed_at") > 0
    found = Revision(json.loads(document), **commit)
    _number(found.document)
    return found


def _observed(core: Core) -> Seen:
    """What a core has, which must be whole, and the same for its clients as on disk."""
    state = core.folder / "state.json"
    before = b""
    # Again, if a deadline came in between.
    while state.read_bytes() != before:
        before = state.read_bytes()
        kept = _kept(core.folder)
        running, candidate = core.call("GetConfiguration"), core.call("GetCandidate")
        archive = core.call("ListArchive")["revisions"]
    assert running["configuration"] == masked(kept.running.document)
    staged = kept.running.document if kept.candidate is None else kept.candidate
    assert candidate["configuration"] == masked(staged)
    assert [(held["author"], held["comment"]) for held in archive] == [held[1:] for held in kept.archive]
    assert running["etag"] == candidate["etag"]
    return Seen(running["etag"], kept)


# The bench


class Bench:
    """Where cores start, each in a home of its own."""

    def __init__(self, fork_server: ForkServer, folder: Path, document: dict[str, Any]) -> None:
        self._fork_server = fork_server
        self._folder = folder
        self._homes = 0
        self.factory = folder / "factory.json"
        document["system"]["hostname"], document["qos"]["default_down"] = "bng0", "1000kbit"
        # Or most of the time would go into a file of many lines.
        document["demux"]["vlan_profiles"][1]["outer_vlan_range"] = "100-101"
        self.factory.write_text(json.dumps(document))

    def home(self) -> Path:
        self._homes += 1
        home = self._folder / f"{self._homes}"
        home.mkdir()
        return home

    @contextmanager
    def copy_of(self, home: Path) -> Iterator[Path]:
        """A home with the same configuration, for the time of the block."""
        copy = self.home()
        held, made = home / "configuration", copy / "configuration"
        if held.exists():
            # Linked, for speed: what is in a revision never changes.
            shutil.copytree(held / "revisions", made / "revisions", copy_function=os.link)
            shutil.copy(held / "state.json", made)
        yield copy
        shutil.rmtree(copy)

    def paused(self, home: Path) -> Core:
        return Core(self._fork_server, home, self.factory, paused=True)

    def starting(self, home: Path) -> Core:
        return Core(self._fork_server, home, self.factory)

    @contextmanager
    def core(self, home: Path) -> Iterator[Core]:
        """A core that serves."""
        with self.starting(home) as core:
            assert core.ready(), f"the core doesn't start: {core.log}"
            yield core

    def observed(self, home: Path) -> Seen:
        with self.core(home) as core:
            return _observed(core)


@pytest.fixture(scope="module")
def fork_server() -> Iterator[ForkServer]:
    with ForkServer() as made:
        yield made


@pytest.fixture
def bench(fork_server: ForkServer, tmp_path: Path, document: dict[str, Any]) -> Iterator[Bench]:
    # In memory, if that is to be had: this writes a lot, and to the kernel's calls it makes no difference.
    memory = Path("/dev/shm")
    with TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else tmp_path) as folder:
        yield Bench(fork_server, Path(folder), document)


@contextmanager
def _at(point: object) -> Iterator[None]:
    """Says where it was when the block fails."""
    try:
        yield
    except BaseException as error:
        error.add_note(f"at {point}")
        raise


# The changes


@dataclass(frozen=True)
class Change:
    """A call that changes something, and what comes before it."""

    name: str
    prepare: Callable[[Core], object]
    method: str
    parameters: dict[str, Any] = field(default_factory=dict)

    def make(self, core: Core) -> Any:
        return core.call(self.method, **self.parameters)


def _stage(commits: int) -> Callable[[Core], None]:
    """So many commits, and something for another."""

    def prepare(core: Core) -> None:
        for number in range(1, commits + 1):
            _commit(core, number)
        _edit(core, commits + 1)

    return prepare


def _stage_after_a_killed_commit(core: Core) -> None:
    _stage(1)(core)
    revisions = core.folder / "revisions"
    shutil.copytree(revisions / "1", revisions / "3")


_COMMIT = {"author": "alice", "comment": "the one"}
#: All that may be archived is, and one more waits to be removed.
COMMIT = Change("commit-that-sweeps", _stage(ARCHIVED + 2), "CommitCandidate", _COMMIT)
#: One revision waits to be removed, and few are there to be looked at.
COMMIT_AGAIN = Change("commit-after-a-killed-one", _stage_after_a_killed_commit, "CommitCandidate", _COMMIT)
TO_CONFIRM = Change("commit-to-confirm", _stage(1), "CommitCandidate", {**_COMMIT, "confirm_seconds": 600})
EDIT = Change("edit", _stage(1), "EditCandidate", {"edits": _edits(900)})
CONFIRM = Change("confirm", partial(_commit, number=1, confirm_seconds=600), "ConfirmCommit")
DISCARD = Change("discard", _stage(1), "DiscardCandidate")
ROLLBACK = Change("rollback", _stage(2), "RollbackCandidate", {"revision": 2})
SMALL = (EDIT, CONFIRM, DISCARD, ROLLBACK)

by_name: Callable[[Change], str] = lambda change: change.name  # noqa: E731


class Point(NamedTuple):
    """One of the calls that a change is made of: the `number`th of its name."""

    number: int
    call: Call

    def __str__(self) -> str:
        return f"{self.call.name} number {self.number}, {self.call}"


@dataclass(frozen=True)
class Plain:
    """A change that nothing disturbed: its calls, and what there was before, as in `home`, and after."""

    home: Path
    points: list[Point]
    before: Seen
    after: Seen


def _plain(bench: Bench, change: Change) -> Plain:
    home = bench.home()
    with bench.core(home) as core:
        change.prepare(core)
    before = bench.observed(home)
    with bench.copy_of(home) as copy:
        with bench.core(copy) as core:
            output = copy / "trace"
            with _strace([core.serving_thread()], output, "-e", TRACED):
                change.make(core)
                # The answer is here before strace says that it is sent.
                wait_for("strace's last line", lambda: "sendto(" in output.read_text())
            calls = _parsed(output.read_text())
            after = _observed(core)
        assert bench.observed(copy) == after
    assert before != after
    return Plain(home, list(_points(calls)), before, after)


def _points(calls: Iterable[Call]) -> Iterator[Point]:
    numbers: Counter[str] = Counter()
    for call in calls:
        numbers[call.name] += 1
        if call.name not in UNSTEADY:
            yield Point(numbers[call.name], call)


def _injected(point: Point, what: str) -> tuple[str, ...]:
    name = point.call.name
    return "-e", f"trace={name}", "-e", f"inject={name}:{what}:when={point.number}"


# A power cut takes what isn't synced


@dataclass(frozen=True)
class Traced:
    """The calls of a core on a `folder` that it made itself: of its start, of an edit, and of a commit."""

    folder: Path
    start: list[Call]
    edit: list[Call]
    commit: list[Call]


@pytest.fixture
def traced(bench: Bench) -> Traced:
    home, run = bench.home(), bench.home()
    folder = home / "var" / "configuration"
    core = [
        *(sys.executable, "-m", "gateway_api.cli.core", "lab"),
        *("--socket", str(run / "s"), "--sessions", "0"),
        *("--configuration", str(folder), "--factory", str(bench.factory)),
    ]
    # A file for each thread: their lines would mix.
    with _started_strace(["-ff", "-e", TRACED, "-o", str(run / "trace"), *core]) as strace:
        assert strace.stderr is not None
        said = [strace.stderr.readline()]
        while 'message="serving ' not in said[-1]:
            assert said[-1], f"strace, or the core that it runs, has ended: {said}"
            said.append(strace.stderr.readline())
        (pid,) = descendants(strace.pid)
        try:
            tasks = Path(f"/proc/{pid}/task")
            before = {entry.name for entry in tasks.iterdir()}
            client = Client(run / "s", timeout=30)
            client.call(f"{INTERFACE}.EditCandidate", EDIT.parameters)
            client.call(f"{INTERFACE}.CommitCandidate", _COMMIT)
            (thread,) = {entry.name for entry in tasks.iterdir()} - before
            client.close()
        finally:
            os.kill(pid, signal.SIGTERM)
    started, served = (_parsed((run / f"trace.{task}").read_text()) for task in (pid, thread))
    received = [n for n, call in enumerate(served) if call.name == "recvfrom" and call.result not in "0?"]
    edit, commit = (served[one:other] for one, other in pairwise([*received, len(served)]))
    return Traced(folder, started, edit, commit)


def test_a_commit_is_synced_before_it_counts_and_counts_for_good_before_it_is_answered(
    traced: Traced,
) -> None:
    calls, folder = traced.commit, traced.folder
    counts, answer = _last(calls, "rename"), _last(calls, "send")
    draft = folder / ".state.json.new"
    assert calls[counts].paths == (str(draft), str(folder / "state.json"))
    revision = folder / "revisions" / str(json.loads((folder / "state.json").read_bytes())["running"])
    files = [path for path in revision.rglob("*") if path.is_file()]
    assert {path.name for path in files} == {"configuration.json", "commit.json"}
    for path in files:
        synced = _last(calls, "sync", path)
        assert _last(calls, "write", path) < synced < _last(calls, "sync", path.parent) < counts, path
    synced = _last(calls, "sync", revision)
    assert _last(calls, "mkdir", revision) < synced < _last(calls, "sync", revision.parent) < counts
    assert _last(calls, "write", draft) < _last(calls, "sync", draft) < counts
    assert counts < _last(calls, "sync", folder) < answer
    # And whatever else it may touch: at the rename, all is safe but the name of the draft.
    unsynced = [_unsynced(calls[:until], folder) for until in (counts, answer)]
    assert unsynced == [{folder}, set()]


def test_an_edit_is_synced_before_it_counts_and_counts_for_good_before_it_is_answered(
    traced: Traced,
) -> None:
    calls, folder = traced.edit, traced.folder
    counts, answer = _last(calls, "rename"), _last(calls, "send")
    draft = folder / ".state.json.new"
    assert calls[counts].paths == (str(draft), str(folder / "state.json"))
    assert _last(calls, "write", draft) < _last(calls, "sync", draft) < counts
    assert counts < _last(calls, "sync", folder) < answer
    left = _unsynced(calls[:answer], folder)
    assert not left


def test_a_first_start_syncs_what_it_makes_the_folder_and_those_above_it_too(traced: Traced) -> None:
    above = traced.folder.parent
    assert _last(traced.start, "mkdir", above) < _last(traced.start, "mkdir", traced.folder)
    left = _unsynced(traced.start, above.parent)
    # SQLite syncs its log with a commit that must last, and makes both anew.
    assert not {path for path in left if not path.name.endswith(("-wal", "-shm"))}


def _last(calls: list[Call], kind: str, path: Path | None = None) -> int:
    """The place of the last successful call of that kind, at that path if one is given."""
    found = [
        place
        for place, call in enumerate(calls)
        if kind in call.name and call.succeeded and (path is None or str(path) in call.paths)
    ]
    assert found, f"no {kind} of {path}"
    return found[-1]


def _unsynced(calls: list[Call], home: Path) -> set[Path]:
    """What of a home isn't safe after these calls: files for what was written, folders for their names."""
    found: set[Path] = set()
    for call in calls:
        paths = [Path(path) for path in call.paths]
        if not call.succeeded or not paths:
            continue
        if "sync" in call.name:
            found.discard(paths[0])
        elif "write" in call.name:
            found.add(paths[0])
        elif "mkdir" in call.name or "O_CREAT" in call.arguments:
            found.add(paths[0].parent)
        elif call.name.startswith(("rename", "unlink", "rmdir")):
            if paths[0] in found:
                found.remove(paths[0])
                found.update(paths[1:])
            found.update(path.parent for path in paths)
    return {path for path in found if path.is_relative_to(home)}


# A change that is killed


@pytest.mark.parametrize("change", [COMMIT_AGAIN, *SMALL], ids=by_name)
def test_a_core_killed_at_any_call_of_a_change_has_made_all_of_it_or_nothing(
    change: Change, bench: Bench
) -> None:
    plain = _plain(bench, change)
    _kill_changes(bench, change, plain, plain.points)


@pytest.mark.parametrize("change", [COMMIT, TO_CONFIRM], ids=by_name)
def test_a_core_killed_wherever_the_disk_changes_has_made_all_of_it_or_nothing(
    change: Change, bench: Bench
) -> None:
    plain = _plain(bench, change)
    _kill_changes(bench, change, plain, [point for point in plain.points if point.call.changes])


def _kill_changes(bench: Bench, change: Change, plain: Plain, points: list[Point]) -> None:
    for point in points:
        with _at(f"SIGKILL at {point}"), bench.copy_of(plain.home) as home:
            answered = _killed(bench, change, home, point)
            with bench.core(home) as core:
                seen = _observed(core)
                assert seen == plain.after or (seen == plain.before and not answered)
                _commit(core, 901)
                assert _number(_observed(core).kept.running.document) == 901


def test_a_core_killed_at_any_call_of_a_commit_of_the_api_knows_whether_it_was_made(bench: Bench) -> None:
    call = "8d1f0c7be45a4c3d9a6e21b0f3c58e77"
    change = Change("commit-of-the-api", _stage(1), "CommitCandidate", {**_COMMIT, "request_id": call})
    plain = _plain(bench, change)
    outcomes = Counter[str]()
    for point in plain.points:
        with _at(f"SIGKILL at {point}"), bench.copy_of(plain.home) as home:
            _killed(bench, change, home, point)
            with bench.core(home) as core:
                told = core.call("ResolveCalls", request_ids=[call])
                expected = "done" if _observed(core) == plain.after else "unknown"
                assert told == {"done": [], "failed": [], "unknown": [], expected: [call]}
                outcomes[expected] += 1
    assert min(outcomes["done"], outcomes["unknown"]) > 0


def _killed(bench: Bench, change: Change, home: Path, point: Point) -> bool:
    """Whether a change was answered, of a core that was killed at that point."""
    answered = False
    with bench.core(home) as core:
        with _strace([core.serving_thread()], home / "trace", *_injected(point, "signal=KILL")):
            try:
                change.make(core)
                answered = True
            except Unreachable:
                pass
            assert core.ended(), "that call never came"
        assert core.status() == -signal.SIGKILL
    return answered


# A start that is killed


def test_a_core_killed_wherever_its_first_start_changes_the_disk_starts_again(bench: Bench) -> None:
    with bench.core(bench.home()) as core:
        after = _observed(core)
    # The folder is made at the start, and what is above it, too.
    _kill_starts(bench, bench.home(), after)


def test_a_core_killed_in_a_start_that_returns_for_a_deadline_returns_at_the_next(bench: Bench) -> None:
    home = bench.home()
    with bench.core(home) as core:
        _commit(core, 1)
        # Far enough for a busy machine to stop the core before.
        deadline = _commit(core, 2, confirm_seconds=5)["confirm_deadline"]
        _edit(core, 3)
    wait_for("the deadline", lambda: time.time() > deadline)
    with bench.copy_of(home) as copy:
        after = bench.observed(copy)
    assert _number(after.kept.running.document) == 1
    _kill_starts(bench, home, after)


def _kill_starts(bench: Bench, before: Path, after: Seen) -> None:
    """A home is started, as it was, and killed, as often as its start changes something there."""
    with bench.copy_of(before) as home:
        with _paused_core(bench, home, "-e", TRACED) as core:
            assert core.ready()
        calls = _parsed((home / "trace").read_text())
        points = [point for point in _points(calls) if point.call.is_ours and point.call.changes]
    assert {"mkdir", "write", "fsync", "rename"} <= {point.call.name.removesuffix("at") for point in points}
    for point in points:
        with _at(f"SIGKILL at {point}"), bench.copy_of(before) as home:
            with _paused_core(bench, home, *_injected(point, "signal=KILL")) as core:
                assert core.ended(), "that call never came"
                assert core.status() == -signal.SIGKILL
            # Not the tag: until the first start is over, its key is another one each time.
            assert bench.observed(home).kept == after.kept


@contextmanager
def _paused_core(bench: Bench, home: Path, *options: str) -> Iterator[Core]:
    """A core that is traced from its first step on."""
    with bench.paused(home) as core, _strace([core.pid], home / "trace", *options):
        core.send(signal.SIGCONT)
        yield core


# A disk that fails


@pytest.mark.parametrize(
    ("error", "change"),
    # Nothing is said of the space that it takes to remove something.
    [("EIO", COMMIT_AGAIN), ("ENOSPC", TO_CONFIRM), *product(["EIO", "ENOSPC"], SMALL)],
    ids=lambda value: getattr(value, "name", value),
)
def test_a_change_whose_disk_fails_is_refused_and_changes_nothing(
    error: str, change: Change, bench: Bench
) -> None:
    plain = _plain(bench, change)
    restarted = set()
    for point in plain.points:
        name = point.call.name
        if name == "sendto" or (error == "ENOSPC" and name not in TAKES_SPACE):
            continue
        with _at(f"{error} at {point}"), bench.copy_of(plain.home) as home, bench.core(home) as core:
            with _strace([core.serving_thread()], home / "trace", *_injected(point, f"error={error}")):
                refused = _refused(core, change)
            (failed,) = (call for call in _parsed((home / "trace").read_text()) if call.injected)
            assert refused or not failed.is_ours or name not in VITAL
            assert _observed(core) == (plain.before if refused else plain.after)
            if refused:
                if name not in restarted:
                    restarted.add(name)
                    _restart_a_copy(bench, home, plain.before)
                change.make(core)
                assert _observed(core) == plain.after
    assert {"openat", "write", "fsync"} <= restarted


def _refused(core: Core, change: Change) -> bool:
    """Whether a step of a change failed; then the answer must say so to people, and nothing of the disk."""
    try:
        change.make(core)
    except ErrorReply as error:
        assert error.name == f"{INTERFACE}.StepFailed"
        told = json.loads(bytes(error.parameters))
        assert set(told) == {"step", "reason"}
        for text in told.values():
            assert text
            assert not re.search(r"(\A|[^a-z])/|json|Errno", text), text
        return True
    return False


def _restart_a_copy(bench: Bench, home: Path, expected: Seen) -> None:
    """What a core would find if this one died now."""
    with bench.copy_of(home) as copy:
        assert bench.observed(copy) == expected


def test_a_core_whose_disk_fails_time_and_again_goes_on(bench: Bench) -> None:
    plain = _plain(bench, TO_CONFIRM)
    failing = [point for point in plain.points if point.call.is_ours and point.call.name in VITAL]
    with bench.core(plain.home) as core:
        thread = core.serving_thread()
        descriptors = Path(f"/proc/{core.pid}/fd")
        before = len(list(descriptors.iterdir()))
        for point in failing:
            with _strace([thread], plain.home / "trace", *_injected(point, "error=EIO")):
                # What is left of the one before is removed first: so it may be another call that fails.
                assert _refused(core, TO_CONFIRM), f"EIO at {point}"
        assert len(list(descriptors.iterdir())) == before
        assert _observed(core) == plain.before
        TO_CONFIRM.make(core)
        assert _observed(core) == plain.after


def test_a_file_that_the_disk_takes_a_part_of_is_no_part_of_a_configuration(bench: Bench) -> None:
    plain = _plain(bench, TO_CONFIRM)
    with bench.core(plain.home) as core:
        largest = max(core.folder.rglob("configuration.json"), key=lambda path: path.stat().st_size)
        # All lines but the last, so that nobody can tell by what is there.
        taken = largest.read_bytes().rindex(b"\n", 0, -1) + 1
        limits = resource.prlimit(core.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(core.pid, resource.RLIMIT_FSIZE, (taken, limits[1]))
        assert _refused(core, TO_CONFIRM)
        assert taken in [path.stat().st_size for path in core.folder.rglob("configuration.json")]
        assert _observed(core) == plain.before
        _restart_a_copy(bench, plain.home, plain.before)
        resource.prlimit(core.pid, resource.RLIMIT_FSIZE, limits)
        TO_CONFIRM.make(core)
        assert _observed(core) == plain.after


def test_a_disk_that_keeps_failing_never_costs_the_configuration(bench: Bench) -> None:
    """From one call on, all of its name fail: what should undo the change, too. When the disk is well
    again, the next commit is killed."""
    plain = _plain(bench, TO_CONFIRM)
    mkdir = next(point for point in plain.points if "mkdir" in point.call.name)
    for point in plain.points:
        if not point.call.is_ours or point.call.name not in TAKES_SPACE:
            continue
        with _at(f"EIO from {point} on"), bench.copy_of(plain.home) as home:
            with bench.core(home) as core:
                thread = core.serving_thread()
                name, number = point.call.name, point.number
                options = "-e", f"trace={name}", "-e", f"inject={name}:error=EIO:when={number}+"
                with _strace([thread], home / "trace", *options):
                    refused = _refused(core, TO_CONFIRM)
                assert refused or name == "close"
                expected = plain.before if refused else plain.after
                assert core.call("GetConfiguration")["etag"] == expected.etag
                if refused:
                    # By then, what isn't needed is removed, and nothing new is there.
                    with _strace([thread], home / "trace", *_injected(mkdir, "signal=KILL")):
                        with pytest.raises(Unreachable):
                            TO_CONFIRM.make(core)
                        assert core.status() == -signal.SIGKILL
            # What was refused may be on a disk that would take nothing more. It must be whole.
            assert bench.observed(home) in (plain.before, plain.after)


def test_a_return_that_the_disk_refuses_is_tried_again(bench: Bench) -> None:
    with bench.core(bench.home()) as core:
        _commit(core, 1)
        # Far enough for a busy machine to attach strace before.
        deadline = _commit(core, 2, confirm_seconds=5)["confirm_deadline"]
        before = _observed(core)
        threads = [int(entry.name) for entry in Path(f"/proc/{core.pid}/task").iterdir()]
        options = "-e", "trace=fsync", "-e", "inject=fsync:error=EIO"
        with _strace(threads, core.home / "trace", *options):
            wait_for("the return to fail", lambda: "cannot keep the deadline" in core.log)
            assert time.time() >= deadline - SLACK
            assert _observed(core) == before
        wait_for("the return", lambda: _running(core) == 1)
        assert _observed(core).kept.baseline is None


# Kills at random moments


class World(NamedTuple):
    """What there may be, by numbers. `baseline` comes back at `due`, in epoch seconds, or a little later."""

    running: int = 0
    candidate: int | None = None
    archive: tuple[int, ...] = ()
    baseline: int | None = None
    due: float = 0.0

    def staged(self, number: int) -> "World":
        return self._replace(candidate=None if number == self.running else number)

    def confirmed(self) -> "World":
        return self._replace(baseline=None, due=0.0)

    def committed(self, confirm_seconds: int | None) -> "World":
        due = 0.0 if confirm_seconds is None else time.time() + confirm_seconds
        if self.candidate is None:
            return self._replace(due=due) if due and self.due else self
        first = self.running if self.baseline is None else self.baseline
        return self._ran(self.candidate)._replace(baseline=first if due else None, due=due)

    def in_time(self) -> set["World"]:
        """This, and what the deadline makes of it, unless that is far."""
        return {self, *self.returned()}

    def returned(self) -> set["World"]:
        """What the deadline makes of this, unless that is far."""
        if self.baseline is None or time.time() + 1 < self.due:
            return set()
        return {self._ran(self.baseline).confirmed()}

    def is_like(self, other: "World") -> bool:
        # A deadline is 2 s or 600 s after its commit, however long a busy machine takes for that.
        return self[:4] == other[:4] and abs(self.due - other.due) < 60

    def _ran(self, number: int) -> "World":
        world = self._replace(running=number, archive=(self.running, *self.archive)[:ARCHIVED])
        return world if self.candidate is None else world.staged(self.candidate)


class Step(NamedTuple):
    """A call, and what it makes of a world: another one, or the name of an error."""

    method: str
    parameters: dict[str, Any]
    makes: Callable[[World], World | str]


def _steps(choice: random.Random) -> Iterator[Step]:
    for number in count(1):
        kind = choice.choices(["edit", "commit", "confirm", "rollback", "discard"], [9, 7, 1, 2, 1])[0]
        if kind == "edit":
            edit = {"edits": _edits(number)}
            yield Step("EditCandidate", edit, lambda world, number=number: world.staged(number))
        elif kind == "commit":
            seconds = choice.choices([None, 2, 600], [8, 1, 1])[0]
            commit = {"author": "alice", "confirm_seconds": seconds}
            yield Step("CommitCandidate", commit, lambda world, seconds=seconds: world.committed(seconds))
        elif kind == "confirm":
            yield Step(
                "ConfirmCommit", {}, lambda world: world.confirmed() if world.due else "NothingToConfirm"
            )
        elif kind == "rollback":
            revision = choice.randint(1, 5)
            yield Step("RollbackCandidate", {"revision": revision}, partial(_rolled_back, revision=revision))
        else:
            yield Step("DiscardCandidate", {}, lambda world: world.staged(world.running))


def _rolled_back(world: World, revision: int) -> World | str:
    if revision > len(world.archive):
        return "RevisionNotFound"
    return world.staged(world.archive[revision - 1])


def test_a_core_killed_a_thousand_times_loses_nothing_that_it_answered(bench: Bench) -> None:
    """And what was under way is there or not, and not in part."""
    seed = random.randrange(1 << 32)
    choice = random.Random(seed)
    steps, home = _steps(choice), bench.home()
    without, made = {World()}, set[World]()
    under_way: Counter[str] = Counter()
    for life in range(LIVES):
        started = time.time()
        with _at(f"life {life}, seed {seed}"), bench.core(home) as core:
            world = _world(core)
            found = [
                name
                for name, worlds in (("not made", without), ("made", made))
                if any(world.is_like(other) for one in worlds for other in one.in_time())
            ]
            assert found, f"{world} is none of {without}, {made}"
            assert not world.due or world.due > started - SLACK, "the deadline was over at the start"
            if len(found) == 1:
                under_way.update(found)
            doom = threading.Timer(choice.uniform(0, 0.02), core.send, [signal.SIGKILL])
            doom.start()
            try:
                without, made = _walk(core, steps, {world})
            finally:
                doom.join()
            assert core.status() == -signal.SIGKILL
    bench.observed(home)
    # Both must have been seen, or the kills came at no good moments.
    assert set(under_way) == {"not made", "made"}


def _world(core: Core) -> World:
    kept = _observed(core).kept
    deadline = json.loads((core.folder / "state.json").read_bytes())["deadline"]
    if kept.baseline is not None and deadline is None:
        # It came just now.
        return _world(core)
    return World(
        _number(kept.running.document),
        None if kept.candidate is None else _number(kept.candidate),
        tuple(_number(revision.document) for revision in kept.archive),
        None if kept.baseline is None else _number(kept.baseline.document),
        deadline["at"] if kept.baseline else 0.0,
    )


def _walk(core: Core, steps: Iterator[Step], worlds: set[World]) -> tuple[set[World], set[World]]:
    """Steps until the core is gone: the worlds without the last of them, and with it."""
    for step in steps:
        outcome = _outcome(core, step)
        # Not before the call: a deadline may have come in a pause of a busy machine.
        without = {other for world in worlds for other in world.in_time()}
        made = {world: step.makes(world) for world in without}
        after = {other for other in made.values() if isinstance(other, World)}
        if outcome is None:
            worlds = after
        elif isinstance(outcome, Unreachable):
            return without, after
        elif outcome.name == f"{INTERFACE}.ConfigurationChanged":
            # The deadline came first, and the commit would be of another configuration.
            assert step.method == "CommitCandidate"
            worlds = {other for world in worlds for other in world.returned()}
        else:
            worlds = {world for world, other in made.items() if outcome.name == f"{INTERFACE}.{other}"}
        assert worlds, f"{step} was answered otherwise than in any of {without}"
    raise AssertionError("there is always another step")


def _outcome(core: Core, step: Step) -> ErrorReply | Unreachable | None:
    """None for a reply."""
    try:
        core.call(step.method, **step.parameters)
    except (ErrorReply, Unreachable) as error:
        return error
    return None


# Deadlines


def _running(core: Core) -> int:
    return _number(core.call("GetConfiguration")["configuration"])


def _first_answer(core: Core) -> int:
    """What runs when it begins to serve."""
    while not core.ended(0):
        try:
            return _running(core)
        except Unreachable:
            pass
    raise AssertionError(core.log)


def _unconfirmed(core: Core, confirm_seconds: int) -> int:
    """The deadline, for 2 running instead of 1."""
    _commit(core, 1)
    return int(_commit(core, 2, confirm_seconds)["confirm_deadline"])


def test_a_core_killed_before_a_deadline_waits_for_it_and_returns(bench: Bench) -> None:
    # A busy machine may have no core again before the nearer one.
    for seconds in (2, 20):
        home = bench.home()
        with bench.core(home) as core:
            deadline = _unconfirmed(core, seconds)
        with bench.core(home) as core:
            first, in_time = _running(core), time.time() < deadline - SLACK
            assert first == 2 or not in_time
            wait_for("the return", lambda core=core: _running(core) == 1)
            assert time.time() > deadline - SLACK
            assert _world(core) == World(running=1, archive=(2, 1, 0))
        if in_time:
            return
    raise AssertionError("no core came before the deadline")


def test_a_core_started_after_a_deadline_never_answers_with_what_was_not_confirmed(bench: Bench) -> None:
    home = bench.home()
    with bench.core(home) as core:
        deadline = _unconfirmed(core, 1)
    wait_for("the deadline", lambda: time.time() > deadline + SLACK)
    for _ in range(10):
        with bench.copy_of(home) as copy, bench.starting(copy) as core:
            assert _first_answer(core) == 1
            assert _world(core) == World(running=1, archive=(2, 1, 0))


def test_what_ran_before_the_first_of_many_commits_comes_back_though_no_longer_archived(bench: Bench) -> None:
    home = bench.home()
    with bench.core(home) as core:
        _commit(core, 1)
        for number in range(2, ARCHIVED + 4):
            _commit(core, number, confirm_seconds=600)
        deadline = _commit(core, ARCHIVED + 4, confirm_seconds=1)["confirm_deadline"]
        assert 1 not in _world(core).archive
    with bench.core(home) as core:
        wait_for("the return", lambda: _running(core) == 1, 10)
        assert time.time() > deadline - SLACK
        assert _world(core) == World(running=1, archive=tuple(range(ARCHIVED + 4, 4, -1)))


def test_cores_killed_around_a_deadline_run_one_of_the_two_and_then_the_old(bench: Bench) -> None:
    homes = [bench.home() for _ in range(16)]
    with ExitStack() as stack:
        cores = [stack.enter_context(bench.core(home)) for home in homes]
        for core in cores:
            _commit(core, 1)
        for core in cores:
            _edit(core, 2)
        wait_for("the start of a second", lambda: time.time() % 1 < 0.05)
        # They have one deadline, or two.
        commits = [core.call("CommitCandidate", author="alice", confirm_seconds=1) for core in cores]
        deadline = commits[0]["confirm_deadline"]
        again = []
        for place, (home, core) in enumerate(zip(homes, cores, strict=True)):
            moment = deadline - 0.15 + 0.02 * place
            time.sleep(max(0.0, moment - time.time()))
            core.kill()
            again.append((time.time(), stack.enter_context(bench.starting(home))))
        for (started, core), commit in zip(again, commits, strict=True):
            assert core.ready(), core.log
            first = _running(core)
            assert first == 1 or (first == 2 and started < commit["confirm_deadline"])
        for _, core in again:
            wait_for("the return", lambda core=core: _running(core) == 1, 5)
            assert _world(core) == World(running=1, archive=(2, 1, 0))


def test_a_confirmation_is_not_forgotten_by_a_core_that_is_killed(bench: Bench) -> None:
    home = bench.home()
    with bench.core(home) as core:
        # Far enough for a busy machine to confirm it before.
        deadline = _unconfirmed(core, 5)
        core.call("ConfirmCommit")
        core.kill()
    wait_for("the deadline", lambda: time.time() > deadline + SLACK)
    with bench.core(home) as core:
        assert _world(core) == World(running=2, archive=(1, 0))


# Two cores


def test_a_second_core_refuses_to_start_on_the_folder_of_another(bench: Bench) -> None:
    home, other = bench.home(), bench.home()
    second = [
        *(sys.executable, "-m", "gateway_api.cli.core", "lab"),
        *("--socket", str(other / "s"), "--sessions", "0"),
        *("--configuration", str(home / "configuration"), "--factory", str(bench.factory)),
    ]
    with running_core(home / "s", bench.factory, "--sessions", "0"):
        refused = subprocess.run(second, capture_output=True, text=True, timeout=60, check=False)
        assert refused.returncode == 1
        assert re.fullmatch(
            r'time=.* message="cannot start the core daemon: another core .*"\n', refused.stderr
        )
        assert not (other / "s").exists()
        client = Client(home / "s", timeout=30)
        client.call(f"{INTERFACE}.EditCandidate", EDIT.parameters)
        client.close()
    with bench.core(home) as core:
        assert _number(core.call("GetCandidate")["configuration"]) == 900


def test_a_killed_core_holds_nobody_up(bench: Bench) -> None:
    home = bench.home()
    with running_core(home / "s", bench.factory, "--sessions", "0") as first:
        first.kill()
        first.wait()
        (home / "s").unlink()
        with running_core(home / "s", bench.factory, "--sessions", "0"):
            client = Client(home / "s", timeout=30)
            client.call(f"{INTERFACE}.CommitCandidate", _COMMIT)
            client.close()

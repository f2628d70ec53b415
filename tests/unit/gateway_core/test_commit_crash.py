"""Changes of the configuration that a kill, a power cut or an error of the disk ends at any call to the disk.

The calls of the process to the disk are counted. One of them ends the process, or fails. What is found after
that is the configuration before the change or the one that it makes, and nothing in between.
"""

import errno
import gc
import io
import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from gateway_contract.base.errors import StepFailed
from gateway_contract.core.configuration import Edit
from gateway_core.configuration.store import Unreadable
from gateway_core.configuration.workspace import ChangeRequest, Workspace
from gateway_core.records.changes import Caller
from tests.support.clocks import NOW
from tests.support.core_clock import StillClock
from tests.support.workspaces import commit, opened, stage

CALLS = ("open", "write", "fsync", "close", "mkdir", "rename", "unlink", "rmdir", "listdir", "scandir")
ALICE = ChangeRequest("alice", "why", caller=Caller("tests.change"))


class Killed(BaseException):
    """Stands for SIGKILL: no `except Exception` may stop it."""


class Call(NamedTuple):
    """A call to the disk. `target` is the new name of a rename."""

    name: str
    path: Path
    target: Path | None
    creates_name: bool


@contextmanager
def disk(
    killed_at: int | None = None, fails: Callable[[int], bool] = lambda number: False
) -> Iterator[list[Call]]:
    """The calls of the block to the disk. From number `killed_at` on, none has an effect, but for half of a
    write. Those that `fails` get EIO."""
    calls: list[Call] = []
    open_files: dict[int, Path] = {}

    def counting(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(subject: Any, *more: Any, **options: Any) -> Any:
            number, is_read = len(calls), name == "read"
            path = open_files.get(subject, Path()) if isinstance(subject, int) else Path(subject)
            creates_name = name == "mkdir" or (name == "open" and bool(more[0] & os.O_CREAT))
            calls.append(Call(name, path, more[0] if name == "rename" else None, creates_name))
            if name == "close" and open_files.pop(subject, None):
                real(subject)
            if killed_at is not None and number >= killed_at:
                if name == "write" and number == killed_at:
                    real(subject, more[0][: len(more[0]) // 2])
                raise Killed
            if fails(number):
                raise OSError(errno.EIO, "Input/output error")
            result = None if name == "close" else real(subject, *more, **options)
            if name == "open" and not is_read:
                open_files[result] = path
            return result

        return call

    with pytest.MonkeyPatch.context() as patch:
        for name in CALLS:
            patch.setattr(os, name, counting(name, getattr(os, name)))
        patch.setattr(io, "open", counting("read", io.open))
        try:
            yield calls
        except Killed:
            patch.undo()
            for descriptor in open_files:
                os.close(descriptor)


#: What a workspace has, and what is on its disk. The entity tag comes first.
Seen = tuple[Any, ...]


class Change(NamedTuple):
    """A change with bng3 staged, after a commit of bng2 that waits to be confirmed for some of them."""

    make: Callable[[Workspace], object]
    confirm_seconds: int | None = None
    now: int = NOW


EDITS = [Edit("set", "qos.default_up", "9mbit"), Edit("delete", "bgp")]
CHANGES = {
    "edit": Change(lambda workspace: workspace.edit(EDITS, ALICE)),
    "commit to confirm": Change(lambda workspace: workspace.commit(ALICE, 60)),
    "confirm": Change(lambda workspace: workspace.confirm(ALICE), 60),
    "amend": Change(lambda workspace: workspace.amend(EDITS, ALICE), 60),
    "return": Change(lambda workspace: workspace.revert_if_due(), 60, NOW + 60),
}


class Bench:
    """Folders of configurations; each is new, or the copy of another."""

    def __init__(self, folder: Path, document: dict[str, Any]) -> None:
        self._folder = folder
        self._document = document
        self._made = 0

    def home(self, origin: Path | None = None) -> Path:
        self._made += 1
        home = self._folder / str(self._made) / "configuration"
        if origin is not None:
            shutil.copytree(origin, home)
        return home

    def core(self, home: Path, now: int = NOW) -> AbstractContextManager[Workspace]:
        clock = StillClock()
        clock.now = now
        return opened(home, self._document, clock)

    def seen(self, workspace: Workspace, home: Path) -> Seen:
        snapshot = workspace.snapshot
        archive = [workspace.read_archived(number) for number in range(1, len(snapshot.commits))]
        state, baseline = snapshot.state, None
        if state.deadline is not None:
            file = home / "revisions" / str(state.deadline.baseline) / "configuration.json"
            baseline = json.loads(file.read_bytes())
        noted = None if state.change is None else state.change.action
        return snapshot.etag, snapshot.running.document, snapshot.candidate, archive, baseline, noted

    def found(self, home: Path) -> Seen:
        """What the next start finds there."""
        copy = self.home(home)
        with self.core(copy) as workspace:
            return self.seen(workspace, copy)


class Plain(NamedTuple):
    """A change that nothing disturbs: its calls, and what there is before, in `home`, and after."""

    home: Path
    change: Change
    calls: list[Call]
    before: Seen
    after: Seen


def plain(bench: Bench, name: str) -> Plain:
    home, change = bench.home(), CHANGES[name]
    with bench.core(home) as workspace:
        commit(workspace, "bng2", change.confirm_seconds)
        stage(workspace, "bng3")
    # As a killed commit leaves it.
    shutil.copytree(home / "revisions" / "1", home / "revisions" / "7")
    copy, before = bench.home(home), bench.found(home)
    with bench.core(copy, change.now) as workspace:
        with disk() as calls:
            change.make(workspace)
        after = bench.seen(workspace, copy)
    assert bench.found(copy) == after != before
    return Plain(home, change, calls, before, after)


@pytest.fixture
def bench(tmp_path: Path, document: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> Bench:
    # Slow, and without an effect that could be seen here: the tests look at the order of the calls.
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
    return Bench(tmp_path, document)


@pytest.fixture(params=CHANGES)
def each(request: pytest.FixtureRequest, bench: Bench) -> Plain:
    return plain(bench, request.param)


def test_a_core_killed_at_any_call_of_a_change_has_made_all_of_it_or_nothing(
    each: Plain, bench: Bench
) -> None:
    outcomes = []
    for number, call in enumerate(each.calls):
        if not call.creates_name and call.name not in ("write", "fsync", "rename", "unlink", "rmdir"):
            continue
        home = bench.home(each.home)
        with bench.core(home, each.change.now) as workspace, disk(killed_at=number):
            each.change.make(workspace)
        found = bench.found(home)
        assert found in (each.before, each.after), call
        outcomes.append(found == each.after)
        with bench.core(home, NOW + 60) as workspace:
            workspace.revert_if_due()
            commit(workspace, "afterwards")
            assert workspace.snapshot.running.document["system"]["hostname"] == "afterwards"
    assert outcomes == sorted(outcomes)
    assert set(outcomes) == {False, True}


def unsynced(calls: list[Call]) -> set[Path]:
    """What a power cut after these calls may lose: files for their content, folders for names in them."""
    found: set[Path] = set()
    for call in calls:
        if call.name == "write":
            found.add(call.path)
        elif call.name == "fsync":
            found.discard(call.path)
        elif call.creates_name:
            found.add(call.path.parent)
        elif call.target is not None:
            found = {call.target if path == call.path else path for path in found} | {call.path.parent}
    return found


def test_a_change_is_safe_from_a_power_cut_before_it_counts_and_when_it_is_answered(each: Plain) -> None:
    (counts,) = (number for number, call in enumerate(each.calls) if call.name == "rename")
    state = each.calls[counts].target
    assert state is not None
    assert state.name == "state.json"
    # Only the name of the draft, which is about to be another one.
    assert unsynced(each.calls[:counts]) == {state.parent}
    assert unsynced(each.calls) == set()


def test_a_first_start_is_safe_from_a_kill_at_any_call_and_from_a_power_cut(bench: Bench) -> None:
    home = bench.home()
    with disk() as calls, bench.core(home) as workspace:
        after = bench.seen(workspace, home)
    made = [call.path.name for call in calls if call.name == "mkdir"]
    assert made[1:] == ["configuration", "revisions", "1"]
    assert unsynced(calls) == set()
    for number in range(len(calls)):
        home = bench.home()
        with disk(killed_at=number), bench.core(home):
            pass
        with bench.core(home) as workspace:
            # Until its first start is over, a core has another key for entity tags each time.
            assert bench.seen(workspace, home)[1:] == after[1:], calls[number]


def test_a_change_at_any_call_of_which_the_disk_fails_is_refused_and_can_be_made_again(
    each: Plain, bench: Bench
) -> None:
    # Earlier tests left files open in what nobody uses any more.
    gc.collect()
    descriptors = len(list(Path("/dev/fd").iterdir()))
    for number, call in enumerate(each.calls):
        if call.name == "read" and (each.change is CHANGES["return"] or call.path.name == "commit.json"):
            # What cannot be read is lost: a configuration that cannot return then, or who made it.
            continue
        home = bench.home(each.home)
        with bench.core(home, each.change.now) as workspace:
            with (
                disk(fails=lambda now, number=number: now == number),
                pytest.raises((StepFailed, Unreadable)),
            ):
                each.change.make(workspace)
            assert bench.seen(workspace, home) == bench.found(home) == each.before, call
            each.change.make(workspace)
            assert bench.seen(workspace, home) == bench.found(home) == each.after, call
    assert len(list(Path("/dev/fd").iterdir())) <= descriptors

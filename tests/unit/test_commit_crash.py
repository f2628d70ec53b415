"""Changes of the configuration that a kill, a power cut or an error of the disk ends at any call to the disk.

The calls of the process to the disk are counted. One of them ends the process, or fails. What is found after
that is the configuration before the change or the one that it makes, and nothing in between.
"""

import errno
import io
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from gateway_api.base.errors import StepFailed
from gateway_api.core.configuration.running import RunningConfiguration
from gateway_api.core.configuration.store import Commit, ConfigurationStore, Unreadable
from gateway_api.core.configuration.workspace import ChangeRequest, Workspace
from gateway_api.core.gateways.lab.gateway import LabServices
from gateway_api.core.records.changes import Caller
from gateway_api.wire.core.configuration import Edit
from tests.support.clocks import NOW, StillClock
from tests.support.workspaces import commit, stage

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
    killed_at: int | None = None, fails: Callable[[int, str], bool] = lambda number, name: False
) -> Iterator[list[Call]]:
    """The calls of the block to the disk. From number `killed_at` on, none has an effect, but for half of a
    write. Those that `fails` get EIO."""
    calls: list[Call] = []
    opened: dict[int, Path] = {}

    def counting(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(subject: Any, *more: Any, **options: Any) -> Any:
            number, is_read = len(calls), name == "read"
            path = opened.get(subject, Path()) if isinstance(subject, int) else Path(subject)
            creates_name = name == "mkdir" or (name == "open" and bool(more[0] & os.O_CREAT))
            calls.append(Call(name, path, more[0] if name == "rename" else None, creates_name))
            if name == "close" and opened.pop(subject, None):
                real(subject)
            if killed_at is not None and number >= killed_at:
                if name == "write" and number == killed_at:
                    real(subject, more[0][: len(more[0]) // 2])
                raise Killed
            if fails(number, name):
                raise OSError(errno.EIO, "Input/output error")
            result = None if name == "close" else real(subject, *more, **options)
            if name == "open" and not is_read:
                opened[result] = path
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
            for descriptor in opened:
                os.close(descriptor)


class Seen(NamedTuple):
    """What a workspace has, and what it found on the disk."""

    etag: str
    running: dict[str, Any]
    candidate: dict[str, Any]
    archive: list[tuple[Commit, dict[str, Any]]]
    baseline: dict[str, Any] | None
    noted: str | None


class Core:
    """The store and the workspace of a core, in a folder of its own."""

    def __init__(self, home: Path, document: dict[str, Any], clock: StillClock) -> None:
        self.store = ConfigurationStore(home)
        self.clock = clock
        self.workspace = Workspace(
            self.store, lambda: RunningConfiguration.of(document), clock, LabServices()
        )

    def seen(self) -> Seen:
        snapshot = self.workspace.snapshot
        archive = [self.workspace.archived(number) for number in range(1, len(snapshot.commits))]
        deadline, change = snapshot.state.deadline, snapshot.state.change
        return Seen(
            snapshot.etag,
            snapshot.running.document,
            snapshot.candidate,
            archive,
            None if deadline is None else self.store.document(deadline.baseline),
            None if change is None else change.action,
        )


class Homes:
    """Folders of configurations, each the copy of another."""

    def __init__(self, folder: Path, document: dict[str, Any]) -> None:
        self._folder = folder
        self._document = document
        self._made = 0

    def new(self, origin: Path | None = None) -> Path:
        self._made += 1
        home = self._folder / str(self._made) / "configuration"
        if origin is not None:
            shutil.copytree(origin, home)
        return home

    @contextmanager
    def core(self, home: Path, now: float = NOW) -> Iterator[Core]:
        core = Core(home, self._document, StillClock(now))
        yield core
        core.store.close()

    def seen(self, home: Path) -> Seen:
        """What the next start finds there."""
        copy = self.new(home)
        with self.core(copy) as core:
            found = core.seen()
        shutil.rmtree(copy.parent)
        return found


@pytest.fixture
def homes(tmp_path: Path, document: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> Homes:
    # Slow, and without an effect that could be seen here: the tests look at the order of the calls.
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
    return Homes(tmp_path, document)


class Change(NamedTuple):
    """A change, after a commit of bng2 that waits to be confirmed for some of them, and with bng3 staged."""

    make: Callable[[Core], object]
    confirm_seconds: int | None = None


def come_back(core: Core) -> None:
    core.clock.now = NOW + 60
    core.workspace.return_if_due()


EDITS = [Edit("set", "qos.default_up", "9mbit"), Edit("delete", "bgp")]
CHANGES = {
    "edit": Change(lambda core: core.workspace.edit(EDITS, ALICE)),
    "discard": Change(lambda core: core.workspace.discard(ALICE)),
    "rollback": Change(lambda core: core.workspace.rollback(1, ALICE)),
    "commit": Change(lambda core: core.workspace.commit(ALICE)),
    "commit to confirm": Change(lambda core: core.workspace.commit(ALICE, 60)),
    "another commit to confirm": Change(lambda core: core.workspace.commit(ALICE, 60), 60),
    "confirm": Change(lambda core: core.workspace.confirm(ALICE), 60),
    "amend": Change(lambda core: core.workspace.amend(EDITS, ALICE), 60),
    "restore": Change(lambda core: core.workspace.restore(1, ALICE)),
    "return": Change(come_back, 60),
}


class Plain(NamedTuple):
    """A change that nothing disturbs: its calls, and what there was before, in `home`, and after."""

    home: Path
    change: Change
    calls: list[Call]
    before: Seen
    after: Seen


def plain(homes: Homes, name: str) -> Plain:
    home, change = homes.new(), CHANGES[name]
    with homes.core(home) as core:
        commit(core.workspace, "bng2", change.confirm_seconds)
        stage(core.workspace, "bng3")
    # As a killed commit leaves it.
    shutil.copytree(home / "revisions" / "1", home / "revisions" / "7")
    copy, before = homes.new(home), homes.seen(home)
    with homes.core(copy) as core:
        with disk() as calls:
            change.make(core)
        after = core.seen()
    assert homes.seen(copy) == after != before
    return Plain(home, change, calls, before, after)


@pytest.fixture(params=CHANGES)
def each(request: pytest.FixtureRequest, homes: Homes) -> Plain:
    return plain(homes, request.param)


def test_a_core_killed_at_any_call_of_a_change_has_made_all_of_it_or_nothing(
    each: Plain, homes: Homes
) -> None:
    outcomes = []
    for number in range(len(each.calls)):
        home = homes.new(each.home)
        with homes.core(home) as core, disk(killed_at=number):
            each.change.make(core)
        found = homes.seen(home)
        assert found in (each.before, each.after), each.calls[number]
        outcomes.append(found == each.after)
        with homes.core(home, NOW + 60) as core:
            core.workspace.return_if_due()
            commit(core.workspace, "afterwards")
            assert core.seen().running["system"]["hostname"] == "afterwards"
    assert outcomes == sorted(outcomes)
    assert set(outcomes) == {False, True}


def test_a_core_killed_at_any_call_of_its_first_start_starts_again(homes: Homes) -> None:
    with disk() as calls, homes.core(homes.new()) as core:
        after = core.seen()
    for number in range(len(calls)):
        home = homes.new()
        with disk(killed_at=number), homes.core(home):
            pass
        with homes.core(home) as core:
            # Until its first start is over, a core has another key for entity tags each time.
            assert core.seen()[1:] == after[1:], calls[number]


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


def test_a_first_start_is_safe_from_a_power_cut_with_the_folders_that_it_makes(homes: Homes) -> None:
    with disk() as calls, homes.core(homes.new()):
        pass
    assert [call.path.name for call in calls if call.name == "mkdir"] == [
        "1",
        "configuration",
        "revisions",
        "1",
    ]
    assert unsynced(calls) == set()


def is_refused(plain: Plain, core: Core) -> bool:
    try:
        plain.change.make(core)
    except (StepFailed, Unreadable):
        return True
    return False


def test_a_change_at_any_call_of_which_the_disk_fails_is_refused_and_can_be_made_again(
    each: Plain, homes: Homes
) -> None:
    descriptors = len(list(Path("/dev/fd").iterdir()))
    for number, call in enumerate(each.calls):
        if call.name == "read" and (each.change.make is come_back or call.path.name == "commit.json"):
            # What cannot be read is lost: a configuration that cannot return then, or who made it.
            continue
        home = homes.new(each.home)
        with homes.core(home) as core:
            with disk(fails=lambda now, name, number=number: now == number):
                refused = is_refused(each, core)
            assert refused, call
            assert core.seen() == homes.seen(home) == each.before, call
            each.change.make(core)
            assert core.seen() == homes.seen(home) == each.after, call
    assert len(list(Path("/dev/fd").iterdir())) == descriptors


@pytest.mark.parametrize("name", ["commit to confirm", "confirm"])
def test_a_disk_that_keeps_failing_never_costs_the_configuration(name: str, homes: Homes) -> None:
    """From one call on, all of its name fail, also those that undo the change. When the disk is well again,
    the next attempt is killed."""
    one = plain(homes, name)
    mkdir = next((number for number, call in enumerate(one.calls) if call.name == "mkdir"), 0)
    for number, call in enumerate(one.calls):
        home = homes.new(one.home)
        with homes.core(home) as core:
            with disk(fails=lambda now, name, at=(number, call.name): now >= at[0] and name == at[1]):
                assert is_refused(one, core), call
            assert core.seen() == one.before, call
            with disk(killed_at=mkdir):
                one.change.make(core)
        assert homes.seen(home) in (one.before, one.after), call

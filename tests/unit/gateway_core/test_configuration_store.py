"""Configurations on disk: what counts, what stays, and what is left when the disk refuses."""

import errno
import json
import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from gateway_contract.base import durable
from gateway_contract.base.errors import StepFailed
from gateway_core.configuration.store import Commit, ConfigurationStore, Deadline, State, Unreadable
from tests.support.workspaces import no_file_longer_than

COMMIT = Commit(1_700_000_000, "admin", "as it was")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "configuration"


@pytest.fixture
def store(folder: Path) -> Iterator[ConfigurationStore]:
    with opened(folder) as made:
        yield made


@contextmanager
def opened(folder: Path) -> Iterator[ConfigurationStore]:
    store = ConfigurationStore(folder)
    try:
        yield store
    finally:
        store.close()


def state_in(folder: Path) -> State | None:
    """As the next start would find it."""
    with opened(folder) as store:
        return store.state


def added(store: ConfigurationStore, **document: Any) -> int:
    return store.add(document, COMMIT)


def published(store: ConfigurationStore, *archive: int, **more: Any) -> int:
    """A new revision that counts."""
    number = added(store, **more)
    store.publish(State(running=number, archive=archive), "publish")
    return number


def revisions(folder: Path) -> set[str]:
    return {entry.name for entry in (folder / "revisions").iterdir()}


def unreadable(folder: Path) -> str:
    with pytest.raises(Unreadable) as refused:
        ConfigurationStore(folder)
    return str(refused.value)


# What counts.


def test_in_a_new_folder_nothing_counts(store: ConfigurationStore) -> None:
    assert store.state is None


def test_the_folder_is_made_with_all_above_it(tmp_path: Path) -> None:
    with opened(tmp_path / "var" / "lib" / "configuration") as store:
        assert published(store) == 1


def test_a_revision_is_what_was_added(store: ConfigurationStore) -> None:
    document = {"system": {"hostname": "bng1"}, "list": [1, True, None, "\u00e9 \U0001f600"], "empty": {}}
    number = store.add(document, COMMIT)
    assert store.read_document(number) == document
    assert store.read_commit(number) == COMMIT


def test_a_commit_without_a_comment_is_read_as_it_was(store: ConfigurationStore) -> None:
    commit = Commit(0, "core", None)
    assert store.read_commit(store.add({}, commit)) == commit


def test_a_revision_survives_a_restart(folder: Path) -> None:
    with opened(folder) as store:
        number = published(store, system={"hostname": "bng1"})
    with opened(folder) as store:
        assert store.read_document(number) == {"system": {"hostname": "bng1"}}
        assert store.read_commit(number) == COMMIT


def test_a_revision_does_not_count_before_it_is_published(folder: Path) -> None:
    with opened(folder) as store:
        added(store)
        assert store.state is None
    assert state_in(folder) is None


@pytest.mark.parametrize(
    "state",
    [
        State(running=1),
        State(running=1, candidate={}),
        State(running=1, candidate={"system": {"hostname": "bng2"}, "bgp": None}),
        State(running=1, deadline=Deadline(at=1_700_000_300, baseline=1)),
        State(running=1, archive=(1,), candidate={"api": {}}, deadline=Deadline(at=0, baseline=1)),
    ],
)
def test_what_is_published_counts_at_once_and_after_a_restart(folder: Path, state: State) -> None:
    with opened(folder) as store:
        assert added(store) == 1
        store.publish(state, "publish")
        assert store.state == state
    assert state_in(folder) == state


def test_what_was_published_last_counts(folder: Path) -> None:
    with opened(folder) as store:
        number = published(store)
        for hostname in ("long" * 1000, "short"):
            last = State(number, candidate={"system": {"hostname": hostname}})
            store.publish(last, "publish")
    assert state_in(folder) == last


# What stays.


def test_a_revision_that_nothing_names_is_removed_when_the_next_is_added(
    store: ConfigurationStore, folder: Path
) -> None:
    published(store)
    assert added(store) == 2
    assert revisions(folder) == {"1", "2"}
    assert added(store) == 3
    assert revisions(folder) == {"1", "3"}


def test_before_the_first_commit_nothing_is_named(store: ConfigurationStore, folder: Path) -> None:
    added(store)
    added(store)
    assert revisions(folder) == {"2"}


def test_what_runs_and_what_is_archived_stays(store: ConfigurationStore, folder: Path) -> None:
    first = published(store, number=1)
    second = published(store, first, number=2)
    third = published(store, second, first, number=3)
    added(store)
    assert revisions(folder) == {"1", "2", "3", "4"}
    assert [store.read_document(number)["number"] for number in (first, second, third)] == [1, 2, 3]


def test_what_the_archive_has_no_room_for_is_removed(store: ConfigurationStore, folder: Path) -> None:
    first = published(store)
    second = published(store, first)
    published(store, second)
    assert revisions(folder) == {"1", "2", "3"}
    added(store)
    assert revisions(folder) == {"2", "3", "4"}


def test_what_a_deadline_brings_back_stays_beyond_the_archive(folder: Path) -> None:
    with opened(folder) as store:
        baseline = published(store, system={"hostname": "baseline"})
        running = added(store)
        store.publish(State(running, deadline=Deadline(at=1_700_000_300, baseline=baseline)), "publish")
        for _ in range(3):
            running = added(store)
            store.publish(State(running, deadline=Deadline(at=1_700_000_300, baseline=baseline)), "publish")
    with opened(folder) as store:
        added(store)
        assert store.read_document(baseline) == {"system": {"hostname": "baseline"}}


def test_what_a_deadline_that_is_over_had_named_is_removed(store: ConfigurationStore, folder: Path) -> None:
    baseline = published(store)
    running = added(store)
    store.publish(State(running, deadline=Deadline(at=1_700_000_300, baseline=baseline)), "publish")
    store.publish(State(running), "publish")
    added(store)
    assert revisions(folder) == {"2", "3"}


def test_a_number_is_never_given_twice(store: ConfigurationStore) -> None:
    numbers = [added(store) for _ in range(3)]
    numbers.append(published(store))
    numbers += [added(store) for _ in range(3)]
    assert numbers == [1, 2, 3, 4, 5, 6, 7]


def test_a_number_that_counts_is_not_given_again_after_a_restart(folder: Path) -> None:
    with opened(folder) as store:
        first = published(store, number=1)
        second = published(store, first, number=2)
    with opened(folder) as store:
        assert added(store) > second
        assert [store.read_document(number)["number"] for number in (first, second)] == [1, 2]


def test_what_a_power_cut_left_of_a_revision_is_removed(folder: Path) -> None:
    with opened(folder) as store:
        published(store, number=1)
    (folder / "revisions" / "2" / "services").mkdir(parents=True)
    (folder / "revisions" / "2" / "configuration.json").write_text('{"num')
    with opened(folder) as store:
        number = added(store)
        assert revisions(folder) == {"1", str(number)}
        assert store.read_document(1) == {"number": 1}


def test_what_a_power_cut_left_of_a_state_does_not_count(folder: Path) -> None:
    with opened(folder) as store:
        number = published(store)
    (folder / ".state.json.new").write_text("half of something much longer than the whole" * 100)
    assert state_in(folder) == State(number)
    with opened(folder) as store:
        store.publish(State(number, candidate={}), "publish")
    assert state_in(folder) == State(number, candidate={})


def test_what_is_no_revision_is_left_alone(folder: Path) -> None:
    with opened(folder) as store:
        published(store)
    (folder / "revisions" / "lost+found").mkdir()
    with opened(folder) as store:
        added(store)
        added(store)
    assert "lost+found" in revisions(folder)


# The users that may see it, and those that may keep it.


@pytest.fixture
def generous_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.mark.usefixtures("generous_umask")
def test_only_the_owner_may_read_the_files(folder: Path) -> None:
    with opened(folder) as store:
        published(store)
    modes = {path: stat.S_IMODE(path.stat().st_mode) for path in folder.rglob("*") if path.is_file()}
    assert len(modes) == 3
    assert {path.name for path, mode in modes.items() if mode != 0o600} == set()


@pytest.mark.usefixtures("generous_umask")
def test_only_the_owner_may_enter_the_folders(folder: Path) -> None:
    with opened(folder) as store:
        number = published(store)
        folders = [folder, *(path for path in folder.rglob("*") if path.is_dir())]
        assert folder / "revisions" / str(number) in folders
    open_to_others = [path for path in folders if stat.S_IMODE(path.stat().st_mode) != 0o700]
    assert [str(path.relative_to(folder)) for path in open_to_others] == []


def test_two_stores_cannot_keep_one_folder(store: ConfigurationStore, folder: Path) -> None:
    assert str(folder) in unreadable(folder)
    assert "another core" in unreadable(folder)
    assert published(store) == 1


def test_a_store_in_another_process_cannot_keep_it_either(folder: Path) -> None:
    code = "import sys; from pathlib import Path; from gateway_core.configuration import store; "
    code += "store.ConfigurationStore(Path(sys.argv[1])); print('kept', flush=True); sys.stdin.read()"
    arguments = [sys.executable, "-c", code, str(folder)]
    with subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "kept\n"
        assert "another core" in unreadable(folder)
        other.kill()
        other.wait(10)
        assert state_in(folder) is None


def test_a_folder_can_be_kept_by_another_after_close(folder: Path) -> None:
    for number in (1, 2):
        with opened(folder) as store:
            assert published(store, number - 1) == number


# What can't be read.


@pytest.mark.parametrize(
    "content",
    [
        *(b"", b"{", b"[]", b"null", b"1", b'"text"', b"\xff", b"\x00", b"{}", b'{"running": 1'),
        *(b'{"running": "1"}', b'{"running": null}', b'{"running": 1.5}', b'{"running": 1, "more": 1}'),
        *(b'{"running": 1, "archive": 1}', b'{"running": 1, "archive": ["1"]}', b'{"running": 1} {}'),
        *(b'{"running": 1, "candidate": []}', b'{"running": 1, "deadline": {"at": 1}}'),
        *(b'{"running": 1, "deadline": 1}', b"[" * 100_000, b'{"running": 1, "candidate": {"\xff": 1}}'),
    ],
    ids=lambda content: content[:40].decode("latin-1"),
)
def test_a_broken_state_is_named_by_its_file(folder: Path, content: bytes) -> None:
    with opened(folder) as store:
        published(store)
    (folder / "state.json").write_bytes(content)
    assert str(folder / "state.json") in unreadable(folder)


def test_a_broken_state_stays_for_somebody_to_look_at(folder: Path) -> None:
    with opened(folder) as store:
        published(store)
    (folder / "state.json").write_text("{")
    unreadable(folder)
    assert (folder / "state.json").read_text() == "{"
    assert revisions(folder) == {"1"}


def test_a_folder_that_could_not_be_read_can_be_kept_once_it_is_mended(folder: Path) -> None:
    with opened(folder) as store:
        number = published(store)
    (folder / "state.json").write_text("{")
    unreadable(folder)
    (folder / "state.json").write_text(f'{{"running": {number}}}')
    assert state_in(folder) == State(number)


def test_a_state_that_is_a_folder_is_unreadable(folder: Path) -> None:
    (folder / "state.json").mkdir(parents=True)
    assert str(folder / "state.json") in unreadable(folder)


@pytest.mark.parametrize("below", [".", "configuration"])
def test_a_file_in_the_place_of_a_folder_is_unreadable(tmp_path: Path, below: str) -> None:
    (tmp_path / "file").write_text("")
    assert str(tmp_path / "file") in unreadable(tmp_path / "file" / below)


@pytest.mark.parametrize("content", [None, "", "[]", '{"author": 1}['])
def test_a_broken_revision_is_named_by_its_file(
    store: ConfigurationStore, folder: Path, content: str | None
) -> None:
    number = published(store)
    file = folder / "revisions" / str(number) / "configuration.json"
    file.unlink()
    if content is not None:
        file.write_text(content)
    with pytest.raises(Unreadable) as refused:
        store.read_document(number)
    assert str(file) in str(refused.value)


# When the disk refuses.


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own, of 256 KiB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(disk)]
    if not shutil.which("mount") or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("nothing can be mounted here")
    yield disk
    subprocess.run(["umount", str(disk)], check=True)


def fill(disk: Path) -> None:
    """Until nothing more goes onto it."""
    with (disk / "filler").open("wb", buffering=0) as filler, pytest.raises(OSError) as refused:
        while True:
            filler.write(bytes(4096))
    assert refused.value.errno == errno.ENOSPC


def read_only(disk: Path) -> None:
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)


def failed(step: Callable[[], object]) -> StepFailed:
    with pytest.raises(StepFailed) as refused:
        step()
    return refused.value


def test_a_revision_that_finds_no_room_fails_by_its_step_and_reason(small_disk: Path) -> None:
    with opened(small_disk / "configuration") as store:
        published(store)
        fill(small_disk)
        error = failed(lambda: added(store))
        assert (error.step, error.reason) == ("write the revision", "No space left on device")
        assert str(error) == "cannot write the revision: No space left on device"


def test_a_state_that_finds_no_room_fails_by_its_step_and_reason(small_disk: Path) -> None:
    with opened(small_disk / "configuration") as store:
        number = published(store)
        fill(small_disk)
        error = failed(lambda: store.publish(State(number, candidate={}), "store the candidate"))
        assert str(error) == "cannot store the candidate: No space left on device"


def test_on_a_full_disk_what_counted_still_does(small_disk: Path) -> None:
    folder = small_disk / "configuration"
    with opened(folder) as store:
        number = published(store, number=1)
        before = State(number, candidate={"system": {"hostname": "bng2"}})
        store.publish(before, "publish")
        fill(small_disk)
        failed(lambda: added(store))
        failed(lambda: store.publish(State(number), "publish"))
        assert store.state == before
    with opened(folder) as store:
        assert store.state == before
        assert store.read_document(number) == {"number": 1}


def test_on_a_full_disk_there_is_no_first_commit(small_disk: Path) -> None:
    folder = small_disk / "configuration"
    with opened(folder) as store:
        number = added(store)
        fill(small_disk)
        failed(lambda: store.publish(State(number), "publish"))
        assert store.state is None
    assert state_in(folder) is None


def test_once_there_is_room_again_commits_succeed_and_nothing_is_left_behind(small_disk: Path) -> None:
    folder = small_disk / "configuration"
    with opened(folder) as store:
        first = published(store)
        fill(small_disk)
        for _ in range(3):
            failed(lambda: added(store))
        failed(lambda: store.publish(State(first, candidate={}), "publish"))
        (small_disk / "filler").unlink()
        number = published(store, first, number="new")
        assert revisions(folder) == {str(first), str(number)}
        assert number > first + 1
    assert state_in(folder) == State(number, (first,))


def test_many_commits_fit_on_a_small_disk(small_disk: Path) -> None:
    with opened(small_disk / "configuration") as store:
        numbers = [published(store, blob="x" * 30_000) for _ in range(12)]
    assert numbers == list(range(1, 13))


def test_a_disk_that_cannot_be_written_to_keeps_old_revisions(small_disk: Path) -> None:
    folder = small_disk / "configuration"
    with opened(folder) as store:
        number = published(store)
        added(store)
        read_only(small_disk)
        error = failed(lambda: added(store))
        assert str(error) == "cannot remove old revisions: Read-only file system"
        failed(lambda: store.publish(State(number, candidate={}), "publish"))
        assert store.state == State(number)


@pytest.mark.parametrize("size", [0, 1, 100])
def test_a_revision_that_is_cut_off_fails_and_does_not_count(folder: Path, size: int) -> None:
    with opened(folder) as store:
        number = published(store, number=1)
        with no_file_longer_than(size):
            error = failed(lambda: store.add({"text": "x" * 1000}, COMMIT))
        assert (error.step, error.reason) == ("write the revision", "File too large")
        assert store.state == State(number)
    assert state_in(folder) == State(number)


@pytest.mark.parametrize("size", [0, 1, 100])
def test_a_state_that_is_cut_off_fails_and_does_not_count(folder: Path, size: int) -> None:
    with opened(folder) as store:
        number = published(store)
        with no_file_longer_than(size):
            error = failed(lambda: store.publish(State(number, candidate={"text": "x" * 1000}), "publish"))
        assert (error.step, error.reason) == ("publish", "File too large")
        assert store.state == State(number)
    assert state_in(folder) == State(number)


def test_a_state_whose_name_is_not_synced_is_not_found_by_the_next_start(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(_: Path) -> None:
        monkeypatch.undo()
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with opened(folder) as store:
        number = published(store)
        monkeypatch.setattr(durable, "sync", refused)
        error = failed(lambda: store.publish(State(number, candidate={}), "publish"))
        assert str(error) == "cannot publish: Input/output error"
        assert store.state == State(number)
    assert state_in(folder) == State(number)


def test_a_number_of_a_revision_that_failed_is_not_given_again(store: ConfigurationStore) -> None:
    published(store)
    with no_file_longer_than(0):
        failed(lambda: added(store))
    assert added(store) == 3


def test_an_error_of_the_disk_has_no_path_and_nothing_of_the_document(
    store: ConfigurationStore, folder: Path
) -> None:
    with no_file_longer_than(0):
        error = failed(lambda: store.add({"secret": "hunter2"}, COMMIT))
    for text in (str(error), error.reason, error.step):
        assert "hunter2" not in text
        assert str(folder.parent) not in text
        assert "/" not in text


# Files that a power cut leaves whole.

OBSERVED = {"write", "fsync", "rename", "replace", "mkdir"}


@contextmanager
def observed() -> Iterator[list[str]]:
    """The calls of the operating system that matter after a power cut, in their order."""
    calls: list[str] = []

    def note(_frame: object, event: str, function: Any) -> None:
        if event == "c_call" and function.__module__ == "posix" and function.__name__ in OBSERVED:
            calls.append(function.__name__)

    sys.setprofile(note)
    try:
        yield calls
    finally:
        sys.setprofile(None)


def test_a_file_is_synced_before_it_gets_its_name_and_its_folder_after(tmp_path: Path) -> None:
    with observed() as calls:
        durable.replace(tmp_path / "state.json", b"{}")
    assert calls == ["write", "fsync", "rename", "fsync"]


def test_all_files_and_folders_of_a_revision_are_synced_before_it_may_count(
    store: ConfigurationStore,
) -> None:
    with observed() as calls:
        added(store)
    assert [calls[place + 1] for place, call in enumerate(calls) if call == "write"] == ["fsync"] * 2
    # The rest are of the folders: the revision's, and the one of all revisions.
    assert calls.count("fsync") == 2 + 2
    assert calls[-1] == "fsync"


@pytest.mark.parametrize("data", [b"", b"x", b"\x00\xff\n", b"x" * 3_000_000])
def test_a_file_holds_what_was_written(tmp_path: Path, data: bytes) -> None:
    durable.write(tmp_path / "new", data)
    durable.write(tmp_path / "old", b"something longer" * 10)
    durable.replace(tmp_path / "old", data)
    assert (tmp_path / "new").read_bytes() == data
    assert (tmp_path / "old").read_bytes() == data


def test_a_file_that_is_replaced_leaves_no_draft(tmp_path: Path) -> None:
    for content in (b"old", b"new"):
        durable.replace(tmp_path / "state.json", content)
    assert [path.name for path in tmp_path.iterdir()] == ["state.json"]


def test_a_file_that_cannot_be_replaced_is_as_it_was(tmp_path: Path) -> None:
    durable.replace(tmp_path / "state.json", b"old")
    with no_file_longer_than(1), pytest.raises(OSError, match="File too large"):
        durable.replace(tmp_path / "state.json", b"new")
    assert (tmp_path / "state.json").read_bytes() == b"old"
    assert [path.name for path in tmp_path.iterdir()] == ["state.json"]


def test_a_file_on_disk_can_be_read_by_people(store: ConfigurationStore, folder: Path) -> None:
    number = store.add({"system": {"hostname": "bng1"}}, COMMIT)
    text = (folder / "revisions" / str(number) / "configuration.json").read_text()
    assert text == json.dumps({"system": {"hostname": "bng1"}}, indent=2) + "\n"


def test_revisions_that_no_state_names_are_not_taken_for_a_first_start(tmp_path: Path) -> None:
    store = ConfigurationStore(tmp_path)
    for number in (1, 2):
        added = store.add({"number": number}, Commit(1, "admin", None))
        store.publish(State(running=added, archive=tuple(range(added - 1, 0, -1))), "publish")
    store.close()
    (tmp_path / "state.json").unlink()
    with pytest.raises(Unreadable, match=r"no state\.json"):
        ConfigurationStore(tmp_path)
    assert {entry.name for entry in (tmp_path / "revisions").iterdir()} == {"1", "2"}

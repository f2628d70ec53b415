"""The log of the changes that the API didn't make, and what is staged on top of such a change."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gateway_core.configuration.documents import merge
from gateway_core.records.changes import Caller, ChangeLog, Note

NOW = 1_700_000_000


def note(action: str = "subscribers.disconnect", **more: Any) -> Note:
    return Note.of(Caller(action), NOW, **more)


def actions(log: ChangeLog, after: int = 0) -> list[str]:
    return [change.action for change in log.read_after("log", after).changes]


def test_changes_are_numbered_told_from_a_place_on_and_outlive_the_process(tmp_path: Path) -> None:
    log = ChangeLog(tmp_path / "changes", "log")
    assert log.read_after(None, 0).newest == 0
    for action in ("a.a", "b.b", "c.c"):
        log.add(note(action))
    for held in (log, ChangeLog(tmp_path / "changes", "log")):
        told = held.read_after("log", 1)
        assert [(change.sequence, change.action) for change in told.changes] == [(2, "b.b"), (3, "c.c")]
        assert (told.log, told.oldest, told.newest) == ("log", 1, 3)
        # Another log is told whole, and of what has not happened nothing.
        assert [change.sequence for change in held.read_after("another", 7).changes] == [1, 2, 3]
        assert held.read_after("log", 99).changes == ()


def test_a_damaged_log_is_set_aside_and_a_new_one_begun(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ChangeLog(tmp_path, "log").add(note("a.a"))
    (file,) = tmp_path.iterdir()
    file.write_bytes(b"x" * 8192)
    log = ChangeLog(tmp_path, "log")
    log.add(note("b.b"))
    assert actions(log) == ["b.b"]
    assert "the damaged file" in caplog.text
    assert (tmp_path / "changes.sqlite.damaged").read_bytes() == b"x" * 8192


@pytest.mark.parametrize("harm", [Path.unlink, lambda path: path.write_bytes(b"x" * 8192)])
def test_a_log_that_is_harmed_while_it_is_in_use_keeps_what_comes_after_under_new_numbers(
    tmp_path: Path, harm: Callable[[Path], object]
) -> None:
    log = ChangeLog(tmp_path, "log")
    for action in ("a.a", "b.b"):
        log.add(note(action))
    harm(tmp_path / "changes.sqlite")
    told = log.read_after("log", 2)
    assert (told.newest, told.changes) == (2, ())
    log.add(note("c.c"))
    for held in (log, ChangeLog(tmp_path, "log")):
        assert [(change.sequence, change.action) for change in held.read_after("log", 2).changes] == [
            (3, "c.c")
        ]


def test_a_change_that_was_settled_is_not_kept_twice_whatever_came_after_it(tmp_path: Path) -> None:
    log = ChangeLog(tmp_path / "changes", "log")
    settled = note("configuration.commit")
    log.add_once(settled)
    for _ in range(30):
        log.add(note())
    again = ChangeLog(tmp_path / "changes", "log")
    again.add_once(settled)
    assert again.read_after("log", 0).newest == 31


def test_what_a_disk_refuses_is_told_once_it_is_written(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "changes"
    log = ChangeLog(folder, "log")
    folder.write_bytes(b"in the way")
    log.add(note("a.a"))
    assert "cannot log 1 changes on disk, they stay in memory; the last change is a.a by core" in caplog.text
    assert actions(log) == []
    folder.unlink()
    assert actions(log) == ["a.a"]
    assert actions(ChangeLog(folder, "log")) == ["a.a"]


def test_what_is_kept_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway_core.records.changes.MAX_CHANGES", 10)
    log = ChangeLog(tmp_path / "changes", "log")
    for number in range(25):
        log.add(note(f"a.{'ab'[number % 2]}", before={"text": "x" * 10_000}))
    told = log.read_after("log", 3)
    assert (told.oldest, told.newest, told.changes[0].sequence) == (16, 25, 16)
    assert told.changes[0].before is not None
    assert told.changes[0].before["cut"]
    assert ChangeLog(tmp_path / "changes", "log").read_after("log", 0).oldest == 16


# What is staged, on top of what runs


BASE: dict[str, Any] = {
    "system": {"hostname": "a"},
    "qos": {"default_down": "1mbit", "default_up": "1mbit"},
    "interfaces": {"trunks": ["t0"]},
    "api": {
        "enabled": False,
        "users": [{"username": "x", "role": "admin"}, {"username": "y", "role": "admin"}],
    },
}


X, Y = BASE["api"]["users"]
OTHER_X, Z = {"username": "x", "role": "operator"}, {"username": "z", "role": "operator"}


@pytest.mark.parametrize(
    ("part", "ours", "theirs", "together"),
    [
        ("system", {"hostname": "a"}, {"hostname": "b"}, {"hostname": "b"}),
        ("system", {"hostname": "b"}, {"hostname": "a"}, {"hostname": "b"}),
        ("system", {"hostname": "b"}, {"hostname": "c"}, {"hostname": "b"}),
        (
            "qos",
            {"default_down": "2mbit", "default_up": "1mbit"},
            {"default_down": "1mbit", "default_up": "2mbit"},
            {"default_down": "2mbit", "default_up": "2mbit"},
        ),
        ("qos", {"default_up": "1mbit"}, {**BASE["qos"], "default_up": "2mbit"}, {"default_up": "2mbit"}),
        ("interfaces", {"trunks": ["t1"]}, {"trunks": ["t2"]}, {"trunks": ["t1"]}),
        (
            "api",
            {"enabled": False, "users": [X, Z]},
            {"enabled": True, "users": [OTHER_X, Y]},
            {"enabled": True, "users": [OTHER_X, Z]},
        ),
    ],
)
def test_what_two_have_changed_is_joined_value_by_value_and_item_by_item(
    part: str, ours: Any, theirs: Any, together: Any
) -> None:
    joined = merge(BASE, {**BASE, part: ours}, {**BASE, part: theirs})
    assert joined == {**BASE, part: together}

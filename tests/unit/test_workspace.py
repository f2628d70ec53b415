"""What becomes of a workspace when things go wrong around it; `test_configuration_model` has the rest."""

import shutil
import threading
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gateway_api.base.errors import Invalid, Stale, StepFailed
from gateway_api.core.configuration.running import LARGEST
from gateway_api.core.configuration.workspace import ChangeRequest, Workspace
from gateway_api.wire.core.configuration import Edit
from tests.support.clocks import NOW, StillClock
from tests.support.workspaces import ADMIN, CheckedServices, commit, no_file_longer_than, opened, stage

HOUR, DAY, YEAR = 3_600, 86_400, 365 * 86_400


def test_while_a_commit_takes_long_all_can_be_read_and_another_change_is_refused(
    tmp_path: Path, document: dict[str, Any]
) -> None:
    entered, go_on = threading.Event(), threading.Event()

    def slow() -> None:
        entered.set()
        assert go_on.wait(30)

    go_on.set()
    with opened(tmp_path, document, StillClock(), CheckedServices(slow)) as workspace:
        commit(workspace, "bng2")
        stage(workspace, "bng3")
        entered.clear()
        go_on.clear()
        under_way = threading.Thread(target=workspace.commit, args=(ADMIN,))
        under_way.start()
        assert entered.wait(30)
        assert len(workspace.snapshot.commits[1:]) == 1
        assert workspace.archived(1)[1] == document
        assert workspace.compare(1).diff
        with pytest.raises(StepFailed, match="wait for the change under way"):
            stage(workspace, "bng4")
        go_on.set()
        under_way.join(30)
        assert workspace.snapshot.running.document["system"]["hostname"] == "bng3"
        assert workspace.snapshot.candidate["system"]["hostname"] == "bng3"


def test_a_commit_that_comes_after_the_deadline_of_another_is_refused_for_a_second_look(
    tmp_path: Path, document: dict[str, Any]
) -> None:
    clock = StillClock()
    with opened(tmp_path, document, clock) as workspace:
        commit(workspace, "bng2", confirm_seconds=60)
        stage(workspace, "bng3")
        clock.now += 60
        with pytest.raises(Stale):
            workspace.commit(ADMIN)
        assert workspace.snapshot.running.document == document
        assert workspace.snapshot.candidate["system"]["hostname"] == "bng3"


def test_a_configuration_to_return_to_that_is_lost_locks_nobody_out(
    tmp_path: Path, document: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    clock = StillClock()
    with opened(tmp_path, document, clock) as workspace:
        commit(workspace, "bng2", confirm_seconds=60)
        deadline = workspace.snapshot.state.deadline
        assert deadline is not None
        shutil.rmtree(tmp_path / "revisions" / str(deadline.baseline))
        clock.now += 60
        assert not workspace.return_if_due()
        assert "is lost" in caplog.text
        commit(workspace, "bng3")
        assert workspace.snapshot.running.document["system"]["hostname"] == "bng3"


@pytest.mark.parametrize("content", [None, b"", bytes(60)], ids=["missing", "empty", "zeroed"])
def test_a_commit_whose_time_and_author_are_lost_keeps_no_gateway_from_its_start(
    tmp_path: Path, document: dict[str, Any], content: bytes | None, caplog: pytest.LogCaptureFixture
) -> None:
    with opened(tmp_path, document, StillClock()) as workspace:
        commit(workspace, "bng2")
        commit(workspace, "bng3")
        _, second, _ = workspace.snapshot.commits
        oldest = workspace.snapshot.archived(2)
    file = tmp_path / "revisions" / str(oldest) / "commit.json"
    file.unlink()
    if content is not None:
        file.write_bytes(content)
    with opened(tmp_path, document, StillClock()) as workspace:
        assert workspace.snapshot.running.document["system"]["hostname"] == "bng3"
        assert workspace.snapshot.commits[1] == second
        lost, found = workspace.archived(2)
        assert (lost.author, found) == ("unknown", document)
    assert str(file) in caplog.text


def test_an_entity_tag_does_not_tell_what_a_secret_is_not(tmp_path: Path, document: dict[str, Any]) -> None:
    tags = set()
    for folder in ("one", "other"):
        with opened(tmp_path / folder, document, StillClock()) as workspace:
            tags.add(workspace.snapshot.etag)
    assert len(tags) == 2


def test_a_large_configuration_is_edited_in_a_moment(tmp_path: Path, document: dict[str, Any]) -> None:
    document["subscribers"] = {
        "local": [{"username": f"s{number}", "password": "secret"} for number in range(10_000)]
    }
    with opened(tmp_path, document, StillClock()) as workspace:
        began = time.thread_time()
        stage(workspace, "bng2")
        assert workspace.compare(None).diff.endswith('+ system.hostname = "bng2"\n')
        assert time.thread_time() - began < 2


# An unconfirmed commit, and a clock that is set.


def is_undone(workspace: Workspace, document: dict[str, Any]) -> bool:
    workspace.return_if_due()
    return workspace.snapshot.running.document == document


@pytest.mark.parametrize("ahead", [-YEAR, -DAY, -HOUR, HOUR, DAY, YEAR])
def test_a_clock_that_is_set_moves_no_deadline(
    tmp_path: Path, document: dict[str, Any], ahead: float
) -> None:
    clock = StillClock()
    with opened(tmp_path, document, clock) as workspace:
        commit(workspace, "bng2", confirm_seconds=60)
        clock.ahead = ahead
        clock.now += 59
        assert not is_undone(workspace, document)
        clock.now += 1
        assert is_undone(workspace, document)


@pytest.mark.parametrize("ahead", [-YEAR, -DAY, -HOUR, HOUR, DAY, YEAR])
def test_a_core_that_restarts_under_a_clock_that_was_set_keeps_the_deadline(
    tmp_path: Path, document: dict[str, Any], ahead: float
) -> None:
    clock = StillClock()
    with opened(tmp_path, document, clock) as workspace:
        commit(workspace, "bng2", confirm_seconds=60)
    clock.ahead = ahead
    clock.now += 59
    with opened(tmp_path, document, clock) as workspace:
        assert not is_undone(workspace, document)
    clock.now += 1
    with opened(tmp_path, document, clock) as workspace:
        assert is_undone(workspace, document)


@pytest.mark.parametrize("ahead", [-YEAR, -HOUR, 0.0, HOUR, YEAR])
def test_the_deadline_shown_is_by_the_clock_as_it_is_set(
    tmp_path: Path, document: dict[str, Any], ahead: float
) -> None:
    clock = StillClock()
    with opened(tmp_path, document, clock) as workspace:
        commit(workspace, "bng2", confirm_seconds=60)
        assert workspace.compare(None).confirm_deadline == NOW + 60
        clock.now += 10
        clock.ahead = ahead
        assert workspace.compare(None).confirm_deadline == NOW + ahead + 60
        assert not workspace.return_if_due()
        assert workspace.compare(None).confirm_deadline == NOW + ahead + 60


def test_a_reboot_takes_as_long_as_the_clock_says(tmp_path: Path, document: dict[str, Any]) -> None:
    clock = StillClock()
    with opened(tmp_path, document, clock) as workspace:
        commit(workspace, "bng2", confirm_seconds=60)
    clock.now += 50
    clock.reboot()
    with opened(tmp_path, document, clock) as workspace:
        assert workspace.compare(None).confirm_deadline == NOW + 60
        clock.now = NOW + 59
        assert not is_undone(workspace, document)
        clock.now = NOW + 60
        assert is_undone(workspace, document)


@pytest.mark.parametrize("behind", [30, HOUR, DAY, 50 * YEAR])
def test_a_reboot_with_a_clock_that_is_behind_leaves_at_most_the_seconds_that_were_asked_for(
    tmp_path: Path, document: dict[str, Any], behind: float
) -> None:
    clock = StillClock()
    with opened(tmp_path, document, clock) as workspace:
        commit(workspace, "bng2", confirm_seconds=60)
    clock.reboot(ahead=-behind)
    with opened(tmp_path, document, clock) as workspace:
        assert workspace.compare(None).confirm_deadline == clock.wall() + 60
        clock.now += 59
        assert not is_undone(workspace, document)
        clock.now += 1
        assert is_undone(workspace, document)


def test_after_a_reboot_with_a_clock_that_is_behind_more_restarts_leave_no_more_time(
    tmp_path: Path, document: dict[str, Any]
) -> None:
    clock = StillClock()
    with opened(tmp_path, document, clock) as workspace:
        commit(workspace, "bng2", confirm_seconds=60)
    clock.reboot(ahead=-DAY)
    for _ in range(3):
        with opened(tmp_path, document, clock) as workspace:
            assert not is_undone(workspace, document)
        clock.now += 20
    with opened(tmp_path, document, clock) as workspace:
        assert is_undone(workspace, document)


def test_after_a_reboot_a_clock_that_is_set_right_says_when_it_is_time(
    tmp_path: Path, document: dict[str, Any]
) -> None:
    clock = StillClock()
    with opened(tmp_path, document, clock) as workspace:
        commit(workspace, "bng2", confirm_seconds=60)
    clock.now += 30
    clock.reboot(ahead=-DAY)
    with opened(tmp_path, document, clock) as workspace:
        assert not is_undone(workspace, document)
        clock.ahead = 0.0
        assert workspace.compare(None).confirm_deadline == NOW + 60
        clock.now = NOW + 59
        assert not is_undone(workspace, document)
        clock.now = NOW + 60
        assert is_undone(workspace, document)


def test_a_reboot_with_a_clock_that_is_ahead_undoes_the_commit_at_once(
    tmp_path: Path, document: dict[str, Any]
) -> None:
    clock = StillClock()
    with opened(tmp_path, document, clock) as workspace:
        commit(workspace, "bng2", confirm_seconds=DAY)
    clock.reboot(ahead=DAY)
    with opened(tmp_path, document, clock) as workspace:
        assert is_undone(workspace, document)


@pytest.mark.parametrize("wrong", [-YEAR, YEAR])
def test_a_clock_that_was_set_right_before_a_reboot_is_right_after_it(
    tmp_path: Path, document: dict[str, Any], wrong: float
) -> None:
    clock = StillClock()
    clock.ahead = wrong
    with opened(tmp_path, document, clock) as workspace:
        commit(workspace, "bng2", confirm_seconds=60)
        clock.ahead = 0.0
        assert not workspace.return_if_due()
    clock.now += 30
    clock.reboot()
    with opened(tmp_path, document, clock) as workspace:
        assert workspace.compare(None).confirm_deadline == NOW + 60
        clock.now = NOW + 59
        assert not is_undone(workspace, document)
        clock.now = NOW + 60
        assert is_undone(workspace, document)


def test_a_deadline_of_an_earlier_version_comes_within_a_day(
    tmp_path: Path, document: dict[str, Any]
) -> None:
    clock = StillClock()
    with opened(tmp_path, document, clock) as workspace:
        commit(workspace, "bng2", confirm_seconds=60)
    state = msgspec.json.decode((tmp_path / "state.json").read_bytes())
    state["deadline"] = {key: state["deadline"][key] for key in ("at", "baseline")}
    (tmp_path / "state.json").write_bytes(msgspec.json.encode(state))
    # Before it heard of the time, the machine was in another century.
    clock.ahead = -50 * YEAR
    with opened(tmp_path, document, clock) as workspace:
        assert not is_undone(workspace, document)
        clock.now += DAY
        assert is_undone(workspace, document)


def test_a_disk_that_takes_nothing_stops_no_start_before_a_deadline_and_moves_no_deadline(
    tmp_path: Path, document: dict[str, Any]
) -> None:
    clock = StillClock()
    with opened(tmp_path, document, clock) as workspace:
        commit(workspace, "bng2", confirm_seconds=60)
    clock.reboot(ahead=-DAY)
    # Where the next state would be written.
    in_the_way = tmp_path / ".state.json.new"
    in_the_way.mkdir()
    with opened(tmp_path, document, clock) as workspace:
        clock.now += 59
        assert not is_undone(workspace, document)
    with opened(tmp_path, document, clock) as workspace:
        in_the_way.rmdir()
        clock.now += 1
        assert is_undone(workspace, document)


def test_a_commit_is_dated_by_the_clock_as_it_is_set(tmp_path: Path, document: dict[str, Any]) -> None:
    clock = StillClock()
    with opened(tmp_path, document, clock) as workspace:
        clock.ahead = DAY
        commit(workspace, "bng2")
        clock.ahead = -DAY
        commit(workspace, "bng3")
        dates = [held.committed_at for held in workspace.snapshot.commits]
        assert dates == [NOW - DAY, NOW + DAY, NOW]


# An amendment while a commit waits to be confirmed.


def refused_amendment(workspace: Workspace, error: type[Exception], *operations: Edit) -> None:
    """One that changes neither what runs nor what would come back."""
    before = workspace.snapshot.state
    with pytest.raises(error):
        workspace.amend(operations, ChangeRequest("root"))
    assert workspace.snapshot.state == before


def test_an_amendment_that_holds_only_for_what_would_come_back_changes_nothing(
    tmp_path: Path, document: dict[str, Any]
) -> None:
    document["interfaces"]["uplinks"].append("spare0")
    with opened(tmp_path, document, StillClock()) as workspace:
        workspace.edit([Edit("delete", "interfaces.uplinks.spare0")], ADMIN)
        workspace.commit(ADMIN, 60)
        refused_amendment(workspace, Invalid, Edit("set", "cgnat.handoff_interface", "spare0"))


def test_an_amendment_that_holds_only_for_what_runs_changes_nothing(
    tmp_path: Path, document: dict[str, Any]
) -> None:
    with opened(tmp_path, document, StillClock()) as workspace:
        uplinks = [*document["interfaces"]["uplinks"], "spare0"]
        workspace.edit([Edit("set", "interfaces.uplinks", uplinks)], ADMIN)
        workspace.commit(ADMIN, 60)
        refused_amendment(workspace, Invalid, Edit("set", "cgnat.handoff_interface", "spare0"))


@pytest.mark.parametrize("large", ["runs", "would come back"])
def test_an_amendment_that_makes_one_of_both_too_large_changes_nothing(
    tmp_path: Path, document: dict[str, Any], large: str
) -> None:
    room = LARGEST - len(msgspec.json.encode(document)) - 1000
    subscriber = {"username": "s0000", "password": "x" * 128}
    number = room // (len(msgspec.json.encode(subscriber)) + 1)
    many = {"local": [{**subscriber, "username": f"s{each:04}"} for each in range(number)]}
    first, second = ({"local": []}, many) if large == "runs" else (many, {"local": []})
    document["subscribers"] = first
    more = [{**subscriber, "username": f"t{each}"} for each in range(10)]
    with opened(tmp_path, document, StillClock()) as workspace:
        workspace.edit([Edit("set", "subscribers", second)], ADMIN)
        workspace.commit(ADMIN, 60)
        adds = [Edit("set", f"subscribers.local.{one['username']}", one) for one in more]
        refused_amendment(workspace, Invalid, *adds)


def longest_file(folder: Path) -> int:
    return max(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def test_an_amendment_whose_second_revision_finds_no_room_changes_nothing(
    tmp_path: Path, document: dict[str, Any]
) -> None:
    local = [{"username": f"s{number}", "password": "x" * 128} for number in range(300)]
    with opened(tmp_path, document, StillClock()) as workspace:
        workspace.edit([Edit("set", "subscribers.local", local)], ADMIN)
        workspace.commit(ADMIN, 60)
        deadline = workspace.snapshot.state.deadline
        assert deadline is not None
        # Room for what would come back, and not for what runs.
        with no_file_longer_than(longest_file(tmp_path / "revisions" / str(deadline.baseline)) + 1000):
            refused_amendment(workspace, StepFailed, Edit("set", "qos.default_up", "9mbit"))
        assert workspace.amend([Edit("set", "qos.default_up", "9mbit")], ChangeRequest("root")).changes == 1


def test_an_amendment_is_on_disk_for_what_runs_and_what_would_come_back(
    tmp_path: Path, document: dict[str, Any]
) -> None:
    clock = StillClock()
    with opened(tmp_path, document, clock) as workspace:
        commit(workspace, "bng2", confirm_seconds=60)
        workspace.amend([Edit("set", "qos.default_up", "9mbit")], ChangeRequest("root"))
    with opened(tmp_path, document, clock) as workspace:
        running = workspace.snapshot.running.document
        assert (running["system"]["hostname"], running["qos"]["default_up"]) == ("bng2", "9mbit")
        clock.now += 60
        assert workspace.return_if_due()
        running = workspace.snapshot.running.document
        assert (running["system"]["hostname"], running["qos"]["default_up"]) == ("bng1", "9mbit")

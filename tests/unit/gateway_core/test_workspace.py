"""A workspace when things go wrong around it; `test_configuration_model` has the rest."""

import shutil
import threading
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gateway_contract.base.errors import Invalid, StepFailed
from gateway_contract.core.configuration import Edit
from gateway_core.configuration.workspace import ChangeRequest, Workspace
from tests.support.core_clock import StillClock
from tests.support.workspaces import ADMIN, CheckedServices, commit, opened, stage

DAY, YEAR = 86_400, 365 * 86_400


def hostname(workspace: Workspace) -> Any:
    return workspace.snapshot.running.document["system"]["hostname"]


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
        assert workspace.read_archived(1)[1] == document
        assert workspace.compare(1).diff
        with pytest.raises(StepFailed, match="wait for the change under way"):
            stage(workspace, "bng4")
        go_on.set()
        under_way.join(30)
        assert hostname(workspace) == workspace.snapshot.candidate["system"]["hostname"] == "bng3"


def test_a_lost_configuration_that_should_return_locks_nobody_out(
    tmp_path: Path, document: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    clock = StillClock()
    with opened(tmp_path, document, clock) as workspace:
        commit(workspace, "bng2", confirm_seconds=60)
        shutil.rmtree(tmp_path / "revisions" / "1")
        assert workspace.in_force == workspace.snapshot.running.sections
        clock.now += 60
        assert not workspace.return_if_due()
        assert "cannot return to the former configuration" in caplog.text
        commit(workspace, "bng3")
        assert hostname(workspace) == "bng3"


@pytest.mark.parametrize("content", [None, bytes(60)], ids=["missing", "zeroed"])
def test_a_commit_whose_time_and_author_are_lost_keeps_no_gateway_from_its_start(
    tmp_path: Path, document: dict[str, Any], content: bytes | None, caplog: pytest.LogCaptureFixture
) -> None:
    with opened(tmp_path, document, StillClock()) as workspace:
        commit(workspace, "bng2")
        commit(workspace, "bng3")
        second = workspace.snapshot.commits[1]
    file = tmp_path / "revisions" / "1" / "commit.json"
    file.unlink()
    if content is not None:
        file.write_bytes(content)
    with opened(tmp_path, document, StillClock()) as workspace:
        assert (hostname(workspace), workspace.snapshot.commits[1]) == ("bng3", second)
        lost, found = workspace.read_archived(2)
        assert (lost.author, found) == ("unknown", document)
    assert str(file) in caplog.text


def test_an_entity_tag_does_not_tell_what_a_secret_is_not(tmp_path: Path, document: dict[str, Any]) -> None:
    tags = set()
    for folder in ("one", "other"):
        with opened(tmp_path / folder, document, StillClock()) as workspace:
            tags.add(workspace.snapshot.etag)
    assert len(tags) == 2


# The deadline of an unconfirmed commit, and a clock that is set.


# An amendment while a commit waits to be confirmed.


@pytest.mark.parametrize("valid_for", ["what would return", "what runs"])
def test_an_amendment_that_is_valid_for_one_of_both_configurations_changes_nothing(
    tmp_path: Path, document: dict[str, Any], valid_for: str
) -> None:
    uplinks = document["interfaces"]["uplinks"]
    spared = [*uplinks, "spare0"]
    if valid_for == "what would return":
        document["interfaces"]["uplinks"] = spared
    with opened(tmp_path, document, StillClock()) as workspace:
        staged = spared if valid_for == "what runs" else uplinks
        workspace.edit([Edit("set", "interfaces.uplinks", staged)], ADMIN)
        workspace.commit(ADMIN, 60)
        before = workspace.snapshot.state
        with pytest.raises(Invalid):
            workspace.amend([Edit("set", "cgnat.handoff_interface", "spare0")], ChangeRequest("root"))
        assert workspace.snapshot.state == before


def test_an_amendment_is_on_disk_for_what_runs_and_what_would_return(
    tmp_path: Path, document: dict[str, Any]
) -> None:
    clock = StillClock()
    with opened(tmp_path, document, clock) as workspace:
        commit(workspace, "bng2", 60)
        workspace.amend([Edit("set", "qos.default_up", "9mbit")], ChangeRequest("root"))
    clock.now += 60
    with opened(tmp_path, document, clock) as workspace:
        for name in ("bng2", "bng1"):
            assert hostname(workspace) == name
            assert workspace.snapshot.running.document["qos"]["default_up"] == "9mbit"
            assert workspace.return_if_due() == (name == "bng2")


# The deadline of an unconfirmed commit, and a clock that is set.


def pass_by(folder: Path, document: dict[str, Any], clock: StillClock, event: str, argument: float) -> None:
    if event == "set clock":
        clock.ahead = argument
    elif event == "wait":
        clock.now += argument
    elif event == "reboot":
        clock.reboot(argument)
    else:
        with opened(folder, document, clock) as workspace:
            if event == "commit":
                commit(workspace, "bng2", 60)
            else:
                assert not workspace.return_if_due()
                clock.now += argument


COMMIT = ("commit", 60)


@pytest.mark.parametrize(
    ("events", "left"),
    [
        ([COMMIT, ("set clock", -YEAR), ("wait", 10)], 50),
        ([COMMIT, ("wait", 49), ("reboot", 0)], 10),
        # At most the seconds that were asked for, in however many lives.
        ([COMMIT, ("reboot", -50 * YEAR)], 60),
        ([COMMIT, ("reboot", -DAY), ("run core", 20), ("run core", 20)], 20),
        # A clock that is right after the reboot says when it is time.
        ([COMMIT, ("wait", 29), ("reboot", -DAY), ("run core", 0), ("set clock", 0)], 30),
        ([("set clock", YEAR), COMMIT, ("set clock", 0), ("run core", 30), ("reboot", 0)], 29),
        ([("set clock", -YEAR), COMMIT, ("set clock", 0), ("run core", 30), ("reboot", 0)], 29),
        ([COMMIT, ("reboot", DAY)], 0),
    ],
)
def test_a_clock_that_is_set_moves_no_deadline_and_a_reboot_never_to_later(
    tmp_path: Path, document: dict[str, Any], events: list[tuple[str, int]], left: int
) -> None:
    clock = StillClock()
    for event, argument in events:
        pass_by(tmp_path, document, clock, event, argument)
    with opened(tmp_path, document, clock) as workspace:
        if left:
            assert workspace.compare(None).confirm_deadline == clock.wall() + left
            clock.now += left - 1
            assert not workspace.return_if_due()
            clock.now += 1
        assert workspace.return_if_due()
        assert workspace.snapshot.running.document == document


def test_a_deadline_of_an_earlier_version_comes_within_a_day(
    tmp_path: Path, document: dict[str, Any]
) -> None:
    clock = StillClock()
    pass_by(tmp_path, document, clock, *COMMIT)
    state = msgspec.json.decode((tmp_path / "state.json").read_bytes())
    state["deadline"] = {key: state["deadline"][key] for key in ("at", "baseline")}
    (tmp_path / "state.json").write_bytes(msgspec.json.encode(state))
    # Before it heard of the time, the machine was in another century.
    clock.ahead = -50 * YEAR
    pass_by(tmp_path, document, clock, "run core", DAY)
    with opened(tmp_path, document, clock) as workspace:
        assert workspace.return_if_due()


def test_a_disk_that_takes_nothing_stops_no_start_and_moves_no_deadline(
    tmp_path: Path, document: dict[str, Any]
) -> None:
    clock = StillClock()
    pass_by(tmp_path, document, clock, *COMMIT)
    clock.reboot(-DAY)
    # Where the next state would be written.
    in_the_way = tmp_path / ".state.json.new"
    in_the_way.mkdir()
    with opened(tmp_path, document, clock) as workspace:
        clock.now += 59
        assert not workspace.return_if_due()
        in_the_way.rmdir()
        clock.now += 1
        assert workspace.return_if_due()

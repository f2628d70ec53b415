"""A workspace when things go wrong around it; `test_configuration_model` has the rest."""

import shutil
import threading
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gateway_api.base.errors import Invalid, StepFailed
from gateway_api.core.configuration.workspace import ChangeRequest, Workspace
from gateway_api.wire.core.configuration import Edit
from tests.support.clocks import StillClock
from tests.support.workspaces import ADMIN, CheckedServices, commit, opened, stage

HOUR, DAY, YEAR = 3_600, 86_400, 365 * 86_400


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
        assert workspace.archived(1)[1] == document
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
        assert "is lost" in caplog.text
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
        lost, found = workspace.archived(2)
        assert (lost.author, found) == ("unknown", document)
    assert str(file) in caplog.text


def test_an_entity_tag_does_not_tell_what_a_secret_is_not(tmp_path: Path, document: dict[str, Any]) -> None:
    tags = set()
    for folder in ("one", "other"):
        with opened(tmp_path / folder, document, StillClock()) as workspace:
            tags.add(workspace.snapshot.etag)
    assert len(tags) == 2


# The deadline of an unconfirmed commit, and a clock that is set.


class Machine:
    """A machine with a core, whose events have an argument each."""

    def __init__(self, folder: Path, document: dict[str, Any]) -> None:
        self.clock = StillClock()
        self._folder = folder
        self._document = document

    def core(self) -> AbstractContextManager[Workspace]:
        return opened(self._folder, self._document, self.clock)

    def commit(self, confirm_seconds: int) -> None:
        with self.core() as workspace:
            commit(workspace, "bng2", confirm_seconds)

    def set_clock(self, ahead: float) -> None:
        self.clock.ahead = ahead

    def wait(self, seconds: float) -> None:
        self.clock.now += seconds

    def reboot(self, ahead: float) -> None:
        self.clock.reboot(ahead)

    def run_core(self, seconds: float) -> None:
        with self.core() as workspace:
            assert not workspace.return_if_due()
            self.wait(seconds)


COMMIT = ("commit", 60)


@pytest.mark.parametrize(
    ("events", "left"),
    [
        *(([COMMIT, ("set_clock", ahead), ("wait", 10)], 50) for ahead in (-YEAR, -HOUR, HOUR, YEAR)),
        ([COMMIT, ("wait", 49), ("reboot", 0)], 10),
        # At most the seconds that were asked for, in however many lives.
        *(([COMMIT, ("reboot", -behind)], 60) for behind in (30, HOUR, 50 * YEAR)),
        ([COMMIT, ("reboot", -DAY), ("run_core", 20), ("run_core", 20)], 20),
        # A clock that is right after the reboot says when it is time.
        ([COMMIT, ("wait", 29), ("reboot", -DAY), ("run_core", 0), ("set_clock", 0)], 30),
        ([("set_clock", YEAR), COMMIT, ("set_clock", 0), ("run_core", 30), ("reboot", 0)], 29),
        ([("set_clock", -YEAR), COMMIT, ("set_clock", 0), ("run_core", 30), ("reboot", 0)], 29),
        ([COMMIT, ("reboot", DAY)], 0),
    ],
)
def test_a_clock_that_is_set_moves_no_deadline_and_a_reboot_never_to_later(
    tmp_path: Path, document: dict[str, Any], events: list[tuple[str, int]], left: int
) -> None:
    machine = Machine(tmp_path, document)
    for event, argument in events:
        getattr(machine, event)(argument)
    with machine.core() as workspace:
        if left:
            assert workspace.compare(None).confirm_deadline == machine.clock.wall() + left
            machine.wait(left - 1)
            assert not workspace.return_if_due()
            machine.wait(1)
        assert workspace.return_if_due()
        assert workspace.snapshot.running.document == document


def test_a_deadline_of_an_earlier_version_comes_within_a_day(
    tmp_path: Path, document: dict[str, Any]
) -> None:
    machine = Machine(tmp_path, document)
    machine.commit(60)
    state = msgspec.json.decode((tmp_path / "state.json").read_bytes())
    state["deadline"] = {key: state["deadline"][key] for key in ("at", "baseline")}
    (tmp_path / "state.json").write_bytes(msgspec.json.encode(state))
    # Before it heard of the time, the machine was in another century.
    machine.set_clock(-50 * YEAR)
    with machine.core() as workspace:
        assert not workspace.return_if_due()
        machine.wait(DAY)
        assert workspace.return_if_due()


def test_a_disk_that_takes_nothing_stops_no_start_and_moves_no_deadline(
    tmp_path: Path, document: dict[str, Any]
) -> None:
    machine = Machine(tmp_path, document)
    machine.commit(60)
    machine.reboot(-DAY)
    # Where the next state would be written.
    in_the_way = tmp_path / ".state.json.new"
    in_the_way.mkdir()
    machine.run_core(59)
    with machine.core() as workspace:
        in_the_way.rmdir()
        machine.wait(1)
        assert workspace.return_if_due()


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
    machine = Machine(tmp_path, document)
    machine.commit(60)
    with machine.core() as workspace:
        workspace.amend([Edit("set", "qos.default_up", "9mbit")], ChangeRequest("root"))
    with machine.core() as workspace:
        assert hostname(workspace) == "bng2"
        assert workspace.snapshot.running.document["qos"]["default_up"] == "9mbit"
        machine.wait(60)
        assert workspace.return_if_due()
        assert hostname(workspace) == "bng1"
        assert workspace.snapshot.running.document["qos"]["default_up"] == "9mbit"

"""What becomes of a workspace when things go wrong around it; `test_configuration_model` has the rest."""

import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from gateway_api.core.configuration.edit import Operation
from gateway_api.core.configuration.running import RunningConfiguration
from gateway_api.core.configuration.steps import StepFailed
from gateway_api.core.configuration.store import Store
from gateway_api.core.configuration.workspace import Stale, Workspace

NOW = 1_700_000_000


class Clock:
    """Epoch seconds that stand still until a test moves them."""

    def __init__(self) -> None:
        self.now = float(NOW)

    def __call__(self) -> float:
        return self.now


@contextmanager
def opened(
    folder: Path,
    document: dict[str, Any],
    clock: Clock,
    check: Callable[[Path], None] = lambda _: None,
) -> Iterator[Workspace]:
    store = Store(folder)
    yield Workspace(store, lambda: RunningConfiguration.of(document), clock, check)
    store.close()


def stage(workspace: Workspace, hostname: str) -> None:
    workspace.edit([Operation("set", "system.hostname", hostname)], None)


def commit(workspace: Workspace, hostname: str, confirm_seconds: int | None = None) -> None:
    stage(workspace, hostname)
    workspace.commit("admin", None, confirm_seconds, None)


def test_while_a_commit_takes_long_all_can_be_read_and_another_change_is_refused(
    tmp_path: Path, document: dict[str, Any]
) -> None:
    entered, go_on = threading.Event(), threading.Event()

    def slow(_: Path) -> None:
        entered.set()
        assert go_on.wait(30)

    go_on.set()
    with opened(tmp_path, document, Clock(), slow) as workspace:
        commit(workspace, "bng2")
        stage(workspace, "bng3")
        entered.clear()
        go_on.clear()
        under_way = threading.Thread(target=workspace.commit, args=("admin", None, None, None))
        under_way.start()
        assert entered.wait(30)
        assert len(workspace.archive()) == 1
        assert workspace.archived(1)[1] == document
        assert workspace.compare(1)[0]
        with pytest.raises(StepFailed, match="wait for the change under way"):
            stage(workspace, "bng4")
        go_on.set()
        under_way.join(30)
        assert workspace.view.running.document["system"]["hostname"] == "bng3"
        assert workspace.view.candidate["system"]["hostname"] == "bng3"


def test_a_commit_that_comes_after_the_deadline_of_another_is_refused_for_a_second_look(
    tmp_path: Path, document: dict[str, Any]
) -> None:
    clock = Clock()
    with opened(tmp_path, document, clock) as workspace:
        commit(workspace, "bng2", confirm_seconds=60)
        stage(workspace, "bng3")
        clock.now += 60
        with pytest.raises(Stale):
            workspace.commit("admin", None, None, None)
        assert workspace.view.running.document == document
        assert workspace.view.candidate["system"]["hostname"] == "bng3"


def test_a_configuration_to_return_to_that_is_lost_locks_nobody_out(
    tmp_path: Path, document: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    clock = Clock()
    with opened(tmp_path, document, clock) as workspace:
        commit(workspace, "bng2", confirm_seconds=60)
        deadline = workspace.view.state.deadline
        assert deadline is not None
        shutil.rmtree(tmp_path / "revisions" / str(deadline.baseline))
        clock.now += 60
        assert not workspace.return_if_due()
        assert "is lost" in caplog.text
        commit(workspace, "bng3")
        assert workspace.view.running.document["system"]["hostname"] == "bng3"


def test_a_deadline_of_a_clock_that_was_wrong_comes_within_a_day(
    tmp_path: Path, document: dict[str, Any]
) -> None:
    clock = Clock()
    with opened(tmp_path, document, clock) as workspace:
        commit(workspace, "bng2", confirm_seconds=60)
    # Before it heard of the time, the machine was in another century.
    clock.now -= 50 * 365 * 86_400
    with opened(tmp_path, document, clock) as workspace:
        assert not workspace.return_if_due()
        clock.now += 86_400
        assert workspace.return_if_due()
        assert workspace.view.running.document == document


def test_an_entity_tag_does_not_tell_what_a_secret_is_not(tmp_path: Path, document: dict[str, Any]) -> None:
    tags = set()
    for folder in ("one", "other"):
        with opened(tmp_path / folder, document, Clock()) as workspace:
            tags.add(workspace.view.etag)
    assert len(tags) == 2


def test_a_large_configuration_is_edited_in_a_moment(tmp_path: Path, document: dict[str, Any]) -> None:
    document["subscribers"] = {
        "local": [{"username": f"s{number}", "password": "secret"} for number in range(10_000)]
    }
    with opened(tmp_path, document, Clock()) as workspace:
        began = time.monotonic()
        stage(workspace, "bng2")
        assert [change.after for change in workspace.compare(None)[0]] == ['"bng2"']
        assert time.monotonic() - began < 2

"""The generations of the API's users, which their tokens name."""

import json
import logging
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from gateway_contract.core.configuration import Edit
from gateway_contract.varlink.protocol import ErrorReply
from gateway_core.configuration.workspace import Workspace
from tests.support.core_clock import StillClock
from tests.support.documents import SECRET_HASH
from tests.support.workspaces import ADMIN, commit, no_file_longer_than, opened

Document = dict[str, Any]

_OTHER_HASH = SECRET_HASH[:-1] + "X"


def generations(workspace: Workspace) -> dict[str, str]:
    held = workspace.snapshot.state.generations
    assert held is not None
    return held


def make_run(workspace: Workspace, *operations: Edit, confirm_seconds: int | None = None) -> None:
    workspace.edit(list(operations), ADMIN)
    workspace.commit(ADMIN, confirm_seconds)


def test_generations_outlive_restarts_and_commits_of_other_things(tmp_path: Path, document: Document) -> None:
    with opened(tmp_path, document, StillClock()) as workspace:
        held = generations(workspace)
        assert set(held) == {"admin", "operator"}
        assert len(set(held.values())) == 2
        commit(workspace, "bng2")
        assert generations(workspace) == held
    with opened(tmp_path, document, StillClock()) as workspace:
        assert generations(workspace) == held


def change_hash_and_back(workspace: Workspace, _: StillClock) -> None:
    for value in (_OTHER_HASH, SECRET_HASH):
        make_run(workspace, Edit("set", "api.users.operator.password_hash", value))


def end_tokens(workspace: Workspace, _: StillClock) -> None:
    etag = workspace.snapshot.etag
    workspace.end_tokens("operator", ADMIN)
    assert workspace.snapshot.etag == etag
    with pytest.raises(ErrorReply, match="UserNotFound"):
        workspace.end_tokens("nobody", ADMIN)


def delete_and_bring_back(workspace: Workspace, _: StillClock) -> None:
    make_run(workspace, Edit("delete", "api.users.operator"))
    assert set(generations(workspace)) == {"admin"}
    workspace.rollback(1, ADMIN)
    workspace.commit(ADMIN)


def change_until_the_return(workspace: Workspace, clock: StillClock) -> None:
    make_run(workspace, Edit("set", "api.users.operator.role", "admin"), confirm_seconds=60)
    changed = generations(workspace)["operator"]
    clock.now += 60
    assert workspace.return_if_due()
    assert generations(workspace)["operator"] != changed


def replace(workspace: Workspace, _: StillClock) -> None:
    document = json.loads(json.dumps(workspace.snapshot.running.document))
    document["api"]["users"][1]["password_hash"] = _OTHER_HASH
    workspace.replace_running(document, ADMIN)


@pytest.mark.parametrize(
    "change", [change_hash_and_back, delete_and_bring_back, change_until_the_return, replace, end_tokens]
)
def test_a_user_who_changes_in_any_way_has_another_generation_that_lasts_and_others_keep_theirs(
    tmp_path: Path, document: Document, change: Callable[[Workspace, StillClock], None]
) -> None:
    clock = StillClock()
    with opened(tmp_path, document, clock) as workspace:
        before = generations(workspace)
        change(workspace, clock)
        after = generations(workspace)
    assert after["operator"] != before["operator"]
    assert after["admin"] == before["admin"]
    with opened(tmp_path, document, clock) as workspace:
        assert generations(workspace) == after


def lose_generations(folder: Path) -> None:
    """As an older version has left it."""
    state = folder / "state.json"
    held = json.loads(state.read_bytes())
    del held["generations"]
    state.write_text(json.dumps(held))


def test_a_state_of_an_older_version_gets_generations_that_stay(tmp_path: Path, document: Document) -> None:
    with opened(tmp_path, document, StillClock()) as workspace:
        lost = generations(workspace)
    lose_generations(tmp_path)
    with opened(tmp_path, document, StillClock()) as workspace:
        made = generations(workspace)
    assert set(made) == set(lost)
    assert not set(made.values()) & set(lost.values())
    with opened(tmp_path, document, StillClock()) as workspace:
        assert generations(workspace) == made


def test_a_core_that_cannot_store_the_generations_starts_and_stores_them_with_the_next_change(
    tmp_path: Path, document: Document, caplog: pytest.LogCaptureFixture
) -> None:
    with opened(tmp_path, document, StillClock()):
        pass
    lose_generations(tmp_path)
    with ExitStack() as core:
        with no_file_longer_than(16):
            workspace = core.enter_context(opened(tmp_path, document, StillClock()))
        (record,) = caplog.records
        assert record.levelno == logging.ERROR
        assert "generations" in record.getMessage()
        made = generations(workspace)
        assert set(made) == {"admin", "operator"}
        commit(workspace, "bng2")
        assert generations(workspace) == made
    with opened(tmp_path, document, StillClock()) as workspace:
        assert generations(workspace) == made

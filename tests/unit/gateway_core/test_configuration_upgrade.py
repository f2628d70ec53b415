"""What an older version stored, under rules that it didn't know: it loads, runs and comes back."""

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from gateway_contract.base.errors import Invalid
from gateway_contract.core.configuration import Edit
from gateway_core.configuration.documents import OperationRefused
from gateway_core.configuration.workspace import ChangeRequest, Workspace
from tests.support.core_clock import StillClock
from tests.support.documents import put
from tests.support.workspaces import ADMIN, commit, opened

Document = dict[str, Any]

#: What was valid once, by its path.
OLD = {
    "radius.secret": "s" * 64,
    "cgnat.vrf_name": "mgmt",
    "cgnat.handoff_interface": "null0",
    "cgnat.source_range": "127.0.0.0/8",
    "bgp.neighbors.0.description": "core | include  x",
    "qos.default_down": "50",
    "bgp.neighbors.1.description": "none",
}


def older(document: Document, path: str = "cgnat.vrf_name") -> Document:
    """The same as an older version could store it."""
    made: Document = json.loads(json.dumps(document))
    if path == "cgnat.handoff_interface":
        made["interfaces"]["uplinks"].append("null0")
    put(made, path, OLD[path])
    return made


@contextmanager
def upgraded(folder: Path, document: Document, stored: Document) -> Iterator[Workspace]:
    """A core's workspace in which an older version had made something run."""
    with opened(folder, document, StillClock()):
        pass
    (folder / "revisions" / "1" / "configuration.json").write_text(json.dumps(stored))
    with opened(folder, document, StillClock()) as workspace:
        yield workspace


def refused_at(error: Invalid) -> list[str]:
    return [problem.path for problem in error.problems]


@pytest.mark.parametrize("path", OLD)
def test_a_stored_value_that_breaks_a_later_rule_is_loaded_with_a_warning_and_stays_through_other_changes(
    tmp_path: Path, document: Document, path: str, caplog: pytest.LogCaptureFixture
) -> None:
    stored = older(document, path)
    with upgraded(tmp_path, document, stored) as workspace:
        warned = [record for record in caplog.records if record.levelno == logging.WARNING]
        assert warned
        assert all(path in record.getMessage() for record in warned)
        assert "s" * 64 not in caplog.text
        commit(workspace, "bng2")
        workspace.amend([Edit("set", "qos.default_up", "9mbit")], ChangeRequest("root"))
        whole = {**workspace.snapshot.running.document, "system": {"hostname": "bng3"}}
        workspace.replace_running(whole, ADMIN)
        workspace.replace_candidate({**whole, "system": {"hostname": "bng4"}}, ADMIN)
        assert workspace.commit(ADMIN).committed
        expected = {**stored, "system": {"hostname": "bng4"}, "qos": {**stored["qos"], "default_up": "9mbit"}}
        assert workspace.snapshot.running.document == expected


@pytest.mark.parametrize("path", OLD)
def test_a_new_value_that_breaks_the_rule_is_refused_by_each_way_of_changing(
    tmp_path: Path, document: Document, path: str
) -> None:
    with opened(tmp_path, document, StillClock()) as workspace:
        with pytest.raises(OperationRefused):
            workspace.edit([Edit("set", path, OLD[path])], ADMIN)
        with pytest.raises(OperationRefused):
            workspace.amend([Edit("set", path, OLD[path])], ChangeRequest("root"))
        with pytest.raises(Invalid) as error:
            workspace.replace_running(older(document, path), ADMIN)
        with pytest.raises(Invalid):
            workspace.replace_candidate(older(document, path), ADMIN)
        assert set(refused_at(error.value)) == {path}


def test_a_neighbor_that_moves_in_its_list_keeps_its_description(tmp_path: Path, document: Document) -> None:
    stored = older(document, "bgp.neighbors.0.description")
    stored["bgp"]["neighbors"].insert(0, {"address": "192.0.2.77", "remote_as": 64512})
    with upgraded(tmp_path, document, stored) as workspace:
        # Not so another value that breaks the same rule.
        wrong = json.loads(json.dumps(stored))
        put(wrong, "bgp.neighbors.1.description", "two  spaces")
        with pytest.raises(Invalid) as error:
            workspace.replace_running(wrong, ADMIN)
        assert refused_at(error.value) == ["bgp.neighbors.1.description"]
        workspace.edit([Edit("delete", "bgp.neighbors.0")], ADMIN)
        workspace.commit(ADMIN)
        assert workspace.snapshot.running.document["bgp"]["neighbors"][0] == stored["bgp"]["neighbors"][1]


def test_an_unconfirmed_commit_returns_to_a_configuration_of_an_older_version(
    tmp_path: Path, document: Document
) -> None:
    stored, clock = older(document), StillClock()
    # Like a VLAN of a trunk.
    put(stored, "cgnat.vrf_name", "trunk0.100")
    with upgraded(tmp_path, document, stored):
        pass
    with opened(tmp_path, document, clock) as workspace:
        workspace.edit([Edit("set", "cgnat.vrf_name", "vrf1")], ADMIN)
        workspace.commit(ADMIN, 60)
        workspace.amend([Edit("set", "qos.default_up", "9mbit")], ChangeRequest("root"))
        clock.now += 60
        assert workspace.return_if_due()
        put(stored, "qos.default_up", "9mbit")
        assert workspace.snapshot.running.document == stored


def test_an_archived_configuration_of_an_older_version_is_refused_at_commit_and_restored_by_rescue(
    tmp_path: Path, document: Document
) -> None:
    stored = older(document)
    with upgraded(tmp_path, document, stored) as workspace:
        workspace.edit([Edit("set", "cgnat.vrf_name", "vrf1")], ADMIN)
        workspace.commit(ADMIN)
        workspace.rollback(1, ADMIN)
        with pytest.raises(Invalid) as error:
            workspace.commit(ADMIN)
        assert refused_at(error.value) == ["cgnat.vrf_name"]
        workspace.discard(ADMIN)
        workspace.restore(1, ChangeRequest("root"))
        assert workspace.snapshot.running.document == stored


def test_a_stored_configuration_without_the_right_shape_does_not_load(
    tmp_path: Path, document: Document
) -> None:
    with (
        pytest.raises(Invalid, match=r"cgnat\.vrf_name"),
        upgraded(tmp_path, document, {**document, "cgnat": {**document["cgnat"], "vrf_name": 5}}),
    ):
        pass

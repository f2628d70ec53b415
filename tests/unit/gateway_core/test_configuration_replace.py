"""A whole configuration that replaces the one that runs, or the candidate: what its masks stand for, and when
it is refused."""

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gateway_contract.base.errors import Invalid, Problem, Stale
from gateway_contract.base.logs import MASK
from gateway_contract.configuration import mask_secrets
from gateway_contract.core.configuration import Edit
from gateway_contract.varlink.protocol import ErrorReply
from gateway_core.configuration.documents import InvalidDocument, unmask
from gateway_core.configuration.workspace import ChangeRequest, Workspace
from tests.support.clocks import NOW
from tests.support.core_clock import StillClock
from tests.support.documents import SECRET_HASH, put
from tests.support.workspaces import ADMIN, opened, stage

OTHER_HASH = SECRET_HASH[:-1] + "a"

ME = ChangeRequest("me")


@pytest.fixture
def document(document: dict[str, Any]) -> dict[str, Any]:
    """With a secret of every kind, no two of them the same."""
    document["radius"] = {"server": None, "secret": "between-us"}
    document["api"]["auth_token"] = "0123456789abcdef"
    document["api"]["users"][1]["password_hash"] = OTHER_HASH
    document["bgp"]["neighbors"][0]["password"] = "pw-neighbor"
    local = [{"username": name, "password": f"of-{name}"} for name in ("sue", "tom")]
    return {**document, "subscribers": {"local": local}}


@pytest.fixture
def clock() -> StillClock:
    return StillClock()


@pytest.fixture
def workspace(tmp_path: Path, document: dict[str, Any], clock: StillClock) -> Iterator[Workspace]:
    with opened(tmp_path, document, clock) as made:
        yield made


def refused(document: Any, running: dict[str, Any]) -> list[str]:
    with pytest.raises(Invalid) as caught:
        unmask(document, running)
    assert {problem.message for problem in caught.value.problems} == {
        "must be a value: the mask hides nothing that runs here"
    }
    return [problem.path for problem in caught.value.problems]


@pytest.mark.parametrize(
    ("path", "shown"),
    [
        ("subscribers.local.1.password", "subscribers.local.tom.password"),
        ("api.users.0", "api.users.admin"),
        ("bgp.neighbors.0.remote_as", 'bgp.neighbors."10.255.0.2".remote_as'),
        *((path, path) for path in ("bgp.neighbors.7.remote_as", "demux.vlan_profiles.1.type", "")),
    ],
)
def test_an_error_names_an_item_by_its_key_if_no_other_item_has_it(
    document: dict[str, Any], path: str, shown: str
) -> None:
    one, other = document["demux"]["vlan_profiles"]
    one["name"], other["name"] = "two words", "two words"
    error = InvalidDocument(document, [Problem(path, "invalid", "must be another")])
    assert error.problems_by_key == (Problem(shown, "invalid", "must be another"),)


# Masks


def test_what_is_shown_stands_for_what_runs(document: dict[str, Any]) -> None:
    shown = mask_secrets(document)
    before = copy.deepcopy((shown, document))
    secrets = ("between-us", "0123456789abcdef", SECRET_HASH, OTHER_HASH, "pw-neighbor", "of-sue", "of-tom")
    assert not [secret for secret in secrets if secret in str(shown)]
    assert (shown["radius"]["secret"], shown["system"]) == (MASK, document["system"])
    assert unmask(shown, document) == document
    assert (shown, document) == before
    # A value that is no mask stays, whatever it is.
    for value in (None, "new", {}, [MASK + "*"], {"a": MASK}):
        wanted = {**document, "radius": {"secret": value}, "nonsense": value, "bgp": value}
        assert unmask(wanted, document) == wanted


def test_an_item_s_secret_goes_with_its_key_and_not_with_its_place(document: dict[str, Any]) -> None:
    shown = mask_secrets(document)
    shown["api"]["users"].reverse()
    del shown["subscribers"]["local"][0]
    made = unmask(shown, document)
    assert made["api"]["users"] == list(reversed(document["api"]["users"]))
    assert made["subscribers"]["local"] == document["subscribers"]["local"][1:]


def test_a_mask_where_no_secret_runs_is_refused_by_its_place(document: dict[str, Any]) -> None:
    shown = mask_secrets(document)
    shown["api"]["users"][1]["username"] = "another"
    del document["api"]["auth_token"]
    document["radius"]["secret"] = None
    shown["radius"]["secret"] = MASK
    assert refused(shown, document) == ["radius.secret", "api.users.1.password_hash", "api.auth_token"]
    users = [{"username": f"user{number}", "password_hash": MASK} for number in range(1000)]
    assert len(refused({"api": {"users": users}}, document)) == 20


@pytest.mark.parametrize("path", ["system.hostname", "interfaces.trunks.0", "api.users.0.role", "bgp"])
def test_a_mask_where_no_secret_belongs_is_refused(document: dict[str, Any], path: str) -> None:
    wanted = copy.deepcopy(document)
    put(wanted, path, MASK)
    assert refused(wanted, document) == [path]


@pytest.mark.parametrize("items", [None, MASK, [None], [MASK], [[]], [{"username": []}]])
def test_items_that_are_none_are_passed_on_or_refused(document: dict[str, Any], items: Any) -> None:
    wanted = {**document, "api": {"users": items}}
    if MASK in str(items):
        refused(wanted, document)
    else:
        assert unmask(wanted, document) == wanted


# Replacing


def test_what_runs_already_is_neither_committed_nor_staged(
    workspace: Workspace, document: dict[str, Any]
) -> None:
    before = workspace.snapshot.etag
    reply = workspace.replace_running(mask_secrets(document), ME)
    assert (reply.changes, reply.author, reply.etag) == (0, "factory", before)
    assert workspace.snapshot.commits[1:] == ()
    staged = workspace.replace_candidate(mask_secrets(document), ME)
    assert (staged.changes, staged.etag) == (0, before)
    assert workspace.snapshot.state.candidate is None


def test_it_is_one_commit_and_archives_what_ran(workspace: Workspace, document: dict[str, Any]) -> None:
    seen: list[str] = []
    workspace.follow(lambda sections: seen.append(sections.system.hostname))
    wanted = {**mask_secrets(document), "system": {"hostname": "bng7"}, "qos": {**document["qos"]}}
    wanted["qos"]["default_up"] = "5mbit"
    reply = workspace.replace_running(wanted, ChangeRequest("me", "all of it"))
    assert (reply.changes, reply.confirm_deadline, seen) == (2, None, ["bng7"])
    assert (reply.author, reply.comment) == ("me", "all of it")
    assert workspace.snapshot.running.document == {
        **document, "system": {"hostname": "bng7"}, "qos": wanted["qos"],
    }  # fmt: skip
    assert workspace.snapshot.compare() == []
    assert workspace.read_archived(1)[1] == document
    assert reply.etag == workspace.snapshot.etag


def test_a_document_that_does_not_hold_changes_nothing(
    workspace: Workspace, document: dict[str, Any]
) -> None:
    before = workspace.snapshot
    wanted = {**document, "extra": {}, "qos": {"default_down": "fast"}}
    with pytest.raises(Invalid) as caught:
        workspace.replace_running(wanted, ME)
    paths = {problem.path for problem in caught.value.problems}
    assert paths == {"extra", "qos.default_down", "qos.default_up"}
    # Nor does one that has grown too large.
    local = [{"username": f"user{n:05}{'x' * 50}", "password": "y" * 128} for n in range(10_000)]
    for replace in (workspace.replace_running, workspace.replace_candidate):
        with pytest.raises(Invalid, match="at most"):
            replace({**document, "subscribers": {"local": local}}, ME)
    assert workspace.snapshot is before


def test_what_somebody_has_staged_is_neither_mixed_in_nor_lost(
    workspace: Workspace, document: dict[str, Any]
) -> None:
    stage(workspace, "bng2")
    before = workspace.snapshot
    with pytest.raises(ErrorReply, match="CandidateStaged"):
        workspace.replace_running({**document, "bgp": None}, ME)
    assert workspace.snapshot is before
    # What is staged and taken back is nobody's work.
    stage(workspace, "bng1")
    assert workspace.replace_running({**document, "bgp": None}, ME).changes > 0


def test_it_wants_the_configuration_that_the_caller_has_seen(
    workspace: Workspace, document: dict[str, Any]
) -> None:
    seen = workspace.snapshot.etag
    workspace.replace_running({**document, "bgp": None}, ChangeRequest("me", None, [seen]))
    for replace in (workspace.replace_running, workspace.replace_candidate):
        with pytest.raises(Stale) as caught:
            replace(document, ChangeRequest("me", None, [seen]))
        assert caught.value.etag == workspace.snapshot.etag
    assert workspace.snapshot.running.document["bgp"] is None


def test_as_any_commit_it_confirms_one_that_waits(
    workspace: Workspace, document: dict[str, Any], clock: StillClock
) -> None:
    stage(workspace, "bng2")
    workspace.commit(ADMIN, 60)
    assert workspace.replace_running(mask_secrets(workspace.snapshot.running.document), ME).confirm_deadline
    assert workspace.replace_running({**document, "bgp": None}, ME).confirm_deadline is None
    clock.now = NOW + 61
    assert not workspace.revert_if_due()
    # After the deadline of another one it is refused, for a second look.
    stage(workspace, "bng3")
    workspace.commit(ADMIN, 60)
    clock.now = NOW + 122
    with pytest.raises(Stale):
        workspace.replace_running(document, ME)
    assert workspace.snapshot.running.document == {**document, "bgp": None}


# The candidate


def test_a_whole_candidate_takes_the_place_of_what_was_staged(
    workspace: Workspace, document: dict[str, Any]
) -> None:
    stage(workspace, "bng2")
    reply = workspace.replace_candidate({**mask_secrets(document), "bgp": None}, ME)
    assert workspace.snapshot.candidate == {**document, "bgp": None}
    assert workspace.snapshot.running.document == document
    assert '+ system.hostname = "bng2"' in reply.before.diff
    assert (reply.changes, reply.etag) == (len(workspace.snapshot.compare()), workspace.snapshot.etag)
    # It may lack what a commit requires.
    assert workspace.replace_candidate({"api": {"users": [{"username": "x"}]}}, ME).changes
    with pytest.raises(Invalid):
        workspace.commit(ME)


def test_a_mask_stands_for_the_secret_of_the_candidate(workspace: Workspace) -> None:
    workspace.edit([Edit("set", "radius.secret", "the-new-one")], ADMIN)
    workspace.edit([Edit("delete", "subscribers.local.sue")], ADMIN)
    shown = mask_secrets(workspace.snapshot.candidate)
    workspace.replace_candidate({**shown, "bgp": None}, ME)
    assert workspace.snapshot.candidate["radius"]["secret"] == "the-new-one"
    shown["subscribers"]["local"].append({"username": "sue", "password": MASK})
    with pytest.raises(Invalid) as caught:
        workspace.replace_candidate({**shown, "bgp": None}, ME)
    (problem,) = caught.value.problems
    assert problem.path == "subscribers.local.1.password"
    assert problem.message == "must be a value: the mask hides nothing in the candidate"


@pytest.mark.parametrize(
    ("path", "value", "named"),
    [
        ("extra", {}, "extra"),
        ("system", None, "system"),
        ("demux.idle_timeout", "600", "demux.idle_timeout"),
        ("radius.secret", "two words", "radius.secret"),
        ("api.users.1.username", "admin", "api.users.1.username"),
        ("api.users.1", {"role": "admin"}, "api.users.1.username"),
        ("interfaces.trunks.1", "trunk 1", "interfaces.trunks.1"),
    ],
)
def test_a_value_that_no_edit_could_set_is_refused_by_its_place(
    workspace: Workspace, document: dict[str, Any], path: str, value: Any, named: str
) -> None:
    before = workspace.snapshot
    wanted = copy.deepcopy(document)
    put(wanted, path, value)
    with pytest.raises(Invalid) as caught:
        workspace.replace_candidate(wanted, ME)
    assert [problem.path for problem in caught.value.problems] == [named]
    assert workspace.snapshot is before

"""A workspace: changes that fail, commits, generations of users, and what an older version stored.

`test_configuration_model` has the rest.
"""

import json
import logging
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from ipaddress import IPv4Network
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gateway_contract.base.errors import Invalid, StepFailed
from gateway_contract.configuration import Configuration
from gateway_contract.core.configuration import Edit
from gateway_contract.core.impact import Impact
from gateway_contract.varlink.protocol import ErrorReply
from gateway_core.configuration.documents import OperationRefused
from gateway_core.configuration.workspace import ChangeRequest, RenderedFiles, Workspace
from tests.support.core_clock import StillClock
from tests.support.documents import SECRET_HASH, put
from tests.support.workspaces import ADMIN, CheckedServices, commit, no_file_longer_than, opened, stage

DAY, YEAR = 86_400, 365 * 86_400

Document = dict[str, Any]
Start = Callable[..., AbstractContextManager[Workspace]]


@pytest.fixture
def start(tmp_path: Path, document: Document) -> Start:
    """Starts the core's workspace, always on the same disk."""
    return partial(opened, tmp_path, document)


def hostname(workspace: Workspace) -> Any:
    return workspace.snapshot.running.document["system"]["hostname"]


def test_while_a_commit_takes_long_all_can_be_read_and_another_change_is_refused(
    start: Start, document: Document
) -> None:
    entered, go_on = threading.Event(), threading.Event()

    def slow() -> None:
        entered.set()
        assert go_on.wait(30)

    go_on.set()
    with start(services=CheckedServices(slow)) as workspace:
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
    start: Start, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clock = StillClock()
    with start(clock) as workspace:
        commit(workspace, "bng2", confirm_seconds=60)
        shutil.rmtree(tmp_path / "revisions" / "1")
        assert workspace.effective_configuration == workspace.snapshot.running.sections
        clock.now += 60
        assert not workspace.revert_if_due()
        assert "cannot return to the former configuration" in caplog.text
        commit(workspace, "bng3")
        assert hostname(workspace) == "bng3"


@pytest.mark.parametrize("content", [None, bytes(60)], ids=["missing", "zeroed"])
def test_a_commit_whose_time_and_author_are_lost_keeps_no_gateway_from_its_start(
    start: Start, tmp_path: Path, document: Document, content: bytes | None, caplog: pytest.LogCaptureFixture
) -> None:
    with start() as workspace:
        commit(workspace, "bng2")
        commit(workspace, "bng3")
        second = workspace.snapshot.commits[1]
    file = tmp_path / "revisions" / "1" / "commit.json"
    file.unlink()
    if content is not None:
        file.write_bytes(content)
    with start() as workspace:
        assert (hostname(workspace), workspace.snapshot.commits[1]) == ("bng3", second)
        lost, found = workspace.read_archived(2)
        assert (lost.author, found) == ("unknown", document)
    assert str(file) in caplog.text


def test_an_entity_tag_does_not_tell_what_a_secret_is_not(tmp_path: Path, document: Document) -> None:
    tags = set()
    for folder in ("one", "other"):
        with opened(tmp_path / folder, document) as workspace:
            tags.add(workspace.snapshot.etag)
    assert len(tags) == 2


# An amendment while a commit waits to be confirmed.


@pytest.mark.parametrize("valid_for", ["what would return", "what runs"])
def test_an_amendment_that_is_valid_for_one_of_both_configurations_changes_nothing(
    start: Start, document: Document, valid_for: str
) -> None:
    uplinks = document["interfaces"]["uplinks"]
    spared = [*uplinks, "spare0"]
    if valid_for == "what would return":
        document["interfaces"]["uplinks"] = spared
    with start() as workspace:
        staged = spared if valid_for == "what runs" else uplinks
        workspace.edit([Edit("set", "interfaces.uplinks", staged)], ADMIN)
        workspace.commit(ADMIN, 60)
        before = workspace.snapshot.state
        with pytest.raises(Invalid):
            workspace.amend([Edit("set", "cgnat.handoff_interface", "spare0")], ChangeRequest("root"))
        assert workspace.snapshot.state == before


def test_an_amendment_is_on_disk_for_what_runs_and_what_would_return(start: Start) -> None:
    clock = StillClock()
    with start(clock) as workspace:
        commit(workspace, "bng2", 60)
        workspace.amend([Edit("set", "qos.default_up", "9mbit")], ChangeRequest("root"))
    clock.now += 60
    with start(clock) as workspace:
        for name in ("bng2", "bng1"):
            assert hostname(workspace) == name
            assert workspace.snapshot.running.document["qos"]["default_up"] == "9mbit"
            assert workspace.revert_if_due() == (name == "bng2")


# The deadline of an unconfirmed commit, and a clock that is set.


def pass_by(start: Start, clock: StillClock, event: str, argument: float) -> None:
    if event == "set clock":
        clock.ahead = argument
    elif event == "wait":
        clock.now += argument
    elif event == "reboot":
        clock.reboot(argument)
    else:
        with start(clock) as workspace:
            if event == "commit":
                commit(workspace, "bng2", 60)
            else:
                assert not workspace.revert_if_due()
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
    start: Start, document: Document, events: list[tuple[str, int]], left: int
) -> None:
    clock = StillClock()
    for event, argument in events:
        pass_by(start, clock, event, argument)
    with start(clock) as workspace:
        if left:
            assert workspace.compare(None).confirm_deadline == clock.wall() + left
            clock.now += left - 1
            assert not workspace.revert_if_due()
            clock.now += 1
        assert workspace.revert_if_due()
        assert workspace.snapshot.running.document == document


def test_a_deadline_of_an_earlier_version_comes_within_a_day(start: Start, tmp_path: Path) -> None:
    clock = StillClock()
    pass_by(start, clock, *COMMIT)
    state = msgspec.json.decode((tmp_path / "state.json").read_bytes())
    state["deadline"] = {key: state["deadline"][key] for key in ("at", "baseline")}
    (tmp_path / "state.json").write_bytes(msgspec.json.encode(state))
    # Before it heard of the time, the machine was in another century.
    clock.ahead = -50 * YEAR
    pass_by(start, clock, "run core", DAY)
    with start(clock) as workspace:
        assert workspace.revert_if_due()


def test_a_disk_that_takes_nothing_stops_no_start_and_moves_no_deadline(start: Start, tmp_path: Path) -> None:
    clock = StillClock()
    pass_by(start, clock, *COMMIT)
    clock.reboot(-DAY)
    # Where the next state would be written.
    in_the_way = tmp_path / ".state.json.new"
    in_the_way.mkdir()
    with start(clock) as workspace:
        clock.now += 59
        assert not workspace.revert_if_due()
        in_the_way.rmdir()
        clock.now += 1
        assert workspace.revert_if_due()


# What a commit does to services, sessions and the gateway.


def running_number(folder: Path) -> int:
    """The number of the running revision on disk."""
    number: int = json.loads((folder / "state.json").read_text())["running"]
    return number


class Services:
    """Services that note their files, and take one of the steps before that."""

    def __init__(self, *steps: Callable[[], object]) -> None:
        self.steps = list(steps)
        self.applied: list[str] = []

    def render(self, configuration: Configuration) -> RenderedFiles:
        ranges = " ".join(map(str, configuration.cgnat.source_ranges))
        return {"file": f"{configuration.system.hostname} {ranges}"}

    def apply(self, rendered: RenderedFiles, configuration: Configuration) -> None:
        if self.steps:
            self.steps.pop(0)()
        assert rendered == self.render(configuration)
        self.applied.append(rendered["file"])

    def resume(self, configuration: Configuration) -> None:
        self.apply(self.render(configuration), configuration)

    def names(self) -> list[str]:
        return [file.split()[0] for file in self.applied]

    def ranges(self) -> list[str]:
        return [file.split(maxsplit=1)[1] for file in self.applied]


class Gateway:
    """A gateway with sessions on trunk1, which notes what a commit has it do, and refuses on demand."""

    def __init__(self, workspace: Workspace, *sessions: int) -> None:
        self.sessions = list(sessions)
        self.steps: list[str] = []
        self.refuses = False
        workspace.follow(lambda configuration: self.steps.append(f"follow {configuration.system.hostname}"))
        workspace.set_gateway(self.impact, self.ending, self.applying)

    def impact(self, configuration: Configuration) -> Impact:
        return Impact.of([] if "trunk1" in configuration.demux.trunks else self.sessions)

    @contextmanager
    def ending(self, configuration: Configuration) -> Iterator[Impact]:
        self.steps.append("stop")
        yield self.impact(configuration)
        self.steps.append("go on")

    @contextmanager
    def applying(self, configuration: Configuration) -> Iterator[None]:
        if self.refuses:
            raise StepFailed("steer the sessions", "Network is unreachable")
        self.steps.append(f"apply {configuration.system.hostname}")
        try:
            yield
        except StepFailed:
            self.steps.append("as before")
            raise


def refuse() -> None:
    raise StepFailed("reload accel-ppp", "it refuses its files")


def test_services_and_gateway_have_a_configuration_before_it_counts_and_sessions_stand_still(
    start: Start, tmp_path: Path
) -> None:
    services = Services()
    with start(services=services) as workspace:
        gateway, seen = Gateway(workspace), list[int]()
        services.steps = [lambda: seen.append(running_number(tmp_path))]
        commit(workspace, "bng2")
        workspace.apply_running()
        assert (seen, running_number(tmp_path), services.names()) == ([1], 2, ["bng2"])
        assert gateway.steps == ["stop", "apply bng2", "follow bng2", "go on"]


@pytest.mark.parametrize("refusing", ["service", "gateway"])
def test_a_commit_that_is_refused_changes_nothing_and_can_be_made_again(
    start: Start, tmp_path: Path, refusing: str
) -> None:
    services = Services()
    with start(services=services) as workspace:
        gateway = Gateway(workspace)
        stage(workspace, "bng2")
        before = workspace.snapshot
        if refusing == "service":
            services.steps, message = [refuse], "cannot reload accel-ppp: it refuses its files"
        else:
            gateway.refuses, message = True, "cannot steer the sessions: Network is unreachable"
        with pytest.raises(StepFailed, match=message):
            workspace.commit(ADMIN)
        assert (workspace.snapshot, running_number(tmp_path)) == (before, 1)
        assert not [step for step in gateway.steps if step.startswith("follow")]
        # What a service that refused did not put back is unknown here.
        workspace.apply_running()
        workspace.apply_running()
        assert services.names() == (["bng1"] if refusing == "service" else ["bng2", "bng1"])
        gateway.refuses = False
        assert workspace.commit(ADMIN).changes == 1


def test_a_commit_that_cannot_be_stored_gives_services_the_former_files_until_they_take_them(
    start: Start, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    # Where the next state would be written.
    in_the_way = tmp_path / ".state.json.new"
    services = Services(lambda: None, in_the_way.mkdir, refuse, refuse)
    with start(services=services) as workspace:
        gateway = Gateway(workspace)
        workspace.apply_running()
        with pytest.raises(StepFailed, match="cannot replace the running configuration"):
            commit(workspace, "bng2")
        assert gateway.steps[1:] == ["apply bng2", "as before"]
        assert hostname(workspace) == "bng1"
        assert caplog.records[-1].levelname == "CRITICAL"
        assert "cannot reload accel-ppp" in caplog.text
        with pytest.raises(StepFailed, match="reload accel-ppp"):
            workspace.apply_running()
        workspace.apply_running()
        workspace.apply_running()
        assert services.names() == ["bng1", "bng2", "bng1"]


def test_a_start_applies_what_this_version_renders_once_and_again_until_it_works(
    start: Start, tmp_path: Path
) -> None:
    class NewServices(Services):
        def render(self, configuration: Configuration) -> RenderedFiles:
            return {"file": f"{configuration.system.hostname}.example"}

    # A service that refuses stops no first start.
    with start(services=Services(refuse)):
        assert running_number(tmp_path) == 1
    services = NewServices(refuse, refuse)
    with start(services=services) as workspace:
        for _ in range(2):
            with pytest.raises(StepFailed, match="reload accel-ppp"):
                workspace.apply_running()
        workspace.apply_running()
        workspace.apply_running()
        assert services.names() == ["bng1.example"]


def test_a_gateway_that_refuses_does_not_keep_a_return_from_the_operator_but_a_service_does(
    start: Start,
) -> None:
    clock, services = StillClock(), Services()
    with start(clock, services) as workspace:
        gateway = Gateway(workspace)
        commit(workspace, "bng2", confirm_seconds=60)
        clock.now, gateway.refuses, services.steps = clock.now + 60, True, [refuse]
        with pytest.raises(StepFailed, match="reload accel-ppp"):
            workspace.revert_if_due()
        assert hostname(workspace) == "bng2"
        assert workspace.revert_if_due()
        assert (hostname(workspace), gateway.steps[-2:]) == ("bng1", ["follow bng1", "go on"])


# Sessions


def drop_trunk1(workspace: Workspace) -> None:
    workspace.edit([Edit("set", "demux.trunks", ["trunk0"])], ADMIN)


def test_a_comparison_and_a_commit_tell_which_sessions_end(start: Start) -> None:
    # An impact names the first hundred.
    expected = Impact((), 250, tuple(range(5, 105)))
    with start() as workspace:
        Gateway(workspace, *range(5, 255))
        drop_trunk1(workspace)
        assert workspace.compare(None).impact == expected
        assert workspace.commit(ADMIN).impact == expected
        assert workspace.commit(replace(ADMIN, max_sessions_dropped=0)).impact == Impact()
        assert workspace.compare(None).impact == Impact()
        assert workspace.compare(1).impact is workspace.compare(None, 0).impact is None
        workspace.edit([Edit("set", "demux.trunks", ["nowhere"])], ADMIN)
        assert workspace.compare(None).impact is None


def test_a_commit_that_would_end_more_sessions_than_allowed_changes_nothing(
    start: Start, tmp_path: Path
) -> None:
    services = Services()
    with start(services=services) as workspace:
        gateway = Gateway(workspace, 7, 12)
        drop_trunk1(workspace)
        before = workspace.snapshot
        with pytest.raises(ErrorReply, match="CommitDropsSessions") as raised:
            workspace.commit(replace(ADMIN, max_sessions_dropped=1))
        assert json.loads(bytes(raised.value.parameters)) == {"sessions_dropped": 2, "allowed": 1}
        assert (workspace.snapshot, services.applied, gateway.steps) == (before, [], [])
        # A session that starts while the services get their files counts.
        services.steps = [lambda: gateway.sessions.append(13)]
        with pytest.raises(ErrorReply, match="CommitDropsSessions") as raised:
            workspace.commit(replace(ADMIN, max_sessions_dropped=2))
        assert json.loads(bytes(raised.value.parameters)) == {"sessions_dropped": 3, "allowed": 2}
        assert (workspace.snapshot, running_number(tmp_path), len(services.applied)) == (before, 1, 2)
        assert workspace.commit(replace(ADMIN, max_sessions_dropped=3)).impact.sessions == (7, 12, 13)


# The range before a commit that waits for its confirmation


FORMER, MOVED, AGAIN = "100.64.0.0/10", "10.8.0.0/16", "10.9.0.0/16"


def move(workspace: Workspace, source_range: str, confirm_seconds: int | None = 60) -> None:
    workspace.edit([Edit("set", "cgnat.source_range", source_range)], ADMIN)
    workspace.commit(ADMIN, confirm_seconds)


def test_the_range_of_the_baseline_is_served_until_the_commit_is_confirmed(start: Start) -> None:
    services, followed = Services(), list[RenderedFiles]()
    with start(services=services) as workspace:
        workspace.follow(lambda configuration: followed.append(services.render(configuration)))
        move(workspace, MOVED)
        # The first baseline is kept.
        move(workspace, AGAIN)
        services.steps = [refuse]
        with pytest.raises(StepFailed, match="reload accel-ppp"):
            workspace.confirm(ADMIN)
        assert workspace.snapshot.state.deadline is not None
        assert len(followed) == 2
    # Also by a core that restarts.
    with start(services=services) as workspace:
        workspace.follow(lambda configuration: followed.append(services.render(configuration)))
        ranges = workspace.effective_configuration.cgnat.source_ranges
        assert ranges == (IPv4Network(AGAIN), IPv4Network(FORMER))
        gateway = Gateway(workspace)
        workspace.confirm(ADMIN)
        assert gateway.steps == ["stop", "apply bng1", "follow bng1", "go on"]
        assert workspace.snapshot.state.deadline is None
        # A commit without a deadline serves the former range no longer.
        move(workspace, MOVED, None)
    assert services.ranges() == [f"{MOVED} {FORMER}", f"{AGAIN} {FORMER}", AGAIN, MOVED]
    assert [rendered["file"] for rendered in followed] == services.applied


# Generations of the API's users, which their tokens name.


_OTHER_HASH = SECRET_HASH[:-1] + "X"


def generations(workspace: Workspace) -> dict[str, str]:
    held = workspace.snapshot.state.generations
    assert held is not None
    return held


def make_run(workspace: Workspace, *operations: Edit, confirm_seconds: int | None = None) -> None:
    workspace.edit(list(operations), ADMIN)
    workspace.commit(ADMIN, confirm_seconds)


def test_generations_outlive_restarts_and_commits_of_other_things(start: Start) -> None:
    with start() as workspace:
        held = generations(workspace)
        assert set(held) == {"admin", "operator"}
        assert len(set(held.values())) == 2
        commit(workspace, "bng2")
        assert generations(workspace) == held
    with start() as workspace:
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
    assert workspace.revert_if_due()
    assert generations(workspace)["operator"] != changed


def replace_hash(workspace: Workspace, _: StillClock) -> None:
    document = json.loads(json.dumps(workspace.snapshot.running.document))
    document["api"]["users"][1]["password_hash"] = _OTHER_HASH
    workspace.replace_running(document, ADMIN)


@pytest.mark.parametrize(
    "change", [change_hash_and_back, delete_and_bring_back, change_until_the_return, replace_hash, end_tokens]
)
def test_a_user_who_changes_in_any_way_has_another_generation_that_lasts_and_others_keep_theirs(
    start: Start, change: Callable[[Workspace, StillClock], None]
) -> None:
    clock = StillClock()
    with start(clock) as workspace:
        before = generations(workspace)
        change(workspace, clock)
        after = generations(workspace)
    assert after["operator"] != before["operator"]
    assert after["admin"] == before["admin"]
    with start(clock) as workspace:
        assert generations(workspace) == after


def lose_generations(folder: Path) -> None:
    """As an older version has left it."""
    state = folder / "state.json"
    held = json.loads(state.read_bytes())
    del held["generations"]
    state.write_text(json.dumps(held))


def test_a_state_of_an_older_version_gets_generations_that_stay(start: Start, tmp_path: Path) -> None:
    with start() as workspace:
        lost = generations(workspace)
    lose_generations(tmp_path)
    with start() as workspace:
        made = generations(workspace)
    assert set(made) == set(lost)
    assert not set(made.values()) & set(lost.values())
    with start() as workspace:
        assert generations(workspace) == made


def test_a_core_that_cannot_store_the_generations_starts_and_stores_them_with_the_next_change(
    start: Start, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with start():
        pass
    lose_generations(tmp_path)
    with ExitStack() as core:
        with no_file_longer_than(16):
            workspace = core.enter_context(start())
        (record,) = caplog.records
        assert record.levelno == logging.ERROR
        assert "generations" in record.getMessage()
        made = generations(workspace)
        assert set(made) == {"admin", "operator"}
        commit(workspace, "bng2")
        assert generations(workspace) == made
    with start() as workspace:
        assert generations(workspace) == made


# What an older version stored, under rules that it didn't know: it loads, runs and comes back.


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
def upgraded(folder: Path, start: Start, stored: Document) -> Iterator[Workspace]:
    """A core's workspace in which an older version had made something run."""
    with start():
        pass
    (folder / "revisions" / "1" / "configuration.json").write_text(json.dumps(stored))
    with start() as workspace:
        yield workspace


def refused_at(error: Invalid) -> list[str]:
    return [problem.path for problem in error.problems]


@pytest.mark.parametrize("path", OLD)
def test_a_stored_value_that_breaks_a_later_rule_is_loaded_with_a_warning_and_stays_through_other_changes(
    start: Start, tmp_path: Path, document: Document, path: str, caplog: pytest.LogCaptureFixture
) -> None:
    stored = older(document, path)
    with upgraded(tmp_path, start, stored) as workspace:
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
    start: Start, document: Document, path: str
) -> None:
    with start() as workspace:
        with pytest.raises(OperationRefused):
            workspace.edit([Edit("set", path, OLD[path])], ADMIN)
        with pytest.raises(OperationRefused):
            workspace.amend([Edit("set", path, OLD[path])], ChangeRequest("root"))
        with pytest.raises(Invalid) as error:
            workspace.replace_running(older(document, path), ADMIN)
        with pytest.raises(Invalid):
            workspace.replace_candidate(older(document, path), ADMIN)
        assert set(refused_at(error.value)) == {path}


def test_a_neighbor_that_moves_in_its_list_keeps_its_description(
    start: Start, tmp_path: Path, document: Document
) -> None:
    stored = older(document, "bgp.neighbors.0.description")
    stored["bgp"]["neighbors"].insert(0, {"address": "192.0.2.77", "remote_as": 64512})
    with upgraded(tmp_path, start, stored) as workspace:
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
    start: Start, tmp_path: Path, document: Document
) -> None:
    stored, clock = older(document), StillClock()
    # Like a VLAN of a trunk.
    put(stored, "cgnat.vrf_name", "trunk0.100")
    with upgraded(tmp_path, start, stored):
        pass
    with start(clock) as workspace:
        workspace.edit([Edit("set", "cgnat.vrf_name", "vrf1")], ADMIN)
        workspace.commit(ADMIN, 60)
        workspace.amend([Edit("set", "qos.default_up", "9mbit")], ChangeRequest("root"))
        clock.now += 60
        assert workspace.revert_if_due()
        put(stored, "qos.default_up", "9mbit")
        assert workspace.snapshot.running.document == stored


def test_an_archived_configuration_of_an_older_version_is_refused_at_commit_and_restored_by_rescue(
    start: Start, tmp_path: Path, document: Document
) -> None:
    stored = older(document)
    with upgraded(tmp_path, start, stored) as workspace:
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
    start: Start, tmp_path: Path, document: Document
) -> None:
    with (
        pytest.raises(Invalid, match=r"cgnat\.vrf_name"),
        upgraded(tmp_path, start, {**document, "cgnat": {**document["cgnat"], "vrf_name": 5}}),
    ):
        pass

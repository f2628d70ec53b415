"""What a commit does to services, sessions and the gateway, and what becomes of it if they refuse."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from ipaddress import IPv4Network
from pathlib import Path
from typing import Any

import pytest

from gateway_contract.base.errors import StepFailed
from gateway_contract.configuration import Configuration
from gateway_contract.core.configuration import Edit
from gateway_contract.core.impact import Impact
from gateway_contract.varlink.protocol import ErrorReply
from gateway_core.configuration.workspace import Rendered, Workspace
from tests.support.core_clock import StillClock
from tests.support.workspaces import ADMIN, commit, opened, stage


def running_number(folder: Path) -> int:
    """The number of the running revision on disk."""
    number: int = json.loads((folder / "state.json").read_text())["running"]
    return number


def hostname(workspace: Workspace) -> Any:
    return workspace.snapshot.running.document["system"]["hostname"]


class Services:
    """Services that note their files, and take one of the steps before that."""

    def __init__(self, *steps: Callable[[], object]) -> None:
        self.steps = list(steps)
        self.applied: list[str] = []

    def render(self, configuration: Configuration) -> Rendered:
        ranges = " ".join(map(str, configuration.cgnat.source_ranges))
        return {"file": f"{configuration.system.hostname} {ranges}"}

    def apply(self, rendered: Rendered, configuration: Configuration) -> None:
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
    tmp_path: Path, document: dict[str, Any]
) -> None:
    services = Services()
    with opened(tmp_path, document, StillClock(), services) as workspace:
        gateway, seen = Gateway(workspace), list[int]()
        services.steps = [lambda: seen.append(running_number(tmp_path))]
        commit(workspace, "bng2")
        workspace.apply_running()
        assert (seen, running_number(tmp_path), services.names()) == ([1], 2, ["bng2"])
        assert gateway.steps == ["stop", "apply bng2", "follow bng2", "go on"]


@pytest.mark.parametrize("refusing", ["service", "gateway"])
def test_a_commit_that_is_refused_changes_nothing_and_can_be_made_again(
    tmp_path: Path, document: dict[str, Any], refusing: str
) -> None:
    services = Services()
    with opened(tmp_path, document, StillClock(), services) as workspace:
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
    tmp_path: Path, document: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    # Where the next state would be written.
    in_the_way = tmp_path / ".state.json.new"
    services = Services(lambda: None, in_the_way.mkdir, refuse, refuse)
    with opened(tmp_path, document, StillClock(), services) as workspace:
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
    tmp_path: Path, document: dict[str, Any]
) -> None:
    class NewServices(Services):
        def render(self, configuration: Configuration) -> Rendered:
            return {"file": f"{configuration.system.hostname}.example"}

    # A service that refuses stops no first start.
    with opened(tmp_path, document, StillClock(), Services(refuse)):
        assert running_number(tmp_path) == 1
    services = NewServices(refuse, refuse)
    with opened(tmp_path, document, StillClock(), services) as workspace:
        for _ in range(2):
            with pytest.raises(StepFailed, match="reload accel-ppp"):
                workspace.apply_running()
        workspace.apply_running()
        workspace.apply_running()
        assert services.names() == ["bng1.example"]


def test_a_gateway_that_refuses_does_not_keep_a_return_from_the_operator_but_a_service_does(
    tmp_path: Path, document: dict[str, Any]
) -> None:
    clock, services = StillClock(), Services()
    with opened(tmp_path, document, clock, services) as workspace:
        gateway = Gateway(workspace)
        commit(workspace, "bng2", confirm_seconds=60)
        clock.now, gateway.refuses, services.steps = clock.now + 60, True, [refuse]
        with pytest.raises(StepFailed, match="reload accel-ppp"):
            workspace.return_if_due()
        assert hostname(workspace) == "bng2"
        assert workspace.return_if_due()
        assert (hostname(workspace), gateway.steps[-2:]) == ("bng1", ["follow bng1", "go on"])


# Sessions


def drop_trunk1(workspace: Workspace) -> None:
    workspace.edit([Edit("set", "demux.trunks", ["trunk0"])], ADMIN)


def test_a_comparison_and_a_commit_tell_which_sessions_end(tmp_path: Path, document: dict[str, Any]) -> None:
    # An impact names the first hundred.
    expected = Impact((), 250, tuple(range(5, 105)))
    with opened(tmp_path, document, StillClock()) as workspace:
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
    tmp_path: Path, document: dict[str, Any]
) -> None:
    services = Services()
    with opened(tmp_path, document, StillClock(), services) as workspace:
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


def test_the_range_of_the_baseline_is_served_until_the_commit_is_confirmed(
    tmp_path: Path, document: dict[str, Any]
) -> None:
    services, followed = Services(), list[Rendered]()
    with opened(tmp_path, document, StillClock(), services) as workspace:
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
    with opened(tmp_path, document, StillClock(), services) as workspace:
        workspace.follow(lambda configuration: followed.append(services.render(configuration)))
        assert workspace.in_force.cgnat.source_ranges == (IPv4Network(AGAIN), IPv4Network(FORMER))
        gateway = Gateway(workspace)
        workspace.confirm(ADMIN)
        assert gateway.steps == ["stop", "apply bng1", "follow bng1", "go on"]
        assert workspace.snapshot.state.deadline is None
        # A commit without a deadline serves the former range no longer.
        move(workspace, MOVED, None)
    assert services.ranges() == [f"{MOVED} {FORMER}", f"{AGAIN} {FORMER}", AGAIN, MOVED]
    assert [rendered["file"] for rendered in followed] == services.applied

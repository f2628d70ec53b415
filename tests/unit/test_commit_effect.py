"""What a commit does to services and sessions, and what becomes of it if they refuse."""

import json
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from ipaddress import IPv4Network
from pathlib import Path
from typing import Any

import pytest

from gateway_api.base.errors import StepFailed
from gateway_api.core.configuration.workspace import ChangeRequest, Rendered, Workspace
from gateway_api.wire.configuration import Configuration
from gateway_api.wire.core.configuration import Edit
from gateway_api.wire.core.impact import Impact
from gateway_api.wire.varlink.protocol import ErrorReply
from tests.support.clocks import StillClock
from tests.support.workspaces import ADMIN, commit, opened, stage


def running_number(folder: Path) -> int:
    """The revision that counts on disk."""
    number: int = json.loads((folder / "state.json").read_text())["running"]
    return number


def hostname(workspace: Workspace) -> Any:
    return workspace.snapshot.running.document["system"]["hostname"]


class Services:
    """Services that note what they are given, and do before that what a test wants."""

    def __init__(self, meanwhile: Callable[[], None] = lambda: None) -> None:
        self.meanwhile = meanwhile
        #: The names of hosts.
        self.applied: list[str] = []

    def render(self, configuration: Configuration) -> Rendered:
        return {"hostname": configuration.system.hostname}

    def apply(self, rendered: Rendered, configuration: Configuration) -> None:
        self.meanwhile()
        assert rendered == self.render(configuration)
        self.applied.append(rendered["hostname"])

    def resume(self, configuration: Configuration) -> None:
        self.apply(self.render(configuration), configuration)


def refuse() -> None:
    raise StepFailed("reload accel-ppp", "it refuses its files")


def fill_the_disk() -> None:
    _, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, most))


@pytest.fixture
def _disk_with_space() -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_the_services_have_the_files_before_the_revision_counts(
    tmp_path: Path, document: dict[str, Any]
) -> None:
    services = Services()
    with opened(tmp_path, document, StillClock(), services=services) as workspace:
        seen: list[int] = []
        services.meanwhile = lambda: seen.append(running_number(tmp_path))
        commit(workspace, "bng2")
        assert (seen, services.applied, running_number(tmp_path)) == ([1], ["bng2"], 2)


def test_a_service_that_refuses_makes_the_commit_fail_with_everything_as_it_was(
    tmp_path: Path, document: dict[str, Any]
) -> None:
    services = Services()
    followed: list[Configuration] = []
    with opened(tmp_path, document, StillClock(), services=services) as workspace:
        workspace.follow(followed.append)
        stage(workspace, "bng2")
        before = workspace.snapshot
        services.meanwhile = refuse
        with pytest.raises(StepFailed, match="cannot reload accel-ppp: it refuses its files"):
            workspace.commit(ADMIN)
        assert workspace.snapshot is before
        assert (followed, running_number(tmp_path)) == ([], 1)
        services.meanwhile = lambda: None
        assert workspace.commit(ADMIN).changes == 1


def test_after_a_refused_commit_the_services_get_the_running_files_once_more(
    tmp_path: Path, document: dict[str, Any]
) -> None:
    services = Services()
    with opened(tmp_path, document, StillClock(), services=services) as workspace:
        commit(workspace, "bng2")
        services.meanwhile = refuse
        with pytest.raises(StepFailed):
            commit(workspace, "bng3")
        # What the services did not put back is unknown here.
        services.meanwhile = lambda: None
        workspace.apply_running()
        workspace.apply_running()
        assert services.applied == ["bng2", "bng2"]


@pytest.mark.usefixtures("_disk_with_space")
def test_a_commit_that_cannot_be_stored_leaves_the_services_with_the_former_files(
    tmp_path: Path, document: dict[str, Any]
) -> None:
    services = Services()
    with opened(tmp_path, document, StillClock(), services=services) as workspace:
        services.meanwhile = fill_the_disk
        with pytest.raises(StepFailed, match="cannot replace the running configuration"):
            commit(workspace, "bng2")
        assert services.applied == ["bng2", "bng1"]
        assert hostname(workspace) == document["system"]["hostname"]
        workspace.apply_running()
        assert services.applied == ["bng2", "bng1"]


@pytest.mark.usefixtures("_disk_with_space")
def test_services_that_do_not_take_the_former_files_back_get_them_until_they_do(
    tmp_path: Path, document: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    services = Services()
    steps = [fill_the_disk, refuse, refuse, lambda: None]
    with opened(tmp_path, document, StillClock(), services=services) as workspace:
        workspace.apply_running()
        services.meanwhile = lambda: steps.pop(0)()
        with pytest.raises(StepFailed, match="cannot replace the running configuration"):
            commit(workspace, "bng2")
        assert caplog.records[-1].levelname == "CRITICAL"
        assert "cannot reload accel-ppp" in caplog.text
        with pytest.raises(StepFailed, match="reload accel-ppp"):
            workspace.apply_running()
        workspace.apply_running()
        assert (services.applied, steps) == (["bng1", "bng2", "bng1"], [])


def test_a_start_applies_what_runs_once_and_again_until_it_works(
    tmp_path: Path, document: dict[str, Any]
) -> None:
    with opened(tmp_path, document, StillClock()) as workspace:
        commit(workspace, "bng2")
    services = Services(refuse)
    with opened(tmp_path, document, StillClock(), services=services) as workspace:
        for _ in range(2):
            with pytest.raises(StepFailed, match="reload accel-ppp"):
                workspace.apply_running()
        services.meanwhile = lambda: None
        for _ in range(2):
            workspace.apply_running()
        assert services.applied == ["bng2"]


def test_a_start_after_an_upgrade_applies_what_the_new_version_renders(
    tmp_path: Path, document: dict[str, Any]
) -> None:
    class NewServices(Services):
        def render(self, configuration: Configuration) -> Rendered:
            return {"hostname": f"{configuration.system.hostname}.example"}

    with opened(tmp_path, document, StillClock(), services=Services()) as workspace:
        commit(workspace, "bng2")
    services = NewServices()
    with opened(tmp_path, document, StillClock(), services=services) as workspace:
        workspace.apply_running()
        assert services.applied == ["bng2.example"]


def test_a_service_that_refuses_the_first_configuration_stops_no_start(
    tmp_path: Path, document: dict[str, Any]
) -> None:
    services = Services(refuse)
    with opened(tmp_path, document, StillClock(), services=services) as workspace:
        assert running_number(tmp_path) == 1
        services.meanwhile = lambda: None
        workspace.apply_running()
        assert services.applied == ["bng1"]


def test_a_return_that_a_service_refuses_is_tried_again(tmp_path: Path, document: dict[str, Any]) -> None:
    clock, services = StillClock(), Services()
    with opened(tmp_path, document, clock, services=services) as workspace:
        commit(workspace, "bng2", confirm_seconds=60)
        clock.now += 60
        services.meanwhile = refuse
        with pytest.raises(StepFailed, match="reload accel-ppp"):
            workspace.return_if_due()
        assert hostname(workspace) == "bng2"
        services.meanwhile = lambda: None
        assert workspace.return_if_due()
        assert (hostname(workspace), services.applied) == ("bng1", ["bng2", "bng1"])


# Sessions


def foreseen(workspace: Workspace, ids: list[int]) -> None:
    """As by a gateway with these sessions, all on trunk1."""

    def ended(configuration: Configuration) -> list[int]:
        return [] if "trunk1" in configuration.demux.trunks else ids

    workspace.foresee(
        lambda configuration: Impact.of(ended(configuration)),
        lambda configuration: nullcontext(Impact.of(ended(configuration))),
    )


def without_trunk1(workspace: Workspace, *ids: int) -> list[int]:
    """The sessions of the gateway, which a test may change."""
    sessions = list(ids)
    foreseen(workspace, sessions)
    workspace.edit([Edit("set", "demux.trunks", ["trunk0"])], ADMIN)
    return sessions


def limited(most: int | None) -> ChangeRequest:
    return replace(ADMIN, max_sessions_dropped=most)


@pytest.mark.parametrize("most", [2, 3, None])
def test_a_commit_says_which_sessions_it_ended(
    tmp_path: Path, document: dict[str, Any], most: int | None
) -> None:
    with opened(tmp_path, document, StillClock()) as workspace:
        without_trunk1(workspace, 7, 12)
        assert workspace.commit(limited(most)).impact == Impact((), 2, (7, 12))
        assert workspace.commit(limited(0)).impact == Impact()


@pytest.mark.parametrize("most", [0, 1])
def test_a_commit_that_would_end_more_sessions_than_allowed_changes_nothing(
    tmp_path: Path, document: dict[str, Any], most: int
) -> None:
    services = Services()
    with opened(tmp_path, document, StillClock(), services=services) as workspace:
        without_trunk1(workspace, 7, 12)
        before = workspace.snapshot
        with pytest.raises(ErrorReply, match="CommitDropsSessions") as raised:
            workspace.commit(limited(most))
        assert json.loads(bytes(raised.value.parameters)) == {"sessions_dropped": 2, "allowed": most}
        assert (workspace.snapshot, services.applied, running_number(tmp_path)) == (before, [], 1)


def test_a_session_that_starts_while_the_services_are_applied_counts(
    tmp_path: Path, document: dict[str, Any]
) -> None:
    services = Services()
    with opened(tmp_path, document, StillClock(), services=services) as workspace:
        sessions = without_trunk1(workspace, 7, 12)
        before, steps = workspace.snapshot, [lambda: sessions.append(13), lambda: None, lambda: None]
        services.meanwhile = lambda: steps.pop(0)()
        with pytest.raises(ErrorReply, match="CommitDropsSessions") as raised:
            workspace.commit(limited(2))
        assert json.loads(bytes(raised.value.parameters)) == {"sessions_dropped": 3, "allowed": 2}
        # They had the new files, and have the former ones again.
        assert (workspace.snapshot, running_number(tmp_path)) == (before, 1)
        assert services.applied == ["bng1", "bng1"]
        assert workspace.commit(limited(3)).impact == Impact((), 3, (7, 12, 13))


def test_no_session_starts_between_the_last_look_and_the_change(
    tmp_path: Path, document: dict[str, Any]
) -> None:
    steps: list[str] = []

    @contextmanager
    def ending(_: Configuration) -> Iterator[Impact]:
        steps.append("standstill")
        yield Impact()
        steps.append("going on")

    with opened(tmp_path, document, StillClock()) as workspace:
        workspace.follow(lambda _: steps.append("changed"))
        workspace.foresee(lambda _: Impact(), ending)
        commit(workspace, "bng2")
    assert steps == ["standstill", "changed", "going on"]


# The gateway


class Kernel:
    """The gateway's part of a commit, which notes what it has, and refuses on demand."""

    def __init__(self) -> None:
        self.steps: list[str] = []
        self.refuses = False

    @contextmanager
    def applying(self, configuration: Configuration) -> Iterator[None]:
        if self.refuses:
            raise StepFailed("steer the sessions", "Network is unreachable")
        self.steps.append(f"with {configuration.system.hostname}")
        try:
            yield
        except StepFailed:
            self.steps.append("as before")
            raise


def test_a_kernel_that_refuses_makes_the_commit_fail_with_everything_as_it_was(
    tmp_path: Path, document: dict[str, Any]
) -> None:
    services, kernel, followed = Services(), Kernel(), list[Configuration]()
    with opened(tmp_path, document, StillClock(), services=services) as workspace:
        workspace.apply_by(kernel.applying)
        workspace.follow(followed.append)
        stage(workspace, "bng2")
        before, kernel.refuses = workspace.snapshot, True
        with pytest.raises(StepFailed, match="cannot steer the sessions: Network is unreachable"):
            workspace.commit(ADMIN)
        assert (workspace.snapshot, followed, running_number(tmp_path)) == (before, [], 1)
        assert services.applied == ["bng2", "bng1"]
        kernel.refuses = False
        assert workspace.commit(ADMIN).changes == 1


@pytest.mark.usefixtures("_disk_with_space")
def test_a_commit_that_cannot_be_stored_leaves_the_kernel_as_it_was(
    tmp_path: Path, document: dict[str, Any]
) -> None:
    services, kernel = Services(fill_the_disk), Kernel()
    with opened(tmp_path, document, StillClock(), services=services) as workspace:
        workspace.apply_by(kernel.applying)
        with pytest.raises(StepFailed, match="cannot replace the running configuration"):
            commit(workspace, "bng2")
    assert kernel.steps == ["with bng2", "as before"]


def test_a_kernel_that_refuses_does_not_keep_a_return_from_the_operator(
    tmp_path: Path, document: dict[str, Any]
) -> None:
    clock, kernel, followed = StillClock(), Kernel(), list[str]()
    with opened(tmp_path, document, clock) as workspace:
        workspace.apply_by(kernel.applying)
        workspace.follow(lambda configuration: followed.append(configuration.system.hostname))
        commit(workspace, "bng2", confirm_seconds=60)
        clock.now, kernel.refuses = clock.now + 60, True
        assert workspace.return_if_due()
        assert (hostname(workspace), followed) == ("bng1", ["bng2", "bng1"])


# The range before a commit that waits for its confirmation


class Ranges(Services):
    """Services that note the ranges that they serve."""

    def render(self, configuration: Configuration) -> Rendered:
        return {"hostname": " ".join(map(str, configuration.cgnat.source_ranges))}


FORMER, MOVED, AGAIN = "100.64.0.0/10", "10.8.0.0/16", "10.9.0.0/16"


def move(workspace: Workspace, source_range: str, confirm_seconds: int | None = 60) -> None:
    workspace.edit([Edit("set", "cgnat.source_range", source_range)], ADMIN)
    workspace.commit(ADMIN, confirm_seconds)


@pytest.fixture
def ranges(tmp_path: Path, document: dict[str, Any]) -> Iterator[tuple[Workspace, Ranges, list[str]]]:
    """A workspace, its services, and the ranges that the gateway followed."""
    services, followed = Ranges(), list[str]()
    document["cgnat"]["source_range"] = FORMER
    with opened(tmp_path, document, StillClock(), services=services) as workspace:
        workspace.follow(lambda configuration: followed.append(services.render(configuration)["hostname"]))
        yield workspace, services, followed


def test_the_former_range_is_served_until_the_commit_is_confirmed(
    ranges: tuple[Workspace, Ranges, list[str]],
) -> None:
    workspace, services, followed = ranges
    move(workspace, MOVED)
    # The first baseline is kept.
    move(workspace, AGAIN)
    workspace.confirm(ADMIN)
    assert services.applied == followed == [f"{MOVED} {FORMER}", f"{AGAIN} {FORMER}", AGAIN]
    assert workspace.snapshot.state.deadline is None


def test_a_commit_without_a_deadline_serves_the_former_range_no_longer(
    ranges: tuple[Workspace, Ranges, list[str]],
) -> None:
    workspace, services, followed = ranges
    move(workspace, MOVED, None)
    move(workspace, AGAIN)
    commit(workspace, "bng2")
    assert services.applied == followed == [MOVED, f"{AGAIN} {MOVED}", AGAIN]


def test_a_confirmation_that_a_service_refuses_leaves_the_deadline(
    ranges: tuple[Workspace, Ranges, list[str]],
) -> None:
    workspace, services, followed = ranges
    move(workspace, MOVED)
    services.meanwhile = refuse
    with pytest.raises(StepFailed, match="reload accel-ppp"):
        workspace.confirm(ADMIN)
    assert workspace.snapshot.state.deadline is not None
    assert followed == [f"{MOVED} {FORMER}"]


def test_a_core_that_restarts_before_the_confirmation_serves_the_former_range(
    tmp_path: Path, document: dict[str, Any]
) -> None:
    document["cgnat"]["source_range"] = FORMER
    with opened(tmp_path, document, StillClock()) as workspace:
        move(workspace, MOVED)
    with opened(tmp_path, document, StillClock()) as workspace:
        assert workspace.in_force.cgnat.source_ranges == (IPv4Network(MOVED), IPv4Network(FORMER))


# Impacts


def test_a_comparison_tells_what_a_commit_would_do_now(tmp_path: Path, document: dict[str, Any]) -> None:
    with opened(tmp_path, document, StillClock()) as workspace:
        workspace.foresee(lambda _: Impact.of([7]), lambda _: nullcontext(Impact.of([7])))
        assert workspace.compare(None).impact == Impact()
        commit(workspace, "bng2")
        without_trunk1(workspace, 7, 12)
        assert workspace.compare(None).impact == Impact((), 2, (7, 12))
        assert workspace.compare(1).impact is None
        workspace.edit([Edit("set", "demux.trunks", ["nowhere"])], ADMIN)
        assert workspace.compare(None).impact is None


def test_an_impact_names_the_first_hundred_sessions() -> None:
    impact = Impact.of(range(5, 255))
    assert (impact.sessions_dropped, impact.sessions) == (250, tuple(range(5, 105)))

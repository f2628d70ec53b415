"""What of the settings of access is kept, and how long it counts."""

import os
import socket
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gateway_api.auth.tokens import AccessSettings
from gateway_contract.base.errors import CoreUnavailable, StepFailed
from gateway_contract.core.configuration import AccessReply, ApiSettings, CheckAccess, Edit
from gateway_core.configuration.service import ConfigurationService
from gateway_core.configuration.workspace import Workspace
from tests.support.core_clock import StillClock
from tests.support.workspaces import ADMIN, no_file_longer_than, opened, stage


class Core:
    """One with a socket, whose replies are those of a workspace. `meanwhile` happens before a reply comes."""

    def __init__(self, workspace: Workspace, path: Path) -> None:
        self.service = ConfigurationService(workspace)
        self.path = path
        self.asked = 0
        self.gone = False
        self.meanwhile: Callable[[], None] = lambda: None

    def check_access(self, usernames: Iterable[str], *, timeout: float | None = None) -> AccessReply:
        self.asked += 1
        if self.gone:
            raise CoreUnavailable("gone")
        reply = self.service.check_access(CheckAccess(tuple(usernames)))
        self.meanwhile()
        return reply

    def get_settings(self) -> ApiSettings:
        self.asked += 1
        reply = next(self.service.get_api_settings(CheckAccess(())))
        assert reply is not None
        return reply


@pytest.fixture
def workspace(tmp_path: Path, document: dict[str, Any]) -> Iterator[Workspace]:
    with opened(tmp_path / "configuration", document, StillClock()) as workspace:
        yield workspace


@pytest.fixture
def core(tmp_path: Path, workspace: Workspace) -> Iterator[Core]:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "core.sock"))
        core = Core(workspace, tmp_path / "core.sock")
        workspace.follow_versions(lambda version: os.utime(core.path, ns=(version, version)))
        yield core


@pytest.fixture
def settings(core: Core) -> AccessSettings:
    return AccessSettings(core, core.path)  # type: ignore[arg-type]


def disable(workspace: Workspace) -> None:
    workspace.amend([Edit("set", "api.enabled", False)], ADMIN)


def test_the_core_is_asked_once_for_each_name_until_a_change(
    workspace: Workspace, core: Core, settings: AccessSettings
) -> None:
    for _ in range(3):
        assert settings.get_access("admin").user("admin") is not None
        assert settings.get_access(None).enabled
        assert settings.get_settings().enabled
    assert core.asked == 3
    disable(workspace)
    for _ in range(3):
        assert not settings.get_access("admin").enabled
        assert not settings.get_settings().enabled
    assert core.asked == 5


def test_a_change_between_the_question_and_the_reply_counts_for_the_next_request(
    workspace: Workspace, core: Core, settings: AccessSettings
) -> None:
    def once() -> None:
        core.meanwhile = lambda: None
        disable(workspace)

    core.meanwhile = once
    # It began before the commit had its reply.
    assert settings.get_access("admin").enabled
    assert not settings.get_access("admin").enabled


def test_what_is_known_counts_while_the_core_hangs_and_nothing_else_does(
    core: Core, settings: AccessSettings
) -> None:
    settings.get_access("admin")
    core.gone = True
    assert settings.get_access("admin").enabled
    with pytest.raises(CoreUnavailable):
        settings.get_access("operator")


def test_nothing_that_is_known_counts_from_the_moment_at_which_a_change_begins(
    workspace: Workspace, core: Core, settings: AccessSettings
) -> None:
    """The core may be killed at any point of a change: then nobody knows what the next one runs by."""
    settings.get_access("admin")
    with no_file_longer_than(10), pytest.raises(StepFailed):
        stage(workspace, "bng2")
    asked = core.asked
    for _ in range(3):
        assert settings.get_access("admin").enabled
    assert core.asked == asked + 3
    stage(workspace, "bng2")
    asked = core.asked
    for _ in range(3):
        assert settings.get_access("admin").enabled
    assert core.asked == asked + 1


def test_a_change_that_the_socket_cannot_show_does_not_happen(
    workspace: Workspace, core: Core, settings: AccessSettings
) -> None:
    def refuse(version: int) -> None:
        raise PermissionError(13, "Permission denied")

    workspace._version_follower = refuse
    with pytest.raises(StepFailed, match="date the socket"):
        disable(workspace)
    assert settings.get_access("admin").enabled
    assert workspace.snapshot.running.sections.api.enabled


@pytest.mark.parametrize(
    "lose",
    [
        lambda path: path.unlink(),
        lambda path: path.rename(path.with_name("aside")),
        lambda path: os.utime(path),
        lambda path: (path.unlink(), path.write_bytes(b"")),
    ],
    ids=["removed", "renamed", "touched", "replaced"],
)
def test_with_another_socket_or_none_the_core_is_asked_each_time(
    core: Core, settings: AccessSettings, lose: Callable[[Path], object]
) -> None:
    settings.get_access("admin")
    lose(core.path)
    asked = core.asked
    for _ in range(3):
        settings.get_access("admin")
    assert core.asked == asked + 3


def test_a_core_without_versions_is_asked_each_time(core: Core, settings: AccessSettings) -> None:
    core.service.check_access = lambda _: AccessReply(True, ())  # type: ignore[method-assign]
    for _ in range(3):
        settings.get_access("admin")
    assert core.asked == 3

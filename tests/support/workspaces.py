"""Workspaces of a configuration, and the limits of a process: full disks, many descriptors."""

import os
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from gateway_contract.base.errors import Invalid, Problem
from gateway_contract.configuration import Configuration
from gateway_contract.core.configuration import Edit
from gateway_core.configuration.running import RunningConfiguration
from gateway_core.configuration.store import ConfigurationStore
from gateway_core.configuration.workspace import ChangeRequest, GatewayServices, RenderedFiles, Workspace
from gateway_core.gateways.lab.gateway import LabServices
from tests.support.core_clock import StillClock

ADMIN = ChangeRequest("admin")
_NO_SERVICES = LabServices()


class CheckedServices(LabServices):
    """Services whose files `check` examines, which may raise StepFailed."""

    def __init__(self, check: Callable[[], None]) -> None:
        self._check = check

    def render(self, configuration: Configuration) -> RenderedFiles:
        self._check()
        return {}


@contextmanager
def opened(
    folder: Path,
    document: dict[str, Any],
    clock: StillClock | None = None,
    services: GatewayServices = _NO_SERVICES,
) -> Iterator[Workspace]:
    """A workspace whose first configuration is `document`, which it reads from `folder` once it is stored."""
    store = ConfigurationStore(folder)
    yield Workspace(store, lambda: RunningConfiguration.of(document), clock or StillClock(), services)
    store.close()


def problems(document: Any) -> list[Problem]:
    with pytest.raises(Invalid) as refused:
        RunningConfiguration.of(document)
    return list(refused.value.problems)


def stage(workspace: Workspace, hostname: str) -> None:
    workspace.edit([Edit("set", "system.hostname", hostname)], ADMIN)


def commit(workspace: Workspace, hostname: str, confirm_seconds: int | None = None) -> None:
    stage(workspace, hostname)
    workspace.commit(ADMIN, confirm_seconds)


@contextmanager
def no_file_longer_than(size: int) -> Iterator[None]:
    """Limit the size of the process's files: as on a full disk, a write fails in its middle."""
    before, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, most))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (before, most))


@contextmanager
def many_descriptors() -> Iterator[None]:
    """Hold 1024 descriptors, so that new ones are above those that select(2) takes, as beside many
    connections."""
    before, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    held = [os.open("/dev/null", os.O_RDONLY) for _ in range(1024)]
    try:
        yield
    finally:
        for descriptor in held:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (before, most))

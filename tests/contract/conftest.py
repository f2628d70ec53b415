"""What the tests of commands share."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.running_gateway import Gateway
from tests.support.shell import Shell
from tests.support.stack import running_stack

#: More than one page of the commands.
SESSIONS = 2100


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """A module's own, whose core it may stop."""
    state = tmp_path_factory.mktemp("state")
    with running_stack(state, sessions=SESSIONS) as (api, process):
        yield Gateway(api, process, state)


@pytest.fixture
def shell(gateway: Gateway, tmp_path: Path) -> Shell:
    """Nobody is logged in."""
    return Shell(gateway.api, tmp_path)


@pytest.fixture
def admin(shell: Shell) -> Shell:
    shell.has(shell.api.token("admin"), username="admin")
    return shell


@pytest.fixture
def operator(shell: Shell) -> Shell:
    shell.has(shell.api.token("operator"), username="operator")
    return shell


@pytest.fixture
def leaver(shell: Shell) -> Shell:
    """An operator with a token of their own, which the test may revoke."""
    shell.has(shell.api.new_token("operator"), username="operator")
    return shell

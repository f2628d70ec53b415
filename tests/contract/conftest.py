"""What the tests of commands share."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.desk import Desk
from tests.support.running_gateway import Gateway
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
def desk(gateway: Gateway, tmp_path: Path) -> Desk:
    """Nobody is logged in."""
    return Desk(gateway.api, tmp_path)


@pytest.fixture
def admin(desk: Desk) -> Desk:
    desk.has(desk.api.token("admin"), username="admin")
    return desk


@pytest.fixture
def operator(desk: Desk) -> Desk:
    desk.has(desk.api.token("operator"), username="operator")
    return desk


@pytest.fixture
def leaver(desk: Desk) -> Desk:
    """An operator with a token of their own, which the test may revoke."""
    desk.has(desk.api.new_token("operator"), username="operator")
    return desk

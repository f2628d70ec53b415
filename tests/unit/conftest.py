"""What tests of modules share."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import gevent
import pytest

from gateway_api.auth.ledger import Ledger, SharedState
from gateway_api.auth.login import Login, Throttle
from tests.support.clocks import NOW, SteppedClock
from tests.support.ledger import ledger_at
from tests.support.logins import InlinePool, throttle_of


@pytest.fixture
def greenlets(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Has all of a test's greenlets end with it."""
    spawn, started = gevent.spawn, []

    def spawned(*arguments: Any) -> Any:
        started.append(spawn(*arguments))
        return started[-1]

    monkeypatch.setattr(gevent, "spawn", spawned)
    yield
    gevent.killall(started, timeout=5)


@pytest.fixture
def clock() -> SteppedClock:
    return SteppedClock(NOW)


@pytest.fixture
def shared() -> SharedState:
    """What the workers of one API know of their ledger."""
    return SharedState()


@pytest.fixture
def ledger(tmp_path: Path, shared: SharedState, clock: SteppedClock) -> Iterator[Ledger]:
    with closing(ledger_at(tmp_path / "ledger.sqlite", shared, clock)) as made:
        yield made


@pytest.fixture
def neighbours_ledger(
    tmp_path: Path, ledger: Ledger, shared: SharedState, clock: SteppedClock
) -> Iterator[Ledger]:
    """The same file as another worker has it."""
    with closing(ledger_at(tmp_path / "ledger.sqlite", shared, clock)) as made:
        yield made


@pytest.fixture
def pool() -> InlinePool:
    return InlinePool()


@pytest.fixture
def throttle(ledger: Ledger, clock: SteppedClock) -> Throttle:
    return throttle_of(ledger, clock)


@pytest.fixture
def login(throttle: Throttle, pool: InlinePool) -> Login:
    return Login(throttle, pool)

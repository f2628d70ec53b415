"""What tests of modules share."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import gevent
import pytest

from gateway_api.auth.ledger import open_ledger
from gateway_api.auth.login import Login, Throttle
from tests.support.clocks import NOW, SteppedClock
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
def ledger(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    with closing(open_ledger(tmp_path / "ledger.sqlite")) as made:
        yield made


@pytest.fixture
def neighbours_ledger(tmp_path: Path, ledger: sqlite3.Connection) -> Iterator[sqlite3.Connection]:
    """The same file as another worker has it."""
    with closing(open_ledger(tmp_path / "ledger.sqlite")) as made:
        yield made


@pytest.fixture
def pool() -> InlinePool:
    return InlinePool()


@pytest.fixture
def throttle(ledger: sqlite3.Connection, clock: SteppedClock) -> Throttle:
    return throttle_of(ledger, clock)


@pytest.fixture
def login(throttle: Throttle, pool: InlinePool) -> Login:
    return Login(throttle, pool)

"""What tests of modules share."""

from collections.abc import Iterator
from typing import Any

import gevent
import pytest


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

"""What several test modules share."""

import gc
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from playwright.sync_api import Browser

from tests.support.browser import chromium
from tests.support.documents import valid_document
from tests.support.measuring import beside_others
from tests.support.stack import Api, running_stack

# How long an example takes, or its data, is the machine's. The examples are the same in each run: a new one
# must not fail a change that has nothing to do with it.
settings.register_profile(
    "any machine", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("any machine")

#: The rooms whose modules take longest come first, or one of them would run on when all else is done; before
#: them, modules with a timeout of their own, the virtual machines.
_ROOMS = ("system", "package", "torture", "page", "contract", "unit")


def pytest_configure() -> None:
    # A background job of a shell ignores SIGINT, one of nohup SIGHUP. Programs inherit that, but no handler.
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, lambda *_: None)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    def marked(*names: str) -> set[Path]:
        return {item.path for item in items if any(item.get_closest_marker(name) for name in names)}

    def order(item: pytest.Item) -> tuple[bool, bool, bool, int]:
        room = item.path.parent.name
        return (
            item.path in last,
            item.path not in slow,
            item.path not in longest,
            _ROOMS.index(room) if room in _ROOMS else len(_ROOMS),
        )

    last, slow, longest = marked("last"), marked("slow", "bare"), marked("timeout")
    items.sort(key=order)


def pytest_collection_finish() -> None:
    # Thousands of tests stay: no collection of garbage need look at them again.
    gc.collect()
    gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    with beside_others():
        return (yield)


@pytest.fixture(scope="session")
def state(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the stack that most tests share."""
    return tmp_path_factory.mktemp("state")


@pytest.fixture(scope="session")
def api(state: Path) -> Iterator[Api]:
    """A running gateway with 500 sessions that stay, shared by the tests that leave most of them."""
    with running_stack(state, sessions=500) as (client, _):
        yield client


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Chromium, for a module's pages."""
    with chromium() as started:
        yield started


@pytest.fixture
def document() -> dict[str, Any]:
    return valid_document()

"""What several test modules share."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tests.support.documents import valid_document
from tests.support.stack import Api, running_stack

# How long an example takes, or its data, is the machine's. The examples are the same in each run: a new one
# must not fail a change that has nothing to do with it.
settings.register_profile(
    "any machine", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("any machine")

#: The reasons for which a test may be skipped in continuous integration, one a line.
_EXPECTED_SKIPS = Path(__file__).parent / "expected_skips.txt"


def pytest_configure() -> None:
    # A background job of a shell ignores SIGINT, one of nohup SIGHUP. Programs inherit that, but no handler.
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, lambda *_: None)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    # The virtual machine takes longest. If it came later, it would run on when all other tests are done.
    items.sort(key=lambda item: item.path.name != "test_virtual_machine.py")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Iterator[None]:
    """In continuous integration, fail a skipped test whose reason is not among the expected ones."""
    report = yield
    if report.skipped and os.environ.get("CI"):
        reason = report.longrepr[2].removeprefix("Skipped: ")
        if reason not in _EXPECTED_SKIPS.read_text().splitlines():
            report.outcome = "failed"
            report.longrepr = f"skipped: {reason}. {_EXPECTED_SKIPS.name} does not have this reason."
    return report


@pytest.fixture(scope="session")
def state(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the stack that most tests share."""
    return tmp_path_factory.mktemp("state")


@pytest.fixture(scope="session")
def api(state: Path) -> Iterator[Api]:
    """A running gateway with 500 sessions that stay, shared by the tests that leave most of them."""
    with running_stack(state, sessions=500) as (client, _):
        yield client


@pytest.fixture
def document() -> dict[str, Any]:
    return valid_document()

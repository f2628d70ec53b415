"""What the tests of the pages share."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from tests.support.browser import Screen, chromium, screen
from tests.support.stack import Api, running_stack


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    """Chromium, for all pages."""
    with chromium() as started:
        yield started


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the state of `own`."""
    return tmp_path_factory.mktemp("own")


@pytest.fixture(scope="module")
def own(folder: Path) -> Iterator[Api]:
    """A gateway that only one module's tests change."""
    with running_stack(folder, sessions=500) as (api, _):
        yield api


@pytest.fixture
def shown(browser: Browser, own: Api) -> Iterator[Screen]:
    """The overview of `own`, for an admin."""
    with screen(browser, own, permissions=["clipboard-read", "clipboard-write"]) as opened:
        opened.open().sign_in().is_live()
        yield opened

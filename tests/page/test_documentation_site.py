"""The documentation at /docs/, in a browser."""

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect

from gateway_api.web.routes.documentation import BUILT
from tests.support.browser import PHONE, Watched
from tests.support.stack import Api

pytestmark = pytest.mark.slow


@pytest.fixture
def window(api: Api, browser: Browser) -> Iterator[Watched]:
    """With the first page, and at the end without a complaint or a request to anybody else."""
    watched = Watched(browser)
    watched.page.goto(f"{api.url}/docs/")
    yield watched
    assert watched.complaints == []
    assert {url for url in watched.requests if not url.startswith((f"{api.url}/docs/", "data:"))} == set()
    watched.page.context.close()


def lightness(window: Watched) -> float:
    colour = window.page.evaluate("getComputedStyle(document.body).backgroundColor")
    return sum(map(int, re.findall(r"[0-9]+", colour)[:3])) / 3


def test_the_index_leads_to_a_page(window: Watched) -> None:
    window.page.get_by_role("link", name="Find a subscriber").first.click()
    expect(window.page.get_by_role("heading", level=1)).to_contain_text("Find a subscriber")


def test_a_search_finds_a_page(window: Watched) -> None:
    window.page.get_by_label("Search").first.fill("rescue")
    window.page.keyboard.press("Enter")
    expect(window.page.get_by_role("link", name="Lost password, lost access").last).to_be_visible()


def test_it_is_dark_where_the_browser_is(window: Watched) -> None:
    assert lightness(window) > 200
    window.page.emulate_media(color_scheme="dark")
    window.page.reload()
    assert lightness(window) < 60


def test_a_phone_scrolls_no_page_sideways(api: Api, window: Watched) -> None:
    window.page.set_viewport_size(PHONE)
    for name in ("index", "how-to/commit", "reference/configuration", "reference/operations"):
        window.page.goto(f"{api.url}/docs/{name}.html")
        width = window.page.evaluate("document.documentElement.scrollWidth")
        assert width <= PHONE["width"], name


def test_every_file_of_the_build_is_served(api: Api) -> None:
    for file in BUILT.rglob("*.html"):
        assert api.session.get(f"{api.url}/docs/{file.relative_to(BUILT)}", timeout=10).ok, file


def test_what_is_not_there_is_404(api: Api) -> None:
    for name in ("nothing.html", "../etc/passwd", "objects.inv"):
        assert api.session.get(f"{api.url}/docs/{name}", timeout=10).status_code == 404, name

"""The documentation at /docs/, in a browser."""

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect

from gateway_api.web.routes.pages import BUILT
from tests.support.browser import PHONE, Watched
from tests.support.stack import Api

pytestmark = pytest.mark.slow

#: The blocks of code that are wider than their place.
_CUT = """[...document.querySelectorAll('div.highlight pre')]
    .filter((pre) => pre.scrollWidth > pre.clientWidth).map((pre) => pre.textContent)"""
#: The options whose letters stand on several lines.
_BROKEN_OPTIONS = """() => {
    const broken = [];
    const texts = document.createTreeWalker(document.querySelector('article'), NodeFilter.SHOW_TEXT);
    while (texts.nextNode()) {
        for (const { 0: option, index } of texts.currentNode.data.matchAll(/--[a-z][a-z-]*/g)) {
            const range = new Range();
            range.setStart(texts.currentNode, index);
            range.setEnd(texts.currentNode, index + option.length);
            if (new Set([...range.getClientRects()].map((rect) => rect.top)).size > 1) broken.push(option);
        }
    }
    return broken;
}"""


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


@pytest.mark.parametrize(
    ("query", "title"), [("webhook", "Webhooks: send events"), ("backup", "Backup and restore")]
)
def test_a_search_finds_the_how_to_first(window: Watched, query: str, title: str) -> None:
    window.page.get_by_label("Search").first.fill(query)
    window.page.keyboard.press("Enter")
    expect(window.page.locator("#search-results li a").first).to_contain_text(title)


def test_a_button_copies_a_block_of_code(api: Api, window: Watched) -> None:
    window.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    window.page.goto(f"{api.url}/docs/how-to/find.html")
    block = window.page.locator("div.highlight").first
    block.get_by_role("button", name="Copy").click()
    expect(block.get_by_role("button", name="Copied")).to_be_visible()
    copied = window.page.evaluate("navigator.clipboard.readText()")
    assert copied == block.locator("pre").text_content()
    assert copied.startswith("NAME=$(gatewayctl subscribers list --type pppoe")


def test_a_link_leads_back_to_the_live_page(api: Api, window: Watched) -> None:
    link = window.page.get_by_role("link", name="Live page of the gateway")
    expect(link).to_be_visible()
    assert link.get_attribute("href") == "/"


def test_the_index_has_the_tasks_in_groups(window: Watched) -> None:
    for group in ("Subscribers", "Configuration", "Monitoring and events", "Users and access"):
        expect(window.page.get_by_role("heading", name=group, level=2)).to_be_visible()


def test_a_phone_shows_lines_of_code_whole_and_breaks_no_option(api: Api, window: Watched) -> None:
    window.page.set_viewport_size(PHONE)
    for name in ("how-to/find", "how-to/rates", "reference/commands"):
        window.page.goto(f"{api.url}/docs/{name}.html")
        assert window.page.evaluate(_CUT) == [], name
        assert window.page.evaluate(_BROKEN_OPTIONS) == [], name


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

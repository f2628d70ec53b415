"""The reference page and the documentation, in a browser."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Locator, expect

from gateway_api.web.routes.pages import BUILT
from tests.support.browser import PHONE, Screen, screen
from tests.support.stack import Api, wait_for

#: The blocks of code that are wider than their place.
_CUT = """[...document.querySelectorAll('div.highlight pre')]
    .filter((pre) => pre.scrollWidth > pre.clientWidth).map((pre) => pre.textContent)"""


@pytest.fixture
def window(browser: Browser, api: Api) -> Iterator[Screen]:
    with screen(browser, api) as opened:
        yield opened


def lightness(window: Screen) -> float:
    colour = window.page.evaluate("getComputedStyle(document.body).backgroundColor")
    return sum(map(int, re.findall(r"[0-9]+", colour)[:3])) / 3


# The reference page


def opened(window: Screen, operation_id: str) -> Locator:
    operation = window.page.locator(f"[id$='-{operation_id}']")
    operation.locator(".opblock-summary-control").click()
    expect(operation.locator(".opblock-body")).to_be_visible()
    return operation


def log_in(window: Screen, username: str, password: str) -> None:
    window.page.get_by_label("User").fill(username)
    window.page.get_by_label("Password").fill(password)
    window.page.get_by_role("button", name="Log in").click()


def test_the_reference_shows_every_operation_and_tries_none_without_a_token(api: Api, window: Screen) -> None:
    window.page.goto(f"{api.url}/api/v1/docs")
    document = api.send("GET", "/openapi.json", None).json()
    number = sum(len(item) for item in document["paths"].values())
    operations = window.page.locator("#reference .opblock-tag-section:not(.webhooks) .opblock")
    expect(operations).to_have_count(number)
    # There is one way to log in.
    expect(window.page.locator(".authorize, .authorization__btn")).to_have_count(0)
    assert lightness(window) > 200
    window.page.emulate_media(color_scheme="dark")
    wait_for("the dark page", lambda: lightness(window) < 60)
    stream = opened(window, "events_subscribers")
    expect(stream.get_by_text("Last-Event-ID").first).to_be_visible()
    expect(stream.get_by_role("button", name="Execute")).to_have_count(0)
    operation = opened(window, "subscribers_summary")
    operation.get_by_role("button", name="Execute").click()
    expect(operation.locator(".live-responses-table .response-col_status").last).to_contain_text("401")
    log_in(window, "nobody", "wrong")
    expect(window.page.get_by_text("Incorrect username or password")).to_be_visible()


def test_a_user_logs_in_to_the_reference_tries_an_operation_and_logs_out(
    api: Api, window: Screen, tmp_path: Path
) -> None:
    window.page.goto(f"{api.url}/api/v1/docs")
    log_in(window, api.environment["OPERATOR_USER"], api.environment["OPERATOR_PASSWORD"])
    expect(window.page.get_by_text("Logged in as operator")).to_be_visible()
    operation = opened(window, "subscribers_index")
    operation.get_by_role("button", name="Execute").click()
    answer = operation.locator(".live-responses-table")
    expect(answer.locator(".response-col_status").last).to_have_text("200")
    shown = json.loads(answer.locator(".response-col_description pre").first.inner_text())
    count = api.get("/subscribers")["count"]
    assert (shown["data"]["count"], len(shown["data"]["sessions"])) == (count, 100)
    assert shown["note"] == f"This page shows the first 100 of {count} sessions."
    with window.page.expect_download() as started:
        window.page.get_by_role("link", name="Download the whole response, 0.2 MB").click()
    started.value.save_as(tmp_path / "whole.json")
    assert len(json.loads((tmp_path / "whole.json").read_text())["data"]["sessions"]) == count
    token = re.search(r"Bearer ([\w.-]+)", operation.locator(".curl-command").inner_text())
    assert token is not None
    assert api.send("GET", "/qos/profiles", token=token[1]).ok
    with window.page.expect_response("**/auth/logout"):
        window.page.get_by_role("button", name="Log out").click()
    expect(window.page.get_by_text("Logged out")).to_be_visible()
    assert api.send("GET", "/qos/profiles", token=token[1]).status_code == 401


# The documentation


def test_the_documentation_has_groups_a_search_copies_and_a_dark_theme(api: Api, window: Screen) -> None:
    page = window.page
    page.goto(f"{api.url}/docs/")
    assert page.get_by_role("link", name="Live page of the gateway").get_attribute("href") == "/"
    for group in ("Subscribers", "Configuration", "Monitoring and events", "Users and access"):
        expect(page.get_by_role("heading", name=group, level=2)).to_be_visible()
    for query, title in (("webhook", "Webhooks: send events"), ("backup", "Backup and restore")):
        page.get_by_label("Search").first.fill(query)
        page.keyboard.press("Enter")
        expect(page.locator("#search-results li a").first).to_contain_text(title)
    page.goto(f"{api.url}/docs/")
    page.get_by_role("link", name="Find a subscriber").first.click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("Find a subscriber")
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    block = page.locator("div.highlight").first
    block.get_by_role("button", name="Copy").click()
    expect(block.get_by_role("button", name="Copied")).to_be_visible()
    assert page.evaluate("navigator.clipboard.readText()") == block.locator("pre").text_content()
    assert lightness(window) > 200
    page.emulate_media(color_scheme="dark")
    page.reload()
    assert lightness(window) < 60


def test_a_phone_shows_the_documentation_whole(api: Api, window: Screen) -> None:
    window.page.set_viewport_size(PHONE)
    for name in ("index", "how-to/find", "how-to/rates", "reference/commands", "reference/operations"):
        window.page.goto(f"{api.url}/docs/{name}.html")
        assert window.page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"], name
        assert window.page.evaluate(_CUT) == [], name


def test_every_file_of_the_build_is_served(api: Api) -> None:
    files = [file.relative_to(BUILT) for file in BUILT.rglob("*.html")]
    assert len(files) > 30
    for file in files:
        assert api.session.get(f"{api.url}/docs/{file}", timeout=10).ok, file

"""The documentation at /docs/, and the reference page, which logs in and tries what it describes."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Locator, expect

from tests.support.browser import PHONE, Screen, screen
from tests.support.stack import Api


@pytest.fixture
def shown(api: Api, browser: Browser) -> Iterator[Screen]:
    with screen(browser, api, permissions=["clipboard-read", "clipboard-write"]) as opened:
        yield opened


def open_operation(shown: Screen, operation_id: str) -> Locator:
    operation = shown.page.locator(f"[id$='-{operation_id}']")
    operation.locator(".opblock-summary-control").click()
    expect(operation.locator(".opblock-body")).to_be_visible()
    return operation


def test_every_operation_is_shown_and_only_a_stream_cannot_be_tried(shown: Screen) -> None:
    shown.open("api/v1/docs")
    document = shown.api.send("GET", "/openapi.json", None).json()
    operations = shown.page.locator("#reference .opblock-tag-section:not(.webhooks) .opblock")
    expect(operations).to_have_count(sum(len(item) for item in document["paths"].values()))
    stream = open_operation(shown, "events_subscribers")
    expect(stream.get_by_text("Last-Event-ID").first).to_be_visible()
    expect(stream.get_by_role("button", name="Execute")).to_have_count(0)
    summary = open_operation(shown, "subscribers_summary")
    summary.get_by_role("button", name="Execute").click()
    expect(summary.locator(".live-responses-table .response-col_status").last).to_contain_text("401")
    expect(shown.page.locator(".authorize, .authorization__btn")).to_have_count(0)


def test_a_long_response_is_offered_as_a_file_until_the_log_out(shown: Screen, tmp_path: Path) -> None:
    shown.open("api/v1/docs")
    names = shown.api.environment
    for password, said in (
        ("wrong", "Incorrect username or password"),
        (names["OPERATOR_PASSWORD"], "Logged in as operator"),
    ):
        shown.page.get_by_label("User").fill(names["OPERATOR_USER"])
        shown.page.get_by_label("Password").fill(password)
        shown.press("Log in")
        expect(shown.page.get_by_text(said)).to_be_visible()
    operation = open_operation(shown, "subscribers_index")
    operation.get_by_role("button", name="Execute").click()
    body = operation.locator(".live-responses-table .response-col_description pre").first
    count = shown.api.get("/subscribers")["count"]
    expect(body).to_contain_text(f"This page shows the first 100 of {count} sessions.")
    response = json.loads(body.inner_text())["data"]
    assert (len(response["sessions"]), response["count"]) == (100, count)
    with shown.page.expect_download() as started:
        shown.page.get_by_role("link", name="Download the whole response, 0.2 MB").click()
    started.value.save_as(tmp_path / "whole.json")
    assert len(json.loads((tmp_path / "whole.json").read_text())["data"]["sessions"]) == count
    token = re.search(r"Bearer ([\w.-]+)", operation.locator(".curl-command").inner_text())
    assert token is not None
    assert shown.api.send("GET", "/qos/profiles", token=token[1]).ok
    shown.press("Log out")
    expect(shown.page.get_by_text("Logged out")).to_be_visible()
    assert shown.api.send("GET", "/qos/profiles", token=token[1]).status_code == 401


def test_a_reader_finds_a_page_by_the_index_and_by_a_search(shown: Screen) -> None:
    page = shown.open("docs/").page
    assert page.get_by_role("link", name="Live page of the gateway").get_attribute("href") == "/"
    page.get_by_role("link", name="Find a subscriber").first.click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("Find a subscriber")
    for query, title in {"webhook": "Webhooks: send events", "backup": "Backup and restore"}.items():
        page.get_by_label("Search").first.fill(query)
        page.keyboard.press("Enter")
        expect(page.locator("#search-results li a").first).to_contain_text(title)


def test_a_button_copies_a_block_of_code(shown: Screen) -> None:
    shown.open("docs/how-to/find.html")
    block = shown.page.locator("div.highlight").first
    block.get_by_role("button", name="Copy").click()
    expect(block.get_by_role("button", name="Copied")).to_be_visible()
    copied = shown.page.evaluate("navigator.clipboard.readText()")
    assert copied == block.locator("pre").text_content()


def test_a_phone_scrolls_no_page_sideways_and_cuts_no_code(shown: Screen) -> None:
    shown.page.set_viewport_size(PHONE)
    for name in ("index", "how-to/find", "how-to/commit", "reference/commands", "reference/configuration"):
        shown.open(f"docs/{name}.html")
        assert shown.page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"], name
        cut = "blocks => blocks.filter(pre => pre.scrollWidth > pre.clientWidth).map(pre => pre.textContent)"
        assert shown.page.locator("div.highlight pre").evaluate_all(cut) == [], name

"""The reference page, in a browser: shows the document, logs in, tries what it describes."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Locator, expect

from tests.support.browser import Watched
from tests.support.stack import Api, wait_for

pytestmark = pytest.mark.slow


@pytest.fixture
def window(api: Api, browser: Browser) -> Iterator[Watched]:
    """With the page, and at the end without a complaint or a request to anybody else."""
    watched = Watched(browser)
    watched.page.goto(f"{api.url}/api/v1/docs")
    yield watched
    assert watched.complaints == []
    assert {url for url in watched.requests if not url.startswith((f"{api.url}/api/v1/", "data:"))} == set()
    watched.page.context.close()


def log_in(window: Watched, username: str, password: str) -> None:
    window.page.get_by_label("User").fill(username)
    window.page.get_by_label("Password").fill(password)
    window.page.get_by_role("button", name="Log in").click()


def opened(window: Watched, operation_id: str) -> Locator:
    operation = window.page.locator(f"[id$='-{operation_id}']")
    operation.locator(".opblock-summary-control").click()
    expect(operation.locator(".opblock-body")).to_be_visible()
    return operation


def test_it_shows_every_operation(api: Api, window: Watched) -> None:
    document = api.send("GET", "/openapi.json", None).json()
    number = sum(len(item) for item in document["paths"].values())
    expect(window.page.locator("#reference .opblock-tag-section:not(.webhooks) .opblock")).to_have_count(
        number
    )


def test_who_logs_in_tries_what_needs_a_token(api: Api, window: Watched) -> None:
    log_in(window, api.environment["OPERATOR_USER"], api.environment["OPERATOR_PASSWORD"])
    expect(window.page.get_by_text("Logged in as operator")).to_be_visible()
    operation = opened(window, "subscribers_index")
    operation.get_by_role("button", name="Execute").click()
    answer = operation.locator(".live-responses-table")
    expect(answer.locator(".response-col_status").last).to_have_text("200")
    shown = json.loads(answer.locator(".response-col_description pre").first.inner_text())
    count = api.get("/subscribers")["count"]
    assert shown["data"]["count"] == count
    assert shown["note"] == f"This page shows the first 100 of {count} sessions."


def test_a_long_response_is_offered_as_a_file(api: Api, window: Watched, tmp_path: Path) -> None:
    log_in(window, api.environment["OPERATOR_USER"], api.environment["OPERATOR_PASSWORD"])
    expect(window.page.get_by_text("Logged in as operator")).to_be_visible()
    expect(window.page.get_by_text("Download the whole response")).to_be_hidden()
    opened(window, "subscribers_index").get_by_role("button", name="Execute").click()
    link = window.page.get_by_role("link", name="Download the whole response, 0.2 MB")
    with window.page.expect_download() as started:
        link.click()
    started.value.save_as(tmp_path / "whole.json")
    whole = json.loads((tmp_path / "whole.json").read_text())["data"]
    assert len(whole["sessions"]) == whole["count"] == api.get("/subscribers")["count"]


def test_there_is_one_way_to_log_in(window: Watched) -> None:
    expect(window.page.get_by_role("button", name="Log in")).to_be_enabled()
    operation = opened(window, "subscribers_summary")
    expect(operation.get_by_role("button", name="Execute")).to_be_visible()
    expect(window.page.locator(".authorize, .authorization__btn")).to_have_count(0)


def test_it_is_dark_where_the_browser_is(window: Watched) -> None:
    def lightness() -> float:
        colour = window.page.evaluate("getComputedStyle(document.body).backgroundColor")
        return sum(map(int, re.findall(r"[0-9]+", colour)[:3])) / 3

    expect(window.page.locator(".opblock").first).to_be_visible()
    assert lightness() > 200
    window.page.emulate_media(color_scheme="dark")
    wait_for("the dark page", lambda: lightness() < 60)
    summary = window.page.locator(".opblock-summary-description").first
    expect(summary).not_to_have_css("color", "rgb(59, 65, 81)")


def test_without_a_token_what_needs_one_is_refused(window: Watched) -> None:
    operation = opened(window, "subscribers_summary")
    operation.get_by_role("button", name="Execute").click()
    expect(operation.locator(".live-responses-table .response-col_status").last).to_contain_text("401")
    # The browser itself says so, too.
    expect_complaint(window, "401")


def test_a_wrong_login_is_told(api: Api, window: Watched) -> None:
    log_in(window, "nobody", "wrong")
    expect(window.page.get_by_text("Incorrect username or password")).to_be_visible()
    expect_complaint(window, "401")


def test_who_logs_out_has_no_token_any_more(api: Api, window: Watched) -> None:
    log_in(window, api.environment["OPERATOR_USER"], api.environment["OPERATOR_PASSWORD"])
    operation = opened(window, "subscribers_summary")
    operation.get_by_role("button", name="Execute").click()
    curl = operation.locator(".curl-command")
    expect(curl).to_contain_text("Bearer")
    token = re.search(r"Bearer ([\w.-]+)", curl.inner_text())
    assert token is not None
    assert api.send("GET", "/qos/profiles", token=token[1]).ok
    with window.page.expect_response("**/auth/logout"):
        window.page.get_by_role("button", name="Log out").click()
    expect(window.page.get_by_text("Logged out")).to_be_visible()
    assert api.send("GET", "/qos/profiles", token=token[1]).status_code == 401


def test_a_stream_is_described_and_not_tried(window: Watched) -> None:
    operation = opened(window, "events_subscribers")
    expect(operation.get_by_text("Last-Event-ID").first).to_be_visible()
    expect(operation.get_by_role("button", name="Execute")).to_have_count(0)


def test_its_policy_lets_nothing_in_but_what_the_api_serves(api: Api) -> None:
    answer = api.send("GET", "/docs", None)
    assert answer.headers["Content-Type"] == "text/html; charset=utf-8"
    policy = answer.headers["Content-Security-Policy"]
    assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self'; ")
    assert "unsafe" not in policy


def test_its_parts_are_kept_for_ever_under_a_name_of_their_own(api: Api) -> None:
    html = api.send("GET", "/docs", None).text
    types = {"css": "text/css; charset=utf-8", "js": "text/javascript; charset=utf-8", "png": "image/png"}
    parts = re.findall(r'(?:src|href)="(docs/[^"]+)"', html)
    assert len(parts) == 5
    for part in parts:
        answer = api.send("GET", f"/{part}", None)
        assert answer.headers["Content-Type"] == types[part.rpartition(".")[2]]
        assert answer.headers["Cache-Control"] == "public, max-age=31536000, immutable"
        assert answer.headers["X-Content-Type-Options"] == "nosniff"


@pytest.mark.parametrize(
    "part", ["0/docs.js", "{digest}/docs.html", "{digest}/..%2fopenapi.json", "{digest}/x"]
)
def test_there_is_no_other_part(api: Api, part: str) -> None:
    (digest, *_) = re.findall(r'"docs/(\w+)/', api.send("GET", "/docs", None).text)
    answer = api.send("GET", f"/docs/{part.format(digest=digest)}", None)
    assert (answer.status_code, answer.json()["status"]) == (404, "error")


def expect_complaint(window: Watched, text: str) -> None:
    """One complaint, which is none of the page's faults."""
    (complaint,) = window.complaints
    assert text in complaint
    window.complaints.clear()

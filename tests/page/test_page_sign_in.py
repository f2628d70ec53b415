"""Signing in on the live page, and what becomes of it."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect

from tests.support.browser import Screen, screen
from tests.support.stack import Api

#: What scripts of a page can leave in a browser, or read there.
STORES = """async () => [localStorage.length, sessionStorage.length, document.cookie,
    (await indexedDB.databases()).length, (await caches.keys()).length, history.state]"""


@pytest.fixture
def shown(browser: Browser, api: Api) -> Iterator[Screen]:
    with screen(browser, api) as opened:
        yield opened.open()


def token_of(shown: Screen) -> str:
    """Returns the token that the browser keeps for the page."""
    (cookie,) = shown.page.context.cookies()
    return str(cookie["value"])


def test_nothing_of_the_gateway_is_shown_before_the_right_password(shown: Screen) -> None:
    expect(shown.page.get_by_role("dialog")).to_be_visible()
    expect(shown.page.get_by_role("banner")).to_be_hidden()
    # The page asks whether the browser has a token, and for nothing else.
    sent = [request.url for request in shown.requests if "/api/" in request.url]
    assert sent == [f"{shown.api.url}/api/v1/auth/token"]
    for _ in range(3):
        shown.page.keyboard.press("Escape")
    expect(shown.page.get_by_role("dialog")).to_be_visible()
    shown.sign_in("operator", "wrong")
    expect(shown.page.get_by_role("alert")).to_have_text("Incorrect username or password")
    shown.sign_in("operator").is_live()
    expect(shown.page.get_by_role("dialog")).to_be_hidden()
    expect(shown.page.locator("#who")).to_have_text("operator")


def test_no_script_and_no_other_site_has_the_token(shown: Screen) -> None:
    shown.sign_in().is_live()
    assert shown.page.evaluate(STORES) == [0, 0, "", 0, 0, None]
    token = token_of(shown)
    assert all(token not in request.url for request in shown.requests)
    assert all("authorization" not in request.headers for request in shown.requests)
    assert token not in shown.page.content()


def test_tabs_sign_in_and_out_together(shown: Screen) -> None:
    second = Screen(shown.page.context.new_page(), shown.api).open()
    shown.sign_in()
    second.is_live()
    token = token_of(shown)
    assert shown.api.send("GET", "/subscribers/summary", token=token).ok
    second.account("Log out")
    expect(shown.page.locator("#sign-in-why")).to_contain_text("Your token is no longer valid")
    assert shown.api.send("GET", "/subscribers/summary", token=token).status_code == 401
    second.sign_in("operator")
    shown.is_live()
    expect(shown.page.get_by_role("dialog")).to_be_hidden()
    expect(shown.page.locator("#who")).to_have_text("operator")


def test_a_reload_is_signed_in_as_soon_as_the_core_replies(shown: Screen) -> None:
    shown.sign_in().is_live()
    path, hint = "**/auth/token", {"message": "Core daemon unreachable", "hint": "Start the core."}
    shown.page.route(path, lambda route: route.fulfill(status=503, json=hint))
    shown.page.reload()
    expect(shown.page.get_by_role("alert")).to_have_text("Core daemon unreachable. Start the core.")
    shown.page.unroute(path)
    shown.is_live()
    expect(shown.page.get_by_role("dialog")).to_be_hidden()


def test_signing_out_everywhere_asks_first_and_ends_all_tokens_of_the_user(shown: Screen) -> None:
    elsewhere = shown.api.new_token("operator")
    shown.sign_in("operator").is_live()
    shown.account("Log out everywhere…").confirm("Cancel")
    assert shown.api.send("GET", "/subscribers/summary", token=elsewhere).ok
    shown.account("Log out everywhere…").confirm("Log out everywhere")
    expect(shown.page.locator("#sign-in")).to_be_visible()
    assert shown.api.send("GET", "/subscribers/summary", token=elsewhere).status_code == 401
    shown.api.forget_tokens()


def test_a_user_whose_token_has_ended_signs_in_again_and_continues(shown: Screen) -> None:
    shown.sign_in().find("5")
    expect(shown.page.locator("#record-state")).to_have_text("Active")
    shown.press("Change rate…").page.get_by_label("Downstream").fill("321 Mbit")
    shown.api.send("POST", "/auth/logout", token=token_of(shown))
    expect(shown.page.locator("#sign-in-why")).to_contain_text("Your token is no longer valid")
    sent = len(shown.requests)
    # Longer than the page's most frequent request.
    shown.page.wait_for_timeout(3000)
    assert len(shown.requests) <= sent + 1
    shown.sign_in()
    expect(shown.page.get_by_label("Downstream")).to_have_value("321 Mbit")
    shown.confirm("Change rate")
    expect(shown.page.locator("#record-state")).to_contain_text("Rate change requested")
    shown.is_live()

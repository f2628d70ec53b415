"""Signing in on the live page, and what becomes of it."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from gateway_api.base.errors import CoreAbsent
from tests.support.browser import Screen, screen
from tests.support.stack import Api, running_api


@pytest.fixture
def shown(browser: Browser, api: Api) -> Iterator[Screen]:
    with screen(browser, api) as opened:
        yield opened.open()


def token_of(shown: Screen) -> str:
    """The one that the browser keeps for the page."""
    (cookie,) = shown.page.context.cookies()
    return str(cookie["value"])


def test_nothing_of_the_gateway_is_shown_before_the_right_password(shown: Screen) -> None:
    dialog, problem = shown.page.get_by_role("dialog"), shown.page.get_by_role("alert")
    expect(dialog).to_be_visible()
    shown.page.keyboard.press("Escape")
    expect(dialog).to_be_visible()
    expect(shown.page.get_by_role("banner")).to_be_hidden()
    # But whether the browser has a token.
    asked = [asked.url for asked in shown.requests if "/api/" in asked.url]
    assert asked == [f"{shown.api.url}/api/v1/auth/token"]
    shown.sign_in("operator", "wrong")
    expect(problem).to_have_text("Incorrect username or password")
    shown.sign_in("operator")
    expect(dialog).to_be_hidden()
    shown.is_live()
    expect(shown.page.locator("#who")).to_have_text("operator")


def test_too_many_wrong_passwords_make_the_user_wait_and_the_page_says_so(shown: Screen) -> None:
    shown.page.get_by_label("Username", exact=True).fill("nobody-known")
    statuses = []
    while 429 not in statuses and len(statuses) < 8:
        shown.page.get_by_label("Password").fill("wrong")
        with shown.page.expect_response("**/auth/login") as answered:
            shown.page.get_by_role("button", name="Log in").click()
        statuses.append(answered.value.status)
    assert statuses[-1] == 429
    expect(shown.page.get_by_role("alert")).to_have_text(answered.value.json()["message"])


def test_without_a_core_the_page_says_how_to_choose_one(
    browser: Browser, api: Api, state: Path, tmp_path: Path
) -> None:
    with (
        running_api(tmp_path / "core.sock", state) as url,
        screen(browser, Api({**api.environment, "GATEWAY_URL": url})) as shown,
    ):
        shown.open().sign_in("operator")
        said = f"Core daemon unreachable. {CoreAbsent.HINT}"
        expect(shown.page.get_by_role("alert")).to_have_text(said)


def test_no_script_and_no_other_site_has_the_token(shown: Screen) -> None:
    shown.sign_in()
    shown.is_live()
    stores = """async () => [localStorage.length, sessionStorage.length, document.cookie,
        (await indexedDB.databases()).length, (await caches.keys()).length, history.state]"""
    assert shown.page.evaluate(stores) == [0, 0, "", 0, 0, None]
    (cookie,) = shown.page.context.cookies()
    assert (cookie["httpOnly"], cookie["secure"], cookie["sameSite"]) == (True, True, "Strict")
    # Until the browser is closed.
    assert (cookie["expires"], cookie["path"]) == (-1, "/")
    token = token_of(shown)
    assert all(token not in asked.url for asked in shown.requests)
    assert all("authorization" not in asked.headers for asked in shown.requests)
    assert token not in shown.page.content()


def test_tabs_sign_in_and_out_together_and_the_token_ends(shown: Screen) -> None:
    shown.sign_in()
    shown.is_live()
    token = token_of(shown)
    second = Screen(shown.page.context.new_page(), shown.api).open()
    second.is_live()
    second.account("Log out")
    expect(second.page.get_by_role("dialog")).to_be_visible()
    assert shown.api.send("GET", "/subscribers/summary", token=token).status_code == 401
    expect(shown.page.locator("#sign-in-why")).to_contain_text("Your token is no longer valid")
    second.sign_in("operator")
    shown.is_live()
    expect(shown.page.get_by_role("dialog")).to_be_hidden()
    expect(shown.page.locator("#who")).to_have_text("operator")


def test_signing_out_everywhere_asks_first_and_ends_all_tokens_of_the_user(shown: Screen) -> None:
    elsewhere = shown.api.new_token("operator")
    shown.sign_in("operator")
    shown.is_live()
    shown.account("Log out everywhere…")
    dialog = shown.page.get_by_role("dialog")
    expect(dialog).to_contain_text("This ends all tokens of your user")
    shown.page.get_by_role("button", name="Cancel").click()
    assert shown.api.send("GET", "/subscribers/summary", token=elsewhere).ok
    shown.account("Log out everywhere…")
    dialog.get_by_role("button", name="Log out everywhere").click()
    expect(shown.page.locator("#sign-in")).to_be_visible()
    assert shown.api.send("GET", "/subscribers/summary", token=elsewhere).status_code == 401
    shown.api.forget_tokens()


def test_a_user_whose_token_ended_signs_in_again_and_goes_on_with_the_dialog(shown: Screen) -> None:
    shown.sign_in().find("5")
    shown.page.get_by_role("button", name="Change rate…", exact=True).click()
    shown.page.get_by_label("Downstream").fill("321 Mbit")
    shown.api.send("POST", "/auth/logout", token=token_of(shown))
    expect(shown.page.locator("#sign-in-why")).to_contain_text("Your token is no longer valid")
    asked = len(shown.requests)
    shown.page.wait_for_timeout(3000)
    assert len(shown.requests) <= asked + 1
    shown.sign_in()
    expect(shown.page.get_by_label("Downstream")).to_have_value("321 Mbit")
    shown.page.get_by_role("dialog").get_by_role("button", name="Change rate").click()
    expect(shown.page.locator("#record-state")).to_contain_text("Rate change requested")
    shown.is_live()

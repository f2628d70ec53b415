"""Signing in on the live page, and what becomes of it."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from gateway_api.base.errors import CoreAbsent
from tests.support.browser import Screen, screen
from tests.support.stack import Api, core_of, running_api, running_stack


@pytest.fixture
def shown(browser: Browser, api: Api) -> Iterator[Screen]:
    with screen(browser, api) as opened:
        yield opened.open()


def token_of(shown: Screen) -> str:
    """The one that the browser keeps for the page."""
    (cookie,) = shown.page.context.cookies()
    return str(cookie["value"])


def kept(page: Page) -> list[object]:
    """All that scripts of a page can leave in a browser, or read there."""
    found: list[object] = page.evaluate(
        """async () => [localStorage.length, sessionStorage.length, document.cookie,
            (await indexedDB.databases()).length, (await caches.keys()).length, history.state]"""
    )
    return found


def test_nothing_of_the_gateway_is_shown_or_asked_for_before(shown: Screen) -> None:
    expect(shown.page.get_by_role("dialog")).to_be_visible()
    expect(shown.page.get_by_role("banner")).to_be_hidden()
    # But whether the browser has a token.
    asked = [asked.url for asked in shown.requests if "/api/" in asked.url]
    assert asked == [f"{shown.api.url}/api/v1/auth/token"]


def test_a_wrong_password_is_said_to_be_wrong_and_can_be_corrected(shown: Screen) -> None:
    shown.sign_in("operator", "wrong")
    expect(shown.page.get_by_role("alert")).to_have_text("Incorrect username or password")
    shown.sign_in("operator")
    expect(shown.page.get_by_role("dialog")).to_be_hidden()
    shown.is_live()


def test_without_a_core_the_way_to_choose_one_is_shown(
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
    assert kept(shown.page) == [0, 0, "", 0, 0, None]
    (cookie,) = shown.page.context.cookies()
    assert (cookie["httpOnly"], cookie["secure"], cookie["sameSite"]) == (True, True, "Strict")
    # Until the browser is closed.
    assert (cookie["expires"], cookie["path"]) == (-1, "/")
    token = token_of(shown)
    assert all(token not in asked.url for asked in shown.requests)
    assert all("authorization" not in asked.headers for asked in shown.requests)
    assert token not in shown.page.content()


def test_a_reload_and_a_second_tab_are_signed_in(shown: Screen) -> None:
    shown.sign_in("operator")
    shown.is_live()
    shown.page.reload()
    shown.is_live()
    second = Screen(shown.page.context.new_page(), shown.api).open()
    second.is_live()
    expect(second.page.locator("#who")).to_have_text("operator")
    expect(second.page.get_by_role("dialog")).to_be_hidden()


def test_tabs_sign_out_and_in_together(shown: Screen) -> None:
    second = Screen(shown.page.context.new_page(), shown.api).open()
    shown.sign_in()
    second.is_live()
    second.account("Log out")
    expect(shown.page.locator("#sign-in-why")).to_contain_text("Your token is no longer valid")
    second.sign_in("operator")
    shown.is_live()
    expect(shown.page.get_by_role("dialog")).to_be_hidden()
    expect(shown.page.locator("#who")).to_have_text("operator")


def test_a_reload_while_the_core_hangs_is_signed_in_when_it_replies_again(
    browser: Browser, tmp_path: Path
) -> None:
    with running_stack(tmp_path, sessions=5) as (api, process), screen(browser, api) as shown:
        shown.open().sign_in()
        shown.is_live()
        core = core_of(process)
        os.kill(core, signal.SIGSTOP)
        try:
            shown.page.reload()
            expect(shown.page.get_by_role("alert")).to_have_text("Core daemon unreachable")
        finally:
            os.kill(core, signal.SIGCONT)
        shown.is_live()
        expect(shown.page.get_by_role("dialog")).to_be_hidden()


def test_signing_out_makes_the_token_worthless(shown: Screen) -> None:
    shown.sign_in()
    shown.is_live()
    token = token_of(shown)
    assert shown.api.send("GET", "/subscribers/summary", token=token).ok
    shown.account("Log out")
    expect(shown.page.get_by_role("dialog")).to_be_visible()
    assert shown.api.send("GET", "/subscribers/summary", token=token).status_code == 401


def test_signing_out_everywhere_asks_first_and_ends_all_tokens_of_the_user(shown: Screen) -> None:
    elsewhere = shown.api.new_token("operator")
    shown.sign_in("operator")
    shown.is_live()
    shown.account("Log out everywhere…")
    shown.page.get_by_role("button", name="Cancel").click()
    assert shown.api.send("GET", "/subscribers/summary", token=elsewhere).ok
    shown.account("Log out everywhere…")
    shown.page.get_by_role("dialog").get_by_role("button", name="Log out everywhere").click()
    expect(shown.page.locator("#sign-in")).to_be_visible()
    assert shown.api.send("GET", "/subscribers/summary", token=elsewhere).status_code == 401
    shown.api.forget_tokens()


def test_whoever_s_token_has_ended_signs_in_again_and_is_where_they_were(shown: Screen) -> None:
    shown.sign_in().find("5")
    expect(shown.page.locator("#record-state")).to_have_text("Active")
    shown.page.get_by_role("button", name="Change rate…", exact=True).click()
    shown.page.get_by_label("Downstream").fill("321 Mbit")
    shown.api.send("POST", "/auth/logout", token=token_of(shown))
    expect(shown.page.locator("#sign-in-why")).to_contain_text("Your token is no longer valid")
    asked = len(shown.requests)
    # Seen in the answers, not only on the screen: nothing is asked for meanwhile.
    shown.page.wait_for_timeout(3000)
    assert len(shown.requests) <= asked + 1
    shown.sign_in()
    expect(shown.page.get_by_label("Downstream")).to_have_value("321 Mbit")
    shown.page.get_by_role("dialog").get_by_role("button", name="Change rate").click()
    expect(shown.page.locator("#record-state")).to_contain_text("Rate change requested")
    shown.is_live()


def test_escape_does_not_lead_past_the_sign_in(shown: Screen) -> None:
    for _ in range(3):
        shown.page.keyboard.press("Escape")
    expect(shown.page.get_by_role("dialog")).to_be_visible()


def test_too_many_wrong_passwords_make_the_user_wait_and_the_page_says_so(shown: Screen) -> None:
    shown.page.get_by_label("Username", exact=True).fill("nobody-known")
    for _ in range(7):
        shown.page.get_by_label("Password").fill("wrong")
        with shown.page.expect_response("**/auth/login") as answered:
            shown.page.get_by_role("button", name="Log in").click()
        if answered.value.status == 429:
            break
    assert answered.value.status == 429
    expect(shown.page.get_by_role("alert")).to_have_text(answered.value.json()["message"])


def test_who_signed_in_is_said(shown: Screen) -> None:
    shown.sign_in("operator")
    expect(shown.page.locator("#who")).to_have_text("operator")

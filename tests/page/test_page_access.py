"""The live page for everybody: by keyboard, on a phone, in the dark, read aloud; and signing in."""

import time
from collections.abc import Iterator
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect

from tests.support.browser import LAPTOP, PHONE, Screen, screen
from tests.support.histories import failed, remember_failures
from tests.support.stack import Api

#: Places of the page, and an element that each has when it is drawn.
PLACES = {
    "overview": "#vlans li",
    "subscribers?open=20": "#record-timeline li",
    "subscribers?search=nobody&job=999": "#job-problem",
    "subscribers?job=1": "#job progress",
    "jobs": "#job-list button",
    "traffic": "#talker-list tbody tr",
    "history": "#history-list tbody tr",
    "failed-sign-ons": "#failure-list tbody tr",
    "interfaces": "#interface-list tbody tr",
    "routes": "#route-list tbody tr",
    "cgnat": "#cgnat-list tbody tr",
    "configuration?from=1&to=candidate&path=demux.rate_limits.burst": "#revision-diff ins",
    "users": "#user-list tbody tr",
    "health": "#dependency-states li",
    "webhooks?open={webhook}": "#delivery-list tbody tr",
    "audit": "#audit-list tbody tr",
}
#: Buttons, by the places that have them, which open a dialog or a menu.
DIALOGS = {
    "subscribers?type=dhcp": ("Change rates of all…", "Disconnect all…", "Columns", "admin", "Menu"),
    "subscribers?open=20": ("Change rate…", "Disconnect…"),
    "configuration": ("Commit…", "Discard…", "Roll back to revision 1"),
    "webhooks?open={webhook}": ("Delete…",),
    "users": ("End the tokens of operator",),
}


@pytest.fixture(scope="module", autouse=True)
def prepared(own: Api, folder: Path) -> None:
    """Gives each view something to show."""

    def send(route: str, **body: Any) -> Any:
        response = own.send("POST", route, json=body)
        assert response.ok, response.text
        return response.json()["data"]

    remember_failures(folder / "history.sqlite", failed(int(time.time())))
    send("/system/config/set", path="system.hostname", value="bng2")
    send("/system/config/commit", confirm_seconds=3600)
    send("/system/config/set", path="qos.default_down", value="150mbit")
    id = send("/webhooks", url="http://127.0.0.1:9/hook", events=["session.up"])["id"]
    send(f"/webhooks/{id}/test")
    send("/subscribers/rate", filter={"username": "nobody"}, rate_down="5 Mbit")
    send("/subscribers/rate", filter={"type": "pppoe"}, rate_down="6 Mbit", per_second=1)


@pytest.fixture
def phone(browser: Browser, own: Api) -> Iterator[Screen]:
    # Without motion: text that is half faded in has no contrast yet.
    with screen(browser, own, viewport=PHONE, is_mobile=True, reduced_motion="reduce") as opened:
        yield opened.open()


#: Colour schemes and screens for axe, in turn. The style sheets name their colours alike in both schemes.
LOOKS = cycle((("dark", PHONE), ("light", LAPTOP)))


def check(page: Page, state: str) -> None:
    """Fails if something is wider than a phone, or if axe finds a fault on the next screen of `LOOKS`."""
    widths = page.evaluate("[document.documentElement.scrollWidth, document.body.scrollWidth]")
    assert widths == [PHONE["width"]] * 2, state
    scheme, size = next(LOOKS)
    page.set_viewport_size(size)
    page.emulate_media(color_scheme=scheme)
    found = Axe().run(page)
    assert found.violations_count == 0, f"{state}, {scheme}: {found.generate_report()}"
    page.set_viewport_size(PHONE)


def open_place(shown: Screen, place: str) -> None:
    (webhook,) = shown.api.get("/webhooks")["webhooks"]
    shown.page.goto(f"{shown.api.url}/#{place.format(webhook=webhook['id'])}")


def test_everybody_can_read_each_view_on_each_screen(phone: Screen) -> None:
    phone.sign_in("operator", "wrong")
    expect(phone.page.get_by_role("alert")).to_be_visible()
    check(phone.page, "refused")
    phone.sign_in().is_live()
    for place, drawn in PLACES.items():
        open_place(phone, place)
        expect(phone.page.locator(drawn).first).to_be_visible()
        check(phone.page, place)


def test_everybody_can_read_each_dialog_on_each_screen(phone: Screen) -> None:
    phone.sign_in().is_live()
    for place, buttons in DIALOGS.items():
        open_place(phone, place)
        for name in buttons:
            opener = phone.page.get_by_role("button", name=name).locator("visible=true")
            expect(opener).to_be_enabled()
            opener.click()
            opened = phone.page.locator("dialog[open], :popover-open, #menu[aria-expanded=true]")
            expect(opened).to_have_count(1)
            check(phone.page, f"{place}, {name}")
            phone.page.keyboard.press("Escape")
            expect(opened).to_have_count(0)


def press_until(page: Page, key: str, wanted: str) -> None:
    """Presses a key until an element, given by its text or its id, has the focus."""
    focused = "document.activeElement.textContent.trim() || document.activeElement.id"
    for _ in range(60):
        page.keyboard.press(key)
        if page.evaluate(focused) == wanted:
            return
    raise AssertionError(f"{key} does not lead to {wanted}")


def test_a_subscriber_is_found_and_disconnected_by_keyboard_alone(browser: Browser, own: Api) -> None:
    names, id = own.environment, 20
    with screen(browser, own) as shown:
        page = shown.open().page
        expect(page.get_by_label("Username", exact=True)).to_be_focused()
        page.keyboard.type(names["ADMIN_USER"])
        page.keyboard.press("Tab")
        page.keyboard.type(names["ADMIN_PASSWORD"])
        page.keyboard.press("Enter")
        shown.is_live()
        page.reload()
        shown.is_live()
        press_until(page, "Tab", "Skip to the content")
        expect(page.get_by_text("Skip to the content")).to_be_in_viewport()
        page.keyboard.press("Enter")
        expect(page.get_by_role("main")).to_be_focused()
        press_until(page, "Shift+Tab", "Subscribers")
        page.keyboard.press("Enter")
        press_until(page, "Tab", "find-text")
        page.keyboard.type(str(id))
        page.keyboard.press("Enter")
        expect(page.locator("#record-title")).to_be_focused()
        press_until(page, "Tab", "Disconnect…")
        page.keyboard.press("Enter")
        # A question whose answer can't be undone begins at the way back.
        expect(page.get_by_role("button", name="Cancel")).to_be_focused()
        page.keyboard.press("Escape")
        expect(page.get_by_role("button", name="Disconnect…")).to_be_focused()
        page.keyboard.press("Enter")
        press_until(page, "Shift+Tab", "Disconnect")
        page.keyboard.press("Enter")
        expect(page.locator("#record-state")).to_contain_text("isconnect")
        expect(page.locator("#record-close")).to_be_focused()
    assert own.send("GET", f"/subscribers/{id}").status_code == 404


# Signing in, and what becomes of it.


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


def test_the_log_in_says_what_the_page_is_and_leads_to_the_documentation_and_the_reference(
    shown: Screen,
) -> None:
    dialog = shown.page.get_by_role("dialog")
    expect(dialog).to_contain_text("broadband network gateway (BNG)")
    for name, path in (("Documentation", "/docs/"), ("API reference", "/api/v1/docs")):
        expect(dialog.get_by_role("link", name=name)).to_have_attribute("href", path)


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

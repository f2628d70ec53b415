"""The live page for everybody: by keyboard, on a phone, in the dark, read aloud."""

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

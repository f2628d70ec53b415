"""The head of the live page, its views and keys, on each screen."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from tests.support.browser import GROUPS, LAPTOP, PHONE, Screen, screen
from tests.support.stack import Api

#: The views whose names in URLs are not those of their links.
VIEWS = {
    "Sessions": "subscribers",
    "Candidate and archive": "configuration",
    "Failed sign-ons": "failed-sign-ons",
}


@pytest.fixture
def shown(browser: Browser, api: Api) -> Iterator[Screen]:
    with screen(browser, api, viewport=LAPTOP) as opened:
        opened.open().sign_in()
        opened.is_live()
        yield opened


def places(shown: Screen) -> Locator:
    return shown.page.locator("#places")


def test_each_view_has_a_link_in_a_group_a_title_and_the_focus(shown: Screen) -> None:
    page = shown.page
    for group, names in GROUPS.items():
        page.evaluate("scrollTo(0, document.body.scrollHeight)")
        # The head may be out of sight.
        page.evaluate(
            "name => [...document.querySelectorAll('#places > ul > li > a')]"
            ".find(link => link.textContent.startsWith(name)).click()",
            group,
        )
        expect(page.locator("#banner .name")).to_be_in_viewport()
        assert page.evaluate("scrollY") == 0
        for name in names:
            view = VIEWS.get(name, name.lower())
            link = places(shown).get_by_role("link", name=name)
            link.click()
            expect(page).to_have_url(f"{shown.api.url}/#{view}")
            expect(page.locator(f"[data-view={view}]")).to_be_visible()
            expect(link).to_have_attribute("aria-current", "page")
            expect(places(shown).locator("[aria-current=true]")).to_contain_text(group)
        # The links of other groups are one step away.
        others = [other for key, more in GROUPS.items() if key != group for other in more]
        assert not any(places(shown).get_by_role("link", name=other).is_visible() for other in others)
    shown.go("Subscribers")
    expect(page).to_have_title("Subscribers · Subscriber gateway")
    expect(page.get_by_role("heading", name="Subscribers", exact=True)).to_be_focused()
    page.go_back()
    expect(page.get_by_role("heading", name="Audit", exact=True)).to_be_focused()


def test_a_phone_has_one_menu_with_all_views_and_a_button_for_filters(browser: Browser, api: Api) -> None:
    with screen(browser, api, viewport=PHONE, is_mobile=True, has_touch=True) as shown:
        shown.open("#history").sign_in()
        shown.is_live()
        view = shown.page.locator("[data-view=history]")
        opener = view.get_by_role("button", name="Filters")
        expect(view.get_by_label("Part of a username")).to_be_hidden()
        opener.click()
        view.get_by_label("Part of a username").fill("nobody")
        view.get_by_role("button", name="Filter", exact=True).click()
        expect(opener).to_have_text("Filters (1)")
        menu = shown.page.get_by_role("button", name="Menu")
        expect(menu).to_have_text("Menu History")
        expect(places(shown)).to_be_hidden()
        menu.click()
        for group, names in GROUPS.items():
            for name in (group, *names):
                expect(places(shown).get_by_role("link", name=name).first).to_be_in_viewport()
        shown.page.keyboard.press("Escape")
        expect(places(shown)).to_be_hidden()
        menu.click()
        places(shown).get_by_role("link", name="Webhooks").click()
        expect(places(shown)).to_be_hidden()
        expect(menu).to_have_text("Menu Webhooks")
        shown.page.goto(f"{api.url}/#subscribers?open=20")
        expect(shown.page.get_by_role("button", name="Disconnect…")).to_be_in_viewport()


def test_a_question_mark_shows_the_keys_but_not_in_a_text(shown: Screen) -> None:
    shown.page.keyboard.press("?")
    dialog = shown.page.get_by_role("dialog", name="Keys")
    for key in ("/", "↓", "Enter", "Esc", "?"):
        expect(dialog.locator("kbd", has_text=key).first).to_be_visible()
    shown.page.keyboard.press("Escape")
    expect(dialog).to_be_hidden()
    account = shown.page.get_by_role("button", name="admin")
    account.focus()
    shown.page.keyboard.press("Enter")
    expect(shown.page.get_by_role("button", name="Log out", exact=True)).to_be_visible()
    shown.page.keyboard.press("Escape")
    expect(account).to_be_focused()
    shown.account("Keys")
    dialog.get_by_role("button", name="Close").click()
    expect(dialog).to_be_hidden()
    shown.page.keyboard.press("/")
    find = shown.page.get_by_label("Find a subscriber")
    expect(find).to_be_focused()
    shown.page.keyboard.type("a/b?")
    expect(find).to_have_value("a/b?")
    expect(dialog).to_be_hidden()


def focused(page: Page) -> str:
    name: str = page.evaluate("document.activeElement.textContent.trim() || document.activeElement.id")
    return name


def press_until(page: Page, key: str, wanted: str) -> None:
    """Goes on pressing until what is wanted has the focus."""
    for _ in range(60):
        page.keyboard.press(key)
        if focused(page) == wanted:
            return
    raise AssertionError(f"{wanted} is not reached by {key}")


def test_a_subscriber_is_found_and_disconnected_by_keyboard_alone(browser: Browser, api: Api) -> None:
    (session,) = api.get("/subscribers", params={"sort": "-id", "limit": 1})["sessions"]
    with screen(browser, api) as shown:
        page = shown.open().page
        expect(page.get_by_label("Username", exact=True)).to_be_focused()
        page.keyboard.type(api.environment["ADMIN_USER"])
        page.keyboard.press("Tab")
        page.keyboard.type(api.environment["ADMIN_PASSWORD"])
        page.keyboard.press("Enter")
        shown.is_live()
        page.reload()
        shown.is_live()
        press_until(page, "Tab", "Skip to the content")
        page.keyboard.press("Enter")
        expect(page.get_by_role("main")).to_be_focused()
        press_until(page, "Shift+Tab", "Subscribers")
        page.keyboard.press("Enter")
        expect(page.locator("#list tbody button")).to_have_count(50)
        page.keyboard.press("/")
        page.keyboard.press("ArrowDown")
        expect(page.locator("#list tbody button").first).to_be_focused()
        page.keyboard.press("ArrowDown")
        page.keyboard.press("Enter")
        expect(page.locator("#record-title")).to_be_focused()
        page.keyboard.press("Escape")
        expect(page.locator("#record")).to_be_hidden()
        expect(page.locator("#list tbody button").nth(1)).to_be_focused()
        page.keyboard.press("/")
        page.keyboard.type(f"id:{session['id']}")
        page.keyboard.press("Enter")
        expect(page.locator("#record-title")).to_have_text(session["username"])
        press_until(page, "Tab", "Disconnect…")
        page.keyboard.press("Enter")
        # A question whose answer can't be undone begins at the way back.
        expect(page.get_by_role("button", name="Cancel")).to_be_focused()
        page.keyboard.press("Escape")
        expect(page.get_by_role("dialog")).to_be_hidden()
        expect(page.get_by_role("button", name="Disconnect…")).to_be_focused()
        page.keyboard.press("Enter")
        press_until(page, "Shift+Tab", "Disconnect")
        page.keyboard.press("Enter")
        expect(page.locator("#record-state")).to_contain_text("isconnect")
        expect(page.locator("#record-close")).to_be_focused()
    assert api.send("GET", f"/subscribers/{session['id']}").status_code == 404

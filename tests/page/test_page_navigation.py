"""The ways through the live page: views, links, the back button, keys, menus, and chosen columns."""

import json
import re

from playwright.sync_api import Browser, expect

from tests.support.browser import GROUPS, PHONE, Screen, screen
from tests.support.stack import Api


def test_each_view_has_its_link_in_a_group(shown: Screen) -> None:
    places = shown.page.locator("#places")
    for group, views in GROUPS.items():
        shown.page.evaluate("scrollTo(0, document.body.scrollHeight)")
        shown.go(group)
        assert shown.page.evaluate("scrollY") == 0
        heading = shown.page.locator(f"[data-view={next(iter(views.values()))}] h1")
        expect(heading).to_be_focused()
        expect(shown.page).to_have_title(f"{heading.text_content()} · Subscriber gateway")
        for name, view in views.items():
            places.get_by_role("link", name=name).click()
            expect(shown.page).to_have_url(f"{shown.api.url}/#{view}")
            expect(shown.page.locator(f"[data-view={view}]")).to_be_visible()
            expect(places.get_by_role("link", name=name)).to_have_attribute("aria-current", "page")
            expect(places.locator("[aria-current=true]")).to_contain_text(group)
        # The links of other groups are one step away.
        expect(places.get_by_role("link")).to_have_count(1 + len(GROUPS) + len(views))


def test_the_back_button_leads_through_views_searches_and_records(shown: Screen) -> None:
    name, title = shown.rows().locator("button").nth(1), shown.page.locator("#record-title")
    shown.find("lab.example")
    # The list of all sessions has as many rows.
    total = shown.api.get("/subscribers", params={"search": "lab.example", "limit": 1})["total"]
    expect(shown.page.locator("#list-range")).to_have_text(f"1 to 50 of {total}")
    name.click()
    username = name.inner_text()
    expect(title).to_have_text(username)
    expect(shown.page.locator("#list tr[aria-current]")).to_contain_text(username)
    shown.find("13")
    expect(shown.page).to_have_url(f"{shown.api.url}/#subscribers?search=13&open=13")
    for _ in range(2):
        shown.page.go_back()
    expect(title).to_have_text(username)
    expect(shown.page.get_by_label("Find a subscriber")).to_have_value("lab.example")
    shown.page.go_back()
    expect(shown.page.locator("#record")).to_be_hidden()
    expect(shown.page.locator("#list tr[aria-current]")).to_have_count(0)
    for _ in range(2):
        shown.page.go_back()
    expect(shown.page.get_by_role("heading", name="Overview", exact=True)).to_be_visible()


def test_a_search_without_a_match_leads_to_the_history(shown: Screen) -> None:
    for text, query in {
        "nobody@lab.example": "search=nobody%40lab.example",
        "192.0.2.77": "ip_address=192.0.2.77",
        "2001:db8:ffff::1": "ip_address=2001%3Adb8%3Affff%3A%3A1",
        "02:ff:ff:ff:ff:ff": "search=02%3Aff%3Aff%3Aff%3Aff%3Aff",
    }.items():
        shown.find(text)
        # The link of the search before stays until the response to this one.
        link = shown.page.get_by_role("link", name="Look for it in the history")
        expect(link).to_have_attribute("href", f"#history?{query}")
        link.click()
        expect(shown.page).to_have_url(f"{shown.api.url}/#history?{query}")
        expect(shown.page.locator("#history-list-range")).to_have_text("no matches")


def test_keys_lead_to_the_search_the_list_and_back(shown: Screen) -> None:
    keyboard, dialog = shown.page.keyboard, shown.page.get_by_role("dialog")
    openers = shown.rows().locator("button")
    account = shown.page.locator("#account")
    shown.account("Keys")
    expect(shown.page.get_by_role("dialog", name="Keys").locator("kbd", has_text="/")).to_be_visible()
    keyboard.press("Escape")
    expect(account).to_be_focused()
    keyboard.press("?")
    expect(dialog).to_be_visible()
    keyboard.press("Escape")
    expect(dialog).to_be_hidden()
    keyboard.press("/")
    find = shown.page.get_by_label("Find a subscriber")
    expect(find).to_be_focused()
    keyboard.type("a/b?")
    expect(find).to_have_value("a/b?")
    expect(openers).to_have_count(50)
    keyboard.press("ArrowDown")
    expect(openers.first).to_be_focused()
    for key in ("ArrowDown", "ArrowDown", "ArrowUp", "Enter"):
        keyboard.press(key)
    expect(shown.page.locator("#record-state")).to_have_text("Active")
    # A dialog has its own Escape.
    shown.press("Disconnect…")
    keyboard.press("Escape")
    expect(dialog).to_be_hidden()
    expect(shown.page.locator("#record")).to_be_visible()
    keyboard.press("Escape")
    expect(shown.page.locator("#record")).to_be_hidden()
    expect(openers.nth(1)).to_be_focused()
    assert "open=" not in shown.page.url


def test_a_phone_has_one_menu_with_all_views_and_folds_its_filters(browser: Browser, own: Api) -> None:
    with screen(browser, own, viewport=PHONE, is_mobile=True, has_touch=True) as shown:
        shown.open("#history").sign_in().is_live()
        menu = shown.page.get_by_role("button", name="Menu")
        expect(menu).to_have_text("Menu History")
        menu.click()
        for name in (name for views in GROUPS.values() for name in views):
            expect(shown.page.locator("#places").get_by_role("link", name=name).first).to_be_in_viewport()
        shown.page.keyboard.press("Escape")
        expect(shown.page.locator("#places")).to_be_hidden()
        username = shown.page.locator("[data-view=history]").get_by_label("Part of a username")
        expect(username).to_be_hidden()
        shown.press("Filters")
        username.fill("nobody")
        shown.page.get_by_role("button", name="Filter", exact=True).click()
        expect(shown.page.get_by_role("button", name="Filters")).to_have_text("Filters (1)")
        shown.go("Webhooks")
        expect(shown.page.locator("#places")).to_be_hidden()
        expect(menu).to_have_text("Menu Webhooks")


def test_the_columns_of_the_list_are_chosen_and_remembered(shown: Screen) -> None:
    def assert_columns(*names: str) -> None:
        expect(shown.page.locator("#list th")).to_have_text([re.compile(f"^{name}") for name in names])

    usual = ("Id", "Username", "Type", "IP address", "MAC address", "VLAN", "Down", "Up", "Online for")
    shown.go("Subscribers")
    assert_columns(*usual)
    shown.press("Columns")
    shown.page.get_by_label("Interface", exact=True).check()
    shown.page.get_by_label("Up", exact=True).uncheck()
    chosen = (*usual[:6], "Interface", "Down", "Online for")
    assert_columns(*chosen)
    (session,) = shown.api.get("/subscribers", params={"sort": "id", "limit": 1})["sessions"]
    expect(shown.rows().first).to_contain_text(session["interface"])
    shown.page.keyboard.press("Escape")
    shown.page.reload()
    assert_columns(*chosen)
    kept = shown.page.evaluate("JSON.stringify({...localStorage})")
    assert set(json.loads(kept)) == {"columns of list"}
    shown.press("Columns")
    shown.press("As at first")
    assert_columns(*usual)
    assert shown.page.evaluate("localStorage.length") == 0

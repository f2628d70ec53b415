"""The head of the live page, its keys, and the list of sessions as a user arranges it, on each screen."""

import json
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Locator, Route, expect

from tests.support.browser import GROUPS, LAPTOP, PHONE, Screen, screen
from tests.support.stack import Api, wait_for

pytestmark = pytest.mark.slow

#: The view of each link, as URLs have it.
PLACES = {
    "Overview": ("overview", {}),
    "Subscribers": (
        "subscribers",
        {
            "Sessions": "subscribers",
            "Traffic": "traffic",
            "History": "history",
            "Failed sign-ons": "failed-sign-ons",
            "Jobs": "jobs",
        },
    ),
    "Network": ("interfaces", {"Interfaces": "interfaces", "Routes": "routes", "CGNAT": "cgnat"}),
    "Configuration": ("configuration", {"Candidate and archive": "configuration", "Users": "users"}),
    "Operations": ("health", {"Health": "health", "Webhooks": "webhooks", "Audit": "audit"}),
}
LONGEST_STATE = "The core daemon does not reply: retrying"


@pytest.fixture
def shown(browser: Browser, api: Api) -> Iterator[Screen]:
    with screen(browser, api, viewport=LAPTOP) as opened:
        opened.open().sign_in()
        opened.is_live()
        yield opened


def places(shown: Screen) -> Locator:
    return shown.page.locator("#places")


def test_each_view_has_its_link_in_a_group(shown: Screen) -> None:
    assert {group: tuple(views) for group, (_, views) in PLACES.items() if views} == GROUPS
    for group, (first, views) in PLACES.items():
        shown.go(group)
        expect(shown.page).to_have_url(f"{shown.api.url}/#{first}")
        for name, view in views.items():
            places(shown).get_by_role("link", name=name).click()
            expect(shown.page).to_have_url(f"{shown.api.url}/#{view}")
            expect(shown.page.locator(f"[data-view={view}]")).to_be_visible()
            expect(places(shown).get_by_role("link", name=name)).to_have_attribute("aria-current", "page")
            expect(places(shown).locator("[aria-current=true]")).to_contain_text(group)
            # The links of other groups are one step away.
            others = [other for key, (_, more) in PLACES.items() if key != group for other in more]
            assert not any(places(shown).get_by_role("link", name=other).is_visible() for other in others)


def test_no_click_on_a_link_scrolls_the_head_away(shown: Screen) -> None:
    for name in ("Subscribers", "Overview", "Operations", "Overview", "Configuration"):
        shown.page.evaluate("scrollTo(0, document.body.scrollHeight)")
        # The head may be out of sight.
        shown.page.evaluate(
            "name => [...document.querySelectorAll('#places > ul > li > a')]"
            ".find(link => link.textContent.startsWith(name)).click()",
            name,
        )
        expect(shown.page.locator("#banner .name")).to_be_in_viewport()
        assert shown.page.evaluate("scrollY") == 0


def test_the_first_click_on_the_overview_keeps_the_head_in_sight(browser: Browser, api: Api) -> None:
    with screen(browser, api, viewport={"width": 1024, "height": 400}) as shown:
        shown.open().sign_in()
        shown.is_live()
        shown.go("Overview")
        shown.page.wait_for_timeout(500)
        assert shown.page.evaluate("scrollY") == 0


def lose(shown: Screen) -> None:
    """Has the page show all that its head can have, with a long name."""

    def unreachable(route: Route) -> None:
        route.fulfill(status=500, json={"status": "error", "message": "Core daemon unreachable"})

    def ill(route: Route) -> None:
        well = {"name": "radius", "state": "failed", "message": "It does not reply."}
        route.fulfill(json={"status": "ok", "data": {"state": "failed", "dependencies": [well] * 12}})

    def named(route: Route) -> None:
        response = route.fetch()
        document = response.json()
        document["data"]["system"]["hostname"] = "bng1.the-long-name-of-a-town.example.net"
        route.fulfill(response=response, json=document)

    shown.page.route("**/system/health", unreachable)
    shown.page.route("**/system/health/detail", ill)
    shown.page.route("**/system/config", named)


@pytest.mark.parametrize("width", [768, 1024, 1440])
def test_no_link_is_cut_while_the_connection_is_lost(browser: Browser, api: Api, width: int) -> None:
    with screen(browser, api, viewport={"width": width, "height": 800}) as shown:
        lose(shown)
        shown.open("#failed-sign-ons").sign_in()
        expect(shown.page.locator("#connection")).to_have_text(LONGEST_STATE)
        expect(shown.page.locator("#alarm")).to_have_text("12 problems")
        expect(shown.page.locator("#hostname")).to_contain_text("bng1.the-long-name")
        parts = shown.page.locator("#places a:visible, #connection, #alarm, #account")
        boxes = [part.bounding_box() for part in parts.all()]
        assert len(boxes) == 5 + 5 + 3
        for number, box in enumerate(boxes):
            assert box is not None
            assert box["x"] >= 0
            assert box["x"] + box["width"] <= width
            for other in boxes[number + 1 :]:
                assert other is not None
                beside = (
                    box["x"] + box["width"] <= other["x"] + 0.5
                    or other["x"] + other["width"] <= box["x"] + 0.5
                )
                below = (
                    box["y"] + box["height"] <= other["y"] + 4 or other["y"] + other["height"] <= box["y"] + 4
                )
                assert beside or below, (box, other)
        # Nothing scrolls in the head, where something could be out of sight.
        wider = """[...document.querySelectorAll('#banner, #banner *:not(.name *, .unseen)')]
            .filter(part => part.clientWidth && part.scrollWidth > part.clientWidth + 1)
            .map(part => part.outerHTML)"""
        assert shown.page.evaluate(wider) == []


def test_a_phone_has_one_menu_with_all_views(browser: Browser, api: Api) -> None:
    with screen(browser, api, viewport=PHONE, is_mobile=True, has_touch=True) as shown:
        shown.open("#history").sign_in()
        shown.is_live()
        menu = shown.page.get_by_role("button", name="Menu")
        expect(menu).to_have_text("Menu History")
        expect(places(shown)).to_be_hidden()
        menu.click()
        for group, (_, views) in PLACES.items():
            for name in (group, *views):
                expect(places(shown).get_by_role("link", name=name).first).to_be_in_viewport()
        shown.page.keyboard.press("Escape")
        expect(places(shown)).to_be_hidden()
        menu.click()
        places(shown).get_by_role("link", name="Webhooks").click()
        expect(places(shown)).to_be_hidden()
        expect(menu).to_have_text("Menu Webhooks")


def test_the_menu_of_the_user_has_both_ways_to_log_out(shown: Screen) -> None:
    for name in ("Log out", "Log out everywhere…"):
        expect(shown.page.get_by_role("button", name=name, exact=True)).to_be_hidden()
    account = shown.page.get_by_role("button", name="admin")
    account.focus()
    shown.page.keyboard.press("Enter")
    expect(shown.page.get_by_role("button", name="Log out", exact=True)).to_be_visible()
    shown.page.keyboard.press("Escape")
    expect(shown.page.get_by_role("button", name="Log out", exact=True)).to_be_hidden()
    expect(account).to_be_focused()
    shown.account("Log out everywhere…")
    expect(shown.page.get_by_role("dialog")).to_contain_text("This ends all tokens of your user")
    shown.page.keyboard.press("Escape")
    expect(account).to_be_focused()


def test_a_question_mark_shows_the_keys(shown: Screen) -> None:
    shown.page.keyboard.press("?")
    dialog = shown.page.get_by_role("dialog", name="Keys")
    for key in ("/", "↓", "Enter", "Esc", "?"):
        expect(dialog.locator("kbd", has_text=key).first).to_be_visible()
    shown.page.keyboard.press("Escape")
    expect(dialog).to_be_hidden()
    shown.account("Keys")
    expect(dialog).to_be_visible()
    dialog.get_by_role("button", name="Close").click()
    expect(dialog).to_be_hidden()
    shown.go("Subscribers")
    shown.page.get_by_label("Find a subscriber").press_sequentially("a?")
    expect(shown.page.get_by_label("Find a subscriber")).to_have_value("a?")
    expect(dialog).to_be_hidden()


def test_arrows_move_in_the_list_and_escape_closes_the_record(shown: Screen) -> None:
    shown.go("Subscribers")
    openers = shown.page.locator("#list tbody button")
    expect(openers).to_have_count(50)
    shown.page.keyboard.press("/")
    shown.page.keyboard.press("ArrowDown")
    expect(openers.first).to_be_focused()
    for _ in range(3):
        shown.page.keyboard.press("ArrowDown")
    shown.page.keyboard.press("ArrowUp")
    expect(openers.nth(2)).to_be_focused()
    shown.page.keyboard.press("Enter")
    expect(shown.page.locator("#record-title")).to_be_focused()
    expect(shown.page.locator("#record-state")).to_have_text("Active")
    # A dialog has its own Escape.
    shown.page.get_by_role("button", name="Disconnect…").click()
    shown.page.keyboard.press("Escape")
    expect(shown.page.get_by_role("dialog")).to_be_hidden()
    expect(shown.page.locator("#record")).to_be_visible()
    shown.page.keyboard.press("Escape")
    expect(shown.page.locator("#record")).to_be_hidden()
    expect(openers.nth(2)).to_be_focused()
    assert "open=" not in shown.page.url


def test_the_actions_of_a_record_are_at_its_top(browser: Browser, api: Api) -> None:
    with screen(browser, api, viewport=PHONE) as shown:
        shown.open("#subscribers?open=20").sign_in()
        expect(shown.page.locator("#record-state")).to_have_text("Active")
        tops = [
            shown.page.locator(f"#{id}").evaluate("part => part.getBoundingClientRect().top")
            for id in ("record-title", "disconnect", "record-chart", "record-fields")
        ]
        assert tops == sorted(tops)
        expect(shown.page.get_by_role("button", name="Disconnect…")).to_be_in_viewport()


def columns(shown: Screen) -> list[str]:
    heads = shown.page.locator("#list th:visible")
    expect(heads.first).to_be_visible()
    return [text.split(" ↑")[0] for text in heads.all_inner_texts()]


USUAL = ["Id", "Username", "Type", "IP address", "MAC address", "VLAN", "Down", "Up", "Online for"]


def test_the_columns_of_the_list_are_chosen_and_remembered(shown: Screen) -> None:
    shown.go("Subscribers")
    assert columns(shown) == USUAL
    (session,) = shown.api.get("/subscribers", params={"sort": "id", "limit": 1})["sessions"]
    row = shown.page.locator("#list tbody tr").first
    expect(row).to_contain_text(session["mac_address"])
    expect(row).to_contain_text(session["access_interface"])
    shown.page.get_by_role("button", name="Columns").click()
    shown.page.get_by_label("Interface", exact=True).check()
    shown.page.get_by_label("Up", exact=True).uncheck()
    chosen = [
        "Id",
        "Username",
        "Type",
        "IP address",
        "MAC address",
        "VLAN",
        "Interface",
        "Down",
        "Online for",
    ]
    assert columns(shown) == chosen
    expect(row).to_contain_text(session["interface"])
    shown.page.keyboard.press("Escape")
    shown.page.reload()
    assert columns(shown) == chosen
    kept = shown.page.evaluate("JSON.stringify({...localStorage})")
    assert set(json.loads(kept)) == {"columns of list"}
    shown.page.get_by_role("button", name="Columns").click()
    shown.page.get_by_role("button", name="As at first").click()
    assert columns(shown) == USUAL
    assert shown.page.evaluate("localStorage.length") == 0


def test_rows_keep_their_places_while_sessions_come_and_go(shown: Screen) -> None:
    shown.go("Subscribers")
    ids = shown.page.locator("#list tbody tr td:first-child")
    expect(ids).to_have_count(50)
    numbers = [int(text) for text in ids.all_inner_texts()]
    assert numbers == sorted(numbers)
    expect(shown.page.get_by_role("columnheader", name="Id")).to_have_attribute("aria-sort", "ascending")


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("nobody@lab.example", "search=nobody%40lab.example"),
        ("192.0.2.77", "ip_address=192.0.2.77"),
        ("2001:db8:ffff::1", "ip_address=2001%3Adb8%3Affff%3A%3A1"),
        ("02:ff:ff:ff:ff:ff", "search=02%3Aff%3Aff%3Aff%3Aff%3Aff"),
    ],
)
def test_a_search_without_a_match_leads_to_the_history(shown: Screen, text: str, query: str) -> None:
    shown.find(text)
    shown.page.get_by_role("link", name="Look for it in the history").click()
    expect(shown.page).to_have_url(f"{shown.api.url}/#history?{query}")
    expect(shown.page.locator("#history-list-range")).to_have_text("no matches")
    shown.find("7")
    expect(shown.page.get_by_role("link", name="Look for it in the history")).to_be_hidden()


def test_filters_of_a_phone_wait_behind_a_button(browser: Browser, api: Api) -> None:
    with screen(browser, api, viewport=PHONE) as shown:
        shown.open("#history").sign_in()
        view = shown.page.locator("[data-view=history]")
        expect(view.locator("tbody")).to_be_attached()
        expect(view.get_by_label("Part of a username")).to_be_hidden()
        opener = view.get_by_role("button", name="Filters")
        box = view.locator("form").bounding_box()
        assert box is not None
        assert box["height"] < 80
        opener.click()
        view.get_by_label("Part of a username").fill("nobody")
        view.get_by_role("button", name="Filter", exact=True).click()
        expect(opener).to_have_text("Filters (1)")
        shown.go("Subscribers")
        expect(shown.page.get_by_label("Find a subscriber")).to_be_visible()
        expect(shown.page.get_by_label("Type")).to_be_hidden()


def test_a_username_is_whole_on_a_phone_and_does_not_touch_the_address(browser: Browser, api: Api) -> None:
    with screen(browser, api, viewport=PHONE) as shown:
        shown.open("#subscribers?type=pppoe").sign_in()
        name = shown.page.locator("#list tbody button").first
        expect(name).to_contain_text("@lab.example")
        apart = """name => {
            const range = document.createRange(), next = name.closest('tr').cells[3];
            range.selectNodeContents(name);
            return next.getBoundingClientRect().left - range.getBoundingClientRect().right;
        }"""
        cut = """name => [name, name.closest('td')].some(part => part.scrollWidth > part.clientWidth)"""
        # The first rows may come before the columns have their places.
        wait_for("a place of its own", lambda: name.evaluate(apart) >= 4 and not name.evaluate(cut))

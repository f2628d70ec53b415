"""The live page for everybody: on a phone, in the dark, read aloud, and without motion."""

import time
from collections.abc import Callable, Iterator
from itertools import cycle

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, expect

from tests.support.browser import LAPTOP, PHONE, Screen, screen
from tests.support.histories import failed, remember_failures
from tests.support.stack import Api, running_stack


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    """A gateway whose candidate has changes, with an unconfirmed commit, a webhook, a failed sign-on and
    jobs."""
    folder = tmp_path_factory.mktemp("own")
    with running_stack(folder, sessions=200) as (api, _):
        remember_failures(folder / "history.sqlite", failed(int(time.time())))
        staged = {"path": 'bgp.neighbors."10.255.0.6".description', "value": "core2, in the cellar"}
        api.send("POST", "/system/config/set", json=staged)
        assert api.send("POST", "/system/config/commit", json={"confirm_seconds": 3600}).ok
        api.send("POST", "/system/config/set", json={"path": "qos.default_down", "value": "150mbit"})
        hook = {"url": "http://127.0.0.1:9/hook", "events": ["session.up"]}
        id = api.send("POST", "/webhooks", json=hook).json()["data"]["id"]
        assert api.send("POST", f"/webhooks/{id}/test").ok
        slow = {"filter": {"type": "pppoe"}, "rate_down": "6 Mbit", "per_second": 1}
        assert api.send("POST", "/subscribers/rate", json=slow).ok
        assert api.send("DELETE", "/subscribers/1").ok
        yield api


Act = Callable[[Screen], object]


def click(name: str) -> Act:
    """Opens the dialog, or the part of the page, of a button."""
    return lambda shown: shown.page.get_by_role("button", name=name).first.click()


def webhook(shown: Screen) -> None:
    shown.page.locator("#webhook-list tbody button").first.click()


def record(shown: Screen) -> None:
    shown.page.locator("#list tbody button").first.click()
    expect(shown.page.locator("#record-state")).to_have_text("Active")


def keys(shown: Screen) -> None:
    shown.page.keyboard.press("?")


#: The part of the URL of each state of the page, what a user does there, and a part that is visible then.
STATES: dict[str, tuple[str, tuple[Act, ...], str]] = {
    "overview": ("", (), "#overview-health li"),
    "subscribers": ("subscribers", (), "#list tbody tr"),
    "a record": ("subscribers", (record,), "#record-fields"),
    "a rate": ("subscribers", (record, click("Change rate…")), "dialog[open]"),
    "a disconnect": ("subscribers", (record, click("Disconnect…")), "dialog[open]"),
    "rates of many": ("subscribers?type=dhcp", (click("Change rates of all…"),), "dialog[open]"),
    "a disconnect of many": ("subscribers?type=dhcp", (click("Disconnect all…"),), "dialog[open]"),
    "columns": ("subscribers", (click("Columns"),), "label:has-text('MAC address')"),
    "a job": ("subscribers?job=1", (), "#job-state"),
    "no matches": ("subscribers?search=nobody&job=999", (), "#job-problem"),
    "traffic": ("traffic", (), "#talker-list tbody tr"),
    "history": ("history", (), "#history-list tbody tr"),
    "failed sign-ons": ("failed-sign-ons", (), "#failure-list tbody tr"),
    "jobs": ("jobs", (), "#job-list tbody tr"),
    "interfaces": ("interfaces", (), "#interface-list tbody tr"),
    "routes": ("routes", (), "#route-list tbody tr"),
    "cgnat": ("cgnat", (), "#cgnat-list tbody tr"),
    "configuration": (
        "configuration?from=1&to=candidate&path=demux.rate_limits.burst",
        (),
        "#revision-diff ins",
    ),
    "a commit": ("configuration", (click("Commit…"),), "dialog[open]"),
    "a discard": ("configuration", (click("Discard…"),), "dialog[open]"),
    "a rollback": ("configuration", (click("Roll back to revision 1"),), "dialog[open]"),
    "users": ("users", (), "#user-list tbody tr"),
    "the end of tokens": ("users", (click("End the tokens of operator"),), "dialog[open]"),
    "health": ("health", (), "#dependency-states li"),
    "webhooks": ("webhooks", (webhook, click("Send a test")), "#toasts p"),
    "the end of a webhook": ("webhooks", (webhook, click("Delete…")), "dialog[open]"),
    "audit": ("audit", (lambda s: s.page.locator("#audit-list summary").last.click(),), "#audit-list dl"),
    "keys": ("", (keys,), "dialog[open]"),
    "the menu of the user": ("", (lambda s: s.page.locator("#account").click(),), "#account-menu button"),
    "the menu of the views": ("users", (click("Menu"),), "#places a:has-text('Webhooks')"),
}


def assert_accessible(shown: Screen, scheme: str) -> None:
    widths = "[document.documentElement.scrollWidth, document.body.scrollWidth, innerWidth]"
    assert shown.page.evaluate(widths) == [PHONE["width"]] * 3
    shown.page.set_viewport_size(LAPTOP)
    shown.page.emulate_media(color_scheme=scheme)
    found = Axe().run(shown.page)
    assert found.violations_count == 0, found.generate_report()


@pytest.fixture
def phone(browser: Browser, own: Api) -> Iterator[Screen]:
    # Without motion: text that is half faded in has no contrast yet.
    options = {"viewport": PHONE, "is_mobile": True, "has_touch": True, "reduced_motion": "reduce"}
    with screen(browser, own, **options) as shown:
        yield shown


# Each state in one colour scheme: the style sheets name their colours alike in both.
@pytest.mark.parametrize(("state", "scheme"), zip(STATES, cycle(("light", "dark")), strict=False))
def test_axe_finds_nothing_and_nothing_is_wider_than_a_phone(phone: Screen, state: str, scheme: str) -> None:
    place, acts, visible = STATES[state]
    phone.open(f"#{place}").sign_in().is_live()
    for act in acts:
        act(phone)
    expect(phone.page.locator(visible).locator("visible=true").first).to_be_visible()
    assert_accessible(phone, scheme)


def test_axe_finds_nothing_in_the_sign_in_and_its_problem(phone: Screen) -> None:
    phone.open().sign_in("operator", "wrong")
    expect(phone.page.get_by_role("alert")).to_be_visible()
    assert_accessible(phone, "dark")


def test_the_focus_is_visible_and_motion_only_where_it_is_welcome(browser: Browser, own: Api) -> None:
    for motion, moving in (("no-preference", True), ("reduce", False)):
        with screen(browser, own, reduced_motion=motion) as shown:
            shown.open().sign_in()
            shown.is_live()
            (session,) = own.get("/subscribers", params={"sort": "-id", "limit": 1})["sessions"]
            assert own.send("DELETE", f"/subscribers/{session['id']}").ok
            expect(shown.page.locator("#feed li").first).to_be_visible()
            name = "getComputedStyle(document.querySelector('#feed li')).animationName"
            assert (shown.page.evaluate(name) != "none") is moving
            seen = set()
            for _ in range(25):
                shown.page.keyboard.press("Tab")
                tag, *outline = shown.page.evaluate(
                    """() => { const style = getComputedStyle(document.activeElement);
                        return [document.activeElement.tagName, style.outlineStyle, style.outlineWidth]; }"""
                )
                if tag != "BODY":
                    assert outline == ["solid", "2px"], tag
                    seen.add(tag)
            assert {"A", "BUTTON"} <= seen

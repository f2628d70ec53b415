"""The live page for everybody: by keyboard, on a phone, in the dark, read aloud."""

import time
from collections.abc import Callable, Iterator

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, Route, expect

from tests.support.browser import PHONE, Screen, screen
from tests.support.histories import failed, remember_failures
from tests.support.stack import Api, running_stack

pytestmark = pytest.mark.slow

LARGE = {"width": 1440, "height": 900}
SCHEMES = ("light", "dark")
SIZES = {"laptop": LARGE, "phone": PHONE}


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    """A gateway where nobody leaves by himself, something is staged and waits, and a sign-on has failed."""
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
        yield api


def oldest(api: Api) -> int:
    """The id of the session that has lasted longest."""
    (session,) = api.get("/subscribers", params={"sort": "id", "limit": "1"})["sessions"]
    found: int = session["id"]
    return found


def signed_out(shown: Screen) -> None:
    shown.open()
    expect(shown.page.get_by_role("dialog")).to_be_visible()


def refused(shown: Screen) -> None:
    shown.open().sign_in("operator", "wrong")
    expect(shown.page.get_by_role("alert")).to_be_visible()


def overview(shown: Screen) -> None:
    shown.open().sign_in().is_live()
    expect(shown.page.locator("#vlans li").first).to_be_visible()
    assert shown.api.send("DELETE", f"/subscribers/{oldest(shown.api)}").ok
    expect(shown.page.locator("#feed li").first).to_be_visible()
    expect(shown.page.locator("#overview-health li").first).to_be_visible()


def subscribers(shown: Screen) -> None:
    shown.open("#subscribers").sign_in()
    expect(shown.page.locator("#list tbody tr").first).to_be_visible()


def record(shown: Screen) -> None:
    shown.open("#subscribers").sign_in()
    shown.page.locator("#list tbody button").first.click()
    expect(shown.page.locator("#record-state")).to_have_text("Active")


def chosen(shown: Screen) -> None:
    shown.open("#subscribers?type=dhcp").sign_in()
    expect(shown.page.get_by_role("button", name="Disconnect all…")).to_be_enabled()


def job(shown: Screen) -> None:
    body = {"filter": {"username": "nobody"}, "rate_down": "5 Mbit"}
    id = shown.api.send("POST", "/subscribers/rate", json=body).json()["data"]["id"]
    shown.open(f"#subscribers?job={id}").sign_in()
    expect(shown.page.locator("#job-state")).to_have_text("Done")


def configuration(shown: Screen) -> None:
    shown.open("#configuration").sign_in()
    expect(shown.page.locator("#diff ins")).to_be_visible()
    expect(shown.page.locator("#archive tbody tr").first).to_be_visible()
    expect(shown.page.locator("#unconfirmed")).to_be_visible()


def listed(view: str, table: str) -> Callable[[Screen], None]:
    """A view with a list, which has a row at least."""

    def look(shown: Screen) -> None:
        shown.open(f"#{view}").sign_in()
        expect(shown.page.locator(f"#{table} tbody tr").first).to_be_visible()

    return look


def health(shown: Screen) -> None:
    shown.open("#health").sign_in()
    expect(shown.page.locator("#dependency-states li").first).to_be_visible()
    expect(shown.page.locator("#fault-list-range")).to_have_text("none")


def deliveries(shown: Screen) -> None:
    (webhook,) = shown.api.get("/webhooks")["webhooks"]
    shown.open(f"#webhooks?open={webhook['id']}").sign_in()
    expect(shown.page.locator("#delivery-list tbody tr").first).to_be_visible()


def details(shown: Screen) -> None:
    listed("audit", "audit-list")(shown)
    shown.page.locator("#audit-list summary").last.click()


def no_matches(shown: Screen) -> None:
    shown.open("#subscribers?search=nobody&job=999").sign_in()
    expect(shown.page.locator("#list-range")).to_have_text("no matches")
    expect(shown.page.locator("#job-problem")).to_be_visible()


def jobs(shown: Screen) -> None:
    body = {"filter": {"type": "pppoe"}, "rate_down": "6 Mbit", "per_second": 1}
    assert shown.api.send("POST", "/subscribers/rate", json=body).ok
    shown.open("#jobs").sign_in()
    expect(shown.page.get_by_role("button", name="Cancel job").first).to_be_visible()


def toast(shown: Screen) -> None:
    deliveries(shown)
    shown.page.get_by_role("button", name="Send a test").click()
    expect(shown.page.locator("#toasts p")).to_be_visible()


def difference(shown: Screen) -> None:
    shown.open("#configuration?from=1&to=candidate&path=demux.rate_limits.burst").sign_in()
    expect(shown.page.locator("#revision-diff ins").first).to_be_visible()
    expect(shown.page.locator("#tree").get_by_role("link", name="burst")).to_be_visible()


def pressed(before: Callable[[Screen], None], name: str) -> Callable[[Screen], None]:
    def press(shown: Screen) -> None:
        before(shown)
        shown.page.get_by_role("button", name=name).click()
        expect(shown.page.get_by_role("dialog")).to_be_visible()

    return press


def alarmed(shown: Screen) -> None:
    """Something is ill."""

    def ill(route: Route) -> None:
        dependency = {"name": "radius", "state": "failed", "message": "It does not reply."}
        route.fulfill(json={"status": "ok", "data": {"state": "failed", "dependencies": [dependency]}})

    shown.page.route("**/system/health/detail", ill)
    shown.open("#history").sign_in()
    expect(shown.page.locator("#alarm")).to_have_text("1 problem")


def views(shown: Screen) -> None:
    listed("users", "user-list")(shown)
    shown.page.get_by_role("button", name="Menu").click()
    expect(shown.page.get_by_role("link", name="Webhooks")).to_be_visible()


def user_menu(shown: Screen) -> None:
    subscribers(shown)
    shown.page.locator("#account").click()
    expect(shown.page.get_by_role("button", name="Log out", exact=True)).to_be_visible()


def columns(shown: Screen) -> None:
    subscribers(shown)
    shown.page.get_by_role("button", name="Columns").click()
    expect(shown.page.get_by_label("MAC address")).to_be_visible()


def keys(shown: Screen) -> None:
    subscribers(shown)
    shown.page.keyboard.press("?")
    expect(shown.page.get_by_role("dialog")).to_be_visible()


STATES: dict[str, Callable[[Screen], None]] = {
    "signed out": signed_out,
    "refused": refused,
    "overview": overview,
    "subscribers": subscribers,
    "a record": record,
    "a job": job,
    "jobs": jobs,
    "no matches": no_matches,
    "configuration": configuration,
    "a difference": difference,
    "traffic": listed("traffic", "talker-list"),
    "history": listed("history", "history-list"),
    "failed sign-ons": listed("failed-sign-ons", "failure-list"),
    "interfaces": listed("interfaces", "interface-list"),
    "routes": listed("routes", "route-list"),
    "cgnat": listed("cgnat", "cgnat-list"),
    "health": health,
    "webhooks": deliveries,
    "users": listed("users", "user-list"),
    "audit": details,
    "a toast": toast,
    "an alarm": alarmed,
    "the menu of the views": views,
    "the menu of the user": user_menu,
    "the columns": columns,
    "the keys": keys,
    "the rate dialog": pressed(record, "Change rate…"),
    "the disconnect dialog": pressed(record, "Disconnect…"),
    "the dialog for the rates of many": pressed(chosen, "Change rates of all…"),
    "the dialog to disconnect many": pressed(chosen, "Disconnect all…"),
    "the commit dialog": pressed(configuration, "Commit…"),
    "the discard dialog": pressed(configuration, "Discard…"),
    "the dialog to roll back": pressed(configuration, "Roll back to revision 1"),
    "the dialog to delete a webhook": pressed(deliveries, "Delete…"),
    "the tokens dialog": pressed(listed("users", "user-list"), "End the tokens of operator"),
}


@pytest.fixture(scope="module", params=STATES)
def state(browser: Browser, own: Api, request: pytest.FixtureRequest) -> Iterator[Page]:
    """The page in one of its states, as large as a phone."""
    # Without motion: text that is half faded in has no contrast yet.
    with screen(
        browser, own, viewport=PHONE, is_mobile=True, has_touch=True, reduced_motion="reduce"
    ) as shown:
        STATES[request.param](shown)
        yield shown.page


def test_nothing_is_wider_than_a_phone(state: Page) -> None:
    widths = "[document.documentElement.scrollWidth, document.body.scrollWidth, innerWidth]"
    assert state.evaluate(widths) == [PHONE["width"]] * 3


def test_axe_finds_nothing(state: Page) -> None:
    state.set_viewport_size(LARGE)
    for scheme in SCHEMES:
        state.emulate_media(color_scheme=scheme)
        found = Axe().run(state)
        assert found.violations_count == 0, f"{scheme}: {found.generate_report()}"


def test_axe_finds_nothing_on_a_phone(browser: Browser, own: Api) -> None:
    with screen(browser, own, viewport=PHONE, reduced_motion="reduce") as shown:
        record(shown)
        found = Axe().run(shown.page)
    assert found.violations_count == 0, found.generate_report()


def focused(page: Page) -> str:
    name: str = page.evaluate("document.activeElement.textContent.trim() || document.activeElement.id")
    return name


def press_until(page: Page, key: str, wanted: str, most: int = 60) -> None:
    """Goes on pressing until what is wanted has the focus."""
    for _ in range(most):
        page.keyboard.press(key)
        if focused(page) == wanted:
            return
    raise AssertionError(f"{wanted} is not reached by {key}")


def test_a_subscriber_is_found_and_disconnected_by_keyboard_alone(browser: Browser, own: Api) -> None:
    names = own.environment
    gone = oldest(own)
    with screen(browser, own) as shown:
        page = shown.open().page
        expect(page.get_by_label("Username", exact=True)).to_be_focused()
        page.keyboard.type(names["ADMIN_USER"])
        page.keyboard.press("Tab")
        page.keyboard.type(names["ADMIN_PASSWORD"])
        page.keyboard.press("Enter")
        shown.is_live()
        press_until(page, "Tab", "Subscribers")
        page.keyboard.press("Enter")
        press_until(page, "Tab", "find-text")
        page.keyboard.type(str(gone))
        page.keyboard.press("Enter")
        expect(page.locator("#record-title")).to_be_focused()
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
    assert own.send("GET", f"/subscribers/{gone}").status_code == 404


def test_the_first_stop_of_the_keyboard_leads_past_the_banner(browser: Browser, own: Api) -> None:
    with screen(browser, own) as shown:
        overview(shown)
        shown.page.reload()
        shown.is_live()
        press_until(shown.page, "Tab", "Skip to the content")
        expect(shown.page.get_by_text("Skip to the content")).to_be_in_viewport()
        shown.page.keyboard.press("Enter")
        expect(shown.page.locator("[data-view=overview]")).to_be_visible()
        expect(shown.page.get_by_role("main")).to_be_focused()


def test_what_has_the_focus_is_seen_to_have_it(browser: Browser, own: Api) -> None:
    with screen(browser, own) as shown:
        configuration(shown)
        seen = set()
        for _ in range(25):
            shown.page.keyboard.press("Tab")
            outline = shown.page.evaluate(
                """() => { const style = getComputedStyle(document.activeElement);
                    return [document.activeElement.tagName, style.outlineStyle, style.outlineWidth]; }"""
            )
            if outline[0] != "BODY":
                assert outline[1:] == ["solid", "2px"], outline
                seen.add(outline[0])
    assert {"A", "BUTTON", "INPUT"} <= seen


def test_nothing_moves_for_those_who_would_rather_it_did_not(browser: Browser, own: Api) -> None:
    for motion, moving in (("no-preference", True), ("reduce", False)):
        with screen(browser, own, reduced_motion=motion) as shown:
            overview(shown)
            name = "getComputedStyle(document.querySelector('#feed li')).animationName"
            assert (shown.page.evaluate(name) != "none") is moving


def test_the_view_s_name_is_the_title_and_takes_the_focus(browser: Browser, own: Api) -> None:
    with screen(browser, own) as shown:
        overview(shown)
        shown.go("Subscribers")
        expect(shown.page).to_have_title("Subscribers · Subscriber gateway")
        expect(shown.page.get_by_role("heading", name="Subscribers", exact=True)).to_be_focused()
        shown.page.go_back()
        expect(shown.page.get_by_role("heading", name="Overview", exact=True)).to_be_focused()
        expect(shown.page.get_by_role("link", name="Overview")).to_have_attribute("aria-current", "page")

"""Generator of the screenshots in the documentation, from a gateway with 20,000 sessions: `make
screenshots`."""

import tempfile
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from playwright.sync_api import expect

from tests.support.browser import LAPTOP, PHONE, Screen, chromium, screen
from tests.support.stack import Api, running_stack, wait_for

SCREENSHOT_FOLDER = Path(__file__).parents[1] / "etc" / "screenshots"
SESSIONS, ARRIVALS = 20_000, 4

_WITHOUT_TOKEN = """
const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
while (texts.nextNode())
  texts.currentNode.data = texts.currentNode.data.replace(/eyJ[\\w.-]+/, '$TOKEN');
"""


def main() -> None:
    SCREENSHOT_FOLDER.mkdir(exist_ok=True)
    with (
        tempfile.TemporaryDirectory() as state,
        running_stack(Path(state), sessions=SESSIONS, arrivals=ARRIVALS) as (api, _),
        chromium() as browser,
        ExitStack() as screens,
    ):
        for path, value in (("qos.default_down", "250mbit"), ("qos.default_up", "50mbit")):
            api.send("POST", "/system/config/set", json={"path": path, "value": value})
        light = screens.enter_context(screen(browser, api, viewport=LAPTOP, color_scheme="light"))
        dark = screens.enter_context(screen(browser, api, viewport=LAPTOP, color_scheme="dark"))
        phone = screens.enter_context(
            screen(browser, api, viewport=PHONE, color_scheme="dark", device_scale_factor=2)
        )
        for window in (light, dark, phone):
            window.open().sign_in()
        for window, name in ((light, "light"), (dark, "dark"), (phone, "phone")):
            wait_for("two minutes of events", partial(has_bars, window), 240)
            take_screenshot(window, f"overview-{name}")
        for window, name in ((dark, "dark"), (phone, "phone")):
            show_subscriber(window)
            take_screenshot(window, f"subscribers-{name}")
        light.go("Configuration")
        expect(light.page.locator("#diff ins").first).to_be_visible()
        light.page.get_by_role("button", name="Commit…").click()
        take_screenshot(light, "configuration-light")
        take_docs(api, screens.enter_context(screen(browser, api)))


def has_bars(window: Screen) -> bool:
    path = window.page.locator(".chart .up").first.get_attribute("d") or ""
    return path.count("M") > 110


def show_subscriber(window: Screen) -> None:
    # The list begins with the oldest sessions, which have much traffic.
    window.find("")
    window.page.get_by_role("cell", name="7", exact=True).locator("xpath=..").get_by_role("button").click()
    expect(window.page.locator("#record-fields")).to_contain_text("bit/s down, ")
    expect(window.page.locator("#record-fields")).not_to_contain_text("measuring")


def take_screenshot(window: Screen, name: str) -> None:
    window.page.mouse.move(0, 0)
    window.page.screenshot(path=SCREENSHOT_FOLDER / f"{name}.png", animations="disabled")


def take_docs(api: Api, window: Screen) -> None:
    """Take a screenshot of the API documentation in the browser window, after a login and with the result of
    one operation."""
    page = window.page
    page.set_viewport_size({"width": 1280, "height": 1700})
    page.goto(f"{api.url}/api/v1/docs")
    page.get_by_label("User").fill(api.environment["ADMIN_USER"])
    page.get_by_label("Password").fill(api.environment["ADMIN_PASSWORD"])
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_text("Logged in as")).to_be_visible()
    operation = page.locator("[id$='-subscribers_show']")
    operation.locator(".opblock-summary-control").click()
    operation.locator("input").fill("7")
    operation.get_by_role("button", name="Execute").click()
    expect(operation.locator(".live-responses-table .response-col_status").last).to_have_text("200")
    # The curl line has the token.
    page.evaluate(_WITHOUT_TOKEN)
    page.evaluate("scrollTo(0, 0)")
    page.screenshot(path=SCREENSHOT_FOLDER / "docs.png")


if __name__ == "__main__":
    main()

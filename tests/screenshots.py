"""Pictures of the live page for the README: a gateway with 20,000 sessions, light, dark and on a phone."""

import tempfile
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from playwright.sync_api import expect

from tests.browser import PHONE, Screen, chromium, screen
from tests.stack import running_stack, wait_for

FOLDER = Path(__file__).parent.parent / "etc" / "screenshots"
SESSIONS, ARRIVALS = 20_000, 4
LAPTOP = {"width": 1440, "height": 900}


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
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
        for shown in (light, dark, phone):
            shown.open().sign_in()
        for shown, name in ((light, "light"), (dark, "dark"), (phone, "phone")):
            wait_for("two minutes of events", partial(has_bars, shown), 240)
            take(shown, f"overview-{name}")
        for shown, name in ((dark, "dark"), (phone, "phone")):
            subscriber(shown)
            take(shown, f"subscribers-{name}")
        light.go("Configuration")
        expect(light.page.locator("#diff ins").first).to_be_visible()
        light.page.get_by_role("button", name="Commit…").click()
        take(light, "configuration-light")


def has_bars(shown: Screen) -> bool:
    path = shown.page.locator(".chart .up").first.get_attribute("d") or ""
    return path.count("M") > 110


def subscriber(shown: Screen) -> None:
    shown.find("12345")
    expect(shown.page.locator("#record-fields")).to_contain_text("bit/s down, ")
    shown.page.get_by_label("Find a subscriber").fill("")
    shown.page.get_by_role("button", name="Find").click()
    expect(shown.page.locator("#list-range")).to_contain_text("1 to 50")
    expect(shown.page.locator("#record-fields")).not_to_contain_text("measuring")


def take(shown: Screen, name: str) -> None:
    shown.page.mouse.move(0, 0)
    shown.page.screenshot(path=FOLDER / f"{name}.png", animations="disabled")


if __name__ == "__main__":
    main()

"""Pictures of the live page for the README: of a gateway with 20,000 sessions, in the light, in the dark, on a phone."""

import tempfile
from pathlib import Path

from playwright.sync_api import Browser, expect

from tests.browser import PHONE, Screen, chromium, screen
from tests.stack import Api, running_stack, wait_for

FOLDER = Path(__file__).parent.parent / "etc" / "screenshots"
SESSIONS, ARRIVALS = 20_000, 4
LAPTOP = {"width": 1440, "height": 900}


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    with (
        tempfile.TemporaryDirectory() as state,
        running_stack(Path(state), sessions=SESSIONS, arrivals=ARRIVALS) as (api, _),
        chromium() as browser,
    ):
        for path, value in (("qos.default_down", "250mbit"), ("qos.default_up", "50mbit")):
            api.send("POST", "/system/config/set", json={"path": path, "value": value})
        with screen(browser, api, viewport=LAPTOP, color_scheme="light") as shown:
            overview(shown)
            take(shown, "overview-light")
            shown.go("Configuration")
            expect(shown.page.locator("#diff ins").first).to_be_visible()
            shown.page.get_by_role("button", name="Commit…").click()
            take(shown, "configuration-light")
        with screen(browser, api, viewport=LAPTOP, color_scheme="dark") as shown:
            overview(shown)
            take(shown, "overview-dark")
            subscriber(shown)
            take(shown, "subscribers-dark")
        on_a_phone(browser, api)


def on_a_phone(browser: Browser, api: Api) -> None:
    with screen(browser, api, viewport=PHONE, color_scheme="dark", device_scale_factor=2) as shown:
        overview(shown)
        take(shown, "overview-phone")
        subscriber(shown)
        take(shown, "subscribers-phone")


def overview(shown: Screen) -> None:
    """Until its charts are half full."""
    shown.open().sign_in()
    shown.is_live()
    wait_for(
        "a minute of events",
        lambda: len(shown.page.locator(".chart .up").first.get_attribute("d") or "") > 1300,
    )


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

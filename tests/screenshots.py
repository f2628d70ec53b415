"""`make screenshots`: the pictures of the README, of pages as they are served."""

import tempfile
from pathlib import Path

from playwright.sync_api import expect

from tests.browser import Watched, chromium
from tests.stack import Api, running_stack

FOLDER = Path(__file__).parent.parent / "etc" / "screenshots"


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    with (
        tempfile.TemporaryDirectory() as state,
        running_stack(Path(state), sessions=200) as (api, _),
        chromium() as browser,
    ):
        take_docs(api, Watched(browser))


def take_docs(api: Api, window: Watched) -> None:
    """Logged in, with one operation tried."""
    page = window.page
    page.set_viewport_size({"width": 1280, "height": 1700})
    page.goto(f"{api.url}/api/v1/docs#/subscribers/subscribers_show")
    page.get_by_label("User").fill(api.environment["ADMIN_USER"])
    page.get_by_label("Password").fill(api.environment["ADMIN_PASSWORD"])
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_text("Logged in as")).to_be_visible()
    operation = page.locator("[id$='-subscribers_show']")
    operation.locator("input").fill("7")
    operation.get_by_role("button", name="Execute").click()
    expect(operation.locator(".live-responses-table .response-col_status").last).to_have_text("200")
    page.evaluate("scrollTo(0, 0)")
    # Its curl line has the token.
    page.screenshot(path=FOLDER / "docs.png", mask=[operation.locator(".curl-command")])


if __name__ == "__main__":
    main()

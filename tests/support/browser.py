"""Our pages in Debian's Chromium, as a user sees them."""

import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from playwright.sync_api import Browser, ConsoleMessage, Page, Request, expect, sync_playwright

from tests.support.stack import Api

PHONE = {"width": 360, "height": 740}
LAPTOP = {"width": 1440, "height": 900}
#: The views of each group of the navigation, by the names of their links.
GROUPS = {
    "Subscribers": ("Sessions", "Traffic", "History", "Failed sign-ons", "Jobs"),
    "Network": ("Interfaces", "Routes", "CGNAT"),
    "Configuration": ("Candidate and archive", "Users"),
    "Operations": ("Health", "Webhooks", "Audit"),
}
#: Milliseconds until the screen must show an expected state.
PATIENCE = 30_000


@contextmanager
def chromium() -> Iterator[Browser]:
    """One browser. Not for a whole test run: its asyncio loop would run as long."""
    expect.set_options(timeout=PATIENCE)
    executable = shutil.which("chromium-headless-shell")
    assert executable, "Debian's chromium-headless-shell is not installed"
    # Its sandbox does not start as root.
    settings = {"executable_path": executable, "args": ["--no-sandbox", "--no-proxy-server"]}
    with sync_playwright() as playwright, playwright.chromium.launch(**settings) as browser:
        yield browser


class Screen:
    """The page on one screen. `complaints` are messages of the browser and of the page's modules; `requests`
    are all requests of the page."""

    def __init__(self, page: Page, api: Api) -> None:
        self.page = page
        self.api = api
        self.complaints: list[str] = []
        self.requests: list[Request] = []
        page.set_default_timeout(PATIENCE)
        page.on("console", self._heard)
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        # Not the bound method: Playwright writes to what it gets.
        page.on("request", lambda request: self.requests.append(request))

    def open(self, view: str = "") -> "Screen":
        """The page, signed out."""
        self.page.goto(f"{self.api.url}/{view}")
        return self

    def sign_in(self, role: str = "admin", password: str | None = None) -> "Screen":
        """As the user of a role, with the right password or another."""
        names = self.api.environment
        form = self.page.locator("#sign-in")
        form.get_by_label("Username").fill(names[f"{role.upper()}_USER"])
        form.get_by_label("Password").fill(password or names[f"{role.upper()}_PASSWORD"])
        form.get_by_role("button", name="Log in").click()
        return self

    def go(self, view: str) -> "Screen":
        """Opens another view, by its name: that of its link, or of its group for the first of a group."""
        menu = self.page.get_by_role("button", name="Menu")
        if menu.is_visible():
            menu.click()
        link = self.page.locator("#places").get_by_role("link", name=re.compile(f"^{re.escape(view)}"))
        group = next((group for group, views in GROUPS.items() if view in views), None)
        if group and not link.is_visible():
            self.page.locator("#places").get_by_role("link", name=re.compile(f"^{group}")).click()
        link.click()
        return self

    def account(self, action: str) -> "Screen":
        """Does what a button of the user's menu does."""
        self.page.locator("#account").click()
        self.page.locator("#account-menu").get_by_role("button", name=action, exact=True).click()
        return self

    def text(self, id: str) -> str:
        return self.page.locator(f"#{id}").inner_text()

    def number(self, id: str) -> int:
        """The text of an element, as a number."""
        return int(self.text(id).replace(",", ""))

    def find(self, text: str) -> "Screen":
        """Searches for a text."""
        self.go("Subscribers")
        self.page.get_by_label("Find a subscriber").fill(text)
        self.page.get_by_role("button", name="Find").click()
        return self

    def is_live(self) -> None:
        """Waits until the page shows that it is live."""
        expect(self.page.locator("#connection")).to_have_text("Live")

    def since(self) -> dict[str, Any]:
        """The sessions started and ended, and the ids of the first and last counted event, at one moment."""
        found: dict[str, Any] = self.page.evaluate(
            """() => ({...document.getElementById('arrivals-chart').dataset,
                came: document.getElementById('came').textContent,
                went: document.getElementById('went').textContent})"""
        )
        return {**found, "came": _number(found["came"]), "went": _number(found["went"])}

    def _heard(self, message: ConsoleMessage) -> None:
        # chromium reports each failed request itself.
        if message.type in ("error", "warning") and not re.match("Failed to load resource", message.text):
            self.complaints.append(message.text)


def _number(text: str) -> int:
    return int(text.replace(",", ""))


@contextmanager
def screen(browser: Browser, api: Api, **more: Any) -> Iterator[Screen]:
    """A new screen without data of others. Fails if the browser complained, or if the page sent a request to
    another server."""
    context = browser.new_context(ignore_https_errors=True, **more)
    made = Screen(context.new_page(), api)
    try:
        yield made
    finally:
        context.close()
    assert made.complaints == []
    elsewhere = [asked.url for asked in made.requests if not asked.url.startswith((f"{api.url}/", "data:"))]
    assert elsewhere == []

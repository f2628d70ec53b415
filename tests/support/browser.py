"""Our pages in Debian's Chromium, as a user sees them."""

import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from playwright.sync_api import (
    Browser,
    ConsoleMessage,
    Locator,
    Page,
    Request,
    Route,
    expect,
    sync_playwright,
)

from tests.support.stack import Api

PHONE = {"width": 360, "height": 740}
LAPTOP = {"width": 1440, "height": 900}
#: The views of each group of the navigation: names of the links, and the views in URLs.
GROUPS = {
    "Subscribers": {
        "Sessions": "subscribers",
        "Traffic": "traffic",
        "History": "history",
        "Failed sign-ons": "failed-sign-ons",
        "Jobs": "jobs",
    },
    "Network": {"Interfaces": "interfaces", "Routes": "routes", "CGNAT": "cgnat"},
    "Configuration": {"Candidate and archive": "configuration", "Users": "users"},
    "Operations": {"Health": "health", "Webhooks": "webhooks", "Audit": "audit"},
}
#: Milliseconds until the screen must show an expected state.
TIMEOUT = 30_000


@contextmanager
def chromium() -> Iterator[Browser]:
    """Run one browser, whose asyncio loop runs until the end of the block."""
    expect.set_options(timeout=TIMEOUT)
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
        page.set_default_timeout(TIMEOUT)
        page.on("console", self._heard)
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("request", lambda request: self.requests.append(request))

    def open(self, view: str = "") -> "Screen":
        """Open the page, signed out."""
        self.page.goto(f"{self.api.url}/{view}")
        return self

    def sign_in(self, role: str = "admin", password: str | None = None) -> "Screen":
        """Sign in as the user of a role, with the right password unless another is given."""
        names = self.api.environment
        form = self.page.locator("#sign-in")
        form.get_by_label("Username").fill(names[f"{role.upper()}_USER"])
        form.get_by_label("Password").fill(password or names[f"{role.upper()}_PASSWORD"])
        form.get_by_role("button", name="Log in").click()
        return self

    def go(self, view: str) -> "Screen":
        """Open another view, by the name of its link, or of its group for the first view of the group."""
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
        """Press a button of the user's menu."""
        self.page.locator("#account").click()
        self.page.locator("#account-menu").get_by_role("button", name=action, exact=True).click()
        return self

    def press(self, name: str) -> "Screen":
        """Click the button with this name."""
        self.page.get_by_role("button", name=name).click()
        return self

    def confirm(self, name: str) -> None:
        """Click a button of the open dialog."""
        self.page.get_by_role("dialog").get_by_role("button", name=name).click()

    def rows(self, table: str = "list") -> Locator:
        """Return the rows of a table; by default, of the list of sessions."""
        return self.page.locator(f"#{table} tbody tr")

    def bars(self, chart: str, direction: str = "up") -> int:
        """Return the number of samples that a chart shows in one direction."""
        return (self.page.locator(f"#{chart} path.{direction}").get_attribute("d") or "").count("M")

    def change_response(self, path: Any, change: Callable[[Any], object]) -> None:
        """Have `change` edit the data of each response at a path, where the lab has no such data."""

        def edit(route: Route) -> None:
            response = route.fetch()
            document = response.json()
            change(document["data"])
            route.fulfill(response=response, json=document)

        self.page.route(path, edit)

    def text(self, id: str) -> str:
        return self.page.locator(f"#{id}").inner_text()

    def number(self, id: str) -> int:
        """Return the text of an element as a number."""
        return int(self.text(id).replace(",", ""))

    def find(self, text: str) -> "Screen":
        """Search for a text."""
        self.go("Subscribers")
        self.page.get_by_label("Find a subscriber").fill(text)
        self.page.get_by_role("button", name="Find").click()
        return self

    def is_live(self) -> None:
        """Wait until the page shows that it is live."""
        expect(self.page.locator("#connection")).to_have_text("Live")

    def since(self) -> dict[str, Any]:
        """Return the sessions started and ended, and the first and last counted event, at one moment."""
        found: dict[str, Any] = self.page.evaluate(
            """() => {
                const number = id => Number(document.getElementById(id).textContent.replaceAll(',', ''));
                const {dataset} = document.getElementById('arrivals-chart');
                return {...dataset, came: number('came'), went: number('went')};
            }"""
        )
        return found

    def _heard(self, message: ConsoleMessage) -> None:
        # chromium reports each failed request itself.
        if message.type in ("error", "warning") and not re.match("Failed to load resource", message.text):
            self.complaints.append(message.text)


@contextmanager
def screen(browser: Browser, api: Api, **more: Any) -> Iterator[Screen]:
    """Open a new screen without stored data. Fails if the browser complained, or if the page sent a
    request to another server."""
    context = browser.new_context(ignore_https_errors=True, **more)
    made = Screen(context.new_page(), api)
    try:
        yield made
    finally:
        context.close()
    assert made.complaints == []
    elsewhere = [asked.url for asked in made.requests if not asked.url.startswith((f"{api.url}/", "data:"))]
    assert elsewhere == []

"""Debian's Chromium, driven by Playwright. What isn't there is installed."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

from playwright.sync_api import Browser, Page, sync_playwright

_WINDOW = {"width": 1280, "height": 1000}


@contextmanager
def chromium() -> Iterator[Browser]:
    if not shutil.which("chromium"):
        install = ["apt-get", "-qq", "install", "--yes", "--no-install-recommends", "chromium"]
        environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        subprocess.run(["apt-get", "-qq", "update"], check=True, env=environment, capture_output=True)
        subprocess.run(install, check=True, env=environment, capture_output=True)
    # Its sandbox doesn't start as root.
    settings = {"executable_path": shutil.which("chromium"), "args": ["--no-sandbox", "--no-proxy-server"]}
    with sync_playwright() as playwright, playwright.chromium.launch(**settings) as browser:
        yield browser


class Watched:
    """A window of a browser of its own; `complaints` are what its console and its policies have said, and
    `requests` the addresses that it has asked."""

    def __init__(self, browser: Browser) -> None:
        # The gateway signs its certificate itself.
        context = browser.new_context(ignore_https_errors=True, viewport=_WINDOW)
        self.page: Page = context.new_page()
        self.complaints: list[str] = []
        self.requests: list[str] = []
        self.page.on("console", lambda said: self.complaints.append(said.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))

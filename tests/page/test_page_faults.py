"""What the live page shows of faults, stale sessions, and sources that do not reply."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from tests.support.browser import PHONE, Screen, screen
from tests.support.faulty_core import FAULTS, faulty_gateway
from tests.support.stack import Api

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def faulty(api: Api, state: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    with faulty_gateway(api, state, tmp_path_factory.mktemp("faulty")) as made:
        yield made


@pytest.fixture
def shown(browser: Browser, faulty: Api) -> Iterator[Screen]:
    with screen(browser, faulty) as opened:
        opened.open().sign_in("operator")
        yield opened


def test_the_overview_names_sources_that_do_not_reply(shown: Screen) -> None:
    row = shown.page.locator("#health li.bad", has_text="Session sources")
    expect(row).to_contain_text("accel-ppp, dnsmasq do not reply")
    expect(row).to_contain_text("3 stale sessions")


def test_the_overview_lists_the_oldest_faults_as_text(shown: Screen) -> None:
    rows = shown.page.locator("#health li.bad")
    expect(rows.filter(has_text="Data plane")).to_contain_text(f"{len(FAULTS)} faults")
    expect(rows).to_contain_text(
        ["Data plane", "host route 100.64.0.1/32", "VLAN trunk0.4000", "IFB ifb-ppp10"]
    )
    expect(rows.filter(has_text="host route")).to_contain_text("Session 1: Network is unreachable")
    expect(rows.filter(has_text="VLAN trunk")).to_contain_text("<b>File exists</b>")
    expect(rows).to_have_count(7)


def test_the_record_of_a_session_shows_its_faults_and_that_it_is_stale(shown: Screen) -> None:
    shown.find("1")
    expect(shown.page.locator("#record-state")).to_have_text("Stale: the source does not reply")
    problems = shown.page.locator("#record-fields .problem")
    expect(problems).to_have_count(2)
    expect(problems.filter(has_text="shaper ppp0, for ")).to_contain_text(": No space left on device")
    shown.find("20")
    expect(shown.page.locator("#record-state")).to_have_text("Active")
    expect(problems).to_have_count(0)


def test_faults_fit_on_a_phone(browser: Browser, faulty: Api) -> None:
    with screen(browser, faulty, viewport=PHONE) as shown:
        shown.open().sign_in("operator")
        expect(shown.page.locator("#health li.bad")).to_have_count(7)
        width = shown.page.evaluate("document.documentElement.scrollWidth")
        assert width <= PHONE["width"]


def test_a_gateway_without_faults_shows_none(browser: Browser, api: Api) -> None:
    with screen(browser, api) as shown:
        shown.open().sign_in("operator")
        rows = shown.page.locator("#health li.good")
        expect(rows.filter(has_text="Session sources")).to_contain_text("all reply")
        expect(rows.filter(has_text="Data plane")).to_contain_text("no faults")
        expect(shown.page.locator("#health li.bad")).to_have_count(0)

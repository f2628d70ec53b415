"""What the live page shows of faults, stale sessions, and sources that do not reply."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from tests.support.browser import PHONE, Screen, screen
from tests.support.running_gateway import FAULTS, faulty_gateway
from tests.support.stack import Api

#: How the dependencies of the faulty core look.
LEVELS = {"accel-ppp": "bad", "dnsmasq": "idle", "radius": "idle", "frr": "good", "clock": "none"}


@pytest.fixture(scope="module")
def faulty(api: Api, state: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    with faulty_gateway(api, state, tmp_path_factory.mktemp("faulty")) as made:
        yield made


@pytest.fixture
def shown(browser: Browser, faulty: Api) -> Iterator[Screen]:
    with screen(browser, faulty) as opened:
        yield opened.open().sign_in("operator")


def test_the_overview_lists_dependencies_and_the_oldest_faults_as_text(shown: Screen) -> None:
    states = shown.page.locator("#overview-health li")
    bad = shown.page.locator("#overview-health li.bad")
    for name, level in LEVELS.items():
        row = states.filter(has=shown.page.get_by_text(name, exact=True))
        expect(row).to_have_class(f"state {level}")
    expect(states.filter(has_text="Stale sessions")).to_contain_text("3")
    expect(bad.filter(has_text="Faults")).to_contain_text(str(len(FAULTS)))
    # accel-ppp, the number of faults, and the oldest five.
    expect(bad).to_have_count(7)
    expect(bad.nth(2)).to_contain_text("host route 100.64.0.1/32")
    expect(bad.nth(2)).to_contain_text("Session 1: Network is unreachable")
    expect(bad.nth(3)).to_contain_text("<b>File exists</b>")
    shown.page.set_viewport_size(PHONE)
    assert shown.page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]


def test_an_alarm_leads_from_every_view_to_all_problems(shown: Screen) -> None:
    dependencies = shown.api.get("/system/health/detail")["dependencies"]
    ill = sum(dependency["state"] in ("degraded", "failed") for dependency in dependencies)
    alarm = shown.page.locator("#alarm")
    shown.go("Jobs")
    expect(alarm).to_have_text(f"{ill + len(FAULTS)} problems")
    expect(alarm).to_have_attribute("title", re.compile("accel-ppp failed, radius degraded.* 13 faults"))
    alarm.click()
    names = [dependency["name"] for dependency in dependencies]
    what = shown.page.locator("#dependency-states .what")
    expect(what).to_have_text([*names, "Stale sessions", "Faults"])
    expect(shown.rows("fault-list")).to_have_count(len(FAULTS))
    shown.page.get_by_label("Kind").select_option("vlan")
    expect(shown.rows("fault-list")).to_have_count(1)
    expect(shown.rows("fault-list")).to_contain_text("<b>File exists</b>")


def test_the_record_of_a_session_shows_its_faults_and_that_it_is_stale(shown: Screen) -> None:
    shown.find("1")
    expect(shown.page.locator("#record-state")).to_have_text("Stale: the source does not reply")
    problems = shown.page.locator("#record-fields .problem")
    expect(problems).to_have_count(2)
    expect(problems.filter(has_text="shaper ppp0, for ")).to_contain_text(": No space left on device")
    shown.find("20")
    expect(shown.page.locator("#record-state")).to_have_text("Active")
    expect(problems).to_have_count(0)

"""What the live page shows of faults, stale sessions, and sources that do not reply."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from tests.support.browser import PHONE, Screen, screen
from tests.support.faulty_core import FAULTS, faulty_gateway
from tests.support.stack import Api, running_stack

pytestmark = pytest.mark.slow

#: How the dependencies of the faulty core look.
LEVELS = {"accel-ppp": "bad", "dnsmasq": "idle", "radius": "idle", "frr": "good", "clock": "none"}


@pytest.fixture(scope="module")
def faulty(api: Api, state: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    with faulty_gateway(api, state, tmp_path_factory.mktemp("faulty")) as made:
        yield made


@pytest.fixture
def shown(browser: Browser, faulty: Api) -> Iterator[Screen]:
    with screen(browser, faulty) as opened:
        opened.open().sign_in("operator")
        yield opened


def test_the_overview_lists_the_dependencies_as_the_api_tells_them(shown: Screen) -> None:
    rows = shown.page.locator("#overview-health li")
    expect(rows.filter(has_text="accel-ppp")).to_contain_text("accel-ppp has not replied since")
    expect(rows.filter(has_text="Stale sessions")).to_contain_text("3")
    for name, level in LEVELS.items():
        row = rows.filter(has=shown.page.get_by_text(name, exact=True))
        expect(row).to_have_class(f"state {level}")
    # The message of what needs nobody is in the view Health.
    expect(rows.get_by_text("2 requests timed out")).to_be_visible()
    expect(rows.get_by_text("All BGP sessions are established")).to_be_hidden()


def test_the_overview_lists_the_oldest_faults_as_text(shown: Screen) -> None:
    rows = shown.page.locator("#overview-health li.bad")
    expect(rows.filter(has_text="Faults")).to_contain_text(str(len(FAULTS)))
    expect(rows).to_contain_text(
        ["accel-ppp", "Faults", "host route 100.64.0.1/32", "VLAN trunk0.4000", "IFB ifb-ppp10"]
    )
    expect(rows.filter(has_text="host route")).to_contain_text("Session 1: Network is unreachable")
    expect(rows.filter(has_text="VLAN trunk")).to_contain_text("<b>File exists</b>")
    expect(rows).to_have_count(7)


def test_health_and_the_overview_have_one_list(shown: Screen) -> None:
    def rows(list_: str) -> list[str]:
        states = shown.page.locator(f"#{list_} li")
        expect(states.first).to_be_visible()
        return states.locator(".what, .how").all_inner_texts()

    overview = rows("overview-health")
    shown.go("Health")
    health = rows("dependency-states")
    # The faults have their own table there.
    assert overview[: len(health)] == health
    names = [one["name"] for one in shown.api.get("/system/health/detail")["dependencies"]]
    assert health[: 2 * len(names) : 2] == names
    assert health[2 * len(names) :: 2] == ["Stale sessions", "Faults"]


def test_an_alarm_in_every_view_counts_the_faults_and_what_is_degraded(shown: Screen) -> None:
    detail = shown.api.get("/system/health/detail")["dependencies"]
    ill = sum(one["state"] in ("degraded", "failed") for one in detail)
    assert ill >= 2
    alarm = shown.page.locator("#alarm")
    for view in ("Overview", "Jobs", "Routes", "Users", "Webhooks"):
        shown.go(view)
        expect(alarm).to_have_text(f"{ill + len(FAULTS)} problems")
    expect(alarm).to_have_attribute("title", re.compile("accel-ppp failed, radius degraded.* 13 faults"))
    alarm.click()
    expect(shown.page.locator("#dependency-states")).to_be_visible()


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
        expect(shown.page.locator("#overview-health li.bad")).to_have_count(7)
        width = shown.page.evaluate("document.documentElement.scrollWidth")
        assert width <= PHONE["width"]


def test_a_gateway_without_faults_shows_none(browser: Browser, api: Api) -> None:
    with screen(browser, api) as shown:
        shown.open().sign_in("operator")
        rows = shown.page.locator("#overview-health li.good")
        expect(rows.filter(has_text="Faults")).to_contain_text("none")
        expect(shown.page.locator("#overview-health li.bad")).to_have_count(0)
        expect(shown.page.locator("#alarm")).to_be_hidden()


def test_a_webhook_that_gets_nothing_is_no_more_green(browser: Browser, tmp_path: Path) -> None:
    with running_stack(tmp_path, sessions=20) as (api, _), screen(browser, api) as shown:
        shown.open().sign_in()
        hub = shown.page.locator("#overview-health li", has=shown.page.get_by_text("hub", exact=True))
        expect(hub).to_have_class("state good")
        hook = {"url": "http://127.0.0.1:9/", "events": ["session.down"]}
        assert api.send("POST", "/webhooks", json=hook).ok
        for id in range(1, 11):
            assert api.send("DELETE", f"/subscribers/{id}").ok
        expect(hub).to_have_class("state idle")
        expect(hub).to_contain_text("degraded")
        expect(hub).to_contain_text("Paused after failures: 1 of 1 webhooks")
        expect(shown.page.locator("#alarm")).to_have_text("1 problem")

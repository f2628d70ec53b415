"""The charts of the live page: what they show of before the sign-in, and where a user points."""

import itertools
import re
import time
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect

from tests.support.browser import Screen, screen
from tests.support.stack import Api, running_stack, wait_for

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def lively(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    """A gateway where some come and go each second."""
    with running_stack(tmp_path_factory.mktemp("lively"), sessions=60, arrivals=4) as (api, _):
        yield api


@pytest.fixture
def shown(browser: Browser, lively: Api) -> Iterator[Screen]:
    with screen(browser, lively) as opened:
        yield opened


def bars(shown: Screen, chart: str, path: str = "up") -> int:
    drawn = shown.page.locator(f"#{chart} path.{path}").get_attribute("d") or ""
    return drawn.count("M")


def test_events_of_before_the_sign_in_are_in_the_chart(shown: Screen) -> None:
    shown.open().sign_in()
    shown.is_live()
    wait_for("twelve seconds of events", lambda: bars(shown, "arrivals-chart") >= 12)
    shown.page.reload()
    shown.is_live()
    wait_for("the seconds before the reload", lambda: bars(shown, "arrivals-chart") >= 12)
    # So many do not come in the seconds since the reload.
    assert shown.number("came") < 40
    assert shown.text("gaps") == ""


def test_traffic_of_before_the_sign_in_is_in_the_charts(shown: Screen) -> None:
    wait_for("a sample", lambda: shown.api.get("/interfaces/traffic")["samples"])
    # Without samples of the page's own.
    shown.page.route(re.compile(r"/interfaces\?"), lambda route: route.abort())
    shown.open().sign_in()
    wait_for("the minutes before", lambda: bars(shown, "traffic-chart") >= 5)
    wait_for("the day before", lambda: bars(shown, "day-chart") >= 1)


def test_a_chart_has_a_time_axis_that_ends_now(shown: Screen) -> None:
    shown.open().sign_in()
    shown.is_live()
    panel = shown.page.locator(".panel", has=shown.page.locator("#arrivals-chart"))
    ticks = panel.locator(".ticks time")
    expect(ticks).to_have_count(3)
    seconds = [
        int(hour) * 3600 + int(minute) * 60 + int(second)
        for hour, minute, second in (re.findall(r"\d+", text)[:3] for text in ticks.all_inner_texts())
    ]
    assert [(later - sooner) % 86400 for sooner, later in itertools.pairwise(seconds)] == [60, 60]
    assert all(text.endswith(" UTC") for text in ticks.all_inner_texts())


def test_a_pointer_shows_the_time_and_the_values_there(shown: Screen) -> None:
    shown.open().sign_in()
    wait_for("some samples", lambda: bars(shown, "traffic-chart") >= 2)
    chart = shown.page.locator("#traffic-chart")
    box = chart.bounding_box()
    assert box is not None
    shown.page.mouse.move(box["x"] + box["width"] - 6, box["y"] + 20)
    tip = chart.locator(".tip")
    expect(tip).to_have_text(re.compile(r"^\d\d:\d\d:\d\d UTC: \S+\s[kMG]bit/s down, \S+\s[kMG]bit/s up$"))
    shown.page.mouse.move(box["x"] + 6, box["y"] - 40)
    expect(tip).to_be_hidden()


def test_arrow_keys_read_the_values_of_a_chart(shown: Screen) -> None:
    shown.open().sign_in()
    wait_for("some samples", lambda: bars(shown, "traffic-chart") >= 2)
    chart = shown.page.locator("#traffic-chart")
    said = shown.page.locator(".panel", has=chart).locator("[aria-live]")
    chart.focus()
    shown.page.keyboard.press("ArrowLeft")
    expect(said).to_have_text(re.compile(r"^\d\d:\d\d:\d\d UTC: \S+\s[kMG]bit/s down, \S+\s[kMG]bit/s up$"))
    newest = said.inner_text()
    expect(chart.locator(".tip")).to_have_text(newest)
    shown.page.keyboard.press("ArrowLeft")
    expect(said).not_to_have_text(newest)
    assert said.inner_text() < newest
    shown.page.keyboard.press("ArrowRight")
    expect(said).to_have_text(newest)
    shown.page.keyboard.press("Tab")
    expect(chart.locator(".tip")).to_be_hidden()


def test_the_axis_of_a_day_has_its_dates(shown: Screen) -> None:
    wait_for("a sample", lambda: shown.api.get("/interfaces/traffic")["samples"])
    shown.open().sign_in()
    panel = shown.page.locator(".panel", has=shown.page.locator("#day-chart"))
    expect(panel.locator(".ticks time")).to_have_count(3)
    first, _, last = panel.locator(".ticks time").all_inner_texts()
    assert re.fullmatch(r"\d+ [A-Z][a-z]+, \d\d:\d\d UTC", first)
    # A day before: the same time of another day.
    assert first.split(", ")[0] != last.split(", ")[0]
    wait_for("the day before", lambda: bars(shown, "day-chart") >= 1)
    chart = shown.page.locator("#day-chart")
    chart.focus()
    shown.page.keyboard.press("ArrowLeft")
    expect(chart.locator(".tip")).to_have_text(re.compile(r"^\d+ [A-Z][a-z]+, \d\d:\d\d UTC: "))


def test_each_direction_of_a_chart_has_the_height_that_it_needs(shown: Screen) -> None:
    samples = [{"at": int(time.time()) - 60 * n, "down_bps": 9_000_000, "up_bps": 900_000} for n in (3, 2, 1)]
    shown.page.route(
        "**/interfaces/traffic?*",
        lambda route: route.fulfill(json={"status": "ok", "data": {"samples": samples}}),
    )
    shown.open().sign_in()
    wait_for("the day before", lambda: bars(shown, "day-chart") >= 1)
    chart = shown.page.locator("#day-chart")
    # Of 200: a direction with a tenth of the traffic has a tenth of the height.
    axis = float(re.split("[MH ]", chart.locator(".axis").get_attribute("d") or "")[2])
    assert axis > 0.85 * 200
    expect(chart.locator(".top")).to_have_text("10 Mbit/s")
    expect(chart.locator(".bottom")).to_be_hidden()


def test_the_figures_of_the_traffic_come_from_the_history_at_first(shown: Screen) -> None:
    kept = wait_for("a sample", lambda: shown.api.get("/interfaces/traffic")["samples"])
    assert kept[-1]["down_bps"] > 0
    # The page's own figures need two readings.
    shown.page.route(re.compile(r"/interfaces\?"), lambda route: route.abort())
    shown.open().sign_in()
    expect(shown.page.locator("#downstream")).to_have_text(re.compile("bit/s"))
    expect(shown.page.locator("#upstream")).to_have_text(re.compile("bit/s"))


def test_the_record_of_a_session_has_a_chart_of_its_traffic(browser: Browser, api: Api) -> None:
    with screen(browser, api) as shown:
        shown.open("#subscribers?open=20").sign_in()
        wait_for("a sample", lambda: bars(shown, "record-chart") >= 1)
        # A busy browser could draw its first sample before it is asked.
        shown.page.route("**/subscribers/21/traffic", lambda route: None)
        shown.page.goto(f"{api.url}/#subscribers?open=21")
        expect(shown.page.locator("#record-fields")).to_contain_text("measuring")
        assert bars(shown, "record-chart") == 0

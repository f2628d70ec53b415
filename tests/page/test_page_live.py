"""The live page while subscribers come and go, and while what it depends on breaks."""

import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import count, pairwise
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, expect

from tests.support.browser import Screen, screen
from tests.support.sse import Stream, master_of, wait_for_workers, workers_of
from tests.support.stack import Api, core_of, running_stack, wait_for

READING = re.compile(r"^\d\d:\d\d:\d\d UTC: \S+\s[kMG]bit/s down, \S+\s[kMG]bit/s up$")
Process = subprocess.Popen[bytes]
#: Notes in `window.words` what the rate of the traffic says.
RECORD = """() => {
    const place = document.getElementById('downstream');
    window.words = [place.textContent];
    new MutationObserver(() => words.push(place.textContent)).observe(place, {childList: true});
}"""
#: A headless browser shows all of its tabs: this tells the page that it is out of sight, or in sight again.
HIDE = """hidden => {
    Object.defineProperty(document, 'hidden', {value: hidden, configurable: true});
    document.dispatchEvent(new Event('visibilitychange'));
}"""


@pytest.fixture(scope="module")
def lively(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Api, Process]]:
    """A gateway where sessions start and end each second."""
    with running_stack(tmp_path_factory.mktemp("lively"), sessions=100, arrivals=5) as started:
        yield started


@pytest.fixture
def process(lively: tuple[Api, Process]) -> Process:
    return lively[1]


@pytest.fixture
def shown(browser: Browser, lively: tuple[Api, Process]) -> Iterator[Screen]:
    with screen(browser, lively[0]) as opened:
        opened.open().sign_in().is_live()
        yield opened


@contextmanager
def stopped(pid: int) -> Iterator[None]:
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def sequence(id: str) -> int:
    return int(id.rpartition("-")[2])


def wait_for_events(shown: Screen, number: int) -> dict[str, Any]:
    """Waits until the page has counted more events, and returns what it has counted since its first."""
    expect(shown.page.locator("#arrivals-chart[data-until][data-since]")).to_be_attached()
    before = shown.since()

    def read() -> dict[str, Any] | None:
        seen = shown.since()
        return seen if sequence(seen["until"]) - sequence(before["until"]) >= number else None

    found: dict[str, Any] = wait_for(f"{number} events on the page", read)
    return found


def assert_counted(api: Api, seen: dict[str, Any]) -> None:
    """Fails unless the page has counted each event that another client of the stream sees, and each once."""
    headers = {"Last-Event-ID": seen["since"]}
    with Stream(api.url, api.environment["GATEWAY_CA"], api.token("operator"), headers=headers) as stream:
        names = [event.name for event in stream.until(lambda message: message.id == seen["until"])]
    assert (seen["came"], seen["went"]) == (names.count("session_up"), names.count("session_down"))


def test_the_overview_is_that_of_the_gateway(shown: Screen) -> None:
    def is_same() -> bool:
        counts = shown.api.get("/subscribers/summary")
        return all(shown.number(name) == counts[name] for name in ("total", "pppoe", "dhcp"))

    expect(shown.page.locator("#total")).not_to_have_text("\N{EN DASH}")
    wait_for("the same counts", is_same)
    expect(shown.page.locator("#vlans li").first).to_be_visible()
    busiest = [int(text) for text in shown.page.locator("#vlans b").all_inner_texts()]
    vlans = shown.api.get("/interfaces/vlans")["vlans"]
    assert len(busiest) == min(10, len(vlans))
    assert busiest == sorted(busiest, reverse=True)
    peers = shown.api.get("/routing/bgp/summary")["ipv4Unicast"]["peers"]
    neighbours = shown.page.locator("#neighbours li")
    expect(neighbours).to_have_count(len(peers))
    expect(neighbours).to_contain_text([f"{address}Established" for address in peers])
    expect(shown.page.locator("#bgp-up")).to_have_text(f"{len(peers)} of {len(peers)}")


def test_the_overview_of_a_lab_says_that_its_subscribers_are_simulated_and_where_to_begin(
    shown: Screen,
) -> None:
    lab = shown.page.locator("#lab")
    expect(lab).to_contain_text("the subscribers, their traffic and the BGP neighbours are simulated")
    lab.get_by_role("link", name="Find a subscriber").click()
    expect(shown.page.get_by_label("Find a subscriber")).to_be_visible()


def test_a_gateway_with_real_subscribers_does_not_say_that_they_are_simulated(shown: Screen) -> None:
    def leave_out_the_lab(health: Any) -> None:
        health["dependencies"] = [one for one in health["dependencies"] if one["name"] != "lab"]

    shown.change_response("**/health/detail", leave_out_the_lab)
    shown.page.reload()
    expect(shown.page.locator("#overview-health")).to_contain_text("core")
    expect(shown.page.locator("#lab")).to_be_hidden()


def test_traffic_is_what_the_trunks_carry(shown: Screen) -> None:
    calls = count(1)

    def carry(data: Any) -> None:
        number = next(calls)
        for trunk in (one for one in data["interfaces"] if one["type"] == "trunk"):
            trunk["stats"] |= {"rx_bytes": number * 1_000_000, "tx_bytes": number * 8_000_000}

    def is_shown() -> bool:
        down, up = (shown.text(name).split() for name in ("downstream", "upstream"))
        same_unit = (down[1], up[1]) == ("Mbit/s", "Mbit/s")
        return same_unit and float(down[0]) / float(up[0]) == pytest.approx(8, rel=0.02)

    expect(shown.page.locator("#trunks")).to_contain_text("trunk0: ")
    shown.change_response("**/interfaces?*", carry)
    wait_for("eight times as much traffic down as up", is_shown)


def test_the_feed_shows_who_arrives_and_pauses(shown: Screen) -> None:
    feed = shown.page.locator("#feed")
    expect(feed.locator("li").nth(4)).to_be_visible()
    wait_for_events(shown, 30)
    expect(feed.locator("li")).to_have_count(10)
    shown.press("Pause")
    before = feed.inner_text()
    wait_for_events(shown, 5)
    assert feed.inner_text() == before
    shown.press("Pause")
    wait_for("the feed to go on", lambda: feed.inner_text() != before)
    first = feed.locator(".up a").first
    expect(first).to_be_visible()
    shown.press("Pause")
    name = first.inner_text()
    first.click()
    # The session may have ended by the click.
    record = shown.page.get_by_role("heading", name=name)
    expect(record.or_(shown.page.get_by_text("no matches")).first).to_be_visible()


def test_events_of_before_the_sign_in_are_in_the_chart(shown: Screen) -> None:
    ticks = shown.page.locator(".panel", has=shown.page.locator("#arrivals-chart")).locator(".ticks time")
    expect(ticks).to_have_count(3)
    seconds = [
        int(hour) * 3600 + int(minute) * 60 + int(second)
        for hour, minute, second in (re.findall(r"\d+", text)[:3] for text in ticks.all_inner_texts())
    ]
    assert [(later - sooner) % 86400 for sooner, later in pairwise(seconds)] == [60, 60]
    wait_for("twenty seconds of events", lambda: shown.bars("arrivals-chart") >= 20)
    shown.page.reload()
    shown.is_live()
    wait_for("the seconds before the reload", lambda: shown.bars("arrivals-chart") >= 20)
    # Five sessions start each second: the page itself has counted for less than 20.
    assert shown.number("came") < 90
    assert shown.text("gaps") == ""


def test_traffic_of_before_the_sign_in_is_in_charts_and_figures(shown: Screen) -> None:
    wait_for("a sample", lambda: shown.api.get("/interfaces/traffic")["samples"])
    # Without samples of the page's own.
    shown.page.route(re.compile(r"/interfaces\?"), lambda route: route.abort())
    shown.page.reload()
    wait_for("the minutes before", lambda: shown.bars("traffic-chart") >= 5)
    for name in ("downstream", "upstream"):
        expect(shown.page.locator(f"#{name}")).to_have_text(re.compile("bit/s"))
    samples = [{"at": int(time.time()) - 60 * n, "down_bps": 9_000_000, "up_bps": 900_000} for n in (3, 2, 1)]
    shown.change_response("**/interfaces/traffic?*", lambda data: data.update(samples=samples))
    shown.page.reload()
    wait_for("the day before", lambda: shown.bars("day-chart") >= 1)
    chart = shown.page.locator("#day-chart")
    first, _, last = shown.page.locator(".panel", has=chart).locator(".ticks time").all_inner_texts()
    # A day before: the same time of another day.
    assert (first != last, first[-9:]) == (True, last[-9:])
    # A direction with a tenth of the traffic has a tenth of the height, which is 200.
    axis = float(re.split("[MH ]", chart.locator(".axis").get_attribute("d") or "")[2])
    assert axis > 0.85 * 200
    expect(chart.locator(".top")).to_have_text("10 Mbit/s")
    expect(chart.locator(".bottom")).to_be_hidden()


def test_a_pointer_and_arrow_keys_read_the_values_of_a_chart(shown: Screen) -> None:
    wait_for("some samples", lambda: shown.bars("traffic-chart") >= 2)
    chart = shown.page.locator("#traffic-chart")
    tip, said = chart.locator(".tip"), shown.page.locator(".panel", has=chart).locator("[aria-live]")
    # The sentence of a lab, once health has come, moves the chart down and away from a resting pointer.
    expect(shown.page.locator("#lab")).to_be_visible()
    box = chart.bounding_box()
    assert box is not None
    chart.hover(position={"x": box["width"] - 6, "y": 20})
    expect(tip).to_have_text(READING)
    shown.page.mouse.move(0, 0)
    expect(tip).to_be_hidden()
    chart.focus()
    shown.page.keyboard.press("ArrowLeft")
    expect(said).to_have_text(READING)
    newest = said.inner_text()
    expect(tip).to_have_text(newest)
    shown.page.keyboard.press("ArrowLeft")
    expect(said).not_to_have_text(newest)
    assert said.inner_text() < newest
    shown.page.keyboard.press("ArrowRight")
    expect(said).to_have_text(newest)
    shown.page.keyboard.press("Tab")
    expect(tip).to_be_hidden()


def test_rows_follow_events_unless_a_user_points_at_them(shown: Screen) -> None:
    shown.page.goto(f"{shown.api.url}/#subscribers?sort=-id")
    first = shown.rows().first.locator("td").first
    expect(first).not_to_be_empty()
    expect(first).not_to_have_text(first.inner_text())
    # The page's clock stands still: however busy the machine is, the pointer has just moved.
    shown.page.evaluate("() => { const now = performance.now(); performance.now = () => now; }")
    shown.rows().nth(3).hover()
    # A request that was sent before may still change the rows.
    shown.page.wait_for_timeout(3000)
    before = first.inner_text()
    shown.page.wait_for_timeout(3500)
    expect(first).to_have_text(before)
    shown.page.mouse.move(0, 0)
    shown.page.evaluate("() => { delete performance.now; }")
    expect(first).not_to_have_text(before)


def test_killed_workers_cost_no_event(shown: Screen, process: Process) -> None:
    for _ in range(2):
        first = wait_for_events(shown, 10)
        workers = workers_of(process)
        for worker in workers:
            os.kill(worker, signal.SIGKILL)
        wait_for_workers(process, len(workers), set(workers))
    seen = wait_for_events(shown, 30)
    assert seen["since"] == first["since"]
    assert seen["came"] > 0 < seen["went"]
    assert_counted(shown.api, seen)
    shown.is_live()
    assert shown.text("gaps") == ""


def test_nothing_is_asked_for_while_nobody_looks_and_no_event_is_missed(shown: Screen) -> None:
    wait_for_events(shown, 3)
    shown.page.evaluate(HIDE, True)
    # Responses to former requests arrive.
    shown.page.wait_for_timeout(1000)
    sent, until = len(shown.requests), shown.since()["until"]
    # Longer than the pause between any two requests of the overview.
    shown.page.wait_for_timeout(4000)
    assert len(shown.requests) == sent
    assert shown.since()["until"] == until
    shown.page.evaluate(HIDE, False)
    assert_counted(shown.api, wait_for_events(shown, 30))
    assert shown.text("gaps") == ""


def test_a_core_that_hangs_is_said_where_it_is_missed_and_the_page_heals(
    shown: Screen, process: Process
) -> None:
    wait_for_events(shown, 10)
    problem, bad = shown.page.locator("#traffic-problem"), shown.page.locator("#overview-health .bad")
    with stopped(core_of(process)):
        expect(shown.page.locator("#connection")).to_have_text("The core daemon does not reply: retrying")
        expect(problem).to_have_text("Core daemon unreachable")
        expect(bad.filter(has_text="core")).to_contain_text("The core daemon does not reply")
        expect(shown.page.locator("#alarm")).to_have_text("1 problem")
        time.sleep(10)
    shown.is_live()
    expect(problem).to_be_hidden()
    expect(bad).to_have_count(0)
    expect(shown.page.locator("#overview-health .good", has_text="Faults")).to_contain_text("none")
    expect(shown.page.locator("#alarm")).to_be_hidden()
    # The events of meanwhile arrive at once. All in one second, they would be 50 of each kind.
    assert_counted(shown.api, wait_for_events(shown, 80))
    assert int(shown.page.locator("#arrivals-chart span").first.inner_text().removesuffix("/s")) <= 30


def test_a_restarted_core_is_a_gap_after_which_the_truth_is_read_again(
    browser: Browser, tmp_path: Path
) -> None:
    with running_stack(tmp_path, sessions=50) as (api, process), screen(browser, api) as shown:
        shown.open().sign_in().is_live()
        wait_for("its place in the stream", lambda: "since" in shown.since())
        with stopped(master_of(process)):
            for worker in workers_of(process):
                os.kill(worker, signal.SIGKILL)
            # A worker that is not quite dead would take the request along.
            wait_for("their end", lambda: not workers_of(process))
        wait_for("a worker", lambda: api.send("DELETE", "/subscribers/3").ok)
        # Not even the first event is lost.
        expect(shown.page.locator("#went")).to_have_text("1")
        expect(shown.page.locator("#total")).to_have_text("49")
        assert shown.text("gaps") == ""
        wait_for("some samples", lambda: shown.bars("traffic-chart", "down") >= 3)
        shown.page.evaluate(RECORD)
        known = shown.bars("traffic-chart", "down")
        os.kill(core_of(process), signal.SIGKILL)
        expect(shown.page.locator("#gaps")).to_contain_text("Events were lost 1 times")
        expect(shown.page.locator("#total")).to_have_text("50")
        shown.is_live()
        ids = count(4)

        def is_counted() -> bool:
            # Events before the page follows the new core are part of the gap.
            api.send("DELETE", f"/subscribers/{next(ids)}")
            shown.page.wait_for_timeout(1000)
            return shown.number("went") >= 2

        wait_for("an end in the new core", is_counted)
        wait_for("samples of the new core", lambda: shown.bars("traffic-chart", "down") >= known + 4)
        # The counters of the new core begin at 0, and are no rate.
        numbers = shown.page.evaluate("words")
        assert not any(number.startswith("0") for number in numbers), numbers


def test_a_gateway_that_is_gone_is_followed_again_when_it_is_back(browser: Browser, tmp_path: Path) -> None:
    with ExitStack() as first:
        api, _ = first.enter_context(running_stack(tmp_path, sessions=50))
        with screen(browser, api) as shown:
            shown.open().sign_in().is_live()
            first.close()
            expect(shown.page.locator("#connection")).to_have_text("Connection lost: retrying")
            with running_stack(tmp_path, sessions=60, PORT=api.url.rpartition(":")[2]):
                shown.is_live()
                expect(shown.page.locator("#total")).to_have_text("60")

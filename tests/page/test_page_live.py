"""The live page while subscribers come and go, and while the gateway or a part of it breaks."""

import itertools
import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Response, expect

from tests.support.browser import LAPTOP, PHONE, Screen, screen
from tests.support.faulty_core import FAULTS, faulty_gateway
from tests.support.sse import Stream, wait_for_workers, workers_of
from tests.support.stack import Api, core_of, running_stack, wait_for

Process = subprocess.Popen[bytes]
#: How the dependencies of the faulty core look.
LEVELS = {"accel-ppp": "bad", "dnsmasq": "idle", "radius": "idle", "frr": "good", "clock": "none"}


@pytest.fixture(scope="module")
def lively(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Api, Process]]:
    """A gateway where some come and go each second."""
    with running_stack(tmp_path_factory.mktemp("lively"), sessions=100, arrivals=5) as started:
        yield started


@pytest.fixture
def shown(browser: Browser, lively: tuple[Api, Process]) -> Iterator[Screen]:
    with screen(browser, lively[0]) as opened:
        opened.open().sign_in()
        opened.is_live()
        yield opened


def happened(api: Api, after: str, until: str) -> dict[str, int]:
    """How many came and went, as another client of the stream sees it."""
    with Stream(
        api.url, api.environment["GATEWAY_CA"], api.token("operator"), headers={"Last-Event-ID": after}
    ) as stream:
        events = stream.until(lambda message: message.id == until)
    names = [message.name for message in events]
    return {"came": names.count("session_up"), "went": names.count("session_down")}


def sequence(id: str) -> int:
    return int(id.rpartition("-")[2])


def behind(shown: Screen, events: int) -> dict[str, Any]:
    """What the page has counted, when it is so many events after its first."""

    def enough() -> dict[str, Any] | None:
        seen = shown.since()
        is_there = "until" in seen and sequence(seen["until"]) - sequence(seen["since"]) >= events
        return seen if is_there else None

    found: dict[str, Any] = wait_for(f"{events} events on the page", enough)
    return found


def assert_counted(api: Api, seen: dict[str, Any]) -> None:
    """Every event of the time, and each once."""
    assert {name: seen[name] for name in ("came", "went")} == happened(api, seen["since"], seen["until"])


@contextmanager
def stopped(pid: int) -> Iterator[None]:
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def bars(shown: Screen, chart: str, path: str = "up") -> int:
    drawn = shown.page.locator(f"#{chart} path.{path}").get_attribute("d") or ""
    return drawn.count("M")


# Events


def test_the_page_is_not_live_before_it_knows_its_place_in_the_stream(
    browser: Browser, lively: tuple[Api, Process]
) -> None:
    with screen(browser, lively[0]) as shown:
        # A stream that ends before its first event.
        shown.page.route(
            "**/events/subscribers",
            lambda route: route.fulfill(content_type="text/event-stream", body=":\n"),
        )
        shown.open()
        shown.page.evaluate(
            """() => { window.words = [];
                const place = document.getElementById('connection');
                const write = () => words.push(place.textContent);
                new MutationObserver(write).observe(place, {childList: true}); }"""
        )
        shown.sign_in()
        expect(shown.page.locator("#connection")).to_contain_text("Connection lost")
        assert "Live" not in shown.page.evaluate("words")
        shown.page.unroute("**/events/subscribers")
        shown.is_live()


def test_the_overview_has_the_counts_vlans_and_neighbours_of_the_gateway(shown: Screen) -> None:
    expect(shown.page.locator("#total")).not_to_have_text("\N{EN DASH}")

    def same() -> bool:
        counts = shown.api.get("/subscribers/summary")
        return all(shown.number(name) == counts[name] for name in ("total", "pppoe", "dhcp"))

    wait_for("the same counts", same)
    expect(shown.page.locator("#vlans li").first).to_be_visible()
    counts = [int(text) for text in shown.page.locator("#vlans b").all_inner_texts()]
    vlans = shown.api.get("/interfaces/vlans")["vlans"]
    assert len(counts) == min(10, len(vlans))
    assert counts == sorted(counts, reverse=True)
    # Some came and went meanwhile.
    assert abs(counts[0] - max(vlan["session_count"] for vlan in vlans)) <= 3
    peers = shown.api.get("/routing/bgp/summary")["ipv4Unicast"]["peers"]
    expect(shown.page.locator("#neighbours li")).to_contain_text(
        [f"{address}Established" for address in peers]
    )
    expect(shown.page.locator("#bgp-up")).to_have_text(f"{len(peers)} of {len(peers)}")


def test_a_session_that_arrives_is_in_the_feed_until_somebody_pauses_it(shown: Screen) -> None:
    feed, pause = shown.page.locator("#feed"), shown.page.get_by_role("button", name="Pause")
    expect(feed.locator("li").nth(4)).to_be_visible()
    pause.click()
    before, came = feed.inner_text(), shown.number("came")
    wait_for("more events", lambda: shown.number("came") > came + 3)
    assert feed.inner_text() == before
    pause.click()
    wait_for("the feed to go on", lambda: feed.inner_text() != before)
    pause.click()
    arrived = feed.locator(".up a").first
    name = arrived.inner_text()
    arrived.click()
    record = shown.page.get_by_role("heading", name=name)
    # It may have ended meanwhile.
    expect(record.or_(shown.page.get_by_text("no matches"))).to_be_visible()
    assert sum(asked.is_navigation_request() for asked in shown.requests) == 1


def test_rows_follow_events_unless_somebody_points_at_them(shown: Screen) -> None:
    shown.page.goto(f"{shown.api.url}/#subscribers?sort=-id")
    rows = shown.page.locator("#list tbody tr")
    first = rows.first.locator("td").first
    expect(first).not_to_be_empty()
    before = first.inner_text()
    expect(first).not_to_have_text(before)
    rows.nth(3).hover()
    # A read that has begun may still end.
    shown.page.wait_for_timeout(1000)
    before = first.inner_text()
    shown.page.wait_for_timeout(3500)
    expect(first).to_have_text(before)
    shown.page.mouse.move(0, 0)
    expect(first).not_to_have_text(before)


def test_killed_workers_cost_no_event_and_none_is_counted_twice(
    shown: Screen, lively: tuple[Api, Process]
) -> None:
    api, process = lively
    first = behind(shown, 10)
    assert_counted(api, first)
    workers = workers_of(process)
    for worker in workers:
        os.kill(worker, signal.SIGKILL)
    wait_for_workers(process, len(workers), set(workers))
    seen = behind(shown, sequence(shown.since()["until"]) - sequence(first["since"]) + 20)
    assert seen["since"] == first["since"]
    assert_counted(api, seen)
    shown.is_live()
    assert shown.text("gaps") == ""


def out_of_sight(shown: Screen, away: bool) -> None:
    """A headless browser shows all of its tabs: what it would say of one that nobody sees is said for it."""
    shown.page.evaluate(
        """away => {
            Object.defineProperty(document, 'hidden', {value: away, configurable: true});
            document.dispatchEvent(new Event('visibilitychange'));
        }""",
        away,
    )


def test_a_hidden_page_sends_no_request_and_misses_no_event(shown: Screen) -> None:
    behind(shown, 3)
    out_of_sight(shown, True)
    # Until the answers to what was asked before are there, and longer than the page reads anything in.
    shown.page.wait_for_timeout(1000)
    asked, until = len(shown.requests), shown.since()["until"]
    shown.page.wait_for_timeout(4000)
    assert len(shown.requests) == asked
    assert shown.since()["until"] == until
    out_of_sight(shown, False)
    seen = behind(shown, sequence(until) - sequence(shown.since()["since"]) + 30)
    assert_counted(shown.api, seen)
    assert shown.text("gaps") == ""


# Charts


def test_the_overview_shows_events_and_traffic_from_before_the_sign_in(shown: Screen) -> None:
    wait_for("twelve seconds of events", lambda: bars(shown, "arrivals-chart") >= 12)
    wait_for("a sample", lambda: shown.api.get("/interfaces/traffic")["samples"])
    # Without samples of the page's own.
    shown.page.route(re.compile(r"/interfaces\?"), lambda route: route.abort())
    shown.page.reload()
    shown.is_live()
    wait_for("the seconds before the reload", lambda: bars(shown, "arrivals-chart") >= 12)
    # So many do not come in the seconds since the reload.
    assert shown.number("came") < 40
    assert shown.text("gaps") == ""
    wait_for("the minutes before", lambda: bars(shown, "traffic-chart") >= 5)
    wait_for("the day before", lambda: bars(shown, "day-chart") >= 1)
    for name in ("downstream", "upstream"):
        expect(shown.page.locator(f"#{name}")).to_have_text(re.compile("bit/s"))


def test_a_chart_has_a_time_axis_and_a_pointer_or_arrow_keys_read_its_values(shown: Screen) -> None:
    def ticks(chart: str) -> list[str]:
        panel = shown.page.locator(".panel", has=shown.page.locator(f"#{chart}"))
        expect(panel.locator(".ticks time")).to_have_count(3)
        return panel.locator(".ticks time").all_inner_texts()

    times = [[int(part) for part in re.findall(r"\d+", text)[:3]] for text in ticks("arrivals-chart")]
    seconds = [hour * 3600 + minute * 60 + second for hour, minute, second in times]
    assert [(later - sooner) % 86400 for sooner, later in itertools.pairwise(seconds)] == [60, 60]
    first, _, last = ticks("day-chart")
    assert re.fullmatch(r"\d+ [A-Z][a-z]+, \d\d:\d\d UTC", first)
    # A day before: the same time of another day.
    assert first.split(", ")[0] != last.split(", ")[0]
    wait_for("some samples", lambda: bars(shown, "traffic-chart") >= 2)
    chart = shown.page.locator("#traffic-chart")
    value = re.compile(r"^\d\d:\d\d:\d\d UTC: \S+\s[kMG]bit/s down, \S+\s[kMG]bit/s up$")
    tip = chart.locator(".tip")
    box = chart.bounding_box()
    assert box is not None
    shown.page.mouse.move(box["x"] + box["width"] - 6, box["y"] + 20)
    expect(tip).to_have_text(value)
    shown.page.mouse.move(box["x"] + 6, box["y"] - 40)
    expect(tip).to_be_hidden()
    said = shown.page.locator(".panel", has=chart).locator("[aria-live]")
    chart.focus()
    shown.page.keyboard.press("ArrowLeft")
    expect(said).to_have_text(value)
    newest = said.inner_text()
    expect(tip).to_have_text(newest)
    shown.page.keyboard.press("ArrowLeft")
    expect(said).not_to_have_text(newest)
    assert said.inner_text() < newest
    shown.page.keyboard.press("ArrowRight")
    expect(said).to_have_text(newest)


def test_the_traffic_is_that_of_the_trunks(shown: Screen) -> None:
    responses: list[Response] = []
    # Not the bound method: Playwright writes to what it gets.
    shown.page.on("response", lambda response: responses.append(response))

    def polls() -> list[Response]:
        # The browser tells of its responses while it is asked for something.
        shown.page.evaluate("0")
        return [response for response in responses if "/interfaces?" in response.url]

    def trunk_bytes(response: Response) -> tuple[int, int]:
        """Received from subscribers and sent to them, by all trunks."""
        interfaces = response.json()["data"]["interfaces"]
        stats = [each["stats"] for each in interfaces if each["type"] == "trunk"]
        return sum(each["rx_bytes"] for each in stats), sum(each["tx_bytes"] for each in stats)

    wait_for("three readings of the counters", lambda: len(polls()) >= 3)
    expect(shown.page.locator("#trunks")).to_contain_text("trunk0: ")
    down, up = (shown.text(name).split() for name in ("downstream", "upstream"))
    factors = {"kbit/s": 1e3, "Mbit/s": 1e6, "Gbit/s": 1e9}
    ratio = float(down[0]) * factors[down[1]] / (float(up[0]) * factors[up[1]])
    # Between which two readings the text was written is the page's, so is the time between them.
    readings = itertools.pairwise(map(trunk_bytes, polls()))
    ratios = [(after[1] - before[1]) / (after[0] - before[0]) for before, after in readings]
    # The text has three digits.
    assert any(ratio == pytest.approx(one, rel=0.02) for one in ratios), (ratio, ratios)


# Faults


def test_a_core_that_hangs_is_said_to_and_the_page_recovers(
    shown: Screen, lively: tuple[Api, Process]
) -> None:
    page = shown.page
    with stopped(core_of(lively[1])):
        expect(page.locator("#traffic-problem")).to_have_text("Core daemon unreachable")
        core = page.locator("#overview-health .bad", has_text="core")
        expect(core).to_contain_text("The core daemon does not reply, so nothing is known")
        expect(page.locator("#alarm")).to_have_text("1 problem")
        expect(page.locator("#connection")).to_have_text("The core daemon does not reply: retrying")
    for place in ("#traffic-problem", "#alarm"):
        expect(page.locator(place)).to_be_hidden()
    expect(page.locator("#overview-health .bad")).to_have_count(0)
    shown.go("Subscribers")
    sessions = page.locator("#list tbody")
    expect(sessions.locator("tr").first).to_be_visible()
    expect(sessions).to_have_css("opacity", "1")
    with stopped(core_of(lively[1])):
        expect(sessions).not_to_have_css("opacity", "1")
    shown.is_live()
    expect(sessions).to_have_css("opacity", "1")


def test_events_that_come_late_are_counted_and_make_no_spike_in_the_chart(
    shown: Screen, lively: tuple[Api, Process]
) -> None:
    before = behind(shown, 30)
    # What is due meanwhile happens at its time, and is told when the core runs again.
    with stopped(core_of(lively[1])):
        time.sleep(12)
    seen = behind(shown, sequence(before["until"]) - sequence(before["since"]) + 100)
    assert_counted(shown.api, seen)
    most = int(shown.page.locator("#arrivals-chart span").first.inner_text().removesuffix("/s"))
    # Told at once, they would be sixty in a second.
    assert most < 45


def test_a_restarted_core_is_a_gap_after_which_the_page_reads_all_again_and_shows_no_false_number(
    browser: Browser, tmp_path: Path
) -> None:
    with running_stack(tmp_path, sessions=50) as (api, process), screen(browser, api) as shown:
        shown.open().sign_in()
        api.send("DELETE", "/subscribers/1")
        expect(shown.page.locator("#total")).to_have_text("49")
        wait_for("some samples", lambda: bars(shown, "traffic-chart", "down") >= 3)
        shown.page.evaluate(
            """() => {
                const place = document.getElementById('downstream');
                window.numbers = [place.textContent];
                new MutationObserver(() => numbers.push(place.textContent)).observe(place, {childList: true});
            }"""
        )
        known = bars(shown, "traffic-chart", "down")
        os.kill(core_of(process), signal.SIGKILL)
        expect(shown.page.locator("#gaps")).to_contain_text("Events were lost 1 times")
        expect(shown.page.locator("#total")).to_have_text("50")
        shown.is_live()
        wait_for("samples of the new core", lambda: bars(shown, "traffic-chart", "down") >= known + 4)
        numbers = shown.page.evaluate("numbers")
        assert not any(number.startswith("0") for number in numbers), numbers
        went = shown.number("went")
        assert api.send("DELETE", "/subscribers/2").ok
        expect(shown.page.locator("#went")).to_have_text(str(went + 1))


def test_dependencies_and_faults_are_listed_in_the_overview_and_the_view_health(
    browser: Browser, api: Api, state: Path, tmp_path: Path
) -> None:
    with (
        faulty_gateway(api, state, tmp_path) as faulty,
        screen(browser, faulty, viewport=LAPTOP) as shown,
    ):
        page = shown.open().sign_in("operator").page
        rows = page.locator("#overview-health li")
        expect(rows.filter(has_text="accel-ppp")).to_contain_text("accel-ppp has not replied since")
        expect(rows.filter(has_text="Stale sessions")).to_contain_text("3")
        for name, level in LEVELS.items():
            expect(rows.filter(has=page.get_by_text(name, exact=True))).to_have_class(f"state {level}")
        # The message of a dependency that is well is in the view Health.
        expect(rows.get_by_text("All BGP sessions are established")).to_be_hidden()
        faults = page.locator("#overview-health li.bad")
        expect(faults).to_have_count(7)
        expect(faults.filter(has_text="Faults")).to_contain_text(str(len(FAULTS)))
        expect(faults.filter(has_text="host route")).to_contain_text("Session 1: Network is unreachable")
        expect(faults.filter(has_text="VLAN trunk")).to_contain_text("<b>File exists</b>")
        page.set_viewport_size(PHONE)
        assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
        page.set_viewport_size(LAPTOP)
        known = faulty.get("/system/health/detail")["dependencies"]
        ill = sum(one["state"] in ("degraded", "failed") for one in known)
        shown.go("Routes")
        alarm = page.locator("#alarm")
        expect(alarm).to_have_text(f"{ill + len(FAULTS)} problems")
        expect(alarm).to_have_attribute("title", re.compile("accel-ppp failed, radius degraded.* 13 faults"))
        alarm.click()
        states = page.locator("#dependency-states li .what")
        names = [*(one["name"] for one in known), "Stale sessions", "Faults"]
        expect(states).to_have_text(names)
        table = page.locator("#fault-list tbody tr")
        expect(table).to_have_count(len(FAULTS))
        page.get_by_label("Kind").select_option("vlan")
        expect(table).to_have_count(1)
        shown.find("1")
        expect(page.locator("#record-state")).to_have_text("Stale: the source does not reply")
        problems = page.locator("#record-fields .problem")
        expect(problems).to_have_count(2)
        expect(problems.filter(has_text="shaper ppp0, for ")).to_contain_text(": No space left on device")


# Many sessions


def test_the_page_of_a_large_gateway_fetches_pages_of_lists_and_keeps_few_elements(
    browser: Browser, tmp_path: Path
) -> None:
    def received(path: str = "/api/v1/") -> int:
        """Bytes of all answers below a path, without those of streams, which go on."""
        ended = [
            asked
            for asked in shown.requests
            if path in asked.url and not re.search("/events/|/traffic$", asked.url) and asked.response()
        ]
        return sum(asked.sizes()["responseBodySize"] for asked in ended)

    # A list of all of them would be 8 MB.
    stack = running_stack(tmp_path, sessions=30_000, arrivals=100)
    with stack as (api, _), screen(browser, api) as shown:
        shown.open().sign_in()
        expect(shown.page.locator("#total")).to_have_text(re.compile(r"(29|30),\d{3}"))
        wait_for("hundreds of events", lambda: shown.number("came") + shown.number("went") > 500)
        assert shown.page.evaluate("document.querySelectorAll('*').length") < 1500
        (session,) = api.get("/subscribers", params={"sort": "-id", "type": "pppoe", "limit": 1})["sessions"]
        shown.find(session["username"])
        expect(shown.page.locator("#record-state")).to_have_text("Active")
        shown.go("Sessions")
        expect(shown.page.locator("#list tbody tr")).to_have_count(50)
        assert received() < 1_000_000
        assert received("/api/v1/subscribers") < 100_000

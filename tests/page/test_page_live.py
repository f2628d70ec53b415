"""The live page while subscribers come and go, and while what it depends on breaks."""

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import count, pairwise
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Response, expect

from tests.support.browser import Screen, screen
from tests.support.sse import Stream, master_of, wait_for_workers, workers_of
from tests.support.stack import Api, core_of, running_stack, wait_for

pytestmark = pytest.mark.slow

Process = subprocess.Popen[bytes]


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


def kill_workers(process: Process) -> None:
    workers = workers_of(process)
    for worker in workers:
        os.kill(worker, signal.SIGKILL)
    wait_for_workers(process, len(workers), set(workers))


def happened(api: Api, after: str, until: str) -> dict[str, int]:
    """How many came and went, as another client of the stream sees it."""
    with Stream(
        api.url, api.environment["GATEWAY_CA"], api.token("operator"), headers={"Last-Event-ID": after}
    ) as stream:
        events = stream.until(lambda message: message.id == until)
    names = [message.name for message in events]
    return {"came": names.count("session_up"), "went": names.count("session_down")}


def behind(shown: Screen, events: int) -> dict[str, Any]:
    """What the page has counted, when it is so many events after its first."""

    def enough() -> dict[str, Any] | None:
        seen = shown.since()
        return (
            seen if "until" in seen and sequence(seen["until"]) - sequence(seen["since"]) >= events else None
        )

    found: dict[str, Any] = wait_for(f"{events} events on the page", enough)
    return found


def sequence(id: str) -> int:
    return int(id.rpartition("-")[2])


def assert_counted(api: Api, seen: dict[str, Any]) -> None:
    """Every event of the time, and each once."""
    assert {name: seen[name] for name in ("came", "went")} == happened(api, seen["since"], seen["until"])


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


def test_whoever_arrives_is_seen_without_reloading(shown: Screen) -> None:
    first = shown.page.locator("#feed .up a").first

    def is_shown() -> bool:
        """Whether the first session of the feed lasted until its record was asked for."""
        shown.go("Overview")
        expect(first).to_be_visible()
        # Or the first is another one by the click.
        shown.page.get_by_role("button", name="Pause").click()
        name = first.inner_text()
        first.click()
        record = shown.page.get_by_role("heading", name=name)
        expect(record.or_(shown.page.get_by_text("no matches"))).to_be_visible()
        if record.is_visible():
            return True
        shown.go("Overview")
        shown.page.get_by_role("button", name="Pause").click()
        return False

    wait_for("a session that lasts", is_shown)
    assert sum(asked.is_navigation_request() for asked in shown.requests) == 1


def test_counts_are_those_of_the_gateway(shown: Screen) -> None:
    expect(shown.page.locator("#total")).not_to_have_text("\N{EN DASH}")

    def same() -> bool:
        counts = shown.api.get("/subscribers/summary")
        return all(shown.number(name) == counts[name] for name in ("total", "pppoe", "dhcp"))

    wait_for("the same counts", same)
    before = shown.number("total")
    wait_for("a change", lambda: shown.number("total") != before)


def test_the_page_counts_every_event_once(shown: Screen) -> None:
    seen = behind(shown, 30)
    assert seen["came"] > 0 < seen["went"]
    assert_counted(shown.api, seen)


@pytest.mark.parametrize("times", [1, 3])
def test_killed_workers_cost_no_event(shown: Screen, lively: tuple[Api, Process], times: int) -> None:
    api, process = lively
    first = behind(shown, 3)
    for number in range(times):
        behind(shown, 10 * (number + 1))
        kill_workers(process)
    seen = behind(shown, sequence(shown.since()["until"]) - sequence(first["since"]) + 20)
    assert seen["since"] == first["since"]
    assert_counted(api, seen)
    shown.is_live()
    assert shown.text("gaps") == ""


@contextmanager
def stopped(pid: int) -> Iterator[None]:
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def test_a_worker_that_is_killed_before_the_first_event_costs_none(browser: Browser, tmp_path: Path) -> None:
    with running_stack(tmp_path, sessions=20) as (api, process), screen(browser, api) as shown:
        shown.open().sign_in()
        shown.is_live()
        wait_for("its place in the stream", lambda: "since" in shown.since())
        with stopped(master_of(process)):
            for worker in workers_of(process):
                os.kill(worker, signal.SIGKILL)
            # One that is not quite dead would take the request along.
            wait_for("their end", lambda: not workers_of(process))
        wait_for("a worker", lambda: api.send("DELETE", "/subscribers/3").ok)
        expect(shown.page.locator("#went")).to_have_text("1")
        assert shown.text("gaps") == ""


def test_a_core_that_hangs_is_said_where_it_is_missed_and_the_page_heals(
    shown: Screen, lively: tuple[Api, Process]
) -> None:
    with stopped(core_of(lively[1])):
        expect(shown.page.locator("#traffic-problem")).to_have_text("Core daemon unreachable")
        core = shown.page.locator("#overview-health .bad", has_text="core")
        expect(core).to_contain_text("The core daemon does not reply, so nothing is known")
        expect(shown.page.locator("#alarm")).to_have_text("1 problem")
    expect(shown.page.locator("#traffic-problem")).to_be_hidden()
    expect(shown.page.locator("#overview-health .bad")).to_have_count(0)
    expect(shown.page.locator("#alarm")).to_be_hidden()


def test_the_page_is_live_no_more_within_ten_seconds_of_a_core_that_hangs(
    shown: Screen, lively: tuple[Api, Process]
) -> None:
    shown.go("Subscribers")
    list_of_sessions = shown.page.locator("#list tbody")
    expect(list_of_sessions.locator("tr").first).to_be_visible()
    expect(list_of_sessions).to_have_css("opacity", "1")
    with stopped(core_of(lively[1])):
        connection = shown.page.locator("#connection")
        expect(connection).to_have_text("The core daemon does not reply: retrying")
        expect(list_of_sessions).not_to_have_css("opacity", "1")
    shown.is_live()
    expect(list_of_sessions).to_have_css("opacity", "1")


def bars(shown: Screen) -> int:
    """How many samples of the traffic are drawn."""
    drawn = shown.page.locator("#traffic-chart path.down").get_attribute("d") or ""
    return drawn.count("M")


def test_a_restarted_core_leaves_a_hole_in_the_chart_of_the_traffic_and_no_false_number(
    browser: Browser, tmp_path: Path
) -> None:
    with running_stack(tmp_path, sessions=50) as (api, process), screen(browser, api) as shown:
        shown.open().sign_in()
        wait_for("some samples", lambda: bars(shown) >= 3)
        shown.page.evaluate(
            """() => {
                const place = document.getElementById('downstream');
                window.numbers = [place.textContent];
                new MutationObserver(() => numbers.push(place.textContent)).observe(place, {childList: true});
            }"""
        )
        known = bars(shown)
        os.kill(core_of(process), signal.SIGKILL)
        wait_for("samples of the new core", lambda: bars(shown) >= known + 4)
        numbers = shown.page.evaluate("numbers")
        assert not any(number.startswith("0") for number in numbers), numbers


def test_events_that_come_late_are_counted_and_make_no_spike_in_the_chart(
    browser: Browser, tmp_path: Path
) -> None:
    with running_stack(tmp_path, sessions=100, arrivals=10) as (api, process), screen(browser, api) as shown:
        shown.open().sign_in()
        shown.is_live()
        behind(shown, 30)
        before = shown.since()
        # What is due meanwhile happens at its time, and is told when the core runs again.
        with stopped(core_of(process)):
            time.sleep(12)
        seen = behind(shown, sequence(before["until"]) - sequence(before["since"]) + 100)
        assert_counted(api, seen)
        most = int(shown.page.locator("#arrivals-chart span").first.inner_text().removesuffix("/s"))
        # Told at once, they would be over a hundred in a second.
        assert most < 80


def test_a_core_that_was_restarted_is_a_gap_after_which_the_truth_is_read_again(
    browser: Browser, tmp_path: Path
) -> None:
    with running_stack(tmp_path, sessions=50) as (api, process), screen(browser, api) as shown:
        shown.open().sign_in()
        expect(shown.page.locator("#total")).to_have_text("50")
        api.send("DELETE", "/subscribers/1")
        expect(shown.page.locator("#total")).to_have_text("49")
        os.kill(core_of(process), signal.SIGKILL)
        expect(shown.page.locator("#gaps")).to_contain_text("Events were lost 1 times")
        expect(shown.page.locator("#total")).to_have_text("50")
        shown.is_live()
        ids = count(2)

        def is_counted() -> bool:
            # Those before the page follows the new core are part of the gap.
            api.send("DELETE", f"/subscribers/{next(ids)}")
            shown.page.wait_for_timeout(1000)
            return int(shown.page.locator("#went").inner_text()) >= 2

        wait_for("an end in the new core", is_counted)


def test_a_gateway_that_goes_is_said_to_be_gone_and_the_page_goes_on_when_it_is_back(
    browser: Browser, tmp_path: Path
) -> None:
    with ExitStack() as first:
        api, _ = first.enter_context(running_stack(tmp_path, sessions=50))
        with screen(browser, api) as shown:
            shown.open().sign_in()
            shown.is_live()
            first.close()
            expect(shown.page.locator("#connection")).to_have_text("Connection lost: retrying")
            with running_stack(tmp_path, sessions=60, PORT=api.url.rpartition(":")[2]):
                shown.is_live()
                expect(shown.page.locator("#total")).to_have_text("60")


def test_the_feed_can_be_read_in_peace(shown: Screen) -> None:
    expect(shown.page.locator("#feed li").nth(4)).to_be_visible()
    shown.page.get_by_role("button", name="Pause").click()
    before = shown.page.locator("#feed").inner_text()
    came = shown.number("came")
    wait_for("more events", lambda: shown.number("came") > came + 3)
    assert shown.page.locator("#feed").inner_text() == before
    shown.page.get_by_role("button", name="Pause").click()
    wait_for("the feed to go on", lambda: shown.page.locator("#feed").inner_text() != before)


def test_traffic_is_what_the_trunks_carry(shown: Screen) -> None:
    responses: list[Response] = []
    # Not the bound method: Playwright writes to what it gets.
    shown.page.on("response", lambda response: responses.append(response))

    def polls() -> list[Response]:
        # The browser tells of its responses while it is asked for something.
        shown.page.evaluate("0")
        return [response for response in responses if "/interfaces?" in response.url]

    wait_for("three readings of the counters", lambda: len(polls()) >= 3)
    expect(shown.page.locator("#trunks")).to_contain_text("trunk0: ")
    down, up = (shown.text(name).split() for name in ("downstream", "upstream"))
    factors = {"kbit/s": 1e3, "Mbit/s": 1e6, "Gbit/s": 1e9}
    ratio = float(down[0]) * factors[down[1]] / (float(up[0]) * factors[up[1]])
    # Between which two readings the text was written is the page's, so is the time between them.
    readings = [trunk_bytes(poll.json()["data"]["interfaces"]) for poll in polls()]
    ratios = [(after[1] - before[1]) / (after[0] - before[0]) for before, after in pairwise(readings)]
    # The text has three digits.
    assert any(ratio == pytest.approx(one, rel=0.02) for one in ratios), (ratio, ratios)


def trunk_bytes(interfaces: list[dict[str, Any]]) -> tuple[int, int]:
    """Received from subscribers and sent to them, by all trunks."""
    stats = [each["stats"] for each in interfaces if each["type"] == "trunk"]
    return sum(each["rx_bytes"] for each in stats), sum(each["tx_bytes"] for each in stats)


def test_the_busiest_vlans_are_those_with_the_most_sessions(shown: Screen) -> None:
    expect(shown.page.locator("#vlans li").first).to_be_visible()
    shown_counts = [int(text) for text in shown.page.locator("#vlans b").all_inner_texts()]
    vlans = shown.api.get("/interfaces/vlans")["vlans"]
    assert len(shown_counts) == min(10, len(vlans))
    assert shown_counts == sorted(shown_counts, reverse=True)
    # Some came and went meanwhile.
    assert abs(shown_counts[0] - max(vlan["session_count"] for vlan in vlans)) <= 3


def test_every_bgp_neighbour_is_shown_with_its_state(shown: Screen) -> None:
    peers = shown.api.get("/routing/bgp/summary")["ipv4Unicast"]["peers"]
    rows = shown.page.locator("#neighbours li")
    expect(rows).to_have_count(len(peers))
    expect(rows).to_contain_text([f"{address}Established" for address in peers])
    expect(shown.page.locator("#bgp-up")).to_have_text(f"{len(peers)} of {len(peers)}")


def out_of_sight(shown: Screen, away: bool) -> None:
    """A headless browser shows all of its tabs: what it would say of one that nobody sees is said for it."""
    shown.page.evaluate(
        """away => {
            Object.defineProperty(document, 'hidden', {value: away, configurable: true});
            document.dispatchEvent(new Event('visibilitychange'));
        }""",
        away,
    )


def test_nothing_is_asked_for_while_nobody_looks_and_no_event_is_missed(shown: Screen) -> None:
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

"""What was, on the live page: the timeline of a subscriber, sessions of the past, and rates for a time."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from gateway_api.base.texts import epoch_seconds
from tests.support.browser import Screen, screen
from tests.support.histories import failed, remember_failures
from tests.support.stack import Api, running_stack

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of the gateway's state."""
    return tmp_path_factory.mktemp("own")


@pytest.fixture(scope="module")
def own(folder: Path) -> Iterator[Api]:
    """A gateway from which only the tests disconnect anybody."""
    with running_stack(folder, sessions=70) as (api, _):
        yield api


@pytest.fixture
def shown(browser: Browser, own: Api) -> Iterator[Screen]:
    with screen(browser, own) as opened:
        yield opened


def test_a_rate_is_changed_for_an_hour_and_the_record_tells_when_the_former_returns(shown: Screen) -> None:
    shown.open("#subscribers?open=12").sign_in()
    shown.page.get_by_role("button", name="Change rate…").click()
    dialog = shown.page.get_by_role("dialog")
    dialog.get_by_label("Downstream").fill("250 Mbit")
    dialog.get_by_label("The former rate returns").select_option("after an hour")
    dialog.get_by_role("button", name="Change rate").click()
    fields = shown.page.locator("#record-fields")
    expect(fields).to_contain_text("Rate until")
    expect(fields).to_contain_text("then 100 Mbit/s down, 20 Mbit/s up")
    assert shown.api.get("/subscribers/12")["rate_expires_at"] is not None
    expect(shown.page.locator("#record-timeline")).to_contain_text("by admin")


def test_a_rate_is_changed_for_good_unless_a_time_is_chosen(shown: Screen) -> None:
    shown.open("#subscribers?open=13").sign_in()
    shown.page.get_by_role("button", name="Change rate…").click()
    shown.page.get_by_role("dialog").get_by_label("Downstream").fill("250 Mbit")
    shown.page.get_by_role("dialog").get_by_role("button", name="Change rate").click()
    expect(shown.page.locator("#record-fields")).to_contain_text("250 Mbit/s down")
    expect(shown.page.locator("#record-fields")).not_to_contain_text("Rate until")
    assert shown.api.get("/subscribers/13")["rate_expires_at"] is None


def test_the_timeline_tells_why_a_session_ended_and_by_whom(shown: Screen) -> None:
    shown.open("#subscribers?open=14").sign_in()
    expect(shown.page.locator("#record-timeline .session-up")).to_be_visible()
    shown.page.get_by_role("button", name="Disconnect…").click()
    shown.page.get_by_role("dialog").get_by_role("button", name="Disconnect").click()
    end = shown.page.locator("#record-timeline .session-down")
    expect(end).to_contain_text("admin_disconnect, by admin")
    expect(end.locator("time")).to_contain_text("UTC")
    entries = shown.api.get("/subscribers/14/timeline")["entries"]
    at = next(entry["at"] for entry in entries if entry["event"] == "session.down")
    # The API reads what the page shows.
    assert epoch_seconds(end.locator("time").inner_text(), time.time()) == at


def test_the_timeline_tells_why_a_subscriber_cannot_sign_on(shown: Screen, folder: Path) -> None:
    session = shown.api.get("/subscribers/16")
    name, at = session["username"], session["started_at"] + 60
    remember_failures(folder / "history.sqlite", *(failed(at + 5 * n, username=name) for n in range(3)))
    shown.open("#subscribers?open=16").sign_in()
    entry = shown.page.locator("#record-timeline .sign_on-failed")
    expect(entry).to_contain_text(f"Sign-on of {name} on trunk0.7 failed, rejected, 3 times until")


def test_failed_sign_ons_are_found_by_a_part_of_a_username(shown: Screen, folder: Path) -> None:
    session = shown.api.get("/subscribers/17")
    name, at = session["username"], session["started_at"] + 60
    remember_failures(folder / "history.sqlite", *(failed(at + 5 * n, username=name) for n in range(4)))
    shown.open("#history").sign_in()
    shown.page.get_by_role("main").get_by_role("link", name="failed sign-ons").click()
    view = shown.page.get_by_label("Failed sign-ons")
    view.get_by_label("Part of a username").fill(name.partition("@")[0].upper())
    view.get_by_role("button", name="Filter").click()
    row = shown.page.locator("#failure-list tbody tr")
    expect(row).to_have_count(1)
    expect(row).to_contain_text(name)
    expect(row).to_contain_text("rejected4")


def test_a_former_session_is_found_and_leads_to_its_timeline(shown: Screen) -> None:
    session = shown.api.get("/subscribers/15")
    assert shown.api.send("DELETE", "/subscribers/15").ok
    shown.open("#history").sign_in()
    rows = shown.page.locator("#history-list tbody tr")
    expect(rows.first).to_be_visible()
    shown.page.get_by_label("IP address then").fill(session["ip_address"])
    shown.page.get_by_role("button", name="Filter").click()
    expect(rows).to_have_count(1)
    expect(rows).to_contain_text("admin disconnect")
    rows.get_by_role("link").click()
    expect(shown.page.locator("#record-state")).to_have_text("Ended")
    expect(shown.page.locator("#record-timeline .session-down")).to_contain_text("admin_disconnect")
    expect(shown.page.get_by_role("button", name="Disconnect…")).to_be_disabled()

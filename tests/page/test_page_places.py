"""Places in the live page: links, the back button, keys, copies, exports, and what follows events."""

import csv
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Locator, expect

from tests.support.browser import Screen, screen
from tests.support.stack import Api, running_stack

pytestmark = pytest.mark.slow


@pytest.fixture
def shown(browser: Browser, api: Api) -> Iterator[Screen]:
    with screen(browser, api, permissions=["clipboard-read", "clipboard-write"]) as opened:
        yield opened


@pytest.fixture
def id(api: Api) -> int:
    """A session that is there: other modules may have disconnected the first."""
    found: int = api.get("/subscribers", params={"sort": "-id", "limit": 1})["sessions"][0]["id"]
    return found


def rows(shown: Screen) -> Locator:
    return shown.page.locator("#list tbody tr")


def test_a_link_leads_to_a_search_its_order_and_the_open_record(shown: Screen, id: int) -> None:
    session = shown.api.get(f"/subscribers/{id}")
    shown.open(f"#subscribers?search=lab.example&type=pppoe&sort=id&open={id}").sign_in("operator")
    expect(shown.page.locator("#record-title")).to_have_text(session["username"])
    expect(shown.page.get_by_label("Find a subscriber")).to_have_value("lab.example")
    expect(shown.page.get_by_label("Type")).to_have_value("pppoe")
    expect(shown.page.get_by_role("columnheader", name="Id")).to_have_attribute("aria-sort", "ascending")
    expect(rows(shown).first).to_contain_text("1")
    shown.page.reload()
    expect(shown.page.locator("#record-title")).to_have_text(session["username"])


def test_the_back_button_leads_through_views_searches_and_records(shown: Screen, id: int) -> None:
    shown.open().sign_in("operator")
    shown.is_live()
    shown.find("lab.example")
    # The list of all sessions has as many rows.
    total = shown.api.get("/subscribers", params={"search": "lab.example", "limit": 1})["total"]
    expect(shown.page.locator("#list-range")).to_contain_text(f"1 to 50 of {total}")
    name = rows(shown).locator("button").first
    username = name.inner_text()
    name.click()
    expect(shown.page.locator("#record-title")).to_have_text(username)
    shown.find(str(id))
    expect(shown.page).to_have_url(f"{shown.api.url}/#subscribers?search={id}&open={id}")
    for _ in range(2):
        shown.page.go_back()
    expect(shown.page.locator("#record-title")).to_have_text(username)
    expect(shown.page.get_by_label("Find a subscriber")).to_have_value("lab.example")
    shown.page.go_back()
    expect(shown.page.locator("#record")).to_be_hidden()
    for _ in range(2):
        shown.page.go_back()
    expect(shown.page.get_by_role("heading", name="Overview", exact=True)).to_be_visible()


def test_a_page_of_a_list_has_a_link(shown: Screen) -> None:
    shown.open("#subscribers").sign_in("operator")
    shown.page.get_by_role("button", name="Next").click()
    expect(shown.page.locator("#list-range")).to_contain_text("51 to 100 of")
    second = rows(shown).all_inner_texts()
    shown.page.reload()
    expect(shown.page.locator("#list-range")).to_contain_text("51 to 100 of")
    # Without a layout, a text has no space between its cells.
    expect(rows(shown).first).to_be_visible()
    assert [row.split()[0] for row in rows(shown).all_inner_texts()] == [row.split()[0] for row in second]
    shown.page.get_by_role("button", name="Previous").click()
    expect(shown.page.locator("#list-range")).to_contain_text("1 to 50 of")


def test_a_record_is_closed_and_stays_closed(shown: Screen, id: int) -> None:
    shown.open().sign_in("operator").find(str(id))
    expect(shown.page.locator("#record-state")).to_have_text("Active")
    shown.page.get_by_role("button", name="Close").click()
    expect(shown.page.locator("#record")).to_be_hidden()
    shown.page.get_by_role("button", name="Refresh").click()
    shown.page.wait_for_timeout(1000)
    expect(shown.page.locator("#record")).to_be_hidden()
    shown.page.get_by_role("button", name="Find").click()
    expect(shown.page.locator("#record-state")).to_have_text("Active")


def test_the_row_of_the_open_record_is_marked(shown: Screen) -> None:
    shown.open("#subscribers").sign_in("operator")
    second = rows(shown).nth(1)
    second.get_by_role("button").click()
    expect(second).to_have_attribute("aria-current", "true")
    rows(shown).nth(2).get_by_role("button").click()
    expect(rows(shown).nth(2)).to_have_attribute("aria-current", "true")
    expect(shown.page.locator("#list tr[aria-current]")).to_have_count(1)
    shown.page.get_by_role("button", name="Close").click()
    expect(shown.page.locator("#list tr[aria-current]")).to_have_count(0)


def test_a_slash_leads_to_the_search_from_every_view(shown: Screen) -> None:
    shown.open("#configuration").sign_in("operator")
    shown.is_live()
    shown.page.keyboard.press("/")
    find = shown.page.get_by_label("Find a subscriber")
    expect(find).to_be_focused()
    shown.page.keyboard.type("a/b")
    expect(find).to_have_value("a/b")


@pytest.mark.parametrize("name", ["Session", "MAC address", "IP address"])
def test_a_value_is_copied(shown: Screen, id: int, name: str) -> None:
    session = shown.api.get(f"/subscribers/{id}")
    known = {"Session": str(id), "MAC address": session["mac_address"], "IP address": session["ip_address"]}
    shown.open(f"#subscribers?open={id}").sign_in("operator")
    shown.page.get_by_role("button", name=f"Copy {name}").click()
    expect(shown.page.locator("#toasts")).to_have_text(f"Copied {known[name]}")
    assert shown.page.evaluate("navigator.clipboard.readText()") == known[name]


def test_a_list_is_exported_as_it_is_filtered(shown: Screen, tmp_path: Path) -> None:
    shown.open("#subscribers?type=dhcp&sort=id").sign_in("operator")
    expect(shown.page.locator("#list-range")).to_contain_text("1 to 50 of")
    with shown.page.expect_download() as started:
        shown.page.get_by_role("button", name="Export CSV").click()
    assert started.value.suggested_filename.startswith("subscribers-")
    started.value.save_as(tmp_path / "list.csv")
    with (tmp_path / "list.csv").open(newline="") as file:
        exported = list(csv.DictReader(file))
    wanted = shown.api.get("/subscribers", params={"type": "dhcp", "sort": "id"})["sessions"]
    assert [row["id"] for row in exported] == [str(session["id"]) for session in wanted]
    lists = {name: json.dumps(value) for name, value in wanted[0].items() if isinstance(value, list)}
    assert exported[0] == {name: str(value or "") for name, value in (wanted[0] | lists).items()}
    expect(shown.page.locator("#toasts")).to_have_text(f"Exported {len(wanted)} records.")


def test_a_text_in_an_export_is_no_formula_for_a_spreadsheet(shown: Screen, tmp_path: Path) -> None:
    def hostile(route) -> None:  # type: ignore[no-untyped-def]
        answer = route.fetch()
        body = answer.json()
        body["data"]["sessions"][0]["username"] = '=HYPERLINK("https://evil.example")'
        route.fulfill(response=answer, json=body)

    shown.page.route("**/subscribers?*limit=10000", hostile)
    shown.open("#subscribers").sign_in("operator")
    with shown.page.expect_download() as started:
        shown.page.get_by_role("button", name="Export CSV").click()
    started.value.save_as(tmp_path / "list.csv")
    assert ',"\'=HYPERLINK(""https://evil.example"")",' in (tmp_path / "list.csv").read_text()


def test_rows_follow_events_unless_somebody_points_at_them(browser: Browser, tmp_path: Path) -> None:
    with running_stack(tmp_path, sessions=60, arrivals=2) as (api, _), screen(browser, api) as shown:
        shown.open("#subscribers?sort=-id").sign_in()
        first = rows(shown).first.locator("td").first
        expect(first).not_to_be_empty()
        before = first.inner_text()
        expect(first).not_to_have_text(before)
        rows(shown).nth(3).hover()
        # A read that has begun may still end.
        shown.page.wait_for_timeout(1000)
        before = first.inner_text()
        shown.page.wait_for_timeout(3500)
        expect(first).to_have_text(before)
        shown.page.mouse.move(0, 0)
        expect(first).not_to_have_text(before)


def test_a_session_that_ended_unseen_has_no_live_buttons(shown: Screen, id: int) -> None:
    # Its event is lost.
    shown.page.route("**/events/subscribers*", lambda route: route.abort())
    shown.open(f"#subscribers?open={id}").sign_in()
    expect(shown.page.get_by_role("button", name="Disconnect…")).to_be_enabled()
    assert shown.api.send("DELETE", f"/subscribers/{id}").ok
    expect(shown.page.locator("#record-state")).to_have_text("Ended")
    for name in ("Disconnect…", "Change rate…"):
        expect(shown.page.get_by_role("button", name=name)).to_be_disabled()


def test_the_result_of_an_action_is_a_toast(shown: Screen, id: int) -> None:
    shown.open(f"#subscribers?open={id}").sign_in()
    session = shown.api.get(f"/subscribers/{id}")
    shown.page.get_by_role("button", name="Disconnect…").click()
    shown.page.get_by_role("dialog").get_by_role("button", name="Disconnect").click()
    who = f"{session['username']}, {session['ip_address']}, {session['mac_address']}"
    expect(shown.page.locator("#toasts")).to_have_text(f"Session {id} disconnected: {who}")
    expect(shown.page.locator("#toasts p")).to_have_count(0)

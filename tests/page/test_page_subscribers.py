"""Subscribers on the live page: they are found, their records read, their sessions changed, one or many."""

import csv
import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Locator, Route, expect

from gateway_api.base.texts import epoch_seconds
from tests.support.browser import Screen, screen
from tests.support.histories import failed, remember_failures
from tests.support.stack import Api, running_stack, wait_for


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """That of the gateway's state."""
    return tmp_path_factory.mktemp("own")


@pytest.fixture(scope="module")
def own(folder: Path) -> Iterator[Api]:
    """A gateway whose sessions end only here."""
    with running_stack(folder, sessions=240) as (api, _):
        yield api


@pytest.fixture
def shown(browser: Browser, own: Api) -> Iterator[Screen]:
    with screen(browser, own, permissions=["clipboard-read", "clipboard-write"]) as opened:
        opened.open("#subscribers").sign_in()
        expect(opened.page.locator("#list-range")).to_contain_text(" of ")
        yield opened


@pytest.fixture(scope="module")
def ids(own: Api) -> Iterator[int]:
    """Sessions to spend."""
    return iter([session["id"] for session in own.get("/subscribers")["sessions"]][-60:])


def rows(shown: Screen) -> Locator:
    return shown.page.locator("#list tbody tr")


def altered(route: Route, **fields: Any) -> None:
    """The response with other values, that the lab has not, in its sessions."""
    answer = route.fetch()
    body = answer.json()
    for session in body["data"].get("sessions", [body["data"]]):
        session |= fields
    route.fulfill(response=answer, json=body)


# A search


def test_a_subscriber_is_found_by_whatever_is_known_of_it(shown: Screen) -> None:
    session = shown.api.get("/subscribers/12")
    title, fields = shown.page.locator("#record-title"), shown.page.locator("#record-fields")
    for field in ("id", "mac_address", "ip_address", "username", "ppp_interface"):
        shown.find(f" {session[field]} ")
        expect(rows(shown)).to_have_count(1)
        expect(shown.page.get_by_role("heading", name=session["username"])).to_be_focused()
        for known in ("mac_address", "ip_address", "access_interface", "acct_session_id"):
            expect(fields).to_contain_text(session[known])
        shown.page.get_by_role("button", name="Close").click()
    eighth = shown.api.get("/subscribers/8")
    assert (session["mac_address"][-2:], eighth["ipv6_prefix"]) == ("0b", "2001:db8:0:7::/64")
    for spelled, found in (
        ("0200.0000.000b", session),
        ("02000000000B", session),
        ("2001:0DB8:0:7::FFFF", eighth),
    ):
        shown.find(spelled)
        expect(title).to_have_text(found["username"])
        shown.page.get_by_role("button", name="Close").click()
    interface = session["access_interface"]
    shown.find(interface)
    expect(rows(shown)).to_have_count(shown.api.get("/subscribers", params={"interface": interface})["count"])


def test_a_search_without_a_match_closes_the_record_and_leads_to_the_history(shown: Screen) -> None:
    link = shown.page.get_by_role("link", name="Look for it in the history")
    for text, query in (
        ("nobody@lab.example", "search=nobody%40lab.example"),
        ("2001:db8:ffff::1", "ip_address=2001%3Adb8%3Affff%3A%3A1"),
        ("02:ff:ff:ff:ff:ff", "search=02%3Aff%3Aff%3Aff%3Aff%3Aff"),
    ):
        shown.find("9")
        expect(shown.page.get_by_role("button", name="Disconnect…")).to_be_enabled()
        expect(link).to_be_hidden()
        shown.find(text)
        expect(shown.page.locator("#list-range")).to_have_text("no matches")
        expect(shown.page.locator("#record")).to_be_hidden()
        link.click()
        expect(shown.page).to_have_url(f"{shown.api.url}/#history?{query}")
        expect(shown.page.locator("#history-list-range")).to_have_text("no matches")


def test_a_number_that_is_or_may_be_a_username_opens_no_session(shown: Screen) -> None:
    history = re.compile("/api/v1/subscribers/history[?]username=13&")
    former = {"status": "ok", "data": {"count": 1, "sessions": [{"id": 7, "username": "13"}]}}
    shown.page.route(history, lambda route: route.fulfill(json=former))
    shown.find("13")
    note = shown.page.locator("#list-namesake")
    expect(note).to_contain_text("13 is also the username of a subscriber without a session now.")
    expect(shown.page.locator("#record")).to_be_hidden()
    shown.find("id:13")
    expect(note).to_be_hidden()
    expect(shown.page.locator("#record-title")).to_have_text(shown.api.get("/subscribers/13")["username"])
    shown.page.unroute(history)
    refused = {"status": "error", "message": "The history is not available"}
    shown.page.route("**/subscribers/history?*", lambda route: route.fulfill(status=503, json=refused))
    shown.find("13")
    expect(note).to_contain_text("13 may also be a username")
    expect(shown.page.locator("#record")).to_be_hidden()


# The list


def test_the_list_has_types_an_order_and_pages_and_a_link_has_them_all(shown: Screen) -> None:
    total, range_ = shown.api.get("/subscribers/summary")["pppoe"], shown.page.locator("#list-range")
    shown.page.get_by_label("Type").select_option("PPPoE")
    header = shown.page.get_by_role("columnheader", name="IP address")
    for order in ("descending", "ascending"):
        header.get_by_role("button").click()
        expect(header).to_have_attribute("aria-sort", order)
    query = {"sort": "ip_address", "type": "pppoe", "limit": 51}
    *_, last = shown.api.get("/subscribers", params=query)["sessions"]
    shown.page.get_by_role("button", name="Next").click()
    for _ in range(2):
        expect(range_).to_have_text(f"51 to 100 of {total}")
        expect(rows(shown).first).to_contain_text(last["ip_address"])
        expect(shown.page.get_by_label("Type")).to_have_value("pppoe")
        shown.page.reload()
    shown.page.get_by_role("button", name="Previous").click()
    expect(range_).to_have_text(f"1 to 50 of {total}")


def test_the_back_button_leads_through_views_searches_and_records(shown: Screen) -> None:
    shown.find("lab.example")
    # The list of all sessions has as many rows.
    total = shown.api.get("/subscribers", params={"search": "lab.example", "limit": 1})["total"]
    expect(shown.page.locator("#list-range")).to_have_text(f"1 to 50 of {total}")
    name = rows(shown).nth(1).get_by_role("button")
    username = name.inner_text()
    name.click()
    expect(shown.page.locator("#record-title")).to_have_text(username)
    expect(rows(shown).nth(1)).to_have_attribute("aria-current", "true")
    shown.find("20")
    expect(shown.page).to_have_url(f"{shown.api.url}/#subscribers?search=20&open=20")
    for _ in range(2):
        shown.page.go_back()
    expect(shown.page.locator("#record-title")).to_have_text(username)
    shown.page.go_back()
    expect(shown.page.locator("#record")).to_be_hidden()
    expect(shown.page.locator("#list tr[aria-current]")).to_have_count(0)


def test_columns_are_chosen_and_remembered(shown: Screen) -> None:
    def columns() -> list[str]:
        heads = shown.page.locator("#list th:visible")
        expect(heads.first).to_be_visible()
        return [text.split(" ↑")[0] for text in heads.all_inner_texts()]

    usual = ["Id", "Username", "Type", "IP address", "MAC address", "VLAN", "Down", "Up", "Online for"]
    assert columns() == usual
    shown.page.get_by_role("button", name="Columns").click()
    shown.page.get_by_label("Interface", exact=True).check()
    shown.page.get_by_label("Up", exact=True).uncheck()
    chosen = [*usual[:6], "Interface", "Down", "Online for"]
    assert columns() == chosen
    shown.page.keyboard.press("Escape")
    shown.page.reload()
    assert columns() == chosen
    assert set(json.loads(shown.page.evaluate("JSON.stringify({...localStorage})"))) == {"columns of list"}
    shown.page.get_by_role("button", name="Columns").click()
    shown.page.get_by_role("button", name="As at first").click()
    assert columns() == usual
    assert shown.page.evaluate("localStorage.length") == 0


def test_a_list_is_exported_as_it_is_filtered_and_no_text_is_a_formula(shown: Screen, tmp_path: Path) -> None:
    formula = '=HYPERLINK("https://evil.example")'
    shown.page.route("**/subscribers?*limit=10000", lambda route: altered(route, username=formula))
    shown.open("#subscribers?type=dhcp&sort=id")
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
    expected = wanted[0] | lists | {"username": f"'{formula}"}
    assert exported[0] == {name: str(value or "") for name, value in expected.items()}
    expect(shown.page.locator("#toasts")).to_have_text(f"Exported {len(wanted)} records.")


# A record


def test_a_record_shows_every_field_as_it_is(shown: Screen) -> None:
    session = shown.api.get("/subscribers/8")
    shown.find("8")
    fields = shown.page.locator("#record-fields")
    for name, known in {
        "IPv6 address": session["ipv6_address"],
        "IPv6 prefix": session["ipv6_prefix"],
        "Delegated prefixes": session["delegated_prefixes"][0],
        "VLAN": f"{session['outer_vlan_id']}.{session['inner_vlan_id']}",
        "Source": "lab",
    }.items():
        expect(fields.locator("div", has=shown.page.get_by_text(name, exact=True))).to_contain_text(known)
    for name, value in (("Session", "8"), ("MAC address", session["mac_address"])):
        shown.page.get_by_role("button", name=f"Copy {name}").click()
        expect(shown.page.locator("#toasts p").last).to_have_text(f"Copied {value}")
        assert shown.page.evaluate("navigator.clipboard.readText()") == value
    # Fields that a later core may have, a stale session with IPv6 only, and a clock that is ten days behind.
    strange = {"line_profile": "vdsl-100", "line_speed": None, "state": "stale"}
    strange |= {"ip_address": None, "mac_address": None, "inner_vlan_id": None}
    record = re.compile("/api/v1/subscribers(/13|[?].*search=13.*)$")
    shown.page.route(record, lambda route: altered(route, **strange))
    shown.page.add_init_script("const now = Date.now; Date.now = () => now() - 10 * 86_400_000")
    shown.page.reload()
    shown.find("13")
    expect(shown.page.locator("#record-state")).to_have_text("Stale: the source does not reply")
    expect(rows(shown)).to_contain_text("2001:db8:0:c::2")
    expect(fields.locator('div[data-key="Line profile"]')).to_contain_text("vdsl-100")
    expect(fields.locator('div[data-key="Line speed"]')).to_contain_text("none")
    assert "null" not in fields.inner_text()
    assert "_" not in "".join(fields.locator("dt").all_inner_texts())
    hours = int(time.time() - shown.api.get("/subscribers/13")["started_at"]) // 3600
    expect(fields.locator('div[data-key="Online since"]')).to_contain_text(
        re.compile(rf"\b({hours}|{hours + 1}) h\b")
    )
    shown.page.get_by_role("button", name="Disconnect…").click()
    expect(shown.page.get_by_role("dialog")).to_contain_text("(session 13, 2001:db8:0:c::2)")


def test_a_record_measures_its_traffic_and_stays_closed(shown: Screen) -> None:
    def bars() -> int:
        return (shown.page.locator("#record-chart path.up").get_attribute("d") or "").count("M")

    traffic, fields = "**/subscribers/9/traffic", shown.page.locator("#record-fields")
    # A busy browser could draw the first sample before it is asked.
    shown.page.route(traffic, lambda route: None)
    shown.find("9")
    expect(fields).to_contain_text("measuring")
    assert bars() == 0
    # That lets the request go on.
    shown.page.unroute(traffic)
    expect(fields).to_contain_text("bit/s down, ")
    expect(fields).not_to_contain_text("measuring")
    wait_for("a sample", lambda: bars() >= 1)
    shown.page.get_by_role("button", name="Close").click()
    shown.page.get_by_role("button", name="Refresh").click()
    shown.page.wait_for_timeout(1000)
    expect(shown.page.locator("#record")).to_be_hidden()


def test_an_admin_disconnects_a_subscriber_whose_timeline_tells_why_and_by_whom(
    shown: Screen, ids: Iterator[int]
) -> None:
    id = next(ids)
    session = shown.api.get(f"/subscribers/{id}")
    shown.find(str(id))
    expect(shown.page.locator("#record-timeline .session-up")).to_be_visible()
    disconnect, dialog = (
        shown.page.get_by_role("button", name="Disconnect…"),
        shown.page.get_by_role("dialog"),
    )
    disconnect.click()
    expect(dialog).to_contain_text(f"session {id}")
    dialog.get_by_role("button", name="Cancel").click()
    assert shown.api.send("GET", f"/subscribers/{id}").ok
    disconnect.click()
    dialog.get_by_role("button", name="Disconnect").click()
    expect(dialog).to_be_hidden()
    who = f"{session['username']}, {session['ip_address']}, {session['mac_address']}"
    expect(shown.page.locator("#toasts")).to_have_text(f"Session {id} disconnected: {who}")
    expect(shown.page.locator("#record-state")).to_contain_text("admin disconnect")
    expect(disconnect).to_be_disabled()
    expect(rows(shown).first).to_have_class("gone")
    end = shown.page.locator("#record-timeline .session-down")
    expect(end).to_contain_text("admin_disconnect, by admin")
    entries = shown.api.get(f"/subscribers/{id}/timeline")["entries"]
    at = next(entry["at"] for entry in entries if entry["event"] == "session.down")
    # The API reads what the page shows.
    assert epoch_seconds(end.locator("time").inner_text(), time.time()) == at
    # It is a session of the past now.
    shown.go("History")
    shown.page.get_by_label("IP address then").fill(session["ip_address"])
    shown.page.get_by_role("button", name="Filter").locator("visible=true").click()
    former = shown.page.locator("#history-list tbody tr")
    expect(former).to_have_count(1)
    expect(former).to_contain_text("admin disconnect")
    former.get_by_role("link").click()
    expect(shown.page.locator("#record-state")).to_contain_text("Ended")


def test_a_session_that_ends_before_or_after_the_user_acts_is_said_to_have_ended(
    shown: Screen, ids: Iterator[int]
) -> None:
    id = next(ids)
    shown.find(str(id))
    shown.page.get_by_role("button", name="Disconnect…").click()
    shown.api.send("DELETE", f"/subscribers/{id}")
    dialog = shown.page.get_by_role("dialog")
    dialog.get_by_role("button", name="Disconnect").click()
    expect(dialog.get_by_role("alert")).to_have_text("No such session")
    dialog.get_by_role("button", name="Cancel").click()
    expect(shown.page.locator("#record-state")).to_contain_text("Ended at")
    # Also where the event is lost.
    id = next(ids)
    shown.page.route("**/events/subscribers*", lambda route: route.abort())
    shown.page.reload()
    shown.find(str(id))
    expect(shown.page.get_by_role("button", name="Disconnect…")).to_be_enabled()
    assert shown.api.send("DELETE", f"/subscribers/{id}").ok
    expect(shown.page.locator("#record-state")).to_have_text("Ended")
    for name in ("Disconnect…", "Change rate…"):
        expect(shown.page.get_by_role("button", name=name)).to_be_disabled()


def test_an_admin_changes_a_rate_for_good_or_for_an_hour(shown: Screen, ids: Iterator[int]) -> None:
    id = next(ids)
    shown.find(str(id))
    change, dialog = shown.page.get_by_role("button", name="Change rate…"), shown.page.get_by_role("dialog")
    submit, fields = dialog.get_by_role("button", name="Change rate"), shown.page.locator("#record-fields")
    change.click()
    expect(dialog.get_by_label("Downstream")).to_have_value("100 Mbit")
    dialog.get_by_label("Downstream").fill("fast")
    submit.click()
    expect(dialog.get_by_role("alert")).to_contain_text("rate_down: must be a number and a unit")
    dialog.get_by_label("Downstream").fill("250000000")
    submit.click()
    expect(dialog.locator("#rate-down:invalid")).to_have_attribute(
        "title", "A number and a unit, for example 250 Mbit"
    )
    dialog.get_by_label("Downstream").fill("250 Mbit/s")
    dialog.get_by_label("Upstream").fill("33.3 mbps")
    submit.click()
    expect(dialog).to_be_hidden()
    expect(shown.page.locator("#record-state")).to_have_text(f"Rate change requested for session {id}")
    expect(fields).to_contain_text("250 Mbit/s down, 33.3 Mbit/s up")
    expect(fields).not_to_contain_text("Rate until")
    expect(rows(shown)).to_contain_text("33.3 Mbit/s")
    session = shown.api.get(f"/subscribers/{id}")
    assert (session["rate_down_bps"], session["rate_expires_at"]) == (250_000_000, None)
    change.click()
    dialog.get_by_label("Downstream").fill("77 Mbit")
    dialog.get_by_label("The former rate returns").select_option("after an hour")
    submit.click()
    expect(fields).to_contain_text("Rate until")
    expect(fields).to_contain_text("then 250 Mbit/s down, 33.3 Mbit/s up")
    expect(shown.page.locator("#record-timeline")).to_contain_text("by admin")
    assert shown.api.get(f"/subscribers/{id}")["rate_expires_at"] is not None


def test_failed_sign_ons_are_in_the_timeline_and_found_by_a_part_of_a_username(
    shown: Screen, folder: Path
) -> None:
    session = shown.api.get("/subscribers/16")
    name, at = session["username"], session["started_at"] + 60
    remember_failures(folder / "history.sqlite", *(failed(at + 5 * n, username=name) for n in range(3)))
    shown.find("16")
    entry = shown.page.locator("#record-timeline .sign_on-failed")
    expect(entry).to_contain_text(f"Sign-on of {name} on trunk0.7 failed, rejected, 3 times until")
    shown.go("Failed sign-ons")
    view = shown.page.get_by_label("Failed sign-ons")
    view.get_by_label("Part of a username").fill(name.partition("@")[0].upper())
    view.get_by_role("button", name="Filter").click()
    row = shown.page.locator("#failure-list tbody tr")
    expect(row).to_have_count(1)
    expect(row).to_contain_text(f"{name}")
    expect(row).to_contain_text("rejected3")


# Many at once


def matching(api: Api, **filter: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = api.get("/subscribers", params=filter)["sessions"]
    return found


def interface(api: Api) -> str:
    """An access interface with more than one session."""
    names: list[str] = [session["access_interface"] for session in matching(api)]
    return max(names, key=names.count)


def choose(shown: Screen, search: str, button: str) -> Locator:
    """Searches, and opens the dialog of a button."""
    shown.find(search)
    expect(shown.page.locator("#bulk-match")).to_have_text(re.compile("match"))
    shown.page.get_by_role("button", name=button).click()
    return shown.page.get_by_role("dialog")


def test_actions_on_all_sessions_require_a_condition_that_chooses_some(shown: Screen) -> None:
    buttons = [
        shown.page.get_by_role("button", name=name) for name in ("Disconnect all…", "Change rates of all…")
    ]
    match = shown.page.locator("#bulk-match")
    for button in buttons:
        expect(button).to_be_disabled()
        why = "To act on many sessions, search or choose a type first."
        expect(button).to_have_accessible_description(why)
    shown.page.get_by_label("Type").select_option("PPPoE")
    expect(match).to_have_text(f"{shown.api.get('/subscribers/summary')['pppoe']} sessions match.")
    expect(buttons[0]).to_be_enabled()
    for text, said in (("nobody@example.net", "0 sessions match."), ("30", "30 may be a session id, a VLAN")):
        shown.find(text)
        expect(match).to_contain_text(said)
        for button in buttons:
            expect(button).to_be_disabled()
    session = shown.api.get("/subscribers/30")
    dialog = choose(shown, "id:30", "Disconnect all…")
    expect(dialog).to_contain_text(
        f"{session['username']}, {session['ip_address']}, {session['mac_address']}"
    )


def test_rates_of_all_that_match_change_after_the_number_is_entered(shown: Screen) -> None:
    name = interface(shown.api)
    found = matching(shown.api, interface=name)
    dialog = choose(shown, name, "Change rates of all…")
    dialog.get_by_role("button", name="Continue").click()
    expect(dialog.get_by_role("alert")).to_contain_text("rate_down")
    dialog.get_by_label("Downstream").fill("77 Mbit")
    dialog.get_by_label("The former rate returns").select_option("after an hour")
    dialog.get_by_role("button", name="Continue").click()
    expect(dialog).to_contain_text(f"Change rates of {len(found)} sessions?")
    expect(dialog).to_contain_text(f"search {name}")
    expect(dialog.locator("li").first).to_contain_text(found[0]["username"])
    dialog.get_by_label("to confirm").fill(str(len(found) + 1))
    dialog.get_by_role("button", name="Change all rates").click()
    expect(dialog).to_be_visible()
    assert shown.api.get("/subscribers/jobs")["count"] == 0
    dialog.get_by_label("to confirm").fill(str(len(found)))
    dialog.get_by_role("button", name="Change all rates").click()
    expect(dialog).to_be_hidden()
    title = shown.page.locator("#job-title")
    expect(title).to_contain_text(f"change rates of {len(found)} sessions")
    expect(title).to_be_focused()
    expect(shown.page.locator("#job-state")).to_have_text("Done")
    expect(shown.page.locator("#job .fields div").first).to_have_text(re.compile(f"Done.*{len(found)}"))
    for session in matching(shown.api, interface=name):
        record = shown.api.get(f"/subscribers/{session['id']}")
        assert record["rate_down_bps"] == 77_000_000
        assert record["rate_expires_at"] is not None
    expect(rows(shown).first).to_contain_text("77 Mbit/s")


def test_all_that_match_are_disconnected_at_the_speed_that_is_chosen_until_the_job_is_cancelled(
    shown: Screen,
) -> None:
    name = interface(shown.api)
    found = matching(shown.api, interface=name)
    dialog = choose(shown, name, "Disconnect all…")
    expect(dialog.get_by_role("button", name="Cancel")).to_be_focused()
    expect(dialog).to_contain_text(f"Disconnect {len(found)} sessions?")
    speed, submit = (
        dialog.get_by_label("Sessions per second"),
        dialog.get_by_role("button", name="Disconnect all"),
    )
    expect(speed).to_have_accessible_description("1 to 10,000; 100 if empty.")
    dialog.get_by_label("to confirm").fill(str(len(found)))
    speed.fill("10001")
    submit.click()
    expect(dialog).to_be_visible()
    assert len(matching(shown.api, interface=name)) == len(found)
    speed.fill("")
    submit.click()
    expect(shown.page.locator("#job-state")).to_have_text("Done")
    assert matching(shown.api, interface=name) == []
    expect(shown.page.locator("#list-range")).to_have_text("no matches")
    dialog = choose(shown, "trunk0", "Disconnect all…")
    dialog.get_by_label("to confirm").fill(str(len(matching(shown.api, search="trunk0"))))
    speed.fill("1")
    submit.click()
    state = shown.page.locator("#job-state")
    expect(state).to_have_text("Running")
    job = shown.api.get("/subscribers/jobs")["jobs"][0]
    assert job["per_second"] == 1
    # The job has a link.
    assert f"job={job['id']}" in shown.page.url
    shown.page.reload()
    shown.page.get_by_role("button", name="Cancel the job").click()
    expect(state).to_contain_text("Cancelled")
    expect(shown.page.get_by_role("button", name="Cancel the job")).to_be_disabled()
    assert shown.api.get(f"/subscribers/jobs/{job['id']}")["state"] == "cancelled"
    shown.page.goto(f"{shown.api.url}/#subscribers?job=999")
    expect(shown.page.locator("#job-problem")).to_contain_text("No such job")


def test_jobs_are_listed_for_everybody_and_an_admin_cancels_one(shown: Screen, browser: Browser) -> None:
    body = {"filter": {"type": "pppoe"}, "per_second": 1}
    id = shown.api.send("POST", "/subscribers/disconnect", json=body).json()["data"]["id"]
    last = matching(shown.api)[-1]["id"]
    with screen(browser, shown.api) as operator:
        operator.open(f"#subscribers?type=pppoe&open={last}&job={id}").sign_in("operator")
        expect(operator.page.locator("#job-state")).to_have_text("Running")
        expect(operator.page.locator("#record-title")).not_to_be_empty()
        for name in (
            *("Disconnect all…", "Change rates of all…", "Cancel the job"),
            *("Disconnect…", "Change rate…"),
        ):
            expect(operator.page.get_by_role("button", name=name)).to_be_hidden()
        operator.page.locator("#job").get_by_role("link", name="All jobs").click()
        expect(operator.page.locator("#job-list tbody tr").first).to_contain_text("Running")
        expect(operator.page.get_by_role("button", name=f"Cancel job {id}")).to_have_count(0)
    shown.go("Jobs")
    table = shown.page.locator("#job-list tbody tr")
    expect(table).to_have_count(shown.api.get("/subscribers/jobs")["count"])
    for text in (f"Job {id}", "disconnect", "type pppoe", "Running", shown.api.environment["ADMIN_USER"]):
        expect(table.first).to_contain_text(text)
    expect(table.first).to_contain_text(re.compile("[1-9] of [0-9]"))
    shown.page.get_by_role("button", name=f"Cancel job {id}").focus()
    shown.page.keyboard.press("Enter")
    expect(table.first).to_contain_text("Cancelled")
    # The button is gone.
    expect(table.first.get_by_role("link")).to_be_focused()

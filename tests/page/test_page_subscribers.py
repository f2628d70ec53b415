"""Subscribers on the live page: finding them, what may be done to them, and what was."""

import csv
import json
import re
import time
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Locator, expect

from gateway_contract.base.texts import parse_time
from tests.support.browser import Screen, screen
from tests.support.histories import failed, remember_failures
from tests.support.stack import Api, wait_for


@pytest.fixture
def id(own: Api) -> int:
    """The newest session: tests may end it."""
    found: int = own.get("/subscribers", params={"sort": "-id", "limit": 1})["sessions"][0]["id"]
    return found


def test_a_subscriber_is_found_by_whatever_is_known_of_it(shown: Screen) -> None:
    session = shown.api.get("/subscribers/8")
    network = session["ipv6_prefix"].partition("/")[0]
    title = shown.page.locator("#record-title")
    for text in (" 8 ", session["username"], session["mac_address"].upper(), f"{network}ffff"):
        shown.find(text)
        expect(shown.rows()).to_have_count(1)
        expect(title).to_have_text(session["username"])
        expect(title).to_be_focused()
        shown.find("nobody@example.net")
        expect(shown.page.locator("#list-range")).to_have_text("no matches")
        expect(shown.page.locator("#record")).to_be_hidden()
    shown.find(session["username"])
    for name, known in {
        "IPv6 address": session["ipv6_address"],
        "Delegated prefixes": session["delegated_prefixes"][0],
        "VLAN": f"{session['outer_vlan_id']}.{session['inner_vlan_id']}",
        "Source": "lab",
    }.items():
        expect(shown.page.locator(f'#record-fields div[data-key="{name}"]')).to_contain_text(known)
    for name, field in {"Session": "id", "MAC address": "mac_address", "IP address": "ip_address"}.items():
        shown.press(f"Copy {name}")
        expect(shown.page.locator("#toasts p").last).to_have_text(f"Copied {session[field]}")
        assert shown.page.evaluate("navigator.clipboard.readText()") == str(session[field])


def test_the_traffic_of_the_open_session_is_measured(shown: Screen) -> None:
    shown.find("13")
    fields = shown.page.locator("#record-fields")
    expect(fields).to_contain_text("bit/s down, ")
    wait_for("a sample", lambda: shown.bars("record-chart") >= 1)
    # The browser may draw the first sample before the test asks for it.
    shown.page.route("**/subscribers/9/traffic", lambda route: None)
    shown.find("9")
    expect(fields).to_contain_text("measuring")
    assert shown.bars("record-chart") == 0


def test_the_list_is_filtered_sorted_and_in_pages_that_have_links(shown: Screen) -> None:
    shown.go("Subscribers")
    ids, pages = shown.rows().locator("td:first-child"), shown.page.locator("#list-range")
    total = shown.api.get("/subscribers/summary")["dhcp"]
    shown.page.get_by_label("Type").select_option("DHCP")
    expect(pages).to_have_text(f"1 to 50 of {total}")
    first = ids.all_text_contents()
    assert first == sorted(first, key=int)
    shown.press("Next")
    expect(pages).to_have_text(f"51 to 100 of {total}")
    second = ids.all_text_contents()
    assert not set(first) & set(second)
    shown.page.reload()
    expect(pages).to_have_text(f"51 to 100 of {total}")
    assert ids.all_text_contents() == second
    shown.press("Previous")
    expect(pages).to_have_text(f"1 to 50 of {total}")
    header = shown.page.get_by_role("columnheader", name="IP address")
    for direction in ("descending", "ascending"):
        header.get_by_role("button").click()
        expect(header).to_have_attribute("aria-sort", direction)
    query = {"sort": "ip_address", "limit": "1", "type": "dhcp"}
    least = shown.api.get("/subscribers", params=query)["sessions"][0]["ip_address"]
    expect(shown.rows().first).to_contain_text(least)
    sent = [request.url for request in shown.requests if "/subscribers?" in request.url]
    assert all("limit=50" in url for url in sent)


def test_a_list_is_exported_as_it_is_filtered_without_formulas(shown: Screen, tmp_path: Path) -> None:
    formula = '=HYPERLINK("https://evil.example")'
    shown.page.goto(f"{shown.api.url}/#subscribers?type=dhcp&sort=id")
    shown.change_response(
        "**/subscribers?*limit=10000", lambda data: data["sessions"][0].update(username=formula)
    )
    with shown.page.expect_download() as started:
        shown.press("Export CSV")
    assert started.value.suggested_filename.startswith("subscribers-")
    started.value.save_as(tmp_path / "list.csv")
    with (tmp_path / "list.csv").open(newline="") as file:
        exported = list(csv.DictReader(file))
    wanted = shown.api.get("/subscribers", params={"type": "dhcp", "sort": "id"})["sessions"]
    wanted[0]["username"] = f"'{formula}"
    assert [row["id"] for row in exported] == [str(session["id"]) for session in wanted]
    for row, session in zip(exported[:2], wanted[:2], strict=True):
        lists = {name: json.dumps(value) for name, value in session.items() if isinstance(value, list)}
        assert row == {name: str(value or "") for name, value in (session | lists).items()}
    expect(shown.page.locator("#toasts")).to_have_text(f"Exported {len(wanted)} records.")


def test_a_stale_session_and_fields_that_the_page_does_not_know_are_shown(shown: Screen) -> None:
    def change(data: Any) -> None:
        for session in data.get("sessions", [data]):
            session |= {"state": "stale", "ip_address": None, "mac_address": None, "inner_vlan_id": None}
        data |= {"line_profile": "vdsl-100", "line_speed": None}

    shown.change_response(re.compile("/api/v1/subscribers(/13|[?].*search=13.*)$"), change)
    shown.find("13")
    expect(shown.page.locator("#record-state")).to_have_text("Stale: the source does not reply")
    expect(shown.rows()).to_contain_text("2001:db8:0:c::2")
    fields = shown.page.locator("#record-fields")
    assert "null" not in fields.inner_text()
    expect(fields.locator('div[data-key="Line profile"]')).to_contain_text("vdsl-100")
    expect(fields.locator('div[data-key="Line speed"]')).to_contain_text("none")
    shown.press("Disconnect…")
    expect(shown.page.get_by_role("dialog")).to_contain_text("(session 13, 2001:db8:0:c::2)")


def test_a_number_that_may_be_a_username_opens_no_session(shown: Screen) -> None:
    history, note = re.compile("/api/v1/subscribers/history[?]"), shown.page.locator("#list-namesake")
    shown.change_response(history, lambda data: data.update(sessions=[{"id": 7, "username": "13"}]))
    shown.find("13")
    expect(note).to_contain_text("13 is also the username of a subscriber without a session now.")
    expect(shown.rows()).to_have_count(1)
    expect(shown.page.locator("#record")).to_be_hidden()
    shown.find("id:13")
    expect(note).to_be_hidden()
    expect(shown.page.locator("#record-title")).to_have_text(shown.api.get("/subscribers/13")["username"])
    shown.page.unroute(history)
    refusal = {"status": "error", "message": "The history is not available"}
    shown.page.route(history, lambda route: route.fulfill(status=503, json=refusal))
    shown.find("13")
    expect(note).to_contain_text("13 may also be a username")
    expect(shown.page.locator("#record")).to_be_hidden()


def test_the_age_of_a_session_is_by_the_clock_of_the_gateway(shown: Screen) -> None:
    started = shown.api.get("/subscribers/13")["started_at"]
    shown.page.add_init_script("const now = Date.now; Date.now = () => now() - 10 * 86_400_000")
    shown.page.reload()
    shown.find("13")
    hours = int(time.time() - started) // 3600
    wanted = re.compile(rf"\b({hours}|{hours + 1}) h\b")
    expect(shown.rows().locator("td").last).to_have_text(wanted)
    expect(shown.page.locator('#record-fields div[data-key="Online since"]')).to_contain_text(wanted)


def test_an_admin_disconnects_a_subscriber_after_a_question(shown: Screen, id: int) -> None:
    shown.find(str(id))
    session = shown.api.get(f"/subscribers/{id}")
    shown.press("Disconnect…").confirm("Cancel")
    assert shown.api.send("GET", f"/subscribers/{id}").ok
    shown.press("Disconnect…").confirm("Disconnect")
    who = f"{session['username']}, {session['ip_address']}, {session['mac_address']}"
    expect(shown.page.locator("#toasts")).to_have_text(f"Session {id} disconnected: {who}")
    expect(shown.page.locator("#record-state")).to_contain_text("admin disconnect")
    expect(shown.page.get_by_role("button", name="Disconnect…")).to_be_disabled()
    expect(shown.rows().first).to_have_class("gone")
    assert shown.api.send("GET", f"/subscribers/{id}").status_code == 404
    expect(shown.page.locator("#toasts p")).to_have_count(0)


def test_a_session_that_ends_before_the_admin_answers_is_said_to_have_ended(shown: Screen, id: int) -> None:
    shown.find(str(id))
    expect(shown.page.locator("#record-state")).to_have_text("Active")
    shown.press("Disconnect…")
    assert shown.api.send("DELETE", f"/subscribers/{id}").ok
    expect(shown.page.locator("#record-state")).to_contain_text("Ended at")
    shown.confirm("Disconnect")
    expect(shown.page.get_by_role("dialog").get_by_role("alert")).to_have_text("No such session")


def test_a_session_that_ended_unseen_has_no_live_buttons(shown: Screen, id: int) -> None:
    # The event of its end is lost.
    shown.page.route("**/events/subscribers*", lambda route: route.abort())
    shown.page.goto(f"{shown.api.url}/#subscribers?open={id}")
    shown.page.reload()
    expect(shown.page.get_by_role("button", name="Disconnect…")).to_be_enabled()
    assert shown.api.send("DELETE", f"/subscribers/{id}").ok
    expect(shown.page.locator("#record-state")).to_have_text("Ended")
    for name in ("Disconnect…", "Change rate…"):
        expect(shown.page.get_by_role("button", name=name)).to_be_disabled()


def test_an_admin_changes_a_rate_and_for_an_hour(shown: Screen, id: int) -> None:
    shown.find(str(id))
    shown.press("Change rate…")
    dialog = shown.page.get_by_role("dialog")
    expect(dialog.get_by_label("Downstream")).to_have_value("100 Mbit")
    dialog.get_by_label("Downstream").fill("fast")
    shown.confirm("Change rate")
    expect(dialog.get_by_role("alert")).to_contain_text("rate_down: must be a number and a unit")
    dialog.get_by_label("Downstream").fill("250000000")
    shown.confirm("Change rate")
    expect(dialog.locator("#rate-down:invalid")).to_be_visible()
    dialog.get_by_label("Downstream").fill("250 Mbit/s")
    dialog.get_by_label("Upstream").fill("33.3 mbps")
    shown.confirm("Change rate")
    expect(dialog).to_be_hidden()
    expect(shown.page.locator("#record-state")).to_have_text(f"Rate change requested for session {id}")
    expect(shown.page.locator("#record-fields")).to_contain_text("250 Mbit/s down, 33.3 Mbit/s up")
    expect(shown.rows()).to_contain_text("250 Mbit/s")
    session = shown.api.get(f"/subscribers/{id}")
    assert (session["rate_down_bps"], session["rate_up_bps"]) == (250_000_000, 33_300_000)
    assert session["rate_expires_at"] is None
    shown.press("Change rate…")
    dialog.get_by_label("Downstream").fill("70 Mbit")
    dialog.get_by_label("The former rate returns").select_option("after an hour")
    shown.confirm("Change rate")
    expect(shown.page.locator("#record-fields")).to_contain_text("then 250 Mbit/s down, 33.3 Mbit/s up")
    assert shown.api.get(f"/subscribers/{id}")["rate_expires_at"] is not None
    expect(shown.page.locator("#record-timeline")).to_contain_text("by admin")


def test_a_session_that_ended_is_found_in_the_history_with_its_timeline(shown: Screen) -> None:
    session = shown.api.get("/subscribers/14")
    shown.page.goto(f"{shown.api.url}/#subscribers?open=14")
    expect(shown.page.locator("#record-timeline .session-up")).to_be_visible()
    shown.press("Disconnect…").confirm("Disconnect")
    end = shown.page.locator("#record-timeline .session-down")
    expect(end).to_contain_text("admin_disconnect, by admin")
    entries = shown.api.get("/subscribers/14/timeline")["entries"]
    at = next(entry["at"] for entry in entries if entry["event"] == "session.down")
    # The API reads what the page shows.
    assert parse_time(end.locator("time").inner_text(), time.time()) == at
    shown.go("History")
    shown.page.get_by_label("IP address then").fill(session["ip_address"])
    shown.press("Filter")
    expect(shown.rows("history-list")).to_have_count(1)
    expect(shown.rows("history-list")).to_contain_text("admin disconnect")
    shown.rows("history-list").get_by_role("link").click()
    shown.page.reload()
    expect(shown.page.locator("#record-state")).to_have_text("Ended")
    expect(end).to_be_visible()
    expect(shown.page.get_by_role("button", name="Disconnect…")).to_be_disabled()


def test_failed_sign_ons_are_in_the_timeline_and_in_a_list(shown: Screen, folder: Path) -> None:
    session = shown.api.get("/subscribers/16")
    name, at = session["username"], session["started_at"] + 60
    remember_failures(folder / "history.sqlite", *(failed(at + 5 * n, username=name) for n in range(3)))
    shown.page.goto(f"{shown.api.url}/#subscribers?open=16")
    entry = shown.page.locator("#record-timeline .sign_on-failed")
    expect(entry).to_contain_text(f"Sign-on of {name} on trunk0.7 failed, rejected, 3 times until")
    shown.go("History")
    shown.page.get_by_role("main").get_by_role("link", name="failed sign-ons").click()
    view = shown.page.get_by_label("Failed sign-ons")
    view.get_by_label("Part of a username").fill(name.partition("@")[0].upper())
    view.get_by_role("button", name="Filter").click()
    expect(shown.rows("failure-list")).to_have_count(1)
    expect(shown.rows("failure-list")).to_contain_text(name)
    expect(shown.rows("failure-list")).to_contain_text("rejected3")


def test_an_operator_is_offered_nothing_that_only_an_admin_may_do(browser: Browser, own: Api) -> None:
    with screen(browser, own) as shown:
        shown.open().sign_in("operator").find("7")
        expect(shown.page.locator("#record-state")).to_have_text("Active")
        for name in ("Disconnect…", "Change rate…"):
            expect(shown.page.get_by_role("button", name=name)).to_be_hidden()
        shown.go("Configuration")
        expect(shown.page.locator("#waiting-hidden")).to_be_visible()
        for name in ("Commit…", "Discard…", "Set", "Delete at this path", "Confirm"):
            expect(shown.page.get_by_role("button", name=name, exact=True)).to_be_hidden()
        shown.go("Users")
        expect(shown.rows("user-list")).to_have_count(2)
        expect(shown.page.get_by_role("link", name="Audit")).to_be_hidden()
        expect(shown.page.get_by_role("button", name="Remove")).to_have_count(0)
        expect(shown.page.get_by_label("New username")).to_be_hidden()
        expect(shown.page.get_by_role("button", name="End the tokens of operator")).to_be_visible()
        statuses = [sent.response().status for sent in shown.requests if "/events/" not in sent.url]  # type: ignore[union-attr]
        assert set(statuses) <= {200}


# Actions on all sessions that match: the dry run, the confirmation and the job.


ACTIONS = ("Disconnect all…", "Change rates of all…")


def sessions_of(api: Api, **filter: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = api.get("/subscribers", params=filter)["sessions"]
    return found


def shared_interface(api: Api) -> str:
    """Returns the access interface with the most sessions."""
    names: list[str] = [session["access_interface"] for session in sessions_of(api)]
    return max(names, key=names.count)


def open_dialog(shown: Screen, search: str, button: str) -> Locator:
    shown.find(search)
    expect(shown.page.locator("#bulk-match")).to_have_text(re.compile("match"))
    shown.press(button)
    return shown.page.get_by_role("dialog")


def start_slow_job(api: Api) -> int:
    """Starts a job that disconnects one session per second, and returns its id."""
    body = {"filter": {"type": "pppoe"}, "per_second": 1}
    id: int = api.send("POST", "/subscribers/disconnect", json=body).json()["data"]["id"]
    return id


def test_actions_on_all_sessions_require_a_clear_condition(shown: Screen) -> None:
    shown.go("Subscribers")
    match = shown.page.locator("#bulk-match")

    def assert_enabled(is_enabled: bool) -> None:
        for name in ACTIONS:
            expect(shown.page.get_by_role("button", name=name)).to_be_enabled(enabled=is_enabled)

    assert_enabled(False)
    why = "To act on many sessions, search or choose a type first."
    expect(shown.page.get_by_role("button", name=ACTIONS[0])).to_have_accessible_description(why)
    shown.page.get_by_label("Type").select_option("PPPoE")
    expect(match).to_have_text(f"{shown.api.get('/subscribers/summary')['pppoe']} sessions match.")
    assert_enabled(True)
    shown.find("nobody@example.net")
    expect(match).to_have_text("0 sessions match.")
    assert_enabled(False)
    session = sessions_of(shown.api)[0]
    shown.find(str(session["id"]))
    expect(match).to_contain_text(f"{session['id']} may be a session id, a VLAN id")
    assert_enabled(False)
    dialog = open_dialog(shown, f"id:{session['id']}", ACTIONS[0])
    expect(dialog).to_contain_text(session["mac_address"])


def test_rates_of_all_that_match_change_after_the_number_is_entered(shown: Screen) -> None:
    name = shared_interface(shown.api)
    found = sessions_of(shown.api, interface=name)
    dialog = open_dialog(shown, name, "Change rates of all…")
    shown.confirm("Continue")
    expect(dialog.get_by_role("alert")).to_contain_text("rate_down")
    dialog.get_by_label("Downstream").fill("77 Mbit")
    dialog.get_by_label("The former rate returns").select_option("after an hour")
    shown.confirm("Continue")
    expect(dialog).to_contain_text(f"Change rates of {len(found)} sessions?")
    expect(dialog).to_contain_text(f"search {name}")
    expect(dialog.locator("li").first).to_contain_text(found[0]["username"])
    for number in (len(found) + 1, len(found)):
        assert shown.api.get("/subscribers/jobs")["count"] == 0
        dialog.get_by_label("to confirm").fill(str(number))
        shown.confirm("Change all rates")
    expect(shown.page.locator("#job-title")).to_contain_text(f"change rates of {len(found)} sessions")
    expect(shown.page.locator("#job-title")).to_be_focused()
    expect(shown.page.locator("#job-state")).to_have_text("Done")
    for session in sessions_of(shown.api, interface=name):
        record = shown.api.get(f"/subscribers/{session['id']}")
        assert (record["rate_down_bps"], record["former_rate_down_bps"]) == (77_000_000, 100_000_000)
        assert record["rate_expires_at"] is not None
    expect(shown.rows().first).to_contain_text("77 Mbit/s")


def test_all_that_match_are_disconnected_at_a_speed_that_the_api_takes(shown: Screen) -> None:
    name = shared_interface(shown.api)
    number = len(sessions_of(shown.api, interface=name))
    dialog = open_dialog(shown, name, "Disconnect all…")
    expect(dialog.get_by_role("button", name="Cancel")).to_be_focused()
    shown.confirm("Cancel")
    shown.press("Disconnect all…")
    expect(dialog).to_contain_text(f"Disconnect {number} sessions?")
    dialog.get_by_label("to confirm").fill(str(number))
    speed = dialog.get_by_label("Sessions per second")
    expect(speed).to_have_accessible_description("1 to 10,000; 100 if empty.")
    speed.fill("10001")
    shown.confirm("Disconnect all")
    expect(dialog).to_be_visible()
    assert len(sessions_of(shown.api, interface=name)) == number
    speed.fill("1000")
    shown.confirm("Disconnect all")
    expect(shown.page.locator("#job-state")).to_have_text("Done")
    expect(shown.page.locator("#job .fields div").first).to_have_text(re.compile(f"Done.*{number}"))
    assert shown.api.get("/subscribers/jobs")["jobs"][0]["per_second"] == 1000
    assert sessions_of(shown.api, interface=name) == []
    expect(shown.page.locator("#list-range")).to_have_text("no matches")


def test_an_admin_cancels_a_job_in_the_list_of_jobs(shown: Screen) -> None:
    id = start_slow_job(shown.api)
    shown.go("Jobs")
    row = shown.rows("job-list").first
    for text in (f"Job {id}", "disconnect", "type pppoe", "Running", shown.api.environment["ADMIN_USER"]):
        expect(row).to_contain_text(text)
    expect(row).to_contain_text(re.compile("[1-9] of [0-9]"))
    expect(shown.rows("job-list")).to_have_count(shown.api.get("/subscribers/jobs")["count"])
    shown.page.get_by_role("button", name=f"Cancel job {id}").focus()
    shown.page.keyboard.press("Enter")
    expect(row).to_contain_text("Cancelled")
    # The button is gone.
    expect(row.get_by_role("link")).to_be_focused()
    assert shown.api.get(f"/subscribers/jobs/{id}")["state"] == "cancelled"


def test_an_operator_follows_the_link_of_a_job_that_an_admin_cancels(browser: Browser, shown: Screen) -> None:
    id = start_slow_job(shown.api)
    state = "#job-state"
    with screen(browser, shown.api) as operators:
        operators.open(f"#subscribers?job={id}").sign_in("operator")
        expect(operators.page.locator(state)).to_have_text("Running")
        expect(operators.page.locator("#job .fields div").first).not_to_have_text(re.compile("Done *0$"))
        for name in (*ACTIONS, "Cancel the job"):
            expect(operators.page.get_by_role("button", name=name)).to_be_hidden()
        shown.page.goto(f"{shown.api.url}/#subscribers?job={id}")
        # Another search leaves the job open.
        shown.page.get_by_label("Find a subscriber").fill("nobody@example.net")
        shown.press("Find").press("Cancel the job")
        expect(shown.page.get_by_role("button", name="Cancel the job")).to_be_disabled()
        expect(operators.page.locator(state)).to_contain_text("Cancelled")
        operators.page.locator("#job").get_by_role("link", name="All jobs").click()
        expect(operators.rows("job-list").first).to_contain_text("Cancelled")
    shown.page.locator("#job").get_by_role("button", name="Close").click()
    expect(shown.page.locator("#job")).to_be_hidden()
    shown.page.goto(f"{shown.api.url}/#subscribers?job=999")
    expect(shown.page.locator("#job-problem")).to_contain_text("No such job")

"""Actions of the live page on all sessions that match: the dry run, the confirmation and the job."""

import re
from typing import Any

from playwright.sync_api import Browser, Locator, expect

from tests.support.browser import Screen, screen
from tests.support.stack import Api

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

"""Actions of the live page on all sessions that match: the dry run, the confirmation and the job."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Locator, expect

from tests.support.browser import Screen, screen
from tests.support.stack import Api, running_stack

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    """A gateway whose sessions end only here."""
    with running_stack(tmp_path_factory.mktemp("own"), sessions=120) as (api, _):
        yield api


@pytest.fixture
def shown(browser: Browser, own: Api) -> Iterator[Screen]:
    with screen(browser, own) as opened:
        opened.open("#subscribers").sign_in()
        expect(opened.page.locator("#list-range")).to_contain_text(" of ")
        yield opened


def interface(api: Api) -> str:
    """An access interface with more than one session."""
    names: list[str] = [session["access_interface"] for session in api.get("/subscribers")["sessions"]]
    return max(names, key=names.count)


def matching(api: Api, **filter: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = api.get("/subscribers", params=filter)["sessions"]
    return found


def choose(shown: Screen, search: str, button: str) -> Locator:
    """Searches, and opens the dialog of a button."""
    shown.find(search)
    expect(shown.page.locator("#bulk-match")).to_have_text(re.compile("match"))
    shown.page.get_by_role("button", name=button).click()
    return shown.page.get_by_role("dialog")


def slow_job(api: Api) -> int:
    """A job that disconnects one session per second."""
    body = {"filter": {"type": "pppoe"}, "per_second": 1}
    id: int = api.send("POST", "/subscribers/disconnect", json=body).json()["data"]["id"]
    return id


def test_actions_on_all_sessions_require_a_condition(shown: Screen) -> None:
    for name in ("Disconnect all…", "Change rates of all…"):
        button = shown.page.get_by_role("button", name=name)
        expect(button).to_be_disabled()
        why = "To act on many sessions, search or choose a type first."
        expect(button).to_have_accessible_description(why)
    shown.page.get_by_label("Type").select_option("PPPoE")
    total = shown.api.get("/subscribers/summary")["pppoe"]
    expect(shown.page.locator("#bulk-match")).to_have_text(f"{total} sessions match.")
    expect(shown.page.get_by_role("button", name="Disconnect all…")).to_be_enabled()
    shown.find("nobody@example.net")
    expect(shown.page.locator("#bulk-match")).to_have_text("0 sessions match.")
    expect(shown.page.get_by_role("button", name="Disconnect all…")).to_be_disabled()


def test_a_number_does_not_choose_the_sessions_of_an_action(shown: Screen) -> None:
    session = matching(shown.api)[0]
    shown.find(str(session["id"]))
    expect(shown.page.locator("#bulk-match")).to_contain_text(
        f"{session['id']} may be a session id, a VLAN id"
    )
    for name in ("Disconnect all…", "Change rates of all…"):
        expect(shown.page.get_by_role("button", name=name)).to_be_disabled()
    dialog = choose(shown, f"id:{session['id']}", "Disconnect all…")
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
    for session in matching(shown.api, interface=name):
        record = shown.api.get(f"/subscribers/{session['id']}")
        assert (record["rate_down_bps"], record["former_rate_down_bps"]) == (77_000_000, 100_000_000)
        assert record["rate_expires_at"] is not None
    expect(shown.page.locator("#list tbody tr").first).to_contain_text("77 Mbit/s")


def test_all_that_match_are_disconnected_after_the_number_is_entered(shown: Screen) -> None:
    name = interface(shown.api)
    found = matching(shown.api, interface=name)
    dialog = choose(shown, name, "Disconnect all…")
    expect(dialog.get_by_role("button", name="Cancel")).to_be_focused()
    dialog.get_by_role("button", name="Cancel").click()
    assert len(matching(shown.api, interface=name)) == len(found)
    shown.page.get_by_role("button", name="Disconnect all…").click()
    expect(dialog).to_contain_text(f"Disconnect {len(found)} sessions?")
    dialog.get_by_label("to confirm").fill(str(len(found)))
    dialog.get_by_role("button", name="Disconnect all").click()
    expect(shown.page.locator("#job-state")).to_have_text("Done")
    expect(shown.page.locator("#job .fields div").first).to_have_text(re.compile(f"Done.*{len(found)}"))
    assert matching(shown.api, interface=name) == []
    expect(shown.page.locator("#list-range")).to_have_text("no matches")


def test_the_dialog_takes_the_speed_that_the_api_takes(shown: Screen) -> None:
    dialog = choose(shown, "trunk0", "Disconnect all…")
    speed = dialog.get_by_label("Sessions per second")
    expect(speed).to_have_accessible_description("1 to 10,000; 100 if empty.")
    number = len(matching(shown.api, search="trunk0"))
    dialog.get_by_label("to confirm").fill(str(number))
    speed.fill("10001")
    dialog.get_by_role("button", name="Disconnect all").click()
    expect(dialog).to_be_visible()
    assert len(matching(shown.api, search="trunk0")) == number
    speed.fill("1")
    dialog.get_by_role("button", name="Disconnect all").click()
    expect(shown.page.locator("#job-state")).to_have_text("Running")
    job = shown.api.get("/subscribers/jobs")["jobs"][0]
    assert job["per_second"] == 1
    assert shown.api.send("DELETE", f"/subscribers/jobs/{job['id']}").ok


def test_all_jobs_are_listed_and_an_admin_cancels_one(shown: Screen) -> None:
    id = slow_job(shown.api)
    shown.go("Jobs")
    row = shown.page.locator("#job-list tbody tr").first
    for text in (f"Job {id}", "disconnect", "type pppoe", "Running", shown.api.environment["ADMIN_USER"]):
        expect(row).to_contain_text(text)
    expect(row).to_contain_text(re.compile("[1-9] of [0-9]"))
    total = shown.api.get("/subscribers/jobs")["count"]
    expect(shown.page.locator("#job-list tbody tr")).to_have_count(total)
    row.get_by_role("link").click()
    expect(shown.page.locator("#job-state")).to_have_text("Running")
    shown.page.go_back()
    assert shown.page.url.endswith("#jobs")
    shown.page.get_by_role("button", name=f"Cancel job {id}").focus()
    shown.page.keyboard.press("Enter")
    expect(row).to_contain_text("Cancelled")
    # The button is gone.
    expect(row.get_by_role("link")).to_be_focused()
    assert shown.api.get(f"/subscribers/jobs/{id}")["state"] == "cancelled"


def test_a_job_has_a_link_and_an_admin_cancels_it(shown: Screen) -> None:
    id = slow_job(shown.api)
    shown.page.goto(f"{shown.api.url}/#subscribers?job={id}")
    expect(shown.page.locator("#job-state")).to_have_text("Running")
    done = shown.page.locator("#job .fields div").first
    expect(done).not_to_have_text(re.compile("Done *0$"))
    shown.page.get_by_label("Find a subscriber").fill("nobody@example.net")
    shown.page.get_by_role("button", name="Find").click()
    expect(shown.page.locator("#list-range")).to_have_text("no matches")
    shown.page.reload()
    shown.page.get_by_role("button", name="Cancel the job").click()
    expect(shown.page.locator("#job-state")).to_contain_text("Cancelled")
    expect(shown.page.get_by_role("button", name="Cancel the job")).to_be_disabled()
    assert shown.api.get(f"/subscribers/jobs/{id}")["state"] == "cancelled"
    shown.page.locator("#job").get_by_role("button", name="Close").click()
    expect(shown.page.locator("#job")).to_be_hidden()


def test_an_unknown_job_is_said_to_be_unknown(shown: Screen) -> None:
    shown.page.goto(f"{shown.api.url}/#subscribers?job=999")
    expect(shown.page.locator("#job-problem")).to_contain_text("No such job")


def test_an_operator_sees_a_job_and_no_action(browser: Browser, own: Api) -> None:
    id = slow_job(own)
    with screen(browser, own) as shown:
        shown.open(f"#subscribers?type=pppoe&job={id}").sign_in("operator")
        expect(shown.page.locator("#job-state")).to_have_text("Running")
        for name in ("Disconnect all…", "Change rates of all…", "Cancel the job"):
            expect(shown.page.get_by_role("button", name=name)).to_be_hidden()
        shown.page.locator("#job").get_by_role("link", name="All jobs").click()
        expect(shown.page.locator("#job-list tbody tr").first).to_contain_text("Running")
        expect(shown.page.get_by_role("button", name=f"Cancel job {id}")).to_have_count(0)
    assert own.send("DELETE", f"/subscribers/jobs/{id}").ok

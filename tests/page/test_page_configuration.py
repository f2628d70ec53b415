"""The configuration on the live page: what is staged is seen by all admins, and becomes what they decide."""

from typing import Any

import pytest
from playwright.sync_api import Route, expect

from tests.support.browser import Screen
from tests.support.stack import Api

HOSTILE = "<img src=/x onerror=\"document.title='taken over'\">"
HOOK = "http://127.0.0.1:9/hook"


@pytest.fixture(autouse=True)
def opened(shown: Screen) -> None:
    send(shown.api, "discard")
    shown.go("Configuration")
    expect(shown.page.locator("#waiting-none")).to_be_visible()


def send(api: Api, action: str, **body: Any) -> None:
    """Does something to the configuration, as another user."""
    assert api.send("POST", f"/system/config/{action}", json=body or None).ok


def stage(shown: Screen, path: str, value: str) -> None:
    shown.page.get_by_label("Path").fill(path)
    shown.page.get_by_label("Value").fill(value)
    shown.page.get_by_role("button", name="Set", exact=True).click()


def commit(shown: Screen, comment: str = "", window: str = "never") -> None:
    shown.press("Commit…")
    shown.page.get_by_label("Comment", exact=True).fill(comment)
    shown.page.get_by_label("Roll back automatically").select_option(window)
    shown.confirm("Commit")


def commit_rate(api: Api, value: str) -> str:
    """Commits a rate, as another user. Returns the former rate, which is that of revision 1 now."""
    former: str = api.get("/system/config")["qos"]["default_up"]
    send(api, "set", path="qos.default_up", value=value)
    send(api, "commit", comment=f"to {value}")
    return former


def test_changes_are_staged_seen_and_committed(shown: Screen) -> None:
    before = shown.api.get("/system/config")["qos"]["default_down"]
    diff = shown.page.locator("#diff")
    stage(shown, "qos.default_down", "123mbit")
    expect(diff.locator("del")).to_have_text(f'- qos.default_down = "{before}"')
    expect(diff.locator("ins")).to_have_text('+ qos.default_down = "123mbit"')
    name = "Configuration 2 changed lines in the candidate"
    expect(shown.page.get_by_role("link", name=name)).to_be_visible()
    send(shown.api, "set", path="qos.default_up", value="7mbit")
    expect(diff.locator("ins")).to_contain_text(["123mbit", "7mbit"])
    commit(shown, HOSTILE)
    expect(shown.page.locator("#configuration-state")).to_have_text("Committed 2 changes.")
    expect(diff).to_be_hidden()
    assert shown.api.get("/system/config")["qos"]["default_down"] == "123mbit"
    neighbor = 'bgp.neighbors."10.255.0.2".description'
    stage(shown, neighbor, HOSTILE)
    commit(shown)
    # Texts of other users stay texts.
    expect(shown.page.locator("#archive tbody tr").first).to_contain_text(HOSTILE)
    shown.go("Overview")
    expect(shown.page.locator("#neighbours li").first).to_contain_text(HOSTILE)
    assert "taken over" not in shown.page.title()
    assert shown.page.locator("main img").count() == 0


def test_the_form_says_what_a_path_takes_and_why_a_value_is_refused(shown: Screen) -> None:
    helps = {
        "demux.idle_timeout": ("Example: 300", "Whole number, 1 to 604800."),
        "radius.server": ("Default: null. Example: 192.0.2.10", "Text, or null."),
        'bgp.neighbors."10.255.0.6".remote_as': ("AS number", "Whole number, 1 to 4294967295."),
        "interfaces.trunks": ('Example: ["trunk0","trunk1"]', "List, as JSON, at most 64 items."),
        "qos.default_down": ("Downstream rate", "Text."),
    }
    for path, (meaning, kind) in helps.items():
        shown.page.get_by_label("Path").fill(path)
        expect(shown.page.locator("#stage-help")).to_contain_text(meaning)
        expect(shown.page.locator("#stage-kind")).to_have_text(kind)
    expect(shown.page.locator("#stage-runs")).to_contain_text('Running: "')
    problem = shown.page.locator("#stage-problem")
    stage(shown, "qos.default_down", "100000000")
    expect(shown.page.locator("#stage-value:invalid")).to_be_visible()
    stage(shown, "qos.default_down", "fast")
    expect(problem).to_contain_text("must be a number and a unit")
    stage(shown, "qos.default_dwon", "1mbit")
    expect(problem).to_have_text("qos.default_dwon: is not a known path")
    expect(shown.page.locator("#stage-kind")).to_have_text("")
    stage(shown, "demux.idle_timeout", "301")
    expect(shown.page.locator("#diff ins")).to_have_text("+ demux.idle_timeout = 301")
    expect(problem).to_be_hidden()
    shown.page.get_by_label("Path").fill('bgp.neighbors."10.255.0.6"')
    shown.press("Delete at this path")
    expect(shown.page.locator("#diff del").first).to_contain_text("10.255.0.6")


def test_paths_that_are_offered_are_known(shown: Screen) -> None:
    paths = shown.page.locator("#paths option")
    expect(shown.page.locator("#paths option[value='history.days']")).to_be_attached()
    offered = paths.evaluate_all("options => options.map(option => option.value)")
    # The running configuration leaves them out.
    assert {"history.days", 'bgp.neighbors."10.255.0.2".description', "qos.default_down"} <= set(offered)
    assert 'bgp.neighbors."10.255.0.2".address' not in offered
    for path in offered:
        answer = shown.api.send("POST", "/system/config/set", json={"path": path, "value": "!"})
        assert "is not a known path" not in answer.text, path


def test_the_running_configuration_is_a_tree_that_leads_to_an_edit(shown: Screen) -> None:
    receiver = f'api.webhooks.receivers."{HOOK}"'
    send(shown.api, "set", path=f"{receiver}.events", value='["session.up"]')
    send(shown.api, "commit")
    shown.page.reload()
    running = shown.api.get("/system/config")
    expect(shown.page.locator("#hostname")).to_have_text(running["system"]["hostname"])
    tree, value = shown.page.locator("#tree"), shown.page.get_by_label("Value")
    for names, path in {
        ("api", "webhooks", "receivers", HOOK, "events"): f"{receiver}.events",
        ("demux", "rate_limits", "burst"): "demux.rate_limits.burst",
    }.items():
        for name in names[:-1]:
            tree.get_by_text(name, exact=True).click()
        tree.get_by_role("link", name=names[-1]).locator("visible=true").click()
        expect(shown.page.get_by_label("Path")).to_have_value(path)
        expect(value).to_be_focused()
    burst = str(running["demux"]["rate_limits"]["burst"])
    expect(value).to_have_value(burst)
    assert shown.page.url.endswith("#configuration?path=demux.rate_limits.burst")
    shown.page.reload()
    expect(value).to_have_value(burst)
    expect(tree.get_by_role("link", name="burst")).to_be_visible()


def test_a_commit_takes_only_what_the_admin_saw(shown: Screen) -> None:
    stage(shown, "qos.default_down", "6mbit")
    expect(shown.page.locator("#diff ins")).to_contain_text("6mbit")
    shown.press("Commit…")
    send(shown.api, "set", path="qos.default_up", value="8mbit")
    # The page reads it, behind the question.
    expect(shown.page.locator("#diff ins").nth(1)).to_contain_text("8mbit")
    shown.confirm("Commit")
    expect(shown.page.get_by_role("dialog").get_by_role("alert")).to_contain_text("changed")
    assert shown.api.get("/system/config")["qos"]["default_up"] != "8mbit"
    shown.confirm("Cancel")
    shown.press("Discard…").confirm("Discard")
    expect(shown.page.locator("#waiting-none")).to_be_visible()
    assert shown.api.get("/system/config/compare", "admin")["diff"] == ""


def test_a_commit_ends_no_more_sessions_than_the_dialog_says(shown: Screen) -> None:
    total = shown.api.get("/subscribers/summary")["total"]
    stage(shown, "demux.trunks", '["trunk0"]')
    expect(shown.page.locator("#diff ins").first).to_be_visible()
    dropped = shown.api.get("/system/config/compare", "admin")["impact"]["sessions_dropped"]
    # The impact before another session came.
    shown.change_response("**/compare", lambda data: data["impact"].update(sessions_dropped=dropped - 1))
    shown.page.reload()
    shown.press("Commit…")
    said = shown.page.locator("#commit-impact")
    expect(said).to_have_text(f"No service reloads or restarts. {dropped - 1} sessions end.")
    shown.page.unroute("**/compare")
    shown.confirm("Commit")
    expect(shown.page.get_by_role("dialog").get_by_role("alert")).to_contain_text(f"end {dropped} sessions")
    expect(said).to_contain_text(f"{dropped} sessions end.")
    assert shown.api.get("/subscribers/summary")["total"] == total
    shown.confirm("Commit")
    expect(shown.page.locator("#configuration-state")).to_contain_text("Committed")
    assert shown.api.get("/subscribers/summary")["total"] == total - dropped


def test_an_unconfirmed_commit_of_any_admin_is_seen_and_confirmed(shown: Screen) -> None:
    left = shown.page.locator("#unconfirmed-left")
    stage(shown, "system.hostname", "bng-confirmed")
    commit(shown, "", "unless confirmed within 2 minutes")
    expect(left).to_contain_text("1 min")
    shown.page.get_by_role("button", name="Confirm", exact=True).click()
    expect(shown.page.locator("#configuration-state")).to_have_text("The commit is confirmed.")
    expect(shown.page.locator("#unconfirmed")).to_be_hidden()
    assert shown.api.send("POST", "/system/config/confirm").status_code == 409
    send(shown.api, "set", path="system.hostname", value="bng-waiting")
    send(shown.api, "commit", confirm_seconds=600)
    expect(left).to_contain_text("9 min")
    send(shown.api, "confirm")
    expect(shown.page.locator("#unconfirmed")).to_be_hidden()


def test_any_two_configurations_are_compared(shown: Screen) -> None:
    former = commit_rate(shown.api, "41mbit")
    commit_rate(shown.api, "42mbit")
    send(shown.api, "set", path="qos.default_up", value="43mbit")
    shown.page.reload()
    diff = shown.page.locator("#revision-diff")

    def compare(before: str, after: str) -> None:
        shown.page.get_by_label("From", exact=True).select_option(before)
        shown.page.get_by_label("To", exact=True).select_option(after)
        shown.press("Show the difference")

    shown.page.get_by_role("link", name="Difference from revision 2 to the running configuration").click()
    expect(diff).to_have_text(f'- qos.default_up = "{former}"+ qos.default_up = "42mbit"')
    compare("Revision 1", "candidate")
    expect(diff).to_have_text('- qos.default_up = "41mbit"+ qos.default_up = "43mbit"')
    shown.page.go_back()
    expect(diff).to_have_text(f'- qos.default_up = "{former}"+ qos.default_up = "42mbit"')
    compare("running", "running")
    expect(shown.page.get_by_text("No difference.")).to_be_visible()
    expect(diff).to_be_hidden()


def test_a_roll_back_is_to_the_revision_that_the_admin_saw(shown: Screen) -> None:
    former = commit_rate(shown.api, "44mbit")
    path, held = "**/system/config/compare", list[Route]()
    shown.page.route(path, lambda route: held.append(route))
    shown.page.reload()
    name = "Roll back to revision 1"
    shown.page.get_by_role("button", name=name, exact=True).click()
    # The question waits for the candidate.
    expect(shown.page.get_by_role("dialog")).to_be_hidden()
    for route in held:
        route.continue_()
    shown.page.unroute(path)
    shown.confirm("Roll back")
    expect(shown.page.locator("#configuration-state")).to_contain_text("Revision 1 is the candidate")
    expect(shown.page.locator("#diff ins")).to_have_text(f'+ qos.default_up = "{former}"')
    assert shown.api.get("/system/config")["qos"]["default_up"] == "44mbit"
    send(shown.api, "discard")
    shown.page.reload()
    shown.page.get_by_role("button", name=name, exact=True).click()
    expect(shown.page.get_by_role("dialog")).to_be_visible()
    # Revision 1 is another one now.
    commit_rate(shown.api, "46mbit")
    shown.confirm("Roll back")
    expect(shown.page.get_by_role("dialog").get_by_role("alert")).to_contain_text("changed")
    assert shown.api.get("/system/config/compare", "admin")["diff"] == ""

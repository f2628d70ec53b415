"""The configuration on the live page: all admins see the candidate, and commit what they looked at."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Route, expect

from tests.support.browser import Screen, screen
from tests.support.stack import Api, running_stack

HOSTILE = "<img src=/x onerror=\"document.title='taken over'\">"
HELP = {
    "qos": ("Rates of sessions without rates of their own, as text with a unit.", "Section."),
    "qos.default_down": ("Downstream rate of sessions without one of their own", "Text."),
    "demux.idle_timeout": ("Seconds that a VLAN without sessions stays.", "Whole number, 1 to 604800."),
    "demux.vlan_profiles.ipoe.type": ("Type of its sessions. Example: dhcp", "One of dhcp, pppoe."),
    "radius.server": ("IPv4 address of the server; null without RADIUS. Default: null.", "Text, or null."),
    'bgp.neighbors."10.255.0.6".remote_as': ("AS number", "Whole number, 1 to 4294967295."),
    "interfaces.trunks": ("Interfaces that carry subscribers.", "List, as JSON, at most 64 items."),
    "qos.unknown": ("", ""),
}


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    """A gateway whose configuration nobody else changes."""
    with running_stack(tmp_path_factory.mktemp("own"), sessions=20) as (api, _):
        yield api


@pytest.fixture
def shown(browser: Browser, own: Api) -> Iterator[Screen]:
    own.send("POST", "/system/config/discard")
    with screen(browser, own) as opened:
        opened.open("#configuration").sign_in()
        expect(opened.page.locator("#waiting-none")).to_be_visible()
        yield opened


def stage(shown: Screen, path: str, value: str) -> None:
    shown.page.get_by_label("Path").fill(path)
    shown.page.get_by_label("Value").fill(value)
    shown.page.get_by_role("button", name="Set", exact=True).click()


def commit(shown: Screen, comment: str = "", window: str = "never") -> None:
    shown.page.get_by_role("button", name="Commit…").click()
    shown.page.get_by_label("Comment", exact=True).fill(comment)
    shown.page.get_by_label("Roll back automatically").select_option(window)
    shown.page.get_by_role("dialog").get_by_role("button", name="Commit").click()


def elsewhere(own: Api, path: str, value: str) -> None:
    """Somebody else changes the candidate."""
    assert own.send("POST", "/system/config/set", json={"path": path, "value": value}).ok


def committed(own: Api, value: str) -> str:
    """Commits a rate. The configuration before is revision 1 then: its rate."""
    before: str = own.get("/system/config")["qos"]["default_up"]
    elsewhere(own, "qos.default_up", value)
    assert own.send("POST", "/system/config/commit", json={"comment": f"to {value}"}).ok
    return before


# Edits


def test_a_change_is_staged_seen_and_committed(shown: Screen) -> None:
    before = shown.api.get("/system/config")["qos"]["default_down"]
    stage(shown, "qos.default_down", "123mbit")
    diff = shown.page.locator("#diff")
    expect(diff.locator("del")).to_have_text(f'- qos.default_down = "{before}"')
    expect(diff.locator("ins")).to_have_text('+ qos.default_down = "123mbit"')
    link = "Configuration 2 changed lines in the candidate"
    expect(shown.page.get_by_role("link", name=link)).to_be_visible()
    commit(shown, HOSTILE)
    expect(shown.page.locator("#configuration-state")).to_have_text("Committed 1 change.")
    expect(diff).to_be_hidden()
    assert shown.api.get("/system/config")["qos"]["default_down"] == "123mbit"
    stage(shown, 'bgp.neighbors."10.255.0.2".description', HOSTILE)
    expect(diff.locator("ins").first).to_contain_text(HOSTILE.replace('"', '\\"'))
    commit(shown)
    expect(shown.page.locator("#archive tbody tr").first).to_contain_text(HOSTILE)
    hostname = shown.api.get("/system/config")["system"]["hostname"]
    expect(shown.page.locator("#hostname")).to_have_text(hostname)
    shown.go("Overview")
    expect(shown.page.locator("#neighbours li").first).to_contain_text(HOSTILE)
    assert "taken over" not in shown.page.title()
    assert shown.page.locator("main img").count() == 0


def test_a_refused_edit_is_said_to_be_and_a_path_is_deleted_and_all_discarded(shown: Screen) -> None:
    problem, diff = shown.page.locator("#stage-problem"), shown.page.locator("#diff")
    stage(shown, "qos.default_dwon", "1mbit")
    expect(problem).to_have_text("qos.default_dwon: is not a known path")
    stage(shown, "qos.default_down", "fast")
    expect(problem).to_contain_text("must be a number and a unit")
    stage(shown, "qos.default_down", "100000000")
    expect(shown.page.locator("#stage-value:invalid")).to_be_visible()
    stage(shown, "demux.idle_timeout", "301")
    expect(problem).to_be_hidden()
    expect(diff.locator("ins")).to_have_text("+ demux.idle_timeout = 301")
    shown.page.get_by_label("Path").fill('bgp.neighbors."10.255.0.6"')
    shown.page.get_by_role("button", name="Delete at this path").click()
    expect(diff.locator("del").nth(1)).to_contain_text("10.255.0.6")
    shown.page.get_by_role("button", name="Discard…").click()
    shown.page.get_by_role("dialog").get_by_role("button", name="Discard").click()
    expect(shown.page.locator("#waiting-none")).to_be_visible()
    assert shown.api.get("/system/config/compare", "admin")["diff"] == ""


def test_known_paths_are_offered_with_the_help_of_the_schema(shown: Screen) -> None:
    options = shown.page.locator("#paths option")
    expect(options.first).to_be_attached()
    offered = options.evaluate_all("options => options.map(option => option.value)")
    # Also those that the running configuration leaves out, but no key of a list.
    neighbour = 'bgp.neighbors."10.255.0.2"'
    assert {"qos.default_down", "history.days", f"{neighbour}.description"} <= set(offered)
    assert f"{neighbour}.address" not in offered
    for path in offered:
        answer = shown.api.send("POST", "/system/config/set", json={"path": path, "value": "!"})
        assert "is not a known path" not in answer.text, path
    for path, (meaning, kind) in HELP.items():
        shown.page.get_by_label("Path").fill(path)
        expect(shown.page.locator("#stage-help")).to_contain_text(meaning)
        expect(shown.page.locator("#stage-kind")).to_have_text(kind)
    shown.page.get_by_label("Path").fill("demux.rate_limits.burst")
    burst = shown.api.get("/system/config")["demux"]["rate_limits"]["burst"]
    expect(shown.page.locator("#stage-runs")).to_have_text(f"Running: {burst}")


def test_the_running_configuration_is_a_tree_that_leads_to_an_edit(shown: Screen) -> None:
    tree, value = shown.page.locator("#tree"), shown.page.get_by_label("Value")
    burst = str(shown.api.get("/system/config")["demux"]["rate_limits"]["burst"])
    for name in ("demux", "rate_limits"):
        tree.get_by_text(name, exact=True).click()
    tree.get_by_role("link", name="burst").click()
    expect(shown.page.get_by_label("Path")).to_have_value("demux.rate_limits.burst")
    expect(value).to_have_value(burst)
    expect(value).to_be_focused()
    assert shown.page.url.endswith("#configuration?path=demux.rate_limits.burst")
    # An item of a list has its key in the path.
    receiver = 'api.webhooks.receivers."http://127.0.0.1:9/hook"'
    elsewhere(shown.api, f"{receiver}.events", '["session.up"]')
    assert shown.api.send("POST", "/system/config/commit").ok
    shown.page.reload()
    expect(value).to_have_value(burst)
    expect(tree.get_by_role("link", name="burst")).to_be_visible()
    for name in ("api", "webhooks", "receivers", "http://127.0.0.1:9/hook"):
        tree.get_by_text(name, exact=True).click()
    tree.get_by_role("link", name="events").click()
    expect(shown.page.get_by_label("Path")).to_have_value(f"{receiver}.events")
    assert shown.api.send("POST", "/system/config/delete", json={"path": receiver}).ok
    assert shown.api.send("POST", "/system/config/commit").ok


# Commits


def test_only_what_was_looked_at_is_committed(shown: Screen) -> None:
    stage(shown, "qos.default_down", "6mbit")
    expect(shown.page.locator("#diff ins")).to_contain_text("6mbit")
    shown.page.get_by_role("button", name="Commit…").click()
    elsewhere(shown.api, "qos.default_up", "8mbit")
    # The page reads it, behind the question.
    expect(shown.page.locator("#diff ins").nth(1)).to_contain_text("8mbit")
    dialog = shown.page.get_by_role("dialog")
    dialog.get_by_role("button", name="Commit").click()
    expect(dialog.get_by_role("alert")).to_contain_text("changed")
    assert shown.api.get("/system/config")["qos"]["default_up"] != "8mbit"


def test_no_more_sessions_end_than_the_dialog_says(shown: Screen) -> None:
    def one_session_less(route: Route) -> None:
        """The impact before another session came."""
        answer = route.fetch()
        document = answer.json()
        document["data"]["impact"]["sessions_dropped"] -= 1
        route.fulfill(response=answer, json=document)

    shown.page.route("**/compare", one_session_less)
    stage(shown, "demux.trunks", '["trunk0"]')
    expect(shown.page.locator("#diff ins").first).to_be_visible()
    dropped = shown.api.get("/system/config/compare", "admin")["impact"]["sessions_dropped"]
    assert dropped > 2
    shown.page.get_by_role("button", name="Commit…").click()
    dialog, said = shown.page.get_by_role("dialog"), shown.page.locator("#commit-impact")
    expect(said).to_have_text(f"No service reloads or restarts. {dropped - 1} sessions end.")
    shown.page.unroute("**/compare")
    dialog.get_by_role("button", name="Commit").click()
    expect(dialog.get_by_role("alert")).to_contain_text(f"would end {dropped} sessions")
    expect(said).to_contain_text(f"{dropped} sessions end.")
    assert shown.api.get("/subscribers/summary")["total"] == 20
    dialog.get_by_role("button", name="Commit").click()
    expect(shown.page.locator("#configuration-state")).to_contain_text("Committed")
    assert shown.api.get("/subscribers/summary")["total"] == 20 - dropped


def test_a_commit_that_waits_is_seen_and_confirmed(shown: Screen) -> None:
    stage(shown, "system.hostname", "bng-confirmed")
    commit(shown, "", "unless confirmed within 2 minutes")
    left = shown.page.locator("#unconfirmed-left")
    expect(left).to_contain_text("1 min")
    shown.page.get_by_role("button", name="Confirm", exact=True).click()
    expect(shown.page.locator("#configuration-state")).to_have_text("The commit is confirmed.")
    expect(shown.page.locator("#unconfirmed")).to_be_hidden()
    assert shown.api.send("POST", "/system/config/confirm").status_code == 409
    # That of somebody else, too.
    elsewhere(shown.api, "system.hostname", "bng-waiting")
    assert shown.api.send("POST", "/system/config/commit", json={"confirm_seconds": 600}).ok
    expect(left).to_contain_text("9 min")
    assert shown.api.send("POST", "/system/config/confirm").ok
    expect(shown.page.locator("#unconfirmed")).to_be_hidden()


# Revisions


def test_any_two_configurations_are_compared(shown: Screen) -> None:
    def compare(first: str, second: str) -> None:
        shown.page.get_by_label("From", exact=True).select_option(first)
        shown.page.get_by_label("To", exact=True).select_option(second)
        shown.page.get_by_role("button", name="Show the difference").click()

    former = committed(shown.api, "41mbit")
    committed(shown.api, "42mbit")
    elsewhere(shown.api, "qos.default_up", "43mbit")
    shown.page.reload()
    diff = shown.page.locator("#revision-diff")
    shown.page.get_by_role("link", name="Difference from revision 2 to the running configuration").click()
    expect(diff).to_have_text(f'- qos.default_up = "{former}"+ qos.default_up = "42mbit"')
    compare("Revision 1", "candidate")
    expect(diff).to_have_text('- qos.default_up = "41mbit"+ qos.default_up = "43mbit"')
    shown.page.go_back()
    expect(diff).to_have_text(f'- qos.default_up = "{former}"+ qos.default_up = "42mbit"')
    compare("running", "running")
    expect(shown.page.get_by_text("No difference.")).to_be_visible()


def test_the_revision_that_the_user_saw_becomes_the_candidate_after_a_question(shown: Screen) -> None:
    former = committed(shown.api, "44mbit")
    compare, dialog = "**/system/config/compare", shown.page.get_by_role("dialog")
    held: list[Route] = []
    shown.page.route(compare, lambda route: held.append(route))
    shown.page.reload()
    shown.page.get_by_role("button", name="Roll back to revision 1", exact=True).click()
    # The question waits for the candidate.
    expect(dialog).to_be_hidden()
    for each in held:
        each.continue_()
    shown.page.unroute(compare)
    dialog.get_by_role("button", name="Roll back").click()
    expect(shown.page.locator("#configuration-state")).to_contain_text("Revision 1 is the candidate")
    expect(shown.page.locator("#diff ins")).to_have_text(f'+ qos.default_up = "{former}"')
    assert shown.api.get("/system/config")["qos"]["default_up"] == "44mbit"
    shown.api.send("POST", "/system/config/discard")
    expect(shown.page.locator("#waiting-none")).to_be_visible()
    shown.page.get_by_role("button", name="Roll back to revision 1", exact=True).click()
    expect(dialog).to_be_visible()
    # Revision 1 is another one now.
    committed(shown.api, "46mbit")
    dialog.get_by_role("button", name="Roll back").click()
    expect(dialog.get_by_role("alert")).to_contain_text("changed")
    assert shown.api.get("/system/config/compare", "admin")["diff"] == ""


def test_an_operator_sees_no_candidate_and_no_button(browser: Browser, own: Api) -> None:
    with screen(browser, own) as shown:
        shown.open("#configuration").sign_in("operator")
        expect(shown.page.locator("#waiting-hidden")).to_be_visible()
        for name in ("Commit…", "Discard…", "Set", "Delete at this path", "Confirm"):
            expect(shown.page.get_by_role("button", name=name, exact=True)).to_be_hidden()
        statuses = [asked.response().status for asked in shown.requests if "/events/" not in asked.url]  # type: ignore[union-attr]
        assert set(statuses) <= {200}

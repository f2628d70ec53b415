"""The configuration on the live page: what is staged is seen by all admins, and becomes what they decide."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Locator, Route, expect

from tests.support.browser import Screen, screen
from tests.support.stack import Api, running_stack

pytestmark = pytest.mark.slow

HOSTILE = "<img src=/x onerror=\"document.title='taken over'\">"


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
    """Somebody else stages a change."""
    assert own.send("POST", "/system/config/set", json={"path": path, "value": value}).ok


def test_a_change_is_staged_seen_and_committed(shown: Screen) -> None:
    before = shown.api.get("/system/config")["qos"]["default_down"]
    stage(shown, "qos.default_down", "123mbit")
    diff = shown.page.locator("#diff")
    expect(diff.locator("del")).to_have_text(f'- qos.default_down = "{before}"')
    expect(diff.locator("ins")).to_have_text('+ qos.default_down = "123mbit"')
    expect(
        shown.page.get_by_role("link", name="Configuration 2 changed lines in the candidate")
    ).to_be_visible()
    commit(shown, "slower for everybody")
    expect(shown.page.locator("#configuration-state")).to_have_text("Committed 1 change.")
    expect(diff).to_be_hidden()
    assert shown.api.get("/system/config")["qos"]["default_down"] == "123mbit"
    stage(shown, "qos.default_down", before)
    commit(shown)
    # What ran until now, and who had made it so.
    expect(shown.page.locator("#archive tbody tr").first).to_contain_text("slower for everybody")


def test_what_the_api_refuses_is_said_beside_it(shown: Screen) -> None:
    stage(shown, "qos.default_dwon", "1mbit")
    problem = shown.page.locator("#stage-problem")
    expect(problem).to_have_text("qos.default_dwon: is not a known path")
    stage(shown, "qos.default_down", "fast")
    expect(problem).to_contain_text("must be a number and a unit")
    stage(shown, "qos.default_down", "5mbit")
    expect(problem).to_be_hidden()


def test_a_rate_needs_its_unit(shown: Screen) -> None:
    shown.page.get_by_label("Path").fill("qos.default_down")
    expect(shown.page.locator("#stage-help")).to_contain_text("Downstream rate")
    stage(shown, "qos.default_down", "100000000")
    expect(shown.page.locator("#stage-value:invalid")).to_be_visible()
    stage(shown, "demux.idle_timeout", "301")
    expect(shown.page.locator("#diff ins")).to_have_text("+ demux.idle_timeout = 301")


def test_paths_that_the_running_configuration_leaves_out_are_offered(shown: Screen) -> None:
    def offered(path: str) -> Locator:
        return shown.page.locator(f"#paths option[value='{path}']")

    running = shown.api.get("/system/config")
    assert "history" not in running
    expect(offered("history.days")).to_be_attached()
    expect(offered('bgp.neighbors."10.255.0.2".description')).to_be_attached()
    expect(offered('bgp.neighbors."10.255.0.2".address')).not_to_be_attached()


def test_something_is_deleted(shown: Screen) -> None:
    shown.page.get_by_label("Path").fill('bgp.neighbors."10.255.0.6"')
    shown.page.get_by_role("button", name="Delete at this path").click()
    expect(shown.page.locator("#diff del").first).to_contain_text("10.255.0.6")


def test_what_is_staged_is_discarded_after_a_question(shown: Screen) -> None:
    stage(shown, "qos.default_down", "5mbit")
    shown.page.get_by_role("button", name="Discard…").click()
    shown.page.get_by_role("dialog").get_by_role("button", name="Discard").click()
    expect(shown.page.locator("#waiting-none")).to_be_visible()
    assert shown.api.get("/system/config/compare", "admin")["diff"] == ""


def test_what_somebody_else_stages_shows_by_itself(shown: Screen) -> None:
    elsewhere(shown.api, "qos.default_up", "7mbit")
    expect(shown.page.locator("#diff ins")).to_contain_text("7mbit")


def test_only_what_was_looked_at_is_committed(shown: Screen) -> None:
    stage(shown, "qos.default_down", "6mbit")
    expect(shown.page.locator("#diff ins")).to_contain_text("6mbit")
    shown.page.get_by_role("button", name="Commit…").click()
    elsewhere(shown.api, "qos.default_up", "8mbit")
    # The page reads it, behind the question.
    expect(shown.page.locator("#diff ins").nth(1)).to_contain_text("8mbit")
    dialog = shown.page.get_by_role("dialog")
    dialog.get_by_role("button", name="Commit").click()
    problem = dialog.get_by_role("alert")
    expect(problem).to_contain_text("changed")
    assert shown.api.get("/system/config")["qos"]["default_up"] != "8mbit"
    shown.page.get_by_role("dialog").get_by_role("button", name="Cancel").click()
    expect(shown.page.locator("#diff ins")).to_contain_text(["6mbit", "8mbit"])


def one_session_less(route: Route) -> None:
    """The impact before another session came."""
    answer = route.fetch()
    document = answer.json()
    document["data"]["impact"]["sessions_dropped"] -= 1
    route.fulfill(response=answer, json=document)


def test_no_more_sessions_end_than_the_dialog_says(shown: Screen) -> None:
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


def test_a_commit_that_waits_is_confirmed(shown: Screen) -> None:
    stage(shown, "system.hostname", "bng-confirmed")
    commit(shown, "", "unless confirmed within 2 minutes")
    expect(shown.page.locator("#unconfirmed-left")).to_contain_text("1 min")
    shown.page.get_by_role("button", name="Confirm", exact=True).click()
    expect(shown.page.locator("#configuration-state")).to_have_text("The commit is confirmed.")
    expect(shown.page.locator("#unconfirmed")).to_be_hidden()
    assert shown.api.send("POST", "/system/config/confirm").status_code == 409


def test_a_commit_of_somebody_else_that_waits_is_seen(shown: Screen) -> None:
    elsewhere(shown.api, "system.hostname", "bng-waiting")
    assert shown.api.send("POST", "/system/config/commit", json={"confirm_seconds": 600}).ok
    expect(shown.page.locator("#unconfirmed-left")).to_contain_text("9 min")
    assert shown.api.send("POST", "/system/config/confirm").ok
    expect(shown.page.locator("#unconfirmed")).to_be_hidden()


def test_paths_that_are_offered_are_known(shown: Screen) -> None:
    paths = shown.page.locator("#paths option")
    expect(paths.first).to_be_attached()
    offered = paths.evaluate_all("options => options.map(option => option.value)")
    assert "qos.default_down" in offered
    for path in offered:
        answer = shown.api.send("POST", "/system/config/set", json={"path": path, "value": "!"})
        assert "is not a known path" not in answer.text, path
    shown.page.get_by_label("Path").fill("qos.default_up")
    expect(shown.page.locator("#stage-runs")).to_have_text('Running: "20mbit"')


def test_hostile_text_stays_text(shown: Screen) -> None:
    stage(shown, 'bgp.neighbors."10.255.0.2".description', HOSTILE)
    expect(shown.page.locator("#diff ins").first).to_contain_text(HOSTILE.replace('"', '\\"'))
    commit(shown, HOSTILE)
    expect(shown.page.locator("#configuration-state")).to_contain_text("Committed")
    stage(shown, "qos.default_down", "9mbit")
    commit(shown)
    expect(shown.page.locator("#archive tbody tr").first).to_contain_text(HOSTILE)
    shown.go("Overview")
    expect(shown.page.locator("#neighbours li").first).to_contain_text(HOSTILE)
    assert "taken over" not in shown.page.title()
    assert shown.page.locator("main img").count() == 0


def test_the_gateway_s_name_is_shown(shown: Screen) -> None:
    expect(shown.page.locator("#hostname")).to_have_text(
        shown.api.get("/system/config")["system"]["hostname"]
    )


def test_the_running_configuration_is_a_tree_that_leads_to_an_edit(shown: Screen) -> None:
    running = shown.api.get("/system/config")["demux"]["rate_limits"]["burst"]
    tree = shown.page.locator("#tree")
    tree.get_by_text("demux", exact=True).click()
    tree.get_by_text("rate_limits", exact=True).click()
    tree.get_by_role("link", name="burst").click()
    expect(shown.page.get_by_label("Path")).to_have_value("demux.rate_limits.burst")
    expect(shown.page.get_by_label("Value")).to_have_value(str(running))
    expect(shown.page.get_by_label("Value")).to_be_focused()
    expect(shown.page.locator("#stage-help")).to_contain_text("New VLANs at once. Example: 1000")
    assert shown.page.url.endswith("#configuration?path=demux.rate_limits.burst")
    shown.page.reload()
    expect(shown.page.get_by_label("Value")).to_have_value(str(running))
    expect(tree.get_by_role("link", name="burst")).to_be_visible()


def test_an_item_of_a_list_has_its_key_in_the_path(shown: Screen) -> None:
    receiver = 'api.webhooks.receivers."http://127.0.0.1:9/hook"'
    elsewhere(shown.api, f"{receiver}.events", '["session.up"]')
    assert shown.api.send("POST", "/system/config/commit").ok
    shown.page.reload()
    tree = shown.page.locator("#tree")
    for name in ("api", "webhooks", "receivers", "http://127.0.0.1:9/hook"):
        tree.get_by_text(name, exact=True).click()
    tree.get_by_role("link", name="events").click()
    expect(shown.page.get_by_label("Path")).to_have_value(f"{receiver}.events")
    expect(shown.page.locator("#stage-help")).to_contain_text("Names of the events to deliver.")
    assert shown.api.send("POST", "/system/config/delete", json={"path": receiver}).ok
    assert shown.api.send("POST", "/system/config/commit").ok


def test_each_field_has_the_help_of_the_schema(shown: Screen) -> None:
    helps = {
        "qos": ("Rates of sessions without rates of their own, as text with a unit.", "Section."),
        "qos.default_down": ("Downstream rate of sessions without one of their own", "Text."),
        "demux.idle_timeout": (
            "Seconds that a VLAN without sessions stays. Example: 300",
            "Whole number, 1 to 604800.",
        ),
        "demux.vlan_profiles.ipoe.type": ("Type of its sessions. Example: dhcp", "One of dhcp, pppoe."),
        "radius.server": (
            "IPv4 address of the server; null without RADIUS. Default: null. Example: 192.0.2.10",
            "Text, or null.",
        ),
        'api.users."operator".role': ("What the user may do. Example: operator", "One of admin, operator."),
        'bgp.neighbors."10.255.0.6".remote_as': ("AS number", "Whole number, 1 to 4294967295."),
        "history.days": (
            "Days that an ended session is kept. Default: 90. Example: 90",
            "Whole number, 1 to 3650.",
        ),
        "interfaces.trunks": (
            'Interfaces that carry subscribers. Example: ["trunk0","trunk1"]',
            "List, as JSON, at most 64 items.",
        ),
    }
    for path, (meaning, kind) in helps.items():
        shown.page.get_by_label("Path").fill(path)
        expect(shown.page.locator("#stage-help")).to_contain_text(meaning)
        expect(shown.page.locator("#stage-kind")).to_have_text(kind)
    shown.page.get_by_label("Path").fill("qos.unknown")
    expect(shown.page.locator("#stage-help")).to_have_text("")
    expect(shown.page.locator("#stage-kind")).to_have_text("")


def committed(own: Api, value: str) -> str:
    """Commits a rate. What ran before is revision 1 then: its rate."""
    before: str = own.get("/system/config")["qos"]["default_up"]
    elsewhere(own, "qos.default_up", value)
    assert own.send("POST", "/system/config/commit", json={"comment": f"to {value}"}).ok
    return before


def test_any_two_configurations_are_compared(shown: Screen) -> None:
    former = committed(shown.api, "41mbit")
    committed(shown.api, "42mbit")
    elsewhere(shown.api, "qos.default_up", "43mbit")
    expect(shown.page.locator("#archive tbody tr").nth(1)).to_be_visible()
    shown.page.reload()
    diff = shown.page.locator("#revision-diff")
    shown.page.get_by_role("link", name="Difference from revision 2 to the running configuration").click()
    expect(diff).to_have_text(f'- qos.default_up = "{former}"+ qos.default_up = "42mbit"')
    shown.page.get_by_label("From", exact=True).select_option("Revision 1")
    shown.page.get_by_label("To", exact=True).select_option("candidate")
    shown.page.get_by_role("button", name="Show the difference").click()
    expect(diff).to_have_text('- qos.default_up = "41mbit"+ qos.default_up = "43mbit"')
    shown.page.go_back()
    expect(diff).to_have_text(f'- qos.default_up = "{former}"+ qos.default_up = "42mbit"')
    shown.page.get_by_label("From", exact=True).select_option("running")
    shown.page.get_by_label("To", exact=True).select_option("running")
    shown.page.get_by_role("button", name="Show the difference").click()
    expect(shown.page.get_by_text("No difference.")).to_be_visible()
    expect(diff).to_be_hidden()


def test_a_revision_becomes_the_candidate_after_a_question(shown: Screen) -> None:
    former = committed(shown.api, "44mbit")
    shown.page.reload()
    shown.page.get_by_role("button", name="Roll back to revision 1", exact=True).click()
    shown.page.get_by_role("dialog").get_by_role("button", name="Roll back").click()
    expect(shown.page.locator("#configuration-state")).to_contain_text("Revision 1 is the candidate")
    expect(shown.page.locator("#diff ins")).to_have_text(f'+ qos.default_up = "{former}"')
    assert shown.api.get("/system/config")["qos"]["default_up"] == "44mbit"


def test_a_roll_back_waits_for_the_candidate(shown: Screen) -> None:
    former = committed(shown.api, "47mbit")
    held: list[Route] = []
    shown.page.route("**/system/config/compare", lambda route: held.append(route))
    shown.page.reload()
    shown.page.get_by_role("button", name="Roll back to revision 1", exact=True).click()
    expect(shown.page.get_by_role("dialog")).to_be_hidden()
    for each in held:
        each.continue_()
    shown.page.unroute("**/system/config/compare")
    shown.page.get_by_role("dialog").get_by_role("button", name="Roll back").click()
    expect(shown.page.locator("#configuration-state")).to_contain_text("Revision 1 is the candidate")
    expect(shown.page.locator("#diff ins")).to_have_text(f'+ qos.default_up = "{former}"')


def test_a_roll_back_is_to_the_revision_that_the_user_saw(shown: Screen) -> None:
    committed(shown.api, "45mbit")
    shown.page.reload()
    shown.page.get_by_role("button", name="Roll back to revision 1", exact=True).click()
    dialog = shown.page.get_by_role("dialog")
    expect(dialog).to_be_visible()
    # Revision 1 is another one now.
    committed(shown.api, "46mbit")
    dialog.get_by_role("button", name="Roll back").click()
    expect(dialog.get_by_role("alert")).to_contain_text("changed")
    assert shown.api.get("/system/config/compare", "admin")["diff"] == ""

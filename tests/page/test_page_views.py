"""The views of the live page that list what the gateway has, from interfaces to the audit log."""

import json
import re
from collections.abc import Iterator

import bcrypt
import pytest
from playwright.sync_api import Browser, Locator, TimeoutError, expect

from tests.support.browser import Screen, screen
from tests.support.receivers import Receiver
from tests.support.stack import Api, running_stack, wait_for


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    """A gateway whose users and webhooks nobody else changes."""
    with running_stack(tmp_path_factory.mktemp("own"), sessions=120) as (api, _):
        yield api


@pytest.fixture
def shown(browser: Browser, own: Api) -> Iterator[Screen]:
    with screen(browser, own) as opened:
        opened.open().sign_in()
        opened.is_live()
        yield opened


def rows(shown: Screen, table: str) -> Locator:
    return shown.page.locator(f"#{table} tbody tr")


def press(shown: Screen, name: str) -> None:
    """A button of the view that is open."""
    shown.page.get_by_role("button", name=name).locator("visible=true").click()


def read_again(shown: Screen) -> None:
    """Has the page read what it shows, as a tab does that comes to the front."""
    shown.page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")


# Lists


@pytest.mark.parametrize(
    ("view", "table", "path"),
    [
        ("Interfaces", "interface-list", "/interfaces"),
        ("Routes", "route-list", "/routing/routes"),
        ("CGNAT", "cgnat-list", "/cgnat/sessions"),
    ],
)
def test_a_list_of_the_network_has_all_records_in_pages(
    shown: Screen, view: str, table: str, path: str
) -> None:
    shown.go(view)
    range_ = shown.page.locator(f"#{table}-range")
    expect(range_).to_have_text(f"1 to 50 of {shown.api.get(path)['count']}")
    expect(rows(shown, table)).to_have_count(50)
    first = rows(shown, table).first.inner_text()
    press(shown, "Next")
    expect(range_).to_contain_text("51 to ")
    expect(rows(shown, table).first).not_to_have_text(first)
    shown.page.go_back()
    expect(range_).to_contain_text("1 to 50 of")


def test_lists_are_filtered_and_sorted_and_lead_to_a_subscriber(shown: Screen) -> None:
    shown.go("Interfaces")
    shown.page.locator("#interfaces-type").select_option("trunk")
    expect(rows(shown, "interface-list")).to_have_count(2)
    shown.page.get_by_role("columnheader", name="Name").get_by_role("button").click()
    expect(rows(shown, "interface-list").first).to_contain_text("trunk1")
    assert shown.page.url.endswith("#interfaces?type=trunk&sort=-name")
    shown.page.reload()
    expect(rows(shown, "interface-list").first).to_contain_text("trunk1")
    shown.go("CGNAT")
    stats = shown.api.get("/cgnat/stats")
    expect(shown.page.locator("#cgnat-steered")).to_have_text(str(stats["vrf_steered_sessions"]))
    expect(shown.page.locator("#cgnat-public")).to_have_text(str(stats["public_ip_sessions"]))
    shown.page.get_by_label("IP address").fill("nonsense")
    press(shown, "Filter")
    expect(shown.page.locator("#cgnat-list-problem")).to_contain_text("ip_address: ")
    session = shown.api.get("/subscribers/12")
    shown.go("Routes")
    shown.page.get_by_label("Destination").fill(f"{session['ip_address']}/32")
    press(shown, "Filter")
    expect(rows(shown, "route-list")).to_have_count(1)
    rows(shown, "route-list").get_by_role("link", name="12").click()
    expect(shown.page.locator("#record-title")).to_have_text(session["username"])


def test_the_sessions_with_the_most_traffic_are_listed_while_a_user_looks(shown: Screen) -> None:
    path = "**/subscribers/traffic?*"

    def bits(text: str) -> float:
        """Bits per second of a text such as `1.23 Mbit/s`."""
        number, unit = text.split()
        return float(number) * 1000.0 ** " kMG".index(unit[0].replace("b", " "))

    def is_sorted(column: int) -> bool:
        texts = rows(shown, "talker-list").locator(f"td:nth-child({column})").all_inner_texts()
        rates = [bits(text) for text in texts]
        return rates == sorted(rates, reverse=True)

    shown.go("Traffic")
    expect(rows(shown, "talker-list")).to_have_count(50)
    assert is_sorted(5)
    with shown.page.expect_request(path):
        pass
    press(shown, "Up now")
    expect(shown.page.get_by_role("columnheader", name="Up now")).to_have_attribute("aria-sort", "descending")
    wait_for("the order", lambda: is_sorted(6))
    shown.go("CGNAT")
    expect(shown.page.locator("#cgnat-total")).not_to_have_text("\N{EN DASH}")
    # Longer than the pause between two readings.
    with pytest.raises(TimeoutError), shown.page.expect_request(path, timeout=7_000):
        pass


# Webhooks


def registered(api: Api, number: int) -> str:
    """The id of a new webhook."""
    body = {"url": f"http://127.0.0.1:9/{number}", "events": ["session.up"]}
    id: str = api.send("POST", "/webhooks", json=body).json()["data"]["id"]
    return id


def test_a_webhook_is_registered_tested_and_deleted(shown: Screen) -> None:
    with Receiver() as receiver:
        shown.go("Webhooks")
        shown.page.get_by_label("URL").fill(receiver.url)
        shown.page.get_by_label("session.down").uncheck()
        press(shown, "Register")
        expect(shown.page.locator("#deliveries-note")).to_have_text(receiver.url)
        (registered,) = shown.api.get("/webhooks")["webhooks"]
        assert registered["events"] == ["session.up"]
        expect(rows(shown, "webhook-list")).to_have_attribute("aria-current", "true")
        for number in (1, 2):
            press(shown, "Send a test")
            expect(rows(shown, "delivery-list")).to_have_count(number)
        expect(rows(shown, "delivery-list").first).to_contain_text("delivered")
        press(shown, "Delete…")
        shown.page.get_by_role("dialog").get_by_role("button", name="Delete").click()
        expect(rows(shown, "webhook-list")).to_have_count(0)
        expect(shown.page.locator("#deliveries")).to_be_hidden()
    assert shown.api.get("/webhooks")["count"] == 0


def test_a_list_that_changes_keeps_its_rows_and_the_place_of_the_keyboard(shown: Screen) -> None:
    def opener(number: int) -> Locator:
        return shown.page.get_by_role("button", name=f"http://127.0.0.1:9/{number}")

    def without(*gone: str) -> None:
        for id in gone:
            assert shown.api.send("DELETE", f"/webhooks/{id}").ok
        read_again(shown)

    first, second, third = (registered(shown.api, number) for number in range(3))
    table = rows(shown, "webhook-list")
    shown.go("Webhooks")
    opener(1).focus()
    row = table.first.element_handle()
    fourth = registered(shown.api, 3)
    read_again(shown)
    expect(table).to_have_count(4)
    assert row.evaluate("row => row.isConnected")
    expect(opener(1)).to_be_focused()
    without(second)
    expect(table).to_have_count(3)
    expect(opener(2)).to_be_focused()
    without(third, fourth)
    expect(table).to_have_count(1)
    expect(opener(0)).to_be_focused()
    shown.page.keyboard.press("Enter")
    expect(shown.page).to_have_url(f"{shown.api.url}/#webhooks?open={first}")
    expect(shown.page.get_by_role("button", name="Send a test")).to_be_enabled()
    opener(0).focus()
    without(first)
    expect(table).to_have_count(0)
    expect(shown.page.get_by_role("group", name="Table: Webhooks")).to_be_focused()
    for name in ("Send a test", "Delete…"):
        expect(shown.page.get_by_role("button", name=name)).to_be_disabled()


# Users


def add_user(shown: Screen, name: str, password: str, again: str) -> None:
    shown.page.get_by_label("New username").fill(name)
    shown.page.get_by_label("Password", exact=True).locator("visible=true").fill(password)
    shown.page.get_by_label("The password again").fill(again)
    press(shown, "Stage")


def candidate_diff(api: Api) -> str:
    return str(api.get("/system/config/compare", "admin")["diff"])


def test_edits_of_users_are_staged_and_a_password_becomes_a_hash_in_the_browser(shown: Screen) -> None:
    shown.go("Users")
    expect(rows(shown, "user-list")).to_have_count(2)
    press(shown, "Make admin: operator")
    toast = shown.page.locator("#toasts p").last
    expect(toast).to_contain_text("Commit it in the view Configuration.")
    problem = shown.page.locator("#add-user-problem")
    add_user(shown, "jo", "correct horse", "correct hose")
    expect(problem).to_have_text("The two passwords are not the same.")
    add_user(shown, "jo", "€" * 25, "€" * 25)
    expect(problem).to_have_text("A password must have at most 72 bytes.")
    assert "jo" not in candidate_diff(shown.api)
    for name, password in (("anna", "correct horse"), ("bert", "pässwörd €"), ("jo", "x" * 72)):
        with shown.page.expect_request("**/system/config/set") as staged:
            add_user(shown, name, password, password)
        # First: a toast lasts for seconds, as do the checks of a hash.
        expect(toast).to_contain_text(f"Staged the user {name}.")
        assert password not in (staged.value.post_data or "")
        user = staged.value.post_data_json["value"]
        assert (user["username"], user["role"]) == (name, "operator")
        assert bcrypt.checkpw(password.encode(), user["password_hash"].encode())
        assert not bcrypt.checkpw(password[:-1].encode(), user["password_hash"].encode())
    diff = candidate_diff(shown.api)
    for path in ("operator.role", "anna.role", "bert.role", "jo.role"):
        assert f"+ api.users.{path}" in diff
    assert shown.api.send("POST", "/system/config/discard").ok


def test_an_admin_ends_the_tokens_of_a_user_after_a_question_that_outlives_a_change_of_the_list(
    shown: Screen,
) -> None:
    token = shown.api.new_token("operator")
    shown.go("Users")
    end, dialog = (
        shown.page.get_by_role("button", name="End the tokens of operator"),
        shown.page.get_by_role("dialog"),
    )
    end.focus()
    shown.page.keyboard.press("Enter")
    expect(dialog).to_be_visible()
    user = {"username": "jo", "role": "operator", "password_hash": "$2b$12$" + "a" * 53}
    for action, path, value, number in (
        ("set", "api.users.2", json.dumps(user), 3),
        ("delete", "api.users.jo", None, 2),
    ):
        body = {"path": path, "value": value} if value else {"path": path}
        assert shown.api.send("POST", f"/system/config/{action}", json=body).ok
        assert shown.api.send("POST", "/system/config/commit").ok
        read_again(shown)
        expect(rows(shown, "user-list")).to_have_count(number)
    shown.page.keyboard.press("Escape")
    expect(end).to_be_focused()
    end.click()
    dialog.get_by_role("button", name="End tokens").click()
    expect(shown.page.locator("#toasts")).to_have_text("Ended all tokens of operator")
    assert shown.api.send("GET", "/subscribers/summary", token=token).status_code == 401
    shown.api.forget_tokens()


def test_an_operator_has_no_audit_log_and_edits_no_user(browser: Browser, own: Api) -> None:
    with screen(browser, own) as shown:
        shown.open("#users").sign_in("operator")
        expect(rows(shown, "user-list")).to_have_count(2)
        expect(shown.page.get_by_role("link", name="Audit")).to_be_hidden()
        expect(shown.page.get_by_role("button", name="Remove")).to_have_count(0)
        expect(shown.page.get_by_label("New username")).to_be_hidden()
        expect(shown.page.get_by_role("button", name="End the tokens of operator")).to_be_visible()


# The audit log


def test_the_audit_log_is_filtered_and_its_records_have_details(shown: Screen) -> None:
    assert shown.api.send("PUT", "/subscribers/12/rate", json={"rate_down": "5mbit", "rate_up": "5mbit"}).ok
    for _ in range(3):
        shown.api.send("GET", "/demux/config", None)
    wanted = {"route": "/api/v1/demux/config"}

    def refusals() -> int:
        return sum(one["count"] for one in shown.api.get("/audit", "admin", params=wanted)["records"])

    wait_for("the refused requests", lambda: refusals() == 3)
    shown.go("Audit")
    table = rows(shown, "audit-list")
    counted = table.filter(has_text=re.compile(r"\([23] times\)")).first
    expect(counted).to_contain_text("demux")
    counted.locator("summary").click()
    expect(counted.locator("dl")).to_contain_text("latest")
    changed = table.filter(has_text="subscribers.change_rate: Rate change requested for session 12").first
    expect(changed).to_contain_text("UTC")
    changed.locator("summary").click()
    expect(changed.locator("dl")).to_contain_text('"rate_down": "5mbit"')
    shown.page.get_by_label("Action").fill("login.log_in")
    shown.page.get_by_label("Result").select_option("done")
    expect(table.first).to_contain_text("login.log_in")
    expect(table.filter(has_text="subscribers")).to_have_count(0)
    shown.page.get_by_label("Since").fill("2099-01-01T00:00")
    press(shown, "Filter")
    expect(shown.page.locator("#audit-list-range")).to_have_text("no matches")


def test_a_list_says_that_the_gateway_does_not_respond_and_keeps_its_records(shown: Screen) -> None:
    path, problem = "**/api/v1/**", shown.page.locator("#audit-list-problem")
    shown.page.route(path, lambda route: route.abort())
    shown.go("Audit")
    expect(problem).to_have_text("The gateway does not respond.")
    shown.page.unroute(path)
    expect(rows(shown, "audit-list").first).to_contain_text("login.log_in")
    expect(problem).to_be_hidden()
    number = rows(shown, "audit-list").count()
    shown.page.route(path, lambda route: route.abort())
    press(shown, "Refresh")
    said = r"The gateway does not respond. The list is of \d\d:\d\d:\d\d UTC."
    expect(problem).to_have_text(re.compile(said))
    expect(rows(shown, "audit-list")).to_have_count(number)
    shown.page.unroute(path)
    expect(problem).to_be_hidden()

"""The views of the live page that list what the gateway has, from interfaces to the audit log."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import bcrypt
import pytest
from playwright.sync_api import Browser, Locator, TimeoutError, expect

from tests.support.browser import Screen, screen
from tests.support.faulty_core import FAULTS, faulty_gateway
from tests.support.receivers import Receiver
from tests.support.stack import Api, running_stack, wait_for

pytestmark = pytest.mark.slow


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


def bits(text: str) -> float:
    """Bits per second of a text such as `1.23 Mbit/s`."""
    number, unit = text.split()
    return float(number) * 1000.0 ** " kMG".index(unit[0].replace("b", " "))


def total(shown: Screen, table: str) -> int:
    """The number of records that the list says it has."""
    found = shown.page.locator(f"#{table}-range")
    expect(found).to_contain_text(" of ")
    return int(found.inner_text().rpartition(" ")[2].replace(",", ""))


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
    assert total(shown, table) == shown.api.get(path)["count"]
    expect(rows(shown, table)).to_have_count(50)
    first = rows(shown, table).first.inner_text()
    panel = shown.page.locator(".panel", has=shown.page.locator(f"#{table}"))
    panel.get_by_role("button", name="Next").click()
    expect(shown.page.locator(f"#{table}-range")).to_contain_text("51 to ")
    expect(rows(shown, table).first).not_to_have_text(first)
    shown.page.go_back()
    expect(shown.page.locator(f"#{table}-range")).to_contain_text("1 to 50 of")


def test_interfaces_are_filtered_and_sorted_and_have_a_link(shown: Screen) -> None:
    shown.go("Interfaces")
    shown.page.locator("#interfaces-type").select_option("trunk")
    expect(rows(shown, "interface-list")).to_have_count(2)
    shown.page.get_by_role("columnheader", name="Name").get_by_role("button").click()
    expect(rows(shown, "interface-list").first).to_contain_text("trunk1")
    assert shown.page.url.endswith("#interfaces?type=trunk&sort=-name")
    shown.page.reload()
    expect(rows(shown, "interface-list").first).to_contain_text("trunk1")
    expect(rows(shown, "interface-list")).to_have_count(2)


def test_the_values_of_a_filter_come_from_the_openapi_document_once_it_can_be_read(shown: Screen) -> None:
    def offered(select: str) -> list[str]:
        return shown.page.locator(f"#{select} option").all_inner_texts()

    document = "**/api/v1/openapi.json"
    shown.page.route(document, lambda route: route.fulfill(status=503, json={"message": "not now"}))
    shown.page.goto(f"{shown.api.url}/#interfaces?type=ppp")
    expect(rows(shown, "interface-list").first).to_contain_text("ppp")
    assert offered("interfaces-type") == ["All", "ppp"]
    shown.page.unroute(document)
    with shown.page.expect_request(document):
        read_again(shown)
    expect(shown.page.locator("#interfaces-type option")).to_have_count(8)
    operation = shown.api.send("GET", "/openapi.json").json()["paths"]["/api/v1/interfaces"]["get"]
    (kinds,) = (one["schema"]["enum"] for one in operation["parameters"] if one["name"] == "type")
    assert offered("interfaces-type") == ["All", *kinds]
    assert shown.page.locator("#interfaces-type").input_value() == "ppp"
    asked = sum(one.url.endswith("/openapi.json") for one in shown.requests)
    shown.go("Sessions")
    expect(shown.page.locator("#find-type option")).to_have_text(["All", "PPPoE", "DHCP"])
    assert sum(one.url.endswith("/openapi.json") for one in shown.requests) == asked


def test_a_route_of_a_session_leads_to_its_subscriber(shown: Screen) -> None:
    session = shown.api.get("/subscribers/12")
    shown.go("Routes")
    shown.page.get_by_label("Destination").fill(f"{session['ip_address']}/32")
    shown.page.get_by_role("button", name="Filter").locator("visible=true").click()
    expect(rows(shown, "route-list")).to_have_count(1)
    rows(shown, "route-list").get_by_role("link", name="12").click()
    expect(shown.page.locator("#record-title")).to_have_text(session["username"])


def test_a_filter_that_the_api_refuses_is_said_beside_the_list(shown: Screen) -> None:
    shown.go("CGNAT")
    shown.page.get_by_label("IP address").fill("nonsense")
    shown.page.get_by_role("button", name="Filter").locator("visible=true").click()
    expect(shown.page.locator("#cgnat-list-problem")).to_contain_text("ip_address: ")


def test_the_sessions_with_the_most_traffic_are_listed_while_a_user_looks(shown: Screen) -> None:
    path = "**/subscribers/traffic?*"

    def is_sorted(column: int) -> bool:
        texts = rows(shown, "talker-list").locator(f"td:nth-child({column})").all_inner_texts()
        rates = [bits(text) for text in texts]
        return rates == sorted(rates, reverse=True)

    shown.go("Traffic")
    expect(rows(shown, "talker-list")).to_have_count(50)
    assert is_sorted(5)
    with shown.page.expect_request(path):
        pass
    shown.page.get_by_role("button", name="Up now").click()
    expect(shown.page.get_by_role("columnheader", name="Up now")).to_have_attribute("aria-sort", "descending")
    wait_for("the order", lambda: is_sorted(6))
    shown.go("CGNAT")
    expect(shown.page.locator("#cgnat-total")).not_to_have_text("\N{EN DASH}")
    # Longer than the pause between two readings.
    with pytest.raises(TimeoutError), shown.page.expect_request(path, timeout=7_000):
        pass


def test_cgnat_counts_are_those_of_the_gateway(shown: Screen) -> None:
    shown.go("CGNAT")
    stats = shown.api.get("/cgnat/stats")
    expect(shown.page.locator("#cgnat-steered")).to_have_text(str(stats["vrf_steered_sessions"]))
    expect(shown.page.locator("#cgnat-public")).to_have_text(str(stats["public_ip_sessions"]))


def test_health_lists_what_the_gateway_depends_on(shown: Screen) -> None:
    shown.go("Health")
    known = shown.api.get("/system/health/detail")["dependencies"]
    states = shown.page.locator("#dependency-states li")
    # The last is that of the faults.
    expect(states).to_have_count(len(known) + 1)
    for number, dependency in enumerate(known):
        expect(states.nth(number)).to_contain_text(dependency["state"])


def test_health_lists_all_faults(browser: Browser, api: Api, state: Path, tmp_path: Path) -> None:
    with faulty_gateway(api, state, tmp_path) as faulty, screen(browser, faulty) as shown:
        shown.open("#health").sign_in("operator")
        expect(shown.page.locator("#dependency-states .bad").first).to_contain_text("has not replied since")
        expect(rows(shown, "fault-list")).to_have_count(min(50, len(FAULTS)))
        shown.page.get_by_label("Kind").select_option("vlan")
        expect(rows(shown, "fault-list")).to_have_count(1)
        expect(rows(shown, "fault-list")).to_contain_text("<b>File exists</b>")


def test_a_webhook_is_registered_tested_and_deleted(shown: Screen) -> None:
    with Receiver() as receiver:
        shown.go("Webhooks")
        shown.page.get_by_label("URL").fill(receiver.url)
        shown.page.get_by_label("session.down").uncheck()
        shown.page.get_by_role("button", name="Register").click()
        expect(shown.page.locator("#deliveries-note")).to_have_text(receiver.url)
        (registered,) = shown.api.get("/webhooks")["webhooks"]
        assert registered["events"] == ["session.up"]
        expect(rows(shown, "webhook-list")).to_have_attribute("aria-current", "true")
        shown.page.get_by_role("button", name="Send a test").click()
        expect(rows(shown, "delivery-list").first).to_contain_text("delivered")
        shown.page.get_by_role("button", name="Send a test").click()
        expect(rows(shown, "delivery-list")).to_have_count(2)
        shown.page.get_by_role("button", name="Delete…").click()
        shown.page.get_by_role("dialog").get_by_role("button", name="Delete").click()
        expect(rows(shown, "webhook-list")).to_have_count(0)
        expect(shown.page.locator("#deliveries")).to_be_hidden()
    assert shown.api.get("/webhooks")["count"] == 0


def test_a_webhook_that_somebody_else_deleted_has_no_live_buttons(shown: Screen) -> None:
    body = {"url": "http://127.0.0.1:9/hook", "events": ["session.up"]}
    id = shown.api.send("POST", "/webhooks", json=body).json()["data"]["id"]
    shown.page.goto(f"{shown.api.url}/#webhooks?open={id}")
    expect(shown.page.get_by_role("button", name="Send a test")).to_be_enabled()
    assert shown.api.send("DELETE", f"/webhooks/{id}").ok
    for name in ("Send a test", "Delete…"):
        expect(shown.page.get_by_role("button", name=name)).to_be_disabled()


def registered(api: Api, number: int) -> str:
    """The id of a new webhook."""
    body = {"url": f"http://127.0.0.1:9/{number}", "events": ["session.up"]}
    id: str = api.send("POST", "/webhooks", json=body).json()["data"]["id"]
    return id


def tab_to(shown: Screen, control: Locator) -> None:
    """Presses Tab until a control has the focus."""
    expect(control).to_be_visible()
    for _ in range(60):
        if control.evaluate("control => control === document.activeElement"):
            return
        shown.page.keyboard.press("Tab")
    raise AssertionError("Tab does not lead there")


def read_again(shown: Screen) -> None:
    """Has the page read what it shows, as a tab does that comes to the front."""
    shown.page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")


def test_the_keyboard_keeps_its_place_in_a_list_that_changes(shown: Screen) -> None:
    first, second, third = ids = [registered(shown.api, number) for number in range(3)]
    table = rows(shown, "webhook-list")
    shown.go("Webhooks")
    tab_to(shown, shown.page.get_by_role("button", name="http://127.0.0.1:9/1"))
    ids.append(registered(shown.api, 3))
    read_again(shown)
    expect(table).to_have_count(4)
    expect(shown.page.get_by_role("button", name="http://127.0.0.1:9/1")).to_be_focused()
    assert shown.api.send("DELETE", f"/webhooks/{second}").ok
    read_again(shown)
    expect(table).to_have_count(3)
    expect(shown.page.get_by_role("button", name="http://127.0.0.1:9/2")).to_be_focused()
    for id in (third, ids[3]):
        assert shown.api.send("DELETE", f"/webhooks/{id}").ok
    read_again(shown)
    expect(table).to_have_count(1)
    expect(shown.page.get_by_role("button", name="http://127.0.0.1:9/0")).to_be_focused()
    shown.page.keyboard.press("Enter")
    expect(shown.page).to_have_url(f"{shown.api.url}/#webhooks?open={first}")
    tab_to(shown, shown.page.get_by_role("button", name="http://127.0.0.1:9/0"))
    assert shown.api.send("DELETE", f"/webhooks/{first}").ok
    read_again(shown)
    expect(table).to_have_count(0)
    expect(shown.page.get_by_role("group", name="Table: Webhooks")).to_be_focused()


def test_a_row_that_looks_as_before_stays_while_another_comes(shown: Screen) -> None:
    ids = [registered(shown.api, 0)]
    table = rows(shown, "webhook-list")
    shown.go("Webhooks")
    expect(table).to_have_count(1)
    row = table.element_handle()
    ids.append(registered(shown.api, 1))
    read_again(shown)
    expect(table).to_have_count(2)
    assert row.evaluate("row => row.isConnected")
    for id in ids:
        assert shown.api.send("DELETE", f"/webhooks/{id}").ok


def test_a_dialog_leads_back_into_a_list_that_has_changed(shown: Screen) -> None:
    def commit(action: str, **body: str) -> None:
        assert shown.api.send("POST", f"/system/config/{action}", json=body).ok
        assert shown.api.send("POST", "/system/config/commit").ok
        read_again(shown)

    shown.go("Users")
    end = shown.page.get_by_role("button", name="End the tokens of operator")
    tab_to(shown, end)
    shown.page.keyboard.press("Enter")
    expect(shown.page.get_by_role("dialog")).to_be_visible()
    hash = "$2b$12$" + "a" * 53
    user = json.dumps({"username": "jo", "role": "operator", "password_hash": hash})
    commit("set", path="api.users.2", value=user)
    expect(rows(shown, "user-list")).to_have_count(3)
    shown.page.keyboard.press("Escape")
    expect(end).to_be_focused()
    commit("delete", path="api.users.jo")
    expect(rows(shown, "user-list")).to_have_count(2)
    expect(end).to_be_focused()


def test_users_are_listed_and_their_edits_are_staged(shown: Screen) -> None:
    shown.go("Users")
    expect(rows(shown, "user-list")).to_have_count(2)
    shown.page.get_by_role("button", name="Make admin: operator").click()
    expect(shown.page.locator("#toasts")).to_contain_text("Commit it in the view Configuration.")
    diff = shown.api.get("/system/config/compare", "admin")["diff"]
    assert '+ api.users.operator.role = "admin"' in diff
    shown.page.get_by_label("New username").fill("jo")
    add_user(shown, "correct horse", "correct hose")
    expect(shown.page.locator("#add-user-problem")).to_have_text("The two passwords are not the same.")
    add_user(shown, "€" * 25, "€" * 25)
    expect(shown.page.locator("#add-user-problem")).to_have_text("A password must have at most 72 bytes.")
    assert "jo" not in shown.api.get("/system/config/compare", "admin")["diff"]
    add_user(shown, "correct horse", "correct horse")
    expect(shown.page.locator("#toasts p").last).to_contain_text("Staged the user jo.")
    assert "jo" in shown.api.get("/system/config/compare", "admin")["diff"]
    assert shown.api.send("POST", "/system/config/discard").ok


def test_a_second_user_leaves_the_first_one_in_the_candidate(shown: Screen) -> None:
    shown.go("Users")
    for name in ("anna", "bert"):
        shown.page.get_by_label("New username").fill(name)
        add_user(shown, "correct horse", "correct horse")
        expect(shown.page.locator("#toasts p").last).to_contain_text(f"Staged the user {name}.")
    diff = shown.api.get("/system/config/compare", "admin")["diff"]
    assert shown.api.send("POST", "/system/config/discard").ok
    assert "+ api.users.anna.role" in diff
    assert "+ api.users.bert.role" in diff


def add_user(shown: Screen, password: str, again: str) -> None:
    shown.page.get_by_label("Password", exact=True).locator("visible=true").fill(password)
    shown.page.get_by_label("The password again").fill(again)
    shown.page.get_by_role("button", name="Stage").click()


def test_a_password_becomes_a_hash_in_the_browser(shown: Screen) -> None:
    for password in ("correct horse", "pässwörd €", "x" * 72):
        with shown.page.expect_request("**/system/config/set") as staged:
            shown.go("Users")
            shown.page.get_by_label("New username").fill("jo")
            add_user(shown, password, password)
        # The API takes it, too. First: a toast lasts for seconds, as do the checks of a hash.
        expect(shown.page.locator("#toasts p").last).to_contain_text("Staged the user jo.")
        assert password not in (staged.value.post_data or "")
        user = staged.value.post_data_json["value"]
        assert (user["username"], user["role"]) == ("jo", "operator")
        assert bcrypt.checkpw(password.encode(), user["password_hash"].encode())
        assert not bcrypt.checkpw(password[:-1].encode(), user["password_hash"].encode())
        assert shown.api.send("POST", "/system/config/discard").ok


def test_an_admin_ends_the_tokens_of_a_user_after_a_question(shown: Screen) -> None:
    token = shown.api.new_token("operator")
    shown.go("Users")
    shown.page.get_by_role("button", name="End the tokens of operator").click()
    shown.page.get_by_role("dialog").get_by_role("button", name="End tokens").click()
    expect(shown.page.locator("#toasts")).to_have_text("Ended all tokens of operator")
    assert shown.api.send("GET", "/subscribers/summary", token=token).status_code == 401
    shown.api.forget_tokens()


def test_the_audit_log_tells_what_was_done_by_whom(shown: Screen) -> None:
    assert shown.api.send("PUT", "/subscribers/12/rate", json={"rate_down": "5mbit", "rate_up": "5mbit"}).ok
    shown.go("Audit")
    first = rows(shown, "audit-list").first
    expect(first).to_contain_text("subscribers.change_rate: Rate change requested for session 12")
    expect(first).to_contain_text("UTC")
    assert rows(shown, "audit-list").count() > 1
    first.locator("summary").click()
    expect(first.locator("dl")).to_contain_text('"rate_down": "5mbit"')
    shown.page.get_by_label("Action").fill("login.log_in")
    shown.page.get_by_label("Result").select_option("done")
    expect(rows(shown, "audit-list").first).to_contain_text("login.log_in")
    expect(rows(shown, "audit-list").filter(has_text="subscribers")).to_have_count(0)
    shown.page.get_by_label("Since").fill("2099-01-01T00:00")
    shown.page.get_by_role("button", name="Filter").locator("visible=true").click()
    expect(shown.page.locator("#audit-list-range")).to_have_text("no matches")


def test_the_audit_log_shows_how_many_requests_without_a_token_were_refused(shown: Screen) -> None:
    for _ in range(3):
        shown.api.send("GET", "/demux/config", None)
    wanted = {"route": "/api/v1/demux/config"}
    wait_for("them", lambda: sum(one["count"] for one in audited(shown.api, wanted)) == 3)
    shown.go("Audit")
    counted = rows(shown, "audit-list").filter(has_text=re.compile(r"\([23] times\)")).first
    expect(counted).to_contain_text("demux")
    counted.locator("summary").click()
    expect(counted.locator("dl")).to_contain_text("latest")


def audited(api: Api, wanted: dict[str, str]) -> list[dict[str, Any]]:
    return list(api.get("/audit", "admin", params=wanted)["records"])


def test_the_audit_log_says_that_the_api_is_away_and_keeps_what_it_has(shown: Screen) -> None:
    path, problem = "**/api/v1/**", shown.page.locator("#audit-list-problem")
    shown.page.route(path, lambda route: route.abort())
    shown.go("Audit")
    expect(problem).to_have_text("The gateway does not respond.")
    shown.page.unroute(path)
    expect(rows(shown, "audit-list").first).to_contain_text("login.log_in")
    expect(problem).to_be_hidden()
    number = rows(shown, "audit-list").count()
    shown.page.route(path, lambda route: route.abort())
    shown.page.get_by_role("button", name="Refresh").locator("visible=true").click()
    expect(problem).to_have_text(
        re.compile(r"The gateway does not respond. The list is of \d\d:\d\d:\d\d UTC.")
    )
    expect(rows(shown, "audit-list")).to_have_count(number)
    shown.page.unroute(path)
    expect(problem).to_be_hidden()


def test_the_audit_log_breaks_no_word_on_a_phone(browser: Browser, own: Api) -> None:
    assert own.send("PUT", "/subscribers/12/rate", json={"rate_down": "5mbit", "rate_up": "5mbit"}).ok
    with screen(browser, own, viewport={"width": 390, "height": 844}) as shown:
        shown.open("#audit").sign_in()
        cells = rows(shown, "audit-list").filter(has_text="subscribers.change_rate").first
        expect(cells).to_be_visible()
        broken = cells.locator("summary, td.time").evaluate_all(
            """parts => parts.flatMap(part => {
                const text = document.createTreeWalker(part, NodeFilter.SHOW_TEXT).nextNode();
                return [...text.data.matchAll(/\\S+/g)].filter(({0: word, index}) => {
                    const range = document.createRange();
                    range.setStart(text, index);
                    range.setEnd(text, index + word.length);
                    return new Set([...range.getClientRects()].map(({top}) => top)).size > 1;
                }).map(([word]) => word);
            })"""
        )
        assert broken == []


@pytest.mark.parametrize("width", [390, 1024, 1440])
def test_the_url_of_a_webhook_that_fails_can_be_read(browser: Browser, own: Api, width: int) -> None:
    url = "http://127.0.0.1:9/a/long/path/of/a/receiver/that/nobody/has?customer=42&gateway=bng1"
    id = own.send("POST", "/webhooks", json={"url": url, "events": ["session.down"]}).json()["data"]["id"]
    for _ in range(3):
        assert own.send("POST", f"/webhooks/{id}/test").ok
    try:
        with screen(browser, own, viewport={"width": width, "height": 800}) as shown:
            shown.open("#webhooks").sign_in()
            row = rows(shown, "webhook-list")
            expect(row).to_contain_text("failing since")
            expect(row).to_contain_text(url)
            box = row.locator("td").first.bounding_box()
            assert box is not None
            assert box["width"] >= 140
            cut = "part => part.scrollWidth > part.clientWidth"
            assert shown.page.get_by_role("group", name="Table: Webhooks").evaluate(cut) is False
    finally:
        assert own.send("DELETE", f"/webhooks/{id}").ok


def test_an_operator_has_no_audit_log_and_edits_no_user(browser: Browser, own: Api) -> None:
    with screen(browser, own) as shown:
        shown.open("#users").sign_in("operator")
        expect(rows(shown, "user-list")).to_have_count(2)
        expect(shown.page.get_by_role("link", name="Audit")).to_be_hidden()
        expect(shown.page.get_by_role("button", name="Remove")).to_have_count(0)
        expect(shown.page.get_by_label("New username")).to_be_hidden()
        expect(shown.page.get_by_role("button", name="End the tokens of operator")).to_be_visible()

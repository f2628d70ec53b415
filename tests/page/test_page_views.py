"""The views of the live page, and the ways through them: links, keys, menus, and chosen columns."""

import json
import re

import bcrypt
from playwright.sync_api import Browser, Locator, expect

from tests.support.browser import GROUPS, PHONE, Screen, screen
from tests.support.receivers import Receiver
from tests.support.stack import Api


def set_filter(shown: Screen, label: str, value: str) -> None:
    shown.page.get_by_label(label).locator("visible=true").fill(value)
    shown.page.get_by_role("button", name="Filter").locator("visible=true").click()


def test_the_lists_of_the_network_have_all_records_in_pages(shown: Screen) -> None:
    for view, table, path in (
        ("Interfaces", "interface-list", "/interfaces"),
        ("Routes", "route-list", "/routing/routes"),
        ("CGNAT", "cgnat-list", "/cgnat/sessions"),
    ):
        shown.go(view)
        pages = shown.page.locator(f"#{table}-range")
        expect(pages).to_have_text(f"1 to 50 of {shown.api.get(path)['count']:,}")
        first = shown.rows(table).first.inner_text()
        shown.page.locator(".panel", has=pages).get_by_role("button", name="Next").click()
        expect(pages).to_contain_text("51 to ")
        expect(shown.rows(table).first).not_to_have_text(first)
        shown.page.go_back()
        expect(pages).to_contain_text("1 to 50 of")


def test_the_lists_of_the_network_are_filtered_and_lead_to_subscribers(shown: Screen) -> None:
    shown.go("Interfaces")
    shown.page.locator("#interfaces-type").select_option("trunk")
    expect(shown.rows("interface-list")).to_have_count(2)
    shown.page.get_by_role("columnheader", name="Name").get_by_role("button").click()
    expect(shown.rows("interface-list").first).to_contain_text("trunk1")
    assert shown.page.url.endswith("#interfaces?type=trunk&sort=-name")
    shown.page.reload()
    expect(shown.rows("interface-list").first).to_contain_text("trunk1")
    shown.go("CGNAT")
    stats = shown.api.get("/cgnat/stats")
    expect(shown.page.locator("#cgnat-steered")).to_have_text(str(stats["vrf_steered_sessions"]))
    expect(shown.page.locator("#cgnat-public")).to_have_text(str(stats["public_ip_sessions"]))
    set_filter(shown, "IP address", "nonsense")
    expect(shown.page.locator("#cgnat-list-problem")).to_contain_text("ip_address: ")
    session = shown.api.get("/subscribers/12")
    shown.go("Routes")
    set_filter(shown, "Destination", f"{session['ip_address']}/32")
    expect(shown.rows("route-list")).to_have_count(1)
    shown.rows("route-list").get_by_role("link", name="12").click()
    expect(shown.page.locator("#record-title")).to_have_text(session["username"])


def test_the_values_of_a_filter_come_from_the_openapi_document_once_it_can_be_read(shown: Screen) -> None:
    document, options = "**/api/v1/openapi.json", shown.page.locator("#interfaces-type option")
    shown.page.route(document, lambda route: route.fulfill(status=503, json={"message": "not now"}))
    shown.page.goto(f"{shown.api.url}/#interfaces?type=ppp")
    expect(shown.rows("interface-list").first).to_contain_text("ppp")
    assert options.all_inner_texts() == ["All", "ppp"]
    shown.page.unroute(document)
    with shown.page.expect_request(document):
        read_again(shown)
    operation = shown.api.send("GET", "/openapi.json").json()["paths"]["/api/v1/interfaces"]["get"]
    (kinds,) = (one["schema"]["enum"] for one in operation["parameters"] if one["name"] == "type")
    expect(options).to_have_text(["All", *kinds])
    assert shown.page.locator("#interfaces-type").input_value() == "ppp"
    read = sum(request.url.endswith("/openapi.json") for request in shown.requests)
    shown.go("Sessions")
    expect(shown.page.locator("#find-type option")).to_have_text(["All", "PPPoE", "DHCP"])
    assert sum(request.url.endswith("/openapi.json") for request in shown.requests) == read


def test_the_sessions_with_the_most_traffic_are_listed_while_a_user_looks(shown: Screen) -> None:
    shown.go("Traffic")
    expect(shown.rows("talker-list")).to_have_count(50)
    head = shown.page.get_by_role("columnheader", name="Up now")
    head.get_by_role("button").click()
    expect(head).to_have_attribute("aria-sort", "descending")
    with shown.page.expect_request(re.compile("/subscribers/traffic[?].*sort=-")):
        pass
    shown.go("CGNAT")
    expect(shown.page.locator("#cgnat-total")).not_to_have_text("\N{EN DASH}")
    sent = len(shown.requests)
    # Longer than the pause between two requests.
    shown.page.wait_for_timeout(7_000)
    assert not any("/subscribers/traffic" in request.url for request in shown.requests[sent:])


def test_a_webhook_is_registered_tested_and_deleted(shown: Screen) -> None:
    deliveries = shown.rows("delivery-list")
    with Receiver() as receiver:
        shown.go("Webhooks")
        shown.page.get_by_label("URL").fill(receiver.url)
        shown.page.get_by_label("session.down").uncheck()
        shown.press("Register")
        expect(shown.page.locator("#deliveries-note")).to_have_text(receiver.url)
        (registration,) = shown.api.get("/webhooks")["webhooks"]
        assert registration["events"] == ["session.up"]
        expect(shown.rows("webhook-list")).to_have_attribute("aria-current", "true")
        shown.press("Send a test")
        expect(deliveries.first).to_contain_text("delivered")
        shown.press("Send a test")
        expect(deliveries).to_have_count(2)
        shown.press("Delete…").confirm("Delete")
        expect(shown.rows("webhook-list")).to_have_count(0)
        expect(shown.page.locator("#deliveries")).to_be_hidden()
    assert shown.api.get("/webhooks")["count"] == 0


def register(api: Api, number: int) -> str:
    """Registers a webhook, and returns its id."""
    body = {"url": f"http://127.0.0.1:9/{number}", "events": ["session.up"]}
    id: str = api.send("POST", "/webhooks", json=body).json()["data"]["id"]
    return id


def read_again(shown: Screen) -> None:
    """Has the page read what it shows, as a tab does that comes to the front."""
    shown.page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")


def test_the_keyboard_keeps_its_place_in_a_list_that_changes(shown: Screen) -> None:
    ids, table = [register(shown.api, number) for number in range(3)], shown.rows("webhook-list")

    def opener(number: int) -> Locator:
        return shown.page.get_by_role("button", name=f"http://127.0.0.1:9/{number}")

    def delete(*webhooks: str) -> None:
        for id in webhooks:
            assert shown.api.send("DELETE", f"/webhooks/{id}").ok
            ids.remove(id)
        read_again(shown)
        expect(table).to_have_count(len(ids))

    shown.go("Webhooks")
    opener(1).focus()
    row = table.first.element_handle()
    ids.append(register(shown.api, 3))
    read_again(shown)
    expect(table).to_have_count(4)
    # A row that looks as before is not drawn again.
    assert row.evaluate("row => row.isConnected")
    expect(opener(1)).to_be_focused()
    delete(ids[1])
    expect(opener(2)).to_be_focused()
    delete(*ids[1:])
    expect(opener(0)).to_be_focused()
    shown.page.keyboard.press("Enter")
    expect(shown.page).to_have_url(f"{shown.api.url}/#webhooks?open={ids[0]}")
    expect(shown.page.get_by_role("button", name="Send a test")).to_be_enabled()
    opener(0).focus()
    delete(ids[0])
    expect(shown.page.get_by_role("group", name="Table: Webhooks")).to_be_focused()
    for name in ("Send a test", "Delete…"):
        expect(shown.page.get_by_role("button", name=name)).to_be_disabled()


def test_a_dialog_leads_back_into_a_list_that_has_changed(shown: Screen) -> None:
    def commit(action: str, **body: str) -> None:
        assert shown.api.send("POST", f"/system/config/{action}", json=body).ok
        assert shown.api.send("POST", "/system/config/commit").ok
        read_again(shown)

    token = shown.api.new_token("operator")
    shown.go("Users")
    end = shown.page.get_by_role("button", name="End the tokens of operator")
    end.focus()
    shown.page.keyboard.press("Enter")
    expect(shown.page.get_by_role("dialog")).to_be_visible()
    user = {"username": "jo", "role": "operator", "password_hash": "$2b$12$" + "a" * 53}
    commit("set", path="api.users.2", value=json.dumps(user))
    expect(shown.rows("user-list")).to_have_count(3)
    shown.page.keyboard.press("Escape")
    expect(end).to_be_focused()
    commit("delete", path="api.users.jo")
    expect(shown.rows("user-list")).to_have_count(2)
    expect(end).to_be_focused()
    shown.page.keyboard.press("Enter")
    shown.confirm("End tokens")
    expect(shown.page.locator("#toasts")).to_have_text("Ended all tokens of operator")
    assert shown.api.send("GET", "/subscribers/summary", token=token).status_code == 401
    shown.api.forget_tokens()


def add_user(shown: Screen, name: str, password: str, again: str | None = None) -> None:
    shown.page.get_by_label("New username").fill(name)
    shown.page.get_by_label("Password", exact=True).locator("visible=true").fill(password)
    shown.page.get_by_label("The password again").fill(password if again is None else again)
    shown.press("Stage")


def test_users_are_staged_with_hashes_of_their_passwords(shown: Screen) -> None:
    shown.go("Users")
    shown.press("Make admin: operator")
    expect(shown.page.locator("#toasts")).to_contain_text("Commit it in the view Configuration.")
    problem = shown.page.locator("#add-user-problem")
    add_user(shown, "jo", "correct horse", "correct hose")
    expect(problem).to_have_text("The two passwords are not the same.")
    add_user(shown, "jo", "€" * 25)
    expect(problem).to_have_text("A password must have at most 72 bytes.")
    for name, password in {"anna": "correct horse", "bert": "pässwörd €", "carl": "x" * 72}.items():
        with shown.page.expect_request("**/system/config/set") as staged:
            add_user(shown, name, password)
        expect(shown.page.locator("#toasts p").last).to_contain_text(f"Staged the user {name}.")
        assert password not in (staged.value.post_data or "")
        user = staged.value.post_data_json["value"]
        assert (user["username"], user["role"]) == (name, "operator")
        assert bcrypt.checkpw(password.encode(), user["password_hash"].encode())
        assert not bcrypt.checkpw(password[:-1].encode(), user["password_hash"].encode())
    diff = shown.api.get("/system/config/compare", "admin")["diff"]
    assert shown.api.send("POST", "/system/config/discard").ok
    assert '+ api.users.operator.role = "admin"' in diff
    for name in ("anna", "bert", "carl"):
        assert f"+ api.users.{name}.role" in diff
    assert "users.jo." not in diff


def test_the_audit_log_tells_what_was_done_by_whom(shown: Screen) -> None:
    assert shown.api.send("PUT", "/subscribers/12/rate", json={"rate_down": "5mbit", "rate_up": "5mbit"}).ok
    repeated = {"count": 3, "last_at": 1_795_271_513}
    shown.change_response("**/audit?*", lambda data: [one.update(repeated) for one in data["records"][-1:]])
    shown.go("Audit")
    counted = shown.rows("audit-list").filter(has_text="(3 times)")
    counted.locator("summary").click()
    expect(counted.locator("dl")).to_contain_text("latest")
    first = shown.rows("audit-list").first
    expect(first).to_contain_text("subscribers.change_rate: Rate change requested for session 12")
    expect(first).to_contain_text("UTC")
    first.locator("summary").click()
    expect(first.locator("dl")).to_contain_text('"rate_down": "5mbit"')
    shown.page.get_by_label("Result").select_option("done")
    set_filter(shown, "Action", "login.log_in")
    expect(first).to_contain_text("login.log_in")
    expect(shown.rows("audit-list").filter(has_text="subscribers")).to_have_count(0)
    set_filter(shown, "Since", "2099-01-01T00:00")
    expect(shown.page.locator("#audit-list-range")).to_have_text("no matches")


def test_a_list_says_that_the_api_is_away_and_keeps_what_it_has(shown: Screen) -> None:
    path, problem = "**/api/v1/**", shown.page.locator("#audit-list-problem")
    shown.page.route(path, lambda route: route.abort())
    shown.go("Audit")
    expect(problem).to_have_text("The gateway does not respond.")
    shown.page.unroute(path)
    expect(shown.rows("audit-list").first).to_contain_text("login.log_in")
    expect(problem).to_be_hidden()
    number = shown.rows("audit-list").count()
    shown.page.route(path, lambda route: route.abort())
    shown.page.get_by_role("button", name="Refresh").locator("visible=true").click()
    expect(problem).to_have_text(
        re.compile(r"The gateway does not respond. The list is of \d\d:\d\d:\d\d UTC.")
    )
    expect(shown.rows("audit-list")).to_have_count(number)
    shown.page.unroute(path)
    expect(problem).to_be_hidden()


def test_each_view_has_its_link_in_a_group(shown: Screen) -> None:
    places = shown.page.locator("#places")
    for group, views in GROUPS.items():
        shown.page.evaluate("scrollTo(0, document.body.scrollHeight)")
        shown.go(group)
        assert shown.page.evaluate("scrollY") == 0
        heading = shown.page.locator(f"[data-view={next(iter(views.values()))}] h1")
        expect(heading).to_be_focused()
        expect(shown.page).to_have_title(f"{heading.text_content()} · Subscriber gateway")
        for name, view in views.items():
            places.get_by_role("link", name=name).click()
            expect(shown.page).to_have_url(f"{shown.api.url}/#{view}")
            expect(shown.page.locator(f"[data-view={view}]")).to_be_visible()
            expect(places.get_by_role("link", name=name)).to_have_attribute("aria-current", "page")
            expect(places.locator("[aria-current=true]")).to_contain_text(group)
        # The links of other groups are one step away.
        expect(places.get_by_role("link")).to_have_count(1 + len(GROUPS) + len(views))


def test_the_back_button_leads_through_views_searches_and_records(shown: Screen) -> None:
    name, title = shown.rows().locator("button").nth(1), shown.page.locator("#record-title")
    shown.find("lab.example")
    # The list of all sessions has as many rows.
    total = shown.api.get("/subscribers", params={"search": "lab.example", "limit": 1})["total"]
    expect(shown.page.locator("#list-range")).to_have_text(f"1 to 50 of {total}")
    name.click()
    username = name.inner_text()
    expect(title).to_have_text(username)
    expect(shown.page.locator("#list tr[aria-current]")).to_contain_text(username)
    shown.find("13")
    expect(shown.page).to_have_url(f"{shown.api.url}/#subscribers?search=13&open=13")
    for _ in range(2):
        shown.page.go_back()
    expect(title).to_have_text(username)
    expect(shown.page.get_by_label("Find a subscriber")).to_have_value("lab.example")
    shown.page.go_back()
    expect(shown.page.locator("#record")).to_be_hidden()
    expect(shown.page.locator("#list tr[aria-current]")).to_have_count(0)
    for _ in range(2):
        shown.page.go_back()
    expect(shown.page.get_by_role("heading", name="Overview", exact=True)).to_be_visible()


def test_a_search_without_a_match_leads_to_the_history(shown: Screen) -> None:
    for text, query in {
        "nobody@lab.example": "search=nobody%40lab.example",
        "192.0.2.77": "ip_address=192.0.2.77",
        "2001:db8:ffff::1": "ip_address=2001%3Adb8%3Affff%3A%3A1",
        "02:ff:ff:ff:ff:ff": "search=02%3Aff%3Aff%3Aff%3Aff%3Aff",
    }.items():
        shown.find(text)
        # The link of the search before stays until the response to this one.
        link = shown.page.get_by_role("link", name="Look for it in the history")
        expect(link).to_have_attribute("href", f"#history?{query}")
        link.click()
        expect(shown.page).to_have_url(f"{shown.api.url}/#history?{query}")
        expect(shown.page.locator("#history-list-range")).to_have_text("no matches")


def test_keys_lead_to_the_search_the_list_and_back(shown: Screen) -> None:
    keyboard, dialog = shown.page.keyboard, shown.page.get_by_role("dialog")
    openers = shown.rows().locator("button")
    account = shown.page.locator("#account")
    shown.account("Keys")
    expect(shown.page.get_by_role("dialog", name="Keys").locator("kbd", has_text="/")).to_be_visible()
    keyboard.press("Escape")
    expect(account).to_be_focused()
    keyboard.press("?")
    expect(dialog).to_be_visible()
    keyboard.press("Escape")
    expect(dialog).to_be_hidden()
    keyboard.press("/")
    find = shown.page.get_by_label("Find a subscriber")
    expect(find).to_be_focused()
    keyboard.type("a/b?")
    expect(find).to_have_value("a/b?")
    expect(openers).to_have_count(50)
    keyboard.press("ArrowDown")
    expect(openers.first).to_be_focused()
    for key in ("ArrowDown", "ArrowDown", "ArrowUp", "Enter"):
        keyboard.press(key)
    expect(shown.page.locator("#record-state")).to_have_text("Active")
    # A dialog has its own Escape.
    shown.press("Disconnect…")
    keyboard.press("Escape")
    expect(dialog).to_be_hidden()
    expect(shown.page.locator("#record")).to_be_visible()
    keyboard.press("Escape")
    expect(shown.page.locator("#record")).to_be_hidden()
    expect(openers.nth(1)).to_be_focused()
    assert "open=" not in shown.page.url


def test_a_phone_has_one_menu_with_all_views_and_folds_its_filters(browser: Browser, own: Api) -> None:
    with screen(browser, own, viewport=PHONE, is_mobile=True, has_touch=True) as shown:
        shown.open("#history").sign_in().is_live()
        menu = shown.page.get_by_role("button", name="Menu")
        expect(menu).to_have_text("Menu History")
        menu.click()
        for name in (name for views in GROUPS.values() for name in views):
            expect(shown.page.locator("#places").get_by_role("link", name=name).first).to_be_in_viewport()
        shown.page.keyboard.press("Escape")
        expect(shown.page.locator("#places")).to_be_hidden()
        username = shown.page.locator("[data-view=history]").get_by_label("Part of a username")
        expect(username).to_be_hidden()
        shown.press("Filters")
        username.fill("nobody")
        shown.page.get_by_role("button", name="Filter", exact=True).click()
        expect(shown.page.get_by_role("button", name="Filters")).to_have_text("Filters (1)")
        shown.go("Webhooks")
        expect(shown.page.locator("#places")).to_be_hidden()
        expect(menu).to_have_text("Menu Webhooks")


def test_the_columns_of_the_list_are_chosen_and_remembered(shown: Screen) -> None:
    def assert_columns(*names: str) -> None:
        expect(shown.page.locator("#list th")).to_have_text([re.compile(f"^{name}") for name in names])

    usual = ("Id", "Username", "Type", "IP address", "MAC address", "VLAN", "Down", "Up", "Online for")
    shown.go("Subscribers")
    assert_columns(*usual)
    shown.press("Columns")
    shown.page.get_by_label("Interface", exact=True).check()
    shown.page.get_by_label("Up", exact=True).uncheck()
    chosen = (*usual[:6], "Interface", "Down", "Online for")
    assert_columns(*chosen)
    (session,) = shown.api.get("/subscribers", params={"sort": "id", "limit": 1})["sessions"]
    expect(shown.rows().first).to_contain_text(session["interface"])
    shown.page.keyboard.press("Escape")
    shown.page.reload()
    assert_columns(*chosen)
    kept = shown.page.evaluate("JSON.stringify({...localStorage})")
    assert set(json.loads(kept)) == {"columns of list"}
    shown.press("Columns")
    shown.press("As at first")
    assert_columns(*usual)
    assert shown.page.evaluate("localStorage.length") == 0

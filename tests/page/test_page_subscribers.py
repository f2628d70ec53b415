"""Finding subscribers on the live page, and what may be done to them there."""

import re
import time
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Locator, Route, expect

from tests.support.browser import Screen, screen
from tests.support.stack import Api

pytestmark = pytest.mark.slow

TRAFFIC = "**/subscribers/*/traffic"


@pytest.fixture
def shown(browser: Browser, api: Api) -> Iterator[Screen]:
    with screen(browser, api) as opened:
        opened.open("#subscribers").sign_in()
        expect(opened.page.locator("#list-range")).not_to_be_empty()
        yield opened


@pytest.fixture(scope="module")
def ids(api: Api) -> Iterator[int]:
    """Sessions to spend, that no other module takes."""
    return iter([item["id"] for item in api.get("/subscribers")["sessions"]][-60:])


def rows(shown: Screen) -> Locator:
    return shown.page.locator("#list tbody tr")


@pytest.mark.parametrize("field", ["id", "mac_address", "ip_address", "username", "ppp_interface"])
def test_a_subscriber_is_found_by_whatever_is_known_of_it(shown: Screen, field: str) -> None:
    session = shown.api.get("/subscribers/12")
    shown.find(f" {session[field]} ")
    expect(rows(shown)).to_have_count(1)
    expect(shown.page.get_by_role("heading", name=session["username"])).to_be_focused()
    fields = shown.page.locator("#record-fields")
    for known in ("mac_address", "ip_address", "access_interface", "acct_session_id"):
        expect(fields).to_contain_text(session[known])


@pytest.mark.parametrize(
    "spelled", ["02-00-00-00-00-0B", "0200.0000.000b", "02000000000b", "02:00:00:00:00:0B", "0200-0000-000b"]
)
def test_a_mac_is_found_however_it_is_spelled(shown: Screen, spelled: str) -> None:
    session = next(item for item in [shown.api.get("/subscribers/12")])
    assert session["mac_address"] == "02:00:00:00:00:0b"
    shown.find(spelled)
    expect(shown.page.locator("#record-title")).to_have_text(session["username"])


@pytest.mark.parametrize(
    "text", ["2001:db8:0:7::2", "2001:0DB8:0:7::FFFF", "2001:db8:8000:7ff::192.0.2.1"], ids=str
)
def test_a_subscriber_is_found_by_an_address_in_its_ipv6_networks(shown: Screen, text: str) -> None:
    session = shown.api.get("/subscribers/8")
    shown.find(text)
    expect(shown.page.locator("#record-title")).to_have_text(session["username"])
    fields = shown.page.locator("#record-fields")
    for name, known in {
        "IPv6 address": session["ipv6_address"],
        "IPv6 prefix": session["ipv6_prefix"],
        "Delegated prefixes": session["delegated_prefixes"][0],
        "VLAN": f"{session['outer_vlan_id']}.{session['inner_vlan_id']}",
        "Source": "lab",
    }.items():
        expect(fields.locator("div", has=shown.page.get_by_text(name, exact=True))).to_contain_text(known)


def test_a_stale_session_with_ipv6_only_is_shown_as_it_is(shown: Screen) -> None:
    def stale(route: Route) -> None:
        answer = route.fetch()
        body = answer.json()
        for session in body["data"].get("sessions", [body["data"]]):
            session |= {"state": "stale", "ip_address": None, "mac_address": None, "inner_vlan_id": None}
        route.fulfill(response=answer, json=body)

    # The lab has no such session.
    shown.page.route(re.compile("/api/v1/subscribers(/13|[?].*search=13.*)$"), stale)
    shown.find("13")
    expect(shown.page.locator("#record-state")).to_have_text("Stale: the source does not reply")
    expect(rows(shown)).to_contain_text("2001:db8:0:c::2")
    assert "null" not in shown.page.locator("#record-fields").inner_text()
    shown.page.get_by_role("button", name="Disconnect…").click()
    expect(shown.page.get_by_role("dialog")).to_contain_text("(session 13, 2001:db8:0:c::2)")


def test_a_number_that_is_also_a_username_opens_no_session(shown: Screen) -> None:
    def named(route: Route) -> None:
        answer = route.fetch()
        body = answer.json()
        body["data"]["sessions"] = [{"id": 7, "username": "13"}]
        route.fulfill(response=answer, json=body)

    # The lab has no such username.
    shown.page.route(re.compile("/api/v1/subscribers/history[?]username=13&"), named)
    shown.find("13")
    note = shown.page.locator("#list-namesake")
    expect(note).to_contain_text("13 is also the username of a subscriber without a session now.")
    expect(rows(shown)).to_have_count(1)
    expect(shown.page.locator("#record")).to_be_hidden()
    shown.find("id:13")
    expect(note).to_be_hidden()
    expect(shown.page.locator("#record-title")).to_have_text(shown.api.get("/subscribers/13")["username"])


def test_a_number_opens_no_session_while_the_history_does_not_reply(shown: Screen) -> None:
    refused = {"status": "error", "message": "The history is not available"}
    shown.page.route("**/subscribers/history?*", lambda route: route.fulfill(status=503, json=refused))
    shown.find("13")
    expect(shown.page.locator("#list-namesake")).to_contain_text("13 may also be a username")
    expect(shown.page.locator("#record")).to_be_hidden()


def test_the_age_of_a_session_is_by_the_clock_of_the_gateway(shown: Screen) -> None:
    started = shown.api.get("/subscribers/13")["started_at"]
    shown.page.add_init_script("const now = Date.now; Date.now = () => now() - 10 * 86_400_000")
    shown.page.reload()
    shown.find("13")
    hours = int(time.time() - started) // 3600
    wanted = re.compile(rf"\b({hours}|{hours + 1}) h\b")
    expect(rows(shown).locator("td").last).to_have_text(wanted)
    expect(shown.page.locator('#record-fields div[data-key="Online since"]')).to_contain_text(wanted)


def test_a_field_that_the_page_does_not_know_has_a_row_with_its_name(shown: Screen) -> None:
    def extended(route: Route) -> None:
        answer = route.fetch()
        body = answer.json()
        body["data"] |= {"line_profile": "vdsl-100", "line_speed": None}
        route.fulfill(response=answer, json=body)

    shown.page.route(re.compile("/api/v1/subscribers/13$"), extended)
    shown.find("13")
    fields = shown.page.locator("#record-fields")
    expect(fields.locator('div[data-key="Line profile"]')).to_contain_text("vdsl-100")
    expect(fields.locator('div[data-key="Line speed"]')).to_contain_text("none")
    assert "_" not in "".join(fields.locator("dt").all_inner_texts())


def test_everybody_on_an_access_interface_is_found(shown: Screen) -> None:
    interface = shown.api.get("/subscribers/12")["access_interface"]
    expected = shown.api.get("/subscribers", params={"interface": interface})["count"]
    shown.find(interface)
    expect(rows(shown)).to_have_count(expected)


@pytest.mark.parametrize(
    "text", ["999999999", "nobody@lab.example", "02:ff:ff:ff:ff:ff", "192.0.2.1", "::1", "<b>"]
)
def test_whoever_is_not_there_is_said_not_to_be(shown: Screen, text: str) -> None:
    shown.find(text)
    expect(shown.page.locator("#list-range")).to_have_text("no matches")
    expect(rows(shown)).to_have_count(0)


def test_a_type_can_be_chosen(shown: Screen) -> None:
    counts = shown.api.get("/subscribers/summary")
    shown.page.get_by_label("Type").select_option("DHCP")
    expect(shown.page.locator("#list-range")).to_have_text(f"1 to 50 of {counts['dhcp']}")
    expect(shown.page.locator("#list td:nth-child(3)").first).to_have_text("DHCP")


def test_pages_lead_forth_and_back(shown: Screen) -> None:
    def ids() -> list[str]:
        return rows(shown).locator("> :first-child").all_text_contents()

    first = ids()
    assert len(first) == 50
    shown.page.get_by_role("button", name="Next").click()
    expect(shown.page.locator("#list-range")).to_contain_text("51 to 100 of")
    assert not set(first) & set(ids())
    shown.page.get_by_role("button", name="Previous").click()
    expect(shown.page.locator("#list-range")).to_contain_text("1 to 50 of")
    assert ids() == first


def test_the_list_is_sorted_by_the_column_that_is_chosen(shown: Screen) -> None:
    shown.page.get_by_role("button", name="IP address").click()
    header = shown.page.get_by_role("columnheader", name="IP address")
    expect(header).to_have_attribute("aria-sort", "descending")
    shown.page.get_by_role("button", name="IP address").click()
    expect(header).to_have_attribute("aria-sort", "ascending")
    query = {"sort": "ip_address", "limit": "1"}
    least = shown.api.get("/subscribers", params=query)["sessions"][0]["ip_address"]
    expect(rows(shown).first).to_contain_text(least)


def test_an_admin_disconnects_a_subscriber_after_a_question(shown: Screen, ids: Iterator[int]) -> None:
    id = next(ids)
    shown.find(str(id))
    shown.page.get_by_role("button", name="Disconnect…").click()
    dialog = shown.page.get_by_role("dialog")
    expect(dialog).to_contain_text(f"session {id}")
    dialog.get_by_role("button", name="Cancel").click()
    assert shown.api.send("GET", f"/subscribers/{id}").ok
    shown.page.get_by_role("button", name="Disconnect…").click()
    dialog.get_by_role("button", name="Disconnect").click()
    expect(dialog).to_be_hidden()
    expect(shown.page.locator("#record-state")).to_contain_text("admin disconnect")
    expect(shown.page.get_by_role("button", name="Disconnect…")).to_be_disabled()
    expect(rows(shown).first).to_have_class("gone")
    assert shown.api.send("GET", f"/subscribers/{id}").status_code == 404


def test_a_session_that_ends_while_somebody_looks_at_it_is_said_to_have_ended(
    shown: Screen, ids: Iterator[int]
) -> None:
    id = next(ids)
    shown.find(str(id))
    expect(shown.page.locator("#record-state")).to_have_text("Active")
    shown.api.send("DELETE", f"/subscribers/{id}")
    expect(shown.page.locator("#record-state")).to_contain_text("Ended at")


def test_a_subscriber_who_is_gone_before_the_answer_is_told_of(shown: Screen, ids: Iterator[int]) -> None:
    id = next(ids)
    shown.find(str(id))
    shown.page.get_by_role("button", name="Disconnect…").click()
    shown.api.send("DELETE", f"/subscribers/{id}")
    dialog = shown.page.get_by_role("dialog")
    dialog.get_by_role("button", name="Disconnect").click()
    expect(dialog.get_by_role("alert")).to_have_text("No such session")


def test_an_admin_changes_a_rate(shown: Screen, ids: Iterator[int]) -> None:
    id = next(ids)
    shown.find(str(id))
    shown.page.get_by_role("button", name="Change rate…").click()
    dialog = shown.page.get_by_role("dialog")
    expect(dialog.get_by_label("Downstream")).to_have_value("100 Mbit")
    dialog.get_by_label("Downstream").fill("fast")
    dialog.get_by_role("button", name="Change rate").click()
    expect(dialog.get_by_role("alert")).to_contain_text("rate_down: must be a number and a unit")
    dialog.get_by_label("Downstream").fill("250000000")
    dialog.get_by_role("button", name="Change rate").click()
    expect(dialog.locator("#rate-down:invalid")).to_have_attribute(
        "title", "A number and a unit, for example 250 Mbit"
    )
    dialog.get_by_label("Downstream").fill("250 Mbit/s")
    dialog.get_by_label("Upstream").fill("33.3 mbps")
    dialog.get_by_role("button", name="Change rate").click()
    expect(dialog).to_be_hidden()
    expect(shown.page.locator("#record-state")).to_have_text(f"Rate change requested for session {id}")
    expect(shown.page.locator("#record-fields")).to_contain_text("250 Mbit/s down, 33.3 Mbit/s up")
    session = shown.api.get(f"/subscribers/{id}")
    assert (session["rate_down_bps"], session["rate_up_bps"]) == (250_000_000, 33_300_000)


def test_a_changed_rate_shows_in_the_row(shown: Screen, ids: Iterator[int]) -> None:
    id = next(ids)
    shown.find(str(id))
    expect(rows(shown)).to_have_count(1)
    expect(rows(shown)).to_contain_text("100 Mbit/s")
    body = {"rate_down": "250 Mbit", "rate_up": "33 Mbit"}
    assert shown.api.send("PUT", f"/subscribers/{id}/rate", json=body).ok
    expect(rows(shown)).to_contain_text("250 Mbit/s")
    expect(rows(shown)).to_contain_text("33 Mbit/s")


def test_a_search_that_finds_nobody_closes_the_record_of_the_search_before(shown: Screen) -> None:
    shown.find("9")
    expect(shown.page.get_by_role("button", name="Disconnect…")).to_be_enabled()
    shown.find("nobody@example.net")
    expect(shown.page.locator("#list-range")).to_have_text("no matches")
    expect(shown.page.locator("#record")).to_be_hidden()


def test_an_operator_is_offered_nothing_that_only_an_admin_may_do(browser: Browser, api: Api) -> None:
    with screen(browser, api) as shown:
        shown.open().sign_in("operator").find("7")
        expect(shown.page.locator("#record-state")).to_have_text("Active")
        for name in ("Disconnect…", "Change rate…"):
            expect(shown.page.get_by_role("button", name=name)).to_be_hidden()
        shown.go("Configuration")
        expect(shown.page.locator("#waiting-hidden")).to_be_visible()
        for name in ("Commit…", "Discard…", "Set", "Delete at this path", "Confirm"):
            expect(shown.page.get_by_role("button", name=name, exact=True)).to_be_hidden()
        statuses = [asked.response().status for asked in shown.requests if "/events/" not in asked.url]  # type: ignore[union-attr]
        assert set(statuses) <= {200}


def test_traffic_of_a_session_is_measured(shown: Screen) -> None:
    # A busy browser could draw the first sample before it is asked.
    shown.page.route(TRAFFIC, lambda route: None)
    shown.find("9")
    fields = shown.page.locator("#record-fields")
    expect(fields).to_contain_text("measuring")
    # That lets the request go on.
    shown.page.unroute(TRAFFIC)
    expect(fields).to_contain_text("bit/s down, ")
    expect(fields).not_to_contain_text("measuring")

"""What happened to a subscriber, in its order."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway_api.history.reader import read_timeline
from gateway_contract.base.errors import Invalid, NotFound
from gateway_contract.contract import Page
from tests.support.histories import History, down, failed, history, listed, rate, up

AT = 1_700_000_000


@pytest.fixture
def past(tmp_path: Path) -> Iterator[History]:
    """A session with other rates for a time, which an admin ended; one with a hole; and one of another."""
    with history(tmp_path / "history.sqlite") as opened:
        one = {"username": "ann"}
        opened.add(
            up(1, AT, **one),
            rate(1, AT, AT + 10, 250_000_000, 50_000_000, AT + 20, "admin", **one),
            rate(1, AT, AT + 20, 1000, 2000, **one),
            down(1, AT, AT + 3723, "admin_disconnect", author="admin", **one),
            up(2, AT + 4000, ip_address=None, **one),
            up(3, AT + 4001, username="bob"),
            at=AT + 4100,
        )
        opened.compare(listed(3, AT + 4001, username="bob"), at=AT + 4200)
        yield opened


MESSAGES = [
    "Session 2 ended between 2023-11-14T23:21:40Z and 2023-11-14T23:23:20Z: nobody saw the end",
    "Session 2 started on trunk0.7 with no IPv4 address",
    "Session 1 ended after 1:02:03, admin_disconnect, by admin",
    "Session 1 got 1 kbit/s down and 2 kbit/s up",
    "Session 1 got 250 Mbit/s down and 50 Mbit/s up until 2023-11-14T22:13:40Z, by admin",
    "Session 1 started on trunk0.7 with 100.64.0.7",
]


def messages(past: History, id: int) -> list[str]:
    return [entry.message for entry in past.reader.search(read_timeline, id, Page(100)).records]


@pytest.mark.parametrize("id", [1, 2])
def test_a_timeline_has_all_that_happened_to_the_subscriber_of_a_session(past: History, id: int) -> None:
    assert messages(past, id) == MESSAGES


def test_an_entry_has_the_fields_of_its_event(past: History) -> None:
    lost, _, ended, back, temporary, started = past.reader.search(read_timeline, 1, Page(100)).records
    assert (lost.event, lost.at, lost.reason, lost.author) == ("session.lost", AT + 4200, None, None)
    assert (ended.event, ended.reason, ended.author) == ("session.down", "admin_disconnect", "admin")
    assert (back.event, back.rate_down, back.rate_up, back.author) == ("session.rate", 1000, 2000, None)
    assert (temporary.rate_down, temporary.rate_expires_at) == (250_000_000, AT + 20)
    assert (started.event, started.session_id, started.rate_down) == ("session.up", 1, None)


def test_changes_within_a_second_are_all_there_and_in_their_order(past: History) -> None:
    mbits = [11, 12, 11, 10]
    changes = [
        rate(1, AT, AT + 30, mbit * 1_000_000, 2000, sequence=9 + number, username="ann")
        for number, mbit in enumerate(mbits)
    ]
    for _ in range(2):
        # That come again change nothing.
        past.add(*changes)
    found = [
        entry.rate_down
        for entry in past.reader.search(read_timeline, 1, Page(100)).records
        if entry.at == AT + 30
    ]
    assert found == [mbit * 1_000_000 for mbit in reversed(mbits)]


def test_an_id_that_no_session_had_and_a_cursor_that_no_page_gave_have_no_timeline(past: History) -> None:
    with pytest.raises(NotFound):
        past.reader.search(read_timeline, 4, Page(100))
    with pytest.raises(Invalid):
        past.reader.search(read_timeline, 1, Page(100, "WzEsMl0"))


def test_failed_sign_ons_of_the_username_or_from_its_mac_address_are_there(past: History) -> None:
    past.fail(
        failed(AT + 4300),
        failed(AT + 4360),
        failed(AT + 4400, username="anne", reason="session_limit"),
        failed(AT + 4500, username="carl", mac_address="02:00:00:00:00:08"),
        failed(AT + 4600, username=None),
    )
    nobody, misspelled, twice, *rest = past.reader.search(read_timeline, 1, Page(100)).records
    assert [entry.message for entry in rest] == MESSAGES
    assert nobody.message == "Sign-on of 02:00:00:00:00:07 on trunk0.7 failed, rejected"
    assert misspelled.message == "Sign-on of anne on trunk0.7 failed, session_limit"
    assert twice.message == (
        "Sign-on of ann on trunk0.7 failed, rejected, 2 times until 2023-11-14T23:26:00Z"
    )
    assert (twice.event, twice.at, twice.reason) == ("sign_on.failed", AT + 4300, "rejected")
    assert (twice.session_id, twice.author, twice.rate_down) == (None, None, None)


def test_pages_of_a_timeline_with_failed_sign_ons_have_each_once(past: History) -> None:
    past.fail(*(failed(AT + 4300, reason=reason) for reason in ("rejected", "no_address", "session_limit")))
    found, cursor = [], None
    while not found or cursor:
        page = past.reader.search(read_timeline, 1, Page(1, cursor))
        found += [entry.message for entry in page.records]
        cursor = page.next_cursor
    assert found == messages(past, 1)
    assert len(found) == len(MESSAGES) + 3

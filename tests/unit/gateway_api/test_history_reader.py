"""Searches in the history, and timelines of subscribers."""

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gateway_api.history import database, reader, sessions
from gateway_api.history.reader import Reader, read_timeline
from gateway_api.history.sessions import HistoryFilter, find_flapping, find_sessions
from gateway_contract.base.errors import HistoryUnavailable, Invalid, ListTooLarge, NotFound, SearchTooLong
from gateway_contract.contract import Page
from tests.support.histories import History, down, failed, history, listed, rate, up
from tests.support.pools import Here

AT = 1_700_000_000


@pytest.fixture(scope="module")
def past(tmp_path_factory: pytest.TempPathFactory) -> Iterator[History]:
    """1 is Ann, whose address 2 has later; 3 has a hole at its end; 4 is up."""
    with history(tmp_path_factory.mktemp("past") / "history.sqlite") as opened:
        ann = {"username": "Ann@lab.example", "mac_address": "02:00:00:00:ab:01", "ip_address": "100.64.3.7"}
        bob = {"username": "bob_b", "mac_address": "02:00:00:00:ab:02", "ip_address": "100.64.3.7"}
        eve = {"username": "eve", "mac_address": None, "ip_address": None, "access_interface": "trunk1.9"}
        six = {"ipv6_address": "2001:db8::7", "ipv6_prefix": "2001:db8::/64"}
        delegated = {"delegated_prefixes": ("2001:db8:8000:200::/56",), "interface": "ipoe4"}
        opened.add(up(1, AT, **ann, **six), down(1, AT, AT + 100, **ann, **six))
        opened.add(up(2, AT + 100, **bob, **delegated), down(2, AT + 100, AT + 200, "idle_timeout", **bob))
        opened.add(up(3, AT + 300, **eve), at=AT + 350)
        opened.compare(at=AT + 400)
        opened.add(up(4, AT + 500, **ann), at=AT + 500)
        yield opened


@pytest.mark.parametrize(
    ("wanted", "ids"),
    [
        *(({}, [4, 3, 2, 1]), ({"id": 2}, [2]), ({"username": "bob_b"}, [2])),
        *(({"type": "pppoe", "until": AT + 100}, [1]), ({"type": "dhcp"}, [])),
        *(({"mac_address": "02:00:00:00:ab:01"}, [4, 1]), ({"ip_address": "100.64.3.7"}, [4, 2, 1])),
        *(({"ip_address": "2001:db8::7"}, [1]), ({"ip_address": "2001:db8::ffff:1"}, [1])),
        ({"ip_address": "2001:db8:8000:2ff::1"}, [2]),
        *(({"interface": "ipoe4"}, [2]), ({"interface": "trunk1.9"}, [3]), ({"reason": "idle_timeout"}, [2])),
        # At 100 seconds one ended, and the next one started. The third may have been up until 400.
        *(({"at": AT + 99}, [1]), ({"at": AT + 100}, [2]), ({"at": AT + 399}, [3])),
        *(({"at": AT + 600}, [4]), ({"at": AT - 1}, []), ({"username": "Ann@lab.example", "at": AT}, [1])),
        *(({"since": AT + 200}, [4, 3, 2]), ({"since": AT + 201, "until": AT + 500}, [3])),
        *(({"search": "_b"}, [2]), ({"search": "%"}, []), ({"search": "TRUNK1"}, [3])),
        # A prefix that was delegated.
        *(({"search": "2001:db8:8000::/40"}, [2]), ({"search": "2001:db8:8000:300::/64"}, [])),
    ],
)
def test_sessions_are_found(past: History, wanted: dict[str, Any], ids: list[int]) -> None:
    assert past.ids(**wanted) == ids


def test_a_session_has_its_networks_as_text(past: History) -> None:
    one, two = past.found(until=AT + 200)[::-1]
    assert (one.ipv6_address, one.ipv6_prefix, one.delegated_prefixes) == ("2001:db8::7", "2001:db8::/64", ())
    assert (two.ipv6_address, two.delegated_prefixes) == (None, ("2001:db8:8000:200::/56",))


def test_a_text_that_means_many_names_finds_the_newest(
    past: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "_MAX_LISTED_NUMBERS", 0)
    assert [past.ids(search=text) for text in ("ann@", "ab:01")] == [[4, 1], [4, 1]]


def test_pages_have_each_session_once_of_those_that_started_in_one_second_too(
    past: History, tmp_path: Path
) -> None:
    assert past.reader.search(find_sessions, HistoryFilter(), Page(4)).next_cursor is None
    with history(tmp_path / "history.sqlite") as past:
        past.add(*(up(id, AT) for id in range(1, 6)))
        cursor, found = None, []
        for _ in range(3):
            page = past.reader.search(find_sessions, HistoryFilter(), Page(2, cursor))
            found.append([session.id for session in page.records])
            cursor = page.next_cursor
        assert (found, cursor) == ([[5, 4], [3, 2], [1]], None)


@pytest.mark.parametrize("cursor", ["x", "W10", "Wy0xLDJd", "bnVsbA", "WzEs!!!!Ml0"])
def test_a_cursor_that_no_page_gave_is_refused(past: History, cursor: str) -> None:
    with pytest.raises(Invalid, match="cursor: must be what the last page gave as next_cursor"):
        past.reader.search(find_sessions, HistoryFilter(), Page(2, cursor))


def test_a_whole_list_that_is_too_large_is_refused(past: History, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "MAX_LIMIT", 3)
    with pytest.raises(ListTooLarge):
        past.found()


def test_a_search_over_its_time_is_refused_with_what_to_do(
    past: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "_STEPS_PER_CLOCK_CHECK", 1)
    monkeypatch.setattr(reader, "DEADLINE_SECONDS", 0.0)
    with pytest.raises(SearchTooLong, match="narrow it to a subscriber"):
        Reader(past.path, Here()).search(find_sessions, HistoryFilter(), None)


def test_all_reads_of_a_search_are_of_one_moment(tmp_path: Path) -> None:
    with history(tmp_path / "history.sqlite") as past:
        past.add(up(1, AT))

        def search(connection: sqlite3.Connection) -> list[list[tuple[int]]]:
            def read() -> list[tuple[int]]:
                return connection.execute("SELECT id FROM session").fetchall()

            before = read()
            past.add(up(2, AT))
            return [before, read()]

        assert Reader(past.path, Here()).search(search) == [[(1,)], [(1,)]]


def test_a_history_that_cannot_be_read_is_unavailable(tmp_path: Path) -> None:
    with pytest.raises(HistoryUnavailable, match="cannot read the history"):
        Reader(tmp_path / "none.sqlite", Here()).search(find_sessions, HistoryFilter(), None)


def test_flapping_subscribers_are_those_with_the_most_sessions_and_the_last_of_each(tmp_path: Path) -> None:
    with history(tmp_path / "history.sqlite") as past:
        for second, name in enumerate(("a", "b", "b", "c", "a", "b")):
            begins, named = AT + 10 * second, {"username": name}
            past.add(
                up(second, begins, **named),
                down(second, begins, begins + second, f"{name}_{second}", **named),
            )
        found = past.reader.search(find_flapping, AT, AT + 60, 10)
        assert [(one.username, one.sessions, one.started_at, one.reason) for one in found] == [
            ("b", 3, AT + 50, "b_5"),
            ("a", 2, AT + 40, "a_4"),
        ]
        assert [one.username for one in past.reader.search(find_flapping, AT, AT + 60, 1)] == ["b"]
        # Before its last session started, and from its first one's start on.
        assert [one.sessions for one in past.reader.search(find_flapping, AT + 10, AT + 50, 10)] == [2]


# Timelines.


@pytest.fixture
def of_ann(tmp_path: Path) -> Iterator[History]:
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


def messages(of_ann: History, id: int) -> list[str]:
    return [entry.message for entry in of_ann.reader.search(read_timeline, id, Page(100)).records]


@pytest.mark.parametrize("id", [1, 2])
def test_a_timeline_has_all_that_happened_to_the_subscriber_of_a_session(of_ann: History, id: int) -> None:
    assert messages(of_ann, id) == MESSAGES


def test_an_entry_has_the_fields_of_its_event(of_ann: History) -> None:
    lost, _, ended, back, temporary, started = of_ann.reader.search(read_timeline, 1, Page(100)).records
    assert (lost.event, lost.at, lost.reason, lost.author) == ("session.lost", AT + 4200, None, None)
    assert (ended.event, ended.reason, ended.author) == ("session.down", "admin_disconnect", "admin")
    assert (back.event, back.rate_down, back.rate_up, back.author) == ("session.rate", 1000, 2000, None)
    assert (temporary.rate_down, temporary.rate_expires_at) == (250_000_000, AT + 20)
    assert (started.event, started.session_id, started.rate_down) == ("session.up", 1, None)


def test_changes_within_a_second_are_all_there_and_in_their_order(of_ann: History) -> None:
    mbits = [11, 12, 11, 10]
    changes = [
        rate(1, AT, AT + 30, mbit * 1_000_000, 2000, sequence=9 + number, username="ann")
        for number, mbit in enumerate(mbits)
    ]
    for _ in range(2):
        # That come again change nothing.
        of_ann.add(*changes)
    found = [
        entry.rate_down
        for entry in of_ann.reader.search(read_timeline, 1, Page(100)).records
        if entry.at == AT + 30
    ]
    assert found == [mbit * 1_000_000 for mbit in reversed(mbits)]


def test_an_id_that_no_session_had_and_a_cursor_that_no_page_gave_have_no_timeline(of_ann: History) -> None:
    with pytest.raises(NotFound):
        of_ann.reader.search(read_timeline, 4, Page(100))
    with pytest.raises(Invalid):
        of_ann.reader.search(read_timeline, 1, Page(100, "WzEsMl0"))


def test_failed_sign_ons_of_the_username_or_from_its_mac_address_are_there(of_ann: History) -> None:
    of_ann.fail(
        failed(AT + 4300),
        failed(AT + 4360),
        failed(AT + 4400, username="anne", reason="session_limit"),
        failed(AT + 4500, username="carl", mac_address="02:00:00:00:00:08"),
        failed(AT + 4600, username=None),
    )
    nobody, misspelled, twice, *rest = of_ann.reader.search(read_timeline, 1, Page(100)).records
    assert [entry.message for entry in rest] == MESSAGES
    assert nobody.message == "Sign-on of 02:00:00:00:00:07 on trunk0.7 failed, rejected"
    assert misspelled.message == "Sign-on of anne on trunk0.7 failed, session_limit"
    assert twice.message == (
        "Sign-on of ann on trunk0.7 failed, rejected, 2 times until 2023-11-14T23:26:00Z"
    )
    assert (twice.event, twice.at, twice.reason) == ("sign_on.failed", AT + 4300, "rejected")
    assert (twice.session_id, twice.author, twice.rate_down) == (None, None, None)


def test_pages_of_a_timeline_with_failed_sign_ons_have_each_once(of_ann: History) -> None:
    of_ann.fail(*(failed(AT + 4300, reason=reason) for reason in ("rejected", "no_address", "session_limit")))
    found, cursor = [], None
    while not found or cursor:
        page = of_ann.reader.search(read_timeline, 1, Page(1, cursor))
        found += [entry.message for entry in page.records]
        cursor = page.next_cursor
    assert found == messages(of_ann, 1)
    assert len(found) == len(MESSAGES) + 3

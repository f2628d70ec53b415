"""What the history keeps of failed sign-ons, and finds again."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from gateway_api.history import sessions
from gateway_api.history.sign_ons import SignOnFilter, find_failed_sign_ons
from gateway_contract.base.errors import Invalid
from gateway_contract.contract import Page
from gateway_contract.core.configuration import HistoryLimits
from tests.support.histories import History, down, failed, history, up

AT = 1_700_000_000
_DAY = 86_400


@pytest.fixture
def past(tmp_path: Path) -> Iterator[History]:
    with history(tmp_path / "history.sqlite") as opened:
        yield opened


def spans(past: History) -> list[tuple[int, int, int]]:
    return [(one.first_at - AT, one.last_at - AT, one.attempts) for one in past.failures()]


def test_a_failed_sign_on_is_there_with_all_that_was_known_of_it(past: History) -> None:
    past.fail(failed(AT, outer_vlan_id=100, inner_vlan_id=7))
    (found,) = past.failures()
    assert (found.type, found.username, found.mac_address) == ("PPPoE", "ann", "02:00:00:00:00:07")
    assert (found.access_interface, found.outer_vlan_id, found.inner_vlan_id) == ("trunk0.7", 100, 7)
    assert (found.source, found.reason) == ("lab", "rejected")
    assert (found.attempts, found.first_at, found.last_at) == (1, AT, AT)


def test_attempts_that_follow_one_another_are_one_record(past: History) -> None:
    # Also where nothing but the port is known.
    nobody: dict[str, Any] = {"username": None, "mac_address": None}
    past.fail(failed(AT, **nobody), failed(AT + 10, **nobody), failed(AT + 910, **nobody))
    past.fail(failed(AT + 1000, **nobody), failed(AT + 1901, **nobody))
    assert spans(past) == [(1901, 1901, 1), (0, 1000, 4)]
    assert {(one.username, one.mac_address) for one in past.failures()} == {(None, None)}


@pytest.mark.parametrize(
    "other",
    [
        {"reason": "radius_timeout"},
        {"username": None},
        {"mac_address": "02:00:00:00:00:08"},
        {"access_interface": "trunk0.8"},
    ],
)
def test_an_attempt_that_differs_is_another_record(past: History, other: dict[str, Any]) -> None:
    past.fail(failed(AT), failed(AT + 1, **other), failed(AT + 2), failed(AT + 3, **other))
    assert spans(past) == [(1, 3, 2), (0, 2, 2)]


def test_after_a_clock_was_set_back_no_record_ends_before_it_began(past: History) -> None:
    past.fail(failed(AT + _DAY), failed(AT))
    assert spans(past) == [(_DAY, _DAY, 1), (0, 0, 1)]


def test_each_condition_finds_what_matches(past: History) -> None:
    other = {"mac_address": "02:00:00:00:00:08", "access_interface": "trunk0.8", "type": "DHCP"}
    past.fail(failed(AT), failed(AT + 10), failed(AT + 100, username="bob", reason="no_address", **other))
    conditions: list[tuple[dict[str, Any], list[str]]] = [
        *(({}, ["bob", "ann"]), ({"username": "ann"}, ["ann"]), ({"username": "an"}, [])),
        *(({"mac_address": "02:00:00:00:00:08"}, ["bob"]), ({"interface": "trunk0.7"}, ["ann"])),
        *(({"reason": "no_address"}, ["bob"]), ({"type": "dhcp"}, ["bob"]), ({"since": AT + 11}, ["bob"])),
        *(({"since": AT + 10}, ["bob", "ann"]), ({"until": AT + 100}, ["ann"])),
        ({"search": "trunk0", "reason": "rejected"}, ["ann"]),
    ]
    for wanted, found in conditions:
        assert [one.username for one in past.failures(**wanted)] == found, wanted


def test_pages_have_each_record_once(past: History) -> None:
    past.fail(*(failed(AT + number // 2, username=str(number)) for number in range(5)))
    found, cursor = [], None
    for _ in range(3):
        page = past.reader.search(find_failed_sign_ons, SignOnFilter(), Page(2, cursor))
        found += [one.username for one in page.records]
        cursor = page.next_cursor
    assert (found, cursor) == (["4", "3", "2", "1", "0"], None)
    with pytest.raises(Invalid):
        past.reader.search(find_failed_sign_ons, SignOnFilter(), Page(2, "x"))


def trimmed(past: History, days: int, mebibytes: int, now: int) -> list[str | None]:
    while past.store.trim(HistoryLimits(days, mebibytes), now):
        pass
    return [one.username for one in past.failures()]


def test_failed_sign_ons_go_days_after_their_last_attempt(past: History) -> None:
    past.fail(failed(AT), failed(AT + 200), failed(AT + 100, username="bob"))
    assert trimmed(past, 1, 1024, AT + 100 + _DAY) == ["bob", "ann"]
    assert trimmed(past, 1, 1024, AT + 150 + _DAY) == ["ann"]
    assert trimmed(past, 1, 1024, AT + 201 + _DAY) == []


def test_failed_sign_ons_take_no_more_than_their_share_and_leave_the_sessions(
    past: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "_FAILURE_BYTES", 1 << 16)
    past.add(up(7, AT), down(7, AT, AT + 1))
    past.fail(*(failed(AT + 10 + number, username=str(number)) for number in range(20)))
    assert trimmed(past, 90, 1, AT + 100) == ["19", "18", "17", "16"]
    assert past.ids() == [7]


def test_a_name_goes_with_the_last_that_has_it(past: History) -> None:
    def kept() -> set[str]:
        with closing(sqlite3.connect(past.path)) as connection:
            return {text for (text,) in connection.execute("SELECT text FROM text")}

    past.add(up(1, AT, username="carl"), down(1, AT, AT + 1, username="carl"))
    past.fail(failed(AT, username="carl"), failed(AT, username="dora"), failed(AT + _DAY, username="eve"))
    trimmed(past, 1, 1024, AT + _DAY + 1)
    assert {"carl", "dora", "eve"} & kept() == {"carl", "eve"}
    trimmed(past, 1, 1024, AT + _DAY + 2)
    assert kept() == {"eve", "020000000007", "trunk0.7"}

"""Sessions found by what an operator knows of them."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gateway_contract.core.sessions import SessionFilter
from gateway_core.sessions.session import Session
from gateway_core.sessions.table import SessionTable
from tests.support.histories import failed, history, up
from tests.support.tables import session, table_of

ALICE = session(
    7,
    username="Alice.Müller@isp.example",
    ip_address="100.64.3.7",
    mac_address="02:a0:fc:00:1b:07",
    interface="ppp12",
    access_interface="trunk0.2100.300",
    outer_vlan_id=2100,
    inner_vlan_id=300,
    ipv6_address="2001:db8:0:7::2",
    ipv6_prefix="2001:db8:0:7::/64",
    delegated_prefixes=("2001:db8:8000:700::/56",),
    acct_session_id="ED2F89D94A2F20AA",
)
OTHERS = [
    session(
        id,
        username=f"bob{id}@other.example",
        ip_address=f"100.64.30.{id}",
        mac_address=f"0e:00:00:00:00:{id:02x}",
        interface=f"ipoe{id}",
        access_interface=f"trunk9.{id}",
        inner_vlan_id=3900 + id,
        acct_session_id=f"{id:032d}",
    )
    for id in range(40, 60)
]


@pytest.fixture(scope="module")
def table() -> SessionTable[Session]:
    return table_of(ALICE, *OTHERS)


def found(table: SessionTable[Session], text: str, **wanted: str) -> list[int]:
    return [one.id for one in table.find(SessionFilter(search=text, **wanted))]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "text",
    [
        *("ALICE.MÜLLER", "isp.example", "ice", "user:ALICE", "user:ice"),
        *("02-A0-FC-00-1B-07", "02a0.fc00.1b07", "02A0FC001B07", "0-1B07", "2:a0:f", "mac:a0-fc"),
        *("100.64.3.7", "100.64.3", "100.64.3.", "100.64.2.0/23", "100.64.3.7/32", "ip:100.64.3"),
        *("2001:db8:0:7::2", "2001:DB8:0:7::99", "2001:db8:8000:7ff::1", "2001:db8:0:7::/64"),
        *("2001:db8:8000::/40", "2001:db8:8000:740::/60", "2001:db8:0:7", "2001:db8:8000:700:"),
        *("PPP12", "trunk0", "trunk0.2100", "trunk0.2100.300"),
        *("7", "id:7", "2100", "300", "ED2F89D94A2F20AA", "ed2f89d"),
    ],
)
def test_a_session_is_found_by_what_is_known_of_it(table: SessionTable[Session], text: str) -> None:
    assert found(table, text) == [7]


@pytest.mark.parametrize(
    "text",
    [
        # A part of a number, of an id or of a name of a device is another one.
        *("ppp1", "trunk", "210", "30", "100.64.3.7.", "00.64.3.7", "64.3.7"),
        *("2f89", "ed2", "0fc001b08", "a:0f", "00.1b08", "a0f-c001"),
        # What is said to be of one kind is of no other.
        *("id:2100", "id:alice", "id:", "user:ppp12", "ip:alice", "mac:alice", "mac:a0"),
        *("100.64.3.8", "100.64.4.0/24", "2001:db8:0:8::1", "2001:db8:0:8::/64", "2001:db8:0:70"),
        *("alice bob", "\n", "\0", "-", "100.64.3.0/33", "2001:db8::/200", "2001:db8::/-5", "::/", ":"),
    ],
)
def test_a_session_is_not_found_by_less_or_by_something_else(table: SessionTable[Session], text: str) -> None:
    assert found(table, text) == []


def test_a_prefix_finds_the_networks_in_it_from_the_first_to_the_last() -> None:
    inside = ["2001:db8::/64", "2001:db8:0:8000::/49", "2001:db8:0:ffff::/64"]
    prefixes = ["2001:db7:ffff:ffff::/64", *inside, "2001:db8:1::/64"]
    table = table_of(*(session(id, ipv6_prefix=prefix) for id, prefix in enumerate(prefixes)))
    assert found(table, "2001:db8::/48") == [1, 2, 3]


def test_a_part_that_many_have_finds_them_by_id(table: SessionTable[Session]) -> None:
    assert found(table, "bob") == list(range(40, 60))
    assert found(table, "example") == found(table, "100.64.0.0/16") == [7, *range(40, 60)]
    # A text of few digits is no part of a name.
    assert found(table, "41") == found(table, "bob41") == [41]


def test_a_text_of_few_digits_is_a_whole_name_with_or_without_a_realm() -> None:
    names = {11: "120", 12: "120@isp.example", 13: "1201", 14: "x120", 120: "carol", 121: "dave"}
    table = table_of(*(session(id, username=name, inner_vlan_id=id) for id, name in names.items()))
    assert found(table, "120") == [11, 12, 120]
    assert found(table, "id:120") == [120]
    assert found(table, "user:120") == [11, 12, 13, 14]


def test_other_filters_must_hold_too(table: SessionTable[Session]) -> None:
    assert found(table, "example", interface="ppp12") == [7]
    assert found(table, "bob", interface="ppp12") == []
    assert found(table, "alice", ip_address="1:2") == []


def test_a_search_finds_what_has_changed_since() -> None:
    table = table_of(session(1), session(2))
    assert found(table, "user2") == [2]
    table.add(session(9, username="dave", ip_address=None, mac_address=None, inner_vlan_id=None))
    assert (found(table, "dave"), 9 in found(table, "0.0.0.0/0")) == ([9], False)
    table.replace(session(2, username="carol"))
    table.add(session(3, username="user20"))
    table.remove(1)
    assert (found(table, "user2"), found(table, "carol"), found(table, "user1")) == ([3], [2], [])


#: What is known of three subscribers, by session id.
KNOWN: dict[int, dict[str, Any]] = {
    id: {"username": name, "mac_address": mac, "ip_address": address, **more}
    for id, name, mac, address, more in (
        (1, "Jörg.MÜLLER", "02:00:00:00:00:05", "100.64.0.5", {"ipv6_prefix": "2001:db8:0:6::/64"}),
        (2, "Иван", "02:00:00:0a:b0:06", "100.64.1.6", {"ipv6_address": "2001:db8:1::6"}),
        (3, "STRAẞE", "0e:00:00:00:00:07", "10.64.0.7", {"ipv6_address": None}),
    )
}


@pytest.fixture(scope="module")
def everywhere(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], list[list[int]]]]:
    """The ids that the list, the history and the failed sign-ons find by a text."""
    table = table_of(*(session(id, **{"ipv6_prefix": None, **known}) for id, known in KNOWN.items()))
    with history(tmp_path_factory.mktemp("past") / "history.sqlite") as past:
        past.add(*(up(id, 1000, **known) for id, known in KNOWN.items()))
        names = {known["username"]: id for id, known in KNOWN.items()}
        past.fail(
            *(
                failed(1000, username=known["username"], mac_address=known["mac_address"])
                for known in KNOWN.values()
            )
        )

        def find(text: str) -> list[list[int]]:
            failures = sorted(names[str(each.username)] for each in past.failures(search=text))
            return [found(table, text), sorted(past.ids(search=text)), failures]

        yield find


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        *(("müller", [1]), ("JÖRG.m", [1]), ("иван", [2]), ("ИВ", [2]), ("strasse", [3]), ("straße", [3])),
        *(("0200-0000-0005", [1]), ("0200.00", [1, 2]), ("02:00:00", [1, 2]), ("0AB006", [2])),
        *(("00:ab", []), ("mac:0200-00", [1, 2]), ("mac:02:00", [1, 2]), ("user:ИВ", [2])),
    ],
)
def test_the_list_the_history_and_failed_sign_ons_find_the_same(
    everywhere: Callable[[str], list[list[int]]], text: str, ids: list[int]
) -> None:
    assert everywhere(text) == [ids, ids, ids]


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        *(("100.64.0", [1]), ("100.64.", [1, 2]), ("100.64", [1, 2]), ("100.6", []), ("10.64.0.", [3])),
        *(("100.64.0.5", [1]), ("100.64.0.0/23", [1, 2]), ("ip:100.64.1", [2]), ("64.0", [])),
        *(("2001:db8:0:6", [1]), ("2001:DB8:0:6::9", [1]), ("2001:db8:1", [2]), ("2001:db8::/32", [1, 2])),
        *(("id:2", [2]), ("id:9", [])),
    ],
)
def test_the_list_and_the_history_find_the_same_addresses(
    everywhere: Callable[[str], list[list[int]]], text: str, ids: list[int]
) -> None:
    assert everywhere(text) == [ids, ids, []]


@given(st.text(min_size=4, max_size=20))
@example("0.0.0.0/2")
def test_any_text_that_is_a_part_of_a_name_finds_it(text: str) -> None:
    assert 1 in found(table_of(session(1, username=f"x{text}y")), text)

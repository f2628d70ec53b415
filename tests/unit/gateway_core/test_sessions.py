"""Sessions found, sorted and given out by pages."""

import base64
import dataclasses
import itertools
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec.structs import replace

from gateway_contract.base.errors import StepFailed, StillConnected
from gateway_contract.contract import MAX_LIMIT, Page
from gateway_contract.core.configuration import ListChanges
from gateway_contract.core.health import Fault, FaultKind
from gateway_contract.core.interface import CORE
from gateway_contract.core.network import OverheadProfile
from gateway_contract.core.sessions import (
    DisconnectInterface,
    DisconnectSession,
    EndedSession,
    ListSessions,
    SessionFilter,
    SessionSummary,
    SetSessionRate,
)
from gateway_contract.varlink.dispatcher import Handler, NoParameters
from gateway_contract.varlink.protocol import MAX_REPLY_BYTES, ErrorReply
from gateway_core.configuration.running import RunningConfiguration
from gateway_core.configuration.store import ConfigurationStore
from gateway_core.configuration.workspace import Workspace
from gateway_core.gateways.lab.gateway import LabGateway, LabServices
from gateway_core.gateways.lab.population import Population
from gateway_core.gateways.protocols import make_fault_rows
from gateway_core.records.changes import ChangeLog
from gateway_core.records.orders import SortedItems
from gateway_core.records.paging import (
    ChainedRows,
    EncodedChunk,
    FieldSortedRows,
    Key,
    Rows,
    SortedRows,
    WholeList,
    encode_chunk,
    encode_records,
    limit_size,
)
from gateway_core.service.core import CoreService, translate_errors
from gateway_core.sessions.journal import Journal
from gateway_core.sessions.session import Counters, Session, get_session_ordering, make_sort_key
from gateway_core.sessions.table import Index, SessionTable
from tests.support.core_clock import StillClock
from tests.support.histories import failed, history, up
from tests.support.tables import CGNAT, FIELDS, fields_of, list_of, session, table_of

ORDERS = [sign + field for field in FIELDS for sign in ("", "-")]

#: What hypothesis does between two pages: the ids that go, and those that come.
Changes = tuple[list[int], list[int]]


def ids(sessions: Sequence[Session]) -> list[int]:
    return [each.id for each in sessions]


def number_key(number: int) -> Key:
    return (number,)


def number_record(number: int) -> OverheadProfile:
    return OverheadProfile("", number, 0, "")


SNAPSHOT = SortedItems(number_key, (3, 1, 2)).snapshot()


def numbers(*held: int) -> Rows:
    """A list of numbers that are in order, by their size."""
    return SortedRows(held, number_key, number_record)


def texts_of(size: int) -> Iterator[EncodedChunk]:
    """The texts of the numbers below a size, in thousands."""
    for first in range(0, size, 1000):
        yield encode_chunk([number_record(number) for number in range(first, min(size, first + 1000))])


def numbers_on(page: dict[str, Any]) -> list[int]:
    return [record["overhead"] for record in msgspec.json.decode(page["numbers"])]


def numbers_page(limit: int, cursor: str | None, order: str = "", held: Rows | None = None) -> dict[str, Any]:
    """A page of 0 to 9, or of what is held."""
    return list_of("numbers", held or numbers(*range(10)), Page(limit, cursor), order)


def parameter_refused(call: Callable[[], Any]) -> str:
    """The parameter that an InvalidParameter names."""
    with pytest.raises(ErrorReply) as refused:
        call()
    assert refused.value.name == "org.varlink.service.InvalidParameter"
    parameter: str = msgspec.json.decode(refused.value.parameters)["parameter"]
    return parameter


def cursor_of(value: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()


def walk(page_of: Callable[[str | None], dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Each page; the caller may change things before it takes the next."""
    cursor = None
    for _ in range(1000):
        page = page_of(cursor)
        yield page
        cursor = page["next_cursor"]
        if cursor is None:
            return
    raise AssertionError("the pages never end")


# Few different values, so that each condition fits some sessions and not others.
MIXED = [
    session(
        id,
        type=("PPPoE", "DHCP")[id % 2],
        username=f"user{id % 3}",
        ip_address=f"100.64.0.{id % 5}",
        mac_address=f"02:00:00:00:00:0{id % 4}",
        interface=f"if{id % 6}",
        access_interface=f"trunk0.{id % 7}",
    )
    for id in range(1, 121)
]

CONDITIONS: dict[str, tuple[str, Callable[[Session], bool]]] = {
    "type": ("dhcp", lambda one: one.summary.type == "DHCP"),
    "username": ("user1", lambda one: one.summary.username == "user1"),
    "ip_address": ("100.64.0.2", lambda one: one.summary.ip_address == "100.64.0.2"),
    "mac_address": ("02:00:00:00:00:03", lambda one: one.summary.mac_address == "02:00:00:00:00:03"),
    "interface": ("if3", lambda one: "if3" in (one.summary.interface, one.access_interface)),
}


def test_all_conditions_of_a_filter_must_hold() -> None:
    for names in [names for size in range(6) for names in itertools.combinations(CONDITIONS, size)]:
        wanted = SessionFilter(**{name: CONDITIONS[name][0] for name in names})
        expected = [one.id for one in MIXED if all(CONDITIONS[name][1](one) for name in names)]
        assert ids(table_of(*MIXED).find(wanted)) == expected


def test_a_session_is_found_by_each_condition() -> None:
    for wanted in (
        {"type": "pppoe"},
        {"username": "user7"},
        {"ip_address": "100.64.0.7"},
        {"mac_address": "02:00:00:00:00:07"},
        {"interface": "ppp7"},
        {"interface": "trunk0.7"},
    ):
        table = table_of(session(6, type="DHCP"), session(7), session(8, type="DHCP"))
        assert ids(table.find(SessionFilter(**wanted))) == [7]


def test_a_condition_that_nobody_meets_finds_nobody() -> None:
    for wanted in (
        {"username": "user"},
        {"username": "USER7"},
        {"ip_address": "100.64.0"},
        {"interface": "trunk0"},
        {"interface": ""},
        {"mac_address": ""},
        {"username": "user7", "ip_address": "100.64.0.8"},
        {"type": "dhcp"},
    ):
        assert table_of(session(7), session(8)).find(SessionFilter(**wanted)) == []


def test_a_removed_session_is_found_by_nothing() -> None:
    table = table_of(session(7), session(8))
    table.remove(7)
    assert table.get(7) is None
    assert len(table) == 1
    assert ids(table.all()) == [8]
    for wanted in ({"username": "user7"}, {"ip_address": "100.64.0.7"}, {"interface": "trunk0.7"}):
        assert table.find(SessionFilter(**wanted)) == []


def test_removing_one_of_several_with_the_same_name_leaves_the_others() -> None:
    table = table_of(*(session(id, username="shared") for id in (1, 2, 3)))
    table.remove(2)
    assert ids(table.find(SessionFilter(username="shared"))) == [1, 3]


def test_a_session_whose_interface_is_its_access_interface_can_be_removed() -> None:
    table = table_of(session(1, interface="trunk0.1", access_interface="trunk0.1"), session(2))
    table.remove(1)
    assert table.find(SessionFilter(interface="trunk0.1")) == []


def test_removing_a_session_that_is_not_there_raises_key_error() -> None:
    with pytest.raises(KeyError):
        table_of(session(1)).remove(2)


def test_a_replaced_session_is_found_as_it_is_now() -> None:
    table = table_of(session(1), session(2))
    table.replace(session(1, rate_down=7))
    assert [one.summary.rate_down for one in table.find(SessionFilter(username="user1"))] == [7]
    assert ids(table.find(SessionFilter())) == [1, 2]


#: Three texts of one address.
SPELLINGS = ("2001:db8:0:7::2", "2001:0DB8:0000:0007:0:0:0:2", "2001:db8:0:7::0.0.0.2")


@pytest.mark.parametrize("spelled", SPELLINGS)
@pytest.mark.parametrize(
    "networks",
    [
        {"ipv6_address": "2001:db8:0:7::2"},
        {"ipv6_address": "2001:DB8:0:7:0::2"},
        {"ipv6_address": "2001:db8:0:7::2", "ipv6_prefix": "2001:db8:0:7::/64"},
        {"ipv6_address": "fe80::1", "ipv6_prefix": "2001:db8:0:7::/64"},
        {"ipv6_prefix": "2001:db8:0:7::1/64"},
        {"delegated_prefixes": ("2001:db8:ff00::/56", "2001:db8::/56")},
        {"delegated_prefixes": ("2001:db8:0:6::/63", "2001:db8:0:7::/64")},
        {"ipv6_prefix": "2001:db8:0:7::/64", "delegated_prefixes": ("2001:db8:0:7::/64",)},
        {"ipv6_prefix": "::/0"},
    ],
    ids=str,
)
def test_an_ipv6_address_finds_who_has_it_in_any_spelling(networks: dict[str, Any], spelled: str) -> None:
    other = session(6, ipv6_address="2001:db8:0:7:1::2", ipv6_prefix="2001:db8:0:7:1::/80")
    table = table_of(other, session(7, **networks), session(8))
    assert ids(table.find(SessionFilter(ip_address=spelled))) == [7]
    assert ids(table.find(SessionFilter(ip_address=spelled, username="user7", type="pppoe"))) == [7]
    assert table.find(SessionFilter(ip_address=spelled, username="user8")) == []
    table.remove(7)
    assert table.find(SessionFilter(ip_address=spelled)) == []


def test_several_sessions_around_an_ipv6_address_come_by_id() -> None:
    table = table_of(
        session(1, ipv6_prefix="2001:db8::/32"),
        session(2, ipv6_address="fe80::1"),
        session(3, ipv6_address="2001:db8::1"),
        session(4, delegated_prefixes=("2001:db8::/56",)),
        session(5, ipv6_address="fe80::1"),
    )
    assert ids(table.find(SessionFilter(ip_address="2001:db8::1"))) == [1, 3, 4]
    assert ids(table.find(SessionFilter(ip_address="fe80::1"))) == [2, 5]


@pytest.mark.parametrize(
    "text",
    [
        ":",
        "::/0",
        "2001:db8::/64",
        "2001:db8::1/128",
        "2001:db8::1%ppp0",
        "::g",
        "2001:db8::1 ",
        "\0:",
        "\ud800:",
    ],
)
def test_text_that_is_no_address_finds_nobody(text: str) -> None:
    table = table_of(session(1, ipv6_address="2001:db8::1", ipv6_prefix="2001:db8::/64"))
    assert table.find(SessionFilter(ip_address=text)) == []


#: What a session gets later, or loses, and filters that find it then only.
LATER: list[tuple[dict[str, Any], list[dict[str, str]]]] = [
    (
        {"ipv6_address": "2001:db8::2", "ipv6_prefix": "2001:db8::/64"},
        [{"ip_address": "2001:db8::2"}, {"ip_address": "2001:db8::9"}],
    ),
    ({"delegated_prefixes": ("2001:db8:8000::/56",)}, [{"ip_address": "2001:db8:8000:ff::1"}]),
    ({"ip_address": "198.51.100.1"}, [{"ip_address": "198.51.100.1"}]),
    ({"mac_address": "02:00:00:00:ff:ff"}, [{"mac_address": "02:00:00:00:ff:ff"}]),
    ({"username": "carol"}, [{"username": "carol"}]),
    ({"interface": "ppp99"}, [{"interface": "ppp99"}]),
    ({"access_interface": "trunk0.99"}, [{"interface": "trunk0.99"}]),
]


@pytest.mark.parametrize(("changes", "filters"), LATER, ids=[", ".join(changes) for changes, _ in LATER])
def test_a_replaced_session_is_found_by_what_it_has_now_only(
    changes: dict[str, Any], filters: list[dict[str, str]]
) -> None:
    table, before, after = table_of(session(1), session(2)), session(1), session(1, **changes)
    for now, expected in ((after, [1]), (before, []), (after, [1])):
        table.replace(now)
        assert [ids(table.find(SessionFilter(**wanted))) for wanted in filters] == [expected] * len(filters)
    table.remove(1)
    assert [ids(table.find(SessionFilter(**wanted))) for wanted in filters] == [[]] * len(filters)


def test_a_replaced_session_is_not_found_by_what_it_had() -> None:
    changed = {name: value for changes, _ in LATER for name, value in changes.items()}
    had = [
        *({"ip_address": "100.64.0.1"}, {"mac_address": "02:00:00:00:00:01"}, {"username": "user1"}),
        *({"interface": "ppp1"}, {"interface": "trunk0.1"}),
    ]
    table = table_of(session(1))
    assert [ids(table.find(SessionFilter(**wanted))) for wanted in had] == [[1]] * len(had)
    table.replace(session(1, **changed))
    assert [ids(table.find(SessionFilter(**wanted))) for wanted in had] == [[]] * len(had)
    assert not table.has_address("100.64.0.1")
    table.remove(1)
    assert [ids(table.find(SessionFilter(**wanted))) for wanted in had] == [[]] * len(had)


@pytest.mark.parametrize("name", ["ppp1", "ifb-ppp1", "trunk0.1", "subscriber12345", "ifb-2", "trunk0.2"])
def test_a_device_an_ifb_or_an_access_interface_of_a_session_is_known(name: str) -> None:
    table = table_of(session(1), session(2, interface="subscriber12345"))
    assert table.has_interface(name)
    table.remove(1)
    table.remove(2)
    assert not table.has_interface(name)


@pytest.mark.parametrize(
    "name",
    ["ppp", "ifb-", "ifb-1", "ifb-3", "ifb-subscriber12345", "ifb-trunk0.1", "2", "ifb-\u0662"],
)
def test_no_other_interface_is_known(name: str) -> None:
    assert not table_of(session(1), session(2, interface="subscriber12345")).has_interface(name)


def test_a_name_of_many_digits_is_not_known() -> None:
    assert not table_of(session(1)).has_interface("ifb-" + "9" * 9999)


@pytest.mark.parametrize(
    ("interface", "ifb"),
    [("ppp7", "ifb-ppp7"), ("trunk0.2001", "ifb-trunk0.2001"), ("trunk10.2001", "ifb-7")],
)
def test_an_ifb_has_a_name_that_linux_takes(interface: str, ifb: str) -> None:
    one = session(7, interface=interface)
    assert (one.ifb_device, one.make_qos().ifb_device) == (ifb, ifb)
    assert len(ifb) <= 15


def test_only_those_who_arrived_on_it_are_on_an_access_interface() -> None:
    table = table_of(
        session(1, access_interface="trunk0.5"),
        session(2, interface="trunk0.5"),
        session(3, access_interface="trunk0.5"),
    )
    assert ids(table.find_on_access_interface("trunk0.5")) == [1, 3]


@pytest.mark.parametrize(
    ("statistic", "changes"),
    [
        ("pppoe_sessions", {"type": "PPPoE"}),
        ("dhcp_sessions", {"type": "DHCP"}),
        ("vrf_steered_sessions", {"vrf_steered": True}),
        ("public_ip_sessions", {"shared_address": False}),
        ("qos_sessions", {"rate_down": 0, "rate_up": 1}),
        ("stale_sessions", {"state": "stale"}),
    ],
)
def test_statistics_follow_sessions_that_come_change_and_go(statistic: str, changes: dict[str, Any]) -> None:
    without = {
        "type": "DHCP" if statistic != "dhcp_sessions" else "PPPoE",
        "shared_address": True,
        "rate_down": 0,
        "rate_up": 0,
    }
    table = table_of(*(session(id, **{**without, **changes}) for id in (1, 2, 3)), session(4, **without))
    assert getattr(table.compute_statistics(), statistic) == 3
    table.remove(1)
    assert getattr(table.compute_statistics(), statistic) == 2
    table.replace(session(2, **without))
    assert getattr(table.compute_statistics(), statistic) == 1
    assert table.compute_statistics().active_sessions == 3


@pytest.mark.parametrize(
    ("address", "enabled", "expected"),
    [
        ("203.0.113.9", True, (True, True)),
        ("203.0.113.9", False, (False, True)),
        ("100.64.0.9", True, (False, True)),
        ("198.51.100.9", True, (False, False)),
    ],
)
def test_an_address_in_the_source_range_is_steered_while_cgnat_is_enabled(
    address: str, enabled: bool, expected: tuple[bool, bool]
) -> None:
    table = table_of(session(1, ip_address=address, shared_address=False))
    table.configure(dataclasses.replace(CGNAT, enabled=enabled))
    assert table.compute_steering(address) == expected
    (found,) = table.all()
    assert (found.vrf_steered, found.shared_address) == expected


def test_a_session_without_ipv4_is_neither_steered_nor_shared_nor_public() -> None:
    table = table_of(session(1, ip_address=None, shared_address=True), session(2, ip_address="198.51.100.9"))
    table.configure(CGNAT)
    found, _ = table.all()
    assert (found.vrf_steered, found.shared_address) == (False, False)
    assert table.compute_statistics().public_ip_sessions == 1


def test_the_record_of_a_session_has_the_faults_that_it_is_given() -> None:
    fault = Fault(FaultKind.SHAPER, "ppp1", 1, "No such device", 1_700_000_000)
    counters = Counters(1, 2, 3, 4)
    assert session(1).make_detail(counters, [fault]).faults == (fault,)
    assert session(1).make_detail(counters).faults == ()


def test_faults_of_one_moment_and_device_differ_by_kind_and_session() -> None:
    ifb, shaper, other = (
        Fault(kind, "ppp1", id, "No such device", 1_700_000_000)
        for kind, id in ((FaultKind.IFB, 2), (FaultKind.SHAPER, 1), (FaultKind.SHAPER, None))
    )
    rows = make_fault_rows([shaper, other, ifb])
    assert list(rows.records()) == [ifb, other, shaper]
    pages = walk(lambda cursor: list_of("faults", rows, Page(1, cursor), "faults"))
    assert [page["count"] for page in pages] == [1, 1, 1]


def test_an_address_is_in_use_while_a_session_has_it() -> None:
    table = table_of(session(7))
    assert table.has_address("100.64.0.7")
    table.remove(7)
    assert not table.has_address("100.64.0.7")


def test_an_index_gives_the_ids_of_a_text_ascending() -> None:
    index = Index()
    for id in (30, 4, 200):
        index.add("a", id)
    index.add("b", 5)
    assert (index.find("a"), index.find("b"), index.find("c")) == ([4, 30, 200], [5], [])


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 8))))
def test_an_index_holds_what_was_added_and_not_removed(toggled: list[tuple[str, int]]) -> None:
    index, model = Index(), set()
    for text, id in toggled:
        if (text, id) in model:
            index.remove(text, id)
        else:
            index.add(text, id)
        model ^= {(text, id)}
    for text in "abc":
        assert index.find(text) == sorted(id for held, id in model if held == text)


#: Values of each field in ascending order.
ASCENDING: dict[str, list[Any]] = {
    "ip_address": [None, "0.0.0.0", "9.0.0.1", "10.0.0.2", "10.0.0.10", "255.255.255.255"],
    "mac_address": [None, "02:00:00:00:00:00", "02:00:00:00:00:0a"],
    "ipv6_address": [
        None,
        "::",
        "2001:db8::9",
        "2001:db8::10",
        "2001:db8:0:1::",
        "2001:0db8:10::",
        "fe80::1",
    ],
    "ipv6_prefix": [None, "::/0", "2001:db8::/64", "2001:db8::/128", "2001:db8:0:1::/64", "fe80::/10"],
    "delegated_prefixes": [
        (),
        ("2001:db8::/56",),
        ("2001:db8::/56", "2001:db8:1::/56"),
        ("2001:db8::/60",),
        ("2001:db8:9::/56", "2001:db8::/56"),
        ("2001:db8:10::/56",),
    ],
    "outer_vlan_id": [None, 1, 9, 10, 4094],
    "inner_vlan_id": [None, 1, 9, 10, 4094],
}


@pytest.mark.parametrize("field", ASCENDING)
def test_null_sorts_first_and_addresses_sort_as_numbers(field: str) -> None:
    sessions = [session(id, **{field: value}) for id, value in enumerate(ASCENDING[field], start=1)]
    backwards = sessions[::-1]
    up = list_of("sessions", rows_of(backwards, field), None, field)["sessions"]
    down = list_of("sessions", rows_of(sessions, f"-{field}"), None, field)["sessions"]
    numbered = list(range(1, len(sessions) + 1))
    assert [one["id"] for one in msgspec.json.decode(up)] == numbered
    assert [one["id"] for one in msgspec.json.decode(down)] == numbered[::-1]


def test_all_other_fields_sort_as_they_are() -> None:
    for field in set(FIELDS) - set(ASCENDING):
        one = session(7)
        assert make_sort_key(field)(one) == getattr(one.summary, field)


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        (numbers(1, 2, 3), [1, 2, 3]),
        (SortedRows((1, 2, 3), number_key, number_record, descending=True), [3, 2, 1]),
        (SortedRows(SNAPSHOT, number_key, number_record), [1, 2, 3]),
        (
            SortedRows(SNAPSHOT, number_key, number_record, descending=True),
            [3, 2, 1],
        ),
        (ChainedRows(numbers(1, 2), numbers(), numbers(3)), [1, 2, 3]),
    ],
    ids=["sorted", "descending", "snapshot", "descending snapshot", "chained"],
)
def test_without_a_page_everything_comes_in_order(rows: Rows, expected: list[int]) -> None:
    whole = list_of("numbers", rows, None, "")
    assert numbers_on(whole) == expected
    assert (whole["count"], whole["total"], whole["next_cursor"]) == (3, 3, None)


def test_a_list_of_more_than_one_part_comes_whole() -> None:
    assert numbers_on(list_of("numbers", numbers(*range(2500)), None, "")) == list(range(2500))


def test_a_list_comes_in_parts_that_tell_their_own_count_and_the_total() -> None:
    parts = list(WholeList("numbers", texts_of(2500), 2500, {"more": 7}).parts())
    assert [number for part in parts for number in numbers_on(part)] == list(range(2500))
    assert [(part["count"], part["total"], part["more"]) for part in parts] == [
        *((1000, 2500, 7), (1000, 2500, 7), (500, 2500, 7))
    ]


def test_an_empty_list_comes_in_one_part() -> None:
    assert [(numbers_on(part), part["count"]) for part in WholeList("numbers", [], 0, {}).parts()] == [
        ([], 0)
    ]


@pytest.mark.parametrize("page", [None, Page(1)])
def test_an_empty_list_has_no_records_and_no_next_page(page: Page | None) -> None:
    empty = list_of("numbers", numbers(), page, "")
    assert empty == {"numbers": msgspec.Raw(b"[]"), "count": 0, "total": 0, "next_cursor": None}


def test_a_page_tells_its_own_count_and_the_total() -> None:
    page = numbers_page(4, None)
    assert (numbers_on(page), page["count"], page["total"]) == ([0, 1, 2, 3], 4, 10)


def test_the_last_page_keeps_the_total_and_has_no_cursor() -> None:
    last = list(walk(lambda cursor: numbers_page(4, cursor)))[-1]
    assert (numbers_on(last), last["count"], last["total"], last["next_cursor"]) == ([8, 9], 2, 10, None)


def test_a_full_last_page_has_no_cursor() -> None:
    pages = list(walk(lambda cursor: numbers_page(5, cursor)))
    assert [numbers_on(page) for page in pages] == [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9]]


def test_no_more_records_are_made_than_a_page_needs() -> None:
    built = []

    def build(number: int) -> OverheadProfile:
        built.append(number)
        return number_record(number)

    list_of("numbers", SortedRows(range(1000), number_key, build), Page(3), "")
    # The one after the page tells that there is a next one.
    assert built == [0, 1, 2, 3]


@pytest.mark.parametrize("limit", [0, -1, MAX_LIMIT + 1, 2**40])
def test_a_limit_out_of_range_is_refused(limit: int) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"limit": limit}, Page)


@pytest.mark.parametrize("limit", [1, MAX_LIMIT])
def test_the_limits_of_the_limit_are_valid(limit: int) -> None:
    held = numbers(*range(MAX_LIMIT + 1))
    assert numbers_page(limit, None, held=held)["count"] == limit


def test_a_cursor_that_is_none_is_refused() -> None:
    for cursor in (
        "",
        "garbage",
        "garbage!",
        "a",
        "\u00e9",
        "\0",
        "A" * 100_000,
        cursor_of({}),
        cursor_of([]),
        cursor_of([""]),
        cursor_of(["", 3]),
        cursor_of(["", [None]]),
        cursor_of(["", [[3]]]),
        cursor_of(["", [True]]),
        cursor_of(["", ["text where numbers are"]]),
        cursor_of([1, [3]]),
        base64.urlsafe_b64encode(b'["",["\xff"]]').decode(),
        base64.urlsafe_b64encode(b"[" * 100_000).decode(),
    ):
        assert parameter_refused(lambda: numbers_page(3, cursor)) == "page.cursor"


@given(st.text(max_size=30) | st.binary(max_size=30).map(lambda raw: base64.urlsafe_b64encode(raw).decode()))
def test_any_text_as_a_cursor_is_refused(cursor: str) -> None:
    assert parameter_refused(lambda: numbers_page(3, cursor)) == "page.cursor"


@pytest.mark.parametrize(
    ("made_in", "used_in"), [("id", "-id"), ("-id", "id"), ("id", "username"), ("", "id")]
)
def test_a_cursor_of_another_order_is_refused(made_in: str, used_in: str) -> None:
    cursor = numbers_page(3, None, made_in)["next_cursor"]
    assert parameter_refused(lambda: numbers_page(3, cursor, used_in)) == "page.cursor"


def test_a_cursor_goes_on_although_its_record_is_gone() -> None:
    cursor = numbers_page(3, None)["next_cursor"]
    assert numbers_on(numbers_page(3, cursor, held=numbers(0, 1, 4, 5, 6, 7))) == [4, 5, 6]


def test_a_cursor_holds_nothing_that_a_url_would_have_to_quote() -> None:
    held = SortedRows(range(5), lambda number: ("\u00ff>>>???" * 5, number), number_record)
    cursor = numbers_page(3, None, "username", held=held)["next_cursor"]
    assert cursor is not None
    assert set(cursor) <= set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_")
    assert numbers_on(numbers_page(3, cursor, "username", held=held)) == [3, 4]


def test_a_list_that_does_not_fit_into_a_reply_does_not_come_in_parts() -> None:
    text = b'["%s"]' % (b"x" * (1 << 20)), 1
    most = (MAX_REPLY_BYTES >> 20) + 1
    parts = WholeList("numbers", limit_size([text] * most, most), most, {}).parts()
    with pytest.raises(ErrorReply) as refused:
        next(parts)
    assert refused.value.name == "org.gatewayapi.core.ReplyTooLarge"


def test_a_whole_that_does_not_fit_into_a_reply_is_refused() -> None:
    big = OverheadProfile("x" * (1 << 20), 0, 0, "")
    with pytest.raises(ErrorReply) as refused:
        encode_records(big for _ in range((MAX_REPLY_BYTES >> 20) + 1))
    assert refused.value.name == "org.gatewayapi.core.ReplyTooLarge"


def test_a_whole_that_will_not_fit_is_refused_after_its_first_records() -> None:
    built = []

    def build(number: int) -> OverheadProfile:
        built.append(number)
        return OverheadProfile("x" * 1000, number, 0, "")

    with pytest.raises(ErrorReply) as refused:
        list_of("numbers", SortedRows(range(MAX_REPLY_BYTES // 1000), number_key, build), None, "")
    assert refused.value.name == "org.gatewayapi.core.ReplyTooLarge"
    assert len(built) == 1000


def test_a_page_that_does_not_fit_into_a_reply_is_refused() -> None:
    big = OverheadProfile("x" * (1 << 20), 0, 0, "")
    too_many = (MAX_REPLY_BYTES >> 20) + 1
    with pytest.raises(ErrorReply) as refused:
        list_of("numbers", SortedRows(range(too_many), number_key, lambda _: big), Page(too_many), "")
    assert refused.value.name == "org.gatewayapi.core.ReplyTooLarge"


def test_a_list_just_under_the_cap_comes() -> None:
    big = OverheadProfile("x" * ((1 << 20) - 200), 0, 0, "")
    most = (MAX_REPLY_BYTES >> 20) - 1
    assert len(msgspec.json.decode(encode_records(big for _ in range(most)))) == most


def summary_of(one: Session) -> SessionSummary:
    return one.summary


def rows_of(sessions: Iterable[Session], order: str, *, is_kept: bool = True) -> Rows:
    """The sessions as a list of the service's is made: from an order that is kept, or sorted on request."""
    field, descending = order.removeprefix("-"), order.startswith("-")
    key = get_session_ordering(field if is_kept else "id").key
    rows = SortedRows(SortedItems(key, sessions).snapshot(), key, summary_of, descending and is_kept)
    return rows if is_kept else FieldSortedRows(rows, field, descending)


@st.composite
def any_session(draw: st.DrawFn, id: int) -> Session:
    """One whose values often are another's, too: what sorts by them has to tell equal ones apart."""
    few = st.integers(0, 3)
    return session(
        id,
        type=draw(st.sampled_from(["PPPoE", "DHCP"])),
        username=draw(st.sampled_from(["", "a", "B", "\u00e9", "a\0", "\U0001f600", "\ufffd"])),
        ip_address=draw(
            st.none() | st.just(f"{draw(st.sampled_from([9, 10, 100, 200]))}.0.{draw(few)}.{draw(few)}")
        ),
        mac_address=draw(st.sampled_from([None, "02:00:00:00:00:01"])),
        ipv6_address=draw(st.sampled_from([None, "2001:db8::9", "2001:db8::10", "fe80::1"])),
        ipv6_prefix=draw(st.sampled_from([None, "2001:db8::/56", "2001:db8::/64", "2001:db8:10::/56"])),
        delegated_prefixes=draw(
            st.sampled_from([(), ("2001:db8::/56",), ("2001:db8::/56", "2001:db8:1::/56")])
        ),
        outer_vlan_id=draw(st.sampled_from([None, 1, 10])),
        inner_vlan_id=draw(st.sampled_from([None, 1, 10])),
        interface=f"ppp{draw(st.sampled_from([1, 2, 10]))}",
        rate_down=draw(few),
        rate_up=draw(st.sampled_from([1, 2**31, 400_000_000_000])),
        started_at=draw(few),
    )


@st.composite
def any_walk(draw: st.DrawFn) -> tuple[dict[int, Session], list[Changes], dict[int, Session]]:
    """Sessions, which of them go and come between the pages, and those that come."""
    numbers = draw(st.lists(st.integers(1, 60), unique=True, max_size=25))
    later = draw(st.lists(st.integers(61, 120), unique=True, max_size=15))
    here = {id: draw(any_session(id)) for id in numbers}
    coming = {id: draw(any_session(id)) for id in later}
    going = st.lists(st.sampled_from(numbers), max_size=3) if numbers else st.just([])
    arriving = st.lists(st.sampled_from(later), max_size=3) if later else st.just([])
    return here, draw(st.lists(st.tuples(going, arriving), max_size=12)), coming


@given(walked=any_walk(), order=st.sampled_from(ORDERS), limit=st.integers(1, 7), is_kept=st.booleans())
def test_pages_have_each_lasting_session_once_and_in_order_while_others_come_and_go(
    walked: tuple[dict[int, Session], list[Changes], dict[int, Session]],
    order: str,
    limit: int,
    is_kept: bool,
) -> None:
    present, changes, coming = walked
    field = order.removeprefix("-")
    stayed, everyone = set(present), {**present, **coming}
    pending = iter(changes)
    seen: list[int] = []
    pages = walk(
        lambda cursor: list_of(
            "sessions", rows_of(present.values(), order, is_kept=is_kept), Page(limit, cursor), order
        )
    )
    for page in pages:
        on_page = [record["id"] for record in msgspec.json.decode(page["sessions"])]
        assert page["count"] == len(on_page) <= limit
        assert page["total"] == len(present)
        assert set(on_page) <= set(present)
        seen += on_page
        gone, come = next(pending, ([], []))
        for id in gone:
            present.pop(id, None)
            stayed.discard(id)
        present.update({id: coming[id] for id in come})
    assert len(seen) == len(set(seen))
    assert stayed <= set(seen)
    in_order = sorted(
        seen, key=lambda id: (make_sort_key(field)(everyone[id]), id), reverse=order.startswith("-")
    )
    assert seen == in_order


@given(
    moments=st.lists(st.sets(st.tuples(st.integers(0, 2), st.integers(0, 9))), min_size=1, max_size=12),
    limit=st.integers(1, 5),
)
def test_pages_of_a_chain_give_what_stays_once_and_in_order(
    moments: list[set[tuple[int, int]]], limit: int
) -> None:
    # What is there at each page; the last moment lasts.
    shown = iter(moments)
    now = moments[0]

    def page_of(cursor: str | None) -> dict[str, Any]:
        nonlocal now
        now = next(shown, now)
        parts = [sorted(place for place in now if place[0] == part) for part in range(3)]
        chain = ChainedRows(*(SortedRows(part, lambda place: place, place_record) for part in parts))
        return list_of("numbers", chain, Page(limit, cursor), "")

    seen = [number for page in walk(page_of) for number in numbers_on(page)]
    assert seen == sorted(set(seen))
    assert {10 * part + number for part, number in set.intersection(*moments)} <= set(seen)


def place_record(place: tuple[int, int]) -> OverheadProfile:
    return number_record(10 * place[0] + place[1])


@pytest.fixture
def clock() -> StillClock:
    return StillClock()


@pytest.fixture
def service(document: dict[str, Any], tmp_path: Path, clock: StillClock) -> Iterator[CoreService]:
    """150 sessions that stay; every third of them has rates of its own."""
    running, store = RunningConfiguration.of(document), ConfigurationStore(tmp_path)
    workspace = Workspace(store, lambda: running, StillClock(), LabServices())
    journal = Journal("life")
    gateway = LabGateway(running.sections, Population(150, 0.0, 1), journal, StillClock())
    for id in range(1, 151, 3):
        gateway.set_rate(id, 1_000_000 * (id % 7 + 1), 500_000)
    changes = ChangeLog(tmp_path / "changes", "log")
    yield CoreService(gateway, journal, workspace, changes, clock)
    store.close()


def listed(service: CoreService, **call: Any) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The sessions of one answer, and the answer."""
    answer = fields_of(service.list_sessions(ListSessions(**call)))
    return msgspec.json.decode(answer["sessions"]), answer


def whole(table: SessionTable[Session]) -> list[int]:
    """The ids in a list of all sessions."""
    listed = table.whole().whole()
    assert (listed["count"], listed["total"], listed["next_cursor"]) == (len(table), len(table), None)
    held = msgspec.json.decode(listed["sessions"], type=list[SessionSummary])
    assert held == [one.summary for one in table.all()]
    return [one.id for one in held]


@pytest.mark.parametrize("size", [0, 1, 3000])
def test_all_sessions_come_as_they_are_now(size: int) -> None:
    table = table_of(*map(session, range(1, size + 1)))
    assert whole(table) == list(range(1, size + 1))
    table.add(session(5000, username="new"))
    assert whole(table)[-1] == 5000
    table.replace(session(5000, rate_down=7))
    table.add(session(5001))
    table.remove(5001)
    assert whole(table)[:-1] == list(range(1, size + 1))


def test_without_a_sort_sessions_come_by_id(service: CoreService) -> None:
    sessions, answer = listed(service)
    assert [one["id"] for one in sessions] == list(range(1, 151))
    assert (answer["count"], answer["total"], answer["next_cursor"]) == (150, 150, None)


def test_the_pages_of_a_sort_are_the_whole_of_it(service: CoreService) -> None:
    for order in ORDERS:
        whole, _ = listed(service, sort=order)
        pages = walk(lambda cursor: listed(service, sort=order, page=Page(40, cursor))[1])
        in_pages = [one for page in pages for one in msgspec.json.decode(page["sessions"])]
        assert len(whole) == 150
        assert in_pages == whole


def test_every_order_follows_sessions_that_change_and_go(service: CoreService) -> None:
    dhcp = SessionFilter(type="dhcp")
    for order in ORDERS:
        listed(service, sort=order, page=Page(5))
        listed(service, sort=order, page=Page(5), filter=dhcp)
    for id in (1, 77, 150):
        service.disconnect_session(DisconnectSession(id), None)
    for id in (2, 3, 149):
        service.set_session_rate(SetSessionRate(id, 7_000_000, 9_000_000), None)
    present = [
        replace(session(one["id"]), summary=msgspec.convert(one, SessionSummary))
        for one in listed(service)[0]
    ]
    assert {1, 77, 150}.isdisjoint(ids(present))
    assert {one.summary.rate_up for one in present if one.id in (2, 3, 149)} == {9_000_000}
    for order in ORDERS:
        in_order = sorted(
            present, key=get_session_ordering(order.removeprefix("-")).key, reverse=order[0] == "-"
        )
        limit_size = [one.id for one in in_order if one.summary.type == "DHCP"]
        assert [one["id"] for one in listed(service, sort=order)[0]] == ids(in_order)
        assert [one["id"] for one in listed(service, sort=order, filter=dhcp)[0]] == limit_size


def test_a_sort_orders_by_its_field_up_and_down(service: CoreService) -> None:
    for field in set(FIELDS) - set(ASCENDING):
        up = [one[field] for one in listed(service, sort=field)[0]]
        down = [one[field] for one in listed(service, sort=f"-{field}")[0]]
        assert up == sorted(up)
        assert down == up[::-1]


def test_a_page_of_a_filter_counts_only_what_fits(service: CoreService) -> None:
    limit_size, _ = listed(service, filter=SessionFilter(type="dhcp"))
    page, answer = listed(service, filter=SessionFilter(type="dhcp"), page=Page(5))
    assert page == limit_size[:5]
    assert answer["total"] == len(limit_size) < 150


def test_a_sort_by_what_no_summary_has_is_refused(service: CoreService) -> None:
    for sort in ("gateway", "ID", "--id", "-", " id", "id,username", "__class__"):
        assert parameter_refused(lambda: listed(service, sort=sort)) == "sort"


def test_a_cursor_of_another_sort_is_refused(service: CoreService) -> None:
    _, answer = listed(service, sort="username", page=Page(5))
    page = Page(5, answer["next_cursor"])
    assert parameter_refused(lambda: listed(service, sort="-username", page=page)) == "page.cursor"


def test_no_sort_and_sort_by_id_are_the_same_order(service: CoreService) -> None:
    _, answer = listed(service, page=Page(5))
    sessions, _ = listed(service, sort="id", page=Page(5, answer["next_cursor"]))
    assert [one["id"] for one in sessions] == [6, 7, 8, 9, 10]


def test_uptime_is_the_whole_seconds_since_the_start(service: CoreService, clock: StillClock) -> None:
    assert service.get_health(NoParameters()).uptime_seconds == 0
    clock.now += 12.9
    assert service.get_health(NoParameters()).uptime_seconds == 12


# A gateway that fails

ENDED = EndedSession(7, "bob", "100.64.0.7")


def first_access_interface(service: CoreService) -> str:
    sessions, _ = listed(service)
    return str(sessions[0]["access_interface"])


def disconnect_interface(service: CoreService) -> None:
    handler = translate_errors(Handler(DisconnectInterface, service.disconnect_interface))
    handler.handler(DisconnectInterface(first_access_interface(service), dry_run=False), None)


@pytest.mark.parametrize(
    ("error", "name", "parameters"),
    [
        (StepFailed("end it", "no reply"), "StepFailed", {"step": "end it", "reason": "no reply"}),
        (
            StillConnected(2, [ENDED], "no reply"),
            "SessionsConnected",
            {"connected": 2, "ended": [msgspec.to_builtins(ENDED)], "reason": "no reply"},
        ),
    ],
)
def test_an_error_of_the_gateway_is_one_of_the_interface(
    service: CoreService,
    monkeypatch: pytest.MonkeyPatch,
    error: Exception,
    name: str,
    parameters: dict[str, Any],
) -> None:
    def fail(_: LabGateway, ids: Sequence[int]) -> None:
        raise error

    monkeypatch.setattr(LabGateway, "disconnect", fail)
    with pytest.raises(ErrorReply) as replied:
        disconnect_interface(service)
    assert replied.value.name == f"{CORE.name}.{name}"
    assert msgspec.json.decode(replied.value.parameters) == parameters


def test_changes_of_the_core_are_listed_after_one_that_is_known(service: CoreService) -> None:
    for id in (1, 2, 3):
        service.set_session_rate(SetSessionRate(id, 7_000_000, 9_000_000), None)
    for after, numbers in ((None, [1, 2, 3]), (1, [2, 3]), (3, [])):
        changes = service.list_changes(ListChanges("log", after)).changes
        assert [change.sequence for change in changes] == numbers


@pytest.mark.parametrize("ended", [[ENDED], []])
def test_the_changes_of_the_core_have_the_sessions_that_ended_before_a_failure(
    service: CoreService, monkeypatch: pytest.MonkeyPatch, ended: list[EndedSession]
) -> None:
    def fail(_: LabGateway, ids: Sequence[int]) -> None:
        raise StillConnected(1, ended, "no reply")

    monkeypatch.setattr(LabGateway, "disconnect", fail)
    with pytest.raises(ErrorReply):
        disconnect_interface(service)
    changes = service.list_changes(ListChanges("log", 0)).changes
    before = {"interface": first_access_interface(service), "sessions": msgspec.to_builtins(ended)}
    assert [change.before for change in changes] == [before] * len(ended)


# Searches by what an operator knows of a session.


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

"""Lists by the fields of their records."""

from typing import Any

import msgspec
import pytest

from gateway_contract.contract import Page, get_columns
from gateway_contract.core.network import ListInterfaces, ListRoutes, Route
from gateway_contract.varlink.protocol import ErrorReply
from gateway_core.records.paging import SortedRows, select_records
from tests.support.tables import fields_of

#: Device, metric and session of each route.
KNOWN = (("ppp2", 20, 7), ("uplink0", None, None), ("ppp1", 20, 3), ("cgnat0", 10, None), ("ppp2", None, 7))


def route(number: int) -> Route:
    dev, metric, session_id = KNOWN[number]
    return Route(
        f"10.0.{number}.0/24", None, dev, "kernel", "link", "unicast", "main", metric, None, session_id
    )


def found(page: Page | None = None, **call: Any) -> dict[str, Any]:
    rows = SortedRows(range(len(KNOWN)), lambda number: (number,), route)
    return fields_of(select_records(rows, ListRoutes(page=page, **call)))


def numbers(**call: Any) -> list[int]:
    """The numbers of the routes in a whole list, which its pages have, too."""
    whole = decoded(found(**call))
    pages, cursor = [], None
    while True:
        page = found(Page(2, cursor), **call)
        assert page["total"] == len(whole)
        pages += decoded(page)
        if (cursor := page["next_cursor"]) is None:
            break
    assert pages == whole
    return whole


def decoded(reply: dict[str, Any]) -> list[int]:
    return [int(item["dst"].split(".")[2]) for item in msgspec.json.decode(reply["routes"])]


@pytest.mark.parametrize(
    ("filter", "expected"),
    [
        ({}, [0, 1, 2, 3, 4]),
        ({"dev": "ppp2"}, [0, 4]),
        ({"session_id": 7, "metric": 20}, [0]),
        ({"dev": "ppp"}, []),
    ],
)
def test_a_filter_finds_the_records_that_have_all_its_values(
    filter: dict[str, Any], expected: list[int]
) -> None:
    assert numbers(filter=filter) == expected


@pytest.mark.parametrize(
    ("sort", "expected"),
    [
        ("dev", [3, 2, 0, 4, 1]),
        ("-dev", [1, 4, 0, 2, 3]),
        ("metric", [1, 4, 3, 0, 2]),
        ("-metric", [2, 0, 3, 4, 1]),
    ],
)
def test_a_sort_has_null_first_and_equal_records_in_the_order_of_the_list(
    sort: str, expected: list[int]
) -> None:
    assert numbers(sort=sort) == expected


def test_a_filtered_list_is_sorted() -> None:
    assert numbers(filter={"session_id": 7}, sort="metric") == [4, 0]


@pytest.mark.parametrize(
    ("call", "parameter"),
    [
        ({"filter": {"colour": "red"}}, "filter"),
        ({"filter": {"metric": "20"}}, "filter"),
        ({"filter": {"metric": None}}, "filter"),
        ({"sort": "colour"}, "sort"),
        ({"sort": "--dev"}, "sort"),
    ],
)
def test_an_unknown_field_or_a_value_of_another_type_is_refused(call: dict[str, Any], parameter: str) -> None:
    with pytest.raises(ErrorReply) as refused:
        found(**call)
    assert msgspec.json.decode(refused.value.parameters) == {"parameter": parameter}


def test_a_cursor_of_another_sort_is_refused() -> None:
    cursor = found(Page(2), sort="dev")["next_cursor"]
    with pytest.raises(ErrorReply):
        found(Page(2, cursor), sort="metric")


def test_a_field_with_several_values_is_no_column() -> None:
    assert set(get_columns(ListInterfaces)) == {
        *("ifindex", "name", "type", "mac_address", "mtu"),
        *("admin_state", "oper_state", "parent", "master"),
    }

"""The lists of the network by the fields of their records, as a client sees them."""

from typing import Any

import pytest

from tests.support.requests import assert_invalid
from tests.support.stack import Api


@pytest.mark.parametrize(
    ("path", "field", "wanted"),
    [
        ("/interfaces", "type", "trunk"),
        ("/interfaces/vlans", "protocol", "802.1ad"),
        ("/qos", "overhead_profile", "pppoe_ethernet"),
        ("/routing/routes", "protocol", "kernel"),
        ("/cgnat/sessions", "type", "DHCP"),
        ("/demux/state", "state", "active"),
    ],
)
def test_a_list_is_filtered_by_a_field(api: Api, path: str, field: str, wanted: str) -> None:
    def records(**query: str) -> list[dict[str, Any]]:
        data = api.get(path, params=query)
        (held,) = (value for value in data.values() if isinstance(value, list))
        return [{key: value for key, value in item.items() if key != "stats"} for item in held]

    expected = [record for record in records() if record[field] == wanted]
    assert expected
    assert records(**{field: wanted}) == expected


def test_all_filters_must_hold(api: Api) -> None:
    trunk = api.get("/interfaces/vlans")["vlans"][0]["trunk"]
    vlans = api.get("/interfaces/vlans", params={"trunk": trunk, "session_count": "0"})["vlans"]
    assert all((vlan["trunk"], vlan["session_count"]) == (trunk, 0) for vlan in vlans)
    assert api.get("/interfaces/vlans", params={"trunk": trunk, "name": "lo"})["count"] == 0


def test_the_fullest_vlans_come_first_where_they_are_sorted_by_sessions(api: Api) -> None:
    page = api.get("/interfaces/vlans", params={"sort": "-session_count", "limit": "5"})["vlans"]
    every = sorted(vlan["session_count"] for vlan in api.get("/interfaces/vlans")["vlans"])
    assert [vlan["session_count"] for vlan in page] == every[:-6:-1]


def test_a_mac_address_is_found_in_any_spelling(api: Api) -> None:
    interfaces = api.get("/interfaces", params={"type": "trunk"})["interfaces"]
    mac = interfaces[0]["mac_address"]
    spelled = mac.replace(":", "-").upper()
    assert interfaces[0]["name"] in {
        item["name"] for item in api.get("/interfaces", params={"mac_address": spelled})["interfaces"]
    }


def test_a_value_of_an_enumeration_is_found_in_any_case(api: Api) -> None:
    assert (
        api.get("/cgnat/sessions", params={"type": "pppoe"})["count"]
        == api.get("/cgnat/sessions", params={"type": "PPPoE"})["count"]
        > 0
    )


@pytest.mark.parametrize(
    ("name", "value", "rule"),
    [
        ("type", "tunnel", "must be one of trunk, loopback, vlan, ppp, ifb, vrf, other"),
        ("mtu", "large", "must be an integer from 0"),
        ("mtu", "9223372036854775808", "must be an integer from 0"),
        ("mac_address", "02:00", "must be a MAC address"),
        ("sort", "stats", "must be one of ifindex, name, "),
    ],
)
def test_a_value_that_no_record_can_have_is_refused_with_the_rule(
    api: Api, name: str, value: str, rule: str
) -> None:
    answer = api.send("GET", "/interfaces", params={name: value})
    assert_invalid(answer, name)
    assert rule in answer.text

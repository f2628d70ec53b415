"""The lists of the network by the fields of their records, as a client sees them."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.by_api import set_value
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
        # The first list: another one beside it is of the whole.
        held = next(value for value in data.values() if isinstance(value, list))
        return [{key: value for key, value in item.items() if key != "stats"} for item in held]

    expected = [record for record in records() if record[field] == wanted]
    assert expected
    assert records(**{field: wanted}) == expected


def test_jobs_are_filtered_and_sorted(api: Api) -> None:
    for kind in ("disconnect", "rate", "disconnect"):
        more = {"rate_down": "1g"} if kind == "rate" else {}
        assert api.send("POST", f"/subscribers/{kind}", json={"filter": {"username": "nobody"}, **more}).ok
    jobs = api.get("/subscribers/jobs", params={"kind": "disconnect", "sort": "id"})["jobs"]
    assert {job["kind"] for job in jobs} == {"disconnect"}
    assert [job["id"] for job in jobs] == sorted(job["id"] for job in jobs)
    newest = api.get("/subscribers/jobs", params={"limit": 2})["jobs"]
    assert newest == api.get("/subscribers/jobs")["jobs"][:2]


@pytest.fixture
def hooks(api: Api) -> Iterator[list[str]]:
    """The ids of three webhooks, by their URLs."""
    made = [
        api.send("POST", "/webhooks", json={"url": f"http://127.0.0.1:9/{name}", "events": ["session.up"]})
        for name in ("b", "a", "c")
    ]
    ids = [each.json()["data"]["id"] for each in made]
    yield [ids[1], ids[0], ids[2]]
    for id in ids:
        assert api.send("DELETE", f"/webhooks/{id}").ok


def test_webhooks_are_filtered_and_sorted(api: Api, hooks: list[str]) -> None:
    def found(**query: str) -> list[str]:
        data = api.get("/webhooks", params=query)
        assert data["count"] == len(data["webhooks"])
        return [hook["id"] for hook in data["webhooks"] if hook["id"] in hooks]

    assert found(sort="url") == hooks
    assert found(sort="-url") == hooks[::-1]
    assert found(url="http://127.0.0.1:9/a", state="WELL") == hooks[:1]
    assert found(state="paused") == []


def test_archived_revisions_are_filtered_and_sorted(api: Api) -> None:
    before = api.get("/system/config")["system"]["hostname"]
    for name, comment in (("first", "b"), (before, "a")):
        set_value(api, "system.hostname", name)
        assert api.send("POST", "/system/config/commit", json={"comment": comment}).ok
    revisions = api.get("/system/config/archive")["revisions"]
    assert api.get("/system/config/archive", params={"sort": "-revision"})["revisions"] == revisions[::-1]
    found = api.get("/system/config/archive", params={"comment": "b"})
    assert found["revisions"] == [each for each in revisions if each["comment"] == "b"]
    assert found["count"] == len(found["revisions"]) > 0
    by_comment = api.get("/system/config/archive", params={"sort": "comment"})["revisions"]
    comments = [each["comment"] for each in by_comment]
    assert comments == sorted(comments, key=lambda text: (text is not None, text))


def test_all_filters_must_hold(api: Api) -> None:
    def names(**query: str) -> set[str]:
        return {vlan["name"] for vlan in api.get("/interfaces/vlans", params=query)["vlans"]}

    vlan = api.get("/interfaces/vlans")["vlans"][0]
    by_trunk, by_id = names(trunk=vlan["trunk"]), names(vlan_id=str(vlan["vlan_id"]))
    assert names(trunk=vlan["trunk"], vlan_id=str(vlan["vlan_id"])) == by_trunk & by_id
    assert by_trunk - by_id and by_id - by_trunk


def test_the_fullest_vlans_come_first_where_they_are_sorted_by_sessions(api: Api) -> None:
    page = api.get("/interfaces/vlans", params={"sort": "-session_count", "limit": "5"})["vlans"]
    every = sorted(vlan["session_count"] for vlan in api.get("/interfaces/vlans")["vlans"])
    assert [vlan["session_count"] for vlan in page] == every[:-6:-1]


def test_a_mac_address_is_found_in_any_spelling(api: Api) -> None:
    interfaces = api.get("/interfaces")["interfaces"]
    mac = next(item["mac_address"] for item in interfaces if item["type"] == "trunk")
    found = api.get("/interfaces", params={"mac_address": mac.replace(":", "-").upper()})["interfaces"]
    assert [item["name"] for item in found] == [
        item["name"] for item in interfaces if item["mac_address"] == mac
    ]


def test_a_value_of_an_enumeration_is_found_in_any_case(api: Api) -> None:
    number = {
        spelled: api.get("/cgnat/sessions", params={"type": spelled})["count"]
        for spelled in ("pppoe", "PPPoE", "dhcp")
    }
    assert number["pppoe"] == number["PPPoE"] != number["dhcp"] > 0


@pytest.mark.parametrize(
    ("path", "query", "problem"),
    [
        (
            "/interfaces",
            {"type": "tunnel"},
            "type: must be one of trunk, loopback, vlan, ppp, ifb, vrf, other",
        ),
        ("/interfaces", {"mtu": "large"}, "mtu: must be an integer from 0"),
        ("/interfaces", {"mtu": "9223372036854775808"}, "mtu: must be an integer from 0"),
        ("/interfaces", {"mac_address": "02:00"}, "mac_address: must be a MAC address"),
        ("/interfaces", {"sort": "stats"}, "sort: must be one of ifindex, name, "),
        ("/subscribers/history", {"ip_address": "100.64"}, "ip_address: must be an IP address"),
        ("/subscribers/history", {"mac_address": "02"}, "mac_address: must be a MAC address"),
        ("/subscribers/history", {"at": "noon"}, "at: must be epoch seconds, or a time with its offset"),
        (
            "/subscribers/history",
            {"limit": 5, "cursor": "x"},
            "cursor: must be what the last page gave as next_cursor",
        ),
        ("/subscribers/history", {"sort": "username"}, "sort: is not a known field"),
        ("/subscribers/history", {"search": ""}, "search: must have 1 to 256 characters"),
        # Nobody is named for an address in the future.
        (
            "/subscribers/history",
            {"ip_address": "192.0.2.1", "at": "2100-01-01T00:00:00Z"},
            "at: must not be in the future: it is ",
        ),
        ("/subscribers/traffic", {"sort": "total"}, "sort: must be one of -down, -up, down, up"),
        ("/subscribers/traffic", {"limit": "0"}, "limit: must be an integer from 1 to 1000"),
        ("/subscribers/traffic", {"limit": "1001"}, "limit: must be an integer from 1 to 1000"),
        ("/subscribers/traffic", {"cursor": "x"}, "cursor: is not a known field"),
        ("/interfaces/traffic", {"step": "0"}, "step: must be an integer from 1 to 86400"),
        (
            "/interfaces/traffic",
            {"since": "946684800", "step": "1"},
            "step: must be larger: these are more than 10000 steps",
        ),
        ("/interfaces/traffic", {"since": "yesterday"}, "since: must be epoch seconds, or a time "),
    ],
)
def test_a_query_that_breaks_a_rule_gets_the_field_and_the_rule(
    api: Api, path: str, query: dict[str, Any], problem: str
) -> None:
    answer = api.send("GET", path, "operator", params=query)
    assert_invalid(answer, problem.partition(":")[0])
    assert answer.json()["message"].startswith(problem)

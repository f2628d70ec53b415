"""The whole gateway with real subscribers, on Debian's own kernel under systemd. One boot serves all."""

import re
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from typing import Any

import pytest

from tests.support.inside import false_sources
from tests.support.inside.gateway import HIGHER_THRESHOLD
from tests.support.inside.installed import prepare
from tests.support.virtual_machine import Report, run_in_machine

# The machine is emulated, and takes minutes.
pytestmark = pytest.mark.timeout(3000)


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Report:
    """What the pieces of the program saw, after the machine ended."""
    shared = tmp_path_factory.mktemp("shared")
    prepare(shared)
    return run_in_machine("tests.support.inside.gateway", shared, timeout=2400)


def agree(seen: dict[str, Any], **expected: Any) -> None:
    """The list, the record, the event stream and the webhook have the same session, with these fields."""
    for name in ("listed", "detail", "event"):
        shared = expected.keys() & seen[name].keys()
        assert {key: seen[name][key] for key in shared} == {key: expected[key] for key in shared}, name
    listed, delivered = seen["listed"], seen["delivered"]
    assert seen["detail"]["id"] == listed["id"] == seen["event"]["id"] == delivered["data"]["id"]
    assert (
        seen["detail"]["session_type"] == listed["type"] == seen["event"]["type"] == delivered["data"]["type"]
    )
    assert delivered["data"]["ip_address"] == seen["event"]["ip_address"] == listed["ip_address"]


def test_the_machine_comes_to_its_end(report: Report) -> None:
    print(report.seconds())
    assert report.end == "powered off"


def test_a_subscriber_signs_on_by_a_vlan_that_did_not_exist(report: Report) -> None:
    seen = report.of("one_tag")
    agree(
        seen, type="PPPoE", session_type="PPPoE", username="alice", mac_address=seen["mac"], state="active",
        access_interface="trunk0.100", outer_vlan_id=None, inner_vlan_id=100, source="pppoe-server",
        rate_down=50_000_000, rate_up=10_000_000, rate_down_bps=50_000_000, rate_up_bps=10_000_000,
        overhead_profile="pppoe_ethernet",
    )  # fmt: skip
    (vlan,) = (each for each in seen["vlans"] if each["name"] == "trunk0.100")
    assert vlan["state"] == "active"
    assert IPv6Address(seen["after"]["ipv6_address"]).is_link_local


def test_counters_have_the_traffic_of_both_directions(report: Report) -> None:
    seen = report.of("one_tag")
    assert seen["pinged"]
    for counter in ("bytes_in", "bytes_out"):
        # A request of 56 bytes and its reply, with IPv4 and ICMP.
        assert seen["after"][counter] - seen["detail"][counter] >= 56 + 28
    assert seen["interface"]["stats"]["rx_bytes"] >= seen["after"]["bytes_in"]


def test_a_subscriber_signs_on_by_two_tags(report: Report) -> None:
    seen = report.of("two_tags")
    agree(
        seen, type="PPPoE", username="dave", mac_address=seen["mac"], access_interface="trunk0.50.7",
        outer_vlan_id=50, inner_vlan_id=7, overhead_profile="pppoe_qinq",
    )  # fmt: skip


def test_a_subscriber_gets_a_lease(report: Report) -> None:
    seen = report.of("dhcp")
    agree(
        seen, type="DHCP", mac_address=seen["mac"], access_interface="trunk0.400", inner_vlan_id=400,
        source="dnsmasq", overhead_profile="ipoe_ethernet",
    )  # fmt: skip
    assert seen["pinged"]


@pytest.mark.parametrize("piece", ["one_tag", "dhcp"])
def test_the_subscriber_has_the_address_that_the_gateway_shows(report: Report, piece: str) -> None:
    seen = report.of(piece)
    assert seen["at_home"] == [seen["listed"]["ip_address"]]
    assert IPv4Address(seen["listed"]["ip_address"]) in IPv4Network("100.64.0.0/10")


def test_a_subscriber_with_the_prefix_of_its_session_is_reached_from_outside(report: Report) -> None:
    seen = report.of("ipv6")
    assert IPv6Address(seen["address"]) in IPv6Network(seen["prefix"])


def test_a_client_that_asks_has_an_mtu_of_1500_where_the_trunk_has_room(report: Report) -> None:
    assert report.of("mtu") == {"alice": 1500, "bob": 1492}


def test_the_kernel_keeps_more_neighbours_and_no_threshold_is_lowered(report: Report) -> None:
    assert report.of("neighbours") == [65_536, HIGHER_THRESHOLD, 262_144]


def test_shared_addresses_are_steered_and_public_ones_are_not(report: Report) -> None:
    seen = report.of("steered")
    assert list(seen["pinged"]["alice"].values()) == [True, False]
    assert list(seen["pinged"]["bob"].values()) == [False, True]
    assert seen["details"]["alice"]["vrf_steered"] and not seen["details"]["bob"]["vrf_steered"]
    users = {each["username"] for each in seen["listed"]}
    assert "alice" in users and "bob" not in users


def test_the_addresses_of_subscribers_are_routed(report: Report) -> None:
    seen = report.of("routed")
    for user, session in seen["users"].items():
        assert session["ip_address"] in seen["neighbour"]
        assert session["id"] in {route["session_id"] for route in seen["routes"][user]}


def test_bgp_is_seen(report: Report) -> None:
    seen = report.of("routed")
    assert seen["bgp"]["ipv4Unicast"]["peers"]["10.255.0.2"]["state"] == "Established"
    assert [route["protocol"] for route in seen["learned"]] == ["bgp"]


@pytest.mark.parametrize(("direction", "rate"), [("down", 1e6), ("up", 5e5)])
def test_a_rate_that_is_set_limits_the_subscriber(report: Report, direction: str, rate: float) -> None:
    seen = report.of("limited")
    assert (seen["after"]["rate_down_bps"], seen["after"]["rate_up_bps"]) == (1_000_000, 500_000)
    # A busy machine may make it slower.
    assert 0.4 * rate < seen["measured"][direction] < 1.15 * rate


def test_a_session_in_the_kernel_is_one_process(report: Report) -> None:
    seen = report.of("both_modes")
    assert (seen["alice"], seen["carol"]) == (1, 3)


def test_health_tells_of_sessions_in_user_mode(report: Report) -> None:
    (found,) = (one for one in report.of("both_modes")["health"] if one["name"] == "pppoe-server")
    assert found["state"] == "degraded"
    assert re.search(": 1 of [0-9]+ are in user mode", found["message"])


def test_the_unit_of_accel_ppp_allows_what_pppoe_needs(report: Report) -> None:
    seen = report.of("sandboxed")
    assert re.fullmatch("ppp[0-9]+", seen["session"])
    assert [seen[name] for name in ("discovery", "low_port", "many_files")] == ["done"] * 3


@pytest.mark.parametrize(
    ("act", "error"),
    [
        ("write_to_the_machine", "Read-only file system"),
        ("write_its_own_file", "Read-only file system"),
        ("open_the_memory", "Operation not permitted"),
        ("remove_a_module", "Operation not permitted"),
        ("leave_the_network", "Operation not permitted"),
    ],
)
def test_the_unit_of_accel_ppp_refuses_what_pppoe_does_not_need(report: Report, act: str, error: str) -> None:
    assert report.of("sandboxed")[act] == error


def test_a_sign_on_with_a_wrong_password_is_told_with_where_it_came_from(report: Report) -> None:
    seen = report.of("refused")
    expected = {
        "type": "PPPoE",
        "reason": "rejected",
        "username": 'mal"lory',
        "mac_address": seen["mac"],
        "access_interface": "trunk0.150",
    }
    assert seen["failure"].items() >= expected.items()
    assert seen["more"] == []


def test_a_commit_ends_the_sessions_whose_vlans_it_removes_and_no_other(report: Report) -> None:
    seen = report.of("committed")
    assert seen["end"]["event"]["reason"] == "admin_disconnect"
    assert "trunk0.50.7" not in seen["vlans"] + seen["devices"]
    del seen["before"]["dave"]
    assert {user: seen["after"].get(user) for user in seen["before"]} == seen["before"]


def test_a_subscriber_signs_on_by_radius_after_a_commit(report: Report) -> None:
    seen = report.of("committed")
    assert seen["access_interface"] == "trunk0.151"
    assert seen["starts"] == 1


def test_no_packet_of_an_attack_from_a_line_passes(report: Report) -> None:
    seen = report.of("attacked")
    assert (seen["status"], seen["honest"], seen["passed"]) == (0, 1, 0)


def test_an_attack_from_a_line_makes_few_vlans_and_ends_no_session(report: Report) -> None:
    seen = report.of("attacked")
    assert 0 < seen["vlans"] <= seen["allowed"]
    assert seen["refused"] > 0
    assert seen["after"] == seen["before"]


@pytest.mark.parametrize("state", ["without a session", "with a session"])
def test_no_packet_with_a_false_source_makes_the_gateway_send_to_others(report: Report, state: str) -> None:
    assert false_sources.faults(report.of("false_sources_reach_others")[state]) == []


@pytest.mark.parametrize(
    ("way", "reasons"),
    [
        ("hung_up", {"user_request"}),
        # The user name is "Modem hangup", which pppd logs for another reason.
        ("disconnected", {"admin_disconnect"}),
        ("silent", {"admin_disconnect"}),
        ("killed", {"unknown"}),
        ("cut", {"lost_carrier"}),
        ("resized", {"lost_carrier"}),
        # Before, or after, the signal of pppoe-server, the kernel tells pppd.
        ("padt", {"lost_carrier", "unknown"}),
    ],
)
def test_an_end_is_one_event_with_its_reason(report: Report, way: str, reasons: set[str]) -> None:
    seen = report.of("ends")[way]
    assert seen["event"]["reason"] == seen["delivered"]["data"]["reason"]
    assert seen["event"]["reason"] in reasons
    assert seen["downs"] == 1
    assert not seen["is_listed"]


@pytest.mark.parametrize("way", ["disconnected", "silent"])
def test_a_disconnect_ends_the_session_at_its_deadline_at_the_latest(report: Report, way: str) -> None:
    # The session may take longer to end than a request may take.
    *before, last = report.of("ends")["statuses"][way]
    assert set(before) <= {500} and last in ((200, 404) if before else (200,))


@pytest.mark.parametrize("way", ["killed", "disconnected"])
def test_a_subscriber_who_dials_again_has_another_session(report: Report, way: str) -> None:
    assert report.of("ends")[f"{way}_again"]


def test_what_is_deleted_comes_back_and_is_counted(report: Report) -> None:
    seen = report.of("repaired")
    assert seen["parts"] == ["qdisc", "ifb", "rule", "route", "handoff"]
    repairs = {kind: seen["after"][kind] - seen["before"][kind] for kind in ("shaper", "ifb", "steering")}
    assert repairs == {"shaper": 1, "ifb": 1, "steering": 3}
    assert seen["pinged"]


def test_sessions_outlive_the_core(report: Report) -> None:
    seen = report.of("core_killed")
    del seen["before"]["frank"]
    assert seen["after"] == seen["before"]
    assert seen["pinged"]


def test_a_restart_of_the_core_repeats_no_event_and_loses_none(report: Report) -> None:
    seen = report.of("core_killed")
    assert set(seen["ups"].values()) == {1}
    assert {user: number for user, number in seen["downs"].items() if number} == {"frank": 1}


def test_sessions_outlive_pppoe_server_and_another_takes_its_place(report: Report) -> None:
    seen = report.of("pppoe_server_killed")
    assert seen["after"] == seen["before"]
    assert seen["downs"] == 0
    killed, *running = seen["server"]
    assert running and killed not in running
    assert seen["other"]["access_interface"] == seen["before"]["access_interface"]


def test_a_dead_bgpd_is_an_answer_and_no_end_of_a_session(report: Report) -> None:
    seen = report.of("bgpd_killed")
    assert seen["during"] in (200, 500)
    assert seen["routes"] == 200
    assert seen["after"] == seen["before"]

"""The whole gateway with real subscribers, on Debian's own kernel under systemd. One boot serves all."""

import re
import shlex
import sys
from ipaddress import IPv4Address, IPv4Network, IPv6Address
from pathlib import Path
from typing import Any

import pytest

from tests.support.frr import Frr
from tests.support.inside.gateway import TOLERANCE
from tests.support.inside.installed import script_under_systemd
from tests.support.kernel import of_case, run_in_machine, seen_by
from tests.support.measuring import seconds_of_a_loop
from tests.support.stack import make_state

# A virtual machine that is emulated takes minutes to boot.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(4200)]

_REPOSITORY = Path(__file__).parents[2]
_OUTSIDE = Path("/mnt/shared")


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the script saw, by case, after the machine ended."""
    shared, frr = tmp_path_factory.mktemp("shared"), Frr(tmp_path_factory.mktemp("frr"))
    make_state(shared / "made")
    command = f"{shlex.quote(sys.executable)} -m tests.support.inside.gateway {frr.root}"
    command += f" {_OUTSIDE / 'made'} {_OUTSIDE / 'gateway.journal'}"
    script = script_under_systemd(command, _OUTSIDE / "gateway.json", _OUTSIDE / "gateway.errors")
    run_in_machine(script, shared, timeout=3600, needs_packet_filter=True)
    return seen_by(shared, "gateway")


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


def test_a_subscriber_signs_on_by_a_vlan_that_did_not_exist(gateway: dict[str, Any]) -> None:
    seen = of_case(gateway, "one_tag")
    agree(
        seen, type="PPPoE", session_type="PPPoE", username="alice", mac_address=seen["mac"], state="active",
        access_interface="trunk0.100", outer_vlan_id=None, inner_vlan_id=100, source="pppoe-server",
        rate_down=50_000_000, rate_up=10_000_000, rate_down_bps=50_000_000, rate_up_bps=10_000_000,
        overhead_profile="pppoe_ethernet",
    )  # fmt: skip
    (vlan,) = (each for each in seen["vlans"] if each["name"] == "trunk0.100")
    assert vlan["state"] == "active"


def test_the_subscriber_has_the_address_that_the_gateway_shows(gateway: dict[str, Any]) -> None:
    for case in ("one_tag", "dhcp"):
        seen = of_case(gateway, case)
        assert seen["at_home"] == [seen["listed"]["ip_address"]]
        assert IPv4Address(seen["listed"]["ip_address"]) in IPv4Network("100.64.0.0/10")


def test_a_session_has_ipv6(gateway: dict[str, Any]) -> None:
    assert IPv6Address(of_case(gateway, "one_tag")["after"]["ipv6_address"]).is_link_local


def test_counters_have_the_traffic_of_both_directions(gateway: dict[str, Any]) -> None:
    seen = of_case(gateway, "one_tag")
    assert seen["pinged"]
    for counter in ("bytes_in", "bytes_out"):
        # Three requests of 56 bytes and their replies, with IPv4 and ICMP.
        assert seen["after"][counter] - seen["detail"][counter] >= 3 * (56 + 28)
    assert seen["interface"]["stats"]["rx_bytes"] >= seen["after"]["bytes_in"]


def test_a_subscriber_signs_on_by_two_tags(gateway: dict[str, Any]) -> None:
    seen = of_case(gateway, "two_tags")
    agree(
        seen, type="PPPoE", username="dave", mac_address=seen["mac"], access_interface="trunk0.50.7",
        outer_vlan_id=50, inner_vlan_id=7, overhead_profile="pppoe_qinq",
    )  # fmt: skip


def test_a_subscriber_gets_a_lease(gateway: dict[str, Any]) -> None:
    seen = of_case(gateway, "dhcp")
    agree(
        seen, type="DHCP", mac_address=seen["mac"], access_interface="trunk0.400", inner_vlan_id=400,
        source="dnsmasq", overhead_profile="ipoe_ethernet",
    )  # fmt: skip
    assert seen["pinged"]


def test_shared_addresses_are_steered_and_public_ones_are_not(gateway: dict[str, Any]) -> None:
    seen = of_case(gateway, "steered")
    assert list(seen["pinged"]["alice"].values()) == [True, False]
    assert list(seen["pinged"]["bob"].values()) == [False, True]
    assert seen["details"]["alice"]["vrf_steered"] and not seen["details"]["bob"]["vrf_steered"]
    users = {each["username"] for each in seen["listed"]}
    assert "alice" in users and "bob" not in users


@pytest.mark.parametrize("user", ["alice", "bob"])
def test_the_address_of_a_subscriber_is_routed(gateway: dict[str, Any], user: str) -> None:
    seen = of_case(gateway, "routed")
    assert seen["users"][user]["ip_address"] in seen["neighbour"]
    assert seen["users"][user]["id"] in {route["session_id"] for route in seen["routes"][user]}


def test_bgp_is_seen(gateway: dict[str, Any]) -> None:
    seen = of_case(gateway, "routed")
    assert seen["bgp"]["ipv4Unicast"]["peers"]["10.255.0.2"]["state"] == "Established"
    assert [route["protocol"] for route in seen["learned"]] == ["bgp"]


@pytest.mark.parametrize(("direction", "rate"), [("down", 1e6), ("up", 5e5)])
def test_a_rate_that_is_set_is_measured(gateway: dict[str, Any], direction: str, rate: float) -> None:
    seen = of_case(gateway, "shaped")
    assert (seen["after"]["rate_down_bps"], seen["after"]["rate_up_bps"]) == (1_000_000, 500_000)
    assert seen["measured"][direction] == pytest.approx(rate, rel=TOLERANCE)


@pytest.mark.parametrize(("user", "processes"), [("alice", 1), ("carol", 3)])
def test_a_session_in_the_kernel_is_one_process(gateway: dict[str, Any], user: str, processes: int) -> None:
    assert of_case(gateway, "both_modes")[user]["processes"] == processes


@pytest.mark.parametrize("direction", ["down", "up"])
def test_a_session_in_the_kernel_is_faster(gateway: dict[str, Any], direction: str) -> None:
    seen = of_case(gateway, "both_modes")
    assert seen["alice"][direction] > 1.5 * seen["carol"][direction], seen


def test_health_tells_of_sessions_in_user_mode(gateway: dict[str, Any]) -> None:
    (found,) = (one for one in of_case(gateway, "both_modes")["health"] if one["name"] == "pppoe-server")
    assert found["state"] == "degraded"
    # The line of another one is cut.
    assert re.search(": 1 of [45] are in user mode", found["message"])


def test_the_unit_of_accel_ppp_allows_what_pppoe_needs(gateway: dict[str, Any]) -> None:
    seen = of_case(gateway, "sandboxed")
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
def test_the_unit_of_accel_ppp_refuses_what_pppoe_does_not_need(
    gateway: dict[str, Any], act: str, error: str
) -> None:
    assert of_case(gateway, "sandboxed")[act] == error


def test_fifty_subscribers_sign_on_at_once(gateway: dict[str, Any]) -> None:
    seen = of_case(gateway, "fifty")
    assert {each["username"]: each["access_interface"] for each in seen["sessions"]} == seen["lines"]
    for field in ("id", "ip_address", "mac_address", "interface"):
        assert len({each[field] for each in seen["sessions"]}) == 50
    assert seen["events"] == [1] * 50


@pytest.mark.parametrize(
    ("case", "reason"),
    [("disconnected", "admin_disconnect"), ("hung_up", "user_request"), ("lost_carrier", "lost_carrier")],
)
def test_an_end_is_one_event_with_its_reason(gateway: dict[str, Any], case: str, reason: str) -> None:
    seen = of_case(gateway, case)
    assert seen["event"]["reason"] == seen["delivered"]["data"]["reason"] == reason
    assert seen["downs"] == 1
    assert not seen["is_listed"]


def test_a_subscriber_who_was_disconnected_dials_again(gateway: dict[str, Any]) -> None:
    seen = of_case(gateway, "disconnected")
    # The session may take longer to end than a request may take.
    *before, last = seen["statuses"]
    assert set(before) <= {500} and last in ((200, 404) if before else (200,))
    assert seen["lookup"] == 404
    assert seen["again"]


@pytest.mark.parametrize("part", ["qdisc", "ifb", "rule", "route", "handoff"])
def test_what_is_deleted_comes_back(gateway: dict[str, Any], part: str) -> None:
    assert part in of_case(gateway, "repaired")["back_after"]


@pytest.mark.parametrize(("kind", "repairs"), [("shaper", 1), ("ifb", 1), ("steering", 3)])
def test_repairs_are_counted(gateway: dict[str, Any], kind: str, repairs: int) -> None:
    seen = of_case(gateway, "repaired")
    assert seen["after"][kind] - seen["before"][kind] == repairs
    assert seen["pinged"]


def test_sessions_outlive_the_core(gateway: dict[str, Any]) -> None:
    seen = of_case(gateway, "core_killed")
    leaver = seen["before"].pop(seen["leaver"])
    assert seen["after"] == seen["before"]
    assert seen["clients_alive"] and seen["pinged"]
    assert leaver["id"] not in {each["id"] for each in seen["after"].values()}


def test_a_restart_of_the_core_repeats_no_event_and_loses_none(gateway: dict[str, Any]) -> None:
    seen = of_case(gateway, "core_killed")
    assert set(seen["ups"].values()) == {1}
    assert {user for user, number in seen["downs"].items() if number} == {seen["leaver"]}
    assert seen["downs"][seen["leaver"]] == 1


def test_sessions_outlive_pppoe_server(gateway: dict[str, Any]) -> None:
    seen = of_case(gateway, "pppoe_server_killed")
    assert seen["after"] == seen["before"]
    assert seen["downs"] == 0


def test_another_pppoe_server_takes_the_place_of_one_that_was_killed(gateway: dict[str, Any]) -> None:
    seen = of_case(gateway, "pppoe_server_killed")
    killed, *running = seen["server"]
    assert running and killed not in running
    assert seen["other"]["access_interface"] == seen["before"]["access_interface"]


def test_a_dead_bgpd_is_an_answer_and_no_end_of_a_session(gateway: dict[str, Any]) -> None:
    seen = of_case(gateway, "bgpd_killed")
    assert seen["during"] in (200, 500)
    assert seen["routes"] == 200
    assert seen["after"] == seen["before"]


def test_an_attack_from_a_line_makes_few_vlans_and_costs_little_memory(gateway: dict[str, Any]) -> None:
    seen = of_case(gateway, "attacked")
    assert seen["status"] == 0
    assert 0 < seen["vlans"] <= seen["allowed"]
    assert seen["refused"] > 0
    assert seen["mebibytes"] < 64


def test_no_packet_of_an_attack_from_a_line_passes(gateway: dict[str, Any]) -> None:
    assert of_case(gateway, "attacked")["passed"] == 0


def test_an_attack_from_a_line_ends_no_session_and_loses_no_packet_of_the_others(
    gateway: dict[str, Any],
) -> None:
    seen = of_case(gateway, "attacked")
    assert seen["others"] == 20
    without, during = seen["lost"]
    assert during <= without
    assert seen["after"] == seen["before"]


def test_an_attack_from_a_line_keeps_the_core_and_its_sources_below_half_of_a_processor(
    gateway: dict[str, Any],
) -> None:
    seen = of_case(gateway, "attacked")
    # The emulated processor is some ten times slower than that of this machine.
    slower = seen["seconds_of_a_loop"] / seconds_of_a_loop()
    assert seen["load"] / slower < 0.5


def test_the_end_of_many_is_one_event_each(gateway: dict[str, Any]) -> None:
    seen = of_case(gateway, "all_hung_up")
    assert len(seen["ends"]) == 49
    assert set(seen["downs"]) == {1}
    # On a busy machine, the journal takes longer than the core waits for it.
    assert {end["event"]["reason"] for end in seen["ends"].values()} <= {"user_request", "unknown"}

"""What needs Debian's own kernel, with real subscribers. One boot serves all: each script of `inside` prints
what it saw."""

import json
import shlex
import sys
from ipaddress import IPv4Address, IPv4Network, IPv6Address
from pathlib import Path
from typing import Any

import pytest

from tests.support.frr import Frr
from tests.support.inside.installed import script_under_systemd
from tests.support.kernel import unpacked

pytestmark = pytest.mark.slow

_REPOSITORY = Path(__file__).parents[2]
_OUTSIDE = Path("/mnt/shared")


@pytest.fixture(scope="module")
def boot(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the output of each script, after the machine ended."""
    shared, frr = tmp_path_factory.mktemp("shared"), Frr(tmp_path_factory.mktemp("frr"))
    python = f"{shlex.quote(sys.executable)} -m tests.support.inside"
    script = [
        f"cd {shlex.quote(str(_REPOSITORY))}",
        f"{python}.pppoe > /mnt/shared/pppoe.json 2> /mnt/shared/pppoe.errors || true",
        script_under_systemd(
            f"{python}.gateway {frr.root} {_OUTSIDE / 'gateway.journal'}",
            _OUTSIDE / "gateway.json",
            _OUTSIDE / "gateway.errors",
        ),
    ]
    unpacked(tmp_path_factory.mktemp("kernel")).run("\n".join(script), shared, timeout=1800)
    return shared


def seen_by(boot: Path, name: str) -> dict[str, Any]:
    output = (boot / f"{name}.json").read_text()
    assert output, (boot / f"{name}.errors").read_text()
    seen: dict[str, Any] = json.loads(output)
    return seen


# pppoe-server


@pytest.fixture(scope="module")
def pppoe(boot: Path) -> dict[str, Any]:
    """By case."""
    return seen_by(boot, "pppoe")


def of_case(pppoe: dict[str, Any], name: str) -> Any:
    seen = pppoe[name]
    assert "error" not in seen, "".join(seen["error"])
    return seen


def test_a_session_is_listed_with_all_that_is_known_of_it(pppoe: dict[str, Any]) -> None:
    seen = of_case(pppoe, "listed")
    session = seen["session"]
    pid, start = session["key"].split("-")[1:]
    status = seen["stat"].rpartition(")")[2].split()
    assert seen["pid_file"]
    assert start == status[19]
    assert seen["between"][0] <= session.pop("started_at") <= seen["between"][1]
    (subscriber,) = (each for each in seen["link"]["addr_info"] if each["family"] == "inet6")
    assert session == {
        "key": f"{session['key'][:8]}-{pid}-{start}",
        "type": "PPPoE",
        "username": "alice",
        "mac_address": seen["mac"],
        "access_interface": "trunk0.100",
        "interface": seen["link"]["ifname"],
        "ip_address": "100.64.100.2",
        "ipv6_address": subscriber["address"],
        "ipv6_prefix": None,
        "delegated_prefixes": [],
        "acct_session_id": session["key"],
        "rate_down": None,
        "rate_up": None,
    }


def test_a_session_that_did_not_change_is_the_same_object(pppoe: dict[str, Any]) -> None:
    assert of_case(pppoe, "listed")["same"]


def test_a_hook_sends_a_datagram(pppoe: dict[str, Any]) -> None:
    assert of_case(pppoe, "listed")["triggers"] >= 1


def test_a_session_that_is_up_has_no_reason(pppoe: dict[str, Any]) -> None:
    assert of_case(pppoe, "listed")["reason_while_up"] == "unknown"


@pytest.mark.parametrize(
    ("case", "reason"),
    [
        ("listed", "user_request"),
        ("terminated", "admin_disconnect"),
        ("terminated_twice", "admin_disconnect"),
        ("killed", "unknown"),
        ("cut", "lost_carrier"),
        ("client_killed", "lost_carrier"),
        ("padt", "unknown"),
        ("released", "admin_disconnect"),
    ],
)
def test_the_reason_of_an_end(pppoe: dict[str, Any], case: str, reason: str) -> None:
    end = of_case(pppoe, case)["end"]
    assert end["reason"] == reason, end["log"]


def test_a_user_name_is_no_reason(pppoe: dict[str, Any]) -> None:
    assert of_case(pppoe, "terminated")["username"] == "Modem hangup"


@pytest.mark.parametrize("case", ["listed", "terminated"])
def test_pppd_leaves_what_it_counted(pppoe: dict[str, Any], case: str) -> None:
    assert of_case(pppoe, case)["traffic"].keys() == {"bytes_in", "bytes_out"}


def test_what_pppd_counted_has_the_traffic_of_both_directions(pppoe: dict[str, Any]) -> None:
    # Three requests of 56 bytes and their replies, with IPv6 and ICMPv6.
    traffic = of_case(pppoe, "listed")["traffic"]
    assert min(traffic["bytes_in"], traffic["bytes_out"]) >= 3 * (56 + 48)


def test_another_request_kills_a_pppd_whose_subscriber_is_silent(pppoe: dict[str, Any]) -> None:
    assert "Connection terminated." not in of_case(pppoe, "terminated_twice")["end"]["log"]


def test_a_session_after_a_kill_is_another_one(pppoe: dict[str, Any]) -> None:
    seen = of_case(pppoe, "killed")
    assert seen["left"]
    assert seen["next"] != seen["key"]


# The whole gateway


@pytest.fixture(scope="module")
def gateway(boot: Path) -> dict[str, Any]:
    """By case."""
    return seen_by(boot, "gateway")


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
    assert IPv6Address(of_case(gateway, "one_tag")["detail"]["ipv6_address"]).is_link_local


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


@pytest.mark.parametrize(("direction", "rate"), [("down", 4e6), ("up", 1e6)])
def test_a_rate_that_is_set_is_measured(gateway: dict[str, Any], direction: str, rate: float) -> None:
    seen = of_case(gateway, "shaped")
    assert (seen["after"]["rate_down_bps"], seen["after"]["rate_up_bps"]) == (4_000_000, 1_000_000)
    assert seen["measured"][direction] == pytest.approx(rate, rel=0.15)


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
    assert set(before) <= {500} and last == (404 if before else 200)
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


def test_the_end_of_many_is_one_event_each(gateway: dict[str, Any]) -> None:
    seen = of_case(gateway, "all_hung_up")
    assert len(seen["ends"]) == 49
    assert set(seen["downs"]) == {1}
    # The log of pppd may be later than the end of so many at once.
    assert {end["event"]["reason"] for end in seen["ends"].values()} <= {"user_request", "unknown"}

"""pppoe-server as a source, with real subscribers, on Debian's own kernel: with sessions in the kernel, and
some in user mode. One boot serves all."""

import shlex
import sys
from ipaddress import IPv6Address, IPv6Network
from pathlib import Path
from typing import Any

import pytest

from tests.support.kernel import of_case, run_in_machine, seen_by

# A virtual machine that is emulated takes minutes to boot.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(3000)]

_REPOSITORY = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the script saw, by mode and case, after the machine ended."""
    shared = tmp_path_factory.mktemp("shared")
    command = f"{shlex.quote(sys.executable)} -m tests.support.inside.pppoe"
    script = f"""
        cd {shlex.quote(str(_REPOSITORY))}
        {command} > /mnt/shared/pppoe.json 2> /mnt/shared/pppoe.errors || true
    """
    run_in_machine(script, shared)
    return seen_by(shared, "pppoe")


@pytest.fixture
def pppoe(both: dict[str, Any]) -> dict[str, Any]:
    """With the sessions in the kernel."""
    return both["kernel"]


@pytest.fixture(params=["kernel", "user"])
def either(both: dict[str, Any], request: pytest.FixtureRequest) -> dict[str, Any]:
    return both[request.param]


def test_a_session_is_listed_with_all_that_is_known_of_it(either: dict[str, Any]) -> None:
    seen = of_case(either, "listed")
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
        "ipv6_gateway": None,
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
        ("resized", "lost_carrier"),
        ("released", "admin_disconnect"),
    ],
)
def test_the_reason_of_an_end(pppoe: dict[str, Any], case: str, reason: str) -> None:
    end = of_case(pppoe, case)["end"]
    assert end["reason"] == reason, end["log"]


def test_a_session_that_the_subscriber_ends_by_padt_is_over_at_once(pppoe: dict[str, Any]) -> None:
    end = of_case(pppoe, "padt")["end"]
    # Before, or after, the signal of pppoe-server, the kernel tells pppd.
    assert end["reason"] in ("lost_carrier", "unknown"), end["log"]
    assert "No response to 3 echo-requests" not in end["log"]


@pytest.mark.parametrize(
    ("case", "reason"), [("listed", "user_request"), ("killed", "unknown"), ("padt", "unknown")]
)
def test_the_reason_of_an_end_in_user_mode(both: dict[str, Any], case: str, reason: str) -> None:
    end = of_case(both["user"], case)["end"]
    assert end["reason"] == reason, end["log"]


@pytest.mark.parametrize(("mode", "processes"), [("kernel", 1), ("user", 3)])
def test_a_session_in_the_kernel_is_one_process(both: dict[str, Any], mode: str, processes: int) -> None:
    assert of_case(both[mode], "listed")["processes"] == processes


def test_a_user_name_is_no_reason(pppoe: dict[str, Any]) -> None:
    assert of_case(pppoe, "terminated")["username"] == "Modem hangup"


@pytest.mark.parametrize("case", ["listed", "terminated"])
def test_pppd_leaves_what_it_counted(pppoe: dict[str, Any], case: str) -> None:
    assert of_case(pppoe, case)["traffic"].keys() == {"bytes_in", "bytes_out"}


def test_what_pppd_counted_has_the_traffic_of_both_directions(either: dict[str, Any]) -> None:
    # Three requests of 56 bytes and their replies, with IPv6 and ICMPv6.
    traffic = of_case(either, "listed")["traffic"]
    assert min(traffic["bytes_in"], traffic["bytes_out"]) >= 3 * (56 + 48)


def test_another_request_kills_a_pppd_whose_subscriber_is_silent(pppoe: dict[str, Any]) -> None:
    assert "Connection terminated." not in of_case(pppoe, "terminated_twice")["end"]["log"]


def test_a_session_after_a_kill_is_another_one(either: dict[str, Any]) -> None:
    seen = of_case(either, "killed")
    assert seen["left"]
    assert seen["next"] != seen["key"]


def test_a_sign_on_with_a_wrong_password_is_told_once_with_where_it_came_from(either: dict[str, Any]) -> None:
    seen = of_case(either, "refused")
    (failure,) = seen["failures"]
    assert 0 <= seen["now"] - failure.pop("at") < 600
    assert failure == {
        "reason": "rejected",
        "username": 'mal"lory',
        "mac_address": seen["mac"],
        "access_interface": "trunk0.108",
    }
    assert seen["more"] == []


def test_no_session_ends_while_no_radius_server_replies(pppoe: dict[str, Any]) -> None:
    for case in ("radius_is_away", "radius_returns"):
        seen = of_case(pppoe, case)
        assert seen["before"] == seen["after"], case


def test_a_subscriber_signs_on_by_the_second_radius_server_and_again_by_the_first(
    pppoe: dict[str, Any],
) -> None:
    assert of_case(pppoe, "radius_goes") == {
        "users": ["bob", "carol"],
        "starts": {"bob": [1, 0], "carol": [0, 1], "dave": [0, 0]},
    }
    assert of_case(pppoe, "radius_returns")["starts"]["dave"] == [1, 0]


def test_a_client_that_asks_has_an_mtu_of_1500_where_the_trunk_has_room(pppoe: dict[str, Any]) -> None:
    assert of_case(pppoe, "wide")["mtu"] == [1500, 1492]


def test_a_subscriber_with_the_prefix_of_its_session_is_reached_from_outside(pppoe: dict[str, Any]) -> None:
    seen = of_case(pppoe, "ipv6")
    assert IPv6Address(seen["address"]) in IPv6Network(seen["prefix"])

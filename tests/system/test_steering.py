"""Steering of sessions to a CGNAT appliance: packets take the way, and links stay up."""

import subprocess
from collections.abc import Iterator
from ipaddress import IPv4Address

import pytest

from gateway_api.core.gateways.linux.dataplane.steering import Steering
from gateway_api.core.gateways.linux.netlink.kernel import Kernel
from gateway_api.core.gateways.linux.netlink.messages import NoDevice
from gateway_api.core.gateways.linux.netlink.reader import Changed, Reader, Watcher
from tests.support.namespaces import can, inside, ip, neighbour, network_namespace

pytestmark = pytest.mark.skipif(
    not can("ip link add v type veth peer name w", "ip rule add iif v lookup 100"),
    reason="needs to be root, and a kernel with veth and policy rules",
)

ADDRESS, OTHER, APPLIANCE = IPv4Address("100.64.0.9"), IPv4Address("100.64.0.10"), IPv4Address("10.255.1.2")
TABLE = 70_000


@pytest.fixture
def subscriber() -> Iterator[int]:
    """A subscriber behind acc0; the pid of a process there."""
    with network_namespace(), neighbour() as pid:
        ip(
            f"link add acc0 type veth peer name cpe0 netns {pid}",
            "link set acc0 up",
            "address add 100.64.0.1/32 dev acc0",
            "link add acc1 type veth peer name cpe1",
            "link set acc1 up",
            "link set cpe1 up",
            "link add cgnat0 type veth peer name appliance0",
            "address add 10.255.1.1/24 dev cgnat0",
            "link set cgnat0 up",
        )
        for command in (
            f"address add {ADDRESS}/32 dev cpe0",
            "link set cpe0 up",
            "route add 100.64.0.1 dev cpe0",
            "route add default via 100.64.0.1",
        ):
            subprocess.run(inside(pid, "ip", *command.split()), check=True)
        yield pid


@pytest.fixture
def steering(subscriber: int) -> Iterator[Steering]:
    with Kernel() as kernel:
        yield Steering(kernel, Reader(), TABLE)


def index(name: str) -> int:
    return Reader().link(name).index


def test_what_arrives_from_a_steered_session_goes_to_the_appliance(
    steering: Steering, subscriber: int
) -> None:
    with neighbour() as appliance:
        ip(f"link set appliance0 netns {appliance}")
        for command in (
            f"address add {APPLIANCE}/24 dev appliance0",
            "address add 203.0.113.1/32 dev lo",
            "link set appliance0 up",
            "route add 100.64.0.0/10 via 10.255.1.1",
        ):
            subprocess.run(inside(appliance, "ip", *command.split()), check=True)
        subprocess.run(["sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward"], check=True)
        # As a VRF does it: what comes from the appliance goes by the same table.
        ip(f"rule add iif cgnat0 lookup {TABLE}")
        echo = "import socket; s = socket.socket(2, 2); s.bind(('203.0.113.1', 7)); print(flush=True)\n"
        echo += "while True: s.sendto(*s.recvfrom(99))"
        ask = "import socket; s = socket.socket(2, 2); s.settimeout({})\n"
        ask += "s.sendto(b'x', ('203.0.113.1', 7)); s.recv(9)"

        def reaches(patience: int) -> bool:
            command = inside(subscriber, "python3", "-c", ask.format(patience))
            return subprocess.run(command, check=False, capture_output=True).returncode == 0

        with subprocess.Popen(inside(appliance, "python3", "-c", echo), stdout=subprocess.PIPE) as server:
            try:
                assert server.stdout is not None and server.stdout.readline() == b"\n"
                assert not reaches(1)
                steering.hand_off("cgnat0", APPLIANCE)
                steering.steer("acc0", ADDRESS)
                assert reaches(30)
                steering.unsteer("acc0", ADDRESS)
                assert not reaches(1)
            finally:
                server.kill()


def test_the_link_stays_as_it_is(steering: Steering) -> None:
    before = {key: link for key, link in Reader().links().items() if link.name == "acc0"}
    with Watcher() as watcher:
        steering.steer("acc0", ADDRESS)
        steering.unsteer("acc0", ADDRESS)
        ip("address add 192.0.2.1/24 dev cgnat0")
        seen: set[Changed] = set()
        for changed in watcher:
            seen |= changed
            if Changed.ADDRESSES in seen:
                break
    assert Changed.LINKS not in seen
    after = {key: link for key, link in Reader().links().items() if link.name == "acc0"}
    assert [(link.oper_state, link.master) for link in after.values()] == [
        (link.oper_state, link.master) for link in before.values()
    ]


def test_a_session_has_a_rule_and_a_host_route(steering: Steering) -> None:
    steering.steer("acc0", ADDRESS)
    state = steering.read()
    assert state.rules == {"acc0": TABLE}
    assert state.host_routes == {str(ADDRESS): index("acc0")}
    assert state.handoff is None


def test_a_second_time_changes_nothing(steering: Steering) -> None:
    steering.steer("acc0", ADDRESS)
    steering.hand_off("cgnat0", APPLIANCE)
    before = steering.read(), Reader().rules()
    steering.steer("acc0", ADDRESS)
    steering.hand_off("cgnat0", APPLIANCE)
    assert (steering.read(), Reader().rules()) == before


@pytest.mark.parametrize(
    "damage", [f"rule del iif acc0 lookup {TABLE}", f"route del {ADDRESS} dev acc0 table {TABLE}"]
)
def test_what_is_missing_is_put_back(steering: Steering, damage: str) -> None:
    steering.steer("acc0", ADDRESS)
    before = steering.read()
    ip(damage)
    assert steering.read() != before
    steering.steer("acc0", ADDRESS)
    assert steering.read() == before


def test_nothing_is_left_of_a_session(steering: Steering) -> None:
    steering.steer("acc0", ADDRESS)
    steering.steer("acc1", OTHER)
    steering.unsteer("acc0", ADDRESS)
    assert steering.read().rules == {"acc1": TABLE}
    assert steering.read().host_routes == {str(OTHER): index("acc1")}
    steering.unsteer("acc0", ADDRESS)


def test_an_address_that_moved_keeps_its_route(steering: Steering) -> None:
    steering.steer("acc0", ADDRESS)
    steering.steer("acc1", ADDRESS)
    steering.unsteer("acc0", ADDRESS)
    assert steering.read().host_routes == {str(ADDRESS): index("acc1")}


def test_the_rule_of_a_device_that_is_gone_is_seen_and_removed(steering: Steering) -> None:
    # Left alone, it would steer the next subscriber whose device gets the name.
    steering.steer("acc1", OTHER)
    ip("link del acc1")
    assert steering.read().rules == {"acc1": TABLE}
    assert steering.read().host_routes == {}
    steering.unsteer("acc1", OTHER)
    assert steering.read().rules == {}


def test_a_device_that_is_gone_is_an_error_of_its_own(steering: Steering) -> None:
    with pytest.raises(NoDevice):
        steering.steer("ppp7", ADDRESS)
    assert steering.read().rules == {}


def test_the_handoff_moves_to_another_gateway(steering: Steering) -> None:
    steering.hand_off("cgnat0", APPLIANCE)
    steering.hand_off("cgnat0", IPv4Address("10.255.1.3"))
    assert steering.read().handoff == ("10.255.1.3", index("cgnat0"))
    steering.remove_hand_off()
    assert steering.read().handoff is None
    steering.remove_hand_off()


def test_rules_and_routes_of_others_stay(steering: Steering) -> None:
    ip(f"rule add iif acc0 lookup {TABLE} priority 99", f"route add {OTHER} dev acc1 table {TABLE}")
    steering.unsteer("acc0", OTHER)
    assert steering.read().rules == {}
    assert [rule.priority for rule in Reader().rules() if rule.iif == "acc0"] == [99]
    assert str(OTHER) + "/32" in {route.destination for route in Reader().routes([TABLE])}

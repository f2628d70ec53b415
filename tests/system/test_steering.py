"""Steering of sessions to a CGNAT appliance: packets take the way, and links stay up."""

import socket
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path

import pytest

from gateway_contract.configuration import Cgnat
from gateway_contract.core.health import FaultKind
from gateway_contract.core.network import OVERHEAD_PROFILES
from gateway_core.gateways.linux.dataplane.plane import DataPlane, WantedSession
from gateway_core.gateways.linux.kernel.netlink import KernelError, split_messages
from gateway_core.gateways.linux.kernel.reader import KernelReader
from tests.support.namespaces import can, inside, ip, neighbour, network_namespace, network_of

pytestmark = pytest.mark.skipif(
    not can("ip link add v type veth peer name w", "ip rule add iif v lookup 100"),
    reason="needs to be root, and a kernel with veth and policy rules",
)

ADDRESS, OTHER, APPLIANCE = IPv4Address("100.64.0.9"), IPv4Address("100.64.0.10"), IPv4Address("10.255.1.2")
TABLE = 70_000
CGNAT = Cgnat(True, "cgnat", TABLE, "cgnat0", APPLIANCE, IPv4Network("100.64.0.0/10"))
#: Of linux/rtnetlink.h.
IPV4_ROUTES, IPV4_RULES = 0x40, 0x80
NEW_ROUTE, DELETED_ROUTE, NEW_RULE, DELETED_RULE = 24, 25, 32, 33
NARROW = IPv4Network("100.64.0.0/29")
RULE = (1500, TABLE, "100.64.0.0/10", None, 140)
HANDOFF = ("0.0.0.0/0", "10.255.1.2", "cgnat0")


def session(id: int, device: str, address: IPv4Address) -> WantedSession:
    """Without limits: they are tested elsewhere."""
    return WantedSession(
        id, device, f"ifb-{device}", device, 0, 0, OVERHEAD_PROFILES["none"], address,
        sets_host_route=True, gateway=None,
    )  # fmt: skip


FIRST, SECOND = session(1, "acc0", ADDRESS), session(2, "acc1", OTHER)


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
            "link set appliance0 up",
        )
        with network_of(pid):
            ip(f"address add {ADDRESS}/32 dev cpe0", "link set cpe0 up")
            ip("route add 100.64.0.1 dev cpe0", "route add default via 100.64.0.1")
        yield pid


@pytest.fixture
def plane(subscriber: int) -> DataPlane:
    return DataPlane(KernelReader())


def rules() -> list[tuple[int, int, str | None, str | None, int]]:
    """Ours, all fields."""
    found = [rule for rule in KernelReader().read_rules() if rule.protocol == 140]
    return [(rule.priority, rule.table, rule.source, rule.iif, rule.protocol) for rule in found]


def routes(table: int = TABLE) -> set[tuple[str, str | None, str]]:
    """Destination, gateway and device of ours in a table."""
    names = {link.index: link.name for link in KernelReader().read_links().values()}
    return {
        (route.destination, hop.gateway, names[hop.ifindex])
        for route in KernelReader().read_routes([table])
        for hop in route.next_hops
        if route.protocol == "140" and hop.ifindex is not None
    }


def test_what_arrives_from_a_steered_session_goes_to_the_appliance(plane: DataPlane, subscriber: int) -> None:
    with neighbour() as appliance:
        ip(f"link set appliance0 netns {appliance}")
        with network_of(appliance):
            ip(f"address add {APPLIANCE}/24 dev appliance0", "address add 203.0.113.1/32 dev lo")
            ip("link set appliance0 up", "route add 100.64.0.0/10 via 10.255.1.1")
        Path("/proc/sys/net/ipv4/ip_forward").write_text("1\n")

        def reaches(seconds: int) -> bool:
            ping = ("busybox", "ping", "-c", "1", "-W", str(seconds), "203.0.113.1")
            return not subprocess.run(inside(subscriber, *ping), check=False, capture_output=True).returncode

        plane.apply(FIRST)
        assert not reaches(1)
        plane.configure(CGNAT)
        assert reaches(30)
        plane.configure(replace(CGNAT, enabled=False))
        assert not reaches(1)


def test_one_rule_steers_all_sessions_of_the_range(plane: DataPlane) -> None:
    plane.configure(CGNAT)
    assert FaultKind.STEERING not in plane.apply(session(1, "acc0", IPv4Address("192.0.2.9")))
    assert routes() == {HANDOFF}
    assert FaultKind.STEERING in plane.apply(FIRST)
    plane.apply(SECOND)
    before = rules(), routes()
    assert before == ([RULE], {HANDOFF, ("100.64.0.9/32", None, "acc0"), ("100.64.0.10/32", None, "acc1")})
    # A second time changes nothing.
    plane.configure(CGNAT)
    assert plane.apply(FIRST) == ()
    assert (rules(), routes()) == before
    for _ in range(2):
        plane.remove(FIRST)
        assert routes() == {HANDOFF, ("100.64.0.10/32", None, "acc1")}


def test_an_address_belongs_to_the_newest_session(plane: DataPlane) -> None:
    plane.configure(CGNAT)
    plane.apply(FIRST)
    newer = session(2, "acc1", ADDRESS)
    plane.apply(newer)
    # The former session is still there for a while.
    plane.apply(FIRST)
    assert routes() == {HANDOFF, ("100.64.0.9/32", None, "acc1")}
    plane.remove(FIRST)
    assert routes() == {HANDOFF, ("100.64.0.9/32", None, "acc1")}


@pytest.mark.parametrize(
    ("cgnat", "rule", "left"),
    [
        (replace(CGNAT, source_range=NARROW), [(1500, TABLE, str(NARROW), None, 140)], {HANDOFF}),
        (replace(CGNAT, enabled=False), [], set()),
        (
            replace(CGNAT, handoff_gateway=IPv4Address("10.255.1.3")),
            [RULE],
            {("0.0.0.0/0", "10.255.1.3", "cgnat0")},
        ),
    ],
)
def test_another_configuration_changes_the_rule_and_the_route(
    plane: DataPlane, cgnat: Cgnat, rule: list[object], left: set[object]
) -> None:
    plane.configure(CGNAT)
    plane.configure(cgnat)
    assert rules() == rule
    assert routes() == left


def test_another_table_takes_the_routes_along_and_packets_are_steered_meanwhile(plane: DataPlane) -> None:
    plane.configure(CGNAT)
    # An address belongs to the newest session.
    plane.apply(session(2, "acc1", ADDRESS))
    plane.apply(FIRST)
    before = routes()
    assert before == {HANDOFF, ("100.64.0.9/32", None, "acc1")}
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as events:
        events.bind((0, IPV4_ROUTES | IPV4_RULES))
        plane.configure(replace(CGNAT, vrf_table=100))
        steps = []
        while len(steps) < 10:
            steps += [type for type, _, _, _ in split_messages(events.recv(1 << 16))]
    assert steps == [*[NEW_ROUTE] * 4, NEW_RULE, DELETED_RULE, *[DELETED_ROUTE] * 4]
    assert rules() == [(1500, 100, "100.64.0.0/10", None, 140)]
    assert (routes(100), routes(TABLE)) == (before, set())
    assert (len(unreachable()), len(unreachable(100))) == (0, 2)
    plane.configure(replace(CGNAT, vrf_table=100, enabled=False))
    assert unreachable(100) == []


def way_out() -> str:
    """What `ip` says of the way that a packet of the session takes."""
    command = f"ip route get 203.0.113.1 from {ADDRESS} iif acc0"
    done = subprocess.run(command.split(), check=False, capture_output=True, text=True)
    return done.stdout + done.stderr


@pytest.mark.parametrize("damage", ["link set cgnat0 down", "link del cgnat0"])
def test_without_a_way_to_the_appliance_nothing_leaves_by_the_main_table(
    plane: DataPlane, damage: str
) -> None:
    Path("/proc/sys/net/ipv4/ip_forward").write_text("1\n")
    ip("address add 192.0.2.1/24 dev acc1", "route add default via 192.0.2.2")
    plane.apply(FIRST)
    assert "dev acc1" in way_out()
    plane.configure(CGNAT)
    assert "dev cgnat0" in way_out()
    ip(damage)
    assert "No route to host" in way_out()
    # As after a start of the core at that time.
    plane.configure(replace(CGNAT, enabled=False))
    with suppress(KernelError):
        plane.configure(CGNAT)
    assert "No route to host" in way_out()
    plane.configure(replace(CGNAT, enabled=False))
    assert "dev acc1" in way_out()


def test_a_configuration_that_the_kernel_refuses_leaves_the_former_way_until_it_is_put_back(
    plane: DataPlane,
) -> None:
    plane.configure(CGNAT)
    plane.apply(FIRST)
    before = rules(), routes(), unreachable(), unreachable(254)
    # It is in no network of the interface.
    other = replace(CGNAT, vrf_table=100, source_range=NARROW, handoff_gateway=IPv4Address("10.9.9.9"))
    with pytest.raises(KernelError, match="Network is unreachable"):
        plane.configure(other)
    assert (rules()[0], routes()) == (RULE, before[1])
    plane.configure(CGNAT)
    assert (rules(), routes(), unreachable(), unreachable(254)) == before
    assert (routes(100), unreachable(100)) == (set(), [])


def unreachable(table: int = TABLE) -> list[str]:
    command = ["ip", "route", "show", "table", str(table), "type", "unreachable"]
    return subprocess.run(command, check=False, capture_output=True, text=True).stdout.splitlines()


def test_a_packet_to_a_further_pool_without_a_session_is_refused(plane: DataPlane) -> None:
    plane.configure(CGNAT)
    before = unreachable(254)
    plane.configure(CGNAT, (IPv4Network("203.0.113.0/24"), IPv4Network("198.51.100.0/25")))
    added = {line.split()[1] for line in set(unreachable(254)) - set(before)}
    assert added == {"203.0.113.0/24", "198.51.100.0/25"}
    plane.configure(CGNAT, (IPv4Network("198.51.100.0/25"),))
    assert {line.split()[1] for line in set(unreachable(254)) - set(before)} == {"198.51.100.0/25"}
    plane.configure(CGNAT)
    assert unreachable(254) == before


def test_what_an_earlier_life_made_is_not_doubled_or_goes_and_what_others_made_stays(
    plane: DataPlane,
) -> None:
    ip(
        "rule add iif acc0 lookup 99 priority 1500 protocol 140",
        "rule add from 10.0.0.0/8 lookup 99 priority 1500 protocol 140",
        f"rule add iif acc0 lookup {TABLE} priority 99",
        f"route add {OTHER} dev acc1 table {TABLE}",
    )
    plane.configure(CGNAT)
    assert rules() == [RULE]
    before = unreachable()
    assert [line.split()[1] for line in before] == ["default", "100.64.0.0/10"]
    DataPlane(KernelReader()).configure(CGNAT)
    assert unreachable() == before
    plane.configure(replace(CGNAT, enabled=False))
    plane.remove(SECOND)
    assert [rule.priority for rule in KernelReader().read_rules() if rule.iif == "acc0"] == [99]
    assert str(OTHER) + "/32" in {route.destination for route in KernelReader().read_routes([TABLE])}


def test_a_handoff_interface_that_is_down_keeps_no_commit_from_its_pools_and_its_range(
    plane: DataPlane,
) -> None:
    plane.configure(CGNAT)
    ip("link set cgnat0 down")
    plane.configure(replace(CGNAT, source_range=NARROW), [IPv4Network("203.0.113.0/24")])
    assert [line.split()[1] for line in unreachable(254)] == ["100.64.0.0/29", "203.0.113.0/24"]
    assert rules() == [(1500, TABLE, str(NARROW), None, 140)]

"""Packets to addresses of the pool: refused without a session, and not sent back to where they came from."""

import socket
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from ipaddress import IPv4Address, IPv4Network
from typing import Any

import pytest

from gateway_api.core.gateways.linux.dataplane.plane import DataPlane
from gateway_api.core.gateways.linux.dataplane.reconciler import Reconciler
from gateway_api.core.gateways.linux.kernel.fib import MAIN_TABLE
from gateway_api.core.gateways.linux.kernel.reader import KernelReader
from gateway_api.core.gateways.linux.views import route_rows
from gateway_api.wire.configuration import Cgnat
from gateway_api.wire.core.health import FaultKind
from tests.support.clocks import StillClock
from tests.support.namespaces import can, inside, ip, neighbour, network_namespace
from tests.system.test_data_plane import NONE, Sessions
from tests.system.test_steering import session

pytestmark = pytest.mark.skipif(
    not can("ip link add v type veth peer name w"), reason="needs to be root, and a kernel with veth"
)

POOL = IPv4Network("100.64.0.0/16")
CGNAT = Cgnat(False, "cgnat", 100, "cgnat0", IPv4Address("10.255.1.2"), POOL)
ONLINE, OFFLINE = IPv4Address("100.64.0.9"), IPv4Address("100.64.0.77")
ROUTE = f"unreachable {POOL} "
#: Sends a packet, and prints the error that comes back: an ICMP message, or none.
_SEND = """
import socket
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as peer:
    peer.settimeout({patience})
    # Linux tells of an unreachable host only then (ip(7)).
    peer.setsockopt(socket.IPPROTO_IP, 11, 1)
    peer.connect(("{address}", 9))
    peer.send(b"x")
    try:
        peer.recv(9)
    except OSError as error:
        print(error)
"""


@pytest.fixture
def next_hop() -> Iterator[int]:
    """The router behind the uplink, which sends the whole pool here; the pid of a process there."""
    with network_namespace(), neighbour() as pid:
        ip(
            f"link add uplink0 type veth peer name gateway0 netns {pid}",
            "link add acc0 type veth peer name cpe0",
            "link set acc0 up",
            "link set cpe0 up",
            "address add 10.255.0.1/24 dev uplink0",
            "link set uplink0 up",
            "route add default via 10.255.0.2",
        )
        for command in (
            "address add 10.255.0.2/24 dev gateway0",
            "link set gateway0 up",
            f"route add {POOL} via 10.255.0.1",
        ):
            subprocess.run(inside(pid, "ip", *command.split()), check=True)
        for each in ([], inside(pid)):
            # The next hop sends the packets itself, and would not forward them if they come back.
            switches = "echo 1 > ip_forward; for one in conf/*/accept_local; do echo 1 > $one; done"
            subprocess.run([*each, "sh", "-c", f"cd /proc/sys/net/ipv4; {switches}"], check=True)
        yield pid


@pytest.fixture
def plane(next_hop: int) -> DataPlane:
    return DataPlane(KernelReader())


def received(packets: socket.socket) -> int:
    """How often packets to the address without a session came, since the last look."""
    found = 0
    while True:
        try:
            data, (_, _, type, *_) = packets.recvfrom(2048)
        except BlockingIOError:
            return found
        # Without what the gateway itself sends; the destination of IPv4 is behind 16 bytes.
        found += type != socket.PACKET_OUTGOING and data[16:20] == OFFLINE.packed


def send(next_hop: int, address: IPv4Address, patience: int = 30) -> str:
    """What the next hop hears of a packet of its own to an address."""
    command = inside(next_hop, "python3", "-c", _SEND.format(address=address, patience=patience))
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def routes_of_main() -> list[Any]:
    return list(route_rows(KernelReader().routes([MAIN_TABLE]), {}, []).records())


def main_table() -> str:
    return subprocess.run(["ip", "route"], check=True, capture_output=True, text=True).stdout


def test_a_packet_to_an_address_without_a_session_is_refused_and_does_not_loop(
    plane: DataPlane, next_hop: int
) -> None:
    plane.configure(CGNAT)
    of_ipv4 = 0x0800
    with socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(of_ipv4)) as packets:
        packets.setblocking(False)
        packets.bind(("uplink0", of_ipv4))
        assert send(next_hop, OFFLINE) == "[Errno 113] No route to host"
        refused = received(packets)
        ip(f"route del unreachable {POOL}")
        send(next_hop, OFFLINE, patience=2)
        looped = received(packets)
    assert refused == 1
    assert looped > 20


def test_a_session_has_its_own_route_all_the_same(plane: DataPlane, next_hop: int) -> None:
    plane.configure(CGNAT)
    plane.apply(session(1, "acc0", ONLINE))
    assert ROUTE in main_table()
    way = subprocess.run(
        ["ip", "route", "get", str(ONLINE), "from", "10.255.0.2", "iif", "uplink0"],
        check=True, capture_output=True, text=True,
    ).stdout  # fmt: skip
    assert "dev acc0" in way


def test_a_route_of_an_operator_to_the_pool_comes_first(plane: DataPlane) -> None:
    plane.configure(CGNAT)
    ip(f"route add {POOL} via 10.255.0.2 metric 1000")
    found = subprocess.run(["ip", "route", "get", str(OFFLINE)], check=True, capture_output=True, text=True)
    assert "via 10.255.0.2" in found.stdout


def test_the_route_goes_with_the_pool(plane: DataPlane) -> None:
    plane.configure(CGNAT)
    plane.configure(replace(CGNAT, source_range=IPv4Network("100.65.0.0/16")))
    assert ROUTE not in main_table()
    assert "unreachable 100.65.0.0/16 " in main_table()


def test_a_deleted_route_is_repaired_and_counted(plane: DataPlane) -> None:
    plane.configure(CGNAT)
    reconciler = Reconciler(plane, Sessions(), StillClock())
    reconciler.sweep()
    assert reconciler.fault_register.repairs() == NONE
    ip(f"route del unreachable {POOL}")
    reconciler.sweep()
    reconciler.sweep()
    assert reconciler.fault_register.repairs() == {**NONE, FaultKind.POOL: 1}
    assert main_table().count(ROUTE) == 1


def test_the_route_is_in_the_list_of_routes_and_of_no_session(plane: DataPlane) -> None:
    plane.configure(CGNAT)
    (row,) = (row for row in routes_of_main() if row.dst == str(POOL))
    assert (row.type, row.dev, row.gateway, row.session_id) == ("unreachable", "", None, None)


def test_a_steered_packet_to_an_address_without_a_session_does_not_reach_the_appliance(
    plane: DataPlane,
) -> None:
    ip("link add cgnat0 type veth peer name appliance0", "address add 10.255.1.1/24 dev cgnat0")
    ip("link set cgnat0 up", "link set appliance0 up")
    plane.configure(replace(CGNAT, enabled=True))
    plane.apply(session(1, "acc0", ONLINE))

    def way(address: str) -> str:
        command = f"ip route get {address} from {ONLINE} iif acc0"
        done = subprocess.run(command.split(), check=False, capture_output=True, text=True)
        return done.stdout + done.stderr

    assert "dev cgnat0" in way("203.0.113.1")
    assert "No route to host" in way(str(OFFLINE))

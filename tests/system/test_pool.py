"""Packets to addresses of the pool: refused without a session, and not sent back to where they came from."""

import socket
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from ipaddress import IPv4Address, IPv4Network

import pytest

from gateway_contract.configuration import Cgnat
from gateway_contract.core.health import FaultKind
from gateway_core.gateways.linux.dataplane.plane import DataPlane
from gateway_core.gateways.linux.dataplane.reconciler import Reconciler
from gateway_core.gateways.linux.kernel.fib import MAIN_TABLE
from gateway_core.gateways.linux.kernel.reader import KernelReader
from gateway_core.gateways.linux.views import list_routes
from tests.support.core_clock import StillClock
from tests.support.namespaces import can, inside, ip, neighbour, network_namespace, network_of
from tests.system.test_data_plane import NONE, Sessions
from tests.system.test_steering import session

pytestmark = pytest.mark.skipif(
    not can("ip link add v type veth peer name w"), reason="needs to be root, and a kernel with veth"
)

POOL = IPv4Network("100.64.0.0/16")
CGNAT = Cgnat(False, "cgnat", 100, "cgnat0", IPv4Address("10.255.1.2"), POOL)
ONLINE, OFFLINE = IPv4Address("100.64.0.9"), IPv4Address("100.64.0.77")
ROUTE = f"unreachable {POOL} "


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
        with network_of(pid):
            ip("address add 10.255.0.2/24 dev gateway0", "link set gateway0 up")
            ip(f"route add {POOL} via 10.255.0.1")
        for each in ([], inside(pid)):
            # The next hop sends the packets itself, and would not forward them if they come back.
            switches = "echo 1 > ip_forward; for one in conf/*/accept_local; do echo 1 > $one; done"
            subprocess.run([*each, "sh", "-c", f"cd /proc/sys/net/ipv4; {switches}"], check=True)
        yield pid


@pytest.fixture
def plane(next_hop: int) -> DataPlane:
    return DataPlane(KernelReader())


def main_table() -> str:
    return subprocess.run(["ip", "route"], check=True, capture_output=True, text=True).stdout


def test_a_packet_to_an_address_without_a_session_is_refused_and_does_not_loop(
    plane: DataPlane, next_hop: int
) -> None:
    plane.configure(CGNAT)
    with network_of(next_hop):
        peer = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    with peer, socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(0x0800)) as packets:
        packets.bind(("uplink0", 0x0800))
        packets.settimeout(60)
        # Linux tells of an unreachable host only then: IP_RECVERR of ip(7).
        peer.setsockopt(socket.IPPROTO_IP, 11, 1)
        peer.settimeout(60)
        peer.connect((str(OFFLINE), 9))

        def arrive() -> None:
            """Waits until a packet to the address arrives, without what the gateway itself sends."""
            while True:
                data, (_, _, kind, *_) = packets.recvfrom(2048)
                # The destination of IPv4 is behind 16 bytes.
                if kind != socket.PACKET_OUTGOING and data[16:20] == OFFLINE.packed:
                    return

        peer.send(b"x")
        with pytest.raises(OSError, match="No route to host"):
            peer.recv(9)
        arrive()
        packets.settimeout(0.5)
        with pytest.raises(TimeoutError):
            arrive()
        packets.settimeout(60)
        ip(f"route del unreachable {POOL}")
        peer.send(b"x")
        for _ in range(20):
            arrive()


def test_the_route_to_the_pool_is_the_last_one_and_goes_with_the_pool(plane: DataPlane) -> None:
    plane.configure(CGNAT)
    plane.apply(session(1, "acc0", ONLINE))
    assert "dev acc0" in way(ONLINE, "from 10.255.0.2 iif uplink0")
    ip(f"route add {POOL} via 10.255.0.2 metric 1000")
    assert "via 10.255.0.2" in way(OFFLINE)
    (row,) = (
        row
        for row in list_routes(KernelReader().read_routes([MAIN_TABLE]), {}, []).records()
        if (row.dst, row.type) == (str(POOL), "unreachable")
    )
    assert (row.dev, row.gateway, row.session_id) == ("", None, None)
    plane.configure(replace(CGNAT, source_range=IPv4Network("100.65.0.0/16")))
    assert ROUTE not in main_table()
    assert "unreachable 100.65.0.0/16 " in main_table()


def way(address: IPv4Address | str, more: str = "") -> str:
    """What `ip` says of the way of a packet."""
    command = f"ip route get {address} {more}"
    done = subprocess.run(command.split(), check=False, capture_output=True, text=True)
    return done.stdout + done.stderr


def test_a_deleted_route_is_repaired_and_counted(plane: DataPlane) -> None:
    plane.configure(CGNAT)
    reconciler = Reconciler(plane, Sessions(), StillClock())
    reconciler.sweep()
    assert reconciler.fault_register.count_repairs() == NONE
    ip(f"route del unreachable {POOL}")
    reconciler.sweep()
    reconciler.sweep()
    assert reconciler.fault_register.count_repairs() == {**NONE, FaultKind.POOL: 1}
    assert main_table().count(ROUTE) == 1


def test_a_steered_packet_to_an_address_without_a_session_does_not_reach_the_appliance(
    plane: DataPlane,
) -> None:
    ip("link add cgnat0 type veth peer name appliance0", "address add 10.255.1.1/24 dev cgnat0")
    ip("link set cgnat0 up", "link set appliance0 up")
    plane.configure(replace(CGNAT, enabled=True))
    plane.apply(session(1, "acc0", ONLINE))
    assert "dev cgnat0" in way("203.0.113.1", f"from {ONLINE} iif acc0")
    assert "No route to host" in way(OFFLINE, f"from {ONLINE} iif acc0")

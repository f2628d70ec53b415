"""VLANs of DHCP: the gateway's address on them, and subscribers that reach each other."""

import subprocess
from collections.abc import Iterator
from ipaddress import IPv4Address, IPv4Network

import pytest

from gateway_contract.configuration import Cgnat
from gateway_contract.core.sessions import SessionType
from gateway_core.gateways.linux.dataplane.plane import DataPlane
from gateway_core.gateways.linux.demux.vlan_devices import VlanService
from gateway_core.gateways.linux.kernel.reader import KernelReader
from tests.support.namespaces import can, inside, ip, neighbour, network_namespace, network_of
from tests.support.sources import ListedSource
from tests.system.test_steering import session

pytestmark = pytest.mark.skipif(
    not can("ip link add v type veth peer name w"), reason="needs to be root, and a kernel with veth"
)

GATEWAY, ALICE, BOB = (IPv4Address(f"100.64.0.{number}") for number in (1, 9, 10))
OFFLINE = IPv4Address("100.64.0.77")
CGNAT = Cgnat(True, "cgnat", 100, "cgnat0", IPv4Address("10.255.1.2"), IPv4Network("100.64.0.0/16"))
VLANS = ("acc0", "acc1")


@pytest.fixture
def subscribers() -> Iterator[tuple[int, int]]:
    """The pids of Alice and Bob, each on a VLAN of its own, with the netmask of the whole range."""
    with network_namespace(), neighbour() as alice, neighbour() as bob:
        subprocess.run(["sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward"], check=True)
        for vlan, pid, address in zip(VLANS, (alice, bob), (ALICE, BOB), strict=True):
            ip(f"link add {vlan} type veth peer name cpe0 netns {pid}", f"link set {vlan} up")
            with network_of(pid):
                ip(f"address add {address}/16 dev cpe0", "link set cpe0 up")
        yield alice, bob


@pytest.fixture
def serving(subscribers: tuple[int, int]) -> VlanService:
    """With the sessions of both."""
    plane = DataPlane(KernelReader())
    plane.configure(CGNAT)
    for number, (vlan, address) in enumerate(zip(VLANS, (ALICE, BOB), strict=True), 1):
        plane.apply(session(number, vlan, address))
    return VlanService({SessionType.DHCP: ListedSource()}, KernelReader(), lambda: [GATEWAY])


def replies(pid: int, address: IPv4Address, seconds: int) -> bool:
    ping = ("busybox", "ping", "-c", "1", "-W", str(seconds), str(address))
    return not subprocess.run(inside(pid, *ping), check=False, capture_output=True).returncode


def known(pid: int, address: IPv4Address) -> bool:
    """Whether somebody has answered its ARP request for the address."""
    command = inside(pid, "ip", "neighbour", "show", str(address))
    return "lladdr" in subprocess.run(command, check=True, capture_output=True, text=True).stdout


def test_subscribers_of_two_vlans_reach_each_other_and_nobody_answers_for_an_address_without_a_session(
    serving: VlanService, subscribers: tuple[int, int]
) -> None:
    alice, _ = subscribers
    assert not replies(alice, BOB, 1)
    # Also not the way to the appliance, by which a new subscriber would find its own address in use.
    ip("link add cgnat0 type veth peer name appliance0", "address add 10.255.1.1/24 dev cgnat0")
    ip("link set cgnat0 up", "link set appliance0 up", "route add default via 10.255.1.2")
    ip("route add default via 10.255.1.2 table 100")
    serving.serve(VLANS, SessionType.DHCP)
    assert (replies(alice, OFFLINE, 1), replies(alice, BOB, 30)) == (False, True)
    assert (known(alice, OFFLINE), known(alice, BOB)) == (False, True)


def test_a_vlan_of_pppoe_answers_no_arp(serving: VlanService) -> None:
    pppoe = VlanService({SessionType.PPPOE: ListedSource()}, KernelReader(), lambda: [GATEWAY])
    serving.serve(VLANS[:1], SessionType.DHCP)
    pppoe.serve(VLANS[1:], SessionType.PPPOE)
    command = "cat /proc/sys/net/ipv4/conf/acc0/proxy_arp /proc/sys/net/ipv4/conf/acc1/proxy_arp"
    assert subprocess.run(command.split(), check=True, capture_output=True).stdout == b"1\n0\n"

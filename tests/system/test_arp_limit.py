"""A line that sends with many addresses, and the neighbours that the kernel keeps for it."""

import socket
import struct
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from ipaddress import IPv4Address, IPv6Address

import pytest

from gateway_core.configuration.running import RunningConfiguration
from gateway_core.gateways.linux.dataplane.firewall import ArpLimit, Firewall
from gateway_core.gateways.linux.kernel.links import SUBSCRIBER_GROUP
from tests.support.documents import valid_document
from tests.support.namespaces import can, inside, ip_batch, neighbour, network_namespace, network_of
from tests.support.packets import icmp
from tests.support.stack import wait_for

pytestmark = pytest.mark.skipif(
    not can("ip link add v group 7 type veth peer name w", "nft 'add table arp t; add table inet t'"),
    reason="needs to be root, a kernel with veth and nf_tables, and nft",
)

GATEWAY, GATEWAY6 = "100.64.0.1", "fe80::1"
#: More than the limit, and fewer than the kernel keeps.
FLOOD = 900
_BROADCAST = b"\xff" * 6


def arp_request(number: int) -> tuple[int, bytes]:
    """For the gateway, each of another device (RFC 826)."""
    mac, address = struct.pack("!HI", 0x0200, number), (IPv4Address("11.0.0.0") + number).packed
    head = struct.pack("!HHBBH", 1, 0x0800, 6, 4, 1)
    return 0x0806, head + mac + address + bytes(6) + IPv4Address(GATEWAY).packed


def solicitation(number: int) -> tuple[int, bytes]:
    """The same for IPv6 (RFC 4861 section 4.3)."""
    more = bytes(4) + IPv6Address(GATEWAY6).packed + b"\1\1" + struct.pack("!HI", 0x0200, number)
    return 0x86DD, icmp(str(IPv6Address("fe80::aa:0:0") + number), GATEWAY6, 135, more)


@pytest.fixture
def lines() -> Iterator[list[int]]:
    """The pids of two subscribers, behind `trunk0.100` and `trunk0.101`."""
    with ExitStack() as stack:
        stack.enter_context(network_namespace())
        pids = [stack.enter_context(neighbour()) for _ in range(2)]
        for number, pid in enumerate(pids, 100):
            device = f"trunk0.{number}"
            ip_batch(
                [
                    f"link add {device} group {SUBSCRIBER_GROUP} type veth peer name far0 netns {pid}",
                    f"link set {device} up",
                    f"address add {GATEWAY}/32 dev {device}",
                    f"address add {GATEWAY6}/64 dev {device} nodad",
                ]
            )
            subprocess.run(inside(pid, "ip", "link", "set", "far0", "up"), check=True)
        limit, firewall = ArpLimit(time.time), Firewall(time.time)
        limit.check()
        firewall.configure(RunningConfiguration.of({**valid_document(), "bgp": None}).sections)
        assert limit.fault_register.list_faults() == firewall.fault_register.list_faults() == []
        yield pids


def neighbours(device: str) -> int:
    command = ["ip", "neighbour", "show", "dev", device]
    return len(subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines())


@pytest.mark.parametrize("request_of", [arp_request, solicitation], ids=["ARP", "neighbour discovery"])
def test_a_line_that_sends_with_many_addresses_is_limited_and_another_is_not(
    lines: list[int], request_of: Callable[[int], tuple[int, bytes]]
) -> None:
    began = time.monotonic()
    for pid, number in zip(lines, (FLOOD, 100), strict=True):
        with network_of(pid), socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM) as line:
            for each in range(number):
                ethertype, payload = request_of(each)
                line.sendto(payload, ("far0", ethertype, 0, 0, _BROADCAST))
    wait_for("the neighbours of the other line", lambda: neighbours("trunk0.101") >= 100)
    assert 500 <= neighbours("trunk0.100") <= 501 + 100 * (time.monotonic() - began)

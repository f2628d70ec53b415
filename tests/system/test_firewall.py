"""The gateway's own table of nftables: packets that reach a peer, or do not."""

import os
import socket
import struct
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, replace
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from pathlib import Path

import pytest
from msgspec.structs import replace as with_fields

from gateway_api.core.configuration.running import RunningConfiguration
from gateway_api.core.gateways.linux.dataplane.firewall import TABLE, Firewall
from gateway_api.core.gateways.linux.dataplane.nftables import Nft
from gateway_api.core.gateways.linux.dataplane.plane import DataPlane
from gateway_api.core.gateways.linux.kernel.reader import KernelReader
from gateway_api.wire.configuration import Cgnat, Configuration
from gateway_api.wire.core.health import FaultKind
from tests.support.dnsmasq import route, running_dnsmasq, the_session
from tests.support.documents import valid_document
from tests.support.linux_core import VLAN, LinuxCore, far, running_linux_core
from tests.support.namespaces import can, inside, ip_batch, neighbour, network_namespace, network_of
from tests.support.nftables import kept, nft, repaired_within_5_s
from tests.support.stack import PATIENCE, wait_for
from tests.system.test_steering import session

pytestmark = pytest.mark.skipif(
    not can(
        "ip link add v type veth peer name w",
        "nft 'add table inet t; add chain inet t c; add rule inet t c fib saddr . iif oif missing drop'",
    ),
    reason="needs to be root, a kernel with veth and nft_fib, and nft",
)

POOL = IPv4Network("100.64.0.0/16")
#: The gateway has no BGP and no steering.
CONFIGURATION = RunningConfiguration.of({**valid_document(), "bgp": None}).sections
CGNAT = Cgnat(True, "cgnat", 100, "cgnat0", IPv4Address("10.255.1.2"), POOL)
#: What belongs to the subscriber of a session, and what does not.
OWN, FRAMED, DELEGATED = "100.64.0.9", "198.51.100.6", "2001:db8:9::6"
#: Of the other subscriber, with a session and without; of nobody.
FOREIGN = ("100.64.0.10", "2001:db8:a::6", "100.64.0.77", "8.8.8.8", "2001:db8:77::1")
WORLD, WORLD6 = "203.0.113.1", "2001:db8:ff::1"
PORT = 9
#: Of the gateway, in every network of this module: no address waits for a second.
_SWITCHES = "echo 0 > ipv6/conf/default/accept_dad; echo 0 > ipv6/conf/all/accept_dad"
_FORWARD = "echo 1 > ipv4/ip_forward; echo 1 > ipv6/conf/all/forwarding"


def udp(source: str, destination: str, payload: bytes, port: int = PORT, source_port: int = PORT) -> bytes:
    """A packet, from its IP header on. The kernel adds what is zero in that of IPv4."""
    one, other = ip_address(source), ip_address(destination)
    body = struct.pack("!HHHH", source_port, port, 8 + len(payload), 0) + payload
    if isinstance(one, IPv4Address):
        length = 20 + len(body)
        return struct.pack("!BBHHHBBH", 0x45, 0, length, 0, 0, 64, 17, 0) + one.packed + other.packed + body
    pseudo = one.packed + other.packed + struct.pack("!II", len(body), 17)
    checksum = ~_sum(pseudo + body) & 0xFFFF or 0xFFFF
    body = body[:6] + struct.pack("!H", checksum) + body[8:]
    return struct.pack("!IHBB", 6 << 28, len(body), 17, 64) + one.packed + other.packed + body


def with_checksum(packet: bytes) -> bytes:
    """IPv4, for a device: no kernel completes its header."""
    return packet[:10] + struct.pack("!H", ~_sum(packet[:20]) & 0xFFFF) + packet[12:]


def _sum(data: bytes) -> int:
    total = sum(struct.unpack(f"!{(len(data) + 1) // 2}H", data + bytes(len(data) % 2)))
    while total > 0xFFFF:
        total = (total & 0xFFFF) + (total >> 16)
    return total


@dataclass(frozen=True)
class Host:
    """A host beside the gateway, which sends packets with any source, and counts those that it receives."""

    pid: int
    _raw: dict[int, socket.socket]
    _heard: dict[int, socket.socket]

    @classmethod
    def of(cls, pid: int, port: int = PORT) -> "Host":
        """It counts packets to the port."""
        with network_of(pid):
            raw, heard = {}, {}
            for family in (socket.AF_INET, socket.AF_INET6):
                raw[family] = socket.socket(family, socket.SOCK_RAW, socket.IPPROTO_RAW)
                heard[family] = socket.socket(family, socket.SOCK_DGRAM)
                if family == socket.AF_INET6:
                    heard[family].setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                heard[family].setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
                heard[family].setblocking(False)
                heard[family].bind(("", port))
        return cls(pid, raw, heard)

    def send(
        self, source: str, destination: str, number: int = 1, port: int = PORT, source_port: int = PORT
    ) -> None:
        for _ in range(number):
            self.send_packet(udp(source, destination, b"x", port, source_port), destination)

    def send_packet(self, packet: bytes, destination: str) -> None:
        family = socket.AF_INET if packet[0] >> 4 == 4 else socket.AF_INET6
        self._raw[family].sendto(packet, (destination, 0))

    def received(self) -> Counter[str]:
        """Packets since the last call, by their source."""
        found = Counter[str]()
        for each in self._heard.values():
            try:
                while True:
                    _, (source, *_) = each.recvfrom(2048)
                    found[source] += 1
            except BlockingIOError:
                continue
        return found

    def receives(self, expected: dict[str, int]) -> None:
        """These, and no others until then."""
        found = Counter[str]()

        def come() -> bool:
            found.update(self.received())
            return found.total() >= sum(expected.values())

        wait_for(f"the packets {expected}", come)
        assert found == expected

    def run(self, *commands: str) -> None:
        text = "\n".join(commands)
        subprocess.run(inside(self.pid, "ip", "-batch", "-"), input=text, text=True, check=True)

    def close(self) -> None:
        for each in (*self._raw.values(), *self._heard.values()):
            each.close()


class Network:
    """The gateway, in the network of the calling thread, with two subscribers, the appliance for CGNAT and
    the rest of the world."""

    def __init__(self, stack: ExitStack) -> None:
        stack.enter_context(network_namespace())
        self._stack = stack
        switch(_SWITCHES, _FORWARD)
        self.world = self._beside("uplink0")
        self.first = self._subscriber("trunk0.100", OWN)
        self.second = self._subscriber("trunk0.101", "100.64.0.10")
        self.appliance = self._beside("cgnat0")
        ip_batch(
            [
                "address add 10.255.0.1/24 dev uplink0",
                "address add 10.255.1.1/24 dev cgnat0",
                "address add 2001:db8:ff00::1/64 dev uplink0",
                "route add default via 10.255.0.2",
                "route add default via 2001:db8:ff00::2",
            ]
        )
        self.world.run(
            "address add 10.255.0.2/24 dev far0",
            "address add 2001:db8:ff00::2/64 dev far0",
            f"address add {WORLD}/32 dev lo",
            f"address add {WORLD6}/128 dev lo",
            "route add default via 10.255.0.1",
            "route add default via 2001:db8:ff00::1",
        )
        for address in (WORLD6, "2001:db8:ff00::1"):
            self.await_ipv6(self.world, address)
        self.appliance.run(
            "address add 10.255.1.2/24 dev far0",
            f"address add {WORLD}/32 dev lo",
            "route add default via 10.255.1.1",
        )
        self.plane = DataPlane(KernelReader())

    def _beside(self, device: str) -> Host:
        pid = self._stack.enter_context(neighbour())
        subprocess.run(inside(pid, "sh", "-c", f"cd /proc/sys/net; {_SWITCHES}"), check=True)
        ip_batch([f"link add {device} type veth peer name far0 netns {pid}", f"link set {device} up"])
        host = Host.of(pid)
        self._stack.callback(host.close)
        host.run("link set far0 up")
        return host

    def _subscriber(self, device: str, address: str) -> Host:
        host = self._beside(device)
        ip_batch([f"address add 100.64.0.1/32 dev {device}", f"address add fe80::1/64 dev {device}"])
        host.run(
            f"address add {address}/32 dev far0",
            "route add 100.64.0.1 dev far0",
            "route add default via 100.64.0.1",
            "route add default via fe80::1 dev far0",
        )
        self.await_ipv6(host, "fe80::1%far0")
        return host

    def await_ipv6(self, host: Host, address: str) -> None:
        """On a busy machine the kernel takes seconds until an address works."""
        command = inside(host.pid, "busybox", "ping", "-c", "1", "-W", "1", address)
        wait_for(
            address, lambda: not subprocess.run(command, stdout=subprocess.DEVNULL, check=False).returncode
        )

    def another(self, device: str) -> Host:
        """On another device of the gateway."""
        return self._subscriber(device, "100.64.0.11")

    def itself(self, port: int) -> Host:
        """The gateway, with a service at a port."""
        host = Host.of(os.getpid(), port)
        self._stack.callback(host.close)
        return host

    def sign_on(self) -> None:
        """Both subscribers. The first one has a framed route, and each a delegated prefix."""
        for id, device, address, prefix in (
            (1, "trunk0.100", OWN, "2001:db8:9::/56"),
            (2, "trunk0.101", "100.64.0.10", "2001:db8:a::/56"),
        ):
            made = session(id, device, IPv4Address(address))
            self.plane.apply(with_fields(made, delegated=(IPv6Network(prefix),)))
        ip_batch(["route add 198.51.100.0/29 dev trunk0.100"])


def switch(*commands: str) -> None:
    subprocess.run(["sh", "-c", f"cd /proc/sys/net; {'; '.join(commands)}"], check=True)


@pytest.fixture
def network() -> Iterator[Network]:
    with ExitStack() as stack:
        yield Network(stack)


@pytest.fixture
def firewall(network: Network) -> Firewall:
    made = Firewall(time.time)
    made.configure(CONFIGURATION)
    assert made.fault_register.faults() == []
    return made


def spoofed(firewall: Firewall) -> dict[str, int]:
    """By trunk, without those that are zero."""
    firewall.check()
    return {each.trunk: each.spoofed for each in firewall.drops() if each.spoofed}


def towards(source: str) -> str:
    return WORLD if "." in source else WORLD6


@pytest.mark.parametrize("source", FOREIGN)
def test_a_source_of_no_session_on_the_device_is_not_forwarded(
    network: Network, firewall: Firewall, source: str
) -> None:
    network.sign_on()
    network.first.send(source, towards(source), 5)
    # The order of packets of a device stays.
    for own in (OWN, DELEGATED):
        network.first.send(own, towards(own))
    network.world.receives({OWN: 1, DELEGATED: 1})
    assert spoofed(firewall) == {"trunk0": 5}
    nft(f"delete table {TABLE}")
    network.first.send(source, towards(source), 5)
    network.world.receives({source: 5})


def test_what_belongs_to_the_session_is_forwarded(network: Network, firewall: Firewall) -> None:
    network.sign_on()
    for source in (OWN, FRAMED, DELEGATED):
        network.first.send(source, towards(source), 5)
    network.world.receives({OWN: 5, FRAMED: 5, DELEGATED: 5})
    network.first.send(OWN, "100.64.0.10", 5)
    network.second.receives({OWN: 5})
    network.world.send(WORLD, OWN, 5)
    network.first.receives({WORLD: 5})
    assert spoofed(firewall) == {}


@pytest.mark.skipif(
    not can("ip link add i type ifb", "tc qdisc add dev i root tbf rate 1mbit burst 10kb limit 10kb"),
    reason="needs a kernel with IFB and TBF",
)
def test_a_shaped_session_is_checked_too(network: Network, firewall: Firewall) -> None:
    made = session(1, "trunk0.100", IPv4Address(OWN))
    network.plane.apply(with_fields(made, rate_down=100_000_000, rate_up=100_000_000))
    network.first.send("8.8.8.8", WORLD, 5)
    network.first.send(OWN, WORLD, 5)
    network.world.receives({OWN: 5})
    assert spoofed(firewall) == {"trunk0": 5}


def test_a_device_without_a_session_forwards_nothing(network: Network, firewall: Firewall) -> None:
    for source in (OWN, DELEGATED):
        network.first.send(source, towards(source), 5)
    wait_for("the drops", lambda: spoofed(firewall) == {"trunk0": 10})
    network.sign_on()
    network.first.send(OWN, WORLD)
    network.world.receives({OWN: 1})
    network.plane.remove(*network.plane.applied().values())
    network.first.send(OWN, WORLD, 5)
    wait_for("the drops", lambda: spoofed(firewall) == {"trunk0": 15})
    assert network.world.received() == {}


def test_a_steered_session_sends_with_its_own_address_alone(network: Network, firewall: Firewall) -> None:
    network.plane.configure(CGNAT)
    network.sign_on()
    for source in FOREIGN:
        network.first.send(source, towards(source), 5)
    network.first.send(OWN, WORLD, 5)
    network.appliance.receives({OWN: 5})
    network.first.send(OWN, "100.64.0.10", 5)
    network.second.receives({OWN: 5})
    network.first.send(DELEGATED, WORLD6, 5)
    network.world.receives({DELEGATED: 5})
    assert spoofed(firewall) == {"trunk0": 5 * len(FOREIGN)}


def test_the_appliance_may_send_what_leaves_by_another_interface(
    network: Network, firewall: Firewall
) -> None:
    network.sign_on()
    network.appliance.send("8.8.8.8", OWN, 5)
    network.first.receives({"8.8.8.8": 5})


@pytest.mark.parametrize(
    ("device", "counted"),
    [("ppp7", "ppp"), ("trunk0", "trunk0"), ("trunk0-50", "trunk0"), ("trunk1.2.3", "trunk1")],
)
def test_each_device_that_a_subscriber_may_send_from_is_checked(
    network: Network, firewall: Firewall, device: str, counted: str
) -> None:
    network.another(device).send("8.8.8.8", WORLD, 5)
    wait_for("the drops", lambda: spoofed(firewall) == {counted: 5})
    assert network.world.received() == {}


@pytest.mark.parametrize("device", ["129s0.4094", "129s0-50"])
def test_a_vlan_with_the_short_name_of_its_trunk_is_checked(
    network: Network, firewall: Firewall, device: str
) -> None:
    trunks = ("enp129s0",)
    interfaces = replace(CONFIGURATION.interfaces, trunks=trunks)
    demux = replace(CONFIGURATION.demux, trunks=trunks)
    firewall.configure(replace(CONFIGURATION, interfaces=interfaces, demux=demux))
    network.another(device).send("8.8.8.8", WORLD, 5)
    wait_for("the drops", lambda: spoofed(firewall) == {"enp129s0": 5})
    assert network.world.received() == {}


def test_a_trunk_that_looks_like_a_vlan_of_another_counts_for_itself(
    network: Network, firewall: Firewall
) -> None:
    trunks = ("trunk0", "trunk0.5")
    interfaces = replace(CONFIGURATION.interfaces, trunks=trunks)
    firewall.configure(
        replace(CONFIGURATION, interfaces=interfaces, demux=replace(CONFIGURATION.demux, trunks=trunks))
    )
    network.another("trunk0.5.7").send("8.8.8.8", WORLD, 5)
    wait_for("the drops", lambda: spoofed(firewall) == {"trunk0.5": 5})


def test_a_vlan_of_a_trunk_that_is_an_uplink_is_not_checked(network: Network, firewall: Firewall) -> None:
    uplinks = (*CONFIGURATION.interfaces.uplinks, "trunk0.5")
    interfaces = replace(CONFIGURATION.interfaces, uplinks=uplinks)
    firewall.configure(replace(CONFIGURATION, interfaces=interfaces))
    host, service = network.another("trunk0.5"), network.itself(8443)
    host.send("8.8.8.8", WORLD, 5)
    network.world.receives({"8.8.8.8": 5})
    host.send("8.8.8.8", "100.64.0.1", 5, 8443)
    service.receives({"8.8.8.8": 5})


def without_trunk1() -> Configuration:
    trunks = ("trunk0",)
    interfaces = replace(CONFIGURATION.interfaces, trunks=trunks)
    return replace(CONFIGURATION, interfaces=interfaces, demux=replace(CONFIGURATION.demux, trunks=trunks))


def test_no_packet_passes_while_the_configuration_changes(network: Network, firewall: Firewall) -> None:
    stopped, sent = threading.Event(), 0

    def flood() -> None:
        nonlocal sent
        while not stopped.is_set():
            network.first.send("8.8.8.8", WORLD, 20)
            sent += 20

    sender = threading.Thread(target=flood)
    sender.start()
    try:
        for _ in range(20):
            firewall.configure(without_trunk1())
            firewall.configure(CONFIGURATION)
    finally:
        stopped.set()
        sender.join()
    wait_for("the drops", lambda: spoofed(firewall).get("trunk0") == sent)
    assert network.world.received() == {}
    assert sent > 1000


def test_a_removed_trunk_is_checked_until_its_devices_are_gone(network: Network, firewall: Firewall) -> None:
    host = network.another("trunk1.7")
    firewall.configure(without_trunk1())
    host.send("8.8.8.8", WORLD, 5)
    host.send(OWN, WORLD)
    wait_for("the drops", lambda: "packets 6 " in nft(f"list counter {TABLE} spoofed-trunk1"))
    assert network.world.received() == {}
    ip_batch(["link del trunk1.7"])
    firewall.check()
    assert "trunk1" not in nft(f"list chain {TABLE} strangers")


def test_a_trunk_that_was_removed_before_a_restart_is_checked_too(
    network: Network, firewall: Firewall
) -> None:
    host = network.another("trunk1.7")
    firewall.configure(without_trunk1())
    # After it was killed, before the VLANs of the trunk were removed.
    restarted = Firewall(time.time)
    restarted.configure(without_trunk1())
    host.send("8.8.8.8", WORLD, 5)
    wait_for("the drops", lambda: "packets 5 " in nft(f"list counter {TABLE} spoofed-trunk1"))
    assert network.world.received() == {}
    ip_batch(["link del trunk1.7"])
    restarted.check()
    assert "trunk1" not in nft(f"list chain {TABLE} strangers")


def blocked(firewall: Firewall) -> dict[str, int]:
    """By trunk, without those that are zero."""
    firewall.check()
    return {each.trunk: each.blocked for each in firewall.drops() if each.blocked}


# The gateway itself.


@pytest.mark.parametrize("port", [8443, 3799, 53, 546])
def test_a_service_of_the_gateway_is_out_of_reach_of_subscribers(
    network: Network, firewall: Firewall, port: int
) -> None:
    network.sign_on()
    service = network.itself(port)
    for address in ("100.64.0.1", "10.255.0.1", "fe80::1"):
        network.first.send(DELEGATED if ":" in address else OWN, address, 5, port)
    wait_for("the drops", lambda: blocked(firewall) == {"trunk0": 15})
    network.world.send(WORLD, "10.255.0.1", 5, port)
    service.receives({WORLD: 5})


def test_the_trunk_itself_reaches_the_services_of_the_gateway(network: Network, firewall: Firewall) -> None:
    host, service = network.another("trunk0"), network.itself(8443)
    host.send("100.64.0.11", "100.64.0.1", 5, 8443)
    service.receives({"100.64.0.11": 5})


def test_a_subscriber_connects_to_no_port_of_the_gateway(network: Network, firewall: Firewall) -> None:
    network.sign_on()
    with socket.create_server(("0.0.0.0", 8443)):
        with network_of(network.world.pid):
            socket.create_connection(("10.255.0.1", 8443), timeout=60).close()
        with (
            network_of(network.first.pid),
            pytest.raises(TimeoutError),
            socket.create_connection(("100.64.0.1", 8443), timeout=1),
        ):
            pass
    assert blocked(firewall)["trunk0"] >= 1


@pytest.mark.parametrize("address", ["100.64.0.1", "fe80::1%far0"])
def test_a_subscriber_pings_the_gateway(network: Network, firewall: Firewall, address: str) -> None:
    network.sign_on()
    # A link-local address, which every device has.
    network.first.run("address add fe80::2/64 dev far0")
    command = inside(network.first.pid, "busybox", "ping", "-c", "1", "-W", f"{PATIENCE:.0f}", address)
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def icmp(source: str, destination: str, type: int) -> bytes:
    """A packet with a message of ICMP or ICMPv6 that says nothing."""
    one, other = ip_address(source), ip_address(destination)
    body, head = bytes((type, 0, 0, 0)) + bytes(4), bytes(0)
    if isinstance(one, IPv6Address):
        head = one.packed + other.packed + struct.pack("!II", len(body), 58)
    body = body[:2] + struct.pack("!H", ~_sum(head + body) & 0xFFFF) + body[4:]
    if isinstance(one, IPv6Address):
        return struct.pack("!IHBB", 6 << 28, len(body), 58, 255) + one.packed + other.packed + body
    return (
        struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(body), 0, 0, 64, 1, 0) + one.packed + other.packed + body
    )


@pytest.mark.parametrize(
    ("source", "destination", "reach", "others"),
    [
        # Redirect, router advertisement and solicitation, timestamp, address mask.
        (OWN, "100.64.0.1", {0, 3, 8, 11, 12}, {5, 9, 10, 13, 17}),
        # Errors and ping, groups, discovery. Router and redirect, node information, experiments.
        (
            DELEGATED,
            "fe80::1",
            {1, 2, 3, 4, 128, 129, 130, 131, 132, 133, 135, 136, 143},
            {134, 137, 139, 200},
        ),
    ],
    ids=["ICMP", "ICMPv6"],
)
def test_the_gateway_takes_errors_ping_and_discovery_of_icmp(
    network: Network, firewall: Firewall, source: str, destination: str, reach: set[int], others: set[int]
) -> None:
    network.sign_on()
    assert taken_by_the_gateway(network, source, destination, reach, others) == reach
    assert blocked(firewall) == {"trunk0": len(others)}


def test_the_gateway_takes_discovery_of_a_device_that_has_no_address_yet(
    network: Network, firewall: Firewall
) -> None:
    reach, others = {131, 133, 135, 143}, {128, 134, 137}
    assert taken_by_the_gateway(network, "::", "fe80::1", reach, others) == reach
    assert spoofed(firewall) == {"trunk0": len(others)}


def taken_by_the_gateway(
    network: Network, source: str, destination: str, reach: set[int], others: set[int]
) -> set[int]:
    """Of these types of messages, of which the first are expected."""
    is_new = ":" in source
    family, protocol = (
        (socket.AF_INET6, socket.IPPROTO_ICMPV6) if is_new else (socket.AF_INET, socket.IPPROTO_ICMP)
    )
    found: set[int] = set()
    with socket.socket(family, socket.SOCK_RAW, protocol) as line:
        line.setblocking(False)
        for type in sorted(reach | others):
            network.first.send_packet(icmp(source, destination, type), destination)

        def come() -> bool:
            with suppress(BlockingIOError):
                while True:
                    packet, (sender, *_) = line.recvfrom(2048)
                    if sender.partition("%")[0] == source:
                        found.add(packet[0 if is_new else 20])
            return found >= reach

        wait_for("the messages", come)
    return found


def test_subscribers_reach_a_dns_server_over_tcp(network: Network, firewall: Firewall) -> None:
    network.sign_on()
    named = replace(CONFIGURATION.subscribers, dns_servers=(IPv4Address("100.64.0.1"),))
    firewall.configure(replace(CONFIGURATION, subscribers=named))
    with socket.create_server(("100.64.0.1", 53)), network_of(network.first.pid):
        socket.create_connection(("100.64.0.1", 53), timeout=PATIENCE).close()


@pytest.mark.parametrize(
    ("source", "named", "other"),
    [(OWN, "100.64.0.1", "10.255.0.1"), (DELEGATED, "2001:db8:53::1", "fe80::1")],
)
def test_subscribers_reach_a_dns_server_that_the_configuration_names(
    network: Network, firewall: Firewall, source: str, named: str, other: str
) -> None:
    network.sign_on()
    subscribers = replace(
        CONFIGURATION.subscribers,
        dns_servers=(IPv4Address("100.64.0.1"),),
        ipv6_dns_servers=(IPv6Address("2001:db8:53::1"),),
    )
    firewall.configure(replace(CONFIGURATION, subscribers=subscribers))
    ip_batch(["address add 2001:db8:53::1/128 dev lo"])
    service = network.itself(53)
    network.await_ipv6(service, "2001:db8:53::1")
    network.first.send(source, other, 5, 53)
    network.first.send(source, named, 5, 53)
    service.receives({source: 5})
    assert blocked(firewall) == {"trunk0": 5}


@pytest.mark.parametrize("source", ["100.64.0.10", "8.8.8.8", "2001:db8:77::1"])
def test_the_gateway_sends_no_reply_to_a_source_of_no_session(
    network: Network, firewall: Firewall, source: str
) -> None:
    network.sign_on()
    address = "fe80::1" if ":" in source else "100.64.0.1"
    named = replace(CONFIGURATION.subscribers, dns_servers=(IPv4Address("100.64.0.1"),))
    firewall.configure(replace(CONFIGURATION, subscribers=named))
    network.first.send(source, address, 5, 53)
    wait_for("the drops", lambda: spoofed(firewall) == {"trunk0": 5})
    assert blocked(firewall) == {}


def test_a_dhcp_client_gets_a_lease_and_renews_it(tmp_path: Path) -> None:
    with running_dnsmasq(tmp_path) as server:
        firewall = Firewall(time.time)
        firewall.configure(CONFIGURATION)
        server.add_vlan(100, "02:00:00:00:00:01")
        client = server.sign_on(100)
        route(the_session(server.source()))
        client.renew()
        assert firewall.fault_register.faults() == []


def test_a_lease_that_the_gateway_does_not_know_is_a_session_once_it_is_renewed(
    tmp_path: Path,
) -> None:
    with running_dnsmasq(tmp_path) as server:
        firewall = Firewall(time.time)
        firewall.configure(RunningConfiguration.of(server.document).sections)
        server.add_vlan(100, "02:00:00:00:00:01")
        client = server.sign_on(100)
        address = the_session(server.source()).ip_address
        server.kill()
        server.lease_file.unlink()
        server.start()
        client.ask_for_renewal()
        assert the_session(server.source()).ip_address == address
        assert spoofed(firewall) == {}


def dhcp_request(
    source: str, destination: str, client: str = "0.0.0.0", relay: str = "0.0.0.0", hardware: bytes = b"\1\6"
) -> bytes:
    """A packet with a DHCPREQUEST. `hardware` is its htype and hlen."""
    body = b"\1" + hardware + bytes(9) + ip_address(client).packed + bytes(8) + ip_address(relay).packed
    body = (body + b"\2\0\0\0\0\1").ljust(236, b"\0") + b"\x63\x82\x53\x63\x35\1\3\xff"
    return udp(source, destination, body, 67, 68)


def broadcast(host: Host, packet: bytes) -> None:
    with network_of(host.pid), socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM) as line:
        line.sendto(with_checksum(packet), ("far0", 0x0800, 0, 0, b"\xff" * 6))


_BROADCAST, _NO_ADDRESS = "255.255.255.255", "0.0.0.0"


@pytest.mark.parametrize(
    ("source", "destination", "client"),
    [
        (_NO_ADDRESS, _BROADCAST, _NO_ADDRESS),
        (OWN, "100.64.0.1", OWN),
        (OWN, _BROADCAST, OWN),
        (_NO_ADDRESS, _BROADCAST, OWN),
    ],
    ids=["INIT-REBOOT", "RENEWING", "REBINDING", "REBINDING without source"],
)
@pytest.mark.parametrize("has_session", [True, False], ids=["session", "none"])
def test_a_dhcp_request_reaches_its_server(
    network: Network, firewall: Firewall, source: str, destination: str, client: str, has_session: bool
) -> None:
    network.plane.configure(CGNAT)
    if has_session:
        network.sign_on()
    server = network.itself(67)
    broadcast(network.first, dhcp_request(source, destination, client))
    # The server sees the address to which it replies as that of the sender.
    server.receives({client if client != _NO_ADDRESS else source: 1})
    assert spoofed(firewall) == blocked(firewall) == {}


def test_a_dhcp_request_of_a_former_range_reaches_its_server_and_no_reply_leaves(network: Network) -> None:
    """dnsmasq refuses it by a broadcast, and the client asks for another address at once."""
    firewall = Firewall(time.time)
    for source_range in (POOL, IPv4Network("100.70.0.0/16")):
        firewall.apply(replace(CONFIGURATION, cgnat=replace(CGNAT, source_range=source_range)))
    server = network.itself(67)
    broadcast(network.first, dhcp_request(OWN, _BROADCAST, OWN))
    server.receives({OWN: 1})
    with pytest.raises(PermissionError):
        server.send("10.255.0.1", OWN, 1, 68, 67)
    # The rule does not concern other hosts.
    server.send("10.255.0.1", WORLD, 1, 68, 67)
    assert spoofed(firewall) == {}
    broadcast(network.first, dhcp_request("100.71.0.9", _BROADCAST, "100.71.0.9"))
    broadcast(network.first, dhcp_request(OWN, WORLD, OWN))
    wait_for("the drops", lambda: spoofed(firewall) == {"trunk0": 2})
    assert server.received() == Counter()


@pytest.mark.parametrize("client", ["100.64.0.10", "8.8.8.8", "100.64.0.1", "10.255.0.1"])
@pytest.mark.parametrize("source", [OWN, _NO_ADDRESS])
def test_a_dhcp_request_with_the_address_of_another_is_dropped(
    network: Network, firewall: Firewall, source: str, client: str
) -> None:
    network.plane.configure(CGNAT)
    network.sign_on()
    server = network.itself(67)
    broadcast(network.first, dhcp_request(source, _BROADCAST, client))
    broadcast(network.first, dhcp_request(OWN, _BROADCAST, OWN))
    server.receives({OWN: 1})
    assert spoofed(firewall) == {"trunk0": 1}


@pytest.mark.parametrize(
    ("hardware", "relay"),
    [(b"\1\x08", _NO_ADDRESS), (b"\6\6", _NO_ADDRESS), (b"\1\0", _NO_ADDRESS), (b"\1\6", OWN)],
    ids=["hlen 8", "htype 6", "hlen 0", "giaddr"],
)
@pytest.mark.parametrize(("source", "client"), [(_NO_ADDRESS, _NO_ADDRESS), (OWN, OWN)])
def test_a_dhcp_request_of_no_ethernet_device_or_of_a_relay_is_blocked(
    network: Network, firewall: Firewall, source: str, client: str, hardware: bytes, relay: str
) -> None:
    network.sign_on()
    server = network.itself(67)
    broadcast(network.first, dhcp_request(source, _BROADCAST, client, relay, hardware))
    broadcast(network.first, dhcp_request(OWN, _BROADCAST, OWN))
    server.receives({OWN: 1})
    assert blocked(firewall) == {"trunk0": 1}


def test_a_dhcpv6_request_reaches_its_server(network: Network, firewall: Firewall) -> None:
    server = network.itself(547)
    network.first.send("fe80::2", "fe80::1", 5, 547, 546)
    server.receives({"fe80::2": 5})


# What a subscriber is for others.


@pytest.mark.parametrize(
    ("source", "destination", "ports"),
    [(OWN, "100.64.0.10", (68, 67)), (DELEGATED, "2001:db8:a::9", (546, 547))],
    ids=["DHCP", "DHCPv6"],
)
def test_a_subscriber_is_no_dhcp_server_for_others(
    network: Network, firewall: Firewall, source: str, destination: str, ports: tuple[int, int]
) -> None:
    network.sign_on()
    network.second.run("address add 2001:db8:a::9/128 dev far0")
    network.await_ipv6(network.itself(port=7), "2001:db8:a::9")
    client = Host.of(network.second.pid, ports[0])
    try:
        network.first.send(source, destination, 5, *ports)
        wait_for("the drops", lambda: blocked(firewall) == {"trunk0": 5})
        assert client.received() == {}
        nft(f"delete table {TABLE}")
        network.first.send(source, destination, 5, *ports)
        client.receives({source: 5})
    finally:
        client.close()


@pytest.mark.parametrize(("port", "source_port"), [(67, 67), (68, PORT)], ids=["relay", "other service"])
def test_what_no_dhcp_server_sends_is_forwarded(
    network: Network, firewall: Firewall, port: int, source_port: int
) -> None:
    network.sign_on()
    with closing(Host.of(network.world.pid, port)) as host:
        network.first.send(OWN, WORLD, 5, port, source_port)
        host.receives({OWN: 5})


def advertisement(source: str, destination: str) -> bytes:
    """Of a router, for all that is not on the link (RFC 4861 section 4.2), as ICMPv6."""
    body = struct.pack("!BBHBBHII", 134, 0, 0, 64, 0, 1800, 0, 0)
    pseudo = ip_address(source).packed + ip_address(destination).packed + struct.pack("!II", len(body), 58)
    return body[:2] + struct.pack("!H", ~_sum(pseudo + body) & 0xFFFF) + body[4:]


def test_a_subscriber_is_no_router_for_the_gateway(network: Network, firewall: Firewall) -> None:
    # A gateway that takes a default route from its uplink, by advertisements.
    switch("echo 2 > ipv6/conf/trunk0.100/accept_ra")
    network.first.run("address add fe80::2/64 dev far0")
    with network_of(network.first.pid):
        line = socket.socket(socket.AF_INET6, socket.SOCK_RAW, socket.IPPROTO_ICMPV6)
        index = socket.if_nametoindex("far0")
    line.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_UNICAST_HOPS, 255)

    def advertise() -> None:
        line.sendto(advertisement("fe80::2", "fe80::1"), ("fe80::1", 0, 0, index))

    def routes() -> str:
        command = ["ip", "-6", "route", "show", "default", "dev", "trunk0.100"]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    with line:
        advertise()
        wait_for("the drop", lambda: blocked(firewall) == {"trunk0": 1})
        assert "fe80::2" not in routes()
        nft(f"delete table {TABLE}")
        advertise()
        wait_for("the route", lambda: "fe80::2" in routes())


# PPPoE.


@pytest.mark.parametrize("is_caller", [True, False], ids=["from", "to"])
def test_the_mss_of_a_connection_over_ppp_is_that_of_the_path(
    network: Network, firewall: Firewall, is_caller: bool
) -> None:
    host = network.another("ppp7")
    switch("echo 0 > ipv4/tcp_timestamps")
    for each in (host, network.world):
        command = inside(each.pid, "sh", "-c", "echo 0 > /proc/sys/net/ipv4/tcp_timestamps")
        subprocess.run(command, check=True)
    # Of the gateway's end alone: the hosts behind a subscriber's router do not know it.
    ip_batch(["link set ppp7 mtu 1492", "route add 100.64.0.11 dev ppp7"])
    ends = (host.pid, "100.64.0.11"), (network.world.pid, WORLD)
    (caller, _), (called, address) = ends if is_caller else reversed(ends)

    def mss() -> list[int]:
        """At both ends."""
        with network_of(called):
            server = socket.create_server((address, 0))
        with server:
            with network_of(caller):
                one = socket.create_connection(server.getsockname(), timeout=60)
            other, _ = server.accept()
            with one, other:
                return [each.getsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG) for each in (one, other)]

    assert mss() == [1452, 1452]
    nft(f"delete table {TABLE}")
    assert mss() == [1460, 1460]


# Changes of the table by others.


@pytest.fixture
def running(firewall: Firewall) -> Iterator[Firewall]:
    """One that looks as in the core does."""
    with kept(firewall):
        yield firewall


@pytest.mark.parametrize(
    "damage",
    [
        "flush ruleset",
        f"delete table {TABLE}",
        f"flush chain {TABLE} prerouting",
        f"insert rule {TABLE} prerouting accept",
        f"add table {TABLE} {{ flags dormant; }}",
        f"add chain {TABLE} prerouting {{ policy drop; }}",
    ],
)
def test_what_others_change_is_repaired_within_5_s(network: Network, running: Firewall, damage: str) -> None:
    before = nft(f"list table {TABLE}")
    number = repaired_within_5_s(damage, lambda: running.fault_register.repairs()[FaultKind.FIREWALL])
    assert nft(f"list table {TABLE}") == before
    network.first.send("8.8.8.8", WORLD, 5)
    wait_for("the drops", lambda: spoofed(running) == {"trunk0": 5})
    assert running.fault_register.repairs()[FaultKind.FIREWALL] == number


@pytest.mark.parametrize("user", ["0", "65534"])
def test_only_root_and_the_core_reach_the_command_line_of_a_source(network: Network, user: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        Firewall(time.time, command_line=(IPv4Address("127.0.0.1"), port)).configure(CONFIGURATION)
        script = f"exec 3<>/dev/tcp/127.0.0.1/{port}"
        connect = ["setpriv", f"--reuid={user}", "--clear-groups", "bash", "-c", script]
        connected = subprocess.run(connect, capture_output=True, timeout=60, check=False)
    assert (connected.returncode == 0) == (user == "0")
    assert (b"Connection refused" in connected.stderr) == (user != "0")


def test_the_numbers_continue_after_the_table_is_gone(network: Network, firewall: Firewall) -> None:
    network.first.send("8.8.8.8", WORLD, 5)
    wait_for("the drops", lambda: spoofed(firewall) == {"trunk0": 5})
    nft("flush ruleset")
    firewall.check()
    network.first.send("8.8.8.8", WORLD, 2)
    wait_for("the drops", lambda: spoofed(firewall) == {"trunk0": 7})


def test_a_table_that_cannot_be_loaded_is_a_fault_until_it_can(network: Network, tmp_path: Path) -> None:
    program = tmp_path / "nft"
    firewall = Firewall(time.time, Nft(str(program)))
    firewall.configure(CONFIGURATION)
    (fault,) = firewall.fault_register.faults()
    assert (fault.kind, fault.object, fault.session_id) == (FaultKind.FIREWALL, TABLE, None)
    assert fault.reason == f"cannot load the table {TABLE}: cannot run nft: No such file or directory"
    program.write_text(
        "#!/bin/sh\necho 'Error: Could not process rule: Operation not permitted' >&2; exit 1\n"
    )
    program.chmod(0o755)
    firewall.configure(CONFIGURATION)
    (fault,) = firewall.fault_register.faults()
    program.write_text('#!/bin/sh\nexec nft "$@"\n')
    firewall.check()
    assert firewall.fault_register.faults() == []
    assert f"table {TABLE}" in nft("list ruleset")


def test_counts_are_told_while_nft_hangs(network: Network, tmp_path: Path) -> None:
    program, hanging = tmp_path / "nft", tmp_path / "hanging"
    program.write_text(
        f'#!/bin/sh\n[ ! -e {hanging}.now ] || {{ touch {hanging}; exec sleep 60; }}\nexec nft "$@"\n'
    )
    program.chmod(0o755)
    firewall = Firewall(time.time, Nft(str(program)))
    firewall.configure(CONFIGURATION)
    Path(f"{hanging}.now").touch()
    look = threading.Thread(target=firewall.check)
    look.start()
    wait_for("the look", hanging.exists)
    assert [each.trunk for each in firewall.drops()] == ["trunk0", "trunk1", "ppp"]
    assert look.is_alive()
    # Until its deadline, which is a fault.
    look.join()
    (fault,) = firewall.fault_register.faults()
    assert fault.reason == f"cannot list the table {TABLE}: nft did not end within 10 s"


def test_as_many_trunks_as_there_may_be_are_checked(network: Network) -> None:
    firewall = Firewall(time.time)
    trunks = tuple(f"enp129s0f1n@{number:03}" for number in range(64))
    interfaces = replace(CONFIGURATION.interfaces, trunks=trunks)
    demux = replace(CONFIGURATION.demux, trunks=trunks)
    firewall.configure(replace(CONFIGURATION, interfaces=interfaces, demux=demux))
    assert firewall.fault_register.faults() == []
    device = "n@063.7"
    network.another(device).send("8.8.8.8", WORLD, 5)
    wait_for("the drops", lambda: spoofed(firewall) == {trunks[-1]: 5})


@pytest.fixture(scope="module")
def core(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LinuxCore]:
    with running_linux_core(tmp_path_factory.mktemp("core")) as made:
        yield made


def drops(core: LinuxCore) -> dict[str, int]:
    return {each["trunk"]: each["spoofed"] for each in core.call("GetStatistics")["packet_drops"]}


def test_the_rules_stay_while_the_core_is_dead_and_a_start_changes_nothing(core: LinuxCore) -> None:
    def to_world() -> None:
        with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as line:
            line.bind((far(VLAN), 0))
            address = KernelReader().link(VLAN).mac_address
            assert address is not None
            ethernet = bytes.fromhex(address.replace(":", "")) + bytes(6) + b"\x08\x00"
            line.send(ethernet + with_checksum(udp("8.8.8.8", WORLD, b"x")))

    def counted() -> str:
        return nft(f"list counter {TABLE} spoofed-trunk0").split("packets ")[1].split()[0]

    switch("echo 1 > ipv4/ip_forward")
    ip_batch(["address add 10.255.0.1/24 dev uplink0", "route add default via 10.255.0.2"])
    # It serves, so it has loaded them.
    table = nft(f"list chain {TABLE} forward")
    core.kill()
    to_world()
    wait_for("the drop", lambda: counted() == "1")
    core.start()
    assert nft(f"list chain {TABLE} forward") == table
    to_world()
    wait_for("both drops", lambda: drops(core) == {"trunk0": 2, "trunk1": 0, "ppp": 0})


def test_the_core_repairs_a_flush_of_all_rules_and_counts_it(core: LinuxCore) -> None:
    before = nft(f"list chain {TABLE} forward")
    repaired_within_5_s("flush ruleset", lambda: core.repairs().get("firewall", 0))
    assert nft(f"list chain {TABLE} forward") == before
    assert core.call("ListFaults")["faults"] == []

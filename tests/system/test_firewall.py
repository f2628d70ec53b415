"""The gateway's own table of nftables: packets that reach a peer, or do not."""

import os
import socket
import struct
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, suppress
from dataclasses import replace
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from pathlib import Path
from unittest.mock import Mock

import pytest
from msgspec.structs import replace as with_fields

from gateway_contract.configuration import Cgnat, Configuration
from gateway_contract.core.health import FaultKind
from gateway_core.configuration.running import RunningConfiguration
from gateway_core.gateways.linux.dataplane.firewall import TABLE, ArpLimit, Firewall
from gateway_core.gateways.linux.dataplane.nftables import Nft, keep_tables
from gateway_core.gateways.linux.dataplane.plane import DataPlane
from gateway_core.gateways.linux.kernel.links import SUBSCRIBER_GROUP
from gateway_core.gateways.linux.kernel.reader import KernelReader
from tests.support.dnsmasq import route, running_dnsmasq, the_session
from tests.support.documents import valid_document
from tests.support.linux_core import VLAN, LinuxCore, far, running_linux_core
from tests.support.namespaces import can, inside, ip_batch, neighbour, network_namespace, network_of
from tests.support.nftables import kept, nft
from tests.support.packets import icmp, udp
from tests.support.stack import PATIENCE, wait_for
from tests.system.test_steering import session

pytestmark = pytest.mark.skipif(
    not can(
        "ip link add v group 7 type veth peer name w",
        "nft 'add table arp t; add table inet t; add chain inet t c; "
        "add rule inet t c fib saddr . iif oif missing drop'",
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


class Host:
    """A host beside the gateway, which sends packets with any source, and counts those that it receives at a
    port."""

    def __init__(self, pid: int, port: int = PORT) -> None:
        self.pid = pid
        with network_of(pid):
            families = (socket.AF_INET, socket.AF_INET6)
            self._raw = [socket.socket(family, socket.SOCK_RAW, socket.IPPROTO_RAW) for family in families]
            self._heard = [socket.socket(family, socket.SOCK_DGRAM) for family in families]
        self._heard[1].setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        for each in self._heard:
            each.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
            each.setblocking(False)
            each.bind(("", port))

    def send(
        self, source: str, destination: str, number: int = 1, port: int = PORT, source_port: int = PORT
    ) -> None:
        for _ in range(number):
            self.send_packet(udp(source, destination, b"x", source_port, port), destination)

    def send_packet(self, packet: bytes, destination: str) -> None:
        self._raw[packet[0] >> 4 == 6].sendto(packet, (destination, 0))

    def received(self) -> Counter[str]:
        """Packets since the last call, by their source."""
        found = Counter[str]()
        for each in self._heard:
            with suppress(BlockingIOError):
                while True:
                    _, (source, *_) = each.recvfrom(2048)
                    found[source] += 1
        return found

    def receives(self, expected: dict[str, int]) -> None:
        """These, and no others until then."""
        found = Counter[str]()

        def have_come() -> bool:
            found.update(self.received())
            return found.total() >= sum(expected.values())

        wait_for(f"the packets {expected}", have_come)
        assert found == expected

    def run(self, *commands: str) -> None:
        text = "\n".join(commands)
        subprocess.run(inside(self.pid, "ip", "-batch", "-"), input=text, text=True, check=True)

    def close(self) -> None:
        for each in (*self._raw, *self._heard):
            each.close()


class Network:
    """The gateway, in the network of the calling thread, with two subscribers, the appliance for CGNAT and
    the rest of the world."""

    def __init__(self, stack: ExitStack) -> None:
        stack.enter_context(network_namespace())
        self._stack = stack
        switch(_SWITCHES, _FORWARD)
        self.world = self._beside("uplink0")
        self.first = self.subscriber("trunk0.100", OWN)
        self.second = self.subscriber("trunk0.101", "100.64.0.10")
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
        host = self.listening(pid)
        host.run("link set far0 up")
        return host

    def listening(self, pid: int, port: int = PORT) -> Host:
        return self._stack.enter_context(closing(Host(pid, port)))

    def itself(self, port: int) -> Host:
        """The gateway, with a service at a port."""
        return self.listening(os.getpid(), port)

    def subscriber(self, device: str, address: str = "100.64.0.11") -> Host:
        """A subscriber on a device of the gateway."""
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
    assert made.fault_register.list_faults() == []
    return made


def spoofed(firewall: Firewall, field: str = "spoofed") -> dict[str, int]:
    """By trunk, without those that are zero."""
    firewall.check()
    return {each.trunk: getattr(each, field) for each in firewall.list_drops() if getattr(each, field)}


def blocked(firewall: Firewall) -> dict[str, int]:
    return spoofed(firewall, "blocked")


def towards(source: str) -> str:
    return WORLD if "." in source else WORLD6


def test_what_belongs_to_the_session_is_forwarded_or_steered_and_no_other_source(
    network: Network, firewall: Firewall
) -> None:
    for source in (OWN, DELEGATED):
        network.first.send(source, towards(source), 5)
    wait_for("the drops", lambda: spoofed(firewall) == {"trunk0": 10})
    network.sign_on()
    for source in FOREIGN:
        network.first.send(source, towards(source), 5)
    # The order of packets of a device stays.
    for source in (OWN, FRAMED, DELEGATED):
        network.first.send(source, towards(source), 5)
    network.world.receives({OWN: 5, FRAMED: 5, DELEGATED: 5})
    network.first.send(OWN, "100.64.0.10", 5)
    network.second.receives({OWN: 5})
    network.world.send(WORLD, OWN, 5)
    # The appliance may send what leaves by another interface.
    network.appliance.send("8.8.8.8", OWN, 5)
    network.first.receives({WORLD: 5, "8.8.8.8": 5})
    assert spoofed(firewall) == {"trunk0": 10 + 5 * len(FOREIGN)}
    # A steered session also sends with its own addresses alone.
    network.plane.configure(CGNAT)
    for source in (*FOREIGN, OWN, DELEGATED):
        network.first.send(source, towards(source), 5)
    network.appliance.receives({OWN: 5})
    network.world.receives({DELEGATED: 5})
    network.first.send(OWN, "100.64.0.10", 5)
    network.second.receives({OWN: 5})
    assert spoofed(firewall) == {"trunk0": 10 + 10 * len(FOREIGN)}
    network.plane.configure(replace(CGNAT, enabled=False))
    network.plane.remove(*network.plane.get_applied_sessions().values())
    network.first.send(OWN, WORLD, 5)
    wait_for("the drops", lambda: spoofed(firewall) == {"trunk0": 15 + 10 * len(FOREIGN)})
    nft(f"delete table {TABLE}")
    for source in FOREIGN:
        network.first.send(source, towards(source), 5)
    network.world.receives(dict.fromkeys(FOREIGN, 5))


MANY = tuple(f"enp129s0f1n@{number:03}" for number in range(64))


def with_trunks(*trunks: str, uplinks: tuple[str, ...] = CONFIGURATION.interfaces.uplinks) -> Configuration:
    interfaces = replace(CONFIGURATION.interfaces, trunks=trunks, uplinks=uplinks)
    return replace(CONFIGURATION, interfaces=interfaces, demux=replace(CONFIGURATION.demux, trunks=trunks))


@pytest.mark.parametrize(
    ("trunks", "counted"),
    [
        (
            ("trunk0", "trunk1"),
            {"ppp7": "ppp", "trunk0": "trunk0", "trunk0-50": "trunk0", "trunk1.2.3": "trunk1"},
        ),
        # Of a long name, its VLANs have the end.
        (("enp129s0",), {"129s0.4094": "enp129s0", "129s0-50": "enp129s0"}),
        (("trunk0", "trunk0.5"), {"trunk0.5.7": "trunk0.5"}),
        (MANY, {"n@063.7": MANY[-1]}),
    ],
    ids=["two", "long name", "like a VLAN of another", "64"],
)
def test_each_device_that_a_subscriber_may_send_from_is_checked_and_counts_for_its_trunk(
    network: Network, firewall: Firewall, trunks: tuple[str, ...], counted: dict[str, str]
) -> None:
    firewall.configure(with_trunks(*trunks))
    expected = Counter[str]()
    for device, trunk in counted.items():
        network.subscriber(device).send("8.8.8.8", WORLD, 5)
        expected[trunk] += 5
        wait_for(f"the drops of {device}", lambda: spoofed(firewall) == expected)
    assert network.world.received() == {}


def test_a_vlan_of_a_trunk_that_is_an_uplink_is_not_checked(network: Network, firewall: Firewall) -> None:
    uplinks = (*CONFIGURATION.interfaces.uplinks, "trunk0.5")
    firewall.configure(with_trunks("trunk0", "trunk1", uplinks=uplinks))
    host, service = network.subscriber("trunk0.5"), network.itself(8443)
    host.send("8.8.8.8", WORLD, 5)
    network.world.receives({"8.8.8.8": 5})
    host.send("8.8.8.8", "100.64.0.1", 5, 8443)
    service.receives({"8.8.8.8": 5})


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
            firewall.configure(with_trunks("trunk0"))
            firewall.configure(CONFIGURATION)
    finally:
        stopped.set()
        sender.join()
    wait_for("the drops", lambda: spoofed(firewall).get("trunk0") == sent)
    assert network.world.received() == {}


@pytest.mark.parametrize("is_restarted", [False, True])
def test_a_removed_trunk_is_checked_until_its_devices_are_gone(
    network: Network, firewall: Firewall, is_restarted: bool
) -> None:
    host = network.subscriber("trunk1.7")
    firewall.configure(with_trunks("trunk0"))
    if is_restarted:
        # After a kill, before the VLANs of the trunk were removed.
        firewall = Firewall(time.time)
        firewall.configure(with_trunks("trunk0"))
    host.send("8.8.8.8", WORLD, 5)
    host.send(OWN, WORLD)
    wait_for("the drops", lambda: "packets 6 " in nft(f"list counter {TABLE} spoofed-trunk1"))
    assert network.world.received() == {}
    ip_batch(["link del trunk1.7"])
    firewall.check()
    assert "trunk1" not in nft(f"list chain {TABLE} strangers")


# The gateway itself.


def test_a_service_of_the_gateway_is_out_of_reach_of_subscribers(
    network: Network, firewall: Firewall
) -> None:
    network.sign_on()
    ports = (8443, 3799, 53, 546)
    for port in ports:
        service = network.itself(port)
        for address in ("100.64.0.1", "10.255.0.1", "fe80::1"):
            network.first.send(DELEGATED if ":" in address else OWN, address, 5, port)
        network.world.send(WORLD, "10.255.0.1", 5, port)
        service.receives({WORLD: 5})
    wait_for("the drops", lambda: blocked(firewall) == {"trunk0": 15 * len(ports)})
    # Without a tag, the trunk may be the operator's own way in.
    host, service = network.subscriber("trunk0"), network.itself(8444)
    host.send("100.64.0.11", "100.64.0.1", 5, 8444)
    service.receives({"100.64.0.11": 5})


@pytest.mark.parametrize(
    ("source", "destination", "taken", "others"),
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
        ("::", "fe80::1", {131, 133, 135, 143}, {128, 134, 137}),
    ],
    ids=["ICMP", "ICMPv6", "ICMPv6 of a device without an address"],
)
def test_the_gateway_takes_errors_ping_and_discovery_of_icmp(
    network: Network, firewall: Firewall, source: str, destination: str, taken: set[int], others: set[int]
) -> None:
    network.sign_on()
    is_ipv6 = ":" in source
    family = socket.AF_INET6 if is_ipv6 else socket.AF_INET
    found: set[int] = set()
    with socket.socket(
        family, socket.SOCK_RAW, socket.IPPROTO_ICMPV6 if is_ipv6 else socket.IPPROTO_ICMP
    ) as messages:
        messages.setblocking(False)
        for type in sorted(taken | others):
            network.first.send_packet(icmp(source, destination, type), destination)

        def have_come() -> bool:
            with suppress(BlockingIOError):
                while True:
                    packet, (sender, *_) = messages.recvfrom(2048)
                    if sender.partition("%")[0] == source:
                        found.add(packet[0 if is_ipv6 else 20])
            return found >= taken

        wait_for("the messages", have_come)
    assert found == taken
    assert spoofed(firewall, "spoofed" if source == "::" else "blocked") == {"trunk0": len(others)}


def test_subscribers_reach_a_dns_server_that_the_configuration_names(
    network: Network, firewall: Firewall
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
    for source, named, other in (
        (OWN, "100.64.0.1", "10.255.0.1"),
        (DELEGATED, "2001:db8:53::1", "fe80::1"),
    ):
        network.first.send(source, other, 5, 53)
        network.first.send(source, named, 5, 53)
        service.receives({source: 5})
    assert blocked(firewall) == {"trunk0": 10}
    with socket.create_server(("0.0.0.0", 53)), network_of(network.first.pid):
        socket.create_connection(("100.64.0.1", 53), timeout=PATIENCE).close()
        with pytest.raises(TimeoutError):
            socket.create_connection(("10.255.0.1", 53), timeout=1)
    # No reply goes to a source of no session.
    for source in ("100.64.0.10", "8.8.8.8", "2001:db8:77::1"):
        network.first.send(source, "fe80::1" if ":" in source else "100.64.0.1", 5, 53)
    wait_for("the drops", lambda: spoofed(firewall) == {"trunk0": 15})
    assert service.received() == {}


def test_a_dhcp_client_gets_a_lease_and_renews_it_also_after_its_record_was_lost(tmp_path: Path) -> None:
    with running_dnsmasq(tmp_path) as server:
        firewall = Firewall(time.time)
        firewall.configure(RunningConfiguration.of(server.document).sections)
        server.add_vlan(100, "02:00:00:00:00:01")
        client = server.sign_on(100)
        session = the_session(server.source())
        route(session)
        client.renew()
        server.kill()
        server.lease_file.unlink()
        subprocess.run(["ip", "route", "delete", f"{session.ip_address}/32"], check=True)
        server.start()
        client.ask_for_renewal()
        assert the_session(server.source()).ip_address == session.ip_address
        assert spoofed(firewall) == {}
        assert firewall.fault_register.list_faults() == []


def dhcp_request(
    source: str, destination: str, client: str = "0.0.0.0", relay: str = "0.0.0.0", hardware: bytes = b"\1\6"
) -> bytes:
    """A packet with a DHCPREQUEST. `hardware` is its htype and hlen."""
    body = b"\1" + hardware + bytes(9) + ip_address(client).packed + bytes(8) + ip_address(relay).packed
    body = (body + b"\2\0\0\0\0\1").ljust(236, b"\0") + b"\x63\x82\x53\x63\x35\1\3\xff"
    return udp(source, destination, body, 68, 67)


def broadcast(host: Host, packet: bytes) -> None:
    with network_of(host.pid), socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM) as line:
        line.sendto(packet, ("far0", 0x0800, 0, 0, b"\xff" * 6))


_BROADCAST, _NO_ADDRESS = "255.255.255.255", "0.0.0.0"


def test_a_dhcp_request_reaches_its_server_unless_it_is_of_another_or_of_no_ethernet_device(
    network: Network, firewall: Firewall
) -> None:
    network.plane.configure(CGNAT)
    server, server6 = network.itself(67), network.itself(547)
    for has_session in (False, True):
        if has_session:
            network.sign_on()
        for source, destination, client in (
            # INIT-REBOOT, RENEWING, REBINDING, and the latter without a source.
            (_NO_ADDRESS, _BROADCAST, _NO_ADDRESS),
            (OWN, "100.64.0.1", OWN),
            (OWN, _BROADCAST, OWN),
            (_NO_ADDRESS, _BROADCAST, OWN),
        ):
            broadcast(network.first, dhcp_request(source, destination, client))
            # The server sees the address to which it replies as that of the sender.
            server.receives({client if client != _NO_ADDRESS else source: 1})
        network.first.send("fe80::2", "fe80::1", 5, 547, 546)
        server6.receives({"fe80::2": 5})
    assert spoofed(firewall) == blocked(firewall) == {}
    # By htype, hlen and giaddr.
    strange = [(b"\1\x08", _NO_ADDRESS), (b"\6\6", _NO_ADDRESS), (b"\1\0", _NO_ADDRESS), (b"\1\6", OWN)]
    others = ("100.64.0.10", "8.8.8.8", "100.64.0.1", "10.255.0.1")
    for number, source in enumerate((OWN, _NO_ADDRESS)):
        dropped = [dhcp_request(source, _BROADCAST, client) for client in others]
        dropped += [dhcp_request(source, _BROADCAST, source, relay, hardware) for hardware, relay in strange]
        for packet in dropped:
            broadcast(network.first, packet)
            broadcast(network.first, dhcp_request(OWN, _BROADCAST, OWN))
            server.receives({OWN: 1})
        assert spoofed(firewall) == blocked(firewall) == {"trunk0": 4 + 4 * number}


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


# What a subscriber is for others.


def test_a_subscriber_is_no_dhcp_server_for_others(network: Network, firewall: Firewall) -> None:
    network.sign_on()
    network.second.run("address add 2001:db8:a::9/128 dev far0")
    network.await_ipv6(network.itself(port=7), "2001:db8:a::9")
    sent = [(OWN, "100.64.0.10", (68, 67)), (DELEGATED, "2001:db8:a::9", (546, 547))]
    clients = [network.listening(network.second.pid, ports[0]) for _, _, ports in sent]
    for source, destination, ports in sent:
        network.first.send(source, destination, 5, *ports)
    wait_for("the drops", lambda: blocked(firewall) == {"trunk0": 10})
    assert [client.received() for client in clients] == [{}, {}]
    # A request through a relay, and another service with the port of a client.
    for port, source_port in ((67, 67), (68, PORT)):
        host = network.listening(network.world.pid, port)
        network.first.send(OWN, WORLD, 5, port, source_port)
        host.receives({OWN: 5})
    nft(f"delete table {TABLE}")
    for client, (source, destination, ports) in zip(clients, sent, strict=True):
        network.first.send(source, destination, 5, *ports)
        client.receives({source: 5})


# PPPoE.


def test_the_mss_of_a_connection_over_ppp_is_that_of_the_path(network: Network, firewall: Firewall) -> None:
    host = network.subscriber("ppp7")
    switch("echo 0 > ipv4/tcp_timestamps")
    for each in (host, network.world):
        command = inside(each.pid, "sh", "-c", "echo 0 > /proc/sys/net/ipv4/tcp_timestamps")
        subprocess.run(command, check=True)
    # Of the gateway's end alone: the hosts behind a subscriber's router do not know it.
    ip_batch(["link set ppp7 mtu 1492", "route add 100.64.0.11 dev ppp7"])

    def mss(caller: int, called: int, address: str) -> list[int]:
        """At both ends."""
        with network_of(called):
            server = socket.create_server((address, 0))
        with server:
            with network_of(caller):
                one = socket.create_connection(server.getsockname(), timeout=60)
            other, _ = server.accept()
            with one, other:
                return [each.getsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG) for each in (one, other)]

    from_ppp, to_ppp = (host.pid, network.world.pid, WORLD), (network.world.pid, host.pid, "100.64.0.11")
    assert mss(*from_ppp) == mss(*to_ppp) == [1452, 1452]
    nft(f"delete table {TABLE}")
    assert mss(*from_ppp) == [1460, 1460]


# Changes of the table by others.


@pytest.fixture
def running(firewall: Firewall) -> Iterator[Firewall]:
    """One that looks as in the core does."""
    with kept(firewall):
        yield firewall


def test_what_others_change_is_repaired_by_the_event_of_its_change(
    network: Network, running: Firewall
) -> None:
    before = nft(f"list table {TABLE}")
    for number, damage in enumerate(
        (
            "flush ruleset",
            f"delete table {TABLE}",
            f"flush chain {TABLE} prerouting",
            f"insert rule {TABLE} prerouting accept",
            f"add table {TABLE} {{ flags dormant; }}",
            f"add chain {TABLE} prerouting {{ policy drop; }}",
        ),
        1,
    ):
        nft(damage)
        wait_for("the repair", lambda: running.fault_register.count_repairs()[FaultKind.FIREWALL] >= number)
        assert nft(f"list table {TABLE}") == before
        network.first.send("8.8.8.8", WORLD, 5)
        wait_for("the drops", lambda: spoofed(running) == {"trunk0": 5 * number})
        assert running.fault_register.count_repairs()[FaultKind.FIREWALL] == number


def test_a_table_is_looked_at_within_five_seconds_of_its_change() -> None:
    table, events = Mock(), Mock()
    events.follow.return_value = [None] * 3
    keep_tables([table], events)
    assert table.check.call_count == 3
    assert sum(events.follow.call_args.args) <= 5


def test_only_root_and_the_core_reach_the_command_line_of_a_source() -> None:
    with network_namespace(), socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        Firewall(time.time, command_line=(IPv4Address("127.0.0.1"), port)).configure(CONFIGURATION)
        for user in ("0", "65534"):
            connect = ["setpriv", f"--reuid={user}", "--clear-groups", "bash", "-c"]
            connect.append(f"exec 3<>/dev/tcp/127.0.0.1/{port}")
            connected = subprocess.run(connect, capture_output=True, timeout=60, check=False)
            assert (connected.returncode == 0) == (user == "0")
            assert (b"Connection refused" in connected.stderr) == (user != "0")


def test_a_table_that_cannot_be_loaded_is_a_fault_until_it_can(tmp_path: Path) -> None:
    program = tmp_path / "nft"
    program.write_text("#!/bin/sh\necho 'Error: Operation not permitted' >&2; exit 1\n")
    program.chmod(0o755)
    with network_namespace():
        firewall = Firewall(time.time, Nft(str(program)))
        firewall.configure(CONFIGURATION)
        (fault,) = firewall.fault_register.list_faults()
        assert (fault.kind, fault.object, fault.session_id) == (FaultKind.FIREWALL, TABLE, None)
        assert fault.reason == f"cannot load the table {TABLE}: Operation not permitted"
        program.write_text('#!/bin/sh\nexec nft "$@"\n')
        firewall.check()
        assert firewall.fault_register.list_faults() == []
        assert f"table {TABLE}" in nft("list ruleset")


@pytest.fixture
def core(tmp_path: Path) -> Iterator[LinuxCore]:
    with running_linux_core(tmp_path) as made:
        yield made


def test_the_rules_stay_while_the_core_is_dead_and_the_core_repairs_a_flush(core: LinuxCore) -> None:
    def to_world() -> None:
        with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as packets:
            packets.bind((far(VLAN), 0))
            address = KernelReader().find_link(VLAN).mac_address
            assert address is not None
            ethernet = bytes.fromhex(address.replace(":", "")) + bytes(6) + b"\x08\x00"
            packets.send(ethernet + udp("8.8.8.8", WORLD, b"x", PORT, PORT))

    def drops() -> dict[str, int]:
        return {each["trunk"]: each["spoofed"] for each in core.call("GetStatistics")["packet_drops"]}

    switch("echo 1 > ipv4/ip_forward")
    ip_batch(["address add 10.255.0.1/24 dev uplink0", "route add default via 10.255.0.2"])
    # It serves, so it has loaded them.
    table = nft(f"list chain {TABLE} forward")
    core.kill()
    to_world()
    wait_for("the drop", lambda: "packets 1 " in nft(f"list counter {TABLE} spoofed-trunk0"))
    core.start()
    assert nft(f"list chain {TABLE} forward") == table
    to_world()
    wait_for("both drops", lambda: drops() == {"trunk0": 2, "trunk1": 0, "ppp": 0})
    nft("flush ruleset")
    wait_for("the repair", lambda: TABLE in nft("list tables"))
    assert nft(f"list chain {TABLE} forward") == table
    wait_for("its count", lambda: core.repairs().get("firewall"))
    assert core.call("ListFaults")["faults"] == []


# Lines that send with many addresses, and the neighbours that the kernel keeps for them.


GATEWAY, GATEWAY6 = "100.64.0.1", "fe80::1"
#: More than the limit, and fewer than the kernel keeps.
FLOOD = 900


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
                line.sendto(payload, ("far0", ethertype, 0, 0, b"\xff" * 6))
    wait_for("the neighbours of the other line", lambda: neighbours("trunk0.101") >= 100)
    assert 500 <= neighbours("trunk0.100") <= 501 + 100 * (time.monotonic() - began)

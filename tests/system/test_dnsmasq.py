"""dnsmasq as a source of sessions with real clients, and the table of nftables that guards their leases."""

import shutil
import socket
import struct
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace as configured
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from pathlib import Path

import pytest
from msgspec.structs import replace

from gateway_contract.core.health import FaultKind, TriggerRefusal
from gateway_contract.core.sessions import SessionType
from gateway_core.configuration.running import RunningConfiguration
from gateway_core.gateways.linux.daemons.dnsmasq import LEASE_SECONDS, DnsmasqSource
from gateway_core.gateways.linux.daemons.source import SourceRefused, SourceSession, SourceUnavailable
from gateway_core.gateways.linux.daemons.subscriber_addresses import SessionPrefixes
from gateway_core.gateways.linux.dataplane.dhcp_guard import TABLE, DhcpGuard, list_bindings
from gateway_core.gateways.linux.dataplane.nftables import Nft
from gateway_core.gateways.linux.dataplane.plane import DataPlane
from gateway_core.gateways.linux.kernel.reader import KernelReader
from gateway_core.gateways.linux.threads import ThreadGroup
from gateway_core.records.clock import Clock
from tests.support.clocks import SteppedClock
from tests.support.core_clock import StillClock
from tests.support.dnsmasq import GATEWAY, Server, route, running_dnsmasq, the_session
from tests.support.documents import valid_document
from tests.support.namespaces import can, inside, ip, neighbour, network_namespace, network_of
from tests.support.nftables import elements, nft
from tests.support.packets import udp
from tests.support.sources import Lives
from tests.support.stack import wait_for
from tests.system import test_steering as steering

pytestmark = pytest.mark.skipif(
    not can("ip link add v type veth peer name w", "nft add table inet t"),
    reason="needs to be root, a kernel with veth and nf_tables, and nft",
)

ETHERTYPE_IPV4 = 0x0800
MAC, OTHER_MAC = "02:00:00:00:00:07", "02:00:00:00:00:08"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with running_dnsmasq(tmp_path) as server:
        server.add_vlan(301, MAC)
        # The subscribers of most tests are on the second VLAN: dnsmasq guesses the first.
        server.add_vlan(302, MAC)
        yield server


def test_a_lease_is_a_session(server: Server) -> None:
    assert server.source().list_sessions() == []
    before = int(time.time())
    subscriber = server.sign_on(302)
    source = server.source()
    session = the_session(source)
    assert session.type is SessionType.DHCP
    assert (session.username, session.mac_address) == (MAC, MAC)
    assert (session.access_interface, session.interface) == ("trunk0.302", "trunk0.302")
    assert session.ip_address.startswith("100.64.9.")
    assert before <= session.started_at <= time.time()
    assert (session.ipv6_address, session.delegated_prefixes, session.rate_down) == (None, (), None)
    # A session that did not change is the same object.
    assert source.list_sessions()[0] is session
    assert server.source().list_sessions() == [session]
    assert wait_for("DNS servers", subscriber.dns_servers) == ["192.0.2.53", "192.0.2.54"]


@pytest.fixture
def prefixes(server: Server) -> SessionPrefixes:
    """Those of the server, which has IPv6 then."""
    server.document["subscribers"] |= {
        "ipv6_range": "2001:db8::/40",
        "ipv6_dns_servers": ["2001:db8:ffff::53", "2001:db8:ffff::54"],
    }
    server.kill()
    server.start()
    prefixes = SessionPrefixes()
    prefixes.configure(RunningConfiguration.of(server.document).sections)
    return prefixes


def provide(session: SourceSession) -> None:
    """Makes what the session has in the kernel, but for limits."""
    assert session.ip_address and session.ipv6_prefix and session.ipv6_gateway
    wanted = steering.session(1, session.interface, IPv4Address(session.ip_address))
    prefix, gateway = IPv6Network(session.ipv6_prefix), IPv6Address(session.ipv6_gateway)
    made = replace(wanted, gateway=GATEWAY, prefix=prefix, ipv6_gateway=gateway)
    DataPlane(KernelReader()).apply(made)


def global_address(server: Server, device: str) -> str:
    """The IPv6 address that a subscriber's device has given itself."""
    command = inside(server.far_end, "ip", "-6", "-o", "address", "show", "dev", device, "scope", "global")

    def found() -> str:
        shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        return "" if "tentative" in shown else "".join(shown.split()[3:4]).partition("/")[0]

    address: str = wait_for("an IPv6 address", found)
    return address


def test_a_subscriber_is_told_the_dns_servers_of_ipv6_and_reached_at_the_prefix_of_its_session(
    server: Server, prefixes: SessionPrefixes
) -> None:
    server.sign_on(302)
    session = the_session(server.source(prefix_of=prefixes))
    with network_of(server.far_end):
        listener = socket.socket(socket.AF_INET6, socket.SOCK_RAW, socket.IPPROTO_ICMPV6)
    with listener:
        listener.settimeout(60)
        provide(session)
        # RFC 4861 section 4.2.
        while (message := listener.recv(2048))[0] != 134:
            pass
    servers = (IPv6Address("2001:db8:ffff::53"), IPv6Address("2001:db8:ffff::54"))
    # RFC 8106 section 5.1: the option has type 25 and five units of eight bytes.
    assert b"".join(server.packed for server in servers) in message
    assert bytes((25, 5)) in message
    address = global_address(server, "access302")
    assert session.ipv6_prefix and IPv6Address(address) in IPv6Network(session.ipv6_prefix)
    Path("/proc/sys/net/ipv6/conf/all/forwarding").write_text("1\n")
    with neighbour() as outside:
        ip(f"link add uplink0 type veth peer name near netns {outside}", "link set uplink0 up")
        ip("address add 2001:db8:ffff::1/64 dev uplink0 nodad")
        with network_of(outside):
            ip("link set near up", "address add 2001:db8:ffff::2/64 dev near nodad")
            ip("route add 2001:db8::/40 via 2001:db8:ffff::1")
        ping = inside(outside, "busybox", "ping6", "-c", "1", "-W", "1", address)
        wait_for("a reply", lambda: subprocess.run(ping, capture_output=True, check=False).returncode == 0)


def test_a_link_of_pppoe_gets_router_advertisements_and_no_reply_of_dhcp(
    server: Server, prefixes: SessionPrefixes
) -> None:
    # As the link of a session of PPPoE, but for its type.
    ip(f"link add ppp0 type veth peer name peer netns {server.far_end}", "link set ppp0 up")
    server.far("ip", "link", "set", "peer", "up")
    prefix = prefixes("100.64.9.16")
    assert prefix is not None
    ip(f"address add {GATEWAY}/32 dev ppp0", f"address add {prefix[1]}/64 dev ppp0 nodad")
    assert IPv6Address(global_address(server, "peer")) in prefix
    with network_of(server.far_end):
        listener = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(ETHERTYPE_IPV4))
    asked = ("busybox", "udhcpc", "-f", "-q", "-n", "-i", "peer", "-s", "/bin/true", "-T", "1", "-t", "3")
    received = []
    with listener:
        listener.bind(("peer", ETHERTYPE_IPV4))
        listener.setblocking(False)
        subprocess.run(inside(server.far_end, *asked), capture_output=True, check=False)
        with suppress(BlockingIOError):
            while True:
                received.append(listener.recv(2048))
    # By the protocol in the IPv4 header.
    assert [packet for packet in received if packet[9] == socket.IPPROTO_UDP] == []


def test_two_subscribers_are_two_sessions_and_a_release_ends_those_of_its_interface(server: Server) -> None:
    source = server.source()
    server.add_vlan(303, OTHER_MAC)
    server.sign_on(302)
    server.sign_on(303)
    wait_for("two sessions", lambda: len(source.list_sessions()) == 2)
    found = {session.access_interface: session.mac_address for session in source.list_sessions()}
    assert found == {"trunk0.302": MAC, "trunk0.303": OTHER_MAC}
    source.release("trunk0.302")
    assert the_session(source).access_interface == "trunk0.303"


def test_a_lease_of_dhcpv6_belongs_to_the_session_with_its_mac_address_and_vlan(server: Server) -> None:
    server.sign_on(302)
    source = server.source()
    session = the_session(source)
    # As dnsmasq 2.90 and its script leave it.
    with server.lease_file.open("a") as file:
        file.write("duid 00:01:00:01:32:95:77:8a:fa:e3:a2:a4:8f:08\n")
        file.write("4000000000 7 2001:db8:5::1bb * 00:01:00:01:32:95:77:9c:02:00:00:00:00:07\n")
    record = f"4b727e627f7afb2a 1795341085 {MAC} trunk0.302 4000000000 live -\n"
    (server.state / "records/2001:db8:5::1bb").write_text(record)
    assert source.list_sessions() == [replace(session, ipv6_address="2001:db8:5::1bb")]


#: Clients choose the type and the length of their hardware (RFC 2131 section 2, htype and hlen).
STRANGE = [(1, "0200000000990a0b"), (1, "02030405"), (32, "02" * 16)]


@pytest.mark.parametrize(("hardware_type", "hardware"), STRANGE)
def test_a_client_with_strange_hardware_is_a_session_without_a_mac_address(
    server: Server, hardware_type: int, hardware: str
) -> None:
    source = server.source()
    server.sign_on(302)
    home = the_session(source)
    address = server.sign_on_with(301, hardware, hardware_type)
    wait_for("its session", lambda: len(source.list_sessions()) == 2)
    (strange,) = (each for each in server.source().list_sessions() if each.ip_address == address)
    assert (strange.mac_address, strange.access_interface) == (None, "trunk0.301")
    source.terminate(strange)
    wait_for("the end", lambda: source.list_sessions() == [home])


def test_a_renewal_keeps_the_session_and_a_release_ends_it_for_an_unknown_reason(server: Server) -> None:
    subscriber = server.sign_on(302)
    source = server.source()
    session = the_session(source)
    route(session)
    leases = server.lease_file.read_bytes()
    # An expiry has whole seconds.
    time.sleep(1.1)
    subscriber.renew()
    wait_for("a later expiry", lambda: server.lease_file.read_bytes() != leases)
    assert the_session(source) is session
    subscriber.release()
    wait_for("the end", lambda: source.list_sessions() == [])
    assert source.read_ends([session.key])[session.key].reason == "unknown"
    server.sign_on(302)
    again = the_session(source)
    assert again.ip_address == session.ip_address
    assert again.key != session.key


def test_a_lease_that_moves_to_another_vlan_is_another_session(server: Server) -> None:
    server.sign_on(302).vanish()
    source = server.source()
    session = the_session(source)
    server.sign_on(301)
    wait_for("the move", lambda: the_session(source).access_interface == "trunk0.301")
    moved = the_session(source)
    assert moved.ip_address == session.ip_address
    assert moved.key != session.key
    # It is not terminated by its old record.
    source.terminate(session)
    time.sleep(0.5)
    assert the_session(source) is moved
    assert source.read_ends([session.key])[session.key].reason == "unknown"


def test_an_expired_or_terminated_lease_is_no_session(server: Server) -> None:
    server.sign_on(302)
    clock = StillClock(time.time())
    source = server.source(clock)
    session = the_session(source)
    clock.now += LEASE_SECONDS + 5
    assert source.list_sessions() == []
    assert session.ip_address.encode() in server.lease_file.read_bytes()
    assert source.read_ends([session.key])[session.key].reason == "session_timeout"
    source = server.source()
    session = the_session(source)
    for _ in range(2):
        source.terminate(session)
        wait_for("the end", lambda: source.list_sessions() == [])
    assert source.read_ends([session.key])[session.key].reason == "admin_disconnect"


def test_a_session_whose_vlan_is_gone_goes_on_and_cannot_be_terminated(server: Server) -> None:
    server.sign_on(302).vanish()
    source = server.source()
    session = the_session(source)
    ip("link delete trunk0.302")
    with pytest.raises(SourceRefused, match="No such device"):
        source.terminate(session)
    assert source.read_ends([session.key])[session.key].reason == "unknown"
    source.release("trunk0.302")
    assert the_session(source) is session
    # A VLAN that was created again is served.
    server.add_vlan(302, MAC)
    server.sign_on(302)
    assert the_session(source).access_interface == "trunk0.302"


@pytest.mark.parametrize("source_range", ["100.64.10.0/24", "100.64.9.0/25", "100.64.8.0/23"])
def test_a_session_of_a_former_network_ends_and_its_client_gets_an_address_of_the_new_one(
    server: Server, source_range: str
) -> None:
    subscriber = server.sign_on(302)
    source = server.source()
    session = the_session(source)
    route(session)
    server.reconfigure("cgnat.source_range", source_range)
    network = IPv4Network(source_range)
    ip(f"address replace {network[1]}/32 dev trunk0.302")
    assert the_session(source) is session
    if network.prefixlen == 23:
        # In the DHCP share of a larger network, it is renewed.
        subscriber.renew()
        assert the_session(source) is session
        # In a former trunk, it ends.
        server.reconfigure("demux.trunks", ["trunk1"])
    source.terminate(session)
    wait_for("the end", lambda: source.list_sessions() == [])
    assert source.read_ends([session.key])[session.key].reason == "admin_disconnect"
    if network.prefixlen != 23:
        # The client knows nothing of it yet.
        subscriber.renew("bound")
        address = the_session(source).ip_address
        assert address is not None and IPv4Address(address) in network


def test_a_session_lasts_through_the_death_of_dnsmasq_and_a_renewal(server: Server) -> None:
    subscriber = server.sign_on(302)
    source = server.source()
    session = the_session(source)
    route(session)
    server.kill()
    with pytest.raises(SourceUnavailable, match="not running"):
        source.list_sessions()
    # At its start, dnsmasq guesses another VLAN. With /32 it does not guess.
    ip(f"address add {GATEWAY}/24 dev trunk0.301 noprefixroute")
    server.start()
    time.sleep(1)
    assert the_session(source) is session
    subscriber.renew()
    time.sleep(0.5)
    assert the_session(source) is session


def test_the_vlans_of_leases_are_known_while_dnsmasq_does_not_run(server: Server) -> None:
    server.sign_on(302)
    # The client has its lease a moment before.
    the_session(server.source())
    server.kill()
    clock = StillClock(time.time())
    source = server.source(clock)
    assert source.find_leased_interfaces() == {"trunk0.302"}
    clock.now += LEASE_SECONDS + 5
    assert source.find_leased_interfaces() == set()
    # As before the first start of dnsmasq.
    server.lease_file.unlink()
    assert server.source().find_leased_interfaces() == set()


def test_a_record_or_a_line_that_is_damaged_hides_no_other(server: Server) -> None:
    server.sign_on(302)
    source = server.source()
    session = the_session(source)
    for left in (b"", bytes(90), b"0123456789abcdef 17953"):
        (server.state / "records/100.64.9.77").write_bytes(left)
        assert source.list_sessions() == [session]
        assert source.find_leased_interfaces() == {"trunk0.302"}
    line = server.lease_file.read_bytes()
    # Of the session itself, the address can still be read.
    damaged = line.replace(MAC.encode(), b"?")
    assert damaged != line
    server.lease_file.write_bytes(b"\xff\xfe 1 2\n" + damaged)
    assert source.list_sessions() == [session]
    assert server.source().list_sessions() == [session]


def test_a_lease_whose_record_was_lost_is_listed_from_its_next_renewal(server: Server) -> None:
    subscriber = server.sign_on(302)
    session = the_session(server.source())
    route(session)
    server.kill()
    shutil.rmtree(server.state)
    server.start()
    source = server.source()
    wait_for("the script", lambda: list(server.state.glob("records/*")))
    assert source.list_sessions() == []
    time.sleep(1.1)
    subscriber.renew()
    found = the_session(source)
    assert found.access_interface == "trunk0.302"
    assert found.key != session.key


def test_a_lease_that_outlives_a_reboot_is_another_session_without_a_word_of_its_client(
    server: Server,
) -> None:
    subscriber = server.sign_on(302)
    session = the_session(server.source())
    server.kill()
    server.boot_id = "2"
    server.start()
    source, booted = server.source(Clock("2")), Clock("2").boot_time()
    found = the_session(source)
    route(found)
    assert found.key != session.key
    assert found.started_at >= booted - 1
    fields = {"key": found.key, "acct_session_id": found.key, "started_at": found.started_at}
    assert found == replace(session, **fields)
    # After a restart of the core, and a renewal.
    assert the_session(server.source(Clock("2"))).key == found.key
    time.sleep(1.1)
    subscriber.renew()
    assert the_session(source).key == found.key


def test_the_script_sends_a_trigger_and_runs_no_command_of_a_host_name(
    server: Server, tmp_path: Path
) -> None:
    made = tmp_path / "made"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(str(server.trigger))
        listener.settimeout(60)
        server.sign_on(302, "-x", f"hostname:a $(touch {made}); touch {made}")
        assert listener.recv(10) == b""
        # It comes after the record.
        assert [session.username for session in server.source().list_sessions()] == [MAC]
    assert not made.exists()


def test_a_lease_file_that_is_being_written_or_is_empty_on_a_full_disk_ends_no_session(
    server: Server,
) -> None:
    server.sign_on(302)
    source = server.source()
    session = the_session(source)
    file = server.lease_file
    whole = file.read_bytes()
    file.write_bytes(b"")
    writer = threading.Timer(0.3, lambda: file.write_bytes(whole))
    writer.start()
    assert source.list_sessions() == [session]
    writer.join()
    # One that stays cut or empty is no answer.
    for left, reason in ((whole[:-5], "not whole"), (b"", "full")):
        file.write_bytes(left)
        for each in (source, server.source()):
            with pytest.raises(SourceUnavailable, match=reason):
                each.list_sessions()


def test_dnsmasq_serves_dhcp_on_vlans_of_its_trunks_alone(server: Server) -> None:
    server.source().serve(["trunk0.302"], SessionType.DHCP)
    with pytest.raises(SourceRefused):
        server.source().serve(["trunk0.302"], SessionType.PPPOE)
    server.add_vlan(303, OTHER_MAC)
    ip("link set trunk0.303 down", "link set trunk0.303 name trunk1.303", "link set trunk1.303 up")
    subscriber = server.start_client(303)
    server.sign_on(302)
    time.sleep(1)
    assert the_session(server.source()).mac_address == MAC
    assert not subscriber.has_lease()


# The table of nftables that keeps a MAC address to its VLAN.


_DISCOVER, _RELEASE = 1, 7
DEMUX = RunningConfiguration.of(valid_document()).sections.demux


def send_dhcp(server: Server, vlan: int, type: int, address: str, *macs: str) -> None:
    """Sends a message (RFC 2131 section 2) for each MAC address."""
    with network_of(server.far_end), socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM) as clients:
        for mac in macs:
            message = struct.pack("!BBBB8x4s12x", 1, 1, 6, 0, socket.inet_aton(address)) + bytes.fromhex(mac)
            message = message.ljust(236, b"\0") + b"\x63\x82\x53\x63" + bytes((53, 1, type, 54, 4))
            message += bytes((100, 64, 9, 1)) + b"\xff"
            packet = udp(address, "255.255.255.255", message, 68, 67)
            clients.sendto(packet, (f"access{vlan}", 0x0800, 0, 0, b"\xff" * 6))


@pytest.fixture
def source(server: Server) -> DnsmasqSource:
    return server.source()


@pytest.fixture
def guard(source: DnsmasqSource) -> DhcpGuard:
    guard = DhcpGuard(
        DEMUX, lambda: [binding(session) for session in source.list_sessions()], SteppedClock(), time.time
    )
    guard.sync()
    return guard


def binding(session: SourceSession) -> tuple[str, str | None]:
    return session.access_interface, session.mac_address


def refused(guard: DhcpGuard, reason: TriggerRefusal, least: int = 1) -> bool:
    guard.check()
    return guard.count_refusals()[reason] >= least


def test_the_mac_address_of_a_session_gets_no_lease_on_another_vlan_until_the_session_has_ended(
    server: Server, source: DnsmasqSource, guard: DhcpGuard
) -> None:
    subscriber = server.sign_on(302)
    session = the_session(source)
    route(session)
    guard.sync()
    clone = server.start_client(301)
    wait_for("several requests", lambda: refused(guard, TriggerRefusal.MAC_ELSEWHERE, 3))
    assert not clone.has_lease()
    # A release from there ends no session.
    before = guard.count_refusals()[TriggerRefusal.MAC_ELSEWHERE]
    send_dhcp(server, 301, _RELEASE, session.ip_address or "", MAC.replace(":", ""))
    wait_for("the release", lambda: refused(guard, TriggerRefusal.MAC_ELSEWHERE, before + 1))
    subscriber.renew()
    assert the_session(source) is session
    subscriber.release()
    wait_for("the end", lambda: source.list_sessions() == [])
    guard.sync()
    wait_for("the lease", clone.has_lease)
    moved = the_session(source)
    assert moved.access_interface == "trunk0.301"
    # A release of the gateway itself ends it.
    guard.sync()
    clone.vanish()
    source.terminate(moved)
    wait_for("the end", lambda: source.list_sessions() == [])


def test_it_moves_where_the_configuration_says_so(
    server: Server, source: DnsmasqSource, guard: DhcpGuard
) -> None:
    server.sign_on(302)
    the_session(source)
    guard.configure(configured(DEMUX, mac_moves=True))
    guard.sync()
    server.sign_on(301)
    wait_for("the move", lambda: the_session(source).access_interface == "trunk0.301")


def test_a_vlan_gets_as_many_leases_as_the_configuration_allows(
    server: Server, source: DnsmasqSource, guard: DhcpGuard
) -> None:
    guard.configure(configured(DEMUX, max_leases_per_vlan=1))
    subscriber = server.sign_on(302)
    session = the_session(source)
    subscriber.vanish()
    guard.sync()
    server.set_mac(302, OTHER_MAC)
    other = server.start_client(302)
    wait_for("several requests", lambda: refused(guard, TriggerRefusal.LEASES_FULL, 3))
    assert not other.has_lease()
    assert the_session(source) is session
    guard.configure(configured(DEMUX, max_leases_per_vlan=2))
    guard.sync()
    wait_for("the lease", other.has_lease)


def test_leases_of_strange_hardware_count_for_the_limit_of_their_vlan(
    server: Server, source: DnsmasqSource, tmp_path: Path
) -> None:
    lives = Lives(tmp_path / "core", source)
    guard = DhcpGuard(
        configured(DEMUX, max_leases_per_vlan=2),
        lambda: list_bindings(lives.tracker.sessions.all(), source.name),
        SteppedClock(),
        time.time,
    )
    # Eight octets, of which the first six are the same.
    addresses = {server.sign_on_with(302, f"0200000000990{number:03x}") for number in range(2)}
    wait_for("two sessions", lambda: {each.ip_address for each in source.list_sessions()} == addresses)
    lives.poll()
    guard.sync()
    third = server.start_client(302)
    wait_for("several requests", lambda: refused(guard, TriggerRefusal.LEASES_FULL, 3))
    assert not third.has_lease()
    server.sign_on(301)


def test_a_flood_of_mac_addresses_leaves_another_vlan_its_leases(
    server: Server, source: DnsmasqSource, guard: DhcpGuard
) -> None:
    server.set_mac(301, OTHER_MAC)
    # Behind the guard.
    nft("add table inet seen; add counter inet seen requests")
    nft("add chain inet seen input { type filter hook input priority 10; }")
    nft("add rule inet seen input iifname trunk0.302 udp dport 67 counter name requests")
    send_dhcp(server, 302, _DISCOVER, "0.0.0.0", *(f"03{n:010x}" for n in range(2000)))
    server.sign_on(301)
    assert the_session(source).access_interface == "trunk0.301"
    assert refused(guard, TriggerRefusal.LEASES_RATE_LIMITED, 1000)
    assert int(nft("list counter inet seen requests").split("packets ")[1].split()[0]) < 1000


def test_a_mac_address_has_one_lease_whatever_its_client_identifier(
    server: Server, source: DnsmasqSource
) -> None:
    server.sign_on(302, "-x", "0x3d:ff01", "-C").vanish()
    server.sign_on(302, "-x", "0x3d:ff02", "-C")
    the_session(source)


def test_what_others_change_is_repaired_at_the_next_look_and_elements_within_a_minute() -> None:
    clock = SteppedClock()
    with network_namespace():
        guard = DhcpGuard(DEMUX, lambda: [("trunk0.301", MAC), ("trunk0.302", OTHER_MAC)], clock, time.time)
        guard.sync()
        guard.check()
        before = nft(f"list table {TABLE}")
        for number, (damage, seconds) in enumerate(
            (
                ("flush ruleset", 0),
                (f"flush chain {TABLE} requests", 0),
                (f"insert rule {TABLE} input accept", 0),
                (f"flush set {TABLE} homes", 60),
                (f'delete element {TABLE} homes {{ "trunk0.301" . 0x{MAC.replace(":", "")} }}', 60),
                (f'add element {TABLE} full {{ "trunk0.302" }}', 60),
                (f'add element {TABLE} macs {{ 0x020000000009 comment "mine" }}', 60),
            ),
            1,
        ):
            nft(damage)
            clock.now += seconds
            guard.check()
            assert nft(f"list table {TABLE}") == before
            assert guard.fault_register.count_repairs()[FaultKind.FIREWALL] == number
    assert guard.fault_register.list_faults() == []


def test_elements_that_packets_add_are_no_change_of_others(server: Server, guard: DhcpGuard) -> None:
    send_dhcp(server, 302, _DISCOVER, "0.0.0.0", MAC.replace(":", ""))
    wait_for("the element", lambda: elements(TABLE, "new"))
    guard.check()
    assert guard.fault_register.count_repairs()[FaultKind.FIREWALL] == 0
    assert elements(TABLE, "new")


def test_a_session_that_ends_after_the_table_is_gone_leaves_no_fault() -> None:
    sessions = [("trunk0.301", MAC), ("trunk0.302", OTHER_MAC)]
    with network_namespace():
        guard = DhcpGuard(DEMUX, lambda: sessions, SteppedClock(), time.time)
        guard.sync()
        nft("flush ruleset")
        sessions.pop()
        guard.sync()
        assert elements(TABLE, "homes") == elements(TABLE, "macs") == 1
    assert guard.fault_register.list_faults() == []
    assert guard.fault_register.count_repairs()[FaultKind.FIREWALL] == 1


def test_many_sessions_are_loaded_in_parts_and_followed() -> None:
    sessions = {(f"trunk0.{id}", f"02:00:00:00:{id >> 8:02x}:{id & 0xFF:02x}") for id in range(1, 4095)}
    with network_namespace():
        guard = DhcpGuard(DEMUX, lambda: sessions, SteppedClock(), time.time)
        guard.sync()
        assert elements(TABLE, "homes") == len(sessions)
        sessions -= {each for each in sessions if each[0].endswith("7")}
        guard.sync()
        assert elements(TABLE, "homes") == elements(TABLE, "macs") == len(sessions)
        # Without dnsmasq, there is no table.
        DhcpGuard(DEMUX, None, SteppedClock(), time.time).sync()
        assert Nft().list_table(TABLE) is None


def test_while_it_runs_a_new_session_is_followed_within_a_moment() -> None:
    sessions = [("trunk0.301", MAC)]

    def bindings() -> list[tuple[str, str]]:
        if not sessions:
            raise EOFError
        return sessions

    with network_namespace():
        guard = DhcpGuard(DEMUX, bindings, time.monotonic, time.time)
        thread_group = ThreadGroup()
        thread_group.start(guard.run)
        wait_for("the first", lambda: elements(TABLE, "homes") == 1)
        sessions.append(("trunk0.302", OTHER_MAC))
        guard.request_sync()
        wait_for("the other", lambda: elements(TABLE, "homes") == 2)
        sessions.clear()
        guard.request_sync()
        with pytest.raises(EOFError):
            thread_group.wait()

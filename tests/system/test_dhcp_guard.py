"""The table of nftables that keeps a MAC address to its VLAN: leases that real clients get from a real
dnsmasq, or not."""

import socket
import struct
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from gateway_contract.core.health import FaultKind, TriggerRefusal
from gateway_core.configuration.running import RunningConfiguration
from gateway_core.gateways.linux.daemons.dnsmasq import DnsmasqSource
from gateway_core.gateways.linux.daemons.source import SourceSession
from gateway_core.gateways.linux.dataplane.dhcp_guard import TABLE, DhcpGuard, list_bindings
from gateway_core.gateways.linux.dataplane.nftables import Nft
from gateway_core.gateways.linux.threads import Crew
from tests.support.clocks import SteppedClock
from tests.support.dnsmasq import Server, route, running_dnsmasq, the_session
from tests.support.documents import valid_document
from tests.support.namespaces import can, network_namespace, network_of
from tests.support.nftables import elements, nft
from tests.support.packets import udp
from tests.support.sources import Lives
from tests.support.stack import wait_for

pytestmark = pytest.mark.skipif(
    not can("ip link add v type veth peer name w", "nft add table inet t"),
    reason="needs to be root, a kernel with veth and nf_tables, and nft",
)

MAC, OTHER_MAC = "02:00:00:00:00:07", "02:00:00:00:00:08"
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
def server(tmp_path: Path) -> Iterator[Server]:
    """Two VLANs with the same MAC address."""
    with running_dnsmasq(tmp_path) as server:
        server.add_vlan(301, MAC)
        server.add_vlan(302, MAC)
        yield server


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
    guard.configure(replace(DEMUX, mac_moves=True))
    guard.sync()
    server.sign_on(301)
    wait_for("the move", lambda: the_session(source).access_interface == "trunk0.301")


def test_a_vlan_gets_as_many_leases_as_the_configuration_allows(
    server: Server, source: DnsmasqSource, guard: DhcpGuard
) -> None:
    guard.configure(replace(DEMUX, max_leases_per_vlan=1))
    subscriber = server.sign_on(302)
    session = the_session(source)
    subscriber.vanish()
    guard.sync()
    server.set_mac(302, OTHER_MAC)
    other = server.start_client(302)
    wait_for("several requests", lambda: refused(guard, TriggerRefusal.LEASES_FULL, 3))
    assert not other.has_lease()
    assert the_session(source) is session
    guard.configure(replace(DEMUX, max_leases_per_vlan=2))
    guard.sync()
    wait_for("the lease", other.has_lease)


def test_leases_of_strange_hardware_count_for_the_limit_of_their_vlan(
    server: Server, source: DnsmasqSource, tmp_path: Path
) -> None:
    lives = Lives(tmp_path / "core", source)
    guard = DhcpGuard(
        replace(DEMUX, max_leases_per_vlan=2),
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
        crew = Crew()
        crew.start(guard.run)
        wait_for("the first", lambda: elements(TABLE, "homes") == 1)
        sessions.append(("trunk0.302", OTHER_MAC))
        guard.request_sync()
        wait_for("the other", lambda: elements(TABLE, "homes") == 2)
        sessions.clear()
        guard.request_sync()
        with pytest.raises(EOFError):
            crew.wait()

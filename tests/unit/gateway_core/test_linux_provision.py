"""The surroundings of sessions of the Linux gateway: their state in the kernel, traffic and VLANs."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from ipaddress import IPv4Address, IPv6Network
from pathlib import Path
from typing import Any

import pytest

from gateway_contract.base.errors import GatewayApiError
from gateway_contract.core.health import FaultKind
from gateway_contract.core.network import OVERHEAD_PROFILES, InterfaceStats
from gateway_contract.core.sessions import SessionState, SessionType
from gateway_core.configuration.running import RunningConfiguration
from gateway_core.gateways.linux.assembly import DesiredSessions, find_occupancy
from gateway_core.gateways.linux.daemons.source import SourceRefused, SourceTraffic, SourceUnavailable
from gateway_core.gateways.linux.dataplane.fault_register import FaultRegister, PlanePart
from gateway_core.gateways.linux.dataplane.plane import DataPlane, KernelState, WantedSession
from gateway_core.gateways.linux.dataplane.reconciler import Reconciler
from gateway_core.gateways.linux.dataplane.routes import RouteState, find_surplus
from gateway_core.gateways.linux.demux.admission import AccessVlan, Occupancy
from gateway_core.gateways.linux.demux.vlan_devices import VlanService
from gateway_core.gateways.linux.kernel import netlink
from gateway_core.gateways.linux.kernel.fib import FibEntry
from gateway_core.gateways.linux.kernel.links import LinkEntry, add_address, enable_proxy_arp
from gateway_core.gateways.linux.kernel.netlink import KernelChange, KernelError
from gateway_core.gateways.linux.kernel.qdiscs import QdiscEntry
from gateway_core.gateways.linux.kernel.reader import KernelReader
from gateway_core.gateways.linux.sessions.provision import (
    DeviceCounters,
    Provision,
    make_wanted_session,
)
from gateway_core.gateways.linux.sessions.session import NO_COUNTERS, LinuxSession, SessionRecord
from gateway_core.gateways.linux.threads import ThreadGroup
from gateway_core.gateways.linux.views import CachedReading
from gateway_core.sessions.session import Counters
from tests.support.clocks import NOW, SteppedClock
from tests.support.core_clock import StillClock
from tests.support.documents import valid_document
from tests.support.links import KnownLinks, link, on_vlan, session
from tests.support.sources import TERMS, ListedSource, Lives, listed
from tests.support.workspaces import no_file_longer_than

CONFIGURATION = RunningConfiguration.of(valid_document()).sections
GIB_4 = 2**32


@pytest.fixture
def kernel() -> KnownLinks:
    return KnownLinks()


@pytest.fixture
def counters(kernel: KnownLinks) -> DeviceCounters:
    return DeviceCounters(kernel)


@pytest.fixture
def provision(counters: DeviceCounters) -> Provision:
    return Provision(CONFIGURATION, counters)


def stats(received: int, sent: int) -> InterfaceStats:
    return InterfaceStats(
        rx_bytes=received, tx_bytes=sent, rx_packets=received // 100, tx_packets=sent // 100
    )


# What the kernel must have


def test_a_pppoe_session_wants_limits_on_its_device_and_no_host_route_of_ours() -> None:
    wanted = make_wanted_session(session(5, interface="ppp0", access_interface="trunk0.200"))
    assert (wanted.device, wanted.ifb, wanted.access_interface) == ("ppp0", "ifb-ppp0", "trunk0.200")
    assert (wanted.rate_down, wanted.rate_up) == (TERMS.rate_down, TERMS.rate_up)
    assert (wanted.address, wanted.gateway) == (IPv4Address("100.64.0.10"), IPv4Address("100.64.0.1"))
    assert (wanted.sets_host_route, wanted.profile.name) == (False, "pppoe_ethernet")


def test_a_dhcp_session_wants_a_host_route_and_one_of_ipv6_alone_its_prefixes_routed() -> None:
    wanted = make_wanted_session(on_vlan(6, "trunk0.100"))
    assert (wanted.device, wanted.ifb, wanted.sets_host_route) == ("trunk0.100", "ifb-trunk0.100", True)
    # A name that fits.
    assert make_wanted_session(on_vlan(6, "trunk0.1000.200")).ifb == "ifb-6"
    wanted = make_wanted_session(session(8, ip_address=None, delegated_prefixes=("2001:db8:8::/56",)))
    assert (wanted.address, wanted.gateway) == (None, None)
    assert wanted.delegated == (IPv6Network("2001:db8:8::/56"),)


def test_what_is_wanted_follows_the_sessions_and_says_which_changed(provision: Provision) -> None:
    told: list[tuple[int, ...]] = []
    provision.changes = lambda *ids: told.append(ids)
    provision.add_sessions([session(1), session(2)])
    before = provision.get_wanted()
    provision.update_sessions([session(2, interface="ppp7")])
    provision.remove_sessions([session(1)])
    assert [(id, wanted.device) for id, wanted in provision.get_wanted().items()] == [(2, "ppp7")]
    assert told == [(1, 2), (2,), (1,)]
    # Readers may still iterate over it.
    assert list(before) == [1, 2]
    # New sessions get the terms of a new configuration.
    provision.configure(replace(CONFIGURATION, qos=replace(CONFIGURATION.qos, default_down=7_000_000)))
    assert provision.make_terms(listed("a")).rate_down == 7_000_000
    assert provision.addresses == (IPv4Address("100.64.0.1"),)


# Traffic


def ended(
    provision: Provision,
    counters: DeviceCounters,
    kernel: KnownLinks,
    seen: tuple[int, int],
    of: LinuxSession,
    counted: SourceTraffic | None = None,
) -> Counters:
    """The traffic of a session whose device has gone since the last sweep."""
    kernel.found = [link(20, of.interface, stats=stats(*seen))]
    counters.sweep([of])
    kernel.found = []
    return provision.find_traffic(of, counted)


@pytest.mark.parametrize(
    ("seen", "counted", "total"),
    [
        ((GIB_4 + 1000, 2000), (1500, 2000), (GIB_4 + 1500, 2000)),
        # They have wrapped since the sweep.
        ((GIB_4 - 10, 3 * GIB_4 - 1), (90, 0), (GIB_4 + 90, 3 * GIB_4)),
        # pppd begins to count later than the device.
        ((300, GIB_4 + 300), (0, 120), (300, GIB_4 + 300)),
        ((1000, 2000), None, (1000, 2000)),
    ],
)
def test_the_source_counts_what_came_after_the_last_sweep(
    provision: Provision, counters: DeviceCounters, kernel: KnownLinks,
    seen: tuple[int, int], counted: tuple[int, int] | None, total: tuple[int, int],
) -> None:  # fmt: skip
    of = session(5, interface="ppp0")
    found = ended(provision, counters, kernel, seen, of, counted and SourceTraffic(*counted))
    assert (found.bytes_in, found.bytes_out) == total
    assert (found.packets_in, found.packets_out) == (seen[0] // 100, seen[1] // 100)
    # A session that begins and ends on its device before the next sweep has none of its traffic.
    provision.add_sessions([second := session(6, interface="ppp0")])
    assert provision.find_traffic(second, None) == NO_COUNTERS


def test_a_session_that_has_ended_does_not_get_the_traffic_of_the_next_one_on_a_device_of_its_name(
    provision: Provision, counters: DeviceCounters, kernel: KnownLinks
) -> None:
    first, second = session(5, interface="ppp0"), session(6, interface="ppp0")
    kernel.found = [link(20, "ppp0", stats=stats(5000, 6000))]
    counters.sweep([first])
    # Its source has not told the end yet.
    for sent in (100, 10_000):
        kernel.found = [link(21, "ppp0", stats=stats(100, sent))]
        assert counters.read_traffic(first) == Counters(5000, 6000, 50, 60)
        counters.sweep([first])
        assert counters.get_swept_traffic(first) == Counters(5000, 6000, 50, 60)
    assert provision.find_traffic(first, None) == Counters(5000, 6000, 50, 60)
    provision.add_sessions([second])
    assert counters.read_traffic(second) == Counters(100, 10_000, 1, 100)
    counters.sweep([second])
    assert counters.get_swept_traffic(second) == Counters(100, 10_000, 1, 100)


def test_a_session_without_a_device_of_its_own_goes_on_with_a_device_that_was_made_anew(
    counters: DeviceCounters, kernel: KnownLinks
) -> None:
    lasting = on_vlan(6, "trunk0.100")
    for index, received in ((20, 5000), (21, 100), (21, 200)):
        kernel.found = [link(index, "trunk0.100", stats=stats(received, 0))]
        counters.sweep([lasting])
        assert counters.get_swept_traffic(lasting).bytes_in == received


def test_a_dhcp_session_counts_from_its_start_and_no_less_than_nothing_on_a_device_made_anew(
    provision: Provision, counters: DeviceCounters, kernel: KnownLinks
) -> None:
    kernel.found = [link(20, "trunk0.100", stats=stats(1000, 2000))]
    item = listed("6", type=SessionType.DHCP, interface="trunk0.100")
    record = SessionRecord.new(item, TERMS, provision.read_baseline(item))
    later = LinuxSession.of(6, on_vlan(6, "trunk0.100").key, record, SessionState.ACTIVE, (True, True))
    assert ended(provision, counters, kernel, (1500, 2600), later) == Counters(500, 600, 5, 6)
    # As many packets as at the start of the session, and smaller ones.
    small = InterfaceStats(rx_bytes=600, tx_bytes=900, rx_packets=10, tx_packets=20)
    kernel.found = [link(21, "trunk0.100", stats=small)]
    assert counters.read_traffic(later) == Counters(600, 900, 10, 20)


def test_without_a_baseline_a_session_counts_all(provision: Provision, kernel: KnownLinks) -> None:
    kernel.fails = True
    assert provision.read_baseline(listed("6")) == NO_COUNTERS


# VLANs


def test_each_type_is_served_by_its_source_and_dhcp_on_an_address(monkeypatch: pytest.MonkeyPatch) -> None:
    # The link is not in this machine's kernel; tests/system/test_vlan_serving.py has real ones.
    done: list[object] = []

    class Noting(ListedSource):
        def serve(self, interfaces: Sequence[str], type: SessionType) -> None:
            super().serve(interfaces, type)
            done.extend(interfaces)

    def make(step: str, changes: Sequence[KernelChange]) -> list[int]:
        done.extend(changes)
        return [0 for _ in changes]

    monkeypatch.setattr(netlink, "try_changes", make)
    pppoe, dhcp, address = Noting("pppoe-server"), Noting("dnsmasq"), IPv4Address("100.64.0.1")
    sources = {SessionType.PPPOE: pppoe, SessionType.DHCP: dhcp}
    serving = VlanService(sources, KnownLinks(link(11, "trunk0.100")), lambda: [address])
    serving.serve(["trunk0.200"], SessionType.PPPOE)
    serving.serve(["trunk0.100"], SessionType.DHCP)
    assert done == ["trunk0.200", add_address(11, address), enable_proxy_arp(11), "trunk0.100"]
    assert (list(pppoe.served), list(dhcp.served)) == (["trunk0.200"], ["trunk0.100"])
    # A source of another type that does not reply is no obstacle.
    dhcp.fails = True
    serving.release("trunk0.200", [SessionType.PPPOE])
    assert pppoe.served == {}
    with pytest.raises(SourceUnavailable, match="cannot reach dnsmasq"):
        serving.release("trunk0.100", SessionType)
    del sources[SessionType.DHCP]
    with pytest.raises(SourceRefused, match=r"no source of this gateway serves DHCP"):
        serving.serve(["trunk0.100"], SessionType.DHCP)


# The desired state


class Vlans:
    """Devices, a server of VLANs and a demux, which note what is done in which order."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.fails = ""

    def make(self, vlan: AccessVlan, *, is_own: bool) -> None:
        self._do(f"make {vlan.name}" if is_own else f"make {vlan.name} for an operator")

    def is_managed(self, vlan: AccessVlan) -> bool:
        return vlan.vlan_id >= 100

    def release(self, interface: str, types: Collection[SessionType]) -> None:
        self._do(f"release {interface}")

    def adopt(self, trunk: str) -> None:
        self._do(f"adopt {trunk}")

    def _do(self, what: str) -> None:
        if what == self.fails:
            raise SourceUnavailable("it does not reply")
        self.done.append(what)


@pytest.fixture
def lives(tmp_path: Path) -> Any:
    made = Lives(tmp_path, ListedSource("accel-ppp"), ListedSource("other"))
    yield made
    made.kill()


@pytest.fixture
def vlans() -> Vlans:
    return Vlans()


@pytest.fixture
def desired(provision: Provision, lives: Lives, vlans: Vlans) -> DesiredSessions:
    return DesiredSessions(provision, lives.tracker, vlans, vlans, vlans)


def test_the_desired_state_is_complete_from_the_first_reply_of_every_source_on_and_fresh_while_all_reply(
    desired: DesiredSessions, lives: Lives
) -> None:
    one, two = lives.sources
    for fails, expected in (
        ((False, True), (False, False)),
        # The sessions of one that falls silent later are known.
        ((True, False), (True, False)),
        ((False, False), (True, True)),
    ):
        one.fails, two.fails = fails
        lives.poll()
        assert (desired.is_complete(), desired.is_fresh()) == expected


# VLANs with sessions

TYPES = {SessionType.PPPOE: "accel-ppp", SessionType.DHCP: "other"}


def test_a_source_that_does_not_reply_may_have_more_sessions_of_its_type(lives: Lives) -> None:
    one, two = lives.sources
    one.up(listed("a", access_interface="trunk0.300"))
    assert set(find_occupancy(lives.tracker, TYPES).unknown) == {*TYPES}
    lives.poll()
    assert find_occupancy(lives.tracker, TYPES) == Occupancy({"trunk0.300"}, set())
    two.fails = True
    lives.poll()
    assert find_occupancy(lives.tracker, TYPES) == Occupancy({"trunk0.300"}, {SessionType.DHCP})


def test_a_source_with_a_session_that_the_disk_has_no_room_for_has_more_sessions(lives: Lives) -> None:
    lives.poll()
    lives.sources[0].up(listed("a", access_interface="trunk0.300"))
    with no_file_longer_than(0):
        lives.poll()
        assert find_occupancy(lives.tracker, TYPES) == Occupancy(set(), {SessionType.PPPOE})
    lives.poll()
    assert find_occupancy(lives.tracker, TYPES) == Occupancy({"trunk0.300"}, set())


def test_a_vlan_is_restored_as_whose_it_was_after_its_release(desired: DesiredSessions, vlans: Vlans) -> None:
    vlans.fails = "release trunk0.100"
    with pytest.raises(GatewayApiError, match="does not reply"):
        desired.restore_vlan("trunk0.100")
    vlans.fails = ""
    for name in ("eth9", "trunk0", "other0.100"):
        desired.restore_vlan(name)
    assert vlans.done == []
    for name, made in (("trunk0.100", ""), ("trunk0.10", " for an operator")):
        desired.restore_vlan(name)
        assert vlans.done[-3:] == [f"release {name}", f"make {name}{made}", "adopt trunk0"]


# Readings that are shared


def test_a_reading_is_shared_for_a_second_and_not_after_a_change_or_a_failure() -> None:
    replies: Iterator[int | KernelError] = iter([KernelError("read the links", "No buffer space"), 0, 1, 2])

    def read() -> int:
        reply = next(replies)
        if isinstance(reply, KernelError):
            raise reply
        return reply

    clock = SteppedClock()
    reading = CachedReading(read, clock)
    with pytest.raises(KernelError):
        reading.get()
    assert [reading.get(), reading.get()] == [0, 0]
    clock.now += 0.9
    assert reading.get() == 0
    clock.now += 0.1
    assert reading.get() == 1
    reading.forget()
    assert [reading.get(), reading.get()] == [2, 2]


# What a session must have in the kernel, against made-up readings.


ADDRESS, GATEWAY = IPv4Address("100.64.0.9"), IPv4Address("100.64.0.1")
PREFIX = IPv6Network("2001:db8:9::/56")
WANTED = WantedSession(
    7, "ppp0", "ifb-ppp0", "trunk0.100", 20_000_000, 5_000_000, OVERHEAD_PROFILES["pppoe_ethernet"],
    ADDRESS, True, GATEWAY, (PREFIX,),
)  # fmt: skip
LINKS = {
    "ppp0": LinkEntry(10, "ppp0", True, False),
    "ifb-ppp0": LinkEntry(11, "ifb-ppp0", True, True),
    "trunk0.100": LinkEntry(4, "trunk0.100", True, True),
}
QDISCS = (
    QdiscEntry(10, 0xFFFFFFFF, 0x20000, "tbf"),
    QdiscEntry(10, 0x20001, 0x110000, "fq_codel"),
    QdiscEntry(10, 0xFFFFFFF1, 0xFFFF0000, "ingress"),
    QdiscEntry(11, 0xFFFFFFFF, 0x20000, "tbf"),
    QdiscEntry(11, 0x20001, 0x110000, "fq_codel"),
)
HOST = FibEntry(254, ADDRESS.packed, 32, 10, None, GATEWAY.packed)
DELEGATED = FibEntry(254, PREFIX.network_address.packed, 56, 10, None, None)
WHOLE = KernelState(LINKS, frozenset(QDISCS), RouteState({HOST, DELEGATED}, {}), (), 0)


def test_each_missing_qdisc_is_a_difference() -> None:
    # Not each kernel has fq_codel: tests/system damages the other parts of a session.
    plane = DataPlane(KernelReader())
    routes = [route for _, route in plane.list_routes(WANTED, 10)]
    assert not plane.has_differences(WANTED, WHOLE, routes)
    for missing in QDISCS:
        assert plane.has_differences(WANTED, WHOLE._replace(qdiscs=WHOLE.qdiscs - {missing}), routes)


def test_a_route_in_place_of_an_expected_one_is_not_left_over() -> None:
    # To delete it without a source would delete the expected one.
    former, elsewhere = HOST._replace(source=None), HOST._replace(ifindex=9)
    assert find_surplus({former, elsewhere}, {HOST}) == [elsewhere]


IFB = PlanePart(FaultKind.IFB, "ifb-ppp0")
SHAPER = PlanePart(FaultKind.SHAPER, "ppp0")


def test_a_fault_that_stays_keeps_its_time_and_its_reason() -> None:
    clock = SteppedClock()
    register = FaultRegister(clock.wall)
    register.set_faults(7, {IFB: "first"})
    clock.now += 60
    register.set_faults(7, {IFB: "second", SHAPER: "third"})
    found = {(fault.object, fault.since, fault.reason) for fault in register.list_faults_of(7)}
    assert found == {("ifb-ppp0", NOW + 1000, "first"), ("ppp0", NOW + 1060, "third")}
    register.set_faults(7, {})
    assert register.list_faults() == []


def test_faults_take_turns() -> None:
    register = FaultRegister(SteppedClock().wall)
    for id in (7, 8, None):
        register.set_faults(id, {IFB: "reason"})
    register.set_faults(7, {IFB: "reason"})
    assert register.list_faulty_sessions() == [8, None, 7]


def test_each_fault_is_logged_when_it_comes_and_when_it_goes(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    register = FaultRegister(SteppedClock().wall)
    for failed in ({IFB: "no space"}, {IFB: "no space"}, {}):
        register.set_faults(7, failed)
        register.report()
    assert caplog.messages == [
        "cannot repair kernel state of kind ifb, the core tries again: ifb-ppp0: no space",
        "faults of kind ifb have ended: ifb-ppp0",
    ]


# The reconciler


class LastTurn:
    """The desired state in the last turn of a reconciler, which cannot read the kernel then."""

    def __init__(self) -> None:
        self.reconciler = Reconciler(DataPlane(KernelReader()), self, StillClock())

    def get_wanted(self) -> dict[int, WantedSession]:
        return {7: WANTED}

    def is_complete(self) -> bool:
        self.reconciler.stop()
        raise KernelError("read the links", "out of memory")

    def is_fresh(self) -> bool:
        return True

    def restore_vlan(self, interface: str) -> bool:
        return False


def test_a_kernel_that_cannot_be_read_is_logged_and_ends_no_reconciler(
    caplog: pytest.LogCaptureFixture,
) -> None:
    LastTurn().reconciler.run(ThreadGroup())
    assert caplog.messages == [
        "cannot compare the data plane with the sessions: cannot read the links: out of memory; "
        "trying again in 5 s"
    ]


def test_only_the_faults_of_a_session_end_with_it() -> None:
    reconciler = LastTurn().reconciler
    for id in (None, 7, 8):
        reconciler.fault_register.set_faults(id, {IFB: "no space"})
    reconciler.apply_soon(8)
    reconciler.run(ThreadGroup())
    assert reconciler.fault_register.list_faulty_sessions() == [None, 7]

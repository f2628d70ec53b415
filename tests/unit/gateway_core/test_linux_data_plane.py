"""What a session must have, against made-up readings of the kernel."""

from ipaddress import IPv4Address, IPv6Network

import pytest

from gateway_contract.core.health import FaultKind
from gateway_contract.core.network import OVERHEAD_PROFILES
from gateway_core.gateways.linux.dataplane.fault_register import FaultRegister, Place
from gateway_core.gateways.linux.dataplane.plane import DataPlane, KernelState, WantedSession
from gateway_core.gateways.linux.dataplane.reconciler import Reconciler
from gateway_core.gateways.linux.dataplane.routes import RouteState, find_surplus
from gateway_core.gateways.linux.kernel.fib import FibEntry
from gateway_core.gateways.linux.kernel.links import LinkEntry
from gateway_core.gateways.linux.kernel.netlink import KernelError
from gateway_core.gateways.linux.kernel.qdiscs import QdiscEntry
from gateway_core.gateways.linux.kernel.reader import KernelReader
from gateway_core.gateways.linux.threads import Crew
from tests.support.clocks import NOW, SteppedClock
from tests.support.core_clock import StillClock

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


IFB = Place(FaultKind.IFB, "ifb-ppp0")
SHAPER = Place(FaultKind.SHAPER, "ppp0")


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
    LastTurn().reconciler.run(Crew())
    assert caplog.messages == [
        "cannot compare the data plane with the sessions: cannot read the links: out of memory; "
        "trying again in 5 s"
    ]


def test_only_the_faults_of_a_session_end_with_it() -> None:
    reconciler = LastTurn().reconciler
    for id in (None, 7, 8):
        reconciler.fault_register.set_faults(id, {IFB: "no space"})
    reconciler.apply_soon(8)
    reconciler.run(Crew())
    assert reconciler.fault_register.list_faulty_sessions() == [None, 7]

"""What a session must have, against made-up readings of the kernel."""

from ipaddress import IPv4Address, IPv4Network, IPv6Network

import pytest
from msgspec.structs import replace

from gateway_api.core.gateways.linux.dataplane.fault_register import FaultRegister, Place
from gateway_api.core.gateways.linux.dataplane.plane import DataPlane
from gateway_api.core.gateways.linux.dataplane.reconciler import Reconciler
from gateway_api.core.gateways.linux.dataplane.routes import Steering, surplus
from gateway_api.core.gateways.linux.dataplane.wanted import (
    KernelState,
    RouteState,
    WantedSession,
)
from gateway_api.core.gateways.linux.kernel.fib import FibEntry
from gateway_api.core.gateways.linux.kernel.links import LinkEntry
from gateway_api.core.gateways.linux.kernel.messages import KernelError
from gateway_api.core.gateways.linux.kernel.qdiscs import QdiscEntry
from gateway_api.core.gateways.linux.kernel.reader import KernelReader
from gateway_api.core.gateways.linux.threads import Crew
from gateway_api.wire.configuration import Cgnat
from gateway_api.wire.core.health import FaultKind
from gateway_api.wire.core.network import OVERHEAD_PROFILES
from tests.support.clocks import NOW, SteppedClock, StillClock

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
ROUTES = {HOST, DELEGATED}
WHOLE = KernelState(LINKS, frozenset(QDISCS), RouteState(ROUTES, {}), (), 0)


@pytest.fixture
def plane() -> DataPlane:
    return DataPlane(KernelReader())


def differs(plane: DataPlane, wanted: WantedSession, state: KernelState) -> bool:
    routes = [route for _, route in plane.routes(wanted, state.links[wanted.device].ifindex)]
    return plane.differs(wanted, state, routes)


def test_a_session_with_all_does_not_differ(plane: DataPlane) -> None:
    assert not differs(plane, WANTED, WHOLE)


@pytest.mark.parametrize("missing", QDISCS)
def test_each_missing_qdisc_is_a_difference(plane: DataPlane, missing: QdiscEntry) -> None:
    assert differs(plane, WANTED, WHOLE._replace(qdiscs=WHOLE.qdiscs - {missing}))


@pytest.mark.parametrize("missing", [HOST, DELEGATED])
def test_each_missing_route_is_a_difference(plane: DataPlane, missing: FibEntry) -> None:
    assert differs(plane, WANTED, WHOLE._replace(routes=RouteState(ROUTES - {missing}, {})))


@pytest.mark.parametrize(
    "other",
    [
        HOST._replace(ifindex=9),
        HOST._replace(source=None),
        HOST._replace(gateway=bytes(4)),
        HOST._replace(table=9),
    ],
)
def test_another_route_to_the_address_is_a_difference(plane: DataPlane, other: FibEntry) -> None:
    assert differs(plane, WANTED, WHOLE._replace(routes=RouteState({other, DELEGATED}, {})))


def test_a_route_of_others_over_the_device_is_as_good(plane: DataPlane) -> None:
    others = {(ADDRESS.packed, 32): 10}
    assert not differs(plane, WANTED, WHOLE._replace(routes=RouteState({DELEGATED}, others)))


@pytest.mark.parametrize("ifb", [None, LINKS["ifb-ppp0"]._replace(is_up=False)])
def test_an_ifb_must_be_there_and_up(plane: DataPlane, ifb: LinkEntry | None) -> None:
    links = {name: link for name, link in LINKS.items() if name != "ifb-ppp0"}
    assert differs(plane, WANTED, WHOLE._replace(links=links if ifb is None else {**links, "ifb-ppp0": ifb}))


@pytest.mark.parametrize("unlimited", [{"rate_down": 0}, {"rate_up": 0}])
def test_a_limit_that_must_not_be_there_is_a_difference(plane: DataPlane, unlimited: dict[str, int]) -> None:
    assert differs(plane, replace(WANTED, **unlimited), WHOLE)


def test_a_session_without_limits_needs_no_qdisc(plane: DataPlane) -> None:
    bare = KernelState({"ppp0": LINKS["ppp0"]}, frozenset(), WHOLE.routes, (), 0)
    assert not differs(plane, replace(WANTED, rate_down=0, rate_up=0), bare)


def test_the_newest_session_has_the_address(plane: DataPlane) -> None:
    newer = replace(WANTED, session_id=8, device="ppp1", ifb="ifb-ppp1")
    plane.set_owners([newer, WANTED])
    assert list(plane.routes(WANTED, 10)) == []
    assert [kind for kind, _ in plane.routes(newer, 12)] == [FaultKind.HOST_ROUTE, FaultKind.DELEGATED_PREFIX]


def test_a_session_that_the_kernel_has_since_the_last_start_keeps_its_address(plane: DataPlane) -> None:
    plane.mark_applied(WANTED)
    older = replace(WANTED, session_id=6, device="ppp1", ifb="ifb-ppp1")
    assert list(plane.routes(older, 12)) == []


def test_a_session_of_the_range_is_steered() -> None:
    steering = Steering(KernelReader())
    assert steering.host_route(ADDRESS, 10) is None
    steering.configure(Cgnat(True, "cgnat", 100, "lan0", GATEWAY, IPv4Network("100.64.0.0/10")))
    assert steering.host_route(ADDRESS, 10) == FibEntry(100, ADDRESS.packed, 32, 10, None, None)
    assert steering.host_route(IPv4Address("192.0.2.1"), 10) is None


def test_a_route_in_place_of_an_expected_one_is_not_left_over() -> None:
    # To delete it without a source would delete the expected one.
    former, elsewhere = HOST._replace(source=None), HOST._replace(ifindex=9)
    assert surplus({former, elsewhere}, {HOST}) == [elsewhere]


IFB = Place(FaultKind.IFB, "ifb-ppp0")
SHAPER = Place(FaultKind.SHAPER, "ppp0")


def test_a_fault_that_stays_keeps_its_time_and_its_reason() -> None:
    clock = SteppedClock()
    register = FaultRegister(clock.wall)
    register.settle(7, {IFB: "first"})
    clock.now += 60
    register.settle(7, {IFB: "second", SHAPER: "third"})
    found = {(fault.object, fault.since, fault.reason) for fault in register.faults_of(7)}
    assert found == {("ifb-ppp0", NOW + 1000, "first"), ("ppp0", NOW + 1060, "third")}
    register.settle(7, {})
    assert register.faults() == []


def test_faults_take_turns() -> None:
    register = FaultRegister(SteppedClock().wall)
    for id in (7, 8, None):
        register.settle(id, {IFB: "reason"})
    register.settle(7, {IFB: "reason"})
    assert register.faulty() == [8, None, 7]


def test_each_fault_is_logged_when_it_comes_and_when_it_goes(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    register = FaultRegister(SteppedClock().wall)
    for failed in ({IFB: "no space"}, {IFB: "no space"}, {}):
        register.settle(7, failed)
        register.report()
    assert caplog.messages == [
        "cannot repair ifb-ppp0 of kind ifb: no space",
        "no fault any more of kind ifb: ifb-ppp0",
    ]


# The reconciler


class LastTurn:
    """The desired state in the last turn of a reconciler, which cannot read the kernel then."""

    def __init__(self) -> None:
        self.reconciler = Reconciler(DataPlane(KernelReader()), self, StillClock())

    def wanted(self) -> dict[int, WantedSession]:
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
        "cannot compare the data plane with the sessions: cannot read the links: out of memory"
    ]


def test_only_the_faults_of_a_session_end_with_it() -> None:
    reconciler = LastTurn().reconciler
    for id in (None, 7, 8):
        reconciler.fault_register.settle(id, {IFB: "no space"})
    reconciler.changed(8)
    reconciler.run(Crew())
    assert reconciler.fault_register.faulty() == [None, 7]

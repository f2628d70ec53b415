"""The data plane of sessions in the kernel: made, compared, repaired and removed."""

import socket
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace as configured
from ipaddress import IPv4Address, IPv4Network, IPv6Network
from pathlib import Path
from statistics import quantiles
from typing import Any

import pytest
from msgspec.structs import replace

from gateway_contract.base.errors import GatewayApiError
from gateway_contract.configuration import Cgnat
from gateway_contract.core.health import FaultKind
from gateway_contract.core.network import OVERHEAD_PROFILES
from gateway_core.gateways.linux.dataplane.fault_register import PlanePart
from gateway_core.gateways.linux.dataplane.plane import DataPlane, KernelState, WantedSession
from gateway_core.gateways.linux.dataplane.reconciler import Comparison, Reconciler
from gateway_core.gateways.linux.kernel.netlink import KernelError, NoDevice
from gateway_core.gateways.linux.kernel.reader import KernelReader
from gateway_core.gateways.linux.kernel.watcher import ALL_PARTS
from gateway_core.gateways.linux.threads import ThreadGroup
from gateway_core.records.clock import Clock
from tests.support.core_clock import StillClock
from tests.support.namespaces import ip, ip_batch, network_namespace, tc, tc_batch
from tests.support.stack import wait_for
from tests.system.test_shaping import limit, needs_shaping, with_fq_codel

pytestmark = needs_shaping

DOWN, UP = 20_000_000, 5_000_000
CGNAT = Cgnat(True, "cgnat", 100, "cgnat0", IPv4Address("10.255.1.2"), IPv4Network("100.64.0.0/10"))
WANTED = WantedSession(
    session_id=7,
    device="acc0",
    ifb="ifb-acc0",
    access_interface="acc0",
    rate_down=DOWN,
    rate_up=UP,
    profile=OVERHEAD_PROFILES["ipoe_ethernet"],
    address=IPv4Address("100.64.0.9"),
    sets_host_route=True,
    gateway=IPv4Address("100.64.0.1"),
    delegated=(IPv6Network("2001:db8:9::/56"),),
)
ALL = (
    FaultKind.SHAPER, FaultKind.IFB, FaultKind.HOST_ROUTE, FaultKind.STEERING, FaultKind.DELEGATED_PREFIX,
)  # fmt: skip
NONE = dict.fromkeys(FaultKind, 0)


def addresses(device: str) -> set[str]:
    """The global IPv6 addresses."""
    command = ["ip", "-6", "-o", "address", "show", "dev", device, "scope", "global"]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return {line.split()[3] for line in shown.splitlines()}


class Sessions:
    """The desired state, which a test changes."""

    def __init__(self) -> None:
        self.present: Mapping[int, WantedSession] = {}
        self.complete = self.fresh = True
        self.restored: list[str] = []
        self.foreign: set[str] = set()
        self.refusal: str | None = None

    def get_wanted(self) -> Mapping[int, WantedSession]:
        return self.present

    def is_complete(self) -> bool:
        return self.complete

    def is_fresh(self) -> bool:
        return self.fresh

    def restore_vlan(self, interface: str) -> bool:
        if interface in self.foreign:
            return False
        self.restored.append(interface)
        if self.refusal is not None:
            raise GatewayApiError(self.refusal)
        make_lines(interface)
        return True


def make_lines(*names: str) -> None:
    """Make devices of sessions, as VLANs are."""
    ip_batch(
        [
            command
            for name in names
            for command in (
                f"link add {name} type veth peer name far-{name}",
                f"link set {name} up",
                f"link set far-{name} up",
            )
        ]
    )


def others(*numbers: int) -> list[WantedSession]:
    """Sessions with these ids, on devices of their own."""
    make_lines(*(f"acc{number}" for number in numbers))
    return [
        replace(
            WANTED, session_id=number, device=f"acc{number}", ifb=f"ifb-acc{number}",
            access_interface=f"acc{number}", address=IPv4Address("100.64.1.0") + number, delegated=(),
        )
        for number in numbers
    ]  # fmt: skip


@pytest.fixture
def namespace() -> Iterator[None]:
    with network_namespace():
        make_lines("acc0", "cgnat0")
        ip("address add 100.64.0.1/32 dev lo", "address add 10.255.1.1/24 dev cgnat0")
        yield


def test_a_session_has_the_address_and_the_route_of_its_prefix(plane: DataPlane) -> None:
    prefix = IPv6Network("2001:db8:80:20::/64")
    wanted = replace(WANTED, prefix=prefix, ipv6_gateway=prefix[1])
    plane.apply(wanted)
    assert addresses("acc0") == {"2001:db8:80:20::1/64"}
    assert "2001:db8:80:20::/64 dev acc0" in routes_of("acc0")
    # Another configuration.
    other = IPv6Network("2001:db8:90::/64")
    plane.apply(replace(wanted, prefix=other, ipv6_gateway=other[1]))
    assert addresses("acc0") == {"2001:db8:90::1/64"}
    assert "2001:db8:80:20::/64" not in routes_of("acc0")
    plane.remove(replace(wanted, prefix=other, ipv6_gateway=other[1]))
    assert addresses("acc0") == set()


def test_a_packet_to_a_prefix_without_a_session_is_refused(plane: DataPlane) -> None:
    networks = (IPv6Network("2001:db8::/40"), IPv6Network("fd00::/32"))
    plane.configure(CGNAT, networks)
    ip("-6 route add default dev cgnat0")
    asked = ["ip", "-6", "route", "get", "2001:db8:80:20::7"]
    refused = subprocess.run(asked, capture_output=True, text=True, check=False)
    # EHOSTUNREACH.
    assert "No route to host" in refused.stderr
    # Nothing is missing then, and nothing is left over.
    settled = plane.repair_common(plane.read())
    assert settled is not None and not settled.changed and not settled.failed
    assert plane.remove_surplus(plane.read(), frozenset()) == []
    plane.configure(CGNAT)
    assert "dev cgnat0" in subprocess.run(asked, capture_output=True, text=True, check=True).stdout


def routes_of(device: str) -> str:
    command = ["ip", "-6", "route", "show", "dev", device]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return "\n".join(f"{line.split()[0]} dev {device}" for line in shown.splitlines())


@pytest.fixture
def plane(namespace: None) -> DataPlane:
    plane = DataPlane(KernelReader())
    plane.configure(CGNAT)
    return plane


@pytest.fixture
def sessions() -> Sessions:
    return Sessions()


@pytest.fixture
def clock() -> StillClock:
    return StillClock()


@pytest.fixture
def reconciler(plane: DataPlane, sessions: Sessions, clock: StillClock) -> Reconciler:
    """With one session, which has all."""
    reconciler = Reconciler(plane, sessions, clock)
    sessions.present = {7: WANTED}
    reconciler.sweep()
    assert plane.apply(WANTED) == ()
    return reconciler


def repairs(reconciler: Reconciler) -> dict[FaultKind, int]:
    """Without those that are zero."""
    return {kind: number for kind, number in reconciler.fault_register.count_repairs().items() if number}


def text(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def limits() -> tuple[int | None, int | None]:
    return limit("acc0"), limit("ifb-acc0")


def run(command: str) -> None:
    subprocess.run(command.split(), check=True)


def routes() -> str:
    return text("ip", "route", "show", "table", "all", "proto", "140") + text(
        "ip", "-6", "route", "show", "table", "all", "proto", "140"
    )


def test_a_session_gets_all_it_needs(plane: DataPlane) -> None:
    assert plane.apply(WANTED) == ALL
    assert "100.64.0.9 dev acc0 scope link src 100.64.0.1" in routes()
    assert "100.64.0.9 dev acc0 table 100 scope link" in routes()
    assert "2001:db8:9::/56 dev acc0" in routes()


def test_a_second_time_changes_nothing(plane: DataPlane) -> None:
    plane.apply(WANTED)
    before = text("tc", "qdisc"), routes()
    assert plane.apply(WANTED) == ()
    assert (text("tc", "qdisc"), routes()) == before


def test_nothing_is_left_of_a_session(plane: DataPlane) -> None:
    # The kernel tells the ends of a new pair of their carrier a moment later.
    wait_for("the carrier of all links", lambda: "DOWN" not in text("ip", "link"))
    before = text("tc", "qdisc"), routes(), text("ip", "link")
    plane.apply(WANTED)
    plane.remove(WANTED)
    assert (text("tc", "qdisc"), routes(), text("ip", "link")) == before
    plane.remove(WANTED)


def test_a_device_that_is_gone_is_an_error_of_its_own(plane: DataPlane) -> None:
    with pytest.raises(NoDevice):
        plane.apply(replace(WANTED, device="ppp7"))


def test_a_host_route_of_the_kernel_is_enough(plane: DataPlane, sessions: Sessions) -> None:
    ip("address add 100.64.0.1 peer 100.64.0.9 dev acc0")
    wanted = replace(WANTED, sets_host_route=False)
    assert FaultKind.HOST_ROUTE not in plane.apply(wanted)
    sessions.present = {7: wanted}
    reconciler = Reconciler(plane, sessions, StillClock())
    reconciler.sweep()
    assert repairs(reconciler) == {}
    ip("route del 100.64.0.9 dev acc0")
    reconciler.sweep()
    assert repairs(reconciler) == {FaultKind.HOST_ROUTE: 1}
    assert "100.64.0.9 dev acc0 scope link src 100.64.0.1" in routes()


def test_of_two_pppoe_sessions_with_one_address_the_newer_gets_its_packets(
    plane: DataPlane, sessions: Sessions
) -> None:
    make_lines("acc1")
    older = replace(WANTED, sets_host_route=False, delegated=())
    newer = replace(older, session_id=8, device="acc1", ifb="ifb-acc1", access_interface="acc1")
    reconciler = Reconciler(plane, sessions, StillClock())
    for present in ({7: older}, {7: older, 8: newer}):
        ip(f"address add 100.64.0.1 peer 100.64.0.9 dev acc{len(present) - 1}")
        sessions.present = present
        for _ in range(3):
            reconciler.sweep()
    assert "100.64.0.9 dev acc1 " in text("ip", "route", "get", "100.64.0.9")
    ip("link del acc1")
    sessions.present = {7: older}
    reconciler.sweep()
    assert "100.64.0.9 dev acc0 " in text("ip", "route", "get", "100.64.0.9")


@pytest.mark.parametrize(
    ("changes", "kinds"),
    [
        ({"rate_down": 2 * DOWN}, (FaultKind.SHAPER,)),
        ({"rate_up": 0}, (FaultKind.IFB,)),
        ({"address": IPv4Address("100.64.0.77")}, (FaultKind.HOST_ROUTE, FaultKind.STEERING)),
        ({"address": None}, ()),
        ({"gateway": None}, (FaultKind.HOST_ROUTE,)),
        ({"delegated": (IPv6Network("2001:db8:a::/56"),)}, (FaultKind.DELEGATED_PREFIX,)),
    ],
)
def test_a_changed_session_has_nothing_of_before(
    plane: DataPlane, changes: dict[str, object], kinds: tuple[FaultKind, ...]
) -> None:
    before = routes()
    plane.apply(WANTED)
    changed = replace(WANTED, **changes)
    assert plane.apply(changed) == kinds
    plane.remove(changed)
    assert routes() == before


def test_a_session_that_moves_leaves_nothing_on_its_former_device(plane: DataPlane) -> None:
    make_lines("acc1")
    plane.apply(WANTED)
    plane.apply(replace(WANTED, device="acc1", ifb="ifb-acc1"))
    assert "acc0" not in routes()
    assert "tbf" not in text("tc", "qdisc", "show", "dev", "acc0")
    assert "ifb-acc0" not in text("ip", "link")


def test_a_refused_part_keeps_no_other_part_away(plane: DataPlane) -> None:
    with pytest.raises(KernelError, match=r"ifb-trunk0\.50\.4000"):
        plane.apply(replace(WANTED, ifb="ifb-trunk0.50.4000"))
    assert "100.64.0.9 dev acc0 scope link src 100.64.0.1" in routes()


def test_a_rate_that_is_refused_one_way_changes_neither(plane: DataPlane) -> None:
    plane.apply(WANTED)
    ip("link del ifb-acc0", "link add ifb-acc0 type veth peer name far")
    with pytest.raises(KernelError, match="it is not an IFB"):
        plane.apply(replace(WANTED, rate_down=2 * DOWN, rate_up=2 * UP))
    assert limit("acc0") == DOWN
    assert plane.get_applied_sessions() == {7: WANTED}


def test_one_refused_session_of_many_is_refused_alone(plane: DataPlane) -> None:
    several = others(20, 21, 22)
    ip("link add ifb-acc21 type veth peer name far")
    outcomes = plane.repair([(each, None) for each in several])
    failures = [list(outcome.failed) for outcome in outcomes if outcome is not None]
    assert failures == [[], [PlanePart(FaultKind.IFB, "ifb-acc21")], []]
    assert [(limit(each.device), limit(each.ifb)) for each in several] == [
        (DOWN, UP),
        (DOWN, None),
        (DOWN, UP),
    ]
    assert all(f"100.64.1.{number} dev acc{number} scope link" in routes() for number in (20, 21, 22))


def test_one_device_of_many_that_is_gone_is_gone_alone(plane: DataPlane) -> None:
    several = others(20, 21, 22)
    ip("link del acc21")
    outcomes = plane.repair([(each, None) for each in several])
    assert [outcome is None for outcome in outcomes] == [False, True, False]
    assert plane.get_applied_sessions().keys() == {20, 22}
    assert "ifb-acc21" not in text("ip", "link")


def test_many_sessions_take_no_more_messages_than_few(
    plane: DataPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[int] = []

    class Counting(socket.socket):
        def send(self, data: Any, flags: int = 0) -> int:
            sent.append(len(data))
            return super().send(data, flags)

    few, many = others(1, 2), others(*range(10, 40))
    # A kernel may lack fq_codel, and the first session finds it out.
    plane.apply(WANTED)
    monkeypatch.setattr("socket.socket", Counting)
    plane.repair([(each, None) for each in few])
    of_few = len(sent)
    plane.repair([(each, None) for each in many])
    assert len(sent) == 2 * of_few
    assert all(limit(each.ifb) == UP for each in (*few, *many))


def test_a_refused_route_does_not_refuse_a_new_rate(plane: DataPlane) -> None:
    # The kernel takes only an address of its own as the source.
    plane.apply(replace(WANTED, gateway=IPv4Address("203.0.113.77")))
    assert limits() == (DOWN, UP)


@pytest.mark.parametrize("is_first", [True, False])
def test_an_address_that_a_newer_session_has_no_more_is_that_of_an_older_one(
    plane: DataPlane, is_first: bool
) -> None:
    make_lines("acc1")
    older = replace(
        WANTED, session_id=5, device="acc1", ifb="ifb-acc1", address=IPv4Address("100.64.0.5"), delegated=()
    )
    plane.apply(older)
    plane.apply(WANTED)
    changed = [replace(older, address=WANTED.address), replace(WANTED, address=IPv4Address("100.64.0.77"))]
    plane.assign_owners(changed)
    for each in changed if is_first else reversed(changed):
        plane.apply(each)
    assert "100.64.0.9 dev acc1 scope link" in routes()
    assert "100.64.0.9 dev acc1 table 100" in routes()


def test_a_session_whose_device_is_down_refuses_no_configuration(
    reconciler: Reconciler, plane: DataPlane
) -> None:
    ip("link set acc0 down")
    plane.configure(configured(CGNAT, vrf_table=200))
    ip("link set acc0 up")
    reconciler.sweep()
    assert "100.64.0.9 dev acc0 table 200" in routes()


def test_after_another_configuration_all_is_read_again(plane: DataPlane) -> None:
    before = plane.read()
    plane.configure(configured(CGNAT, vrf_table=200))
    assert plane.repair_common(before) is None
    assert plane.read(frozenset(), before) == plane.read()


@pytest.mark.parametrize(
    ("damage", "kind"),
    [
        ("tc qdisc del dev acc0 root", FaultKind.SHAPER),
        pytest.param("tc qdisc del dev acc0 parent 2:1", FaultKind.SHAPER, marks=with_fq_codel),
        ("tc qdisc del dev acc0 ingress", FaultKind.IFB),
        ("tc qdisc del dev ifb-acc0 root", FaultKind.IFB),
        ("ip link del ifb-acc0", FaultKind.IFB),
        ("ip link set ifb-acc0 down", FaultKind.IFB),
        ("ip route del 100.64.0.9 dev acc0", FaultKind.HOST_ROUTE),
        ("ip route change 100.64.0.9 dev cgnat0 proto 140", FaultKind.HOST_ROUTE),
        ("ip -6 route del 2001:db8:9::/56", FaultKind.DELEGATED_PREFIX),
        ("ip -6 route change 2001:db8:9::/56 via fe80::8 dev acc0 proto 140", FaultKind.DELEGATED_PREFIX),
        ("ip rule del priority 1500", FaultKind.STEERING),
        ("ip route del 100.64.0.9 table 100", FaultKind.STEERING),
        ("ip route del default table 100", FaultKind.STEERING),
        ("ip route del unreachable default table 100 metric 4294967295", FaultKind.STEERING),
    ],
)
def test_what_is_damaged_is_repaired_and_counted(
    reconciler: Reconciler, damage: str, kind: FaultKind
) -> None:
    before = text("ip", "rule"), routes()
    run(damage)
    reconciler.sweep()
    assert repairs(reconciler) == {kind: 1}
    assert (text("ip", "rule"), routes()) == before
    reconciler.sweep()
    assert repairs(reconciler) == {kind: 1}
    assert reconciler.fault_register.list_faults() == []


@pytest.mark.parametrize(
    ("damage", "kind"),
    [
        ("tc qdisc change dev acc0 root handle 2: tbf rate 1gbit burst 1mb limit 1mb", FaultKind.SHAPER),
        ("tc qdisc change dev ifb-acc0 root handle 2: tbf rate 1gbit burst 1mb limit 1mb", FaultKind.IFB),
        ("tc filter del dev acc0 parent ffff: prio 10", FaultKind.IFB),
    ],
)
def test_what_costs_a_question_for_each_session_is_found_within_a_minute(
    reconciler: Reconciler, sessions: Sessions, clock: StillClock, damage: str, kind: FaultKind
) -> None:
    names = [f"acc{number}" for number in range(1, 12)]
    for number, name in enumerate(names, 8):
        make_lines(name)
        sessions.present = {
            **sessions.present,
            number: replace(
                WANTED, session_id=number, device=name, ifb=f"ifb-{name}", access_interface=name,
                address=None, delegated=(),
            ),
        }  # fmt: skip
    reconciler.sweep()
    run(damage)
    for _ in range(12):
        clock.now += 5
        reconciler.sweep()
    assert repairs(reconciler) == {kind: 1}


@contextmanager
def running_reconciler(plane: DataPlane, sessions: Sessions) -> Iterator[Reconciler]:
    """One with the machine's clock, in a thread."""
    reconciler = Reconciler(plane, sessions, Clock("boot"))
    thread = threading.Thread(target=reconciler.run, args=(ThreadGroup(),))
    thread.start()
    try:
        yield reconciler
    finally:
        reconciler.stop()
        thread.join()


@pytest.fixture
def running(reconciler: Reconciler, plane: DataPlane, sessions: Sessions) -> Iterator[Reconciler]:
    with running_reconciler(plane, sessions) as started:
        yield started


@pytest.mark.parametrize(
    ("damage", "kind"),
    [
        ("tc qdisc del dev acc0 root", FaultKind.SHAPER),
        ("tc filter del dev acc0 parent ffff: prio 10", FaultKind.IFB),
        ("ip rule del priority 1500", FaultKind.STEERING),
        ("ip route del 100.64.0.9 dev acc0", FaultKind.HOST_ROUTE),
    ],
)
def test_a_change_in_the_kernel_starts_a_comparison(
    running: Reconciler, damage: str, kind: FaultKind
) -> None:
    run(damage)
    wait_for("the repair", lambda: repairs(running) == {kind: 1})


def test_new_sessions_do_not_delay_the_next_comparison(
    reconciler: Reconciler,
    plane: DataPlane,
    sessions: Sessions,
    clock: StillClock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    repair = plane.repair

    def slow(todo: Sequence[tuple[WantedSession, WantedSession | None]], *known: Any) -> Any:
        clock.now += 30
        return repair(todo, *known)

    (new,) = others(1)
    sessions.present = {7: WANTED, 1: new}
    reconciler.apply_soon(1)
    with monkeypatch.context() as slowly:
        slowly.setattr(plane, "repair", slow)
        reconciler.sweep()
    run("tc qdisc del dev acc0 root")
    clock.now += 5
    reconciler._run_once()
    assert repairs(reconciler) == {FaultKind.SHAPER: 1}


def test_a_new_session_is_applied_and_a_former_one_removed(running: Reconciler, sessions: Sessions) -> None:
    make_lines("acc1")
    new = replace(WANTED, session_id=8, device="acc1", ifb="ifb-acc1", access_interface="acc1")
    sessions.present = {8: new}
    running.apply_soon(7, 8)
    wait_for("the new one", lambda: "100.64.0.9 dev acc1" in routes() and "ifb-acc1" in text("ip", "link"))
    wait_for("the end", lambda: "acc0" not in routes() and "ifb-acc0" not in text("ip", "link"))
    assert repairs(running) == {}


def test_many_new_sessions_are_not_compared_after_each_few(
    reconciler: Reconciler, plane: DataPlane, sessions: Sessions, clock: StillClock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr("gateway_core.gateways.linux.dataplane.reconciler._SESSIONS_PER_BATCH", 2)
    read, readings = plane.read, []

    def slow(*arguments: Any) -> KernelState:
        readings.append(arguments)
        clock.now += 0.1
        return read(*arguments)

    monkeypatch.setattr(plane, "read", slow)
    bare = replace(WANTED, rate_down=0, rate_up=0, delegated=())
    for number in range(20, 28):
        name, address = f"acc{number}", IPv4Address(f"100.64.0.{number}")
        make_lines(name)
        new = replace(bare, session_id=number, device=name, ifb=f"ifb-{name}", address=address)
        sessions.present = {**sessions.present, number: new}
    clock.now += 5
    reconciler.apply_soon(*range(20, 28))
    for _ in range(4):
        reconciler._run_once()
    assert len(readings) == 1
    # After ten times as long as it took.
    clock.now += 1
    reconciler._run_once()
    assert len(readings) == 2
    assert all(f"100.64.0.{number} dev acc{number} scope" in routes() for number in range(20, 28))


def test_a_new_session_comes_before_the_rest_of_the_repairs(
    reconciler: Reconciler, plane: DataPlane, sessions: Sessions, clock: StillClock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr("gateway_core.gateways.linux.dataplane.reconciler._SESSIONS_PER_BATCH", 2)
    damaged, (new,) = others(20, 21, 22, 23), others(24)
    sessions.present = {each.session_id: each for each in damaged}
    reconciler.sweep()
    for each in damaged:
        tc(f"qdisc del dev {each.device} root")
    repair, order = plane.repair, list[list[int]]()

    def told(todo: Any, known: Any) -> Any:
        order.append([wanted.session_id for wanted, _ in todo])
        if len(order) == 1:
            sessions.present = {**sessions.present, 24: new}
            reconciler.apply_soon(24)
        return repair(todo, known)

    monkeypatch.setattr(plane, "repair", told)
    for _ in range(3):
        clock.now += 100
        reconciler._run_once()
    assert order == [[20, 21], [24], [22, 23]]


def test_the_time_of_a_new_session_without_a_limit_is_counted_once(
    reconciler: Reconciler, sessions: Sessions, clock: StillClock
) -> None:
    quick, slow, refused = others(20, 21, 22)
    ip("link add ifb-acc22 type veth peer name far")
    for new, seconds in ((quick, 0.02), (slow, 0.8), (refused, 0.8)):
        sessions.present = {**sessions.present, new.session_id: new}
        reconciler.apply_soon(new.session_id)
        clock.now += seconds
        reconciler._run_once()
    # Not of a session that was made before.
    sessions.present = {**sessions.present, 20: replace(quick, rate_down=DOWN // 2)}
    reconciler.apply_soon(20)
    reconciler._run_once()
    delays = reconciler.limit_delays.read()
    within = {each.seconds: each.sessions for each in delays.counts}
    assert (within[0.01], within[0.05], within[0.5], within[1.0], delays.sessions) == (0, 1, 1, 2, 2)
    assert delays.seconds == pytest.approx(0.82)
    assert limit("acc20") == DOWN // 2


def test_the_time_of_a_session_that_a_comparison_finds_first_is_counted(
    reconciler: Reconciler, sessions: Sessions, clock: StillClock
) -> None:
    (new,) = others(20)
    sessions.present = {**sessions.present, 20: new}
    reconciler.apply_soon(20)
    clock.now += 0.3
    reconciler.sweep()
    reconciler._run_once()
    delays = reconciler.limit_delays.read()
    assert (delays.sessions, delays.seconds) == (1, pytest.approx(0.3))


def test_a_session_that_has_its_limits_had_no_time_without_them(
    reconciler: Reconciler, sessions: Sessions, clock: StillClock
) -> None:
    # As after a restart of the core. On a kernel without fq_codel, the first session has its queue replaced.
    plane = DataPlane(KernelReader())
    plane.apply(*others(20))
    after = Reconciler(plane, sessions, clock)
    after.apply_soon(7)
    clock.now += 3
    after._run_once()
    assert limits() == (DOWN, UP)
    assert after.limit_delays.read().sessions == 0


def test_with_100_sign_ons_a_second_beside_repairs_a_session_waits_at_most_a_second_for_its_limits(
    plane: DataPlane, sessions: Sessions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway_core.gateways.linux.dataplane.reconciler._SESSIONS_PER_BATCH", 64)
    # The kernel's own work for IPv6 on so many devices is not what is measured.
    Path("/proc/sys/net/ipv6/conf/default/disable_ipv6").write_text("1")
    measured, damaged, new = (
        others(*numbers) for numbers in (range(1, 65), range(65, 705), range(705, 1005))
    )
    began = time.monotonic()
    plane.repair([(each, None) for each in measured])
    # All times are those of a machine that does so in a tenth of a second. A slower one gets more.
    unit = max(1.0, 10 * (time.monotonic() - began))
    plane.repair([(each, None) for each in damaged])
    tc_batch([f"qdisc del dev {each.device} root" for each in damaged])
    repair, delays, units = plane.repair, list[float](), [unit]

    def slow(todo: Sequence[tuple[WantedSession, WantedSession | None]], *known: Any) -> Any:
        # All repairs take 2.5 s at least. The machine may become slower meanwhile.
        if any(wanted == before for wanted, before in todo):
            time.sleep(0.25 * unit)
        began = time.monotonic()
        done = repair(todo, *known)
        if len(todo) == len(measured):
            units.append(10 * (time.monotonic() - began))
        return done

    monkeypatch.setattr(plane, "repair", slow)
    present = {each.session_id: each for each in (*measured, *damaged)}
    sessions.present = dict(present)
    with running_reconciler(plane, sessions) as reconciler:
        monkeypatch.setattr(reconciler.limit_delays, "observe", delays.append)
        for each in new:
            present[each.session_id] = each
            sessions.present = dict(present)
            reconciler.apply_soon(each.session_id)
            time.sleep(0.01 * unit)
        wait_for("their limits", lambda: len(delays) == len(new))
    assert quantiles(delays, n=100)[98] <= max(units)
    assert all(limit(each.ifb) == UP for each in new)


def test_a_session_that_signs_on_while_the_kernel_is_read_does_not_wait_for_the_comparison(
    reconciler: Reconciler, plane: DataPlane, sessions: Sessions, monkeypatch: pytest.MonkeyPatch
) -> None:
    (new,) = others(20)
    tc("qdisc del dev acc0 root")
    read, repair, order = plane.read, plane.repair, list[list[int]]()

    def signing_on(*arguments: Any) -> KernelState:
        state = read(*arguments)
        sessions.present = {**sessions.present, 20: new}
        reconciler.apply_soon(20)
        return state

    def told(todo: Any, known: Any) -> Any:
        order.append([wanted.session_id for wanted, _ in todo])
        return repair(todo, known)

    monkeypatch.setattr(plane, "read", signing_on)
    monkeypatch.setattr(plane, "repair", told)
    reconciler.sweep()
    assert order == [[20], [7]]
    assert "100.64.1.20 dev acc20 scope link" in routes()
    assert (limit("acc20"), limit("ifb-acc20")) == limits() == (DOWN, UP)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[int | None]:
    """The devices whose routes were asked for, None for all: for those on one device, the kernel goes through
    those of all sessions."""
    asked: list[int | None] = []
    entries = KernelReader.read_fib_entries

    def told(*arguments: Any, **options: Any) -> Any:
        asked.append(options.get("ifindex"))
        return entries(*arguments, **options)

    monkeypatch.setattr(KernelReader, "read_fib_entries", told)
    return asked


def test_a_repair_of_a_limit_does_not_ask_for_routes_that_are_there(
    reconciler: Reconciler, asked: list[int | None]
) -> None:
    asked.clear()
    run("tc qdisc del dev acc0 root")
    reconciler.sweep()
    assert repairs(reconciler) == {FaultKind.SHAPER: 1}
    assert set(asked) <= {None}


def test_after_a_restart_the_routes_of_many_sessions_are_asked_for_at_once(
    plane: DataPlane, asked: list[int | None]
) -> None:
    many = others(*range(20, 40))
    plane.repair([(each, None) for each in many])
    ip("route change 100.64.1.30 dev acc0 proto 140")
    asked.clear()
    outcomes = DataPlane(KernelReader()).repair([(each, None) for each in many])
    changed = [outcome.changed for outcome in outcomes if outcome is not None and outcome.changed]
    assert changed == [(PlanePart(FaultKind.HOST_ROUTE, "100.64.1.30/32"),)]
    assert asked and set(asked) == {None}
    assert "100.64.1.30 dev acc30 scope link src 100.64.0.1" in routes()


def test_a_comparison_alone_applies_and_removes_sessions(reconciler: Reconciler, sessions: Sessions) -> None:
    make_lines("acc1")
    new = replace(WANTED, session_id=8, device="acc1", ifb="ifb-acc1", access_interface="acc1")
    sessions.present = {8: new}
    reconciler.sweep()
    assert "acc0" not in routes()
    assert "100.64.0.9 dev acc1" in routes()
    assert repairs(reconciler) == {}


def test_a_new_rate_is_kept(reconciler: Reconciler, plane: DataPlane, sessions: Sessions) -> None:
    # The kernel has it before the table of sessions.
    changed = replace(WANTED, rate_down=2 * DOWN)
    plane.apply(changed)
    for present in (WANTED, changed):
        sessions.present = {7: present}
        reconciler.sweep()
        assert limits() == (2 * DOWN, UP)
    assert repairs(reconciler) == {}


def test_a_repair_gives_way_to_a_change(plane: DataPlane) -> None:
    plane.apply(WANTED)
    plane.apply(replace(WANTED, rate_down=2 * DOWN))
    assert plane.repair([(WANTED, WANTED)]) == [None]


def test_the_next_session_on_a_device_keeps_what_it_can(running: Reconciler, sessions: Sessions) -> None:
    before = KernelReader().find_link("ifb-acc0").index
    sessions.present = {8: replace(WANTED, session_id=8, address=IPv4Address("100.64.0.10"))}
    running.apply_soon(7, 8)
    wait_for("its route", lambda: "100.64.0.10 dev acc0" in routes())
    assert KernelReader().find_link("ifb-acc0").index == before


def test_a_device_that_the_kernel_told_of_is_looked_at_before_its_turn(
    reconciler: Reconciler, plane: DataPlane, clock: StillClock
) -> None:
    make_lines("acc1")
    other = replace(
        WANTED,
        session_id=8,
        device="acc1",
        ifb="ifb-acc1",
        access_interface="acc1",
        address=None,
        delegated=(),
    )
    plane.apply(other)
    present = {7: WANTED, 8: other}
    tc("qdisc change dev ifb-acc1 root handle 2: tbf rate 1gbit burst 1mb limit 1mb")

    def found(*shaped: str) -> list[int]:
        # The first of a round is session 7.
        indexes = {KernelReader().find_link(name).index for name in shaped}
        comparison = Comparison(plane, clock.steady)
        comparison.read(ALL_PARTS)
        compared = comparison.compare(present, plane.get_applied_sessions(), ALL_PARTS, indexes, ())
        return [wanted.session_id for wanted, _ in compared.sessions_to_apply]

    assert (found(), found("acc0"), found("ifb-acc1")) == ([], [], [8])


def test_a_change_that_nobody_told_of_is_applied_after_a_while(
    reconciler: Reconciler, sessions: Sessions, clock: StillClock
) -> None:
    sessions.present = {7: replace(WANTED, rate_down=2 * DOWN)}
    reconciler.sweep()
    clock.now += 5
    reconciler.sweep()
    assert limits() == (2 * DOWN, UP)
    assert repairs(reconciler) == {}


def test_what_cannot_be_repaired_is_a_fault_until_it_can(
    reconciler: Reconciler, clock: StillClock, caplog: pytest.LogCaptureFixture
) -> None:
    ip("link del ifb-acc0", "link add ifb-acc0 type veth peer name far")
    reconciler.sweep()
    (fault,) = reconciler.fault_register.list_faults()
    assert (fault.kind, fault.object, fault.session_id) == (FaultKind.IFB, "ifb-acc0", 7)
    assert fault.reason == "cannot shape by ifb-acc0: it is not an IFB"
    assert fault.since == int(clock.wall())
    assert reconciler.fault_register.list_faults_of(7) == [fault]
    clock.now += 5
    reconciler.sweep()
    assert reconciler.fault_register.list_faults() == [fault]
    assert caplog.text.count("it is not an IFB") == 1
    ip("link del ifb-acc0")
    reconciler.sweep()
    assert reconciler.fault_register.list_faults() == []
    assert repairs(reconciler) == {FaultKind.IFB: 1}


def test_a_fault_ends_when_its_cause_went_by_itself(reconciler: Reconciler) -> None:
    reconciler.fault_register.set_faults(7, {PlanePart(FaultKind.IFB, "ifb-acc0"): "no space"})
    reconciler.sweep()
    assert reconciler.fault_register.list_faults() == []


def test_a_fault_ends_with_its_session(reconciler: Reconciler, sessions: Sessions) -> None:
    ip("link del ifb-acc0", "link add ifb-acc0 type veth peer name far")
    reconciler.sweep()
    assert reconciler.fault_register.list_faults() != []
    ip("link del ifb-acc0")
    sessions.present = {}
    reconciler.sweep()
    assert reconciler.fault_register.list_faults() == []


def test_a_device_of_others_with_the_name_of_an_ifb_does_not_keep_a_session_from_going(
    reconciler: Reconciler, sessions: Sessions
) -> None:
    ip("link del ifb-acc0", "link add ifb-acc0 type veth peer name far")
    reconciler.sweep()
    sessions.present = {}
    reconciler.sweep()
    assert reconciler.fault_register.list_faults() == []
    assert KernelReader().find_link("ifb-acc0").kind == "veth"
    assert "acc0" not in routes()


def test_a_missing_way_to_the_appliance_is_a_fault_of_no_session(reconciler: Reconciler) -> None:
    ip("link del cgnat0")
    reconciler.sweep()
    (fault,) = reconciler.fault_register.list_faults()
    assert (fault.kind, fault.object, fault.session_id) == (FaultKind.STEERING, "0.0.0.0/0", None)
    assert "unreachable default table 100" in routes()
    make_lines("cgnat0")
    ip("address add 10.255.1.1/24 dev cgnat0")
    reconciler.sweep()
    assert reconciler.fault_register.list_faults() == []


def test_a_vanished_device_is_no_fault_while_its_session_ends(
    reconciler: Reconciler, sessions: Sessions, clock: StillClock
) -> None:
    ip("link del acc0")
    reconciler.sweep()
    clock.now += 5
    reconciler.sweep()
    assert (reconciler.fault_register.list_faults(), sessions.restored, repairs(reconciler)) == ([], [], {})


def test_the_vlan_of_a_session_that_stays_is_restored(
    reconciler: Reconciler, sessions: Sessions, clock: StillClock
) -> None:
    ip("link del acc0")
    reconciler.sweep()
    clock.now += 10
    reconciler.sweep()
    assert sessions.restored == ["acc0"]
    reconciler.sweep()
    found = repairs(reconciler)
    assert found.pop(FaultKind.VLAN) == 1
    assert set(found) == set(ALL)


def test_a_vlan_that_cannot_be_restored_is_a_fault(
    reconciler: Reconciler, sessions: Sessions, clock: StillClock
) -> None:
    sessions.refusal = "cannot make acc0: the trunk is gone"
    ip("link del acc0")
    reconciler.sweep()
    clock.now += 10
    reconciler.sweep()
    (fault,) = reconciler.fault_register.list_faults_of(7)
    assert (fault.kind, fault.object, fault.reason) == (FaultKind.VLAN, "acc0", sessions.refusal)
    sessions.refusal = None
    reconciler.sweep()
    assert reconciler.fault_register.list_faults() == []


def test_a_device_of_others_that_stays_away_is_a_fault(
    reconciler: Reconciler, sessions: Sessions, clock: StillClock
) -> None:
    sessions.foreign = {"acc0"}
    ip("link del acc0")
    reconciler.sweep()
    clock.now += 10
    for _ in range(2):
        reconciler.sweep()
        (fault,) = reconciler.fault_register.list_faults_of(7)
        assert (fault.kind, fault.object, fault.reason) == (FaultKind.VLAN, "acc0", "there is no such device")
    assert repairs(reconciler) == {}


def test_a_stale_session_without_device_is_no_fault(
    reconciler: Reconciler, sessions: Sessions, clock: StillClock
) -> None:
    sessions.fresh = False
    ip("link del acc0")
    for _ in range(4):
        reconciler.sweep()
        clock.now += 10
    assert (reconciler.fault_register.list_faults(), sessions.restored) == ([], [])


def test_a_device_that_is_down_gets_its_routes_back_when_it_is_up(
    reconciler: Reconciler, clock: StillClock
) -> None:
    ip("link set acc0 down")
    reconciler.sweep()
    assert reconciler.fault_register.list_faults() == []
    clock.now += 10
    reconciler.sweep()
    (fault,) = reconciler.fault_register.list_faults()
    assert (fault.kind, fault.object, fault.reason) == (FaultKind.SHAPER, "acc0", "the device is down")
    ip("link set acc0 up")
    reconciler.sweep()
    assert reconciler.fault_register.list_faults() == []
    assert repairs(reconciler)[FaultKind.HOST_ROUTE] == 1


def left_over() -> None:
    """What an earlier life left."""
    make_lines("acc9")
    ip(
        "link add ifb-acc8 type ifb",
        "link add ifb-acc9 type ifb",
        "route add 100.64.0.99 dev acc9 proto 140",
        "route add 100.64.0.99 dev acc9 table 55 proto 140",
        "-6 route add 2001:db8:99::/56 dev acc9 proto 140",
    )
    tc("qdisc add dev acc9 ingress")
    to_ifb = "match u32 0 0 action mirred egress redirect dev ifb-acc9"
    tc(f"filter add dev acc9 parent ffff: prio 10 protocol all u32 {to_ifb}")


def traces() -> list[bool]:
    everything = text("ip", "link") + routes() + text("tc", "qdisc", "show", "dev", "acc9")
    return [
        trace in everything
        for trace in (
            "ifb-acc8",
            "ifb-acc9",
            "100.64.0.99 dev acc9 scope",
            "table 55",
            "2001:db8:99::",
            "ingress",
        )
    ]


def test_what_belongs_to_no_session_is_removed(reconciler: Reconciler) -> None:
    before = text("ip", "rule"), routes(), text("tc", "qdisc")
    left_over()
    assert all(traces())
    reconciler.sweep()
    assert not any(traces())
    ip("link del acc9")
    assert (text("ip", "rule"), routes(), text("tc", "qdisc")) == before


def test_nothing_is_removed_before_every_source_has_replied(
    reconciler: Reconciler, sessions: Sessions
) -> None:
    sessions.complete = False
    left_over()
    reconciler.sweep()
    assert all(traces())


def test_routes_of_others_stay(reconciler: Reconciler) -> None:
    ip("route add 198.51.100.0/24 dev acc0", "route add 203.0.113.0/24 dev acc0 table 100 proto static")
    reconciler.sweep()
    assert "198.51.100.0/24 dev acc0" in text("ip", "route")
    assert "203.0.113.0/24 dev acc0" in text("ip", "route", "show", "table", "100")


def test_another_configuration_is_no_repair(reconciler: Reconciler, plane: DataPlane) -> None:
    plane.configure(configured(CGNAT, vrf_table=200))
    reconciler.sweep()
    assert repairs(reconciler) == {}
    assert "table 100" not in routes()


def test_many_repairs_of_a_kind_are_one_line(
    reconciler: Reconciler, sessions: Sessions, caplog: pytest.LogCaptureFixture
) -> None:
    def other(number: int) -> WantedSession:
        name = f"acc{number}"
        make_lines(name)
        return replace(
            WANTED, session_id=number, device=name, ifb=f"ifb-{name}", access_interface=name,
            address=None, delegated=(),
        )  # fmt: skip

    sessions.present = {number: other(number) for number in range(20, 28)}
    reconciler.sweep()
    for number in range(20, 28):
        tc(f"qdisc del dev acc{number} root")
    caplog.clear()
    reconciler.sweep()
    (line,) = caplog.messages
    assert line == "repaired kernel state of kind shaper: acc20, acc21, acc22, acc23, acc24 and 3 more"


def test_the_newest_of_two_sessions_with_one_device_has_it(
    reconciler: Reconciler, sessions: Sessions
) -> None:
    newer = replace(WANTED, session_id=8, rate_down=2 * DOWN, address=IPv4Address("100.64.0.10"))
    sessions.present = {7: WANTED, 8: newer}
    for _ in range(3):
        reconciler.sweep()
    assert limits()[0] == 2 * DOWN
    sessions.present = {8: newer}
    reconciler.sweep()
    assert limits() == (2 * DOWN, UP)
    assert "100.64.0.9 " not in routes()
    assert repairs(reconciler) == {}

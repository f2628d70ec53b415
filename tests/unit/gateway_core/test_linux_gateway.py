"""The Linux gateway: what its methods do to sessions, the kernel and the disk, and what they say when those
refuse. The kernel is a stand-in: tests/system has the real one."""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from ipaddress import IPv4Network
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gateway_contract.base.errors import StepFailed
from gateway_contract.configuration import AddressPool, Cgnat, Configuration
from gateway_contract.core.health import FaultKind
from gateway_contract.core.network import AddressFamily, Interface, InterfaceStats, Route
from gateway_contract.core.sessions import SessionType
from gateway_core.configuration.running import RunningConfiguration, add_former_range
from gateway_core.gateways.linux.assembly import DesiredSessions, find_occupancy
from gateway_core.gateways.linux.daemons.frr import BgpReader, FrrFolders
from gateway_core.gateways.linux.daemons.linux_services import LinuxServices
from gateway_core.gateways.linux.dataplane.dhcp_guard import DhcpGuard
from gateway_core.gateways.linux.dataplane.fault_register import PlanePart
from gateway_core.gateways.linux.dataplane.firewall import ArpLimit, Firewall
from gateway_core.gateways.linux.dataplane.plane import WantedSession
from gateway_core.gateways.linux.dataplane.reconciler import Reconciler
from gateway_core.gateways.linux.demux.admission import AccessVlan, ManagedVlan, VlanState
from gateway_core.gateways.linux.demux.demultiplexer import Demultiplexer
from gateway_core.gateways.linux.gateway import LinuxGateway
from gateway_core.gateways.linux.health import DependencyWatch
from gateway_core.gateways.linux.kernel.fib import MAIN_TABLE, NextHop, RouteEntry
from gateway_core.gateways.linux.kernel.links import Address
from gateway_core.gateways.linux.kernel.netlink import KernelError, NoDevice
from gateway_core.gateways.linux.kernel.watcher import ChangedPart
from gateway_core.gateways.linux.sessions.commit_ends import PendingCommit, PendingCommits
from gateway_core.gateways.linux.sessions.provision import DeviceCounters, Provision
from gateway_core.gateways.linux.sessions.session import LinuxSession
from gateway_core.gateways.linux.sessions.session_store import SessionStore
from gateway_core.gateways.linux.sessions.tracker import SignOnWatch, Tracker
from gateway_core.gateways.linux.threads import ThreadGroup
from gateway_core.gateways.linux.views import Links, list_routes, list_vlans
from gateway_core.records.clock import Expiry
from gateway_core.records.paging import Rows
from gateway_core.sessions.journal import Journal
from gateway_core.sessions.table import SessionTable
from tests.support.clocks import NOW
from tests.support.core_clock import StillClock
from tests.support.documents import valid_document
from tests.support.links import KnownLinks, link, on_vlan, session
from tests.support.sources import CGNAT, ListedSource, events, listed, poll
from tests.support.stack import wait_for
from tests.support.workspaces import no_file_longer_than

CONFIGURATION = RunningConfiguration.of(valid_document()).sections
#: It is no trunk of the demux any more, and still an interface.
WITHOUT_TRUNK1 = replace(CONFIGURATION, demux=replace(CONFIGURATION.demux, trunks=("trunk0",)))
DEFAULT = (100_000_000, 20_000_000)


def on_trunks(*trunks: str) -> Configuration:
    interfaces, demux = CONFIGURATION.interfaces, CONFIGURATION.demux
    return replace(
        CONFIGURATION, interfaces=replace(interfaces, trunks=trunks), demux=replace(demux, trunks=trunks)
    )


Make = Callable[..., "Machine"]


class KernelPlane:
    """The data plane of a kernel that does what it is told, or refuses."""

    def __init__(self) -> None:
        self.rates: dict[int, tuple[int, int]] = {}
        self.cgnat: Cgnat | None = None
        self.pools: Sequence[IPv4Network] = ()
        self.refuses = False

    def apply(self, wanted: WantedSession) -> tuple[FaultKind, ...]:
        self._check()
        self.rates[wanted.session_id] = (wanted.rate_down, wanted.rate_up)
        return ()

    def configure(self, cgnat: Cgnat, pools: Sequence[IPv4Network] = ()) -> None:
        self.cgnat, self.pools = cgnat, pools
        self._check()

    def _check(self) -> None:
        if self.refuses:
            raise KernelError("shape ppp0", "No buffer space available")


class Rules:
    """nftables of a kernel that takes all rules, or none."""

    def __init__(self) -> None:
        self.commands = ""
        self.refuses = False

    def load(self, step: str, commands: str) -> None:
        if self.refuses:
            raise KernelError(step, "Operation not supported")
        self.commands = commands

    def list_table(self, name: str, *options: str) -> list[dict[str, Any]]:
        return []


class Trunks:
    """Trunks without VLAN devices, which can be set up."""

    def __init__(self) -> None:
        self.up: list[str] = []

    def set_trunk_up(self, trunk: str) -> bool:
        if trunk == "gone":
            raise NoDevice("find the link gone", "No such device")
        if trunk == "stuck":
            raise KernelError("set stuck up", "Network is down")
        if trunk in self.up:
            return False
        self.up.append(trunk)
        return True

    set_new_trunk_up = set_trunk_up

    def set_trunk_down(self, trunk: str) -> None:
        self.up.remove(trunk)

    def existing(self, trunk: str) -> list[AccessVlan]:
        return []

    def former(self) -> list[AccessVlan]:
        return []


class Machine:
    """The parts around a gateway, and two sessions: 1 on trunk0, 2 on trunk1."""

    def __init__(self, folder: Path, configuration: Configuration = CONFIGURATION) -> None:
        self.source, self.clock, self.journal = ListedSource(), StillClock(), Journal("life")
        self.plane, self.trunks, self.rules = KernelPlane(), Trunks(), Rules()
        self.daemons: list[Any] = []
        #: The numbers of neighbours that the kernel was to keep, and what it refuses them with.
        self.neighbours: list[int] = []
        self.refusal: KernelError | None = None
        self.kernel = KnownLinks(
            link(2, "trunk0"),
            link(20, "ppp0", "ppp", stats=InterfaceStats(rx_bytes=1000, tx_bytes=2000)),
            link(21, "ppp1", "ppp"),
        )
        self.counters = DeviceCounters(self.kernel)
        provision = Provision(configuration, self.counters)
        self.store = SessionStore(folder)
        self.tracker = Tracker(
            [self.source], self.store, self.journal, self.clock, configuration.cgnat, provision,
            self._pass,
        )  # fmt: skip
        self.demux = Demultiplexer(
            configuration.demux, self.trunks, self.source,
            partial(find_occupancy, self.tracker, {SessionType.PPPOE: self.source.name}), self.clock.steady,
        )  # fmt: skip
        desired = DesiredSessions(provision, self.tracker, self.trunks, self.source, self.demux)
        self.reconciler = Reconciler(self.plane, desired, self.clock)
        # FRR is not there.
        frr = BgpReader(FrrFolders(folder, folder, folder, folder), 2)
        self.guard = DhcpGuard(configuration.demux, tuple, self.clock.steady, self.clock.wall, self.rules)
        self.gateway = LinuxGateway(
            configuration, self.clock, self.tracker, provision, self.plane,
            Firewall(self.clock.wall, self.rules),
            ArpLimit(self.clock.wall, self.rules), self.reconciler, self.demux,
            self.trunks, self.kernel, self.counters, LinuxServices(self.daemons, 12, 8),
            frr, SimpleNamespace(), DependencyWatch(configuration, self.tracker, None, frr, tuple),
            SignOnWatch(configuration, None, self.journal), self._raise_thresholds,
            PendingCommits(folder, configuration), self.guard,
        )  # fmt: skip
        self.source.up(
            listed("a", access_interface="trunk0.1000", interface="ppp0"),
            listed("b", access_interface="trunk1.1000", interface="ppp1", ip_address="100.64.0.11"),
        )
        poll(self.tracker)

    def ids(self) -> list[int]:
        return [session.id for session in self.gateway.sessions.all()]

    def rates(self, id: int) -> tuple[int, int]:
        summary = self.session(id).summary
        return summary.rate_down, summary.rate_up

    def session(self, id: int) -> LinuxSession:
        found = self.gateway.sessions.get(id)
        assert found is not None
        return found

    def _raise_thresholds(self, neighbours: int) -> bool:
        self.neighbours.append(neighbours)
        if self.refusal is not None:
            raise self.refusal
        return True

    def _pass(self, seconds: float) -> None:
        self.clock.now += seconds


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    made: list[Machine] = []
    threads = threading.active_count()

    def machine(configuration: Configuration = CONFIGURATION) -> Machine:
        made.append(Machine(tmp_path / str(len(made)), configuration))
        return made[-1]

    yield machine
    # A trunk that was removed ends sessions: that would open the store again.
    wait_for("the end of its threads", lambda: threading.active_count() <= threads)
    for each in made:
        each.store.close()


@pytest.fixture
def machine(make: Make) -> Machine:
    return make()


@pytest.fixture
def gateway(machine: Machine) -> LinuxGateway:
    return machine.gateway


def not_done(text: str) -> AbstractContextManager[object]:
    return pytest.raises(StepFailed, match=text)


# Rates


def test_a_rate_is_in_the_kernel_and_in_the_table(machine: Machine, gateway: LinuxGateway) -> None:
    changed = gateway.set_rate(1, 7_000_000, 3_000_000, Expiry(*DEFAULT, at=NOW + 60))
    assert changed is not None
    assert [(each.rate_down_bps, each.rate_up_bps) for each in changed] == [DEFAULT, (7_000_000, 3_000_000)]
    assert [each.rate_expires_at for each in changed] == [None, NOW + 60]
    assert [each.bytes_in for each in changed] == [1000, 1000]
    assert machine.rates(1) == machine.plane.rates[1] == (7_000_000, 3_000_000)
    again = gateway.set_rate(1, *DEFAULT)
    assert again is not None
    assert [each.rate_expires_at for each in again] == [NOW + 60, None]
    assert gateway.set_rate(99, 1, 1) is None


def test_a_rate_that_kernel_or_disk_refuses_changes_nothing(machine: Machine, gateway: LinuxGateway) -> None:
    with no_file_longer_than(0), not_done("shape the session"):
        gateway.set_rate(1, 7_000_000, 3_000_000)
    assert machine.rates(1) == machine.plane.rates[1] == DEFAULT
    machine.plane.refuses = True
    with not_done("shape the session.*No buffer space"):
        gateway.set_rate(1, 7_000_000, 3_000_000)
    assert machine.rates(1) == DEFAULT


# Ends


def test_a_disconnect_returns_the_last_record_and_the_device_is_not_listed_afterwards(
    machine: Machine, gateway: LinuxGateway
) -> None:
    def names() -> list[str]:
        return [interface.name for interface in gateway.list_interfaces().records()]

    def end(key: str) -> None:
        machine.source.down(key)
        del machine.kernel.found[1]

    machine.source.at_terminate = end
    machine.counters.sweep([])
    assert "ppp0" in names()
    (last,) = gateway.disconnect([1])
    assert (last.id, last.bytes_in, last.bytes_out) == (1, 1000, 2000)
    assert (machine.ids(), "ppp0" in names()) == ([2], False)
    assert [event.reason for event in events(machine.journal)[2:]] == ["admin_disconnect"]
    assert gateway.disconnect([1]) == []


def test_an_interface_is_one_of_a_session_or_a_link(gateway: LinuxGateway) -> None:
    names = ("trunk1.1000", "ppp0", "trunk0", "trunk9")
    assert [gateway.has_interface(name) for name in names] == [True, True, True, False]


# The configuration


def test_a_removed_trunk_takes_its_sessions_along_and_none_that_is_on_no_trunk_at_all(make: Make) -> None:
    before = on_trunks("trunk0", "trunk1", "trunk0.5")
    machine = make(before)
    for key, access in (("c", "eth9"), ("d", "trunk0"), ("e", "trunk0.5.1000")):
        machine.source.up(listed(key, access_interface=access, interface=f"ppp-{key}"))
    poll(machine.tracker)
    # Without the trunk, the name of its VLAN is that of two tags on trunk0.
    assert machine.gateway.preview_impact(on_trunks("trunk0")).sessions == (2, 5)
    machine.gateway.configure(on_trunks("trunk0"))
    wait_for("the end of the sessions", lambda: machine.ids() == [1, 3, 4])
    assert events(machine.journal)[-1].reason == "admin_disconnect"
    assert machine.gateway.preview_impact(before).sessions == ()


def test_a_session_that_starts_while_a_trunk_is_removed_is_not_ended_unannounced(
    machine: Machine, gateway: LinuxGateway
) -> None:
    machine.source.up(listed("c", access_interface="trunk1.1001", interface="ppp2"))
    polling = threading.Thread(target=poll, args=(machine.tracker,))
    with gateway.freeze_sessions(WITHOUT_TRUNK1) as impact:
        assert impact.sessions == (2,)
        polling.start()
        wait_for("the poll", lambda: machine.source.polls == 2)
        gateway.configure(WITHOUT_TRUNK1)
        assert 3 not in machine.ids()
    polling.join()
    wait_for("the end of the session", lambda: machine.ids() == [1, 3])


def test_the_vlans_of_dhcp_alone_get_another_address_of_the_gateway(
    machine: Machine, gateway: LinuxGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    served: list[SessionType] = []
    # To serve a VLAN adds the address.
    monkeypatch.setattr(machine.demux, "serve_again", served.append)
    gateway.configure(CONFIGURATION)
    assert served == []
    cgnat = replace(CONFIGURATION.cgnat, source_range=IPv4Network("10.8.0.0/16"))
    gateway.configure(replace(CONFIGURATION, cgnat=cgnat))
    assert served == [SessionType.DHCP]


def test_a_commit_replaces_the_rules_and_tells_of_a_kernel_that_keeps_its_limit_of_neighbours(
    machine: Machine, caplog: pytest.LogCaptureFixture
) -> None:
    machine.refusal = KernelError("raise the thresholds", "No such file or directory", 2)
    machine.gateway.configure(on_trunks("trunk0", "trunk7"))
    assert 'iifname "trunk7.*" counter name spoofed-trunk7 drop' in machine.rules.commands
    assert "cannot raise the thresholds: No such file or directory" in caplog.text
    assert machine.neighbours == [65_536]


def test_a_session_that_stays_on_a_removed_trunk_goes_on_when_the_trunk_is_back(
    machine: Machine, gateway: LinuxGateway, caplog: pytest.LogCaptureFixture
) -> None:
    machine.source.at_terminate = lambda _: None
    threads = threading.active_count()
    gateway.configure(WITHOUT_TRUNK1)
    wait_for(
        "the line in the log",
        lambda: "cannot end the sessions of a commit, trying again in 60 s" in caplog.text,
    )
    gateway.configure(CONFIGURATION)
    wait_for("the end of the attempts", lambda: threading.active_count() <= threads)
    assert machine.ids() == [1, 2]


def kept(folder: Path, running: Configuration = WITHOUT_TRUNK1) -> Sequence[PendingCommit]:
    """What another core would find."""
    return PendingCommits(folder / "0", running).commits


def test_a_commit_whose_ends_are_not_kept_is_refused_and_one_that_did_not_count_ends_nothing(
    gateway: LinuxGateway, tmp_path: Path
) -> None:
    with (
        no_file_longer_than(0),
        not_done("store the ends of a commit"),
        gateway.freeze_sessions(WITHOUT_TRUNK1),
    ):
        pytest.fail("the disk keeps none")
    with not_done("replace"), gateway.freeze_sessions(WITHOUT_TRUNK1):
        assert kept(tmp_path)[0] == ((2,), CONFIGURATION)
        raise StepFailed("replace the running configuration", "No space left on device")
    (commit,) = kept(tmp_path, CONFIGURATION)
    assert commit.drop_ended(gateway.sessions.all(), CONFIGURATION).session_ids == ()
    with gateway.freeze_sessions(CONFIGURATION):
        assert kept(tmp_path) == []


def test_kept_ends_outlive_the_core_and_those_of_another_version_are_given_up(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    commit = PendingCommit((1,), add_former_range(CONFIGURATION, IPv4Network("10.8.0.0/16")))
    PendingCommits(tmp_path, CONFIGURATION).replace([commit])
    assert PendingCommits(tmp_path, CONFIGURATION).commits == [commit]
    for text in ("no JSON", '[{"ids": [1], "former": {"demux": {"trunks": 7}}}]'):
        (tmp_path / "owed-ends.json").write_text(text)
        assert PendingCommits(tmp_path, CONFIGURATION).commits == []
    assert caplog.text.count("sessions that a former commit must end go on") == 2


@pytest.mark.parametrize(
    ("refusing", "wanted", "refusal"),
    [
        ("plane", replace(CONFIGURATION, cgnat=replace(CONFIGURATION.cgnat, enabled=False)),
         "steer the sessions: cannot shape ppp0"),
        # A trunk that stays down takes down those that were set up for it.
        (None, on_trunks("trunk0", "trunk1", "fine", "stuck"), "set the trunks up: cannot set stuck up"),
        ("rules", on_trunks("fine"), "filter the packets of subscribers: cannot load the table inet"),
    ],
)  # fmt: skip
def test_a_commit_that_the_kernel_refuses_leaves_all_as_before(
    machine: Machine, gateway: LinuxGateway, refusing: str | None, wanted: Configuration, refusal: str
) -> None:
    gateway.configure(CONFIGURATION)
    if refusing:
        getattr(machine, refusing).refuses = True
    with not_done(refusal), gateway.apply_in_kernel(wanted):
        pytest.fail("the kernel has refused")
    assert machine.plane.cgnat == CONFIGURATION.cgnat
    assert [session.vrf_steered for session in gateway.sessions.all()] == [True, True]
    assert machine.trunks.up == ["trunk0", "trunk1"]


def test_an_error_after_the_kernel_puts_the_kernel_back(machine: Machine, gateway: LinuxGateway) -> None:
    gateway.configure(CONFIGURATION)
    cgnat, before = replace(CONFIGURATION.cgnat, vrf_table=200), machine.plane.pools
    pools = (AddressPool("fixed", IPv4Network("203.0.113.0/24")),)
    subscribers = replace(CONFIGURATION.subscribers, pools=pools)
    wanted = replace(on_trunks("fine"), cgnat=cgnat, subscribers=subscribers)
    with not_done("write the revision"), gateway.apply_in_kernel(wanted):
        assert (machine.plane.cgnat, "fine" in machine.trunks.up) == (cgnat, True)
        assert machine.plane.pools == (*before, IPv4Network("203.0.113.0/24"))
        assert '"fine.*"' in machine.rules.commands
        raise StepFailed("write the revision", "No space left on device")
    assert (machine.plane.cgnat, machine.plane.pools) == (CONFIGURATION.cgnat, before)
    assert machine.trunks.up == ["trunk0", "trunk1"]
    assert '"fine.*"' not in machine.rules.commands


def test_what_a_commit_does_not_change_cannot_make_it_fail(machine: Machine, gateway: LinuxGateway) -> None:
    stuck = on_trunks("trunk0", "stuck")
    gateway.configure(stuck)
    machine.plane.refuses = machine.rules.refuses = True
    with gateway.apply_in_kernel(replace(stuck, system=replace(stuck.system, hostname="bng2"))):
        pass
    # A trunk that is not there yet is no refusal.
    machine.plane.refuses = machine.rules.refuses = False
    with gateway.apply_in_kernel(on_trunks("trunk0", "gone")):
        pass


# Links


def test_an_ifb_that_comes_or_goes_is_no_reason_to_ask_the_sources(
    machine: Machine, gateway: LinuxGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = [ChangedPart.IFBS, ChangedPart.LINKS, ChangedPart.IFBS]
    told = nullcontext([frozenset({each}) for each in seen])
    monkeypatch.setattr("gateway_core.gateways.linux.gateway.Watcher", lambda _: told)
    polls: list[None] = []
    monkeypatch.setattr(machine.tracker, "trigger", lambda: polls.append(None))
    gateway._watch_links()
    assert len(polls) == 1


def test_a_trunk_that_stays_down_keeps_no_other_from_vlans(machine: Machine, gateway: LinuxGateway) -> None:
    gateway.configure(on_trunks("stuck", "fine"))
    # They come later than the core.
    machine.trunks.up.clear()
    with pytest.raises(KernelError, match="cannot set stuck up"):
        gateway._adopt_links()
    assert machine.trunks.up == ["fine"]


# Lists


def test_lists_of_a_machine_that_cannot_be_read_are_errors(machine: Machine, gateway: LinuxGateway) -> None:
    machine.kernel.fails = True
    for read in (gateway.list_interfaces, gateway.list_vlans, gateway.list_routes):
        with not_done("read the (interfaces|routes).*No buffer space"):
            read()
    with not_done("read the interfaces"):
        gateway.has_interface("trunk9")
    with not_done("read the counters of the session"):
        gateway.read_detail(1)


def test_routes_are_those_of_the_main_table_and_of_steering(make: Make) -> None:
    machine = make()
    machine.kernel.entries = [steered(100), steered(254), steered(7)]
    tables = [(route.table, route.session_id) for route in machine.gateway.list_routes().records()]
    assert tables == [("100", 1), ("main", 1)]
    cgnat = replace(CONFIGURATION.cgnat, enabled=False)
    without = make(replace(CONFIGURATION, cgnat=cgnat))
    without.gateway.list_routes()
    assert without.kernel.tables == [254]


def steered(table: int) -> RouteEntry:
    hops = (NextHop(None, 20),)
    return RouteEntry(table, "100.64.0.10/32", hops, "140", "link", "unicast", None, None)


def test_a_record_has_traffic_and_faults_of_its_session(machine: Machine, gateway: LinuxGateway) -> None:
    machine.reconciler.fault_register.set_faults(1, {PlanePart(FaultKind.SHAPER, "ppp0"): "No buffer space"})
    detail = gateway.read_detail(1)
    assert detail is not None
    assert (detail.bytes_in, detail.bytes_out, detail.ppp_interface) == (1000, 2000, "ppp0")
    assert [fault.object for fault in detail.faults] == ["ppp0"]
    assert [fault.session_id for fault in gateway.list_faults().records()] == [1]
    assert gateway.read_detail(99) is None


# Services


def test_an_impact_without_a_reply_of_the_services_has_the_sessions(
    machine: Machine, gateway: LinuxGateway, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: Any) -> None:
        raise StepFailed("read frr.conf", "it does not reply")

    machine.daemons.append(SimpleNamespace(name="silent", render=lambda *_: {}, preview_action=fail))
    assert gateway.preview_impact(WITHOUT_TRUNK1).sessions == (2,)
    assert "it does not reply" in caplog.text


def test_an_error_that_ends_a_thread_is_raised_where_the_gateway_waits() -> None:
    thread_group, working = ThreadGroup(), threading.Event()

    def fail() -> None:
        working.wait()
        raise SystemExit("no memory")

    thread_group.start(lambda: None, "first").join()
    thread = thread_group.start(fail, "second")
    assert (thread.name, thread.daemon, thread_group.failures.empty()) == ("second", True, True)
    working.set()
    with pytest.raises(SystemExit, match="no memory"):
        thread_group.wait()


# Lists, made of what the kernel, the demux and the sessions have.


VLAN_100, VLAN_200 = AccessVlan("trunk0", None, 100), AccessVlan("trunk0", None, 200)
QINQ = AccessVlan("trunk0", 50, 7)
MACHINE = (
    link(1, "lo"),
    link(2, "trunk0", mac_address="02:00:00:00:00:01"),
    link(3, "uplink0"),
    link(4, "cgnat", "vrf"),
    link(10, "trunk0.200", "vlan", parent=2),
    link(11, "trunk0.100", "vlan", parent=2),
    link(12, "trunk0.50.7", "vlan", parent=99),
    link(20, "ppp0", "ppp", oper_state="unknown", stats=InterfaceStats(rx_bytes=7)),
    link(21, "ifb-ppp0", "ifb"),
    link(22, "ifb-trunk0.100", "ifb"),
)
PPPOE = session(5, interface="ppp0", access_interface="trunk0.200")
#: Two of DHCP on one VLAN.
DHCP = (on_vlan(6, "trunk0.100", ip_address="100.64.0.6"), on_vlan(7, "trunk0.100", ip_address="100.64.0.7"))
SESSIONS = (PPPOE, *DHCP)
VLANS = (VLAN_200, QINQ, VLAN_100)


def interfaces(
    sessions: tuple[LinuxSession, ...] = SESSIONS, vlans: tuple[AccessVlan, ...] = VLANS, **changes: Any
) -> list[Interface]:
    reader = KnownLinks(*MACHINE)
    for name, value in changes.items():
        setattr(reader, name, value)
    found = list(Links(reader).list_interfaces(["trunk0"], vlans, sessions).records())
    assert all(isinstance(each, Interface) for each in found)
    return found  # type: ignore[return-value]


def paged(rows: Rows, size: int) -> list[Any]:
    """All records, in pages."""
    found: list[Any] = []
    after = None
    while page := list(rows.rows_after(after, size))[:size]:
        found += [record for _, record in page]
        after = page[-1][0]
    return found


# Interfaces


def test_interfaces_are_the_machine_s_then_vlans_then_devices_then_ifbs() -> None:
    found = {each.name: each for each in interfaces()}
    assert [(name, str(each.type)) for name, each in found.items()] == [
        ("lo", "loopback"), ("trunk0", "trunk"), ("uplink0", "other"), ("cgnat", "vrf"),
        ("trunk0.100", "vlan"), ("trunk0.200", "vlan"), ("trunk0.50.7", "vlan"), ("ppp0", "ppp"),
        ("ifb-ppp0", "ifb"), ("ifb-trunk0.100", "ifb"),
    ]  # fmt: skip
    # The kernel does not know what carries a ppp device. A parent may be in another namespace.
    parents = [found[name].parent for name in ("trunk0", "trunk0.100", "ppp0", "trunk0.50.7")]
    assert parents == [None, "trunk0", "trunk0.200", None]
    assert (found["ppp0"].stats.rx_bytes, found["ppp0"].oper_state) == (7, "unknown")


def test_an_interface_has_its_addresses_and_its_master() -> None:
    own = Address(3, AddressFamily.INET, "192.0.2.1", 24)
    enslaved = [link(3, "uplink0", master=4), link(4, "cgnat", "vrf")]
    uplink, vrf = interfaces((), (), found=enslaved, assigned=[own])
    assert ([each.address for each in uplink.addresses], uplink.master) == (["192.0.2.1"], "cgnat")
    assert (vrf.addresses, vrf.master) == ((), None)


def test_what_has_no_device_is_no_interface_and_a_shared_device_is_one() -> None:
    found = interfaces((*SESSIONS, session(9, interface="ppp9")), (*VLANS, AccessVlan("trunk0", None, 300)))
    assert sorted(each.name for each in found) == sorted(each.name for each in MACHINE)


def test_a_device_with_the_name_of_a_former_session_is_that_of_the_newest() -> None:
    former = session(4, interface="ppp0", access_interface="trunk0.100")
    (ppp,) = (each for each in interfaces((former, *SESSIONS)) if each.name == "ppp0")
    assert ppp.parent == "trunk0.200"


def test_pages_of_interfaces_are_the_whole_list() -> None:
    rows = Links(KnownLinks(*MACHINE)).list_interfaces(["trunk0"], VLANS, SESSIONS)
    assert paged(rows, 1) == paged(rows, 3) == list(rows.records())
    assert len(rows) == len(MACHINE)


# Routes

DEVICES = {2: "trunk0", 3: "uplink0", 11: "trunk0.100", 20: "ppp0"}


def entry(destination: str, *hops: NextHop, **fields: Any) -> RouteEntry:
    return RouteEntry(
        **{
            "table": MAIN_TABLE, "destination": destination, "next_hops": hops,
            "protocol": "kernel", "scope": "link", "type": "unicast", "metric": None, "source": None,
            **fields,
        }
    )  # fmt: skip


def over(ifindex: int, gateway: str | None = None) -> NextHop:
    return NextHop(gateway, ifindex)


def routes(*entries: RouteEntry, sessions: tuple[LinuxSession, ...] = SESSIONS) -> list[Route]:
    rows = list_routes(entries, DEVICES, sessions)
    found = list(rows.records())
    assert len(rows) == len(found)
    return found  # type: ignore[return-value]


def owners(*entries: RouteEntry, sessions: tuple[LinuxSession, ...] = SESSIONS) -> list[int | None]:
    return [route.session_id for route in routes(*entries, sessions=sessions)]


def test_a_route_to_a_session_has_its_id_by_address_then_by_device() -> None:
    assert owners(entry("100.64.0.7/32", over(11))) == [7]
    assert owners(entry("100.64.0.10/32", over(3))) == [5]
    assert owners(entry("198.51.100.0/24", over(20))) == [5]
    assert owners(entry("198.51.100.0/24", over(3, "192.0.2.2"))) == [None]
    ipv6_only = session(8, interface="ppp8", ip_address=None, ipv6_address="2001:db8::8")
    assert owners(entry("0.0.0.0/0", over(3, "192.0.2.2")), sessions=(ipv6_only,)) == [None]


def test_a_route_over_a_shared_vlan_belongs_to_the_session_with_the_prefix() -> None:
    first = on_vlan(6, "trunk0.100", delegated_prefixes=("2001:db8:6::/56",), ipv6_prefix="2001:db8:1::/64")
    newer = on_vlan(7, "trunk0.100", ip_address="100.64.0.7", ipv6_address="2001:db8::7")
    found = [
        entry(destination, over(11))
        for destination in ("2001:db8:6::/56", "2001:db8:1::/64", "2001:db8::7/128", "fe80::/64")
    ]
    assert owners(*found, sessions=(first, newer)) == [None, 6, 6, 7]


def test_each_next_hop_is_a_route() -> None:
    hops = over(3, "192.0.2.2"), over(2, "192.0.2.3")
    found = routes(entry("0.0.0.0/0", *hops, protocol="bgp", scope="global", metric=20))
    assert [(route.gateway, route.dev) for route in found] == [
        ("192.0.2.2", "uplink0"),
        ("192.0.2.3", "trunk0"),
    ]
    assert {(route.protocol, route.metric, route.table) for route in found} == {("bgp", 20, "main")}


def test_a_route_that_leads_nowhere_has_no_device_and_a_steered_one_names_its_table() -> None:
    (route,) = routes(entry("198.51.100.0/24", type="blackhole"))
    assert (route.dev, route.gateway, route.type, route.session_id) == ("", None, "blackhole", None)
    found = routes(entry("100.64.0.10/32", over(20), table=100), entry("0.0.0.0/0", over(3), table=100))
    assert [(route.table, route.session_id) for route in found] == [("100", None), ("100", 5)]


def test_pages_of_routes_are_the_network_s_then_those_of_sessions_by_id() -> None:
    destinations = ("100.64.0.7/32", "10.0.0.0/8", "100.64.0.10/32", "0.0.0.0/0", "100.64.0.6/32")
    rows = list_routes([entry(each, over(3)) for each in destinations], DEVICES, SESSIONS)
    order = ["10.0.0.0/8", "0.0.0.0/0", "100.64.0.10/32", "100.64.0.6/32", "100.64.0.7/32"]
    assert [route.dst for route in paged(rows, 2)] == [route.dst for route in rows.records()] == order


# VLANs

_AHEAD = 1_700_000_000.0


def managed(
    *sessions: LinuxSession,
    vlans: tuple[AccessVlan, ...] = VLANS,
) -> Rows:
    table: SessionTable[LinuxSession] = SessionTable(CGNAT)
    for each in sessions:
        table.add(each)
    served = [ManagedVlan(vlan, SessionType.PPPOE, VlanState.SERVED, 12.5, 20.0, 20.0) for vlan in vlans]
    return list_vlans(served, Links(KnownLinks(*MACHINE)), table, _AHEAD)


def test_a_vlan_counts_its_sessions() -> None:
    counts = {vlan.name: vlan.session_count for vlan in managed(*SESSIONS).records()}
    assert counts == {"trunk0.100": 2, "trunk0.200": 1, "trunk0.50.7": 0}


def test_vlans_are_by_tags_with_the_time_of_its_start_and_the_state_of_its_device() -> None:
    vlans = list(managed().records())
    assert [vlan.name for vlan in vlans] == ["trunk0.100", "trunk0.200", "trunk0.50.7"]
    assert paged(managed(), 1) == vlans
    *_, double = vlans
    assert (double.outer_vlan_id, double.vlan_id, double.protocol) == (50, 7, "802.1ad")
    assert (double.trunk, double.created_at, double.oper_state) == ("trunk0", 1_700_000_012, "up")
    (vlan,) = managed(vlans=(AccessVlan("trunk0", None, 300),)).records()
    assert vlan.oper_state == "notpresent"

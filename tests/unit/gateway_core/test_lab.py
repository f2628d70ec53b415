"""The lab gateway: its subscribers, their traffic, VLANs and lists. `test_lab_model` has their invariants."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from ipaddress import IPv4Address, IPv4Network
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway_contract.contract import Page
from gateway_contract.core.health import ListFaults
from gateway_core.configuration.running import RunningConfiguration
from gateway_core.gateways.lab.gateway import LabGateway
from gateway_core.gateways.lab.population import Population
from gateway_core.gateways.lab.traffic import Traffic, TrafficModel
from gateway_core.gateways.lab.world import AddressPool
from gateway_core.service.core import LISTS
from gateway_core.sessions.journal import Journal
from tests.support.core_clock import StillClock
from tests.support.stack import PATIENCE
from tests.support.tables import list_of

#: A midnight in UTC.
START = 1_700_006_400.0
HOUR, DAY = 3600.0, 86_400.0

EVENING_MOST = TrafficModel(is_full_rate=False)


class Lab(LabGateway):
    """A lab whose clock stands until the test moves it."""

    def __init__(self, document: dict[str, Any], population: Population) -> None:
        self.clock, self.journal = StillClock(START), Journal("life")
        super().__init__(sections(document), population, self.journal, self.clock)

    def pass_time(self, seconds: float, step: float | None = None) -> None:
        end = self.clock.now + seconds
        while self.clock.now < end:
            self.clock.now = min(end, self.clock.now + (step or seconds))
            self.advance()

    def details(self) -> list[Any]:
        return [self.read_detail(session.id) for session in self.sessions.all()]

    def vlan_names(self) -> set[str]:
        return {vlan.name for _, vlan in self.list_vlans().rows_after(None, None)}

    def failures(self) -> list[Any]:
        """All failed sign-ons of the journal."""
        found: list[Any] = []
        for reply in self.journal.follow_failed_sign_ons("life", 0):
            found += reply.failures
            if len(found) == reply.newest:
                break
        return found


def sections(document: dict[str, Any]) -> Any:
    return RunningConfiguration.of(document).sections


@pytest.fixture
def lab(document: dict[str, Any]) -> Callable[..., Lab]:
    """Makes a lab of the `document` as it is then."""

    def make(sessions: int = 0, arrivals: float = 0.0, seed: int = 1, is_full_rate: bool = True) -> Lab:
        return Lab(document, Population(sessions, arrivals, seed, is_full_rate))

    return make


# Subscribers


def test_a_seed_gives_the_same_sessions_failures_and_traffic_however_often_the_lab_advances(
    lab: Callable[..., Lab],
) -> None:
    one, same, other = (lab(200, 5.0, seed, is_full_rate=False) for seed in (7, 7, 8))
    one.pass_time(120, step=0.5)
    same.pass_time(120)
    other.pass_time(120)
    assert one.details() == same.details() != other.details()
    assert one.failures() == same.failures() != other.failures()


def test_without_arrivals_no_session_starts_ends_or_fails(lab: Callable[..., Lab]) -> None:
    gateway = lab(50)
    _, *others = gateway.sessions.all()
    gateway.disconnect([1])
    gateway.pass_time(DAY)
    assert [*gateway.sessions.all()] == others
    assert gateway.failures() == []


def test_arrivals_and_ends_keep_their_rate_and_the_number_of_sessions(lab: Callable[..., Lab]) -> None:
    gateway = lab(500, 5.0)
    gateway.pass_time(1000)
    arrived = max(session.id for session in gateway.sessions.all()) - 500
    # 5000 are expected; the deviation of a Poisson process is their root, 71.
    assert 4700 < arrived < 5300
    assert 400 < len(gateway.sessions) < 600


def test_a_lab_that_is_behind_releases_the_lock_between_its_steps(lab: Callable[..., Lab]) -> None:
    gateway, free = lab(arrivals=1000.0), list[bool]()
    gateway.clock.now += 2

    def pause(seconds: float) -> None:
        assert seconds > 0
        free.append(pool.submit(gateway.sessions.lock.acquire, timeout=PATIENCE).result())
        pool.submit(gateway.sessions.lock.release).result()

    # With one thread, which releases what it acquired.
    with ThreadPoolExecutor(1) as pool:
        gateway.advance(pause)
    assert len(gateway.sessions) > 1500
    assert len(free) >= 3
    assert all(free)


# Addresses and units


def test_a_pool_gives_each_free_host_once_and_returned_addresses_last() -> None:
    pool = AddressPool(IPv4Network("192.0.2.0/29"), IPv4Address("192.0.2.1"), 0)
    in_use = {"192.0.2.3"}
    assert pool.gateway == "192.0.2.1"
    assert [pool.take(in_use.__contains__) for _ in range(2)] == ["192.0.2.2", "192.0.2.4"]
    pool.give_back("192.0.2.4")
    pool.give_back("192.0.2.2")
    rest = [pool.take(in_use.__contains__) for _ in range(5)]
    assert rest == ["192.0.2.5", "192.0.2.6", "192.0.2.4", "192.0.2.2", None]


# Traffic


@given(
    begin=st.floats(START, START + 400 * DAY),
    steps=st.lists(
        st.tuples(
            st.sampled_from([0.0, 0.25, 3.999999, 900.0, 3600.0]) | st.floats(0, 20),
            st.sampled_from(["start", "end", "rate", "read", "read"]),
            st.integers(0, 2**32 - 1),
        ),
        max_size=40,
    ),
)
def test_a_sum_is_that_of_its_sessions_at_any_moment(
    begin: float, steps: list[tuple[float, str, int]]
) -> None:
    now, total, sessions = begin, Traffic(), list[Traffic]()
    for wait, step, drawn in [*steps, (0.0, "read", 0)]:
        now += wait
        usage = EVENING_MOST.compute_usage(now)
        chosen = drawn % len(sessions) if sessions else 0
        if step == "start":
            rates = EVENING_MOST.find_used_rates(f"{drawn:08x}", drawn, drawn // 5)
            sessions.append(Traffic().with_rates(*rates, usage))
            assert sessions[-1].compute_counters(usage).bytes_in == 0
            total += sessions[-1]
        elif step != "read" and sessions:
            before = sessions[chosen]
            is_end = step == "end"
            after = before.stop_at(usage) if is_end else before.with_rates(drawn // 7, drawn // 9, usage)
            assert after.compute_counters(usage) == before.compute_counters(usage)
            sessions[chosen] = after
            total += after - before
        elif step == "read":
            assert total.compute_counters(usage) == sum(sessions, Traffic()).compute_counters(usage)


@pytest.mark.parametrize("border", [HOUR, 5 * HOUR, 20 * HOUR, DAY, 3 * DAY])
def test_the_usage_goes_on_at_the_borders_of_hours_and_days(border: float) -> None:
    before, after = (EVENING_MOST.compute_usage(START + border + moved) for moved in (-1e-3, 1e-3))
    assert 0 < after - before <= 2000 * 100


def test_subscribers_use_most_in_the_evening_and_never_more_than_their_rates() -> None:
    hours = [EVENING_MOST.compute_usage(START + n * HOUR) for n in range(49)]
    used = [after - before for before, after in pairwise(hours)]
    full = TrafficModel(is_full_rate=True)
    assert max(used) == used[20] == full.compute_usage(START + HOUR) - full.compute_usage(START)
    assert min(used) == used[4] > 0
    assert used[:24] == used[24:]
    rates = {
        EVENING_MOST.find_used_rates(f"{drawn:08x}", 1000, 10**9) for drawn in range(0, 2**32, 2**26 + 1)
    }
    assert {250 <= up <= 1000 and 25e7 <= down <= 10**9 for up, down in rates} == {True}
    # No two of the top talkers have the same traffic.
    assert len({down for _, down in rates}) == len(rates)
    assert full.find_used_rates("ffffffff00000000", 1, 2) == (1, 2)


# VLANs


def test_a_vlan_without_sessions_ages_out_after_the_idle_timeout_and_not_before(
    lab: Callable[..., Lab], document: dict[str, Any]
) -> None:
    gateway = lab(1)
    gateway.disconnect([1])
    gateway.pass_time(299.9)
    assert len(gateway.vlan_names()) == 1
    gateway.pass_time(0.1)
    assert gateway.vlan_names() == set()
    sooner = lab(1)
    sooner.disconnect([1])
    document["demux"]["idle_timeout"] = 60
    sooner.configure(sections(document))
    sooner.pass_time(60)
    assert sooner.vlan_names() == set()


def test_a_burst_of_new_vlans_ends_at_its_limit_then_they_come_at_their_rate(
    lab: Callable[..., Lab], document: dict[str, Any]
) -> None:
    document["demux"]["rate_limits"].update(vlans_per_second=2, burst=3)
    gateway = lab(0, 100.0)
    gateway.pass_time(0.4)
    assert len(gateway.vlan_names()) == 3
    gateway.pass_time(9.85, step=0.1)
    # At 100 arrivals a second every token is taken soon after it is there.
    assert len(gateway.vlan_names()) == 3 + 20
    # MAC addresses number the subscribers.
    newest = max(int(one.summary.mac_address.replace(":", "")[2:], 16) for one in gateway.sessions.all())
    assert gateway.count_refusals().total() >= newest + 1 - len(gateway.sessions) > 0


def test_an_interface_is_one_of_a_session_a_vlan_or_the_machine(lab: Callable[..., Lab]) -> None:
    gateway = lab(10)
    session, *_ = gateway.sessions.all()
    own = (session.interface, session.access_interface, f"ifb-{session.interface}")
    for name in (*own, "lo", "trunk0", "uplink0"):
        assert gateway.has_interface(name), name
    for name in ("ifb-nowhere", "nowhere0", "ifb-", "ifb-lo0", ""):
        assert not gateway.has_interface(name), name


# Lists


@pytest.mark.parametrize(
    "listed", [each for each in LISTS if each is not ListFaults], ids=lambda listed: listed.__name__
)
def test_a_list_is_in_the_order_of_its_keys_and_its_pages_are_the_whole_of_it(
    lab: Callable[..., Lab], document: dict[str, Any], listed: type[Any]
) -> None:
    gateway = lab(40, 2.0)
    document["interfaces"]["trunks"].insert(0, "trunk9")
    document["demux"]["trunks"].insert(0, "trunk9")
    document["interfaces"]["uplinks"].append("uplink1")
    document["cgnat"]["vrf_name"] = "shared"
    gateway.configure(sections(document))
    gateway.pass_time(30)
    rows = LISTS[listed](gateway)
    keys = [key for key, _ in rows.rows_after(None, None)]
    assert keys == sorted(set(keys))
    assert len(keys) > 5
    in_pages, cursor = b"", None
    for _ in range(len(rows) // 7 + 1):
        page = list_of("rows", rows, Page(7, cursor), "rows")
        in_pages += b"," + bytes(page["rows"])[1:-1]
        cursor = page["next_cursor"]
    assert b"[" + in_pages[1:] + b"]" == bytes(list_of("rows", rows, None, "rows")["rows"])


def test_the_bgp_summary_names_the_neighbours_of_the_configuration(
    lab: Callable[..., Lab], document: dict[str, Any]
) -> None:
    gateway = lab(5)
    gateway.clock.now += 3661
    summary = gateway.read_bgp_summary()["ipv4Unicast"]
    assert (summary["as"], summary["routerId"], summary["peerCount"]) == (64512, "10.255.0.1", 2)
    assert set(summary["peers"]) == {"10.255.0.2", "10.255.0.6"}
    peer = summary["peers"]["10.255.0.2"]
    assert (peer["remoteAs"], peer["state"], peer["pfxSnt"]) == (64513, "Established", 5)
    assert (peer["peerUptime"], peer["peerUptimeMsec"]) == ("01:01:01", 3_661_000)
    del document["bgp"]
    assert lab(5).read_bgp_summary() == {}


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(86399, "23:59:59"), (86400, "1d00h00m"), (7 * 86400 - 1, "6d23h59m"), (7 * 86400, "01w0d00h")],
)
def test_the_uptime_of_a_neighbour_is_written_as_frr_writes_it(
    lab: Callable[..., Lab], seconds: int, shown: str
) -> None:
    gateway = lab(0)
    gateway.clock.now += seconds
    assert gateway.read_bgp_summary()["ipv4Unicast"]["peers"]["10.255.0.2"]["peerUptime"] == shown


def test_without_uplinks_there_is_no_route_by_bgp(lab: Callable[..., Lab], document: dict[str, Any]) -> None:
    document["interfaces"]["uplinks"] = []
    document["cgnat"]["enabled"] = False
    assert {route.session_id for _, route in lab(5).list_routes().rows_after(None, None)} == {1, 2, 3, 4, 5}

"""The lab gateway: its subscribers, their traffic, and what all of its lists say of them."""

from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from itertools import pairwise
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway_api.core.configuration.running import RunningConfiguration
from gateway_api.core.gateways.lab.gateway import LabGateway
from gateway_api.core.gateways.lab.population import Population
from gateway_api.core.gateways.lab.world import AddressPool, UnitPool
from gateway_api.core.records.paging import Rows
from gateway_api.core.service.core import LISTS
from gateway_api.core.sessions.journal import Journal
from gateway_api.core.sessions.session import Session
from gateway_api.wire.configuration import Configuration
from gateway_api.wire.contract import Page
from gateway_api.wire.core.health import ListFaults
from gateway_api.wire.core.network import Interface, Route
from gateway_api.wire.core.sessions import SessionDetail, SessionFilter
from tests.support.clocks import NOW, StillClock
from tests.support.documents import valid_document
from tests.support.listings import list_of
from tests.support.stack import PATIENCE

START = float(NOW)

#: Linux: IFNAMSIZ less the closing NUL.
LONGEST_NAME = 15

Lab = Callable[..., tuple[LabGateway, StillClock]]


def parsed(document: dict[str, Any]) -> Configuration:
    return RunningConfiguration.of(document).sections


@pytest.fixture
def lab(document: dict[str, Any]) -> Lab:
    """Makes a lab of the `document` as it is then, with the clock that it goes by."""

    def make(sessions: int = 0, arrivals: float = 0.0, seed: int = 1) -> tuple[LabGateway, StillClock]:
        clock = StillClock(START)
        return LabGateway(
            parsed(document), Population(sessions, arrivals, seed), Journal("life"), clock
        ), clock

    return make


def pass_time(gateway: LabGateway, clock: StillClock, seconds: float, step: float = 1.0) -> None:
    end = clock.now + seconds
    while clock.now < end:
        clock.now = min(end, clock.now + step)
        gateway.advance()


def pass_time_until(
    gateway: LabGateway, clock: StillClock, ready: Callable[[], Any], step: float = 1.0
) -> None:
    for _ in range(20_000):
        if ready():
            return
        pass_time(gateway, clock, step, step)
    raise AssertionError("it never happens")


def made(rows: Rows) -> list[Any]:
    return [record for _, record in rows.beyond(None, None)]


def everyone(gateway: LabGateway) -> list[Session]:
    return gateway.sessions.find(SessionFilter())


def detail(gateway: LabGateway, id: int) -> SessionDetail:
    found = gateway.detail(id)
    assert found is not None
    return found


def details(gateway: LabGateway) -> list[SessionDetail]:
    return [detail(gateway, session.id) for session in everyone(gateway)]


def interfaces(gateway: LabGateway) -> dict[str, Interface]:
    listed: list[Interface] = made(gateway.interfaces())
    by_name = {interface.name: interface for interface in listed}
    assert len(by_name) == len(listed)
    return by_name


def established_at(gateway: LabGateway) -> set[int]:
    peers = gateway.bgp_summary()["ipv4Unicast"]["peers"]
    return {peer["peerUptimeEstablishedEpoch"] for peer in peers.values()}


def host_routes(gateway: LabGateway) -> list[Route]:
    return [route for route in made(gateway.routes()) if route.dst.endswith("/32")]


def vlan_names(gateway: LabGateway) -> set[str]:
    return {vlan.name for vlan in made(gateway.vlans())}


def demux_states(gateway: LabGateway) -> dict[str, str]:
    return {vlan.name: vlan.state for vlan in made(gateway.demux_vlans())}


def refused(gateway: LabGateway) -> int:
    return gateway.refusals().total()


def limit_vlans(document: dict[str, Any], **limits: int) -> None:
    document["demux"]["rate_limits"].update(limits)


def one_vlan_only(document: dict[str, Any]) -> None:
    """Leaves one VLAN on one trunk."""
    demux = document["demux"]
    demux["trunks"] = ["trunk0"]
    demux["vlan_profiles"] = [{**demux["vlan_profiles"][0], "vlan_range": "1000"}]


def assert_counters_add_up(gateway: LabGateway) -> None:
    """Of interfaces whose sessions are all still there. Each counter drops the part of a byte."""
    for name, interface in interfaces(gateway).items():
        if interface.type in ("trunk", "vlan"):
            below = [one for one in details(gateway) if f"{one.access_interface}.".startswith(f"{name}.")]
            lost_in = sum(one.bytes_in for one in below) - interface.stats.rx_bytes
            lost_out = sum(one.bytes_out for one in below) - interface.stats.tx_bytes
            assert abs(lost_in) <= len(below), name
            assert abs(lost_out) <= len(below), name


# Who is there


def test_the_same_seed_brings_the_same_subscribers(lab: Lab) -> None:
    (one, clock_of_one), (other, clock_of_other) = lab(200, 5.0, seed=7), lab(200, 5.0, seed=7)
    pass_time(one, clock_of_one, 60, step=0.05)
    pass_time(other, clock_of_other, 60, step=0.05)
    assert everyone(one) == everyone(other)
    assert details(one) == details(other)


def test_how_often_the_lab_advances_does_not_change_who_comes(lab: Lab) -> None:
    (one, clock_of_one), (other, clock_of_other) = lab(200, 5.0), lab(200, 5.0)
    pass_time(one, clock_of_one, 60, step=0.05)
    pass_time(other, clock_of_other, 60, step=60)
    assert everyone(one) == everyone(other)


def test_another_seed_brings_other_subscribers(lab: Lab) -> None:
    one, other = lab(200, seed=1)[0], lab(200, seed=2)[0]
    assert {s.acct_session_id for s in everyone(one)}.isdisjoint(s.acct_session_id for s in everyone(other))


@pytest.mark.parametrize("count", [0, 1, 500])
def test_the_lab_starts_with_as_many_sessions_as_asked(lab: Lab, count: int) -> None:
    gateway, _ = lab(count)
    assert len(everyone(gateway)) == count
    assert len(made(gateway.sessions.rows(Session.qos))) == len(host_routes(gateway)) == count
    statistics = gateway.sessions.statistics()
    assert statistics.active_sessions == statistics.qos_sessions == count
    assert statistics.pppoe_sessions + statistics.dhcp_sessions == count


def test_without_arrivals_nobody_comes_or_goes(lab: Lab) -> None:
    gateway, clock = lab(50)
    before = everyone(gateway)
    pass_time(gateway, clock, 7 * 86400, step=3600)
    assert everyone(gateway) == before


def test_statistics_count_what_the_sessions_are(lab: Lab) -> None:
    gateway, clock = lab(500, 10.0)
    pass_time(gateway, clock, 60)
    sessions, statistics = everyone(gateway), gateway.sessions.statistics()
    shared = [s for s in sessions if IPv4Address(s.summary.ip_address) in IPv4Network("100.64.0.0/10")]
    assert statistics.active_sessions == len(sessions)
    assert statistics.pppoe_sessions == sum(s.summary.type == "PPPoE" for s in sessions)
    assert statistics.dhcp_sessions == sum(s.summary.type == "DHCP" for s in sessions)
    assert statistics.vrf_steered_sessions == sum(s.vrf_steered for s in sessions) == len(shared)
    assert statistics.public_ip_sessions == len(sessions) - len(shared)
    assert 0 < len(shared) < len(sessions)


def test_sessions_at_the_start_are_older_than_the_lab(lab: Lab) -> None:
    gateway, _ = lab(50)
    assert all(session.summary.started_at < START for session in everyone(gateway))


@pytest.mark.parametrize("ahead", [-86_400, -1, 1, 3_600, 86_400])
def test_a_clock_that_is_set_moves_all_times_shown_and_nothing_else(lab: Lab, ahead: int) -> None:
    gateway, clock = lab(50)
    pass_time(gateway, clock, 100)
    started = {session.id: session.summary.started_at for session in everyone(gateway)}
    created = {vlan.name: vlan.created_at for vlan in made(gateway.vlans())}
    established = established_at(gateway)
    counted = {one.id: (one.bytes_in, one.bytes_out) for one in details(gateway)}
    clock.ahead = ahead
    gateway.advance()
    assert {one.id: one.started_at - ahead for one in details(gateway)} == started
    assert {session.id: session.summary.started_at - ahead for session in everyone(gateway)} == started
    assert {vlan.name: vlan.created_at - ahead for vlan in made(gateway.vlans())} == created
    assert {vlan.name: vlan.created_at - ahead for vlan in made(gateway.demux_vlans())} == created
    assert {at - ahead for at in established_at(gateway)} == established
    assert {one.id: (one.bytes_in, one.bytes_out) for one in details(gateway)} == counted


def test_who_comes_after_a_clock_was_set_is_dated_by_it(document: dict[str, Any]) -> None:
    clock, journal = StillClock(START), Journal("life")
    gateway = LabGateway(parsed(document), Population(0, 1.0, 1), journal, clock)
    clock.ahead = 86_400
    pass_time_until(gateway, clock, lambda: everyone(gateway))
    (session, *_) = everyone(gateway)
    assert clock.wall() - 2 <= session.summary.started_at <= clock.wall()
    gateway.disconnect(session.id)
    reply = next(journal.follow("life", 0))
    assert reply is not None
    events = msgspec.json.decode(msgspec.json.encode(reply.events))
    assert all(clock.wall() - 2 <= event["at"] <= clock.wall() for event in events)
    assert {event["event"] for event in events} == {"session.up", "session.down"}


def test_a_clock_that_is_slewed_moves_nothing_until_it_is_a_second_off(lab: Lab) -> None:
    gateway, clock = lab(1)
    was = everyone(gateway)
    clock.ahead = 0.9
    gateway.advance()
    assert everyone(gateway) == was


def test_arrivals_and_departures_come_at_about_their_rate(lab: Lab) -> None:
    gateway, clock = lab(500, 5.0)
    pass_time(gateway, clock, 1000)
    arrived = max(session.id for session in everyone(gateway)) - 500
    left = 500 + arrived - len(everyone(gateway))
    # 5000 of each are expected; the deviation of a Poisson process is their root, 71.
    assert 4700 < arrived < 5300
    assert 4700 < left < 5300


def test_the_number_of_sessions_stays_at_its_mean(lab: Lab) -> None:
    gateway, clock = lab(500, 5.0)
    counts = []
    for _ in range(1000):
        pass_time(gateway, clock, 1)
        counts.append(gateway.sessions.statistics().active_sessions)
    assert 460 < sum(counts) / len(counts) < 540
    assert len(set(counts)) > 20


def test_a_lab_that_lost_everybody_fills_up_to_its_mean_again(lab: Lab) -> None:
    gateway, clock = lab(100, 5.0)
    for session in everyone(gateway):
        gateway.disconnect(session.id)
    pass_time(gateway, clock, 300)
    assert 50 < len(everyone(gateway)) < 150


@pytest.mark.parametrize("seed", range(8))
def test_a_lab_goes_on_when_its_last_session_is_disconnected(lab: Lab, seed: int) -> None:
    gateway, clock = lab(1, 1.0, seed)
    gateway.disconnect(1)
    pass_time_until(gateway, clock, lambda: everyone(gateway))
    assert everyone(gateway)[0].id > 1


def test_a_lab_that_starts_empty_fills(lab: Lab) -> None:
    gateway, clock = lab(0, 1.0)
    pass_time(gateway, clock, 200)
    assert 150 < len(everyone(gateway)) < 250


def test_a_session_that_arrives_started_when_it_came(lab: Lab) -> None:
    gateway, clock = lab(0, 1.0)
    pass_time(gateway, clock, 100, step=100)
    started = [session.summary.started_at for session in everyone(gateway)]
    assert started == sorted(started)
    assert START <= started[0] < started[-1] <= START + 100


def test_ids_are_never_given_out_again(lab: Lab) -> None:
    gateway, clock = lab(20, 5.0)
    seen = {session.id: session.acct_session_id for session in everyone(gateway)}
    for _ in range(100):
        pass_time(gateway, clock, 1)
        for session in everyone(gateway):
            assert seen.setdefault(session.id, session.acct_session_id) == session.acct_session_id
    assert len(seen) > 400


def nobody(_: str) -> bool:
    return False


def test_a_pool_gives_each_address_but_the_first_and_the_last_once() -> None:
    pool = AddressPool(IPv4Network("192.0.2.0/29"), IPv4Address("192.0.2.1"))
    assert pool.gateway == "192.0.2.1"
    assert [pool.take(nobody) for _ in range(5)] == [f"192.0.2.{host}" for host in range(2, 7)]
    assert pool.take(nobody) is None


def test_addresses_that_came_back_go_out_after_all_others_in_the_order_in_which_they_came() -> None:
    pool = AddressPool(IPv4Network("192.0.2.0/29"), IPv4Address("192.0.2.1"))
    for _ in range(3):
        pool.take(nobody)
    pool.give_back("192.0.2.4")
    pool.give_back("192.0.2.2")
    assert [pool.take(nobody) for _ in range(4)] == ["192.0.2.5", "192.0.2.6", "192.0.2.4", "192.0.2.2"]


def test_a_pool_passes_over_addresses_that_somebody_has() -> None:
    pool = AddressPool(IPv4Network("192.0.2.0/29"), IPv4Address("192.0.2.1"))
    taken = {"192.0.2.2", "192.0.2.4"}
    assert [pool.take(taken.__contains__) for _ in range(4)] == ["192.0.2.3", "192.0.2.5", "192.0.2.6", None]


def test_the_lowest_unit_number_that_is_free_goes_out_first() -> None:
    units = UnitPool()
    assert [units.take() for _ in range(4)] == [0, 1, 2, 3]
    for unit in (2, 0):
        units.give_back(unit)
    assert [units.take() for _ in range(3)] == [0, 2, 4]


# Counters


def test_counters_move_exactly_at_the_rates(lab: Lab) -> None:
    gateway, clock = lab(20)
    before = details(gateway)
    clock.now += 64
    for was, now in zip(before, details(gateway), strict=True):
        # The part of a byte that was there before may make one more.
        assert now.bytes_out - was.bytes_out in (was.rate_down_bps * 8, was.rate_down_bps * 8 + 1)
        assert now.bytes_in - was.bytes_in in (was.rate_up_bps * 8, was.rate_up_bps * 8 + 1)


def test_a_session_has_counted_at_its_rates_since_it_came(lab: Lab) -> None:
    gateway, clock = lab(0, 1.0)
    pass_time(gateway, clock, 1000)
    for one in details(gateway):
        # started_at is whole seconds.
        longest = clock.now - one.started_at
        assert (longest - 1) * one.rate_down_bps / 8 <= one.bytes_out <= longest * one.rate_down_bps / 8
        assert (longest - 1) * one.rate_up_bps / 8 <= one.bytes_in <= longest * one.rate_up_bps / 8


def test_a_record_does_not_wait_for_arrivals(lab: Lab) -> None:
    gateway, _ = lab(3)
    with ThreadPoolExecutor(1) as other, gateway.sessions.lock:
        found = other.submit(gateway.detail, 2).result(PATIENCE)
    assert found == gateway.detail(2)


def test_a_lab_that_is_behind_leaves_the_lock_to_others(lab: Lab) -> None:
    gateway, clock = lab(arrivals=1000.0)
    clock.now += 2
    free = []

    def pause(seconds: float) -> None:
        assert seconds > 0
        taken = pool.submit(gateway.sessions.lock.acquire, timeout=PATIENCE).result()
        pool.submit(gateway.sessions.lock.release).result()
        free.append(taken)

    # With one thread, which releases what it acquired.
    with ThreadPoolExecutor(1) as pool:
        gateway.advance(pause)
    assert len(gateway.sessions) > 1500
    assert len(free) >= 3
    assert all(free)


def test_a_rate_change_neither_jumps_nor_resets_the_counters(lab: Lab) -> None:
    gateway, _ = lab(5)
    before = detail(gateway, 3)
    changed = gateway.set_rate(3, 8_000_000, 800_000)
    after = detail(gateway, 3)
    assert changed == (before, after)
    assert (after.rate_down_bps, after.rate_up_bps) == (8_000_000, 800_000)
    assert (after.bytes_in, after.bytes_out) == (before.bytes_in, before.bytes_out)
    assert (after.packets_in, after.packets_out) == (before.packets_in, before.packets_out)


def test_after_a_rate_change_the_counters_go_on_at_the_new_rates(lab: Lab) -> None:
    gateway, clock = lab(5)
    gateway.set_rate(3, 8_000_000, 800_000)
    before = detail(gateway, 3)
    clock.now += 10
    after = detail(gateway, 3)
    assert after.bytes_out - before.bytes_out == 10_000_000
    assert after.bytes_in - before.bytes_in == 1_000_000


def test_many_rate_changes_lose_no_more_than_a_byte_each(lab: Lab) -> None:
    gateway, clock = lab(1)
    before = detail(gateway, 1)
    for _ in range(100):
        gateway.set_rate(1, 8_000_008, 80_008)
        clock.now += 0.25
    after = detail(gateway, 1)
    assert -100 <= after.bytes_out - before.bytes_out - 25 * 1_000_001 <= 1
    assert -100 <= after.bytes_in - before.bytes_in - 25 * 10_001 <= 1


def test_a_rate_change_shows_in_every_list(lab: Lab) -> None:
    gateway, _ = lab(5)
    gateway.set_rate(3, 7_000_000, 600_000)
    (summary,) = [session.summary for session in everyone(gateway) if session.id == 3]
    (qos,) = [record for record in made(gateway.sessions.rows(Session.qos)) if record.session_id == 3]
    assert (summary.rate_down, summary.rate_up) == (7_000_000, 600_000)
    assert (qos.rate_down_bps, qos.rate_up_bps) == (7_000_000, 600_000)


def test_the_rate_of_a_session_that_is_not_there_cannot_change(lab: Lab) -> None:
    gateway, _ = lab(5)
    assert gateway.set_rate(6, 7_000_000, 600_000) is None


def test_counters_of_trunks_and_vlans_are_the_sums_of_their_sessions(lab: Lab) -> None:
    gateway, clock = lab(300)
    clock.now += 12.34
    assert_counters_add_up(gateway)


def test_counters_add_up_after_rate_changes(lab: Lab) -> None:
    gateway, clock = lab(60)
    for id in range(1, 60, 3):
        clock.now += 0.7
        gateway.set_rate(id, 1_000_000 * id, 700_000)
    clock.now += 12.34
    assert_counters_add_up(gateway)


def test_counters_add_up_after_arrivals(lab: Lab) -> None:
    gateway, clock = lab(0, 20.0)
    pass_time(gateway, clock, 5, step=0.05)
    sessions = everyone(gateway)
    assert len(sessions) == max(session.id for session in sessions) > 50
    assert_counters_add_up(gateway)


def test_counters_add_up_when_a_rate_changes_before_arrivals_that_were_due(lab: Lab) -> None:
    gateway, clock = lab(0, 20.0)
    pass_time(gateway, clock, 3, step=0.05)
    clock.now += 2
    gateway.set_rate(1, 50_000_000, 5_000_000)
    gateway.advance()
    sessions = everyone(gateway)
    assert len(sessions) == max(session.id for session in sessions) > 50
    assert_counters_add_up(gateway)


def test_the_first_uplink_carries_what_the_trunks_carry(lab: Lab) -> None:
    gateway, clock = lab(100)
    clock.now += 5
    by_name = interfaces(gateway)
    trunks = [by_name["trunk0"].stats, by_name["trunk1"].stats]
    uplink = by_name["uplink0"].stats
    assert uplink.tx_bytes == sum(trunk.rx_bytes for trunk in trunks) > 0
    assert uplink.rx_bytes == sum(trunk.tx_bytes for trunk in trunks) > 0


def test_a_session_device_counts_what_its_session_counts(lab: Lab) -> None:
    gateway, clock = lab(40)
    clock.now += 3.21
    by_name = interfaces(gateway)
    for session, one in zip(everyone(gateway), details(gateway), strict=True):
        stats = by_name[session.interface].stats
        assert (stats.rx_bytes, stats.tx_bytes) == (one.bytes_in, one.bytes_out)
        assert (stats.rx_packets, stats.tx_packets) == (one.packets_in, one.packets_out)
        assert by_name[f"ifb-{session.interface}"].stats.rx_bytes == one.bytes_in


def test_the_counters_of_a_trunk_do_not_fall_when_a_session_ends(lab: Lab) -> None:
    gateway, clock = lab(20)
    clock.now += 5
    before = {name: interfaces(gateway)[name].stats for name in ("trunk0", "trunk1")}
    for session in everyone(gateway):
        gateway.disconnect(session.id)
    clock.now += 1000
    for name, stats in before.items():
        after = interfaces(gateway)[name].stats
        assert 0 <= stats.rx_bytes - after.rx_bytes <= 20
        assert 0 <= stats.tx_bytes - after.tx_bytes <= 20


def test_no_counter_of_a_trunk_ever_falls_while_sessions_come_and_go(lab: Lab) -> None:
    gateway, clock = lab(50, 20.0)
    last = (0, 0)
    for _ in range(200):
        pass_time(gateway, clock, 0.1, step=0.1)
        stats = interfaces(gateway)["trunk0"].stats
        assert stats.rx_bytes >= last[0]
        assert stats.tx_bytes >= last[1]
        last = stats.rx_bytes, stats.tx_bytes


# Disconnecting


def test_a_disconnected_session_is_gone_from_every_list(lab: Lab) -> None:
    gateway, _ = lab(50)
    gone = next(session for session in everyone(gateway) if session.vrf_steered)
    before, on_vlan = (
        gateway.sessions.statistics(),
        gateway.disconnect_interface(gone.access_interface, dry_run=True),
    )
    assert on_vlan is not None
    assert gateway.disconnect(gone.id)
    assert gone.id not in {session.id for session in everyone(gateway)}
    assert gateway.sessions.find(SessionFilter(username=gone.summary.username)) == []
    assert gateway.sessions.get(gone.id) is None
    assert gone.id not in {record.session_id for record in made(gateway.sessions.rows(Session.qos))}
    assert gone.id not in {route.session_id for route in made(gateway.routes())}
    assert f"{gone.summary.ip_address}/32" not in {route.dst for route in made(gateway.routes())}
    assert gone.id not in {session.id for session in made(gateway.sessions.cgnat_sessions())}
    assert not {gone.interface, f"ifb-{gone.interface}"} & set(interfaces(gateway))
    after = gateway.sessions.statistics()
    assert after.active_sessions == before.active_sessions - 1
    assert after.vrf_steered_sessions == before.vrf_steered_sessions - 1
    assert after.qos_sessions == before.qos_sessions - 1
    (vlan,) = [vlan for vlan in made(gateway.vlans()) if vlan.name == gone.access_interface]
    assert vlan.session_count == len(on_vlan) - 1


def test_a_session_cannot_be_disconnected_twice(lab: Lab) -> None:
    gateway, _ = lab(5)
    session = detail(gateway, 3)
    assert gateway.disconnect(3) == session
    assert gateway.disconnect(3) is None
    assert len(everyone(gateway)) == 4


def test_all_sessions_of_an_access_interface_are_disconnected_at_once(lab: Lab) -> None:
    gateway, _ = lab(100)
    vlan = everyone(gateway)[0].access_interface
    expected = [session for session in everyone(gateway) if session.access_interface == vlan]
    others = [session for session in everyone(gateway) if session.access_interface != vlan]
    assert gateway.disconnect_interface(vlan, dry_run=False) == expected
    assert everyone(gateway) == others


def test_a_dry_run_disconnects_nobody(lab: Lab) -> None:
    gateway, _ = lab(100)
    before = everyone(gateway)
    found = gateway.disconnect_interface(before[0].access_interface, dry_run=True)
    assert found is not None
    assert before[0] in found
    assert everyone(gateway) == before


def test_an_interface_of_any_type_is_there_until_it_is_gone(lab: Lab) -> None:
    gateway, _ = lab(10)
    session = everyone(gateway)[0]
    for name in interfaces(gateway):
        assert gateway.disconnect_interface(name, dry_run=True) is not None, name
    gateway.disconnect(session.id)
    for name in (session.interface, f"ifb-{session.interface}", "nowhere0", "ifb-", "ifb-lo0", ""):
        assert gateway.disconnect_interface(name, dry_run=True) is None, name


def test_the_own_device_of_a_session_is_no_access_interface(lab: Lab) -> None:
    gateway, _ = lab(10)
    assert gateway.disconnect_interface(everyone(gateway)[0].interface, dry_run=False) == []
    assert len(everyone(gateway)) == 10


# VLANs


def test_the_session_counts_of_vlans_are_those_of_the_sessions(lab: Lab) -> None:
    gateway, clock = lab(300, 10.0)
    pass_time(gateway, clock, 100)
    counted = Counter(session.access_interface for session in everyone(gateway))
    listed = {vlan.name: vlan.session_count for vlan in made(gateway.vlans())}
    assert {name: count for name, count in listed.items() if count} == dict(counted)


def test_a_vlan_says_where_it_is_and_how_it_is_tagged(lab: Lab) -> None:
    gateway, _ = lab(100)
    for vlan in made(gateway.vlans()):
        if vlan.outer_vlan_id is None:
            assert (vlan.name, vlan.protocol) == (f"{vlan.trunk}.{vlan.vlan_id}", "802.1Q")
        else:
            assert vlan.name == f"{vlan.trunk}.{vlan.outer_vlan_id}.{vlan.vlan_id}"
            assert vlan.protocol == "802.1ad"
    assert {vlan.protocol for vlan in made(gateway.vlans())} == {"802.1Q", "802.1ad"}


def test_the_demux_lists_the_same_vlans_with_their_state(lab: Lab) -> None:
    gateway, clock = lab(100, 5.0)
    pass_time(gateway, clock, 100)
    states = demux_states(gateway)
    active = {vlan.name for vlan in made(gateway.vlans()) if vlan.session_count}
    assert set(states) == vlan_names(gateway)
    assert {name for name, state in states.items() if state == "active"} == active
    assert set(states.values()) <= {"active", "idle"}


def test_a_vlan_is_as_old_as_its_oldest_session_that_ever_was(lab: Lab) -> None:
    gateway, _ = lab(100)
    started: dict[str, int] = {}
    for session in everyone(gateway):
        name, at = session.access_interface, session.summary.started_at
        started[name] = min(at, started.get(name, at))
    assert {vlan.name: vlan.created_at for vlan in made(gateway.vlans())} == started


def test_a_vlan_without_sessions_is_idle(lab: Lab) -> None:
    gateway, _ = lab(1)
    (vlan,) = vlan_names(gateway)
    assert demux_states(gateway) == {vlan: "active"}
    gateway.disconnect(1)
    assert demux_states(gateway) == {vlan: "idle"}
    assert vlan in interfaces(gateway)


def test_a_vlan_without_sessions_ages_out_after_the_idle_timeout_and_not_before(lab: Lab) -> None:
    gateway, clock = lab(1)
    (vlan,) = vlan_names(gateway)
    clock.now += 1000
    gateway.disconnect(1)
    clock.now += 299.9
    gateway.advance()
    assert vlan_names(gateway) == {vlan}
    clock.now += 0.1
    gateway.advance()
    assert vlan_names(gateway) == set(demux_states(gateway)) == set()
    assert vlan not in interfaces(gateway)


def test_a_vlan_with_sessions_never_ages_out(lab: Lab) -> None:
    gateway, clock = lab(2)
    before = vlan_names(gateway)
    pass_time(gateway, clock, 86400, step=600)
    assert vlan_names(gateway) == before


def test_a_new_session_starts_the_idle_time_of_its_vlan_over(lab: Lab, document: dict[str, Any]) -> None:
    one_vlan_only(document)
    gateway, clock = lab(0, 0.1)
    idle_since = []
    for _ in range(2):
        pass_time_until(gateway, clock, lambda: everyone(gateway))
        if idle_since:
            # Nobody is to come any more.
            document["demux"]["vlan_profiles"] = []
            gateway.configure(parsed(document))
        gateway.disconnect(everyone(gateway)[0].id)
        idle_since.append(clock.now)
    first, second = idle_since
    assert first < second < first + 300
    clock.now = first + 300
    gateway.advance()
    assert demux_states(gateway) == {"trunk0.1000": "idle"}
    clock.now = second + 300
    gateway.advance()
    assert demux_states(gateway) == {}


def test_a_shorter_idle_timeout_counts_for_vlans_that_are_idle_already(
    lab: Lab, document: dict[str, Any]
) -> None:
    gateway, clock = lab(1)
    gateway.disconnect(1)
    clock.now += 100
    document["demux"]["idle_timeout"] = 60
    gateway.configure(parsed(document))
    gateway.advance()
    assert vlan_names(gateway) == set()


def test_a_burst_of_new_vlans_is_cut_off_at_its_limit(lab: Lab, document: dict[str, Any]) -> None:
    limit_vlans(document, vlans_per_second=1, burst=3)
    gateway, clock = lab(0, 100.0)
    pass_time(gateway, clock, 0.9, step=0.1)
    assert len(vlan_names(gateway)) == 3
    assert refused(gateway) > 50


def test_new_vlans_come_no_faster_than_their_limit(lab: Lab, document: dict[str, Any]) -> None:
    limit_vlans(document, vlans_per_second=2, burst=3)
    gateway, clock = lab(0, 100.0)
    pass_time(gateway, clock, 10.25)
    # At 100 arrivals a second every token is taken soon after it is there.
    assert len(vlan_names(gateway)) == 3 + 20


def test_there_are_never_more_vlans_than_the_most_allowed(lab: Lab, document: dict[str, Any]) -> None:
    limit_vlans(document, max_vlans=5)
    gateway, clock = lab(0, 100.0)
    pass_time(gateway, clock, 10)
    assert len(vlan_names(gateway)) == 5
    assert refused(gateway) > 0
    assert {session.access_interface for session in everyone(gateway)} == vlan_names(gateway)


def test_the_most_vlans_counts_at_the_start_too(lab: Lab, document: dict[str, Any]) -> None:
    limit_vlans(document, max_vlans=2)
    gateway, _ = lab(100)
    assert len(vlan_names(gateway)) == 2
    assert refused(gateway) == 100 - len(everyone(gateway)) > 0


def test_every_refused_subscriber_is_counted(lab: Lab, document: dict[str, Any]) -> None:
    limit_vlans(document, vlans_per_second=1, burst=2)
    gateway, clock = lab(0, 100.0)
    pass_time_until(gateway, clock, lambda: len(everyone(gateway)) == 8, step=0.001)
    # MAC addresses number the subscribers, and the last of them was let in.
    came = 1 + max(int(session.summary.mac_address.replace(":", "")[2:], 16) for session in everyone(gateway))
    assert refused(gateway) == came - len(everyone(gateway)) > 0


def test_a_session_on_a_vlan_that_exists_is_never_refused(lab: Lab, document: dict[str, Any]) -> None:
    one_vlan_only(document)
    limit_vlans(document, vlans_per_second=1, burst=1, max_vlans=1)
    gateway, clock = lab(0, 100.0)
    pass_time(gateway, clock, 10)
    assert len(everyone(gateway)) > 500
    assert refused(gateway) == 0


def test_sessions_at_the_start_need_no_patience(lab: Lab, document: dict[str, Any]) -> None:
    limit_vlans(document, vlans_per_second=1, burst=1)
    gateway, _ = lab(500)
    assert len(everyone(gateway)) == 500
    assert refused(gateway) == 0


# What belongs to a session


@pytest.fixture
def busy(lab: Lab) -> LabGateway:
    """300 sessions, most of them of subscribers who came after others had left."""
    gateway, clock = lab(300, 10.0)
    pass_time(gateway, clock, 100)
    return gateway


def test_every_session_has_one_host_route(busy: LabGateway) -> None:
    routes = {route.session_id: route for route in host_routes(busy)}
    assert len(host_routes(busy)) == len(routes) == len(everyone(busy))
    for session in everyone(busy):
        route = routes[session.id]
        assert (route.dst, route.dev) == (f"{session.summary.ip_address}/32", session.interface)
        assert route.table == ("100" if session.vrf_steered else "main")


def test_two_thirds_of_the_sessions_are_dual_stack_with_networks_of_their_own(busy: LabGateway) -> None:
    sessions = [session.summary for session in everyone(busy)]
    dual = [session for session in sessions if session.ipv6_address is not None]
    assert 0.55 < len(dual) / len(sessions) < 0.78
    networks = []
    for session in dual:
        prefix, (delegated,) = IPv6Network(session.ipv6_prefix), map(IPv6Network, session.delegated_prefixes)
        assert (prefix.prefixlen, delegated.prefixlen) == (64, 56)
        assert IPv6Address(session.ipv6_address) in prefix
        networks += [prefix, delegated]
    networks.sort()
    assert all(network.subnet_of(IPv6Network("2001:db8::/32")) for network in networks)
    assert not any(one.overlaps(next) for one, next in pairwise(networks))
    texts = [text for session in dual for text in (session.ipv6_prefix, *session.delegated_prefixes)]
    assert sorted(texts) == sorted(map(str, networks))


def test_the_other_sessions_have_ipv4_only(busy: LabGateway) -> None:
    others = [s.summary for s in everyone(busy) if s.summary.ipv6_address is None]
    assert {(one.ipv6_prefix, one.delegated_prefixes) for one in others} == {(None, ())}
    assert None not in {session.summary.ip_address for session in everyone(busy)}


def test_the_networks_of_a_dual_stack_session_are_routed_to_it(busy: LabGateway) -> None:
    routes = {route.dst: route for route in made(busy.routes()) if ":" in route.dst}
    expected = {
        network: (session.id, session.interface, "main")
        for session in everyone(busy)
        for network in (session.summary.ipv6_prefix, *session.summary.delegated_prefixes)
        if network is not None
    }
    assert {dst: (one.session_id, one.dev, one.table) for dst, one in routes.items()} == expected


def test_a_session_has_the_vlan_ids_of_its_access_interface(busy: LabGateway) -> None:
    tags_of = {vlan.name: (vlan.outer_vlan_id, vlan.vlan_id) for vlan in made(busy.vlans())}
    sessions = [session.summary for session in everyone(busy)]
    assert {None} < {session.outer_vlan_id for session in sessions}
    for session in sessions:
        assert (session.outer_vlan_id, session.inner_vlan_id) == tags_of[session.access_interface]


def test_every_route_to_somewhere_is_there_once(busy: LabGateway) -> None:
    places = Counter((route.table, route.dst) for route in made(busy.routes()))
    assert set(places.values()) == {1}
    assert {("main", "0.0.0.0/0"), ("100", "0.0.0.0/0")} <= set(places)


def test_every_session_has_one_qos_record(busy: LabGateway) -> None:
    records = {record.session_id: record for record in made(busy.sessions.rows(Session.qos))}
    assert len(made(busy.sessions.rows(Session.qos))) == len(records) == len(everyone(busy))
    names = interfaces(busy)
    for session in everyone(busy):
        record = records[session.id]
        assert (record.username, record.interface) == (session.summary.username, session.interface)
        assert (record.rate_down_bps, record.rate_up_bps) == (100_000_000, 20_000_000)
        assert names[record.interface].parent == session.access_interface
        assert names[str(record.ifb_device)].type == "ifb"


@pytest.mark.parametrize(
    ("kind", "profile", "overhead"), [("PPPoE", "pppoe_ethernet", 50), ("DHCP", "ipoe_qinq", 46)]
)
def test_a_session_is_shaped_for_its_kind_of_line(
    busy: LabGateway, kind: str, profile: str, overhead: int
) -> None:
    ids = {session.id for session in everyone(busy) if session.summary.type == kind}
    shaped = {
        (r.overhead_profile, r.overhead, r.mpu)
        for r in made(busy.sessions.rows(Session.qos))
        if r.session_id in ids
    }
    assert shaped == {(profile, overhead, 84)}


def test_every_session_has_one_device_and_one_ifb(busy: LabGateway) -> None:
    listed = interfaces(busy)
    sessions = everyone(busy)
    devices = {session.interface for session in sessions}
    pppoe = {session.interface for session in sessions if session.is_pppoe}
    assert len(devices) == len(sessions)
    assert {name for name, one in listed.items() if one.type == "ppp"} == pppoe
    assert {name for name, one in listed.items() if one.type == "ifb"} == {f"ifb-{name}" for name in devices}
    others = {"lo", "trunk0", "trunk1", "uplink0", "cgnat0", "cgnat"} | vlan_names(busy)
    assert set(listed) == devices | {f"ifb-{name}" for name in devices} | others


def test_every_interface_has_an_index_a_name_and_a_mac_address_of_its_own(busy: LabGateway) -> None:
    listed: list[Interface] = made(busy.interfaces())
    macs = [one.mac_address for one in listed if one.mac_address is not None]
    assert len({one.ifindex for one in listed}) == len(listed)
    assert len({one.name for one in listed}) == len(listed)
    assert len(set(macs)) == len(macs)


def test_every_parent_and_every_device_of_a_route_is_an_interface(busy: LabGateway) -> None:
    listed = interfaces(busy)
    assert {one.parent for one in listed.values()} - {None} <= set(listed)
    assert {route.dev for route in made(busy.routes())} <= set(listed)


def test_every_name_is_one_that_linux_takes(lab: Lab) -> None:
    gateway, _ = lab(300)
    assert {name for name in interfaces(gateway) if len(name) > LONGEST_NAME} == set()


def test_every_session_has_an_address_a_name_and_a_mac_address_of_its_own(busy: LabGateway) -> None:
    sessions = everyone(busy)
    for values in (
        {session.summary.ip_address for session in sessions},
        {session.summary.username for session in sessions},
        {session.summary.mac_address for session in sessions},
        {session.acct_session_id for session in sessions},
    ):
        assert len(values) == len(sessions)


@pytest.mark.parametrize("source_range", ["198.18.0.0/16", "198.18.0.0/15", "198.18.0.0/24"])
def test_addresses_are_unique_when_the_shared_ones_are_among_the_public(
    lab: Lab, document: dict[str, Any], source_range: str
) -> None:
    document["cgnat"]["source_range"] = source_range
    gateway, _ = lab(200)
    assert len({session.summary.ip_address for session in everyone(gateway)}) == 200


def test_nobody_has_the_address_of_a_gateway(busy: LabGateway) -> None:
    gateways = {session.gateway for session in everyone(busy)}
    assert gateways == {"100.64.0.1", "198.18.0.1"}
    assert gateways.isdisjoint(session.summary.ip_address for session in everyone(busy))


def test_cgnat_sessions_are_those_that_are_steered(busy: LabGateway) -> None:
    steered = {session.id: session for session in everyone(busy) if session.vrf_steered}
    listed = {record.id: record for record in made(busy.sessions.cgnat_sessions())}
    assert set(listed) == set(steered)
    for id, record in listed.items():
        assert IPv4Address(record.ip_address) in IPv4Network("100.64.0.0/10")
        assert (record.vrf_name, record.vrf_table) == ("cgnat", 100)
        assert (record.handoff_interface, record.handoff_gateway) == ("cgnat0", "10.255.1.2")
        assert record.interface == steered[id].interface


def test_only_pppoe_sessions_have_a_ppp_interface(busy: LabGateway) -> None:
    for one, session in zip(details(busy), everyone(busy), strict=True):
        assert one.ppp_interface == (session.interface if one.session_type == "PPPoE" else "")


def test_where_addresses_run_out_nobody_shares_one(lab: Lab, document: dict[str, Any]) -> None:
    document["cgnat"]["source_range"] = "100.64.0.0/29"
    gateway, _ = lab(100)
    addresses = [session.summary.ip_address for session in everyone(gateway)]
    assert len(set(addresses)) == 100
    shared = [address for address in addresses if address.startswith("100.64.")]
    assert sorted(shared) == [f"100.64.0.{host}" for host in range(2, 7)]


# A new configuration


def test_turning_cgnat_off_steers_nobody(lab: Lab, document: dict[str, Any]) -> None:
    gateway, _ = lab(100)
    before = gateway.sessions.statistics()
    assert before.vrf_steered_sessions > 0
    document["cgnat"]["enabled"] = False
    gateway.configure(parsed(document))
    assert gateway.sessions.statistics().vrf_steered_sessions == 0
    assert gateway.sessions.statistics().public_ip_sessions == before.public_ip_sessions
    assert made(gateway.sessions.cgnat_sessions()) == []
    assert {one.vrf_steered for one in details(gateway)} == {False}
    assert {route.table for route in made(gateway.routes())} == {"main"}
    assert "cgnat" not in interfaces(gateway)


def test_turning_cgnat_on_again_steers_the_same_sessions(lab: Lab, document: dict[str, Any]) -> None:
    gateway, _ = lab(100)
    before = everyone(gateway)
    document["cgnat"]["enabled"] = False
    gateway.configure(parsed(document))
    document["cgnat"]["enabled"] = True
    gateway.configure(parsed(document))
    assert everyone(gateway) == before


def new_after(gateway: LabGateway, clock: StillClock, seconds: float) -> list[Session]:
    known = {session.id for session in everyone(gateway)}
    pass_time(gateway, clock, seconds)
    came = [session for session in everyone(gateway) if session.id not in known]
    assert len(came) > 10
    return came


def test_a_new_source_range_is_where_new_shared_addresses_come_from(
    lab: Lab, document: dict[str, Any]
) -> None:
    gateway, clock = lab(50, 1.0)
    kept = {session.id: session.summary.ip_address for session in everyone(gateway)}
    document["cgnat"]["source_range"] = "100.100.0.0/16"
    gateway.configure(parsed(document))
    came = new_after(gateway, clock, 100)
    shared = [session for session in came if session.shared_address]
    assert shared
    for session in shared:
        assert IPv4Address(session.summary.ip_address) in IPv4Network("100.100.0.0/16")
        assert (session.vrf_steered, session.gateway) == (True, "100.100.0.1")
    for session in everyone(gateway):
        assert kept.get(session.id, session.summary.ip_address) == session.summary.ip_address


def test_sessions_outside_a_new_source_range_are_no_longer_steered(
    lab: Lab, document: dict[str, Any]
) -> None:
    gateway, _ = lab(50)
    document["cgnat"]["source_range"] = "100.100.0.0/16"
    gateway.configure(parsed(document))
    assert gateway.sessions.statistics().vrf_steered_sessions == 0
    assert made(gateway.sessions.cgnat_sessions()) == []


@pytest.mark.parametrize("ranges", [["100.64.0.0/16"], ["100.100.0.0/16", "100.64.0.0/10"]])
def test_addresses_stay_unique_when_a_source_range_comes_back(
    lab: Lab, document: dict[str, Any], ranges: list[str]
) -> None:
    gateway, clock = lab(50, 1.0)
    for source_range in ranges:
        document["cgnat"]["source_range"] = source_range
        gateway.configure(parsed(document))
    new_after(gateway, clock, 30)
    addresses = [session.summary.ip_address for session in everyone(gateway)]
    assert len(set(addresses)) == len(addresses)


def test_new_default_rates_are_those_of_new_sessions_only(lab: Lab, document: dict[str, Any]) -> None:
    gateway, clock = lab(50, 1.0)
    document["qos"] = {"default_down": "250mbit", "default_up": "50mbit"}
    gateway.configure(parsed(document))
    came = {session.id for session in new_after(gateway, clock, 60)}
    rates = {(s.id in came, s.summary.rate_down, s.summary.rate_up) for s in everyone(gateway)}
    assert rates == {(True, 250_000_000, 50_000_000), (False, 100_000_000, 20_000_000)}


TRUNKS = st.permutations(["trunk0", "trunk1", "trunk2"]).flatmap(
    lambda names: st.integers(0, 3).map(lambda number: names[:number])
)


def without_trunk1(document: dict[str, Any]) -> Configuration:
    document["interfaces"]["trunks"] = document["demux"]["trunks"] = ["trunk0"]
    return parsed(document)


def test_sessions_on_a_trunk_that_is_removed_end_and_the_rest_go_on(
    lab: Lab, document: dict[str, Any]
) -> None:
    gateway, _ = lab(100)
    kept = [session for session in everyone(gateway) if session.access_interface.startswith("trunk0.")]
    assert 0 < len(kept) < 100
    gateway.configure(without_trunk1(document))
    assert everyone(gateway) == kept
    assert gateway.sessions.statistics().active_sessions == len(kept)
    assert {vlan.trunk for vlan in made(gateway.vlans())} == {"trunk0"}
    assert [name for name in interfaces(gateway) if name.startswith("trunk1")] == []
    assert_counters_add_up(gateway)


@settings(max_examples=40)
@given(before=TRUNKS, after=TRUNKS, sessions=st.sampled_from([0, 1, 30, 250]), keeps_profiles=st.booleans())
def test_a_new_configuration_ends_exactly_the_sessions_of_its_impact(
    before: list[str], after: list[str], sessions: int, keeps_profiles: bool
) -> None:
    document = valid_document()
    document["interfaces"]["trunks"] = ["trunk0", "trunk1", "trunk2"]
    document["demux"]["trunks"] = before
    clock = StillClock(START)
    gateway = LabGateway(parsed(document), Population(sessions, 5.0, 1), Journal("life"), clock)
    # Some are due to come and to go.
    clock.now += 20
    document["demux"]["trunks"] = after
    if not keeps_profiles:
        document["demux"]["vlan_profiles"] = []
    impact = gateway.impact(parsed(document))
    there = {session.id for session in everyone(gateway)}
    gateway.configure(parsed(document))
    ended = sorted(there - {session.id for session in everyone(gateway)})
    assert (impact.sessions_dropped, list(impact.sessions)) == (len(ended), ended[:100])


def test_a_session_on_a_trunk_that_is_removed_ends_by_the_admin(document: dict[str, Any]) -> None:
    journal = Journal("life")
    gateway = LabGateway(parsed(document), Population(30, 0.0, 1), journal, StillClock(START))
    gateway.configure(without_trunk1(document))
    reply = next(journal.follow("life", 0))
    assert reply is not None
    ended = msgspec.json.decode(msgspec.json.encode(reply.events))
    assert {event["reason"] for event in ended} == {"admin_disconnect"}


def test_nobody_comes_or_goes_between_the_announcement_and_the_change(
    lab: Lab, document: dict[str, Any]
) -> None:
    gateway, clock = lab(100, 20.0)
    there, after = {session.id for session in everyone(gateway)}, without_trunk1(document)
    with gateway.ending(after) as ids:
        clock.now += 20
        gateway.configure(after)
        assert {session.id for session in everyone(gateway)} == there - set(ids)


def test_a_trunk_without_demux_has_no_sessions_and_stays_an_interface(
    lab: Lab, document: dict[str, Any]
) -> None:
    gateway, _ = lab(100)
    document["demux"]["trunks"] = ["trunk0"]
    gateway.configure(parsed(document))
    assert {session.access_interface[:7] for session in everyone(gateway)} == {"trunk0."}
    assert interfaces(gateway)["trunk1"].type == "trunk"


def test_nobody_arrives_on_a_trunk_that_is_removed(lab: Lab, document: dict[str, Any]) -> None:
    gateway, clock = lab(50, 2.0)
    gateway.configure(without_trunk1(document))
    came = new_after(gateway, clock, 60)
    assert {session.access_interface[:7] for session in came} == {"trunk0."}


def test_a_trunk_that_comes_back_takes_sessions_again(lab: Lab, document: dict[str, Any]) -> None:
    before = parsed(document)
    gateway, clock = lab(50, 2.0)
    gateway.configure(without_trunk1(document))
    gateway.configure(before)
    assert "trunk1" in {s.access_interface.partition(".")[0] for s in new_after(gateway, clock, 60)}


def test_a_lab_whose_last_trunk_is_removed_goes_on_without_sessions(
    lab: Lab, document: dict[str, Any]
) -> None:
    gateway, clock = lab(20, 5.0)
    document["interfaces"]["trunks"] = document["demux"]["trunks"] = []
    gateway.configure(parsed(document))
    pass_time(gateway, clock, 30)
    assert everyone(gateway) == []
    assert vlan_names(gateway) == set()


def test_without_vlan_profiles_those_who_are_there_stay(lab: Lab, document: dict[str, Any]) -> None:
    gateway, clock = lab(50)
    before = everyone(gateway)
    document["demux"]["vlan_profiles"] = []
    gateway.configure(parsed(document))
    pass_time(gateway, clock, 60)
    assert everyone(gateway) == before


def test_an_interface_that_is_added_has_an_index_of_its_own(lab: Lab, document: dict[str, Any]) -> None:
    gateway, _ = lab(20)
    before = {interface.ifindex for interface in made(gateway.interfaces())}
    document["interfaces"]["uplinks"].append("uplink1")
    document["interfaces"]["trunks"].append("trunk2")
    document["cgnat"]["vrf_name"] = "shared"
    gateway.configure(parsed(document))
    listed = interfaces(gateway)
    added = {listed[name].ifindex for name in ("uplink1", "trunk2", "shared")}
    assert len(added) == 3
    assert added.isdisjoint(before)


def test_a_trunk_that_is_added_takes_sessions(lab: Lab, document: dict[str, Any]) -> None:
    gateway, clock = lab(50, 2.0)
    document["interfaces"]["trunks"].append("trunk2")
    document["demux"]["trunks"].append("trunk2")
    gateway.configure(parsed(document))
    assert "trunk2" in {s.access_interface.partition(".")[0] for s in new_after(gateway, clock, 60)}


def reordered(document: dict[str, Any]) -> None:
    document["interfaces"]["trunks"].reverse()
    document["interfaces"]["uplinks"].reverse()


def extended(document: dict[str, Any]) -> None:
    document["interfaces"]["trunks"].insert(0, "trunk9")
    document["demux"]["trunks"].insert(0, "trunk9")
    document["cgnat"]["vrf_name"] = "shared"


def unchanged(_: dict[str, Any]) -> None:
    pass


@pytest.mark.parametrize("change", [unchanged, reordered, extended])
@pytest.mark.parametrize(
    "listed", [each for each in LISTS if each is not ListFaults], ids=lambda listed: listed.__name__
)
@pytest.mark.parametrize("limit", [1, 7])
def test_the_pages_of_a_list_are_the_whole_of_it(
    lab: Lab,
    document: dict[str, Any],
    change: Callable[[dict[str, Any]], None],
    listed: type[Any],
    limit: int,
) -> None:
    gateway, clock = lab(40, 2.0)
    change(document)
    gateway.configure(parsed(document))
    pass_time(gateway, clock, 30)
    rows = LISTS[listed](gateway)
    in_pages, cursor = b"", None
    for _ in range(len(rows) + 1):
        page = list_of("rows", rows, Page(limit, cursor), "rows")
        in_pages += b"," + bytes(page["rows"])[1:-1]
        cursor = page["next_cursor"]
        if cursor is None:
            break
    assert b"[" + in_pages[1:] + b"]" == bytes(list_of("rows", rows, None, "rows")["rows"])


@pytest.mark.parametrize("change", [unchanged, reordered, extended])
@pytest.mark.parametrize(
    "listed", [each for each in LISTS if each is not ListFaults], ids=lambda listed: listed.__name__
)
def test_the_rows_of_a_list_come_in_the_order_of_their_keys(
    lab: Lab, document: dict[str, Any], change: Callable[[dict[str, Any]], None], listed: type[Any]
) -> None:
    gateway, clock = lab(40, 2.0)
    change(document)
    gateway.configure(parsed(document))
    pass_time(gateway, clock, 30)
    keys = [key for key, _ in LISTS[listed](gateway).beyond(None, None)]
    assert len(keys) == len(set(keys)) > 5
    assert keys == sorted(keys)


def test_new_limits_count_from_their_commit_on(lab: Lab, document: dict[str, Any]) -> None:
    limit_vlans(document, vlans_per_second=1, burst=2)
    gateway, clock = lab(0, 100.0)
    pass_time(gateway, clock, 0.5, step=0.1)
    assert len(vlan_names(gateway)) == 2
    limit_vlans(document, max_vlans=2)
    gateway.configure(parsed(document))
    pass_time(gateway, clock, 10)
    assert len(vlan_names(gateway)) == 2


def test_without_bgp_its_summary_is_empty(lab: Lab, document: dict[str, Any]) -> None:
    del document["bgp"]
    gateway, _ = lab(5)
    assert gateway.bgp_summary() == {}


def test_the_bgp_summary_names_the_neighbours_of_the_configuration(lab: Lab) -> None:
    gateway, clock = lab(5)
    clock.now += 3661
    summary = gateway.bgp_summary()["ipv4Unicast"]
    assert (summary["as"], summary["routerId"], summary["peerCount"]) == (64512, "10.255.0.1", 2)
    assert set(summary["peers"]) == {"10.255.0.2", "10.255.0.6"}
    peer = summary["peers"]["10.255.0.2"]
    assert (peer["remoteAs"], peer["state"], peer["pfxSnt"]) == (64513, "Established", 5)
    assert (peer["peerUptime"], peer["peerUptimeMsec"]) == ("01:01:01", 3_661_000)


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (0, "00:00:00"),
        (86399, "23:59:59"),
        (86400, "1d00h00m"),
        (7 * 86400 - 1, "6d23h59m"),
        (7 * 86400, "01w0d00h"),
        (52 * 7 * 86400 - 1, "51w6d23h"),
    ],
)
def test_the_uptime_of_a_neighbour_is_written_as_frr_writes_it(lab: Lab, seconds: int, shown: str) -> None:
    gateway, clock = lab(0)
    clock.now += seconds
    assert gateway.bgp_summary()["ipv4Unicast"]["peers"]["10.255.0.2"]["peerUptime"] == shown


def test_without_uplinks_there_is_no_route_by_bgp(lab: Lab, document: dict[str, Any]) -> None:
    document["interfaces"]["uplinks"] = []
    document["cgnat"]["enabled"] = False
    gateway, _ = lab(5)
    assert {route.session_id for route in made(gateway.routes())} == {1, 2, 3, 4, 5}

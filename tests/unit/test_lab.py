"""The lab gateway: its subscribers, VLANs and lists. `test_lab_model` has what is always true of them."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from ipaddress import IPv4Address, IPv4Network
from typing import Any

import msgspec
import pytest

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
from gateway_api.wire.core.network import Interface
from gateway_api.wire.core.sessions import SessionDetail, SessionFilter
from tests.support.clocks import NOW, StillClock
from tests.support.listings import list_of
from tests.support.stack import PATIENCE

START = float(NOW)

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


def test_without_arrivals_nobody_comes_or_goes(lab: Lab) -> None:
    gateway, clock = lab(50)
    before = everyone(gateway)
    pass_time(gateway, clock, 7 * 86400, step=3600)
    assert everyone(gateway) == before


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


# Disconnecting


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


def test_a_vlan_is_as_old_as_its_oldest_session_that_ever_was(lab: Lab) -> None:
    gateway, _ = lab(100)
    started: dict[str, int] = {}
    for session in everyone(gateway):
        name, at = session.access_interface, session.summary.started_at
        started[name] = min(at, started.get(name, at))
    assert {vlan.name: vlan.created_at for vlan in made(gateway.vlans())} == started


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


def test_two_thirds_of_the_sessions_are_dual_stack(lab: Lab) -> None:
    gateway, _ = lab(300)
    dual = [one for one in everyone(gateway) if one.summary.ipv6_address is not None]
    assert 0.55 < len(dual) / 300 < 0.78


# A new configuration


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


def without_trunk1(document: dict[str, Any]) -> Configuration:
    document["interfaces"]["trunks"] = document["demux"]["trunks"] = ["trunk0"]
    return parsed(document)


def test_a_trunk_without_demux_has_no_sessions_and_stays_an_interface(
    lab: Lab, document: dict[str, Any]
) -> None:
    gateway, _ = lab(100)
    document["demux"]["trunks"] = ["trunk0"]
    gateway.configure(parsed(document))
    assert {session.access_interface[:7] for session in everyone(gateway)} == {"trunk0."}
    assert interfaces(gateway)["trunk1"].type == "trunk"


def test_a_trunk_that_comes_back_takes_sessions_again(lab: Lab, document: dict[str, Any]) -> None:
    before = parsed(document)
    gateway, clock = lab(50, 2.0)
    gateway.configure(without_trunk1(document))
    gateway.configure(before)
    assert "trunk1" in {s.access_interface.partition(".")[0] for s in new_after(gateway, clock, 60)}


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

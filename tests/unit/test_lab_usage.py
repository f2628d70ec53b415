"""How the lab's subscribers use their rates: as people do, and reproducibly."""

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway_api.core.configuration.running import RunningConfiguration
from gateway_api.core.gateways.lab.gateway import LabGateway
from gateway_api.core.gateways.lab.population import Population
from gateway_api.core.gateways.lab.traffic import (
    MICROSECOND,
    PARTS,
    Habit,
    Meter,
    Pattern,
    People,
    Segment,
    SumMeter,
)
from gateway_api.core.sessions.journal import Journal
from gateway_api.core.sessions.session import Counters
from gateway_api.wire.core.network import Interface
from tests.support.clocks import StillClock

#: A midnight in UTC.
MIDNIGHT = 1_700_006_400.0
HOUR, DAY = 3600.0, 86_400.0

PEOPLE = People(1, MIDNIGHT)


def people(document: dict[str, Any], sessions: int = 200, seed: int = 1) -> tuple[LabGateway, StillClock]:
    clock = StillClock(MIDNIGHT)
    configuration = RunningConfiguration.of(document).sections
    population = Population(sessions, 0.0, seed, full_rate=False)
    return LabGateway(configuration, population, Journal("life"), clock), clock


def down_bps(before: dict[int, Counters], after: dict[int, Counters], seconds: float) -> dict[int, float]:
    return {id: (after[id].bytes_out - before[id].bytes_out) * 8 / seconds for id in before}


@settings(max_examples=300)
@given(
    who=st.integers(0, 255),
    begin=st.floats(MIDNIGHT - 40 * DAY, MIDNIGHT + 400 * DAY),
    waits=st.lists(st.floats(0, 2000) | st.sampled_from([1e-6, 4.0, 900.0, HOUR, DAY]), max_size=20),
)
def test_no_usage_falls_or_is_more_than_the_whole_rate(who: int, begin: float, waits: list[float]) -> None:
    for usage, _ in PEOPLE.of(f"{who:08x}"):
        times = [begin]
        for wait in waits:
            times.append(times[-1] + wait)
        for (before, at), (after, later) in pairwise((usage.used(time), time) for time in times):
            # A microsecond for the times, each of which is rounded.
            assert 0 <= after - before <= ((later - at) * 1e6 + 2) * MICROSECOND


@pytest.mark.parametrize("border", [4, 900, HOUR, DAY, 3 * DAY])
def test_the_sum_goes_on_at_the_borders_of_slots_hours_and_days(border: float) -> None:
    for who in range(0, 256, 16):
        for usage, _ in PEOPLE.of(f"{who:08x}"):
            before, after = usage.used(MIDNIGHT + border - 1e-3), usage.used(MIDNIGHT + border + 1e-3)
            assert 0 <= after - before <= 2002 * MICROSECOND


def test_a_habit_is_the_same_every_day() -> None:
    (usage, _), _ = PEOPLE.of("00000007")
    days = [usage.used(MIDNIGHT + day * DAY + HOUR) - usage.used(MIDNIGHT + day * DAY) for day in range(3)]
    assert len(set(days)) == 1
    assert days[0] > 0


def test_a_pattern_adds_up_what_is_used_in_each_slot() -> None:
    pattern = Pattern([10_000] * 10_800 + [0] * 10_800)
    assert pattern.until(2) == 8_000_000 * 10_000
    assert pattern.until(20 * 900) == pattern.until(21_600) == 43_200_000_000 * 10_000
    assert pattern.until(25 * 900) == (43_200_000_000 + 3_600_000_000) * 10_000
    assert (pattern.during(0), pattern.during(10_800), pattern.during(21_600)) == (10_000, 0, 10_000)


def test_a_level_makes_all_of_a_pattern_less() -> None:
    pattern, quarters = Pattern([10_000] * 21_600), 96
    half = Habit(pattern, 0, [512] * quarters, int(MIDNIGHT // DAY))
    assert half.used(MIDNIGHT + DAY) - half.used(MIDNIGHT + 1) == 86_399 * 1_000_000 * MICROSECOND // 2


def test_the_same_seed_makes_the_same_traffic_however_often_it_is_read(document: dict[str, Any]) -> None:
    (one, clock), (other, other_clock) = people(document), people(document)
    for _ in range(500):
        clock.now += 17.3
        one.counters()
    other_clock.now = clock.now
    assert one.counters() == other.counters()
    another, its_clock = people(document, seed=2)
    its_clock.now = clock.now
    assert another.counters() != one.counters()


def test_evenings_are_busy_and_nights_are_quiet(document: dict[str, Any]) -> None:
    gateway, clock = people(document)
    of_hour, before = [], gateway.counters()
    for _ in range(24):
        clock.now += HOUR
        after = gateway.counters()
        of_hour.append(sum(down_bps(before, after, HOUR).values()))
        before = after
    evening, night = sum(of_hour[19:22]), sum(of_hour[2:5])
    assert evening > 4 * night > 0
    # Of 200 sessions with 100 Mbit/s each: some percent, and never nearly all.
    assert 0.01 < max(of_hour) / (200 * 100e6) < 0.3


def test_subscribers_are_idle_and_have_bursts(document: dict[str, Any]) -> None:
    gateway, clock = people(document)
    clock.now += 20 * HOUR
    idle = bursts = samples = 0
    before = gateway.counters()
    for _ in range(60):
        clock.now += 4
        after = gateway.counters()
        rates = down_bps(before, after, 4).values()
        samples += len(rates)
        idle += sum(rate < 1e5 for rate in rates)
        bursts += sum(rate > 2e7 for rate in rates)
        assert max(rates) <= 100e6
        before = after
    assert 0.2 < idle / samples < 0.9
    assert 0.005 < bursts / samples < 0.3


def test_at_any_moment_some_are_idle_and_others_are_not(document: dict[str, Any]) -> None:
    gateway, clock = people(document)
    clock.now += 20 * HOUR
    for _ in range(10):
        clock.now += 300
        before = gateway.counters()
        clock.now += 4
        rates = down_bps(before, gateway.counters(), 4).values()
        assert min(rates) < 1e5 < 2e6 < max(rates)


def test_no_two_of_the_busiest_subscribers_have_the_same_traffic(document: dict[str, Any]) -> None:
    gateway, clock = people(document, sessions=2000)
    clock.now += 20 * HOUR
    before = gateway.counters()
    clock.now += 8
    rates = sorted(down_bps(before, gateway.counters(), 8).values(), reverse=True)[:20]
    # One step of a share is more than a percent of the highest.
    assert sum(more < 1.001 * less for more, less in pairwise(rates)) <= 3


def test_devices_count_what_their_sessions_count_also_after_other_rates_and_ends(
    document: dict[str, Any],
) -> None:
    gateway, clock = people(document, sessions=300)
    for step in range(1, 60, 3):
        clock.now += 97.3
        gateway.set_rate(step, step * 1_000_000, 1)
        gateway.disconnect(step + 1)
        assert_sums(gateway)


def assert_sums(gateway: LabGateway) -> None:
    """What VLANs count of the sessions that ended is more."""
    rows = gateway.interfaces().beyond(None, None)
    interfaces: dict[str, Interface] = {interface.name: interface for _, interface in rows}
    sessions = {session.id: session for session in gateway.sessions.all()}
    counted = gateway.counters()
    for name, interface in interfaces.items():
        if interface.type == "vlan":
            below = [counted[id] for id, one in sessions.items() if one.access_interface == name]
            assert interface.stats.tx_bytes >= sum(one.bytes_out for one in below)
            assert interface.stats.rx_bytes >= sum(one.bytes_in for one in below)
    trunks = [one.stats for one in interfaces.values() if one.type == "trunk"]
    vlans = [one.stats for one in interfaces.values() if one.type == "vlan"]
    assert abs(sum(one.tx_bytes for one in trunks) - sum(one.tx_bytes for one in vlans)) <= len(vlans)
    assert abs(sum(one.rx_bytes for one in trunks) - sum(one.rx_bytes for one in vlans)) <= len(vlans)


@settings(max_examples=100)
@given(
    begin=st.floats(MIDNIGHT, MIDNIGHT + 400 * DAY),
    steps=st.lists(
        st.tuples(
            st.sampled_from([0.0, 0.25, 3.999999, 4.0, 900.0]) | st.floats(0, 20),
            st.sampled_from(["start", "end", "rate", "read", "read"]),
            st.integers(0, 2**32 - 1),
        ),
        max_size=40,
    ),
)
def test_a_sum_is_that_of_its_sessions_at_any_moment(
    begin: float, steps: list[tuple[float, str, int]]
) -> None:
    now, total, ended, sessions = begin, SumMeter(), 0, list[Meter]()
    for wait, step, drawn in steps:
        now += wait
        chosen = drawn % len(sessions) if sessions else 0
        if step == "start":
            sessions.append(Meter.started(now, PEOPLE.of(f"{drawn:08x}")[0], drawn))
            total = total.plus(sessions[-1])
        elif step == "end" and sessions:
            meter = sessions.pop(chosen)
            total, ended = total.stopped(meter, now), ended + meter.total(now)
        elif step == "rate" and sessions:
            before = sessions[chosen]
            sessions[chosen] = before.moving(now, drawn // 7)
            total = total.changed(before, sessions[chosen])
        elif step == "read":
            assert total.total(now) == ended + sum(meter.total(now) for meter in sessions)
    assert total.total(now) == ended + sum(meter.total(now) for meter in sessions)


class Asked:
    """A use of the whole rate that counts the questions."""

    def __init__(self) -> None:
        self.times = 0

    def segment(self, slot: int) -> Segment:
        self.times += 1
        return Segment(slot, slot * 4_000_000 * MICROSECOND, MICROSECOND)

    def used(self, now: float) -> int:
        self.times += 1
        return round(now * 1e6) * MICROSECOND


def test_a_sum_asks_each_habit_once_in_a_slot_however_often_it_is_read_and_changes() -> None:
    habits, total = [Asked() for _ in range(256)], SumMeter()
    for habit in habits:
        total = total.plus(Meter(habit, PARTS, 8, 0))
    for read in range(300):
        total.total(MIDNIGHT + read / 100)
        total = total.plus(Meter(habits[0], PARTS, 8, 0))
    assert {habit.times for habit in habits[1:]} == {1}
    total.total(MIDNIGHT + 4)
    assert {habit.times for habit in habits[1:]} == {2}

"""The traffic of the lab: how much of their rates the subscribers use, and the counters of sessions and of
what carries many of them.

What somebody has used until a time is in parts of a microsecond of the whole rate, see `MICROSECOND`. It
comes from sums that are made when it is first read: it costs the same at any time. Integers throughout, so
that no counter falls by a rounding. Times are epoch seconds. The totals of sessions are bits, times a
million, times `MICROSECOND`: exact, until somebody reads them as bytes.

Within a slot, each use of a rate is a straight line, and the sum of them is one, too. So the total of many
sessions costs as much as that of one, after the first read in a slot.
"""

import random
from collections.abc import Iterator, Mapping
from functools import cached_property
from itertools import accumulate, pairwise
from typing import NamedTuple, Protocol

from gateway_contract.contract import Record
from gateway_contract.core.network import InterfaceStats
from gateway_core.sessions.session import Counters

_SECOND = 1_000_000
_DAY = 86_400 * _SECOND
#: The use of a rate changes every four seconds, that of all subscribers at the same time. Its level changes
#: with the hour, four times an hour.
_SLOT, _QUARTER = 4 * _SECOND, 900 * _SECOND
_SLOTS, _QUARTERS = _DAY // _SLOT, _DAY // _QUARTER
_SLOTS_A_QUARTER = _QUARTER // _SLOT
#: The whole rate, and the highest level.
_WHOLE, _FULL = 10_000, 1024
#: One microsecond of the whole rate, at the highest level. Products of a rate and a level are integers.
MICROSECOND = _WHOLE * _FULL
#: Subscribers of one habit do the same at the same time, so there are many.
_HABITS = 256
#: Each of them needs another part of it, as one film or several are watched in a house.
PARTS = 256
_SHARES = 64

#: The level at each hour of a day in UTC: most at nine in the evening, least before five in the morning.
_HOURS = (35, 22, 15, 11, 9, 10, 15, 25, 35, 40, 42, 45, 50, 48, 46, 48, 55, 65, 78, 90, 100, 100, 85, 58)
#: What subscribers do, how often they begin it, and for how many slots.
_DOINGS = ("idle", "browse", "stream", "call", "upload")
_OFTEN = (45, 25, 18, 8, 4)
_LASTING = {"idle": (15, 300), "browse": (15, 150), "stream": (75, 900), "call": (30, 450), "upload": (8, 60)}
_BYTE = 8_000_000 * MICROSECOND
# Mean bytes of a packet: subscribers send many acknowledgements and receive full packets.
_MEAN_PACKET_UP = 400
_MEAN_PACKET_DOWN = 1200


class Segment(NamedTuple):
    """A slot of a use: `used` until it begins, and `slope` in each microsecond of it. The slots are numbered
    from the epoch."""

    slot: int
    used: int
    slope: int


class Usage(Protocol):
    """The use of a rate over time."""

    def segment(self, slot: int) -> Segment:
        """Return the use in a slot. Only differences of `used` have a meaning. It never falls."""

    def used(self, now: float) -> int:
        """As `segment`, until `now`."""


class Demand(NamedTuple):
    """A subscriber's need of a rate in one direction: a usage, of which it has `share` parts of PARTS."""

    usage: Usage
    share: int = PARTS


class FullRate(Record, frozen=True):
    """All of a rate, all the time."""

    def segment(self, slot: int) -> Segment:
        return Segment(slot, slot * _SLOT * MICROSECOND, MICROSECOND)

    def used(self, now: float) -> int:
        return _microseconds(now) * MICROSECOND


class Pattern:
    """The part of a rate that is used in each slot of a day, of `_WHOLE`."""

    def __init__(self, values: list[int]) -> None:
        self._values = values
        self._sums = list(accumulate((value * _SLOT for value in values), initial=0))

    def until(self, slot: int) -> int:
        """Return the sum from the beginning of a day to that of a slot, in microseconds times `_WHOLE`."""
        days, slot = divmod(slot, _SLOTS)
        return days * self._sums[-1] + self._sums[slot]

    def during(self, slot: int) -> int:
        return self._values[slot % _SLOTS]


class Habit:
    """A pattern that begins `shift` slots earlier, at the level of each quarter of an hour."""

    def __init__(self, pattern: Pattern, shift: int, levels: list[int], origin: int) -> None:
        self._pattern = pattern
        self._shift = shift
        self._levels = levels
        self._origin = origin
        #: For each quarter, what makes the sum continue that of the quarter before.
        self._bases = [0]
        for quarter, (before, after) in enumerate(pairwise([*levels, 0]), 1):
            border = pattern.until(quarter * _SLOTS_A_QUARTER + shift)
            self._bases.append(self._bases[-1] + (before - after) * border)
        self._day = self._bases.pop() - levels[0] * pattern.until(shift)
        #: Many sessions are read at the same time.
        self._last = (0.0, 0)
        self._segment = Segment(-1, 0, 0)

    def segment(self, slot: int) -> Segment:
        segment = self._segment
        if segment.slot != slot:
            day, of_day = divmod(slot, _SLOTS)
            quarter, shifted = of_day // _SLOTS_A_QUARTER, of_day + self._shift
            level, days = self._levels[quarter], (day - self._origin) * self._day
            used = days + self._bases[quarter] + level * self._pattern.until(shifted)
            self._segment = segment = Segment(slot, used, level * self._pattern.during(shifted))
        return segment

    def used(self, now: float) -> int:
        last, used = self._last
        if last != now:
            slot, rest = divmod(_microseconds(now), _SLOT)
            _, used, slope = self.segment(slot)
            used += slope * rest
            self._last = (now, used)
        return used


class People:
    """The habits of the subscribers of a lab: the same ones for the same seed."""

    def __init__(self, seed: int, now: float) -> None:
        self._seed = seed
        self._origin = int(now // 86_400)

    def of(self, acct_session_id: str) -> tuple[Demand, Demand]:
        """Down and up. It comes from the random bits of the accounting id."""
        bits, habit = divmod(int(acct_session_id[:8], 16), _HABITS)
        down, up = self._habits[habit]
        return Demand(down, _share(bits % _SHARES)), Demand(up, _share(bits // _SHARES % _SHARES))

    # It takes longer than all else of a lab's start, and a lab without sessions does not need it.
    @cached_property
    def _habits(self) -> list[list[Habit]]:
        drawn = random.Random(f"usage {self._seed}")  # noqa: S311 - reproducible is what it has to be
        down, up = map(list, zip(*_day(drawn), strict=True))
        patterns = Pattern(down), Pattern(up)
        habits = []
        for _ in range(_HABITS):
            shift, levels = drawn.randrange(_SLOTS), _levels(drawn.uniform(-2, 2), drawn.uniform(0.3, 1.0))
            habits.append([Habit(pattern, shift, levels, self._origin) for pattern in patterns])
        return habits


def _share(step: int) -> int:
    """From a quarter to all, in equal steps."""
    return PARTS - (PARTS * 3 // 4 // (_SHARES - 1)) * step


def _levels(later: float, weight: float) -> list[int]:
    """Return the level of each quarter, for somebody whose day is so many hours later, and who needs so much
    of the most."""
    levels = []
    for quarter in range(_QUARTERS):
        hour = (quarter / 4 - later) % 24
        before, part = int(hour), hour % 1
        of_hour = _HOURS[before] * (1 - part) + _HOURS[(before + 1) % 24] * part
        levels.append(max(1, round(_FULL * weight * of_hour / 100)))
    return levels


def _day(drawn: random.Random) -> Iterator[tuple[int, int]]:
    """The usage down and up in each slot of a day."""
    left = _SLOTS
    while left:
        (doing,) = drawn.choices(_DOINGS, _OFTEN)
        slots = min(left, drawn.randint(*_LASTING[doing]))
        left -= slots
        for slot in range(slots):
            yield _slot(doing, slot, drawn)


def _slot(doing: str, slot: int, drawn: random.Random) -> tuple[int, int]:
    match doing:
        case "browse" if drawn.random() < 0.3:
            return drawn.randint(1000, 9000), drawn.randint(100, 600)
        case "browse":
            return 20, 20
        # A player loads some seconds of a film at a time.
        case "stream" if slot % 3 == 0:
            return drawn.randint(1500, 4000), 60
        case "call":
            return drawn.randint(150, 300), drawn.randint(600, 1200)
        case "upload":
            return 50, drawn.randint(6000, 9500)
        case _:
            # What routers and telephones send by themselves.
            return 2, 2


class Meter(Record, frozen=True):
    """One direction of a session at a rate, of which the usage takes at most `bps` bits per second. `base` is
    its sum where the usage is 0, as if it had always had this rate."""

    usage: Usage
    share: int
    bps: int
    base: int

    @classmethod
    def started(cls, at: float, demand: Demand, rate: int) -> "Meter":
        bps = _flow(rate, demand.share)
        return cls(*demand, bps, -bps * demand.usage.used(at))

    def total(self, now: float) -> int:
        return self.base + self.bps * self.usage.used(now)

    def moving(self, now: float, rate: int) -> "Meter":
        """Return the meter that continues from here at another rate."""
        bps = _flow(rate, self.share)
        return Meter(self.usage, self.share, bps, self.base + (self.bps - bps) * self.usage.used(now))


class SumMeter:
    """One direction of many sessions: the rates of those that are there by their usage, and a `base` as a
    Meter has. What sessions have counted stays when they end. It does not change, and any thread may call."""

    __slots__ = ("_base", "_bps", "_segment")

    def __init__(self, bps: Mapping[Usage, int] = {}, base: int = 0, segment: Segment | None = None) -> None:
        self._bps = bps
        self._base = base
        #: The total in the slot of the last question.
        self._segment = segment

    def total(self, now: float) -> int:
        slot, rest = divmod(_microseconds(now), _SLOT)
        segment = self._segment
        if segment is None or segment.slot != slot:
            total, slope = self._base, 0
            for usage, bps in self._bps.items():
                _, used, part = usage.segment(slot)
                total += bps * used
                slope += bps * part
            self._segment = segment = Segment(slot, total, slope)
        return segment.used + segment.slope * rest

    def plus(self, meter: Meter) -> "SumMeter":
        return self._with(meter.usage, meter.bps, meter.base)

    def stopped(self, meter: Meter, now: float) -> "SumMeter":
        """Without a session that ends now."""
        return self._with(meter.usage, -meter.bps, meter.bps * meter.usage.used(now))

    def changed(self, before: Meter, after: Meter) -> "SumMeter":
        """With the meter that continues another one."""
        return self._with(after.usage, after.bps - before.bps, after.base - before.base)

    def _with(self, usage: Usage, bps: int, base: int) -> "SumMeter":
        by_usage = {**self._bps, usage: self._bps.get(usage, 0) + bps}
        if not by_usage[usage]:
            del by_usage[usage]
        segment = self._segment
        if segment is not None:
            slot, used, slope = usage.segment(segment.slot)
            segment = Segment(slot, segment.used + base + bps * used, segment.slope + bps * slope)
        return SumMeter(by_usage, self._base + base, segment)


class Traffic(Record, frozen=True):
    """The traffic of a session: `up` comes from the subscriber, `down` goes there."""

    up: Meter
    down: Meter

    def moving(self, rate_up: int, rate_down: int, now: float) -> "Traffic":
        return Traffic(self.up.moving(now, rate_up), self.down.moving(now, rate_down))

    def counters(self, now: float) -> Counters:
        return _counters(self.up.total(now) // _BYTE, self.down.total(now) // _BYTE)

    def stats(self, now: float) -> InterfaceStats:
        """Return the counters of the session's device: it receives what the subscriber sends."""
        return device_stats(self.counters(now))

    def stats_up(self, now: float) -> InterfaceStats:
        """Return the counters of a device that has the upstream only."""
        return device_stats(_counters(self.up.total(now) // _BYTE, 0))


class SumTraffic(Record, frozen=True):
    """The traffic of many sessions."""

    up: SumMeter = SumMeter()
    down: SumMeter = SumMeter()

    def plus(self, traffic: Traffic) -> "SumTraffic":
        return SumTraffic(self.up.plus(traffic.up), self.down.plus(traffic.down))

    def stopped(self, traffic: Traffic, now: float) -> "SumTraffic":
        return SumTraffic(self.up.stopped(traffic.up, now), self.down.stopped(traffic.down, now))

    def changed(self, before: Traffic, after: Traffic) -> "SumTraffic":
        return SumTraffic(self.up.changed(before.up, after.up), self.down.changed(before.down, after.down))

    def counters(self, now: float) -> Counters:
        return _counters(self.up.total(now) // _BYTE, self.down.total(now) // _BYTE)

    def stats(self, now: float) -> InterfaceStats:
        """Return the counters of a device towards the subscribers: it receives what they send."""
        return device_stats(self.counters(now))


def summed(counters: list[Counters]) -> Counters:
    return _counters(sum(each.bytes_in for each in counters), sum(each.bytes_out for each in counters))


def device_stats(counters: Counters) -> InterfaceStats:
    return InterfaceStats(
        rx_bytes=counters.bytes_in,
        rx_packets=counters.packets_in,
        tx_bytes=counters.bytes_out,
        tx_packets=counters.packets_out,
    )


def _microseconds(now: float) -> int:
    return round(now * _SECOND)


def _flow(rate: int, share: int) -> int:
    # Never 0: a sum has no entry for a usage that adds nothing.
    return max(1, rate * share // PARTS)


def _counters(up: int, down: int) -> Counters:
    return Counters(up, down, up // _MEAN_PACKET_UP, down // _MEAN_PACKET_DOWN)

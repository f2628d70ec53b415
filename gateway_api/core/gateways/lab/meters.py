"""Counters that advance with time, of sessions and of what carries many of them.

Times are epoch seconds. Sums are in bits, times a million: exact, until somebody reads them as bytes.
"""

from collections.abc import Mapping

from gateway_api.core.gateways.lab.usage import PARTS, Demand, Usage
from gateway_api.core.sessions.session import Counters
from gateway_api.wire.contract import Record
from gateway_api.wire.core.network import InterfaceStats

_BYTE = 8_000_000
# Mean bytes of a packet: subscribers send many acknowledgements and receive full packets.
_MEAN_PACKET_UP = 400
_MEAN_PACKET_DOWN = 1200


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
        """The meter that continues from here at another rate."""
        bps = _flow(rate, self.share)
        return Meter(self.usage, self.share, bps, self.base + (self.bps - bps) * self.usage.used(now))


class SumMeter(Record, frozen=True):
    """One direction of many sessions: the rates of those that are there by their usage, and a `base` as a
    Meter has. What sessions have counted stays when they end."""

    bps: Mapping[Usage, int] = {}
    base: int = 0

    def total(self, now: float) -> int:
        return self.base + sum(bps * usage.used(now) for usage, bps in self.bps.items())

    def plus(self, meter: Meter) -> "SumMeter":
        bps = self.bps.get(meter.usage, 0) + meter.bps
        return SumMeter({**self.bps, meter.usage: bps}, self.base + meter.base)

    def stopped(self, meter: Meter, now: float) -> "SumMeter":
        """Without a session that ends now."""
        left = self.bps[meter.usage] - meter.bps
        bps = {**self.bps, meter.usage: left}
        if not left:
            del bps[meter.usage]
        return SumMeter(bps, self.base + meter.bps * meter.usage.used(now))

    def changed(self, before: Meter, after: Meter) -> "SumMeter":
        """With the meter that continues another one."""
        bps = self.bps[before.usage] - before.bps + after.bps
        return SumMeter({**self.bps, after.usage: bps}, self.base - before.base + after.base)


class Traffic(Record, frozen=True):
    """The traffic of a session: `up` comes from the subscriber, `down` goes there."""

    up: Meter
    down: Meter

    def moving(self, rate_up: int, rate_down: int, now: float) -> "Traffic":
        return Traffic(self.up.moving(now, rate_up), self.down.moving(now, rate_down))

    def counters(self, now: float) -> Counters:
        return _counters(self.up.total(now) // _BYTE, self.down.total(now) // _BYTE)

    def stats(self, now: float) -> InterfaceStats:
        """The counters of the session's device: it receives what the subscriber sends."""
        return device_stats(self.counters(now))

    def stats_up(self, now: float) -> InterfaceStats:
        """The counters of a device that has the upstream only."""
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
        """The counters of a device towards the subscribers: it receives what they send."""
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


def _flow(rate: int, share: int) -> int:
    # Never 0: a sum has no entry for a usage that adds nothing.
    return max(1, rate * share // PARTS)


def _counters(up: int, down: int) -> Counters:
    return Counters(up, down, up // _MEAN_PACKET_UP, down // _MEAN_PACKET_DOWN)

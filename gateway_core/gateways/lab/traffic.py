"""Traffic of the lab: a curve of usage for all subscribers, and counters as linear functions of the usage.

The level is the percentage of the subscribed rates that subscribers use at a time. The usage at a time is the
sum of the levels of all seconds since the epoch. All values are integers: rounding never decreases a counter,
and the traffic of several sessions is exactly the sum of the traffic of each session.
"""

from itertools import accumulate
from operator import add, sub

from msgspec.structs import astuple

from gateway_contract.contract import Record
from gateway_contract.core.network import InterfaceStats
from gateway_core.sessions.session import Counters

#: Percentage of their rates that subscribers use, for each hour of the day in UTC; highest in the evening.
_HOURLY_LEVELS = (
    35,
    22,
    15,
    11,
    9,
    10,
    15,
    25,
    35,
    40,
    42,
    45,
    50,
    48,
    46,
    48,
    55,
    65,
    78,
    90,
    100,
    100,
    85,
    58,
)
_FULL_LEVEL = 100
_MICROSECONDS_PER_SECOND = 1_000_000
_MICROSECONDS_PER_HOUR = 3600 * _MICROSECONDS_PER_SECOND
#: Usage from midnight to the beginning of each hour; the last value is the usage of the whole day.
_USAGE_BEFORE_HOUR = tuple(
    accumulate((level * _MICROSECONDS_PER_HOUR for level in _HOURLY_LEVELS), initial=0)
)
_UNITS_PER_BYTE = 8 * _MICROSECONDS_PER_SECOND * _FULL_LEVEL
#: Number of different shares of a rate, from a quarter to all, that a subscriber may use. A power of two,
#: because random bits select the share.
_RATE_SHARES = 1 << 16
#: Average packet lengths: subscribers send many acknowledgements and receive full packets.
_BYTES_PER_PACKET_UP, _BYTES_PER_PACKET_DOWN = 400, 1200


class TrafficModel:
    """Model of the share of the subscribed rates that subscribers use. With `is_full_rate`, the share is
    always 100%; otherwise the share depends on the subscriber and on the hour of the day."""

    def __init__(self, *, is_full_rate: bool) -> None:
        self._is_full_rate = is_full_rate

    def compute_usage(self, now: float) -> int:
        """Return the usage at the time `now`, which is in epoch seconds. The unit of usage is one microsecond
        at a level of one percent."""
        microseconds = round(now * _MICROSECONDS_PER_SECOND)
        if self._is_full_rate:
            return microseconds * _FULL_LEVEL
        hours, remainder = divmod(microseconds, _MICROSECONDS_PER_HOUR)
        days, hour = divmod(hours, len(_HOURLY_LEVELS))
        return days * _USAGE_BEFORE_HOUR[-1] + _USAGE_BEFORE_HOUR[hour] + _HOURLY_LEVELS[hour] * remainder

    def find_used_rates(self, acct_session_id: str, up_bps: int, down_bps: int) -> tuple[int, int]:
        """Return the upstream and downstream rates that a subscriber uses at the full level, in bits per
        second. The random bits of the accounting id determine the share of each rate."""
        if self._is_full_rate:
            return up_bps, down_bps
        up, down = divmod(int(acct_session_id[:8], 16), _RATE_SHARES)
        return _compute_used_rate(up_bps, up), _compute_used_rate(down_bps, down)


def _compute_used_rate(rate_bps: int, random_bits: int) -> int:
    return rate_bps * (_RATE_SHARES + 3 * random_bits) // (4 * _RATE_SHARES)


class Traffic(Record, frozen=True):
    """Traffic of one or several sessions: for each direction a linear function of the usage.

    `up_bps` and `down_bps` are the slopes; `up_base` and `down_base` are the values at a usage of 0.
    """

    up_bps: int = 0
    down_bps: int = 0
    up_base: int = 0
    down_base: int = 0

    def __add__(self, other: "Traffic") -> "Traffic":
        return Traffic(*map(add, astuple(self), astuple(other)))

    def __sub__(self, other: "Traffic") -> "Traffic":
        return Traffic(*map(sub, astuple(self), astuple(other)))

    def with_rates(self, up_bps: int, down_bps: int, usage: int) -> "Traffic":
        """Return traffic with other rates from the given `usage` on. The counters at the given usage stay the
        same."""
        return Traffic(
            up_bps,
            down_bps,
            self.up_base + (self.up_bps - up_bps) * usage,
            self.down_base + (self.down_bps - down_bps) * usage,
        )

    def stop_at(self, usage: int) -> "Traffic":
        """Return traffic whose counters no longer change from the given `usage` on."""
        return self.with_rates(0, 0, usage)

    def compute_counters(self, usage: int) -> Counters:
        up = (self.up_base + self.up_bps * usage) // _UNITS_PER_BYTE
        down = (self.down_base + self.down_bps * usage) // _UNITS_PER_BYTE
        return Counters(up, down, up // _BYTES_PER_PACKET_UP, down // _BYTES_PER_PACKET_DOWN)

    def compute_stats(self, usage: int) -> InterfaceStats:
        """Return the counters of a subscriber-facing device: received bytes are the subscribers' upload."""
        counters = self.compute_counters(usage)
        return InterfaceStats(
            rx_bytes=counters.bytes_in,
            rx_packets=counters.packets_in,
            tx_bytes=counters.bytes_out,
            tx_packets=counters.packets_out,
        )

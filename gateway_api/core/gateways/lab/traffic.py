"""Counters that advance with time at a rate, and the lab's sessions, which have such counters."""

from gateway_api.core.session import Counters, Session
from gateway_api.wire.contract import Record
from gateway_api.wire.core.network import InterfaceStats

# Mean bytes of a packet: subscribers send many acknowledgements and receive full packets.
_MEAN_PACKET_UP = 400
_MEAN_PACKET_DOWN = 1200


class Meter(Record, frozen=True):
    """`counted` bytes at the time `at`, and since then `bps` bits per second. Times are epoch seconds."""

    at: float
    bps: int
    counted: int = 0

    def read(self, now: float) -> int:
        """The bytes at the time `now`."""
        return self.counted + max(0, int((now - self.at) * self.bps / 8))

    def moving(self, now: float, bps: int) -> "Meter":
        """The meter that continues from here at another rate."""
        return Meter(now, bps, self.read(now))


class Traffic(Record, frozen=True):
    """`up` comes from subscribers, `down` goes to them."""

    up: Meter
    down: Meter

    @classmethod
    def none(cls, now: float) -> "Traffic":
        silent = Meter(now, 0)
        return cls(silent, silent)

    def plus(self, other: "Traffic", now: float) -> "Traffic":
        """The sum of both, with the bytes that the other has counted so far."""
        return Traffic(
            Meter(now, self.up.bps + other.up.bps, self.up.read(now) + other.up.read(now)),
            Meter(now, self.down.bps + other.down.bps, self.down.read(now) + other.down.read(now)),
        )

    def less(self, other: "Traffic", now: float) -> "Traffic":
        """Without the other from now on. The counted bytes stay."""
        return self.moving(self.up.bps - other.up.bps, self.down.bps - other.down.bps, now)

    def changed(self, before: "Traffic", after: "Traffic", now: float) -> "Traffic":
        """Follows a part of it whose rates change now."""
        return self.moving(
            self.up.bps - before.up.bps + after.up.bps,
            self.down.bps - before.down.bps + after.down.bps,
            now,
        )

    def moving(self, up_bps: int, down_bps: int, now: float) -> "Traffic":
        return Traffic(self.up.moving(now, up_bps), self.down.moving(now, down_bps))

    def counters(self, now: float) -> Counters:
        up, down = self.up.read(now), self.down.read(now)
        return Counters(up, down, up // _MEAN_PACKET_UP, down // _MEAN_PACKET_DOWN)

    def access_stats(self, now: float) -> InterfaceStats:
        """Of a device towards the subscribers: it receives what they send."""
        counters = self.counters(now)
        return InterfaceStats(
            rx_bytes=counters.bytes_in,
            rx_packets=counters.packets_in,
            tx_bytes=counters.bytes_out,
            tx_packets=counters.packets_out,
        )

    def network_stats(self, now: float) -> InterfaceStats:
        """Of a device towards the network: it sends what the subscribers send."""
        counters = self.counters(now)
        return InterfaceStats(
            rx_bytes=counters.bytes_out,
            rx_packets=counters.packets_out,
            tx_bytes=counters.bytes_in,
            tx_packets=counters.packets_in,
        )


class LabSession(Session, frozen=True):
    ifindex: int
    traffic: Traffic

    @property
    def ifb_ifindex(self) -> int:
        """The lab makes the IFB right after the device of the session."""
        return self.ifindex + 1

"""Counters that move at a rate, without anybody moving them."""

from gateway_api.wire.core import InterfaceStats, Record

# Bytes in a packet at the mean: subscribers send many acknowledgements and get full packets.
_MEAN_PACKET_UP = 400
_MEAN_PACKET_DOWN = 1200


class Meter(Record, frozen=True):
    """`counted` bytes at the time `at`, and since then `bps` bits a second. Times are epoch seconds."""

    at: float
    bps: int
    counted: int = 0

    def read(self, now: float) -> int:
        """The bytes at the time `now`."""
        return self.counted + max(0, int((now - self.at) * self.bps / 8))

    def moving(self, now: float, bps: int) -> "Meter":
        """The meter that goes on from here at another rate."""
        return Meter(now, bps, self.read(now))


class Traffic(Record, frozen=True):
    """What subscribers sent (`up`) and got (`down`)."""

    up: Meter
    down: Meter

    @classmethod
    def none(cls, now: float) -> "Traffic":
        silent = Meter(now, 0)
        return cls(silent, silent)

    def plus(self, other: "Traffic", now: float) -> "Traffic":
        """Both together from now on; the other's bytes so far count, too."""
        return Traffic(
            Meter(now, self.up.bps + other.up.bps, self.up.read(now) + other.up.read(now)),
            Meter(now, self.down.bps + other.down.bps, self.down.read(now) + other.down.read(now)),
        )

    def less(self, other: "Traffic", now: float) -> "Traffic":
        """Without the other from now on; what was counted stays counted."""
        return self.moving(self.up.bps - other.up.bps, self.down.bps - other.down.bps, now)

    def changed(self, before: "Traffic", after: "Traffic", now: float) -> "Traffic":
        """Follows a part of it that moves at other rates from now on."""
        return self.moving(
            self.up.bps - before.up.bps + after.up.bps,
            self.down.bps - before.down.bps + after.down.bps,
            now,
        )

    def moving(self, up_bps: int, down_bps: int, now: float) -> "Traffic":
        return Traffic(self.up.moving(now, up_bps), self.down.moving(now, down_bps))

    def packets(self, now: float) -> tuple[int, int]:
        """Packets up and down."""
        return self.up.read(now) // _MEAN_PACKET_UP, self.down.read(now) // _MEAN_PACKET_DOWN

    def stats(self, now: float, *, subscribers_side: bool) -> InterfaceStats:
        """The counters of an interface that all of it passes.

        A device towards the subscribers receives what goes up, one towards the network what goes
        down.
        """
        up, down = self.up.read(now), self.down.read(now)
        packets_up, packets_down = self.packets(now)
        if subscribers_side:
            return InterfaceStats(rx_bytes=up, rx_packets=packets_up, tx_bytes=down, tx_packets=packets_down)
        return InterfaceStats(rx_bytes=down, rx_packets=packets_down, tx_bytes=up, tx_packets=packets_up)

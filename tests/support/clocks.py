"""The clocks of a machine, which a test moves."""

from gateway_core.records.clock import Clock

NOW = 1_700_000_000
#: The uptime of the machine, in seconds.
_UP = 5_000.0


class SteppedClock:
    """A clock in seconds; the test sets `now`."""

    def __init__(self, now: float = 1000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now

    def wall(self) -> float:
        return self.now + NOW


class StillClock(Clock):
    """Stands still until a test advances it, sets the wall clock, or reboots the machine."""

    def __init__(self, now: float = NOW) -> None:
        super().__init__("boot 1")
        #: The true time, by which the steady clock counts.
        self.now = now
        #: Seconds by which the wall clock is ahead of it.
        self.ahead = 0.0
        self._booted = now - _UP

    def wall(self) -> float:
        return self.now + self.ahead

    def steady(self) -> float:
        return self.now - self._booted

    def reboot(self, ahead: float = 0.0) -> None:
        """A moment later, with a wall clock that is `ahead` seconds ahead."""
        self.boot_id = f"boot at {self.now}"
        self.now += 1
        self._booted = self.now
        self.ahead = ahead

"""The clocks of a machine, which a test moves."""

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


class MachineClock:
    """The clocks of a machine. They stand still until a test advances them, or sets the wall clock."""

    def __init__(self, now: float = NOW) -> None:
        #: The true time, by which the steady clock counts.
        self.now = now
        #: Seconds by which the wall clock is ahead of the true time.
        self.ahead = 0.0
        self._booted = now - _UP

    def wall(self) -> float:
        return self.now + self.ahead

    def steady(self) -> float:
        return self.now - self._booted

    def reboot(self, ahead: float = 0.0) -> None:
        """Let a second pass, then start the steady clock at 0 and the wall clock `ahead` seconds ahead."""
        self.now += 1
        self._booted = self.now
        self.ahead = ahead

"""The clock of the core daemon, which a test moves."""

from gateway_core.records.clock import Clock
from tests.support.clocks import NOW, MachineClock


class StillClock(MachineClock, Clock):
    """Core clock that stands still until a test advances it, sets it, or reboots the machine."""

    def __init__(self, now: float = NOW) -> None:
        super().__init__(now)
        self.boot_id = "boot 1"

    def reboot(self, ahead: float = 0.0) -> None:
        self.boot_id = f"boot at {self.now}"
        super().reboot(ahead)

"""The end of a temporary rate."""

import math

from msgspec.structs import replace

from gateway_api.core.clock import Clock
from gateway_api.wire.contract import Record

#: Seconds by which the two clocks may drift apart before the wall clock counts as set.
_DRIFT = 1


class Expiry(Record, frozen=True):
    """When the former rates of a session return, and which: bits per second.

    After a number of seconds, the steady clock of the boot decides, at its time `due`. For a given time, and
    over a reboot, the wall clock decides, at `at` in epoch seconds.
    """

    former_down: int
    former_up: int
    at: int
    due: float | None = None
    boot_id: str = ""

    def after(self, seconds: int, clock: Clock) -> "Expiry":
        """The same rates, after so many seconds from now."""
        at, due = math.ceil(clock.wall() + seconds), clock.steady() + seconds
        return replace(self, at=at, due=due, boot_id=clock.boot_id)

    def following(self, clock: Clock) -> "Expiry":
        """The same, with `at` by the wall clock as it is set now: the same object if it has not changed."""
        if self.due is None or self.boot_id != clock.boot_id:
            return self
        at = math.ceil(clock.wall() + self.due - clock.steady())
        return self if abs(at - self.at) <= _DRIFT else replace(self, at=at)

    def has_come(self, clock: Clock) -> bool:
        if self.due is None or self.boot_id != clock.boot_id:
            return clock.wall() >= self.at
        return clock.steady() >= self.due

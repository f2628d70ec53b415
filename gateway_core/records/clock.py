"""Clocks of the machine, moments by these clocks, and a token bucket."""

import math
import secrets
import time
from pathlib import Path
from typing import Self

import msgspec
from msgspec.structs import replace

_BOOT_ID_FILE = Path("/proc/sys/kernel/random/boot_id")
#: Seconds by which the two clocks may drift apart before the wall clock counts as set.
_MAX_DRIFT_SECONDS = 1
#: Value for a record of an older version, which did not store the seconds: only the wall clock counts.
_UNKNOWN_SECONDS = 1 << 40


class Clock:
    """Wall clock and steady clock of the machine, for one boot, which `boot_id` identifies."""

    def __init__(self, boot_id: str) -> None:
        self.boot_id = boot_id

    def wall(self) -> float:
        """Return the time of the wall clock in epoch seconds. The time jumps when the wall clock is set."""
        return time.time()

    def steady(self) -> float:
        """Return the time of the steady clock: the seconds since the boot, including suspended time. The time
        never jumps."""
        return time.clock_gettime(time.CLOCK_BOOTTIME)

    def boot_time(self) -> float:
        """Return the time at which the machine booted, in epoch seconds by the present setting of the wall
        clock."""
        return self.wall() - self.steady()


def read_boot_id() -> str:
    """Return the kernel's id of this boot. If the id cannot be read, return a random id: times of an earlier
    process then count as times of another boot, which is safe."""
    try:
        return _BOOT_ID_FILE.read_text().strip()
    except OSError:
        return secrets.token_hex(16)


class Moment(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Moment at which an unconfirmed commit or temporary rates end: a number of `seconds` after the request,
    or a given time.

    During the boot `boot_id`, a moment after a number of seconds comes when the steady clock reaches `due`. A
    given time has no `due`, and comes when the wall clock reaches `at`, in epoch seconds.

    After a reboot, the moment comes when the wall clock reaches `at`, and at the latest when the machine has
    been up for `seconds`. Only the wall clock knows how long the machine was down, but the wall clock may be
    wrong until it is synchronized over the network. If the wall clock is ahead, the moment comes too early.
    """

    at: int
    seconds: int = _UNKNOWN_SECONDS
    boot_id: str = ""
    due: float | None = None

    def schedule_in(self, seconds: int, clock: Clock) -> Self:
        """Return a copy of this moment that comes `seconds` seconds from now."""
        now = clock.wall()
        at = math.ceil(now + seconds)
        return replace(self, at=at, seconds=seconds, boot_id=clock.boot_id, due=clock.steady() + at - now)

    def schedule_at(self, at: int, clock: Clock) -> Self:
        """Return a copy of this moment that comes at the time `at`, in epoch seconds."""
        seconds = max(0, math.ceil(at - clock.wall()))
        return replace(self, at=at, seconds=seconds, boot_id=clock.boot_id, due=None)

    def follow_clock(self, clock: Clock) -> Self:
        """Return a copy of this moment whose `at` is corrected after the wall clock was set. Return the same
        object if `at` is right."""
        if self.due is None or self.boot_id != clock.boot_id:
            return self
        at = round(clock.wall() + self.due - clock.steady())
        return self if abs(at - self.at) <= _MAX_DRIFT_SECONDS else replace(self, at=at)

    def compute_shown_time(self, clock: Clock) -> int:
        """Return the time to display for this moment, in epoch seconds by the present setting of the wall
        clock."""
        if self.boot_id == clock.boot_id:
            return self.follow_clock(clock).at
        return min(self.at, math.ceil(clock.wall() + self.seconds - clock.steady()))

    def has_come(self, clock: Clock) -> bool:
        if self.boot_id != clock.boot_id:
            return clock.wall() >= self.at or clock.steady() >= self.seconds
        return clock.wall() >= self.at if self.due is None else clock.steady() >= self.due


class Expiry(Moment, frozen=True, gc=False):
    """End of temporary rates: the moment, and the former rates that return then, in bits per second. `shows`
    is the time to display, in epoch seconds, if it differs from the moment; otherwise None."""

    former_down: int
    former_up: int
    shows: int | None = None

    @property
    def expires_at(self) -> int:
        """Time to display, in epoch seconds."""
        return self.at if self.shows is None else self.shows

    def refresh_shown_time(self, clock: Clock) -> Self:
        """Return a copy whose displayed time is corrected after the wall clock was set. Return the same
        object if the displayed time is right."""
        expiry = self.follow_clock(clock)
        shown = expiry.compute_shown_time(clock)
        if abs(shown - expiry.expires_at) <= _MAX_DRIFT_SECONDS:
            return expiry
        return replace(expiry, shows=None if shown == expiry.at else shown)


class TokenBucket:
    """Token bucket, which limits a rate and allows a burst. The bucket starts full with `burst` tokens, and
    gains `rate` tokens a second up to `burst` tokens. Times are in seconds of a steady clock."""

    def __init__(self, rate: float, burst: int, now: float = 0.0) -> None:
        self._rate = rate
        self._burst = float(burst)
        self._tokens = self._burst
        self._updated_at = now

    def take(self, now: float) -> bool:
        """Take a token at the time `now`. Return False if the bucket has no token."""
        self._tokens = min(self._burst, self._tokens + max(0.0, now - self._updated_at) * self._rate)
        self._updated_at = now
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True

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
    """Wall clock and steady clock in one boot of the machine, which `boot_id` identifies."""

    def __init__(self, boot_id: str) -> None:
        self.boot_id = boot_id

    def wall(self) -> float:
        """Return epoch seconds, which jump when the clock is set."""
        return time.time()

    def steady(self) -> float:
        """Return the seconds since the boot, time asleep included. They never jump."""
        return time.clock_gettime(time.CLOCK_BOOTTIME)

    def boot_time(self) -> float:
        """Return the epoch seconds at which the machine booted, by the wall clock as it is set now."""
        return self.wall() - self.steady()


def read_boot_id() -> str:
    """Return the kernel's id of this boot. If the kernel's id cannot be read, return a random id: earlier
    times then count as times of another boot, which is safe."""
    try:
        return _BOOT_ID_FILE.read_text().strip()
    except OSError:
        return secrets.token_hex(16)


class Moment(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Moment at which an unconfirmed commit or temporary rates end: `seconds` after the request, or at a
    given time.

    In the boot `boot_id`, a moment after a number of seconds comes at `due` by the steady clock. A given time
    has no `due`, and comes at `at` by the wall clock, in epoch seconds. After a reboot, only the wall clock
    knows how long the machine was down, and the wall clock may be wrong until the network corrects it. So the
    moment comes when the wall clock reaches `at`, at the latest when the machine has been up for `seconds`:
    this time has then passed in any case. A wall clock that is ahead ends the wait too early.
    """

    at: int
    seconds: int = _UNKNOWN_SECONDS
    boot_id: str = ""
    due: float | None = None

    def schedule_in(self, seconds: int, clock: Clock) -> Self:
        """Return a copy that comes after a number of seconds from now."""
        now = clock.wall()
        at = math.ceil(now + seconds)
        return replace(self, at=at, seconds=seconds, boot_id=clock.boot_id, due=clock.steady() + at - now)

    def schedule_at(self, at: int, clock: Clock) -> Self:
        """Return a copy that comes at a given time, in epoch seconds."""
        seconds = max(0, math.ceil(at - clock.wall()))
        return replace(self, at=at, seconds=seconds, boot_id=clock.boot_id, due=None)

    def follow_clock(self, clock: Clock) -> Self:
        """Return a copy whose `at` fits the present setting of the wall clock. Return the same object if
        nothing changes."""
        if self.due is None or self.boot_id != clock.boot_id:
            return self
        at = round(clock.wall() + self.due - clock.steady())
        return self if abs(at - self.at) <= _MAX_DRIFT_SECONDS else replace(self, at=at)

    def compute_shown_time(self, clock: Clock) -> int:
        """Return the time to display, in epoch seconds, by the present setting of the wall clock."""
        if self.boot_id == clock.boot_id:
            return self.follow_clock(clock).at
        return min(self.at, math.ceil(clock.wall() + self.seconds - clock.steady()))

    def has_come(self, clock: Clock) -> bool:
        if self.boot_id != clock.boot_id:
            return clock.wall() >= self.at or clock.steady() >= self.seconds
        return clock.wall() >= self.at if self.due is None else clock.steady() >= self.due


class Expiry(Moment, frozen=True, gc=False):
    """Moment at which the former rates of a session return. The rates are in bits per second. `shows` is the
    time to display; None means `at`."""

    former_down: int
    former_up: int
    shows: int | None = None

    @property
    def expires_at(self) -> int:
        """Time to display, in epoch seconds."""
        return self.at if self.shows is None else self.shows

    def refresh_shown_time(self, clock: Clock) -> Self:
        """Return a copy whose displayed time fits the present setting of the wall clock. Return the same
        object if nothing changes."""
        expiry = self.follow_clock(clock)
        shown = expiry.compute_shown_time(clock)
        if abs(shown - expiry.expires_at) <= _MAX_DRIFT_SECONDS:
            return expiry
        return replace(expiry, shows=None if shown == expiry.at else shown)


class TokenBucket:
    """Token bucket, which limits a rate and allows a burst. The bucket gains `rate` tokens a second, up to
    `burst` tokens, and is full at first. `now` is in seconds of a steady clock."""

    def __init__(self, rate: float, burst: int, now: float = 0.0) -> None:
        self._rate = rate
        self._burst = float(burst)
        self._tokens = self._burst
        self._updated_at = now

    def take(self, now: float) -> bool:
        """Take a token. Return False if the bucket has no token."""
        self._tokens = min(self._burst, self._tokens + max(0.0, now - self._updated_at) * self._rate)
        self._updated_at = now
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True

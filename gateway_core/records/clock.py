"""The wall clock and the steady clock of the machine; moments, and the limit of a rate, by them."""

import math
import secrets
import time
from pathlib import Path
from typing import TypeVar

import msgspec
from msgspec.structs import replace

_KERNELS_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
#: Seconds by which the two clocks may drift apart before the wall clock counts as set.
_DRIFT = 1
#: For a record of a version that did not store the seconds: the wall clock alone decides.
_UNKNOWN = 1 << 40

M = TypeVar("M", bound="Moment")


class Clock:
    """Times of one boot of the machine, which `boot_id` identifies."""

    def __init__(self, boot_id: str) -> None:
        self.boot_id = boot_id

    def wall(self) -> float:
        """Epoch seconds. They jump when the clock is set."""
        return time.time()

    def steady(self) -> float:
        """Seconds since the boot, time asleep included. They never jump."""
        return time.clock_gettime(time.CLOCK_BOOTTIME)

    def booted(self) -> float:
        """When the machine booted, in epoch seconds by the wall clock as it is set now."""
        return self.wall() - self.steady()


def boot_id() -> str:
    """Return the kernel's id of this boot. A random id where it cannot be read: then earlier times count as
    those of another boot, which is safe."""
    try:
        return _KERNELS_BOOT_ID.read_text().strip()
    except OSError:
        return secrets.token_hex(16)


class Moment(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The end of a number of seconds, or a given time: of an unconfirmed commit, and of temporary rates. In
    the boot `boot_id`: at `due` by the steady clock, or, if that is None, at `at` by the wall clock, in epoch
    seconds. It was `seconds` away when it was asked for.

    After a number of seconds, the steady clock of the boot decides. For a given time, the wall clock does.
    Over a reboot only the wall clock knows how long the machine was down, and it may be wrong until the
    network corrects it. So after a reboot a moment has come as soon as the wall clock reaches it, and at the
    latest when the machine has been up for the seconds that were asked for: then they have passed, whatever
    the clock says. A wall clock that is ahead ends it too early.
    """

    at: int
    seconds: int = _UNKNOWN
    boot_id: str = ""
    due: float | None = None

    def after(self: M, seconds: int, clock: Clock) -> M:
        """Return a copy with the end so many seconds from now."""
        now = clock.wall()
        at = math.ceil(now + seconds)
        return replace(self, at=at, seconds=seconds, boot_id=clock.boot_id, due=clock.steady() + at - now)

    def at_time(self: M, at: int, clock: Clock) -> M:
        """Return a copy with the end at a given time in epoch seconds."""
        seconds = max(0, math.ceil(at - clock.wall()))
        return replace(self, at=at, seconds=seconds, boot_id=clock.boot_id, due=None)

    def following(self: M, clock: Clock) -> M:
        """Return a copy with `at` by the wall clock as it is set now: the same object if it has not
        changed."""
        if self.due is None or self.boot_id != clock.boot_id:
            return self
        at = round(clock.wall() + self.due - clock.steady())
        return self if abs(at - self.at) <= _DRIFT else replace(self, at=at)

    def shown(self, clock: Clock) -> int:
        """Return the time to show, by the wall clock as it is set now, in epoch seconds."""
        if self.boot_id == clock.boot_id:
            return self.following(clock).at
        return min(self.at, math.ceil(clock.wall() + self.seconds - clock.steady()))

    def has_come(self, clock: Clock) -> bool:
        if self.boot_id != clock.boot_id:
            return clock.wall() >= self.at or clock.steady() >= self.seconds
        return clock.wall() >= self.at if self.due is None else clock.steady() >= self.due


class Expiry(Moment, frozen=True, gc=False):
    """When the former rates of a session return, and which: bits per second. `shows` is the time to show, as
    `shown` had it last; None for `at`."""

    former_down: int
    former_up: int
    shows: int | None = None

    @property
    def expires_at(self) -> int:
        """The time to show, in epoch seconds."""
        return self.at if self.shows is None else self.shows

    def showing(self, clock: Clock) -> "Expiry":
        """Return a copy by the wall clock as it is set now: the same object if it has not changed."""
        following = self.following(clock)
        shown = following.shown(clock)
        if abs(shown - following.expires_at) <= _DRIFT:
            return following
        return replace(following, shows=None if shown == following.at else shown)


"""A limit of a rate, with a burst."""


class TokenBucket:
    """Earns `rate` tokens a second, up to `burst`. It is full at first; `now` is monotonic seconds."""

    def __init__(self, rate: float, burst: int, now: float = 0.0) -> None:
        self._rate = rate
        self._burst = float(burst)
        self._tokens = self._burst
        self._at = now

    def take(self, now: float) -> bool:
        """Take a token. False if there is none."""
        self._tokens = min(self._burst, self._tokens + max(0.0, now - self._at) * self._rate)
        self._at = now
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True

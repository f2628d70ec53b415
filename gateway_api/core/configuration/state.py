"""What a store keeps: a deadline, how a revision came to be, and which revision counts.

An unconfirmed commit is undone after the requested seconds, whatever the wall clock does. Within a boot the
steady clock alone decides. Over a reboot only the wall clock knows how long the machine was down, and it may
be wrong until the network corrects it. So after a reboot the deadline is reached as soon as the wall clock
reaches it, and at the latest when the requested seconds have passed again. A wall clock that is ahead undoes
the commit too early. That is the safe side: an operator who cannot confirm may be locked out.
"""

import math
from typing import Any

import msgspec
from msgspec.structs import replace

from gateway_api.core.changes import Note
from gateway_api.core.clock import Clock
from gateway_api.wire.core.configuration import LONGEST_CONFIRMATION

#: Seconds by which the two clocks may drift apart before the wall clock counts as set.
_DRIFT = 1


class Deadline(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Unless confirmed in time, the revision `baseline` is to run again.

    `seconds` are those of the request. They end at `due` by the steady clock of the boot `boot_id`, at `at`
    by the wall clock, in epoch seconds. `rebooted`: the commit is of an earlier boot. The defaults are for a
    deadline of an earlier version, which stored `at` alone.
    """

    at: int
    baseline: int
    seconds: int = LONGEST_CONFIRMATION
    boot_id: str = ""
    due: float = 0.0
    rebooted: bool = False

    @classmethod
    def after(cls, seconds: int, baseline: int, clock: Clock) -> "Deadline":
        """The deadline of a commit made now."""
        now = clock.wall()
        at = math.ceil(now + seconds)
        return cls(at, baseline, seconds, clock.boot_id, clock.steady() + at - now)

    def resumed(self, clock: Clock) -> "Deadline":
        """The same for a core that starts now."""
        if self.boot_id == clock.boot_id:
            return self
        left = min(float(self.seconds), self.at - clock.wall())
        return replace(self, boot_id=clock.boot_id, due=clock.steady() + left, rebooted=True)

    def following(self, clock: Clock) -> "Deadline":
        """The same, with `at` by the wall clock as it is set now."""
        at = self._due_by_wall(clock)
        return self if self.rebooted or abs(at - self.at) <= _DRIFT else replace(self, at=at)

    def shown(self, clock: Clock) -> int:
        """The time to show, by the wall clock as it is set now, in epoch seconds."""
        at = self.following(clock).at
        return min(at, self._due_by_wall(clock)) if self.rebooted else at

    def has_come(self, clock: Clock) -> bool:
        return clock.steady() >= self.due or (self.rebooted and clock.wall() >= self.at)

    def _due_by_wall(self, clock: Clock) -> int:
        return round(clock.wall() + self.due - clock.steady())


class Commit(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """When, by whom and why a revision was committed. `committed_at` is epoch seconds."""

    committed_at: int
    author: str
    comment: str | None


class State(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`running` and the `archive`, newest first, are numbers of revisions. Without a `candidate`, nothing is
    staged. `key` is for entity tags: without it, a client could find out secrets by trying. `generations` are
    those of the API's users, by name; None in a state of an older version. `change` is the last noted change,
    which the log of changes may not have yet."""

    running: int
    archive: tuple[int, ...] = ()
    candidate: dict[str, Any] | None = None
    deadline: Deadline | None = None
    key: str = ""
    generations: dict[str, str] | None = None
    change: Note | None = None

    def names(self) -> set[int]:
        """The revisions that must not be removed."""
        return {self.running, *self.archive, *([self.deadline.baseline] if self.deadline else [])}

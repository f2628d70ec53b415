"""Until when an operation of several steps must have ended."""

import math
import time
from dataclasses import dataclass


@dataclass(frozen=True)
class TimeLimit:
    """The end of an operation, in monotonic seconds. A step may take `share` of the time left."""

    end: float = math.inf
    share: float = 1.0

    def left(self, most: float = math.inf) -> float:
        """Seconds for the next step, which takes `most` at the longest. 0 if the time is over."""
        return max(0.0, min(most, (self.end - time.monotonic()) * self.share))


NO_LIMIT = TimeLimit()


@dataclass(frozen=True)
class CommitLimits:
    """The limits of a commit for the daemons beside the core."""

    apply: TimeLimit
    put_back: TimeLimit

    @classmethod
    def of(cls, apply: float, put_back: float) -> "CommitLimits":
        """In seconds: first those to apply, then those to put back. A step of putting back takes half of the
        time left: a daemon that hangs again must leave some to the others."""
        now = time.monotonic()
        return cls(TimeLimit(now + apply), TimeLimit(now + apply + put_back, share=0.5))

"""One webhook's deliveries: in order at the first attempt, again after 5 s, 30 s and 5 min.

A lane is a thread of its own, so that a receiver who is slow or dead delays nobody else's.
"""

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import count

from gateway_api.hub.attempt import Outcome
from gateway_api.hub.message import Message

#: Seconds from the end of a failed attempt to the next.
RETRIES = (5.0, 30.0, 300.0)
#: Messages that wait, the ones to be tried again included. Beyond, the oldest go.
MOST_WAITING = 10_000
#: The same while the receiver takes one after another, which it can't as fast as a restarted gateway's
#: sessions come up.
MOST_WAITING_IN_A_BURST = 100_000
_BRISK = 0.25
#: Seconds for which a receiver is taken for one that takes, though it doesn't: one attempt that never ends is
#: no reason to drop a burst.
_DOUBT = 15.0
LOGGED = 100


@dataclass(frozen=True)
class Delivery:
    """An entry of the delivery log. `result` is delivered, failed (`next_attempt_at` says when it is tried
    again), skipped after the last attempt, or dropped: then `dropped` messages from this one on had no
    room. Times are epoch seconds, `duration` is seconds."""

    message_id: str
    event: str
    attempt: int
    result: str
    status: int | None = None
    error: str | None = None
    started_at: float | None = None
    duration: float | None = None
    next_attempt_at: float | None = None
    dropped: int = 0


@dataclass(slots=True)
class _Waiting:
    #: Monotonic seconds; what is due first goes first, a first attempt as soon as it came.
    due: float
    #: The order in which messages came.
    number: int
    message: Message
    attempts: int = 0

    def __lt__(self, other: "_Waiting") -> bool:
        return (self.due, self.number) < (other.due, other.number)


@dataclass
class Counts:
    """Since the webhook was registered."""

    delivered: int = 0
    failed: int = 0
    skipped: int = 0
    dropped: int = 0


class Lane:
    """Delivers with `send`, in the thread that calls `run`. `clock` gives monotonic seconds, `wall` epoch
    seconds."""

    def __init__(
        self,
        send: Callable[[Message], Outcome],
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._send = send
        self._clock = clock
        self._wall = wall
        self._changed = threading.Condition()
        #: By the attempts that were made. Each is in the order of both due times and numbers: attempts end
        #: one after another, and the wait after the same number of them is the same.
        self._waiting: list[deque[_Waiting]] = [deque() for _ in range(len(RETRIES) + 1)]
        self._numbers = count(1)
        #: Until when the receiver is one that takes, if no attempt succeeds quickly before.
        self._takes_until = math.inf
        self._closed = False
        self._log: deque[Delivery] = deque(maxlen=LOGGED)
        self.counts = Counts()

    def __len__(self) -> int:
        """How many messages wait."""
        return sum(map(len, self._waiting))

    def offer(self, messages: Iterable[Message]) -> None:
        """Takes messages in their order, and makes room for them by dropping the oldest."""
        with self._changed:
            now = self._clock()
            for message in messages:
                self._waiting[0].append(_Waiting(now, next(self._numbers), message))
            self._make_room()
            self._changed.notify()

    def close(self) -> None:
        """What waits is forgotten."""
        with self._changed:
            self._closed = True
            for line in self._waiting:
                line.clear()
            self._changed.notify()

    def log(self) -> list[Delivery]:
        """The last deliveries, newest first."""
        with self._changed:
            return list(reversed(self._log))

    def run(self) -> None:
        """Delivers until the lane is closed."""
        while (one := self._next()) is not None:
            started = self._wall()
            outcome = self._send(one.message)
            self._settle(one, outcome, started)

    def _next(self) -> _Waiting | None:
        with self._changed:
            while not self._closed:
                now = self._clock()
                line = min(filter(None, self._waiting), key=lambda line: line[0], default=None)
                if line is not None and line[0].due <= now:
                    self._takes_until = min(self._takes_until, now + _DOUBT)
                    return line.popleft()
                self._changed.wait(line[0].due - now if line is not None else None)
            return None

    def _settle(self, one: _Waiting, outcome: Outcome, started: float) -> None:
        with self._changed:
            if self._closed:
                return
            attempts, next_attempt_at = one.attempts + 1, None
            if outcome.delivered and outcome.seconds < _BRISK:
                self._takes_until = math.inf
            if outcome.delivered:
                result = "delivered"
                self.counts.delivered += 1
            elif attempts <= len(RETRIES):
                result = "failed"
                self.counts.failed += 1
                wait = RETRIES[attempts - 1]
                next_attempt_at = self._wall() + wait
                again = _Waiting(self._clock() + wait, one.number, one.message, attempts)
                self._waiting[attempts].append(again)
            else:
                result = "skipped"
                self.counts.failed += 1
                self.counts.skipped += 1
            self._log.append(
                Delivery(
                    message_id=one.message.id,
                    event=one.message.event,
                    attempt=attempts,
                    result=result,
                    status=outcome.status,
                    error=outcome.error,
                    started_at=started,
                    duration=outcome.seconds,
                    next_attempt_at=next_attempt_at,
                )
            )

    def _make_room(self) -> None:
        taking = self._clock() < self._takes_until
        excess = len(self) - (MOST_WAITING_IN_A_BURST if taking else MOST_WAITING)
        if excess <= 0:
            return
        dropped = [
            min(filter(None, self._waiting), key=lambda line: line[0].number).popleft() for _ in range(excess)
        ]
        oldest = dropped[0]
        self.counts.dropped += excess
        event, id = oldest.message.event, oldest.message.id
        self._log.append(Delivery(id, event, oldest.attempts, "dropped", dropped=excess))

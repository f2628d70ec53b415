"""A webhook's queue of deliveries and its log: in order at the first attempt, again after 5, 30 and 300 s.

Each queue has a thread, so that a receiver that is slow or dead delays no other. A receiver that fails
several times in a row is paused. Without a pause, the queue of one that rejects at once would try one message
after the other, and all queues share one interpreter.
"""

import math
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace

from msgspec import structs

from gateway_api.hub.attempt import AttemptResult
from gateway_api.hub.backlog import Backlog, Pause
from gateway_api.hub.message import Message
from gateway_api.wire.hub import Delivery, DeliveryResult

#: Seconds from the end of a failed attempt to the next.
RETRIES = (5.0, 30.0, 300.0)
#: Messages that wait, the ones to be tried again included.
MOST_WAITING = 10_000
#: The same while the receiver takes one after another, which it can't as fast as a restarted gateway's
#: sessions come up.
MOST_WAITING_IN_A_BURST = 100_000
_BRISK = 0.25
#: Seconds for which a receiver is taken for one that takes, though it doesn't: one attempt that never ends is
#: no reason to drop a burst.
_DOUBT = 15.0


@dataclass(slots=True)
class _Waiting:
    #: Monotonic seconds; what is due first goes first, a first attempt as soon as it came.
    due: float
    #: The order in which messages came.
    number: int
    message: Message
    attempts: int = 0
    #: Still in the backlog.
    new: bool = False

    def __lt__(self, other: "_Waiting") -> bool:
        return (self.due, self.number) < (other.due, other.number)


@dataclass
class Counts:
    """Since the webhook was registered."""

    delivered: int = 0
    failed: int = 0
    skipped: int = 0
    dropped: int = 0


class DeliveryQueue:
    """Delivers with `send` what is offered to the `backlog`, in the thread that calls `run`. `clock` gives
    monotonic seconds, `wall` epoch seconds."""

    def __init__(
        self,
        send: Callable[[Message], AttemptResult],
        backlog: Backlog,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._send = send
        self._clock = clock
        self._wall = wall
        self._backlog = backlog
        self._changed = threading.Condition(backlog.lock)
        #: What isn't in the backlog, by the attempts that were made: first tests, then what is tried again.
        #: Each is in the order of both due times and numbers: attempts end one after another, and the wait
        #: after the same number of them is the same.
        self._own: list[deque[_Waiting]] = [deque() for _ in range(len(RETRIES) + 1)]
        self._pause = Pause()
        self._paused_until: float | None = None
        #: Until when the receiver is one that takes, if no attempt succeeds quickly before.
        self._takes_until = math.inf
        self._closed = False
        self._log = DeliveryLog()
        self._counts = Counts()
        self.place = 0
        self.listens = False
        backlog.join(self)

    def __len__(self) -> int:
        """How many messages wait."""
        with self._changed:
            self.make_room()
            return sum(self._lengths())

    @property
    def counts(self) -> Counts:
        """As of now."""
        with self._changed:
            self.make_room()
            return replace(self._counts)

    @property
    def paused_until(self) -> float | None:
        """When the next probe is made, epoch seconds, or later if no message waits then; None while the
        receiver isn't paused."""
        with self._changed:
            return self._paused_until

    def test(self, message: Message) -> None:
        """Takes a message for this receiver alone. It is sent in a pause, too, and may end it."""
        with self._changed:
            if not self._closed:
                self._own[0].append(_Waiting(self._clock(), self._backlog.newest, message))
                self.wake()

    def close(self) -> None:
        """What waits is forgotten."""
        with self._changed:
            self._closed = True
            for line in self._own:
                line.clear()
            self._backlog.leave(self)
            self.place = self._backlog.newest
            self.wake()

    def log(self) -> list[Delivery]:
        """The last deliveries, newest first."""
        with self._changed:
            self.make_room()
            return self._log.newest_first()

    def run(self) -> None:
        """Delivers until the queue is closed."""
        while (one := self._next()) is not None:
            started = self._wall()
            outcome = self._send(one.message)
            self._settle(one, outcome, started)

    def wake(self) -> None:
        """As `Follower`."""
        self._changed.notify()

    def make_room(self) -> None:
        """As `Follower`. Drops the oldest of what is more than may wait; whether of those that were attempted
        or of those that were not, whichever are more: some retries are no reason to drop what is new, and a
        message that was tried once has its other attempts while a dead receiver's queue is full."""
        taking = self._clock() < self._takes_until
        most = MOST_WAITING_IN_A_BURST if taking else MOST_WAITING
        while not self._closed and (excess := sum(lengths := self._lengths()) - most) > 0:
            own, new = lengths
            if new >= own:
                dropped = min(excess, new)
                oldest, attempts = self._backlog.get(self.place + 1)[1], 0
                self.place += dropped
            else:
                dropped = min(excess, own)
                gone = [
                    min(filter(None, self._own), key=lambda line: line[0].number).popleft()
                    for _ in range(dropped)
                ]
                oldest, attempts = gone[0].message, gone[0].attempts
            self._counts.dropped += dropped
            self._log.add(
                Delivery(oldest.id, oldest.event, attempts, DeliveryResult.DROPPED, dropped=dropped)
            )

    def _lengths(self) -> tuple[int, int]:
        """How many wait that are the queue's own, and how many in the backlog."""
        return sum(map(len, self._own)), self._backlog.newest - self.place if not self._closed else 0

    def _next(self) -> _Waiting | None:
        with self._changed:
            while not self._closed:
                self.make_room()
                now, first = self._clock(), self._first()
                if first is not None and first.due <= now:
                    self._takes_until = min(self._takes_until, now + _DOUBT)
                    if first.new:
                        self.place = first.number
                    else:
                        self._own[first.attempts].popleft()
                    return first
                # One whose next message waits for the end of a pause has no use for those after it.
                self.listens = self.place == self._backlog.newest
                self._changed.wait(first.due - now if first is not None else None)
                self.listens = False
            return None

    def _first(self) -> _Waiting | None:
        """What is due before all others."""
        heads = [line[0] for line in self._own if line]
        if self.place < self._backlog.newest:
            came, message = self._backlog.get(self.place + 1)
            heads.append(_Waiting(max(came, self._pause.until), self.place + 1, message, new=True))
        return min(heads, default=None)

    def _settle(self, one: _Waiting, outcome: AttemptResult, started: float) -> None:
        with self._changed:
            if self._closed:
                return
            self.make_room()
            attempts, next_attempt_at, paused_until = one.attempts + 1, None, None
            if outcome.delivered:
                result = DeliveryResult.DELIVERED
                self._counts.delivered += 1
                self._pause.end()
                self._paused_until = None
                if outcome.seconds < _BRISK:
                    self._takes_until = math.inf
            else:
                result = DeliveryResult.FAILED if attempts <= len(RETRIES) else DeliveryResult.SKIPPED
                self._counts.failed += 1
                now = self._clock()
                pause = self._pause.failed(now, probe=one.new)
                if pause is not None:
                    self._paused_until = paused_until = self._wall() + pause
                if attempts <= len(RETRIES):
                    wait = RETRIES[attempts - 1]
                    next_attempt_at = self._wall() + wait
                    self._own[attempts].append(_Waiting(now + wait, one.number, one.message, attempts))
                else:
                    self._counts.skipped += 1
            self._log.add(
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
                    paused_until=paused_until,
                )
            )


LOGGED = 100


class DeliveryLog:
    """The last entries. Not for several threads at once."""

    def __init__(self) -> None:
        self._entries: deque[Delivery] = deque(maxlen=LOGGED)

    def add(self, entry: Delivery) -> None:
        """What is dropped goes on in one entry: or a queue that is full would push out all that tells why."""
        last = self._entries[-1] if self._entries else None
        if last is not None and entry.result == last.result == DeliveryResult.DROPPED:
            self._entries[-1] = structs.replace(last, dropped=last.dropped + entry.dropped)
        else:
            self._entries.append(entry)

    def newest_first(self) -> list[Delivery]:
        return list(reversed(self._entries))

"""Delivery queue of a webhook, and the delivery log. First attempts are made in order; retries follow after
5, 30 and 300 seconds.

Each queue has a thread, so that a slow or dead receiver does not delay other receivers. After three failures
in a row, the receiver is paused. Without a pause, a receiver that rejects every message at once would keep
its thread busy, and all threads share one interpreter.

A pause delays only first attempts, because the contract fixes the times of retries. At the end of a pause,
the oldest message without an attempt is sent as a probe: this is the first of the message's four attempts. If
the probe fails, the next pause begins: 5 seconds, then 10, then always 15. Any success ends the pause, also
the success of a retry or a test. Then all messages without an attempt are sent at once, in order.

Messages that wait for a first attempt are stored once for all queues, in a backlog. A queue stores only its
position in the backlog. So the memory of a message does not depend on the number of dead receivers, and a
queue drops messages by moving its position.
"""

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from msgspec import structs

from gateway_api.hub.interface import (
    FAILURES_BEFORE_PAUSE,
    LONGEST_PAUSE_SECONDS,
    MAX_LOG_ENTRIES,
    RETRY_DELAYS_SECONDS,
    SHORTEST_PAUSE_SECONDS,
    Delivery,
    DeliveryResult,
)
from gateway_api.hub.sender import AttemptResult, WebhookMessage

#: Messages that wait, messages for a retry included.
MAX_WAITING_MESSAGES = 10_000
#: Messages that wait while the receiver responds quickly. After a restart of the gateway, sessions come up
#: faster than any receiver accepts them.
MAX_WAITING_MESSAGES_IN_BURST = 100_000
#: An attempt of fewer seconds counts as quick.
_QUICK_SECONDS = 0.25
#: Seconds for which a receiver still counts as quick without such an attempt: a single one that hangs is no
#: reason to drop a burst.
_QUICK_EXPIRY_SECONDS = 15.0

#: After so many messages, the backlog frees the messages that no queue needs.
_MESSAGES_PER_CLEANUP = 1000


class Backlog:
    """Messages that wait for a first attempt, shared by several queues. Messages are numbered from 1. `clock`
    returns monotonic seconds. The backlog and its queues share the backlog's `lock`. The caller of a method
    that does not acquire the lock must hold the lock."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self.lock = threading.Lock()
        self._queues: list[DeliveryQueue] = []
        self._messages: deque[tuple[float, WebhookMessage]] = deque()
        self._messages_since_cleanup = 0
        #: The number of the last message.
        self.newest = 0

    def offer(self, messages: Iterable[WebhookMessage]) -> None:
        """Append messages in order, and wake the queues that wait for a message. Do nothing if no queue has
        joined. Acquires the lock."""
        with self.lock:
            if not self._queues:
                return
            now, before = self._clock(), len(self._messages)
            self._messages.extend((now, message) for message in messages)
            added_count = len(self._messages) - before
            self.newest += added_count
            for queue in self._queues:
                if queue.is_listening:
                    queue.wake()
            self._messages_since_cleanup += added_count
            if self._messages_since_cleanup >= _MESSAGES_PER_CLEANUP:
                self._free_messages()

    def join(self, queue: "DeliveryQueue") -> None:
        """Add a queue, which receives the messages that arrive from now on. Acquires the lock."""
        with self.lock:
            queue.position = self.newest
            self._queues.append(queue)

    def leave(self, queue: "DeliveryQueue") -> None:
        """Remove a queue, and free the messages that no other queue needs. Do nothing if the queue has not
        joined."""
        if queue in self._queues:
            self._queues.remove(queue)
            self._free_messages()

    def get(self, number: int) -> tuple[float, WebhookMessage]:
        """Return the arrival time of the message `number`, in monotonic seconds, and the message. `number`
        must be higher than the position of at least one queue."""
        return self._messages[number - self.newest - 1]

    def _free_messages(self) -> None:
        self._messages_since_cleanup = 0
        for queue in self._queues:
            queue.make_room()
        needed_count = self.newest - min((queue.position for queue in self._queues), default=self.newest)
        while len(self._messages) > needed_count:
            self._messages.popleft()


class Pause:
    """Pause of one receiver, during which the receiver gets no first attempts. The first successful attempt
    ends the pause. Times are monotonic seconds."""

    def __init__(self) -> None:
        self.end()

    def end(self) -> None:
        """End the pause and reset the count of failures, after a successful attempt."""
        self._failures = 0
        #: The length of the pause, 0 without a pause.
        self._seconds = 0.0
        #: No first attempt is made until then. The next one is the probe: its failure begins a longer pause.
        self.until = -math.inf

    def add_failure(self, now: float, *, probe: bool) -> float | None:
        """Count an attempt that failed at the time `now`. `probe` is True for the first attempt of a message.
        Return the length of the pause that begins, in seconds, or None if no pause begins."""
        self._failures += 1
        if self._failures < FAILURES_BEFORE_PAUSE or (self._seconds and not probe):
            return None
        self._seconds = min(2 * self._seconds, LONGEST_PAUSE_SECONDS) or SHORTEST_PAUSE_SECONDS
        self.until = now + self._seconds
        return self._seconds


@dataclass(slots=True)
class _WaitingMessage:
    #: Monotonic seconds. A first attempt is due when the message arrives.
    due_at: float
    #: Messages are numbered in the order in which they arrive.
    number: int
    message: WebhookMessage
    attempts: int = 0
    in_backlog: bool = False

    def __lt__(self, other: "_WaitingMessage") -> bool:
        return (self.due_at, self.number) < (other.due_at, other.number)


@dataclass
class MessageCounts:
    """Numbers of messages since the webhook was registered."""

    delivered: int = 0
    failed: int = 0
    skipped: int = 0
    dropped: int = 0


class DeliveryQueue:
    """Queue that delivers the messages of a backlog with `send`, in the thread that calls `run`. `clock`
    returns monotonic seconds, `wall` returns epoch seconds."""

    def __init__(
        self,
        send: Callable[[WebhookMessage], AttemptResult],
        backlog: Backlog,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._send = send
        self._clock = clock
        self._wall = wall
        self._backlog = backlog
        self._changed = threading.Condition(backlog.lock)
        #: Messages that are not in the backlog, by the number of their attempts: tests first, then retries.
        #: Each line is in the order of due times and of numbers: attempts end one after another, and the wait
        #: after the same number of attempts is the same.
        self._retry_lines: list[deque[_WaitingMessage]] = [
            deque() for _ in range(len(RETRY_DELAYS_SECONDS) + 1)
        ]
        self._pause = Pause()
        #: Epoch seconds from which the next message is sent, as a probe. None while the receiver is not
        #: paused.
        self.paused_until: float | None = None
        #: Epoch seconds of the first failure since the last success. None while the last attempt succeeded.
        self.failing_since: float | None = None
        #: The receiver counts as quick until this time. A quick attempt makes the time infinite.
        self._quick_until = math.inf
        self._is_closed = False
        self._log: deque[Delivery] = deque(maxlen=MAX_LOG_ENTRIES)
        self._counts = MessageCounts()
        #: The number of the last message of the backlog that the queue took or dropped.
        self.position = 0
        #: True if `wake` is called when a message arrives.
        self.is_listening = False
        backlog.join(self)

    def __len__(self) -> int:
        """Return the number of waiting messages."""
        with self._changed:
            self.make_room()
            return sum(self._count_waiting())

    @property
    def counts(self) -> MessageCounts:
        """Numbers of messages since the webhook was registered, as a copy."""
        with self._changed:
            self.make_room()
            return replace(self._counts)

    def test(self, message: WebhookMessage) -> None:
        """Add a test message for this receiver only. The message is sent even during a pause. A successful
        test ends the pause."""
        with self._changed:
            if not self._is_closed:
                self._retry_lines[0].append(_WaitingMessage(self._clock(), self._backlog.newest, message))
                self.wake()

    def close(self) -> None:
        """Drop all waiting messages, and make `run` return after the attempt that is in progress."""
        with self._changed:
            self._is_closed = True
            for line in self._retry_lines:
                line.clear()
            self._backlog.leave(self)
            self.position = self._backlog.newest
            self.wake()

    def read_log(self) -> list[Delivery]:
        """Return the entries of the delivery log, newest first."""
        with self._changed:
            self.make_room()
            return list(reversed(self._log))

    def run(self) -> None:
        """Deliver messages until the queue is closed."""
        while (waiting_message := self._wait_for_message()) is not None:
            started = self._wall()
            self._finish_attempt(waiting_message, self._send(waiting_message.message), started)

    def wake(self) -> None:
        """Wake the thread in `run` if the thread waits for a message. The caller holds the lock."""
        self._changed.notify()

    def make_room(self) -> None:
        """Drop the oldest messages if too many messages wait. Drop from the larger of two groups: the
        messages that wait for a retry, and the messages in the backlog. So a few retries push out no new
        message, and a message that failed once keeps its retries while the backlog of a dead receiver is
        full. The caller holds the lock."""
        is_quick = self._clock() < self._quick_until
        limit = MAX_WAITING_MESSAGES_IN_BURST if is_quick else MAX_WAITING_MESSAGES
        while not self._is_closed and (excess := sum(waiting := self._count_waiting()) - limit) > 0:
            retry_count, in_backlog = waiting
            if in_backlog >= retry_count:
                dropped = min(excess, in_backlog)
                oldest, attempts = self._backlog.get(self.position + 1)[1], 0
                self.position += dropped
            else:
                dropped = min(excess, retry_count)
                dropped_messages = [
                    min(filter(None, self._retry_lines), key=lambda line: line[0].number).popleft()
                    for _ in range(dropped)
                ]
                oldest, attempts = dropped_messages[0].message, dropped_messages[0].attempts
            self._counts.dropped += dropped
            self._log_delivery(
                Delivery(oldest.id, oldest.event, attempts, DeliveryResult.DROPPED, dropped=dropped)
            )

    def _count_waiting(self) -> tuple[int, int]:
        """Return two numbers: how many tests and retries wait, and how many messages in the backlog wait."""
        in_backlog = 0 if self._is_closed else self._backlog.newest - self.position
        return sum(map(len, self._retry_lines)), in_backlog

    def _wait_for_message(self) -> _WaitingMessage | None:
        """Wait until a message is due, remove the message from the queue and return it. Return None if the
        queue is closed."""
        with self._changed:
            while not self._is_closed:
                self.make_room()
                now, first = self._clock(), self._peek()
                if first is not None and first.due_at <= now:
                    self._quick_until = min(self._quick_until, now + _QUICK_EXPIRY_SECONDS)
                    if first.in_backlog:
                        self.position = first.number
                    else:
                        self._retry_lines[first.attempts].popleft()
                    return first
                # While an older message waits for the end of a pause, a new one changes nothing.
                self.is_listening = self.position == self._backlog.newest
                self._changed.wait(first.due_at - now if first is not None else None)
                self.is_listening = False
            return None

    def _peek(self) -> _WaitingMessage | None:
        """Return the message that is due first, or None if no message waits."""
        heads = [line[0] for line in self._retry_lines if line]
        if self.position < self._backlog.newest:
            arrived_at, message = self._backlog.get(self.position + 1)
            heads.append(
                _WaitingMessage(
                    max(arrived_at, self._pause.until), self.position + 1, message, in_backlog=True
                )
            )
        return min(heads, default=None)

    def _finish_attempt(
        self, waiting_message: _WaitingMessage, outcome: AttemptResult, started: float
    ) -> None:
        with self._changed:
            if self._is_closed:
                return
            self.make_room()
            attempts, next_attempt_at, paused_until = waiting_message.attempts + 1, None, None
            if outcome.is_delivered:
                result = DeliveryResult.DELIVERED
                self._counts.delivered += 1
                self._pause.end()
                self.paused_until = self.failing_since = None
                if outcome.seconds < _QUICK_SECONDS:
                    self._quick_until = math.inf
            else:
                result = (
                    DeliveryResult.FAILED if attempts <= len(RETRY_DELAYS_SECONDS) else DeliveryResult.SKIPPED
                )
                self._counts.failed += 1
                if self.failing_since is None:
                    self.failing_since = started
                now = self._clock()
                pause = self._pause.add_failure(now, probe=waiting_message.in_backlog)
                if pause is not None:
                    self.paused_until = paused_until = self._wall() + pause
                if attempts <= len(RETRY_DELAYS_SECONDS):
                    wait = RETRY_DELAYS_SECONDS[attempts - 1]
                    next_attempt_at = self._wall() + wait
                    self._retry_lines[attempts].append(
                        _WaitingMessage(now + wait, waiting_message.number, waiting_message.message, attempts)
                    )
                else:
                    self._counts.skipped += 1
            self._log_delivery(
                Delivery(
                    message_id=waiting_message.message.id,
                    event=waiting_message.message.event,
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

    def _log_delivery(self, entry: Delivery) -> None:
        # One entry for all that is dropped in a row: more would push out the failures that explain it.
        last = self._log[-1] if self._log else None
        if last is not None and entry.result == last.result == DeliveryResult.DROPPED:
            self._log[-1] = structs.replace(last, dropped=last.dropped + entry.dropped)
        else:
            self._log.append(entry)

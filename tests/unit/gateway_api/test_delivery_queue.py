"""A webhook's queue, with a clock and a receiver that do what the test says."""

import threading
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import pairwise

import pytest

from gateway_api.hub.delivery_queue import (
    MAX_LOG_ENTRIES,
    MAX_WAITING_MESSAGES,
    MAX_WAITING_MESSAGES_IN_BURST,
    Backlog,
    DeliveryQueue,
)
from gateway_api.hub.interface import Delivery
from gateway_api.hub.sender import AttemptResult, WebhookMessage
from tests.support.clocks import SteppedClock
from tests.support.stack import wait_for

DELIVERED = AttemptResult(200, None, 0.01)
REFUSED = AttemptResult(None, "the connection was refused", 0.01)

#: What comes of an attempt to deliver this message: the first, the second and so on.
Answer = Callable[[WebhookMessage, int], AttemptResult]


class Receiver:
    """Remembers what it was sent, and when. While `gate` is closed an attempt hangs."""

    def __init__(self, clock: SteppedClock, answer: Answer) -> None:
        self._clock = clock
        self._answer = answer
        self.attempts: list[tuple[float, WebhookMessage]] = []
        self._times = Counter[str]()
        self.takes = 0.0
        self.gate = threading.Event()
        self.gate.set()

    def __call__(self, message: WebhookMessage) -> AttemptResult:
        self.attempts.append((self._clock.now, message))
        self._times[message.id] += 1
        assert self.gate.wait(20)
        self._clock.now += self.takes
        return self._answer(message, self._times[message.id])

    @property
    def ids(self) -> list[str]:
        return [message.id for _, message in self.attempts]


class Alone(DeliveryQueue):
    """A queue with a backlog of its own."""

    def __init__(self, receiver: Receiver, clock: SteppedClock) -> None:
        self.backlog = Backlog(clock)
        super().__init__(receiver, self.backlog, clock, clock.wall)

    def offer(self, messages: Iterable[WebhookMessage]) -> None:
        self.backlog.offer(messages)

    def look(self) -> None:
        """Has it look at the clock."""
        with self.backlog.lock:
            self.wake()


def message(number: int) -> WebhookMessage:
    return WebhookMessage(f"life-{number}", "session.up", b'{"number":%d}' % number)


def messages(first: int, last: int) -> list[WebhookMessage]:
    return [message(number) for number in range(first, last + 1)]


def always(outcome: AttemptResult) -> Answer:
    return lambda _, __: outcome


def failing(*ids: str) -> Answer:
    """These fail at each attempt."""
    return lambda sent, _: REFUSED if sent.id in ids else DELIVERED


@contextmanager
def running(answer: Answer) -> Iterator[tuple[Alone, Receiver, SteppedClock]]:
    """A queue at work, until the end of the block."""
    clock = SteppedClock()
    receiver = Receiver(clock, answer)
    queue = Alone(receiver, clock)
    thread = threading.Thread(target=queue.run)
    thread.start()
    try:
        yield queue, receiver, clock
    finally:
        receiver.gate.set()
        queue.close()
        thread.join(10)
        assert not thread.is_alive()


def pass_to(queue: Alone, clock: SteppedClock, now: float) -> None:
    """Lets time pass, and has the queue look at the clock."""
    clock.now = now
    queue.look()


def settled(queue: DeliveryQueue, attempts: int) -> list[Delivery]:
    """The log when so many attempts have ended, the oldest first."""
    wait_for(f"{attempts} attempts", lambda: len(queue.read_log()) >= attempts, 10)
    return queue.read_log()[::-1]


def rests(queue: Alone, offered: int) -> bool:
    """Whether nothing is due, and no attempt under way, of so many messages that were offered."""
    with queue.backlog.lock:
        first = queue._peek()
        due = first is not None and first.due_at <= queue._clock()
    counts = queue.counts
    return not due and len(queue) + counts.delivered + counts.skipped + counts.dropped == offered


def hang(queue: Alone, receiver: Receiver, clock: SteppedClock) -> None:
    """One failure, then an attempt that doesn't end: the queue's receiver isn't one that takes."""
    queue.offer([message(0)])
    settled(queue, 1)
    receiver.gate.clear()
    queue.offer([message(1)])
    wait_for("the attempt that hangs", lambda: receiver.ids[-1] == message(1).id, 10)
    clock.now += 15


def test_a_message_is_tried_again_5_30_and_300_seconds_after_a_failed_attempt_and_then_skipped() -> None:
    with running(failing("life-1")) as (queue, receiver, clock):
        receiver.takes = 7.5
        queue.offer([message(1)])
        settled(queue, 1)
        expected = [1000.0]
        for number, wait in enumerate((5.0, 30.0, 300.0), 1):
            due = expected[-1] + 7.5 + wait
            # It is sent when it comes, so what was due before it has been sent before it.
            receiver.takes = 0.0
            clock.now = due - 0.001
            queue.offer([message(100 + number)])
            settled(queue, 2 * number)
            assert receiver.ids.count("life-1") == number
            receiver.takes = 7.5
            pass_to(queue, clock, due)
            settled(queue, 2 * number + 1)
            expected.append(due)
        pass_to(queue, clock, clock.now + 1_000_000)
        queue.offer([message(2)])
        log = [entry for entry in settled(queue, 8) if entry.message_id == "life-1"]
        attempts = [(at, sent) for at, sent in receiver.attempts if sent.id == "life-1"]
        assert attempts == [(at, message(1)) for at in expected]
        assert [(entry.attempt, entry.result, entry.next_attempt_at is None) for entry in log] == [
            *((1, "failed", False), (2, "failed", False), (3, "failed", False), (4, "skipped", True)),
        ]
        assert vars(queue.counts) == {"delivered": 4, "failed": 4, "skipped": 1, "dropped": 0}


def test_a_failed_attempt_is_logged_with_its_times_and_its_reason() -> None:
    with running(always(AttemptResult(503, None, 1.5))) as (queue, receiver, clock):
        receiver.takes, began = 1.5, clock.wall()
        queue.offer([message(1)])
        times = {"started_at": began, "duration": 1.5, "next_attempt_at": began + 1.5 + 5}
        assert settled(queue, 1) == [Delivery("life-1", "session.up", 1, "failed", status=503, **times)]


def test_the_log_keeps_100_entries_with_the_newest_first() -> None:
    with running(always(DELIVERED)) as (queue, _, __):
        queue.offer(messages(1, 250))
        wait_for("all of them", lambda: queue.counts.delivered == 250, 10)
        assert MAX_LOG_ENTRIES == 100
        assert [entry.message_id for entry in queue.read_log()] == [
            sent.id for sent in messages(151, 250)[::-1]
        ]


def test_an_attempt_under_way_when_the_queue_closes_is_its_last_and_nothing_more_is_taken() -> None:
    with running(always(REFUSED)) as (queue, receiver, clock):
        receiver.gate.clear()
        queue.offer(messages(1, 3))
        wait_for("the first attempt", lambda: receiver.ids, 10)
        queue.close()
        queue.offer([message(4)])
        queue.test(message(5))
        receiver.gate.set()
        pass_to(queue, clock, clock.now + 1000)
    assert (receiver.ids, len(queue)) == (["life-1"], 0)


# Room for what waits


def test_beyond_10000_the_oldest_messages_are_dropped_counted_and_logged_once() -> None:
    with running(failing("life-0")) as (queue, receiver, clock):
        hang(queue, receiver, clock)
        queue.offer(messages(2, 10_000))
        assert (len(queue), queue.counts.dropped) == (MAX_WAITING_MESSAGES, 0) == (10_000, 0)
        queue.offer(messages(10_001, 10_100))
        newest, *others = queue.read_log()
        assert newest == Delivery("life-2", "session.up", 0, "dropped", dropped=100)
        # What is dropped in a row is one entry that grows.
        queue.offer(messages(10_101, 10_130))
        assert (len(queue), queue.counts.dropped) == (10_000, 130)
        assert [entry.dropped for entry in queue.read_log()] == [130, *(0 for _ in others)] == [130, 0]
        receiver.gate.set()
        wait_for("all that waited", lambda: queue.counts.delivered == 10_000, 20)
        # Message 0 was attempted before, and its retry is due.
        assert receiver.ids[2:] == ["life-0", *(sent.id for sent in messages(132, 10_130))]


def test_100000_messages_wait_for_a_receiver_that_takes_quickly() -> None:
    with running(always(DELIVERED)) as (queue, receiver, _):
        queue.offer([message(0)])
        settled(queue, 1)
        receiver.gate.clear()
        queue.offer([message(1)])
        wait_for("the attempt under way", lambda: len(receiver.attempts) == 2, 10)
        queue.offer(messages(2, 100_001))
        assert (len(queue), queue.counts.dropped) == (MAX_WAITING_MESSAGES_IN_BURST, 0) == (100_000, 0)
        queue.offer(messages(100_002, 100_003))
        assert (len(queue), queue.counts.dropped) == (100_000, 2)
        assert queue.read_log()[0] == Delivery("life-2", "session.up", 0, "dropped", dropped=2)


SLOW = AttemptResult(200, None, 0.5)


@pytest.mark.parametrize(
    ("outcome", "seconds", "drops"), [(REFUSED, 14.9, False), (REFUSED, 15.1, True), (SLOW, 15.1, True)]
)
def test_15_seconds_of_attempts_that_fail_or_are_slow_end_the_room_for_a_burst(
    outcome: AttemptResult, seconds: float, drops: bool
) -> None:
    with running(always(outcome)) as (queue, receiver, clock):
        queue.offer(messages(1, 2))
        settled(queue, 2)
        receiver.gate.clear()
        queue.offer([message(0)])
        wait_for("the attempt under way", lambda: len(receiver.attempts) == 3, 10)
        clock.now += seconds
        queue.offer(messages(101, 20_100))
        assert (queue.counts.dropped > 0) == drops


def test_one_quick_success_makes_room_for_a_burst_again() -> None:
    with running(failing("life-1")) as (queue, receiver, clock):
        queue.offer([message(1)])
        settled(queue, 1)
        clock.now += 4
        queue.offer([message(2)])
        settled(queue, 2)
        receiver.gate.clear()
        queue.offer([message(3)])
        wait_for("the attempt under way", lambda: len(receiver.attempts) == 3, 10)
        # 18 seconds after the failure, and 14 after the success.
        clock.now += 14
        queue.offer(messages(5, 20_004))
        assert queue.counts.dropped == 0


def test_messages_that_were_attempted_keep_their_attempts_while_a_queue_is_full() -> None:
    with running(always(REFUSED)) as (queue, receiver, clock):
        queue.offer(messages(1, 3))
        settled(queue, 3)
        clock.now += 20
        for first in range(4, 40_004, 1000):
            queue.offer(messages(first, first + 999))
        assert len(queue) == MAX_WAITING_MESSAGES
        for _ in range(4):
            pass_to(queue, clock, clock.now + 400)
            wait_for("what is due", lambda: rests(queue, 40_003), 10)
        assert [receiver.ids.count(sent.id) for sent in messages(1, 3)] == [4, 4, 4]


def test_what_waits_for_a_retry_is_dropped_where_it_is_more_than_what_is_new() -> None:
    """A receiver that fails now and then, but never often enough in a row for a pause."""

    def answer(sent: WebhookMessage, _: int) -> AttemptResult:
        return SLOW if int(sent.id[5:]) % 3 == 0 else REFUSED

    with running(answer) as (queue, receiver, clock):
        queue.offer(messages(1, 18_000))
        wait_for("all of them", lambda: queue.counts.failed == 12_000, 20)
        receiver.gate.clear()
        clock.now += 15.1
        queue.offer([message(18_001)])
        wait_for("the first retry", lambda: len(receiver.attempts) == 18_001, 10)
        assert (len(queue), queue.counts.dropped) == (9_999, 2_001)
        assert queue.read_log()[0].message_id in ("life-1", "life-2")
        assert queue.read_log()[0].attempt == 1
        # The new one is still there, and not among those that made room.
        assert queue.position == 18_000


# Receivers that fail in a row


def test_three_failures_in_a_row_pause_the_first_attempts_for_5_seconds() -> None:
    with running(always(REFUSED)) as (queue, receiver, clock):
        queue.offer(messages(1, 100))
        log = settled(queue, 3)
        # The log says which failure began the pause.
        assert [entry.paused_until for entry in log] == [None, None, clock.wall() + 5]
        # What is due is looked for before a test, which goes at once.
        clock.now = 1004.999
        queue.test(message(0))
        settled(queue, 4)
        assert receiver.ids == ["life-1", "life-2", "life-3", "life-0"]
        assert len(queue) == 101


def test_a_pause_ends_with_one_message_whose_failure_begins_another_of_at_most_15_seconds() -> None:
    with running(always(REFUSED)) as (queue, receiver, clock):
        queue.offer(messages(1, 100))
        settled(queue, 3)
        pauses = []
        for number in range(4, 13):
            paused_until = queue.paused_until
            assert paused_until is not None
            pauses.append(paused_until - clock.wall())
            clock.now += pauses[-1]
            # One retry after the other is due meanwhile; none of them has to do with the pause.
            queue.look()
            wait_for("the probe", lambda number=number: f"life-{number}" in receiver.ids, 10)
            wait_for("its end", lambda before=paused_until: queue.paused_until != before, 10)
            assert f"life-{number + 1}" not in receiver.ids
        assert pauses == [5, 10, *[15] * 7]


def test_after_an_outage_all_follows_the_first_success_and_each_message_has_its_attempts() -> None:
    """A receiver is away for half an hour, while an event comes each second."""

    def answer(*_: object) -> AttemptResult:
        return REFUSED if clock.now < 2800 else DELIVERED

    with running(answer) as (queue, receiver, clock):
        for second in range(1800 + 600):
            pass_to(queue, clock, 1000.0 + second)
            if second < 1800:
                queue.offer([message(second)])
            offered = min(second + 1, 1800)
            wait_for("what is due", lambda offered=offered: rests(queue, offered), 10)
    times = [at for at, _ in receiver.attempts]
    assert max(later - earlier for earlier, later in pairwise(times) if earlier <= 2800) <= 15
    back = next(at for at in times if at >= 2800)
    assert back <= 2815
    attempts = dict[str, list[float]]()
    for at, sent in receiver.attempts:
        attempts.setdefault(sent.id, []).append(at)
    assert list(attempts) == [message(number).id for number in range(1800)]
    assert max(first for first, *_ in attempts.values()) == back
    for times in attempts.values():
        assert [later - earlier for earlier, later in pairwise(times)] == [5, 30, 300][: len(times) - 1]
        # None after a success, and four for what never had one.
        assert [at >= 2800 for at in times[:-1]] == [False] * (len(times) - 1)
        assert times[-1] >= 2800 or len(times) == 4
    skipped = sum(times[-1] < 2800 for times in attempts.values())
    counts = queue.counts
    assert (counts.delivered, counts.skipped, counts.dropped) == (1800 - skipped, skipped, 0)
    # One each 15 s, but for those with a retry after the outage.
    assert 0 < skipped <= 1800 / 15


def test_a_failed_retry_neither_ends_nor_lengthens_a_pause() -> None:
    with running(always(REFUSED)) as (queue, receiver, clock):
        queue.offer(messages(1, 3))
        settled(queue, 3)
        before = queue.paused_until
        pass_to(queue, clock, 1005)
        settled(queue, 6)
        assert receiver.ids == ["life-1", "life-2", "life-3"] * 2
        assert queue.paused_until == before == clock.wall()


def test_a_probe_that_succeeds_ends_the_pause_and_the_next_is_as_short_as_the_first() -> None:
    with running(failing("life-1", "life-2", "life-3")) as (queue, _, clock):
        queue.offer(messages(1, 50))
        settled(queue, 3)
        assert queue.paused_until == clock.wall() + 5
        pass_to(queue, clock, 1005)
        wait_for("the others", lambda: queue.counts.delivered == 47, 10)
        assert queue.paused_until is None
        queue.offer(messages(1, 3))
        wait_for("another pause", lambda: queue.paused_until, 10)
        assert queue.paused_until == clock.wall() + 5


def test_a_test_is_sent_in_a_pause_and_ends_it_when_it_succeeds() -> None:
    with running(failing("life-1", "life-2", "life-3")) as (queue, receiver, _):
        queue.offer(messages(1, 9))
        settled(queue, 3)
        queue.test(message(100))
        wait_for("the others", lambda: queue.counts.delivered == 7, 10)
        assert receiver.ids[3:] == ["life-100", *(sent.id for sent in messages(4, 9))]
        assert {at for at, _ in receiver.attempts} == {1000.0}


# Queues that share a backlog


def test_queues_that_share_a_backlog_get_what_came_since_they_were_there() -> None:
    clock = SteppedClock()
    backlog = Backlog(clock)
    receivers = [Receiver(clock, always(DELIVERED)) for _ in range(2)]
    queues = []
    for receiver, sent in zip(receivers, (messages(1, 5), messages(6, 9)), strict=True):
        queues.append(DeliveryQueue(receiver, backlog, clock, clock.wall))
        backlog.offer(sent)
    assert [len(queue) for queue in queues] == [9, 4]
    threads = [threading.Thread(target=queue.run) for queue in queues]
    for thread in threads:
        thread.start()
    wait_for("all", lambda: [len(one.attempts) for one in receivers] == [9, 4], 10)
    assert receivers[1].ids == [sent.id for sent in messages(6, 9)]
    for queue, thread in zip(queues, threads, strict=True):
        queue.close()
        thread.join(10)


class Watched(WebhookMessage):
    """One that tells when it is gone."""


def test_a_backlog_lets_go_of_what_nobody_waits_for() -> None:
    clock = SteppedClock()
    backlog = Backlog(clock)
    sent = [Watched(f"life-{number}", "session.up", b"") for number in range(30_000)]
    kept = [weakref.ref(one) for one in sent]
    queue = DeliveryQueue(Receiver(clock, always(DELIVERED)), backlog, clock, clock.wall)
    queue._quick_until = clock.now
    backlog.offer(sent)
    del sent
    assert len(queue) == MAX_WAITING_MESSAGES
    assert MAX_WAITING_MESSAGES <= sum(one() is not None for one in kept) <= MAX_WAITING_MESSAGES + 1000
    queue.close()
    assert not any(one() for one in kept)

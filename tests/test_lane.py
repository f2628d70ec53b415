"""A webhook's lane, with a clock and a receiver that do what the test says."""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from gateway_api.hub.attempt import Outcome
from gateway_api.hub.lane import LOGGED, MOST_WAITING, MOST_WAITING_IN_A_BURST, Delivery, Lane
from gateway_api.hub.message import Message
from tests.stack import wait_for

DELIVERED = Outcome(200, None, 0.01)
REFUSED = Outcome(None, "the connection was refused", 0.01)

#: What comes of an attempt to deliver this message: the first, the second and so on.
Answer = Callable[[Message, int], Outcome]


class Clock:
    """Monotonic seconds that pass when the test says so."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now

    def wall(self) -> float:
        return self.now + 1_700_000_000


class Receiver:
    """Remembers what it was sent, and when. While `gate` is closed an attempt hangs."""

    def __init__(self, clock: Clock, answer: Answer) -> None:
        self._clock = clock
        self._answer = answer
        self.attempts: list[tuple[float, Message]] = []
        self._times = Counter[str]()
        self.takes = 0.0
        self.gate = threading.Event()
        self.gate.set()

    def __call__(self, message: Message) -> Outcome:
        self.attempts.append((self._clock.now, message))
        self._times[message.id] += 1
        assert self.gate.wait(20)
        self._clock.now += self.takes
        return self._answer(message, self._times[message.id])

    @property
    def ids(self) -> list[str]:
        return [message.id for _, message in self.attempts]


def message(number: int) -> Message:
    return Message(f"life-{number}", "session.up", b'{"number":%d}' % number)


def messages(first: int, last: int) -> list[Message]:
    return [message(number) for number in range(first, last + 1)]


def always(outcome: Outcome) -> Answer:
    return lambda _, __: outcome


def failing(*ids: str) -> Answer:
    """These fail at each attempt."""
    return lambda sent, _: REFUSED if sent.id in ids else DELIVERED


@contextmanager
def running(answer: Answer) -> Iterator[tuple[Lane, Receiver, Clock]]:
    """A lane at work, until the end of the block."""
    clock = Clock()
    receiver = Receiver(clock, answer)
    lane = Lane(receiver, clock, clock.wall)
    thread = threading.Thread(target=lane.run)
    thread.start()
    try:
        yield lane, receiver, clock
    finally:
        receiver.gate.set()
        lane.close()
        thread.join(10)
        assert not thread.is_alive()


def pass_to(lane: Lane, clock: Clock, now: float) -> None:
    """Lets time pass, and has the lane look at the clock."""
    clock.now = now
    lane.offer([])


def settled(lane: Lane, attempts: int) -> list[Delivery]:
    """The log when so many attempts have ended, the oldest first."""
    wait_for(f"{attempts} attempts", lambda: len(lane.log()) >= attempts, 10)
    return lane.log()[::-1]


def hang(lane: Lane, receiver: Receiver, clock: Clock) -> None:
    """One failure, then an attempt that doesn't end: the lane's receiver isn't one that takes."""
    lane.offer([message(0)])
    settled(lane, 1)
    receiver.gate.clear()
    lane.offer([message(1)])
    wait_for("the attempt that hangs", lambda: receiver.ids[-1] == message(1).id, 10)
    clock.now += 15


def test_first_attempts_start_in_the_order_of_the_messages() -> None:
    with running(always(DELIVERED)) as (lane, receiver, _):
        lane.offer(messages(1, 50))
        lane.offer(messages(51, 100))
        settled(lane, 100)
        assert receiver.ids == [sent.id for sent in messages(1, 100)]


def test_first_attempts_start_in_order_where_every_one_fails() -> None:
    with running(always(REFUSED)) as (lane, receiver, _):
        lane.offer(messages(1, 100))
        settled(lane, 100)
        assert receiver.ids == [sent.id for sent in messages(1, 100)]


@pytest.mark.parametrize("takes", [0.0, 7.5])
def test_retries_come_5_30_and_300_seconds_after_the_end_of_the_failed_attempt(takes: float) -> None:
    with running(failing("life-1")) as (lane, receiver, clock):
        receiver.takes = takes
        lane.offer([message(1)])
        settled(lane, 1)
        expected = [1000.0]
        for number, wait in enumerate((5.0, 30.0, 300.0), 1):
            due = expected[-1] + takes + wait
            # It is sent when it comes, so what was due before it has been sent before it.
            receiver.takes = 0.0
            clock.now = due - 0.001
            lane.offer([message(100 + number)])
            settled(lane, 2 * number)
            assert receiver.ids.count("life-1") == number
            receiver.takes = takes
            pass_to(lane, clock, due)
            settled(lane, 2 * number + 1)
            expected.append(due)
        assert [at for at, sent in receiver.attempts if sent.id == "life-1"] == expected


def test_a_message_is_tried_four_times_and_then_skipped() -> None:
    with running(failing("life-1")) as (lane, receiver, clock):
        lane.offer([message(1)])
        for attempt in range(1, 5):
            settled(lane, attempt)
            pass_to(lane, clock, clock.now + 300)
        pass_to(lane, clock, clock.now + 1_000_000)
        lane.offer([message(2)])
        log = settled(lane, 5)
        assert receiver.ids == ["life-1"] * 4 + ["life-2"]
        assert [(entry.attempt, entry.result) for entry in log] == [
            *((1, "failed"), (2, "failed"), (3, "failed"), (4, "skipped"), (1, "delivered"))
        ]
        assert vars(lane.counts) == {"delivered": 1, "failed": 4, "skipped": 1, "dropped": 0}


def test_a_retry_is_the_same_message() -> None:
    with running(failing("life-1")) as (lane, receiver, clock):
        lane.offer([message(1)])
        for attempt in range(1, 5):
            settled(lane, attempt)
            pass_to(lane, clock, clock.now + 300)
        assert {(sent.id, sent.body) for _, sent in receiver.attempts} == {("life-1", message(1).body)}


def test_a_message_that_succeeds_at_last_is_not_sent_again() -> None:
    with running(lambda _, attempt: DELIVERED if attempt == 3 else REFUSED) as (lane, receiver, clock):
        lane.offer([message(1)])
        for attempt in range(1, 4):
            settled(lane, attempt)
            pass_to(lane, clock, clock.now + 300)
        lane.offer([message(2)])
        settled(lane, 4)
        assert receiver.ids == ["life-1"] * 3 + ["life-2"]
        assert len(lane) == 1


def test_a_message_that_waits_for_its_retry_holds_up_none_after_it() -> None:
    with running(failing("life-1")) as (lane, receiver, clock):
        lane.offer(messages(1, 3))
        settled(lane, 3)
        assert receiver.ids == ["life-1", "life-2", "life-3"]
        assert {at for at, _ in receiver.attempts} == {1000.0}
        pass_to(lane, clock, 1005.0)
        settled(lane, 4)
        assert receiver.ids[3:] == ["life-1"]


def test_a_failed_attempt_is_logged_with_its_times_and_its_reason() -> None:
    with running(always(Outcome(503, None, 1.5))) as (lane, receiver, _):
        receiver.takes = 1.5
        lane.offer([message(1)])
        (entry,) = settled(lane, 1)
        assert entry == Delivery(
            message_id="life-1",
            event="session.up",
            attempt=1,
            result="failed",
            status=503,
            error=None,
            started_at=1_700_001_000.0,
            duration=1.5,
            next_attempt_at=1_700_001_000.0 + 1.5 + 5,
        )


@pytest.mark.parametrize("outcome", [DELIVERED, Outcome(204, None, 0.3)])
def test_what_was_delivered_is_logged_without_a_next_attempt(outcome: Outcome) -> None:
    with running(always(outcome)) as (lane, _, __):
        lane.offer([message(1)])
        (entry,) = settled(lane, 1)
        assert (entry.result, entry.status, entry.next_attempt_at) == ("delivered", outcome.status, None)


def test_what_is_skipped_is_logged_without_a_next_attempt() -> None:
    with running(always(REFUSED)) as (lane, _, clock):
        lane.offer([message(1)])
        for attempt in range(1, 5):
            settled(lane, attempt)
            pass_to(lane, clock, clock.now + 300)
        assert [entry.next_attempt_at is None for entry in lane.log()] == [True, False, False, False]


def test_the_log_keeps_100_entries_with_the_newest_first() -> None:
    with running(always(DELIVERED)) as (lane, _, __):
        lane.offer(messages(1, 250))
        wait_for("all of them", lambda: lane.counts.delivered == 250, 10)
        assert LOGGED == 100
        assert [entry.message_id for entry in lane.log()] == [sent.id for sent in messages(151, 250)[::-1]]


def test_closing_ends_a_lane_that_waits_for_a_retry() -> None:
    with running(always(REFUSED)) as (lane, receiver, clock):
        lane.offer([message(1)])
        settled(lane, 1)
        lane.close()
        assert len(lane) == 0
        pass_to(lane, clock, clock.now + 1000)
    assert receiver.ids == ["life-1"]


def test_closing_ends_a_lane_that_has_nothing_to_do() -> None:
    with running(always(DELIVERED)) as (lane, receiver, _):
        lane.close()
    assert receiver.ids == []


def test_an_attempt_under_way_when_the_lane_closes_is_its_last() -> None:
    with running(always(REFUSED)) as (lane, receiver, clock):
        receiver.gate.clear()
        lane.offer(messages(1, 3))
        wait_for("the first attempt", lambda: receiver.ids, 10)
        lane.close()
        receiver.gate.set()
        pass_to(lane, clock, clock.now + 1000)
    assert receiver.ids == ["life-1"]
    assert len(lane) == 0


def test_a_lane_that_was_closed_takes_nothing_any_more() -> None:
    with running(always(DELIVERED)) as (lane, receiver, _):
        lane.close()
        lane.offer([message(1)])
    assert receiver.ids == []


def test_10000_messages_wait_for_a_receiver_that_does_not_take_them() -> None:
    with running(always(REFUSED)) as (lane, receiver, clock):
        hang(lane, receiver, clock)
        lane.offer(messages(2, 10_000))
        assert (len(lane), lane.counts.dropped) == (MOST_WAITING, 0) == (10_000, 0)


def test_beyond_10000_the_oldest_messages_are_dropped_and_counted() -> None:
    with running(failing("life-0", "life-1")) as (lane, receiver, clock):
        hang(lane, receiver, clock)
        lane.offer(messages(2, 10_100))
        assert (len(lane), lane.counts.dropped) == (10_000, 100)
        receiver.gate.set()
        # Message 0 waited for its retry, and was the oldest of all.
        wait_for("all that waited", lambda: lane.counts.delivered == 10_000, 20)
        assert receiver.ids[2:] == [sent.id for sent in messages(101, 10_100)]


def test_what_one_offer_drops_is_one_entry_of_the_log_that_says_how_many() -> None:
    with running(always(REFUSED)) as (lane, receiver, clock):
        hang(lane, receiver, clock)
        lane.offer(messages(2, 10_100))
        newest, *others = lane.log()
        assert newest == Delivery("life-0", "session.up", 1, "dropped", dropped=100)
        assert [entry.result for entry in others] == ["failed"]


def test_the_numbers_in_the_log_add_up_to_what_was_dropped() -> None:
    with running(always(REFUSED)) as (lane, receiver, clock):
        hang(lane, receiver, clock)
        lane.offer(messages(2, 10_000))
        for number in range(10_001, 10_031):
            lane.offer(messages(2 * number, 2 * number + 1))
        assert lane.counts.dropped == 60
        assert sum(entry.dropped for entry in lane.log()) == 60


def test_room_in_a_full_lane_costs_less_than_it_takes_to_send() -> None:
    with running(always(REFUSED)) as (lane, receiver, clock):
        hang(lane, receiver, clock)
        lane.offer(messages(2, 10_000))
        more = messages(10_001, 10_300)
        began = time.thread_time()
        for one in more:
            lane.offer([one])
        # A hundred dead receivers are offered twenty batches a second by the thread that feeds the live.
        assert (time.thread_time() - began) / len(more) < 0.0003


def test_100000_messages_wait_for_a_receiver_that_takes_quickly() -> None:
    with running(always(DELIVERED)) as (lane, receiver, _):
        lane.offer([message(0)])
        settled(lane, 1)
        receiver.gate.clear()
        lane.offer([message(1)])
        wait_for("the attempt under way", lambda: len(receiver.attempts) == 2, 10)
        lane.offer(messages(2, 100_001))
        assert (len(lane), lane.counts.dropped) == (MOST_WAITING_IN_A_BURST, 0) == (100_000, 0)
        lane.offer(messages(100_002, 100_003))
        assert (len(lane), lane.counts.dropped) == (100_000, 2)
        assert lane.log()[0] == Delivery("life-2", "session.up", 0, "dropped", dropped=2)


def test_a_receiver_whose_attempt_takes_15_seconds_is_none_that_takes_quickly() -> None:
    with running(always(DELIVERED)) as (lane, receiver, clock):
        receiver.gate.clear()
        lane.offer([message(1)])
        wait_for("the attempt under way", lambda: receiver.ids, 10)
        lane.offer(messages(2, 20_001))
        pass_to(lane, clock, clock.now + 14.9)
        assert (len(lane), lane.counts.dropped) == (20_000, 0)
        pass_to(lane, clock, clock.now + 0.2)
        assert (len(lane), lane.counts.dropped) == (10_000, 10_000)


@pytest.mark.parametrize("outcome", [REFUSED, Outcome(500, None, 0.01), Outcome(200, None, 0.5)])
@pytest.mark.parametrize(("seconds", "drops"), [(14.9, False), (15.1, True)])
def test_15_seconds_of_attempts_that_fail_or_are_slow_end_the_room_for_a_burst(
    outcome: Outcome, seconds: float, drops: bool
) -> None:
    with running(always(outcome)) as (lane, receiver, clock):
        lane.offer(messages(1, 100))
        settled(lane, 100)
        receiver.gate.clear()
        lane.offer([message(0)])
        wait_for("the attempt under way", lambda: len(receiver.attempts) == 101, 10)
        clock.now += seconds
        lane.offer(messages(101, 20_100))
        assert (lane.counts.dropped > 0) == drops


def test_one_quick_success_makes_room_for_a_burst_again() -> None:
    with running(lambda sent, _: DELIVERED if sent.id == "life-2" else REFUSED) as (lane, receiver, clock):
        lane.offer([message(1)])
        settled(lane, 1)
        clock.now += 4
        receiver.gate.clear()
        lane.offer([message(2), message(3)])
        wait_for("the attempt under way", lambda: len(receiver.attempts) == 2, 10)
        receiver.gate.set()
        settled(lane, 3)
        clock.now += 0.9
        receiver.gate.clear()
        lane.offer([message(4)])
        wait_for("the attempt under way", lambda: len(receiver.attempts) == 4, 10)
        # 19 seconds after the first failure, and 14 after the one that followed the success.
        clock.now += 14
        lane.offer(messages(5, 20_004))
        assert lane.counts.dropped == 0

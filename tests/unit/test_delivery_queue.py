"""A webhook's lane, with a clock and a receiver that do what the test says."""

import threading
import time
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

import pytest

from gateway_api.hub.attempt import Outcome
from gateway_api.hub.backlog import Backlog
from gateway_api.hub.deliveries import LOGGED
from gateway_api.hub.delivery_queue import MOST_WAITING, MOST_WAITING_IN_A_BURST, Lane
from gateway_api.hub.message import Message
from gateway_api.wire.hub import Delivery
from tests.support.clocks import SteppedClock
from tests.support.stack import wait_for

DELIVERED = Outcome(200, None, 0.01)
REFUSED = Outcome(None, "the connection was refused", 0.01)

#: What comes of an attempt to deliver this message: the first, the second and so on.
Answer = Callable[[Message, int], Outcome]


class Receiver:
    """Remembers what it was sent, and when. While `gate` is closed an attempt hangs."""

    def __init__(self, clock: SteppedClock, answer: Answer) -> None:
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


class Alone(Lane):
    """A lane with a backlog of its own."""

    def __init__(self, receiver: Receiver, clock: SteppedClock) -> None:
        self.backlog = Backlog(clock)
        super().__init__(receiver, self.backlog, clock, clock.wall)

    def offer(self, messages: Iterable[Message]) -> None:
        self.backlog.offer(messages)

    def look(self) -> None:
        """Has it look at the clock."""
        with self.backlog.lock:
            self.wake()


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
def running(answer: Answer) -> Iterator[tuple[Alone, Receiver, SteppedClock]]:
    """A lane at work, until the end of the block."""
    clock = SteppedClock()
    receiver = Receiver(clock, answer)
    lane = Alone(receiver, clock)
    thread = threading.Thread(target=lane.run)
    thread.start()
    try:
        yield lane, receiver, clock
    finally:
        receiver.gate.set()
        lane.close()
        thread.join(10)
        assert not thread.is_alive()


def pass_to(lane: Alone, clock: SteppedClock, now: float) -> None:
    """Lets time pass, and has the lane look at the clock."""
    clock.now = now
    lane.look()


def settled(lane: Lane, attempts: int) -> list[Delivery]:
    """The log when so many attempts have ended, the oldest first."""
    wait_for(f"{attempts} attempts", lambda: len(lane.log()) >= attempts, 10)
    return lane.log()[::-1]


def rests(lane: Alone, offered: int) -> bool:
    """Whether nothing is due, and no attempt under way, of so many messages that were offered."""
    with lane.backlog.lock:
        first = lane._first()
        due = first is not None and first.due <= lane._clock()
    counts = lane.counts
    return not due and len(lane) + counts.delivered + counts.skipped + counts.dropped == offered


def hang(lane: Alone, receiver: Receiver, clock: SteppedClock) -> None:
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
    with running(always(REFUSED)) as (lane, receiver, clock):
        lane.offer(messages(1, 9))
        settled(lane, 3)
        # Later than any retry, so that what is sent is sent for the first time, or was long due.
        for attempts in range(4, 28):
            pass_to(lane, clock, clock.now + 400)
            settled(lane, attempts)
        firsts = list(dict.fromkeys(receiver.ids))
        assert firsts == [sent.id for sent in messages(1, len(firsts))]
        assert len(firsts) > 5


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
    with running(failing("life-0")) as (lane, receiver, clock):
        hang(lane, receiver, clock)
        lane.offer(messages(2, 10_100))
        assert (len(lane), lane.counts.dropped) == (10_000, 100)
        receiver.gate.set()
        wait_for("all that waited", lambda: lane.counts.delivered == 10_000, 20)
        # Message 0 was attempted before, and its retry is due.
        assert receiver.ids[2:] == ["life-0", *(sent.id for sent in messages(102, 10_100))]


def test_what_one_offer_drops_is_one_entry_of_the_log_that_says_how_many() -> None:
    with running(always(REFUSED)) as (lane, receiver, clock):
        hang(lane, receiver, clock)
        lane.offer(messages(2, 10_100))
        newest, *others = lane.log()
        assert newest == Delivery("life-2", "session.up", 0, "dropped", dropped=100)
        assert [entry.result for entry in others] == ["failed"]


def test_what_is_dropped_in_a_row_is_one_entry_of_the_log_that_grows() -> None:
    with running(always(REFUSED)) as (lane, receiver, clock):
        hang(lane, receiver, clock)
        lane.offer(messages(2, 10_000))
        for number in range(10_001, 10_031):
            lane.offer(messages(2 * number, 2 * number + 1))
        assert lane.counts.dropped == 60
        assert [entry.dropped for entry in lane.log()] == [60, 0]


def test_room_in_a_full_lane_costs_less_than_it_takes_to_send() -> None:
    with running(always(REFUSED)) as (lane, receiver, clock):
        hang(lane, receiver, clock)
        lane.offer(messages(2, 10_000))
        assert (len(lane), lane.counts.dropped) == (MOST_WAITING, 0)
        more = messages(10_001, 12_000)
        began = time.thread_time()
        for one in more:
            lane.offer([one])
        dropped, spent = lane.counts.dropped, time.thread_time() - began
        assert dropped == len(more)
        # A hundred dead receivers are offered twenty batches a second by the thread that feeds the live.
        assert spent / len(more) < 0.0003


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
        lane.offer(messages(1, 2))
        settled(lane, 2)
        receiver.gate.clear()
        lane.offer([message(0)])
        wait_for("the attempt under way", lambda: len(receiver.attempts) == 3, 10)
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


def test_messages_that_were_attempted_keep_their_attempts_while_a_lane_is_full() -> None:
    with running(always(REFUSED)) as (lane, receiver, clock):
        lane.offer(messages(1, 3))
        settled(lane, 3)
        clock.now += 20
        for first in range(4, 40_004, 1000):
            lane.offer(messages(first, first + 999))
        assert len(lane) == MOST_WAITING
        for _ in range(4):
            pass_to(lane, clock, clock.now + 400)
            wait_for("what is due", lambda: rests(lane, 40_003), 10)
        assert [receiver.ids.count(sent.id) for sent in messages(1, 3)] == [4, 4, 4]


def test_what_waits_for_a_retry_is_dropped_where_it_is_more_than_what_is_new() -> None:
    """A receiver that fails now and then, but never often enough in a row for a pause."""

    def answer(sent: Message, _: int) -> Outcome:
        return Outcome(200, None, 0.5) if int(sent.id[5:]) % 3 == 0 else REFUSED

    with running(answer) as (lane, receiver, clock):
        lane.offer(messages(1, 18_000))
        wait_for("all of them", lambda: lane.counts.failed == 12_000, 20)
        receiver.gate.clear()
        clock.now += 15.1
        lane.offer([message(18_001)])
        wait_for("the first retry", lambda: len(receiver.attempts) == 18_001, 10)
        assert (len(lane), lane.counts.dropped) == (9_999, 2_001)
        assert lane.log()[0].message_id in ("life-1", "life-2")
        assert lane.log()[0].attempt == 1
        # The new one is still there, and not among those that made room.
        assert lane.place == 18_000


# Receivers that fail in a row


def test_three_failures_in_a_row_pause_the_first_attempts_for_5_seconds() -> None:
    with running(always(REFUSED)) as (lane, receiver, clock):
        lane.offer(messages(1, 100))
        settled(lane, 3)
        # What is due is looked for before a test, which goes at once.
        clock.now = 1004.999
        lane.test(message(0))
        settled(lane, 4)
        assert receiver.ids == ["life-1", "life-2", "life-3", "life-0"]
        assert len(lane) == 101


def test_two_failures_in_a_row_pause_nothing() -> None:
    with running(lambda sent, _: DELIVERED if int(sent.id[5:]) % 3 == 0 else REFUSED) as (lane, receiver, _):
        lane.offer(messages(1, 99))
        settled(lane, 99)
        assert receiver.ids == [sent.id for sent in messages(1, 99)]
        assert lane.paused_until is None


def test_a_pause_ends_with_one_message_whose_failure_doubles_it_up_to_5_minutes() -> None:
    with running(always(REFUSED)) as (lane, receiver, clock):
        lane.offer(messages(1, 100))
        settled(lane, 3)
        pauses = []
        for number in range(4, 13):
            paused_until = lane.paused_until
            assert paused_until is not None
            pauses.append(paused_until - clock.wall())
            clock.now += pauses[-1]
            # One retry after the other is due meanwhile; none of them has to do with the pause.
            lane.look()
            wait_for("the probe", lambda number=number: f"life-{number}" in receiver.ids, 10)
            wait_for("its end", lambda before=paused_until: lane.paused_until != before, 10)
            assert f"life-{number + 1}" not in receiver.ids
        assert pauses == [5, 10, 20, 40, 80, 160, 300, 300, 300]


def test_the_retries_of_what_was_attempted_keep_their_times_in_a_pause() -> None:
    with running(always(REFUSED)) as (lane, receiver, clock):
        lane.offer(messages(1, 100))
        settled(lane, 3)
        for step in range(1, 341 * 4):
            clock.now = 1000 + step / 4
            lane.look()
            wait_for("what is due", lambda: rests(lane, 100), 10)
        for sent in messages(1, 3):
            times = [at for at, one in receiver.attempts if one.id == sent.id]
            assert times == [1000, 1005, 1035, 1335]
        # The first of them that was a probe: its retries count from its own attempt.
        assert [at for at, one in receiver.attempts if one.id == "life-4"][:3] == [1005, 1010, 1040]


def test_a_failed_retry_neither_ends_nor_lengthens_a_pause() -> None:
    with running(always(REFUSED)) as (lane, receiver, clock):
        lane.offer(messages(1, 3))
        settled(lane, 3)
        before = lane.paused_until
        pass_to(lane, clock, 1005)
        settled(lane, 6)
        assert receiver.ids == ["life-1", "life-2", "life-3"] * 2
        assert lane.paused_until == before == clock.wall()


def test_a_probe_that_succeeds_opens_the_lane() -> None:
    with running(lambda sent, _: REFUSED if int(sent.id[5:]) <= 3 else DELIVERED) as (lane, receiver, clock):
        lane.offer(messages(1, 50))
        settled(lane, 3)
        assert lane.paused_until == clock.wall() + 5
        pass_to(lane, clock, 1005)
        wait_for("the others", lambda: lane.counts.delivered == 47, 10)
        assert lane.paused_until is None
        firsts = [id for id in receiver.ids if int(id[5:]) > 3]
        assert firsts == [sent.id for sent in messages(4, 50)]
        # The next pause is as short as the first.
        lane.offer(messages(1, 3))
        wait_for("another pause", lambda: lane.paused_until, 10)
        assert lane.paused_until == clock.wall() + 5


def test_a_retry_that_succeeds_opens_the_lane() -> None:
    def answer(sent: Message, attempt: int) -> Outcome:
        number = int(sent.id[5:])
        return DELIVERED if number > 4 or (number, attempt) == (4, 2) else REFUSED

    with running(answer) as (lane, receiver, clock):
        lane.offer(messages(1, 10))
        settled(lane, 3)
        pass_to(lane, clock, 1005)
        settled(lane, 7)
        assert lane.paused_until == clock.wall() + 10
        # The probe's own retry comes before the next probe.
        pass_to(lane, clock, 1010)
        wait_for("the others", lambda: lane.counts.delivered == 7, 10)
        assert receiver.ids[7:] == ["life-4", *(sent.id for sent in messages(5, 10))]
        assert lane.paused_until is None


def test_a_message_that_comes_after_a_pause_is_the_probe() -> None:
    with running(always(REFUSED)) as (lane, receiver, clock):
        lane.offer(messages(1, 3))
        settled(lane, 3)
        pass_to(lane, clock, 1006)
        settled(lane, 6)
        lane.offer(messages(4, 9))
        settled(lane, 7)
        assert receiver.ids[6:] == ["life-4"]
        assert lane.paused_until == clock.wall() + 10


def test_a_test_is_sent_in_a_pause_and_opens_the_lane_when_it_succeeds() -> None:
    with running(failing("life-1", "life-2", "life-3")) as (lane, receiver, _):
        lane.offer(messages(1, 9))
        settled(lane, 3)
        lane.test(message(100))
        wait_for("the others", lambda: lane.counts.delivered == 7, 10)
        assert receiver.ids[3:] == ["life-100", *(sent.id for sent in messages(4, 9))]
        assert {at for at, _ in receiver.attempts} == {1000.0}


def test_a_test_that_fails_lengthens_no_pause_and_is_tried_again() -> None:
    with running(always(REFUSED)) as (lane, receiver, clock):
        lane.offer(messages(1, 9))
        settled(lane, 3)
        before = lane.paused_until
        clock.now += 2
        lane.test(message(100))
        settled(lane, 4)
        assert lane.paused_until == before
        pass_to(lane, clock, 1007)
        wait_for("its retry", lambda: receiver.ids.count("life-100") == 2, 10)


def test_the_log_says_which_failure_paused_the_receiver_and_until_when() -> None:
    with running(always(REFUSED)) as (lane, _, clock):
        lane.offer(messages(1, 9))
        log = settled(lane, 3)
        assert [entry.paused_until for entry in log] == [None, None, clock.wall() + 5]
        assert {entry.next_attempt_at for entry in log} == {clock.wall() + 5}


def test_what_a_paused_lane_drops_is_one_entry_after_the_failure_that_paused_it() -> None:
    with running(always(REFUSED)) as (lane, _, clock):
        lane.offer(messages(1, 3))
        settled(lane, 3)
        clock.now += 4
        lane._takes_until = clock.now
        for number in range(4, 12_004):
            lane.offer([message(number)])
        dropped, paused, *_ = lane.log()
        assert (dropped.result, dropped.dropped) == ("dropped", lane.counts.dropped) == ("dropped", 2003)
        assert (paused.result, paused.paused_until) == ("failed", clock.wall() + 1)


# Lanes that share a backlog


def test_lanes_that_share_a_backlog_get_what_came_since_they_were_there() -> None:
    clock = SteppedClock()
    backlog = Backlog(clock)
    receivers = [Receiver(clock, always(DELIVERED)) for _ in range(2)]
    lanes = [Lane(receivers[0], backlog, clock, clock.wall)]
    backlog.offer(messages(1, 5))
    lanes.append(Lane(receivers[1], backlog, clock, clock.wall))
    backlog.offer(messages(6, 9))
    assert [len(lane) for lane in lanes] == [9, 4]
    threads = [threading.Thread(target=lane.run) for lane in lanes]
    for thread in threads:
        thread.start()
    wait_for("all", lambda: [len(one.attempts) for one in receivers] == [9, 4], 10)
    assert receivers[0].ids == [sent.id for sent in messages(1, 9)]
    assert receivers[1].ids == [sent.id for sent in messages(6, 9)]
    for lane, thread in zip(lanes, threads, strict=True):
        lane.close()
        thread.join(10)


class Watched(Message):
    """One that tells when it is gone."""


def test_a_backlog_lets_go_of_what_nobody_waits_for() -> None:
    clock = SteppedClock()
    backlog = Backlog(clock)
    sent = [Watched(f"life-{number}", "session.up", b"") for number in range(30_000)]
    kept = [weakref.ref(one) for one in sent]
    lane = Lane(Receiver(clock, always(DELIVERED)), backlog, clock, clock.wall)
    lane._takes_until = clock.now
    backlog.offer(sent)
    del sent
    assert len(lane) == MOST_WAITING
    assert MOST_WAITING <= sum(one() is not None for one in kept) <= MOST_WAITING + 1000
    lane.close()
    assert not any(one() for one in kept)


def test_a_message_for_many_dead_receivers_costs_hardly_more_than_for_one() -> None:
    def seconds(lanes: int) -> float:
        clock = SteppedClock()
        backlog = Backlog(clock)
        held = [Lane(Receiver(clock, always(REFUSED)), backlog, clock, clock.wall) for _ in range(lanes)]
        began = time.thread_time()
        for first in range(0, 50_000, 50):
            backlog.offer(sent[first : first + 50])
        spent = time.thread_time() - began
        assert all(len(lane) for lane in held)
        return spent

    sent = messages(1, 50_000)
    assert min(seconds(99) for _ in range(3)) < 5 * min(seconds(1) for _ in range(3))

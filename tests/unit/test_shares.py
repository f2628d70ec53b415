"""Whose turn it is in a worker, and for how long."""

from collections import Counter
from collections.abc import Callable, Iterator

import gevent
import gevent.event
import gevent.socket
import greenlet
import pytest

from gateway_api.base.shares import TURN, Shares, gather, is_short, pause
from tests.support.clocks import SteppedClock


@pytest.fixture
def clock() -> SteppedClock:
    """It stands still but for the work of a test."""
    return SteppedClock()


@pytest.fixture
def shares(clock: SteppedClock) -> Iterator[Shares]:
    yield Shares(clock)
    greenlet.settrace(None)


def kept_alive(shares: Shares, turn: Callable[[], bool]) -> gevent.Greenlet:
    """A connection whose next request is there already. `turn` is False for the last one."""

    def run() -> None:
        with shares.share() as share:
            while turn():
                share.wait()

    return gevent.spawn(run)


def renewed(shares: Shares, turn: Callable[[], bool]) -> gevent.Greenlet:
    """The same with a new connection for each request."""

    def run() -> None:
        left = True
        while left:
            with shares.share():
                left = turn()

    return gevent.spawn(run)


def work(clock: SteppedClock, seconds: float, name: str, done: Counter[str]) -> Callable[[], bool]:
    """Turns that take so long, until all together have taken ten seconds."""

    def turn() -> bool:
        clock.now += seconds
        done[name] += 1
        return clock.now < began + 10

    began = clock.now
    return turn


def test_what_others_have_sent_is_seen_before_each_turn(shares: Shares) -> None:
    ours, theirs = gevent.socket.socketpair()
    turns, seen_at = 0, []

    def turn() -> bool:
        nonlocal turns
        turns += 1
        if turns == 20:
            theirs.sendall(b"x")
        return turns < 40

    def other() -> None:
        ours.recv(1)
        seen_at.append(turns)

    with ours, theirs:
        gevent.joinall([gevent.spawn(other), kept_alive(shares, turn)], raise_error=True)
    assert seen_at[0] <= 21


def test_connections_whose_requests_take_longer_get_fewer_turns(shares: Shares, clock: SteppedClock) -> None:
    done: Counter[str] = Counter()
    all_of_them = [
        *(kept_alive(shares, work(clock, 0.08, "long", done)) for _ in range(4)),
        *(kept_alive(shares, work(clock, 0.01, "short", done)) for _ in range(4)),
    ]
    gevent.joinall(all_of_them, raise_error=True)
    assert done["short"] == pytest.approx(8 * done["long"], rel=0.15)


@pytest.mark.parametrize("seconds", [0.02, 0.1])
def test_a_new_connection_for_each_request_gets_no_larger_share(
    shares: Shares, clock: SteppedClock, seconds: float
) -> None:
    done: Counter[str] = Counter()
    all_of_them = [
        *(renewed(shares, work(clock, seconds, "renewed", done)) for _ in range(4)),
        *(kept_alive(shares, work(clock, 0.02, "kept", done)) for _ in range(4)),
    ]
    gevent.joinall(all_of_them, raise_error=True)
    assert done["kept"] * 0.02 == pytest.approx(done["renewed"] * seconds, rel=0.25)


def test_a_connection_that_was_idle_gets_no_turns_for_that(shares: Shares, clock: SteppedClock) -> None:
    done: Counter[str] = Counter()
    busy = work(clock, 0.01, "busy", done)
    back_at = clock.now + 5

    def late() -> None:
        with shares.share() as share:
            while clock.now < back_at:
                gevent.sleep(1e-9)
            before = done["busy"]
            for _ in range(100):
                share.wait()
                clock.now += 0.01
            met.append(done["busy"] - before)

    met: list[int] = []
    gevent.joinall([gevent.spawn(late), kept_alive(shares, busy)], raise_error=True)
    assert met[0] == pytest.approx(100, abs=10)


def test_time_of_what_has_no_share_is_no_connections_own(shares: Shares, clock: SteppedClock) -> None:
    used: list[float] = []

    def works() -> None:
        with shares.share() as share:
            for _ in range(3):
                clock.now += 0.001
                # Others that have no share work meanwhile, one after the other.
                gevent.joinall([gevent.spawn(takes_long) for _ in range(2)])
                used.append(shares.used_by(share))
                share.wait()

    def takes_long() -> None:
        gevent.sleep(0)
        clock.now += 1

    gevent.spawn(works).get()
    assert used == pytest.approx(3 * [0.001])


def test_one_that_is_killed_while_it_waits_leaves_the_others_their_turns(shares: Shares) -> None:
    left = [3, 3]
    over = gevent.event.Event()

    def turn_of(number: int) -> Callable[[], bool]:
        def turn() -> bool:
            left[number] -= 1
            return left[number] > 0

        return turn

    def is_killed() -> None:
        with pytest.raises(gevent.GreenletExit), shares.share():
            pytest.fail("its turn came")
        # Another wait, which a turn would disturb.
        over.wait()

    killed = gevent.spawn(is_killed)
    others = [kept_alive(shares, turn_of(number)) for number in range(2)]
    # All have begun to wait.
    gevent.sleep(0)
    killed.kill(block=False)
    gevent.joinall(others, raise_error=True)
    over.set()
    gevent.joinall([killed], raise_error=True)
    assert left == [0, 0]


def test_a_turn_goes_on_until_it_was_long_enough(shares: Shares, clock: SteppedClock) -> None:
    order: list[str] = []

    def reads(name: str) -> None:
        with shares.share() as share:
            for _ in range(4):
                order.append(name)
                clock.now += TURN / 2 + 1e-9
                share.pause()

    gevent.joinall([gevent.spawn(reads, "a"), gevent.spawn(reads, "b")], raise_error=True)
    assert "".join(order) == "aabbaabb"


@pytest.mark.parametrize(("turns", "before"), [([0.55], 1), ([1], 3), ([2], 7), ([0.6, 0.6], 4)])
def test_a_request_that_has_waited_pays_four_times_for_its_time_after_half_a_turn(
    shares: Shares, clock: SteppedClock, turns: list[float], before: int
) -> None:
    order: list[str] = []

    def long() -> None:
        with shares.share():
            for seconds in turns:
                clock.now += seconds * TURN
                gevent.sleep(0)
                pause()
            order.append("long has waited")

    def short() -> None:
        with shares.share() as share:
            for number in range(9):
                order.append(f"short {number}")
                clock.now += TURN
                share.wait()

    gevent.joinall([gevent.spawn(long), gevent.spawn(short)], raise_error=True)
    assert order.index("long has waited") == before, order


def test_only_the_first_request_of_a_connection_begins_in_the_turn_in_which_that_came(shares: Shares) -> None:
    order: list[str] = []

    def requests(name: str) -> None:
        with shares.share() as share:
            order.append(name)
            for number in range(3):
                share.begin_request()
                order.append(f"{name}{number}")

    gevent.joinall([gevent.spawn(requests, "a"), gevent.spawn(requests, "b")], raise_error=True)
    assert order == ["a", "a0", "b", "b0", "a1", "b1", "a2", "b2"]


def begins(shares: Shares, order: list[str], name: str, cost: float = 0.0) -> gevent.Greenlet:
    """A request that waits for a turn, after one that took `cost` seconds."""

    def run() -> None:
        with shares.share() as share:
            share.cost = cost
            share.wait()
            order.append(name)

    return gevent.spawn(run)


def gathers(shares: Shares, order: list[str], before: Callable[[], None]) -> gevent.Greenlet:
    """A request that does something in its turn, and then gathers others."""

    def run() -> None:
        with shares.share() as share:
            share.wait()
            before()
            order.append("gathers")
            assert gather(False)
            order.append("goes on")

    return gevent.spawn(run)


@pytest.mark.parametrize("expects", [True, False])
def test_who_belongs_to_no_connection_or_waits_alone_gathers_nobody(
    shares: Shares, clock: SteppedClock, expects: bool
) -> None:
    def run() -> None:
        with shares.share():
            assert not gather(expects)

    clock.now += 1
    pause()
    assert not gather(expects)
    gevent.joinall([gevent.spawn(run)], raise_error=True)


@pytest.mark.parametrize(
    ("names", "killed", "after"),
    [("ab", None, ["a", "goes on", "b"]), ("ab", 0, ["a", "b"]), ("a", 1, ["goes on"])],
    ids=["nobody", "the one that gathers", "the next one"],
)
def test_one_that_gathers_goes_on_after_the_next_turn_or_the_end_of_one_that_is_killed(
    shares: Shares, names: str, killed: int | None, after: list[str]
) -> None:
    def kill() -> None:
        if killed is not None:
            gevent.spawn(all_of_them[killed].kill, block=False)

    order: list[str] = []
    all_of_them = [gathers(shares, order, kill), *(begins(shares, order, name) for name in names)]
    gevent.joinall(all_of_them, timeout=10, raise_error=True)
    assert order == ["gathers", *after]


def test_one_that_expects_another_sees_what_has_been_sent(shares: Shares) -> None:
    ours, theirs = gevent.socket.socketpair()
    order: list[str] = []

    def expects() -> None:
        with shares.share():
            theirs.sendall(b"x")
            assert gather(True)
            order.append("goes on")

    def reads() -> None:
        with shares.share() as share:
            share.cost = 0.0
            ours.recv(1)
            share.wait()
            order.append("reads")

    with ours, theirs:
        gevent.joinall([gevent.spawn(reads), gevent.spawn(expects)], raise_error=True)
    assert order == ["reads", "goes on"]


@pytest.mark.parametrize(
    ("own", "other", "gathered"),
    [(0.1, 0.5, True), (0.1, 0.6, False), (0.4, 0.7, True), (1.0, 1.1, False)],
)
def test_a_request_gathers_those_of_half_a_turn_and_those_of_twice_its_time_up_to_a_turn(
    shares: Shares, own: float, other: float, gathered: bool
) -> None:
    found: list[bool] = []

    def run() -> None:
        with shares.share() as share:
            share.cost = own * TURN
            share.wait()
            found.append(gather(False))

    gevent.joinall([gevent.spawn(run), begins(shares, [], "other", other * TURN)], raise_error=True)
    assert found == [gathered]


def test_a_request_after_one_of_more_than_a_turn_is_not_short(shares: Shares, clock: SteppedClock) -> None:
    found: list[bool] = []

    def requests() -> None:
        with shares.share() as share:
            for seconds in (TURN / 4, TURN / 4, TURN * 1.5, TURN / 4, TURN / 4):
                share.begin_request()
                found.append(is_short())
                # In two turns.
                clock.now += seconds / 2
                share.wait()
                clock.now += seconds / 2

    gevent.joinall([gevent.spawn(requests)], raise_error=True)
    assert found == [False, True, True, False, True]

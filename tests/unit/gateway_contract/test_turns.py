"""The line before a place that only one can have."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from gateway_contract.base.errors import TooManyAttempts
from gateway_contract.base.turns import FairQueue
from tests.support.stack import wait_for


def full() -> TooManyAttempts:
    return TooManyAttempts(2)


class Line:
    """All that have come, and the order in which they were served."""

    def __init__(self, most: int = 16, most_from_one: int = 16) -> None:
        self.turns = FairQueue(most, most_from_one, full)
        self.served: list[str] = []
        self.sent_away: list[str] = []
        self._threads: list[threading.Thread] = []
        self._came = 0

    def comes(self, address: str) -> None:
        """Takes its place in the line, and is served when it is its turn."""

        def wait() -> None:
            try:
                with self.turns.turn(address):
                    self.served.append(address)
            except TooManyAttempts:
                self.sent_away.append(address)

        thread = threading.Thread(target=wait, daemon=True)
        thread.start()
        self._threads.append(thread)
        self._came += 1
        wait_for("its place in the line", lambda: len(self.turns.waiting) == self._came, 5)

    def comes_instead(self, address: str) -> None:
        """Into a full line: takes the place of somebody."""
        self._came -= 1
        self.comes(address)
        wait_for("somebody to be sent away", lambda: self.sent_away, 5)

    @contextmanager
    def held(self, address: str) -> Iterator[None]:
        """Somebody is served until the end of the block, and the others after that."""
        with self.turns.turn(address):
            yield
        for thread in self._threads:
            thread.join(5)
            assert not thread.is_alive()
        self._threads, self._came = [], 0


def test_who_comes_for_the_first_time_goes_before_those_who_come_again() -> None:
    line = Line()
    for address in "abc":
        with line.turns.turn(address):
            pass
    with line.held("a"):
        for address in ("a", "b", "c", "new", "newer"):
            line.comes(address)
    assert line.served == ["new", "newer", "b", "c", "a"]


def test_many_from_one_address_let_others_in_between() -> None:
    line = Line()
    with line.held("a"):
        for address in ("a", "a", "a", "b"):
            line.comes(address)
    assert line.served == ["b", "a", "a", "a"]


@pytest.mark.parametrize(("most", "most_from_one"), [(2, 9), (9, 2)])
def test_a_full_line_sends_away_who_comes_and_takes_him_later(most: int, most_from_one: int) -> None:
    line = Line(most, most_from_one)
    with line.held("a"):
        line.comes("a")
        with pytest.raises(TooManyAttempts), line.turns.turn("a"):
            pass
    with line.turns.turn("a"):
        pass
    assert line.served == ["a"]


def test_a_client_with_most_places_in_a_full_line_gives_up_the_newest() -> None:
    line = Line(most=5)
    with line.held("a"):
        for address in ("b", "c", "c", "c"):
            line.comes(address)
        line.comes_instead("d")
    assert line.served == ["b", "c", "d", "c"]
    assert line.sent_away == ["c"]


def test_who_was_served_lately_gives_up_a_place_for_a_new_one() -> None:
    line = Line(most=3)
    for address in "abc":
        with line.turns.turn(address):
            pass
    with line.held("a"):
        for address in "bc":
            line.comes(address)
        line.comes_instead("new")
    assert line.served == ["new", "b"]
    assert line.sent_away == ["c"]


def test_nobody_gives_up_a_place_for_one_who_has_had_as_much() -> None:
    line = Line(most=3)
    with line.held("a"):
        for address in "bc":
            line.comes(address)
        with pytest.raises(TooManyAttempts), line.turns.turn("d"):
            pass
    assert line.served == ["b", "c"]


def test_several_are_served_at_a_time_but_one_of_each() -> None:
    turns = FairQueue(9, 9, full, max_running_turns=2)
    with turns.turn("a"):
        with pytest.raises(TooManyAttempts), turns.turn("a", timeout=0.01):
            pass
        with turns.turn("b", timeout=5):
            assert turns.served
            with pytest.raises(TooManyAttempts), turns.turn("c", timeout=0.01):
                pass
    assert not turns.served


def test_who_waits_too_long_leaves_the_line() -> None:
    turns = FairQueue(9, 9, full)
    with turns.turn("a"):
        with pytest.raises(TooManyAttempts), turns.turn("b", timeout=0.01):
            pass
        assert not turns.waiting
    with turns.turn("c", timeout=5):
        pass


def test_a_line_remembers_only_so_many_addresses() -> None:
    turns = FairQueue(1, 1, full)
    for number in range(2000):
        with turns.turn(str(number)):
            pass
    assert len(turns._last_turns) == 1024

"""A numbered queue of limited length."""

from collections import deque

from hypothesis import given
from hypothesis import strategies as some

from gateway_api.base.ring import Ring


def test_an_empty_ring_gives_what_comes_after_nothing() -> None:
    ring: Ring[str] = Ring(3)
    assert (ring.oldest, ring.newest) == (1, 0)
    assert ring.after(0, 10) == []
    assert ring.after(1, 10) is None
    assert ring.after(-1, 10) is None


def test_a_ring_counts_on_from_where_it_is_told() -> None:
    ring: Ring[str] = Ring(3, newest=41)
    assert (ring.oldest, ring.newest) == (42, 41)
    ring.add("a")
    assert (ring.oldest, ring.newest) == (42, 42)
    assert ring.after(41, 10) == ["a"]
    assert ring.after(40, 10) is None


def test_a_full_ring_lets_the_oldest_go() -> None:
    ring: Ring[str] = Ring(3)
    for item in "abcd":
        ring.add(item)
    assert (ring.oldest, ring.newest) == (2, 4)
    assert ring.after(1, 10) == ["b", "c", "d"]
    assert ring.after(0, 10) is None


def test_a_ring_gives_at_most_so_many() -> None:
    ring: Ring[str] = Ring(3)
    for item in "abcd":
        ring.add(item)
    assert ring.after(1, 2) == ["b", "c"]
    assert ring.after(4, 2) == []
    assert ring.after(5, 2) is None
    assert ring.after(2, 0) == []


@given(
    held=some.integers(1, 7),
    newest=some.integers(0, 20),
    added=some.integers(0, 30),
    number=some.integers(-3, 60),
    most=some.integers(0, 9),
)
def test_a_ring_is_a_numbered_queue_of_limited_length(
    held: int, newest: int, added: int, number: int, most: int
) -> None:
    ring: Ring[int] = Ring(held, newest)
    model: deque[int] = deque(maxlen=held)
    for item in range(newest + 1, newest + added + 1):
        ring.add(item)
        model.append(item)
    oldest = model[0] if model else newest + 1
    assert (ring.oldest, ring.newest) == (oldest, newest + added)
    if oldest - 1 <= number <= newest + added:
        assert ring.after(number, most) == [item for item in model if item > number][:most]
    else:
        assert ring.after(number, most) is None

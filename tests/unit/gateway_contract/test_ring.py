"""A numbered queue of limited length."""

from collections import deque

from hypothesis import given
from hypothesis import strategies as some

from gateway_contract.base.ring import Ring


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

"""Orders that follow what comes, changes and goes."""

from typing import NamedTuple

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from gateway_core.records.orders import Order, Ordering, Orders


class Thing(NamedTuple):
    """A version of a thing with an id."""

    id: int
    rank: int


def key(thing: Thing) -> tuple[int, int]:
    return thing.rank, thing.id


BY_RANK = Ordering(key)
EVEN = Ordering(key, lambda thing: thing.rank % 2 == 0)
ids = st.integers(0, 30)


class Following(RuleBasedStateMachine):
    """A table's orders, of which some are read now and then."""

    def __init__(self) -> None:
        super().__init__()
        self.things: dict[int, Thing] = {}
        self.orders: Orders[int, Thing] = Orders(self.things)

    @rule(id=ids, rank=st.integers(0, 5))
    def put(self, id: int, rank: int) -> None:
        self.orders.changed(id, self.things.get(id))
        self.things[id] = Thing(id, rank)

    @rule(id=ids)
    def remove(self, id: int) -> None:
        if id in self.things:
            self.orders.changed(id, self.things.pop(id))

    @rule(rank=st.integers(0, 5))
    def change_all(self, rank: int) -> None:
        self.things.update({id: Thing(id, rank) for id in self.things})
        self.orders.forget()

    @rule(ordering=st.sampled_from([BY_RANK, EVEN]))
    def read(self, ordering: Ordering[Thing]) -> None:
        snapshot = self.orders.now(ordering)
        belonging = [thing for thing in self.things.values() if ordering in (BY_RANK,) or not thing.rank % 2]
        assert list(snapshot) == sorted(belonging, key=key)
        assert len(snapshot) == len(belonging)


TestFollowing = Following.TestCase
TestFollowing.settings = settings(max_examples=50)


class Chunks(RuleBasedStateMachine):
    """An order of many things, and snapshots of it."""

    def __init__(self) -> None:
        super().__init__()
        self.order: Order[int] = Order(int, range(0, 3000, 2))
        self.held = set(range(0, 3000, 2))
        self.taken = [(self.order.now(), sorted(self.held))]

    @rule(first=st.integers(0, 3000), number=st.integers(1, 700), step=st.integers(1, 3))
    def toggle(self, first: int, number: int, step: int) -> None:
        for thing in range(first, first + number * step, step):
            (self.order.remove if thing in self.held else self.order.add)(thing)
            self.held ^= {thing}

    @rule()
    def take(self) -> None:
        self.taken.append((self.order.now(), sorted(self.held)))

    @rule(bound=st.integers(-1, 5200))
    def read_from(self, bound: int) -> None:
        for snapshot, things in self.taken[-2:]:
            assert list(snapshot.above(bound, int)) == [thing for thing in things if thing > bound]
            assert list(snapshot.below(bound, int)) == [thing for thing in things[::-1] if thing < bound]

    @invariant()
    def a_snapshot_stays_as_it_was(self) -> None:
        for snapshot, things in self.taken[-2:]:
            assert list(snapshot) == things
            assert list(reversed(snapshot)) == things[::-1]
            assert len(snapshot) == len(things)


TestChunks = Chunks.TestCase
TestChunks.settings = settings(max_examples=20, stateful_step_count=20)


def test_a_replaced_thing_is_where_its_new_key_belongs() -> None:
    order = Order(key, (Thing(id, id) for id in range(10)))
    order.replace(Thing(3, 3), Thing(3, 30))
    order.replace(Thing(4, 4), Thing(4, 4))
    assert [thing.id for thing in order.now()] == [0, 1, 2, 4, 5, 6, 7, 8, 9, 3]


@pytest.mark.parametrize("size", [1000, 4000])
def test_an_order_follows_a_change_without_reading_all_keys(size: int) -> None:
    keys: list[int] = []

    def counted(thing: Thing) -> tuple[int, int]:
        keys.append(thing.id)
        return key(thing)

    things = {id: Thing(id, id) for id in range(size)}
    orders, ordering = Orders(things), Ordering(counted)
    orders.now(ordering)
    keys.clear()
    for id in (5, size - 5):
        orders.changed(id, things.pop(id))
    assert len(orders.now(ordering)) == size - 2
    assert len(keys) < 100


def test_an_order_that_nobody_reads_is_forgotten_after_many_changes() -> None:
    things = {id: Thing(id, id) for id in range(100)}

    def counted(thing: Thing) -> tuple[int, int]:
        seen.append(thing.id)
        return key(thing)

    seen: list[int] = []
    orders, ordering = Orders(things), Ordering(counted)
    orders.now(ordering)
    seen.clear()
    for id in range(100, 1000):
        orders.changed(id, None)
        things[id] = Thing(id, id)
    assert not seen
    assert list(orders.now(ordering)) == list(things.values())

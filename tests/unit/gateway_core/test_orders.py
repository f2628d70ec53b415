"""Orders that follow what comes, changes and goes."""

from typing import NamedTuple

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from gateway_core.records.orders import ChunkValues, Ordering, SortedItems, SortedViews
from tests.support.stack import wait_for


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
        self.orders: SortedViews[int, Thing] = SortedViews(self.things)

    @rule(id=ids, rank=st.integers(0, 5))
    def put(self, id: int, rank: int) -> None:
        self.orders.note_change(id, self.things.get(id))
        self.things[id] = Thing(id, rank)

    @rule(id=ids)
    def remove(self, id: int) -> None:
        if id in self.things:
            self.orders.note_change(id, self.things.pop(id))

    @rule(rank=st.integers(0, 5))
    def change_all(self, rank: int) -> None:
        self.things.update({id: Thing(id, rank) for id in self.things})
        self.orders.drop_all()

    @rule(ordering=st.sampled_from([BY_RANK, EVEN]))
    def read(self, ordering: Ordering[Thing]) -> None:
        snapshot = self.orders.snapshot(ordering)
        belonging = [thing for thing in self.things.values() if ordering in (BY_RANK,) or not thing.rank % 2]
        assert list(snapshot) == sorted(belonging, key=key)
        assert len(snapshot) == len(belonging)


TestFollowing = Following.TestCase
TestFollowing.settings = settings(max_examples=50)


class Chunks(RuleBasedStateMachine):
    """An order of many things, and snapshots of it."""

    def __init__(self) -> None:
        super().__init__()
        self.order: SortedItems[int] = SortedItems(int, range(0, 3000, 2))
        self.held = set(range(0, 3000, 2))
        self.taken = [(self.order.snapshot(), sorted(self.held))]

    @rule(first=st.integers(0, 3000), number=st.integers(1, 700), step=st.integers(1, 3))
    def toggle(self, first: int, number: int, step: int) -> None:
        for thing in range(first, first + number * step, step):
            (self.order.remove if thing in self.held else self.order.add)(thing)
            self.held ^= {thing}

    @rule()
    def take(self) -> None:
        self.taken.append((self.order.snapshot(), sorted(self.held)))

    @rule(bound=st.integers(-1, 5200))
    def read_from(self, bound: int) -> None:
        for snapshot, things in self.taken[-2:]:
            assert list(snapshot.iterate_above(bound, int)) == [thing for thing in things if thing > bound]
            assert list(snapshot.iterate_below(bound, int)) == [
                thing for thing in things[::-1] if thing < bound
            ]

    @invariant()
    def a_snapshot_stays_as_it_was(self) -> None:
        for snapshot, things in self.taken[-2:]:
            assert list(snapshot) == things
            assert list(reversed(snapshot)) == things[::-1]
            assert len(snapshot) == len(things)


TestChunks = Chunks.TestCase
TestChunks.settings = settings(max_examples=20, stateful_step_count=20)


@pytest.mark.parametrize("size", [1000, 4000])
def test_an_order_follows_a_change_without_reading_all_keys(size: int) -> None:
    keys: list[int] = []

    def counted(thing: Thing) -> tuple[int, int]:
        keys.append(thing.id)
        return key(thing)

    things = {id: Thing(id, id) for id in range(size)}
    orders, ordering = SortedViews(things), Ordering(counted)
    orders.snapshot(ordering)
    keys.clear()
    for id in (5, size - 5):
        orders.note_change(id, things.pop(id))
    assert len(orders.snapshot(ordering)) == size - 2
    assert len(keys) < 100


def test_an_order_that_nobody_reads_is_forgotten_after_many_changes() -> None:
    things = {id: Thing(id, id) for id in range(100)}

    def counted(thing: Thing) -> tuple[int, int]:
        seen.append(thing.id)
        return key(thing)

    seen: list[int] = []
    orders, ordering = SortedViews(things), Ordering(counted)
    orders.snapshot(ordering)
    seen.clear()
    for id in range(100, 1000):
        orders.note_change(id, None)
        things[id] = Thing(id, id)
    assert not seen
    assert list(orders.snapshot(ordering)) == list(things.values())


def numbers(size: int) -> SortedItems[int]:
    return SortedItems(int, range(size))


def test_each_chunk_has_its_value() -> None:
    sums: ChunkValues[int, int] = ChunkValues(sum)
    snapshot = numbers(3000).snapshot()
    found = list(sums.iterate(snapshot))
    assert [chunk for chunk, _ in found] == snapshot.chunks
    assert [value for _, value in found] == [sum(chunk) for chunk in snapshot.chunks]


def test_after_a_change_only_its_chunk_is_made_again() -> None:
    made: list[list[int]] = []
    by_chunk: ChunkValues[int, None] = ChunkValues(made.append)
    order = numbers(3000)
    list(by_chunk.iterate(order.snapshot()))
    chunks = len(made)
    order.remove(1500)
    list(by_chunk.iterate(order.snapshot()))
    list(by_chunk.iterate(order.snapshot()))
    assert len(made) == chunks + 1


def test_values_that_nobody_reads_are_forgotten() -> None:
    made: list[list[int]] = []
    by_chunk: ChunkValues[int, None] = ChunkValues(made.append, keep_seconds=0.001)
    snapshot = numbers(1).snapshot()

    def is_made_again() -> bool:
        list(by_chunk.iterate(snapshot))
        return len(made) > 1

    wait_for("the value to be made again", is_made_again)

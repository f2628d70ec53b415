"""Values of chunks, made once per change."""

from gateway_core.records.orders import ByChunk, Order
from tests.support.stack import wait_for


def numbers(size: int) -> Order[int]:
    return Order(int, range(size))


def test_each_chunk_has_its_value() -> None:
    sums: ByChunk[int, int] = ByChunk(sum)
    snapshot = numbers(3000).now()
    found = list(sums.of(snapshot))
    assert [chunk for chunk, _ in found] == snapshot.chunks
    assert [value for _, value in found] == [sum(chunk) for chunk in snapshot.chunks]


def test_after_a_change_only_its_chunk_is_made_again() -> None:
    made: list[list[int]] = []
    by_chunk: ByChunk[int, None] = ByChunk(made.append)
    order = numbers(3000)
    list(by_chunk.of(order.now()))
    chunks = len(made)
    order.remove(1500)
    list(by_chunk.of(order.now()))
    list(by_chunk.of(order.now()))
    assert len(made) == chunks + 1


def test_values_that_nobody_reads_are_forgotten() -> None:
    made: list[list[int]] = []
    by_chunk: ByChunk[int, None] = ByChunk(made.append, kept=0.001)
    snapshot = numbers(1).now()

    def is_made_again() -> bool:
        list(by_chunk.of(snapshot))
        return len(made) > 1

    wait_for("the value to be made again", is_made_again)

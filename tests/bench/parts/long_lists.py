"""The list of 100,000 sessions, beside one of 10,000; and what others notice of it."""

import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from statistics import median

from tests.bench.load import load
from tests.bench.pairs import Figure, compared, loads, number, times
from tests.bench.parts.plan import Plan
from tests.bench.peers.gateway import Gateway, gateway
from tests.bench.processes import resident

#: Both workers have one of the pollers, and with good luck a list.
_POLLERS = 8
_READERS = 2
#: Milliseconds between two requests of a poller.
_PAUSE = 20
#: Seconds until memory is returned.
_REST = 5


def measured(plan: Plan) -> Iterator[tuple[str, Figure]]:
    """The figures, by the keys of their goals."""
    with (
        gateway(plan.folder / "many", plan.many) as many,
        gateway(plan.folder / "very-many", plan.very_many) as very_many,
    ):
        before = resident(very_many.workers)
        sides = {"ours": very_many.get("/subscribers"), "shorter": many.get("/subscribers")}
        yield "long-list", compared(times(loads(plan.effort, 1, sides)), "ours", "shorter", "ms")
        waits = [_longest_wait(very_many, plan.effort.seconds) for _ in range(plan.effort.rounds)]
        longest = max(waits)
        yield "long-list-wait", Figure(median(waits), None, longest, "ms", f"at most {number(longest, 'ms')}")
        time.sleep(_REST)
        after = resident(very_many.workers)
        yield "long-list-memory", Figure(after / 2**20, before / 2**20, after / before, "MB")


def _longest_wait(ours: Gateway, seconds: int) -> float:
    """Milliseconds of the slowest response to a poll, while others read the whole list."""
    readers = threading.Thread(target=load, args=(ours.get("/subscribers"), _READERS, seconds))
    readers.start()
    polled = load(replace(ours.get("/health"), pause=_PAUSE), _POLLERS, seconds)
    readers.join()
    return polled.most * 1000

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

#: So many that each worker has some.
_POLLERS = 8
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
        # What a worker's first requests load is not a list's.
        load(very_many.get("/subscribers?limit=100"), 2 * _POLLERS, 1)
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
    """Milliseconds of the slowest response to a poll, while another client reads the whole list."""
    reader = threading.Thread(target=load, args=(ours.get("/subscribers"), 1, seconds))
    reader.start()
    polled = load(replace(ours.get("/health"), pause=_PAUSE), _POLLERS, seconds)
    reader.join()
    return polled.most * 1000

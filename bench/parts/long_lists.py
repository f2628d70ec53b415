"""The list of 100,000 sessions, beside one of 10,000; and what others notice of it."""

import time
from collections.abc import Iterator
from statistics import median

from bench.load import load
from bench.pairs import Figure, compared, loads, number, times
from bench.parts.plan import Plan
from bench.parts.polls import POLLERS, polled
from bench.peers.gateway import gateway
from bench.processes import resident

#: Seconds until memory is returned.
_REST = 5


def measured(plan: Plan) -> Iterator[tuple[str, Figure]]:
    """The figures, by the keys of their goals."""
    with (
        gateway(plan.folder / "many", plan.many) as many,
        gateway(plan.folder / "very-many", plan.very_many) as very_many,
    ):
        # What a worker's first requests load is not a list's.
        load(very_many.get("/subscribers?limit=100"), 2 * POLLERS, 1)
        before = resident(very_many.workers)
        sides = {"ours": very_many.get("/subscribers"), "shorter": many.get("/subscribers")}
        yield "long-list", compared(times(loads(plan.effort, 1, sides)), "ours", "shorter", "ms")
        found = (polled(very_many, plan.effort.seconds, sides["ours"]) for _ in range(plan.effort.rounds))
        waits = [each.most * 1000 for each in found]
        longest = max(waits)
        yield "long-list-wait", Figure(median(waits), None, longest, "ms", f"at most {number(longest, 'ms')}")
        time.sleep(_REST)
        after = resident(very_many.workers)
        yield "long-list-memory", Figure(after / 2**20, before / 2**20, after / before, "MB")

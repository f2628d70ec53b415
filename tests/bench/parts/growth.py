"""The same work at 1,000, 10,000 and 100,000 sessions."""

from collections.abc import Iterator, Mapping
from statistics import median

from tests.bench.goals import SIZES, growth_key
from tests.bench.load import Request
from tests.bench.pairs import Figure, loads, times
from tests.bench.parts.plan import Plan
from tests.bench.peers.gateway import Gateway, gateway
from tests.bench.processes import resident


def measured(plan: Plan) -> Iterator[tuple[str, Figure]]:
    """Milliseconds of each response, and megabytes of the core."""
    effort = plan.effort.divided(2)
    for size in SIZES:
        if size > plan.very_many:
            continue
        with gateway(plan.folder / str(size), size) as ours:
            rounds = times(loads(effort, 4, _work(ours)))
            for name in rounds[0]:
                value = median(each[name] for each in rounds)
                yield growth_key(name, size), Figure(value, None, value, "ms")
            core = resident([ours.core]) / 2**20
            yield growth_key("memory of the core", size), Figure(core, None, core, "MB")


def _work(ours: Gateway) -> Mapping[str, Request]:
    session = ours.data("/subscribers/1")
    page = "limit=100"
    return {
        "health": ours.get("/health"),
        "detail": ours.detail(),
        "one by user name": ours.get(f"/subscribers?username={session['username']}"),
        "page of 100 by id": ours.get(f"/subscribers?{page}"),
        "page of 100 by address": ours.get(f"/subscribers?{page}&sort=ip_address"),
        "page of 100 interfaces": ours.get(f"/interfaces?{page}"),
        "summary": ours.get("/subscribers/summary"),
        "whole list": ours.get("/subscribers"),
    }

"""The same work at 1,000, 10,000 and 100,000 sessions."""

from collections.abc import Iterator, Mapping
from statistics import median

from bench.goals import PAGES, SIZES, growth_key
from bench.load import Request
from bench.pairs import Figure, loads, times
from bench.parts.plan import Plan
from bench.peers.gateway import Gateway, gateway
from bench.processes import resident


def measured(plan: Plan) -> Iterator[tuple[str, Figure]]:
    """Milliseconds of a response to one connection, and megabytes of the core."""
    effort = plan.effort.divided(2)
    for size in SIZES:
        if size > plan.very_many:
            continue
        with gateway(plan.folder / str(size), size) as ours:
            rounds = times(loads(effort, 1, _work(ours)))
            for name in rounds[0]:
                value = median(each[name] for each in rounds)
                yield growth_key(name, size), Figure(value, None, value, "ms")
            core = resident([ours.core]) / 2**20
            yield growth_key("memory of the core", size), Figure(core, None, core, "MB")


def _work(ours: Gateway) -> Mapping[str, Request]:
    session, page = ours.data("/subscribers/1"), "limit=100"
    whole = ours.get("/subscribers")
    tag = whole.probe()[0].get("ETag")
    return {
        "health": ours.get("/health"),
        "summary": ours.get("/subscribers/summary"),
        "detail by id": ours.detail(),
        **{
            f"one by {name}": ours.get(f"/subscribers?{field}={session[field]}")
            for name, field in (
                ("user name", "username"),
                ("address", "ip_address"),
                ("MAC address", "mac_address"),
            )
        },
        "page of 100 sessions by id": ours.get(f"/subscribers?{page}"),
        "page of 100 sessions by address": ours.get(f"/subscribers?{page}&sort=ip_address"),
        **{f"page of 100: {name}": ours.get(f"{path}?{page}") for name, path in PAGES.values()},
        "whole list": whole,
        **({"whole list, 304": ours.get("/subscribers", status=304, If_None_Match=tag)} if tag else {}),
    }

"""Memory at rest."""

from collections.abc import Iterator

from bench.pairs import Figure, number
from bench.parts.plan import Plan
from bench.peers.gateway import gateway
from bench.processes import proportional, resident


def measured(plan: Plan) -> Iterator[tuple[str, Figure]]:
    """The figures, by the keys of their goals: the core, for each session; and all processes of the API."""
    with gateway(plan.folder / "gateway", plan.very_many) as ours:
        # What a first request loads is not at rest.
        ours.detail().probe()
        each = resident([ours.core]) / plan.very_many / 1024
        yield "memory-core", Figure(each, None, each, "KB")
        api = proportional(ours.processes) / 2**20
        note = f"{number(resident(ours.processes) / 2**20, 'MB')} if shared pages count for each process"
        yield "memory-api", Figure(api, None, api, "MB", note)

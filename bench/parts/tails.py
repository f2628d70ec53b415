"""The slowest responses of health, and of the detail of one session."""

from collections.abc import Iterator

from bench.pairs import Figure, compared, loads
from bench.parts.plan import Plan
from bench.peers.gateway import gateway

_CONNECTIONS = 16


def measured(plan: Plan) -> Iterator[tuple[str, Figure]]:
    """The figures, by the keys of their goals."""
    with gateway(plan.folder / "gateway", plan.many) as ours:
        for name, request in {"health": ours.get("/health"), "detail": ours.detail()}.items():
            found = [each[name] for each in loads(plan.effort, _CONNECTIONS, {name: request})]
            rounds = [{"p99": each.p99 * 1000, "median": each.median * 1000} for each in found]
            yield f"tail-{name}", compared(rounds, "p99", "median", "ms")

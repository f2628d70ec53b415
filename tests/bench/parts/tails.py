"""The slowest responses of health."""

from collections.abc import Iterator

from tests.bench.pairs import Figure, compared, loads
from tests.bench.parts.plan import Plan
from tests.bench.peers.gateway import gateway

_CONNECTIONS = 16


def measured(plan: Plan) -> Iterator[tuple[str, Figure]]:
    """The figure, by the key of its goal."""
    with gateway(plan.folder / "gateway", plan.many) as ours:
        found = loads(plan.effort, _CONNECTIONS, {"ours": ours.get("/health")})
        rounds = [{"p99": each["ours"].p99 * 1000, "median": each["ours"].median * 1000} for each in found]
        yield "tail", compared(rounds, "p99", "median", "ms")

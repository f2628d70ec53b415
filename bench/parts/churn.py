"""The detail of one session while sessions come and go."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import count

from bench.load import Load, load
from bench.pairs import Figure, compared, in_turn, times
from bench.parts.plan import Plan
from bench.peers.gateway import gateway

_CONNECTIONS = 16
#: Sessions that come in a second. As many go.
_ARRIVALS = 1000


def measured(plan: Plan) -> Iterator[tuple[str, Figure]]:
    """The figure, by the key of its goal. A gateway is started for each turn: beside another one with churn,
    none would be at rest."""
    runs = count()

    def detail(arrivals: float) -> Load:
        with gateway(plan.folder / str(next(runs)), plan.very_many, arrivals) as ours:
            request = replace(ours.detail(), may_be_gone=True)
            load(request, _CONNECTIONS, 1)
            return load(request, _CONNECTIONS, plan.effort.seconds)

    sides = {"churn": lambda: detail(_ARRIVALS), "rest": lambda: detail(0)}
    yield "churn", compared(times(in_turn(plan.effort.rounds, sides)), "churn", "rest", "ms")

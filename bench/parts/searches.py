"""One session of 100,000 by something else than its id."""

from collections.abc import Iterator

from bench.pairs import Figure, compared, loads, times
from bench.parts.plan import Plan
from bench.peers.gateway import gateway

_CONNECTIONS = 16
_FIELDS = {"username": "username", "address": "ip_address", "mac": "mac_address"}


def measured(plan: Plan) -> Iterator[tuple[str, Figure]]:
    """The figures, by the keys of their goals."""
    with gateway(plan.folder / "gateway", plan.very_many) as ours:
        found = [ours.data(f"/subscribers/{id}") for id in ours.ids()]
        for key, field in _FIELDS.items():
            paths = (f"/subscribers?{field}={session[field]}" for session in found)
            sides = {"ours": ours.get(*paths), "id": ours.detail()}
            rounds = times(loads(plan.effort, _CONNECTIONS, sides))
            yield f"search-{key}", compared(rounds, "ours", "id", "ms")

"""Health and the detail of one session, beside Kea and bare Flask."""

from collections.abc import Iterator
from contextlib import ExitStack

from bench.pairs import Figure, compared, loads, rates
from bench.parts.plan import Plan
from bench.peers.bare_flask import bare_flask
from bench.peers.gateway import gateway
from bench.peers.kea import is_installed, kea

_CONNECTIONS = 16
_PEERS = {"health": "status", "detail": "lease"}


def measured(plan: Plan) -> Iterator[tuple[str, Figure]]:
    """The figures, by the keys of their goals."""
    with ExitStack() as stack:
        ours = stack.enter_context(gateway(plan.folder / "gateway", plan.many))
        asked = {"health": ours.get("/health"), "detail": ours.detail()}
        answers = {name: request.probe()[1] for name, request in asked.items()}
        bare = stack.enter_context(bare_flask(plan.folder / "bare", answers))
        peer = stack.enter_context(kea(plan.folder / "kea", plan.many)) if is_installed() else {}
        for name, request in asked.items():
            sides = {"ours": request, "bare": bare[name]}
            if peer:
                sides["kea"] = peer[_PEERS[name]]
            rounds = rates(loads(plan.effort, _CONNECTIONS, sides))
            for side in ("bare", "kea"):
                if side in sides:
                    yield f"{name}-{side}", compared(rounds, "ours", side, "/s")

"""What others notice of logins, each of which is a hash of a password with bcrypt."""

from collections.abc import Iterator

from bench.pairs import Figure, compared, in_turn
from bench.parts.plan import Plan
from bench.parts.polls import polled
from bench.peers.gateway import gateway


def measured(plan: Plan) -> Iterator[tuple[str, Figure]]:
    """The figure, by the key of its goal."""
    with gateway(plan.folder / "gateway", plan.many) as ours:
        login, seconds = ours.login(), plan.effort.seconds
        # What a worker's first requests load is not a login's.
        polled(ours, 1, login)
        sides = {"logins": lambda: polled(ours, seconds, login), "alone": lambda: polled(ours, seconds)}
        rounds = [
            {name: one.p99 * 1000 for name, one in each.items()}
            for each in in_turn(plan.effort.rounds, sides)
        ]
        yield "logins", compared(rounds, "logins", "alone", "ms")

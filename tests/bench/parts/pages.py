"""Pages of 100 at 100,000 sessions, beside a page of sessions by id."""

from collections.abc import Iterator

from gateway_api.wire.core.sessions import SessionSummary
from tests.bench.goals import PAGES
from tests.bench.pairs import Figure, compared, loads, times
from tests.bench.parts.plan import Plan
from tests.bench.peers.gateway import gateway

_CONNECTIONS = 4
_LIMIT = "limit=100"


def measured(plan: Plan) -> Iterator[tuple[str, Figure]]:
    """The figures, by the keys of their goals. Of the orders, the slowest."""
    effort = plan.effort.divided(2)
    with gateway(plan.folder / "gateway", plan.very_many) as ours:
        by_id = ours.get(f"/subscribers?{_LIMIT}")

        def beside_ids(path: str, note: str = "") -> Figure:
            sides = {"ours": ours.get(path), "ids": by_id}
            return compared(times(loads(effort, _CONNECTIONS, sides)), "ours", "ids", "ms", note)

        for key, (_, path) in PAGES.items():
            yield f"page-{key}", beside_ids(f"{path}?{_LIMIT}")
        orders = [name for name in SessionSummary.__struct_fields__ if name != "id"]
        sorted_pages = (beside_ids(f"/subscribers?{_LIMIT}&sort={name}", name) for name in orders)
        yield "page-sorted", max(sorted_pages, key=lambda figure: figure.ratio)

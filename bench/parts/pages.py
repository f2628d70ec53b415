"""Pages of 100 at 100,000 sessions, beside a page of sessions by id."""

from collections.abc import Iterator
from urllib.parse import quote

from bench.goals import PAGES
from bench.pairs import Figure, compared, loads, times
from bench.parts.plan import Plan
from bench.peers.gateway import Gateway, gateway
from gateway_contract.contract import MAX_LIMIT
from gateway_contract.core.sessions import SessionSummary

_CONNECTIONS = 4
_LIMIT = "limit=100"
_BY_NAME = "/subscribers?sort=username"


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
        yield "page-middle", beside_ids(f"{_BY_NAME}&{_LIMIT}&cursor={quote(_middle(ours))}")
        orders = [name for name in SessionSummary.__struct_fields__ if name != "id"]
        sorted_pages = (beside_ids(f"/subscribers?{_LIMIT}&sort={name}", name) for name in orders)
        yield "page-sorted", max(sorted_pages, key=lambda figure: figure.ratio)


def _middle(ours: Gateway) -> str:
    """The cursor of the middle of the list by user name."""
    number = min(MAX_LIMIT, ours.sessions // 2)
    path = f"{_BY_NAME}&limit={number}"
    cursor = ours.data(path)["next_cursor"]
    for _ in range(ours.sessions // 2 // number - 1):
        cursor = ours.data(f"{path}&cursor={quote(cursor)}")["next_cursor"]
    return str(cursor)

"""The list of 10,000 sessions, beside that of peers; and unchanged, for a client that has it."""

from collections.abc import Iterator
from contextlib import ExitStack
from statistics import median

from bench.pairs import Figure, compared, loads, number, rates
from bench.parts.plan import Plan
from bench.peers import dawos, kea, nginx
from bench.peers.bare_flask import bare_flask
from bench.peers.gateway import gateway

_CONNECTIONS = 4
_POLLERS = 16
_NAME = "list"


def measured(plan: Plan) -> Iterator[tuple[str, Figure]]:
    """The figures, by the keys of their goals. Without an ETag, there is none of an unchanged list."""
    with ExitStack() as stack:
        ours = stack.enter_context(gateway(plan.folder / "gateway", plan.many))
        whole = ours.get("/subscribers")
        headers, body = whole.probe()
        answers = {_NAME: body}
        sides = {"ours": whole, "bare": stack.enter_context(bare_flask(plan.folder / "bare", answers))[_NAME]}
        if nginx.is_installed():
            sides["nginx"] = stack.enter_context(nginx.files(plan.folder / "nginx", answers))[_NAME]
        if dawos.is_installed():
            sides["dawos"] = stack.enter_context(dawos.dawos(plan.folder / "dawos", plan.many))
        if kea.is_installed():
            sides["kea"] = stack.enter_context(kea.kea(plan.folder / "kea", plan.many))["leases"]
        rounds = rates(loads(plan.effort, _CONNECTIONS, sides))
        for side in ("kea", "dawos", "bare"):
            if side in sides:
                note = ""
                if side == "bare" and "nginx" in sides:
                    note = f"nginx with the file: {number(median(each['nginx'] for each in rounds), '/s')}"
                yield f"list-{side}", compared(rounds, "ours", side, "/s", note)
        if tag := headers.get("ETag"):
            unchanged = ours.get("/subscribers", status=304, If_None_Match=tag)
            pollers = {"ours": unchanged, "health": ours.get("/health")}
            yield (
                "list-unchanged",
                compared(rates(loads(plan.effort, _POLLERS, pollers)), "ours", "health", "/s"),
            )

"""Events for thousands of clients of the stream, beside nchan; and the memory of a client."""

import http.client
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from functools import partial
from itertools import count
from urllib.parse import urlsplit

from bench.crowd import Crowd, crowd
from bench.pairs import Figure, compared, in_turn
from bench.parts.plan import Plan
from bench.peers import nginx
from bench.peers.gateway import Gateway, gateway
from bench.processes import resident
from gateway_contract.core_client import CoreClient
from gateway_contract.varlink.client import Client

_PATH = "/api/v1/events/subscribers?events=session_down"
#: Events of each side in a round.
_EVENTS = 4


def measured(plan: Plan) -> Iterator[tuple[str, Figure]]:
    """The figures, by the keys of their goals. The time of an event starts with the call to the core, and
    with the request to nchan."""
    with ExitStack() as stack:
        ours = stack.enter_context(gateway(plan.folder / "gateway", plan.many, tls=False))
        before = resident(ours.workers)
        listeners = stack.enter_context(_listeners(ours, plan.clients))
        yield "stream-memory", _each(ours, before, plan.clients)
        client = stack.enter_context(closing(Client(ours.folder / "core.sock", timeout=10)))
        core, ids = CoreClient(client), count(1)

        def end_session() -> float:
            id = next(ids)
            return _time_to_last(listeners, b'"id":%d,' % id, partial(core.disconnect_session, id))

        if nginx.has_nchan():
            port = stack.enter_context(nginx.streams(plan.folder / "nchan"))
            others = stack.enter_context(crowd(port, nginx.STREAM, {}, plan.clients))
            publisher = http.client.HTTPConnection("127.0.0.1", port)

            def publish() -> float:
                id = next(ids)
                return _time_to_last(others, b'"id":%d,' % id, partial(_publish, publisher, id))

            turns = plan.effort.rounds * _EVENTS
            yield (
                "stream",
                compared(in_turn(turns, {"ours": end_session, "nchan": publish}), "ours", "nchan", "ms"),
            )
    with gateway(plan.folder / "tls", plan.many) as ours:
        before = resident(ours.workers)
        with _listeners(ours, plan.clients):
            yield "stream-memory-tls", _each(ours, before, plan.clients)


def _listeners(ours: Gateway, clients: int) -> "ExitStack[bool | None]":
    port = urlsplit(ours.url).port
    assert port
    return crowd(port, _PATH, {"Authorization": f"Bearer {ours.token}"}, clients, ours.certificate)


def _each(ours: Gateway, before: int, clients: int) -> Figure:
    size = (resident(ours.workers) - before) / clients / 1024
    return Figure(size, None, size, "KB")


def _time_to_last(listeners: Crowd, marker: bytes, cause: Callable[[], object]) -> float:
    """Milliseconds from the cause of an event until the last client has it."""
    listeners.expect(marker)
    began = time.monotonic()
    cause()
    return (listeners.heard() - began) * 1000


def _publish(connection: http.client.HTTPConnection, id: int) -> None:
    """An event of the same length as ours, in one line."""
    body = b'{"id":%d,"padding":"%s"}' % (id, b"x" * 280)
    connection.request("POST", nginx.PUBLISH, body)
    connection.getresponse().read()

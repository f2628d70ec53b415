"""Keeps what became of the calls that change something, for a caller that has lost the reply.

Calls that were done are in the log of changes, and so known after a restart. A call that is not known when
the caller asks is refused from then on: it may still wait in a socket.
"""

import threading
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from gateway_contract.base.errors import StepFailed
from gateway_contract.contract import Command
from gateway_contract.core.configuration import ResolveCalls, ResolveCallsReply, StepFailedError
from gateway_contract.core.interface import CORE
from gateway_contract.varlink.dispatcher import Handler, ServedInterface
from gateway_contract.varlink.protocol import Peer
from gateway_core.records.changes import MAX_KEPT, ChangeLog


class Outcomes:
    """The outcomes by the ids of the calls. Any thread may call."""

    def __init__(self, changes: ChangeLog) -> None:
        self._changes = changes
        self._lock = threading.Lock()
        self._running: set[str] = set()
        #: Calls of this process that have ended, and whether each was done. The newest are last.
        self._ended: dict[str, bool] = {}
        #: Calls that a caller was told to be unknown. The newest are last.
        self._refused: dict[str, bool] = {}

    def of(self, interface: ServedInterface) -> ServedInterface:
        """Return the interface, with the outcomes of its commands kept."""
        methods = {
            name: self._kept(handler) if issubclass(handler.parameters, Command) else handler
            for name, handler in interface.methods.items()
        }
        return replace(interface, methods=methods)

    def resolve_calls(self, call: ResolveCalls) -> ResolveCallsReply:
        with self._lock:
            wanted = [id for id in call.request_ids if id not in self._running]
            ended = {id: self._ended[id] for id in wanted if id in self._ended}
            # Before the look-up: one that begins meanwhile would not be found.
            self._refused = _newest(self._refused, (id for id in wanted if id not in ended))
        try:
            noted = self._changes.find_calls(wanted)
        except StepFailed as error:
            raise CORE.error(StepFailedError(error.step, error.reason)) from error
        outcomes = dict.fromkeys(noted, True) | ended
        return ResolveCallsReply(
            done=tuple(id for id in wanted if outcomes.get(id) is True),
            failed=tuple(id for id in wanted if outcomes.get(id) is False),
            unknown=tuple(id for id in wanted if id not in outcomes),
        )

    def _kept(self, handler: Handler) -> Handler:
        def run(call: Command[Any], peer: Peer | None = None) -> Any:
            id = call.request_id
            more = (peer,) if handler.knows_peer else ()
            if id is None:
                return handler.handler(call, *more)
            self._begin(id)
            done = False
            try:
                reply = handler.handler(call, *more)
                self._changes.add_calls(id)
                done = True
                return reply
            finally:
                self._end(id, done)

        return replace(handler, handler=run)

    def _begin(self, id: str) -> None:
        with self._lock:
            if id in self._refused:
                raise CORE.error(
                    StepFailedError("make the change", "the caller was told that it is not made")
                )
            self._running.add(id)

    def _end(self, id: str, done: bool) -> None:
        with self._lock:
            self._running.discard(id)
            self._ended[id] = done
            if len(self._ended) > MAX_KEPT:
                del self._ended[next(iter(self._ended))]


def _newest(held: dict[str, bool], more: Iterable[str]) -> dict[str, bool]:
    """Return the calls that are kept, of these and `more`."""
    return dict(list((held | dict.fromkeys(more, True)).items())[-MAX_KEPT:])

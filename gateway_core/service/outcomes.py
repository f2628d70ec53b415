"""Outcomes of the calls that change something, for a caller that has lost the reply.

The log of changes has the calls that were done, so they are known after a restart. A call that is unknown
when the caller asks for its outcome is refused from then on: it may still wait in a socket.
"""

import threading
from dataclasses import replace
from typing import Any

from gateway_contract.base.errors import StepFailed
from gateway_contract.contract import Command
from gateway_contract.core.configuration import ResolveCalls, ResolveCallsReply, StepFailedError
from gateway_contract.core.interface import CORE
from gateway_contract.varlink.dispatcher import Handler, ServedInterface
from gateway_contract.varlink.protocol import Peer
from gateway_core.records.changes import MAX_CHANGES, ChangeLog


class Outcomes:
    """Outcomes by the ids of the calls. Thread-safe."""

    def __init__(self, changes: ChangeLog) -> None:
        self._changes = changes
        self._lock = threading.Lock()
        self._running: set[str] = set()
        #: Whether each ended call of this process was done. The newest calls are last.
        self._ended: dict[str, bool] = {}
        #: Calls that were unknown when their caller asked. The newest calls are last.
        self._refused: dict[str, None] = {}

    def record(self, interface: ServedInterface) -> ServedInterface:
        """Return the interface with commands that record their outcomes."""
        methods = {
            name: self._wrap(handler) if issubclass(handler.parameters, Command) else handler
            for name, handler in interface.methods.items()
        }
        return replace(interface, methods=methods)

    def resolve_calls(self, call: ResolveCalls) -> ResolveCallsReply:
        with self._lock:
            wanted = [id for id in call.request_ids if id not in self._running]
            ended = {id: self._ended[id] for id in wanted if id in self._ended}
            # Before the look-up, which would not find a call that begins meanwhile.
            refused = self._refused | dict.fromkeys(id for id in wanted if id not in ended)
            self._refused = dict(list(refused.items())[-MAX_CHANGES:])
        try:
            done = self._changes.find_calls(wanted)
        except StepFailed as error:
            raise CORE.error(StepFailedError(error.step, error.reason)) from error
        outcomes = dict.fromkeys(done, True) | ended
        return ResolveCallsReply(
            done=tuple(id for id in wanted if outcomes.get(id) is True),
            failed=tuple(id for id in wanted if outcomes.get(id) is False),
            unknown=tuple(id for id in wanted if id not in outcomes),
        )

    def _wrap(self, handler: Handler) -> Handler:
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
                reason = "the caller was told that it is not made"
                raise CORE.error(StepFailedError("make the change", reason))
            self._running.add(id)

    def _end(self, id: str, done: bool) -> None:
        with self._lock:
            self._running.discard(id)
            self._ended[id] = done
            if len(self._ended) > MAX_CHANGES:
                del self._ended[next(iter(self._ended))]

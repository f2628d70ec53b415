"""What happens at the core: the events of sessions, and changes that others than the API made.

No event is lost silently. After a break the follower continues behind the last event that it got. Where the
core no longer holds that event, a batch has its `gap` set.
"""

import logging
from collections.abc import Callable, Iterator

from gateway_api.base.errors import CoreUnavailable
from gateway_api.daemon.calls import Calls, decoded
from gateway_api.wire.core.configuration import ChangesReply, ListChanges
from gateway_api.wire.core.gateway import EventsReply, SubscribeEvents
from gateway_api.wire.core.interface import CORE
from gateway_api.wire.varlink.client import Client, Unreachable
from gateway_api.wire.varlink.protocol import ErrorReply

_log = logging.getLogger(__name__)

#: The core replies every 15 s at least.
_SILENCE = 40.0
_PAUSE = 0.2


class Events:
    """Follows the events at the socket of `client`."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def after(self, boot_id: str, sequence: int) -> Iterator[EventsReply]:
        """Batches that follow an event. Ends with CoreUnavailable."""
        return self._batches(boot_id, sequence)

    def for_ever(
        self, pause: Callable[[float], None], *, behind: int = 0, all_held: bool = False
    ) -> Iterator[EventsReply]:
        """Batches from now on, and the last events before now, `behind` at the most. Between a break and the
        next try it calls `pause` with seconds. With `all_held`, it continues after a gap with the oldest
        event that the core holds, not with the next to come."""
        boot_id: str | None = None
        last: int | None = None
        warned = False
        while True:
            try:
                for batch in self._batches(boot_id, last):
                    warned = False
                    if boot_id is None and behind:
                        boot_id, last = batch.boot_id, max(batch.oldest - 1, batch.newest - behind)
                        break
                    yield batch
                    boot_id = batch.boot_id
                    if batch.gap and all_held:
                        last = batch.oldest - 1
                        break
                    if batch.events:
                        last = batch.events[-1].sequence
                    elif batch.gap or last is None:
                        last = batch.newest
                else:
                    pause(_PAUSE)
            except CoreUnavailable as error:
                (_log.debug if warned else _log.warning)("cannot follow the core's events: %s", error)
                warned = True
                pause(_PAUSE)

    def _batches(self, boot_id: str | None, sequence: int | None) -> Iterator[EventsReply]:
        wanted = SubscribeEvents(boot_id, sequence)
        try:
            for raw in self._client.stream(CORE.method(SubscribeEvents), wanted, silence=_SILENCE):
                yield decoded(EventsReply, raw)
        except (Unreachable, ErrorReply) as error:
            raise CoreUnavailable(str(error)) from error


class Changes:
    """The changes that the core reports. Raises CoreUnavailable as `Calls` does."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    def after(self, log: str | None, sequence: int) -> ChangesReply:
        """What followed a change of a log. For a log of another name, all that the core holds."""
        return self._calls.reply(ListChanges(log, sequence))

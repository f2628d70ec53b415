"""The core's events, followed through whatever happens to the core or the connection.

Nothing is lost silently: after a break it goes on behind the last event that was seen, and where the core
no longer holds that, a batch says so.
"""

import logging
from collections.abc import Callable, Iterator

from gateway_api.base.errors import CoreUnavailable
from gateway_api.daemon.calls import decoded
from gateway_api.wire.core.gateway import EventName, EventsReply, SessionEvent, SubscribeEvents
from gateway_api.wire.core.interface import CORE
from gateway_api.wire.varlink.client import Client, Unreachable
from gateway_api.wire.varlink.message import ErrorReply

_log = logging.getLogger(__name__)

#: The core says something every 15 s.
_SILENCE = 40.0
_PAUSE = 0.2


class Events:
    """Follows at the socket of `client`."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def after(self, boot_id: str, sequence: int) -> Iterator[EventsReply]:
        """Batches that follow an event. Ends with CoreUnavailable."""
        return self._batches(boot_id, sequence)

    def for_ever(
        self, pause: Callable[[float], None], *, behind: int = 0, all_held: bool = False
    ) -> Iterator[EventsReply]:
        """Batches from now on, and the last events before now, `behind` at the most. Between a break and the
        next try it calls `pause` with seconds. With `all_held`, it goes on after a gap with the oldest event
        that is held, not with the next to come."""
        boot_id: str | None = None
        last: int | None = None
        told = False
        while True:
            try:
                for batch in self._batches(boot_id, last):
                    told = False
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
                (_log.debug if told else _log.warning)("cannot follow the core's events: %s", error)
                told = True
                pause(_PAUSE)

    def _batches(self, boot_id: str | None, sequence: int | None) -> Iterator[EventsReply]:
        wanted = SubscribeEvents(boot_id, sequence)
        try:
            for raw in self._client.stream(CORE.method(SubscribeEvents), wanted, silence=_SILENCE):
                yield decoded(EventsReply, raw)
        except (Unreachable, ErrorReply) as error:
            raise CoreUnavailable(str(error)) from error


def common_data(event: SessionEvent) -> dict[str, object]:
    """What the data of an event ends with, in the stream and for webhooks alike."""
    names = ["at", "mac_address", "access_interface"]
    if event.event == EventName.DOWN:
        names += ["bytes_in", "bytes_out", "duration_seconds"]
    return {name: getattr(event, name) for name in names}

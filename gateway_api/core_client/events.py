"""The events of the core's sessions.

No event is lost silently. After a break the follower continues after its last event. If the core no longer
holds that event, a batch has `gap` set.
"""

import logging
from collections.abc import Callable, Iterator

from gateway_api.base.errors import CoreUnavailable
from gateway_api.core_client.calls import followed
from gateway_api.wire.core.sessions import EventsReply, SubscribeEvents
from gateway_api.wire.varlink.client import Client

_log = logging.getLogger(__name__)

#: The core replies every 15 s at least.
_SILENCE = 40.0
_PAUSE = 0.2


class Events:
    def __init__(self, client: Client) -> None:
        self._client = client

    def after(self, boot_id: str | None, sequence: int | None) -> Iterator[EventsReply]:
        """Batches after an event, or from now on if both are None. Ends with CoreUnavailable."""
        return followed(self._client, SubscribeEvents(boot_id, sequence), silence=_SILENCE)

    def for_ever(
        self, pause: Callable[[float], None], *, behind: int = 0, all_held: bool = False
    ) -> Iterator[EventsReply]:
        """Batches from now on, and at most the last `behind` events before now. After a break it calls
        `pause` with seconds. After a gap it continues with the next event or, with `all_held`, with the
        oldest event that the core holds."""
        boot_id: str | None = None
        last: int | None = None
        warned = False
        while True:
            try:
                for batch in self.after(boot_id, last):
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

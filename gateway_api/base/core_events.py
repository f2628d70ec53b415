"""Session events of the core.

No event is lost silently. After a broken connection, a follower continues after the last event that the
follower received. If the core no longer holds the next event, the next batch has `gap` set.
"""

import logging
from collections.abc import Callable, Iterator

from gateway_contract.base.retry import repeat
from gateway_contract.core.sessions import EventsReply, SubscribeEvents
from gateway_contract.core_client import CoreClient

_log = logging.getLogger(__name__)

_PAUSE_SECONDS = 0.2


class Events:
    """Source of the session events of one core, in batches."""

    def __init__(self, core: CoreClient) -> None:
        self._core = core

    def follow_after(self, boot_id: str | None, sequence: int | None) -> Iterator[EventsReply]:
        """Yield batches of the events after the event `sequence` of the core's run `boot_id`. If both
        arguments are None, yield the events from now on. The iterator ends when the core closes the
        connection."""
        return self._core.follow(SubscribeEvents(boot_id, sequence))

    def follow_for_ever(
        self, pause: Callable[[float], None], *, recent: int = 0, with_all_held: bool = False
    ) -> Iterator[EventsReply]:
        """Yield batches of events from now on, without an end. If `recent` is not 0, yield at most the last
        `recent` events first. After a broken connection, call `pause` with the number of seconds to wait, and
        then continue. After a gap, continue with the next new event; with `with_all_held`, continue with the
        oldest event that the core holds."""
        boot_id: str | None = None
        last: int | None = None

        def follow() -> Iterator[EventsReply]:
            nonlocal boot_id, last
            while True:
                for batch in self.follow_after(boot_id, last):
                    if boot_id is None and recent:
                        boot_id, last = batch.boot_id, max(batch.oldest - 1, batch.newest - recent)
                        break
                    yield batch
                    boot_id = batch.boot_id
                    if batch.gap and with_all_held:
                        last = batch.oldest - 1
                        break
                    if batch.events:
                        last = batch.events[-1].sequence
                    elif batch.gap or last is None:
                        last = batch.newest
                else:
                    return

        return repeat(follow, pause, "follow the core's events", _log, seconds=_PAUSE_SECONDS)

"""The receivers of webhooks that the core's configuration declares."""

import logging
from collections.abc import Callable, Iterator

from gateway_api.base.errors import CoreLacksMethod, CoreUnavailable
from gateway_api.core_client.calls import followed
from gateway_api.wire.core.receivers import FollowReceivers, Receiver
from gateway_api.wire.varlink.client import Client

_log = logging.getLogger(__name__)

#: The core replies every 15 s at least.
_SILENCE = 40.0
_PAUSE = 0.2
#: Seconds until a core that declares none is asked again: it may be a new one then.
_LONG_PAUSE = 60.0


class Receivers:
    def __init__(self, client: Client) -> None:
        self._client = client

    def now_and_later(self) -> Iterator[tuple[Receiver, ...]]:
        """All of them: those of now, and again after each commit, at least. Ends with CoreUnavailable, or
        with CoreLacksMethod."""
        for reply in followed(self._client, FollowReceivers(), silence=_SILENCE):
            yield reply.receivers

    def for_ever(self, pause: Callable[[float], None]) -> Iterator[tuple[Receiver, ...] | None]:
        """The receivers as `now_and_later` gives them, and None after each break. Then it calls `pause` with
        seconds."""
        warned = False
        while True:
            seconds = _PAUSE
            try:
                for receivers in self.now_and_later():
                    warned = False
                    yield receivers
            except CoreUnavailable as error:
                (_log.debug if warned else _log.warning)("cannot follow the declared webhooks: %s", error)
                warned = True
                if isinstance(error, CoreLacksMethod):
                    seconds = _LONG_PAUSE
            yield None
            pause(seconds)

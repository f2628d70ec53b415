"""The receivers of webhooks that the core's configuration declares."""

import logging
from collections.abc import Callable, Iterator

from gateway_api.base.errors import CoreUnavailable
from gateway_api.daemon.calls import decoded
from gateway_api.wire.core.interface import CORE
from gateway_api.wire.core.receivers import FollowReceivers, Receiver, ReceiversReply
from gateway_api.wire.varlink.client import Client, Unreachable
from gateway_api.wire.varlink.protocol import ErrorReply

_log = logging.getLogger(__name__)

#: The core replies every 15 s at least.
_SILENCE = 40.0
_PAUSE = 0.2


class Receivers:
    def __init__(self, client: Client) -> None:
        self._client = client

    def now_and_later(self) -> Iterator[tuple[Receiver, ...]]:
        """All of them: those of now, and again after each commit, at least. Ends with CoreUnavailable."""
        try:
            for raw in self._client.stream(CORE.method(FollowReceivers), FollowReceivers(), silence=_SILENCE):
                yield decoded(ReceiversReply, raw).receivers
        except (Unreachable, ErrorReply) as error:
            raise CoreUnavailable(str(error)) from error

    def for_ever(self, pause: Callable[[float], None]) -> Iterator[tuple[Receiver, ...] | None]:
        """The same, and None after each break. Then it calls `pause` with seconds."""
        warned = False
        while True:
            try:
                for receivers in self.now_and_later():
                    warned = False
                    yield receivers
            except CoreUnavailable as error:
                (_log.debug if warned else _log.warning)("cannot follow the declared webhooks: %s", error)
                warned = True
            yield None
            pause(_PAUSE)

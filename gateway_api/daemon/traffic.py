"""The traffic of a session, as the core samples it."""

from collections.abc import Iterator

from gateway_api.base.errors import CoreUnavailable, NotFound
from gateway_api.daemon.calls import decoded, translation
from gateway_api.wire.core.interface import CORE
from gateway_api.wire.core.traffic import TrafficReply, WatchTraffic
from gateway_api.wire.varlink.client import Client, Unreachable
from gateway_api.wire.varlink.protocol import ErrorReply

#: Seconds: the core replies each second.
_SILENCE = 10.0


class Traffic:
    def __init__(self, client: Client) -> None:
        self._client = client

    def of(self, id: int) -> Iterator[TrafficReply]:
        """The traffic of a session, each second. Ends with NotFound when the session does, or with
        CoreUnavailable."""
        wanted = WatchTraffic(id)
        try:
            for raw in self._client.stream(CORE.method(WatchTraffic), wanted, silence=_SILENCE):
                yield decoded(TrafficReply, raw)
        except ErrorReply as error:
            translated = translation(error, wanted)
            if isinstance(translated, NotFound):
                raise translated from error
            raise CoreUnavailable(str(translated)) from error
        except Unreachable as error:
            raise CoreUnavailable(str(error)) from error

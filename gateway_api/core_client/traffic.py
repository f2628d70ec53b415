"""The traffic of a session, as the core samples it."""

from collections.abc import Iterator

from gateway_api.core_client.calls import followed
from gateway_api.wire.core.traffic import TrafficReply, WatchTraffic
from gateway_api.wire.varlink.client import Client

#: Seconds: the core replies each second.
_SILENCE = 10.0


class Traffic:
    def __init__(self, client: Client) -> None:
        self._client = client

    def of(self, id: int) -> Iterator[TrafficReply]:
        """The traffic of a session, each second. Ends with NotFound when the session does, or with
        CoreUnavailable."""
        return followed(self._client, WatchTraffic(id), silence=_SILENCE)

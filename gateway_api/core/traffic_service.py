"""The methods of the core's interface about the traffic of sessions."""

from collections.abc import Iterator

from gateway_api.core.clock import Clock
from gateway_api.core.gateways.ports import Gateway
from gateway_api.core.service import errors
from gateway_api.core.traffic import Talkers, Watches
from gateway_api.wire.core.interface import CORE
from gateway_api.wire.core.sessions import SessionNotFoundError
from gateway_api.wire.core.traffic import ListTalkers, TalkersReply, TrafficReply, WatchTraffic


class TrafficService:
    """Serves the traffic of one gateway's sessions."""

    def __init__(self, gateway: Gateway, clock: Clock) -> None:
        self._watches = Watches(gateway, clock)
        self._talkers = Talkers(gateway, clock)

    def watch_traffic(self, call: WatchTraffic) -> Iterator[TrafficReply]:
        with errors():
            yield from self._watches.watch(call.id)
        raise CORE.error(SessionNotFoundError(call.id))

    def list_talkers(self, call: ListTalkers) -> TalkersReply:
        with errors():
            return self._talkers.top(call.sort, call.limit)

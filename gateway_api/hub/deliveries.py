"""The delivery log of one webhook."""

from collections import deque

from msgspec.structs import replace

from gateway_api.wire.hub import Delivery, DeliveryResult

LOGGED = 100


class DeliveryLog:
    """The last entries. Not for several threads at once."""

    def __init__(self) -> None:
        self._entries: deque[Delivery] = deque(maxlen=LOGGED)

    def add(self, entry: Delivery) -> None:
        """What is dropped goes on in one entry: or a lane that is full would push out all that tells why."""
        last = self._entries[-1] if self._entries else None
        if last is not None and entry.result == last.result == DeliveryResult.DROPPED:
            self._entries[-1] = replace(last, dropped=last.dropped + entry.dropped)
        else:
            self._entries.append(entry)

    def newest_first(self) -> list[Delivery]:
        return list(reversed(self._entries))

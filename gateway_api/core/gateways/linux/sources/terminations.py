"""The requests to end sessions that a source has taken: the reason of their ends."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from gateway_api.base.errors import GatewayApiError
from gateway_api.core.records.clock import Clock

#: The reason of an end by request.
ADMIN_DISCONNECT = "admin_disconnect"
#: Seconds after a request in which the end of the session is its work.
_WORKS = 60.0


class Terminations:
    """The keys of sessions whose end was requested within the last minute. Any thread may call."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        #: Steady seconds of the last request.
        self._requested: dict[str, float] = {}

    def __contains__(self, key: str) -> bool:
        with self._lock:
            at = self._requested.get(key)
        return at is not None and self._clock.steady() - at < _WORKS

    @contextmanager
    def requesting(self, *keys: str) -> Iterator[None]:
        """Notes a request before the block makes it: another thread may see the end first. If the block
        fails, only earlier requests count."""
        now = self._clock.steady()
        with self._lock:
            earlier = {key: at for key, at in self._requested.items() if now - at < _WORKS}
            self._requested = earlier | dict.fromkeys(keys, now)
        try:
            yield
        except GatewayApiError:
            with self._lock:
                for key in keys:
                    self._requested.pop(key, None)
                    if key in earlier:
                        self._requested[key] = earlier[key]
            raise

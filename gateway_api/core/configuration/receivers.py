"""The receivers of webhooks that the configuration declares, and how a client follows them."""

import threading
from collections.abc import Callable, Iterator
from typing import Any

from gateway_api.wire.configuration import ConfiguredReceiver
from gateway_api.wire.contract import Method
from gateway_api.wire.core.receivers import Receiver, ReceiversReply

#: Waits without a commit until a reply comes nevertheless, and the seconds of one.
_WAITS, _WAIT = 15, 1.0


class ReceiversService:
    """Serves what `declared` returns: the receivers of the running configuration."""

    def __init__(self, declared: Callable[[], tuple[ConfiguredReceiver, ...]]) -> None:
        self._declared = declared
        self._changed = threading.Condition()
        self._commits = 0

    def committed(self, _: object) -> None:
        """Tells all followers, after a commit."""
        with self._changed:
            self._commits += 1
            self._changed.notify_all()

    def follow_receivers(self, _: Method[Any]) -> Iterator[ReceiversReply | None]:
        """None each second without a commit has the server look for clients that have left."""
        while True:
            commits = self._commits
            receivers = self._declared()
            yield ReceiversReply(tuple(Receiver(one.url, one.events, one.secret) for one in receivers))
            for _wait in range(_WAITS):
                if self._has_changed(commits):
                    break
                yield None

    def _has_changed(self, commits: int) -> bool:
        with self._changed:
            return self._changed.wait_for(lambda: self._commits > commits, _WAIT)

"""The receivers of webhooks that the configuration declares, and how a client follows them."""

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from gateway_api.base.receivers import check_url, key_of
from gateway_api.core.configuration import fields
from gateway_api.core.configuration.fields import Section
from gateway_api.wire.contract import Method
from gateway_api.wire.core.receivers import Receiver, ReceiversReply
from gateway_api.wire.core.sessions import EventName
from gateway_api.wire.events import WebhookEvent

#: Waits without a commit until a reply comes nevertheless, and the seconds of one.
_WAITS, _WAIT = 15, 1.0


def _url(text: str) -> str:
    check_url(text)
    if '"' in text:
        raise ValueError("must not hold a quotation mark, which ends a segment of a path")
    return text


def _secret(text: str) -> str:
    key_of(text)
    return text


@dataclass(frozen=True)
class DeclaredReceiver(Section):
    """A webhook that exists while the configuration has it. With a `secret`, deliveries are signed."""

    key = "url"
    url: str = fields.parsed(_url)
    events: tuple[str, ...] = fields.some_of(tuple(WebhookEvent), older=(EventName.RATE,))
    secret: str | None = fields.parsed(_secret, load_default=None, allow_none=True)


class ReceiversService:
    """Serves what `declared` returns: the receivers of the running configuration."""

    def __init__(self, declared: Callable[[], tuple[DeclaredReceiver, ...]]) -> None:
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

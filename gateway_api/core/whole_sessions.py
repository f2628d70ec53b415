"""The list of all sessions, each part of which is encoded once per change."""

from collections.abc import Iterator
from typing import Any

from gateway_api.base.disuse import Disuse
from gateway_api.core.orders import Snapshot
from gateway_api.core.paging import Listing, Text, text_of
from gateway_api.core.session import Session

#: Seconds that the text of a list is kept for the next request, and at most twice as many: 400 bytes for each
#: session.
_KEPT = 30.0


class WholeSessions:
    """Any thread may call. `kept` is in seconds."""

    def __init__(self, kept: float = _KEPT) -> None:
        #: By the id of a chunk, which the pair keeps from another chunk.
        self._texts: dict[int, tuple[list[Any], Text]] = {}
        self._disuse = Disuse(kept, self._forget)

    def listing(self, sessions: Snapshot[Session]) -> Listing:
        """The reply with these sessions."""
        return Listing("sessions", self._texts_of(sessions), len(sessions), {})

    def _texts_of(self, sessions: Snapshot[Session]) -> Iterator[Text]:
        known, texts = self._texts, {}
        for chunk in sessions.chunks:
            held = known.get(id(chunk)) or (chunk, text_of([session.summary for session in chunk]))
            texts[id(chunk)] = held
            yield held[1]
        self._texts = texts
        self._disuse.used()

    def _forget(self) -> None:
        self._texts = {}

"""The list of all sessions, each part of which is encoded once per change."""

import threading
from typing import Any

from gateway_api.core.orders import Snapshot
from gateway_api.core.paging import joined, text_of
from gateway_api.core.session import Session

#: Seconds that the text of a list is kept for the next request, and at most twice as many: 400 bytes for each
#: session.
_KEPT = 30.0


class WholeSessions:
    """Any thread may call. `kept` is in seconds."""

    def __init__(self, kept: float = _KEPT) -> None:
        self._kept = kept
        self._lock = threading.Lock()
        #: By the id of a chunk, which the pair keeps from another chunk.
        self._texts: dict[int, tuple[list[Any], bytes]] = {}
        self._is_used = False

    def reply(self, sessions: Snapshot[Session]) -> dict[str, Any]:
        """The fields of SessionsReply. Raises ReplyTooLarge."""
        known = self._texts
        texts = {
            id(chunk): known.get(id(chunk)) or (chunk, text_of([session.summary for session in chunk]))
            for chunk in sessions.chunks
        }
        with self._lock:
            if not self._texts and texts:
                self._forget_later()
            self._texts, self._is_used = texts, True
        listed, count = joined([text for _, text in texts.values()]), len(sessions)
        return {"sessions": listed, "count": count, "total": count, "next_cursor": None}

    def _forget_later(self) -> None:
        timer = threading.Timer(self._kept, self._forget)
        timer.daemon = True
        timer.start()

    def _forget(self) -> None:
        with self._lock:
            if self._is_used:
                self._is_used = False
                self._forget_later()
            else:
                self._texts = {}

"""The list of all sessions, each part of which is encoded once per change."""

from collections.abc import Iterator

from gateway_api.core.by_chunk import ByChunk
from gateway_api.core.orders import Snapshot
from gateway_api.core.paging import Listing, Text, fitting, text_of
from gateway_api.core.session import Session


class WholeSessions:
    """Any thread may call."""

    def __init__(self) -> None:
        #: 400 bytes for each session.
        self._texts: ByChunk[Session, Text] = ByChunk(_text)

    def listing(self, sessions: Snapshot[Session]) -> Listing:
        """The reply with these sessions."""
        return Listing("sessions", fitting(self._made(sessions)), len(sessions), {})

    def _made(self, sessions: Snapshot[Session]) -> Iterator[Text]:
        return (text for _, text in self._texts.of(sessions))


def _text(sessions: list[Session]) -> Text:
    return text_of([session.summary for session in sessions])

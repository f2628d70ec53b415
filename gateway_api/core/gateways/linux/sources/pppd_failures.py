"""The sign-ons that failed at pppd: only its log says so."""

from collections.abc import Iterator
from contextlib import suppress

from gateway_api.core.gateways.linux.sources.pppd import (
    UnreadableRecord,
    is_silence_of_radius,
    is_start,
    refusal_of,
    served_by,
)
from gateway_api.core.gateways.linux.sources.pppd_log import JournalTail, LoggedLine
from gateway_api.core.gateways.linux.sources.source import SourceFailure

#: Processes that are remembered for a RADIUS server that did not reply.
_MOST_WAITING = 1000


class PppdFailures:
    """The failures in a `tail` of the log. `name` is that of the source. One thread at a time may call."""

    def __init__(self, name: str, tail: JournalTail) -> None:
        self.name = name
        self._tail = tail
        self._waited: set[int] = set()

    def read(self) -> list[SourceFailure]:
        """The failures since the last call. Raises SourceUnavailable."""
        return [failure for line in self._tail.read() for failure in self._failure(line)]

    def _failure(self, line: LoggedLine) -> Iterator[SourceFailure]:
        if is_start(line.text):
            # An earlier process with this id may have waited.
            self._waited.discard(line.pid)
        elif is_silence_of_radius(line.text):
            if len(self._waited) >= _MOST_WAITING:
                self._waited.clear()
            self._waited.add(line.pid)
        refusal = refusal_of(line.text)
        if refusal is None:
            return
        has_waited = line.pid in self._waited
        self._waited.discard(line.pid)
        # Another pppd of this machine, which no pppoe-server started, has no subscriber.
        with suppress(UnreadableRecord):
            access = served_by(line.command.encode())
            yield SourceFailure(
                at=line.at,
                reason="radius_timeout" if has_waited else refusal.reason,
                username=refusal.username,
                mac_address=access.mac_address,
                access_interface=access.interface,
            )

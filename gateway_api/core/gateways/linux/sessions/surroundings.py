"""The surroundings of the sessions of the Linux gateway: the configuration and the data plane."""

from collections.abc import Sequence
from typing import Protocol

from gateway_api.core.gateways.linux.sessions.session import LinuxSession, SessionTerms
from gateway_api.core.gateways.linux.sources.source import SourceSession, SourceTraffic
from gateway_api.core.sessions.session import Counters
from gateway_api.wire.contract import Record


class SessionEnd(Record, frozen=True):
    """A session that has ended, as it was at its end."""

    session: LinuxSession
    reason: str
    traffic: Counters


class SessionSurroundings(Protocol):
    """The surroundings of the sessions: the configuration and the data plane. No method raises; none may call
    the tracker. Those that return None return at once; their calls are in the order of the changes."""

    def terms(self, listed: SourceSession) -> SessionTerms:
        """The terms that the configuration gives to a session that starts."""

    def baseline(self, listed: SourceSession) -> Counters:
        """The counters of the device of a session that starts. Only for a device that others may have used
        before: the access interface."""

    def traffic(self, session: LinuxSession, counted: SourceTraffic | None) -> Counters:
        """The traffic of a session that has ended, as far as it is known, with what its source counted: see
        `LinuxSession.traffic`."""

    def appeared(self, sessions: Sequence[LinuxSession]) -> None:
        """They are in the table now; those of an earlier life of the core come first, all at once."""

    def changed(self, sessions: Sequence[LinuxSession]) -> None:
        """They have other addresses, rates or steering now."""

    def gone(self, sessions: Sequence[LinuxSession]) -> None:
        """They are no longer in the table."""

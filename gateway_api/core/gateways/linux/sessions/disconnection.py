"""The end of sessions on request: a source is asked to end them, and watched until they are gone."""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence

from gateway_api.core.gateways.linux.sessions.lifecycle import Lifecycle
from gateway_api.core.gateways.linux.sessions.session import LinuxSession
from gateway_api.core.gateways.linux.sessions.source_watch import SourceWatch
from gateway_api.core.gateways.linux.sessions.surroundings import SessionEnd
from gateway_api.core.gateways.linux.sources.source import SourceRefused, SourceUnavailable
from gateway_api.core.records.clock import Clock

#: Seconds from a request to end a session to another one.
_AGAIN = 1.5
#: Seconds between two looks whether it is gone.
_LOOK = 0.1

_log = logging.getLogger(__name__)


class Disconnection:
    """Ends sessions of one source, on one thread; any thread may read how far it is. `failure` says why the
    source did not take a request; a client may see it."""

    def __init__(
        self,
        watch: SourceWatch,
        lifecycle: Lifecycle,
        ids: Iterable[int],
        clock: Clock,
        sleep: Callable[[float], None],
    ) -> None:
        self._watch = watch
        self._lifecycle = lifecycle
        self._ids = tuple(ids)
        self._clock = clock
        self._sleep = sleep
        #: The ids of sessions whose end the source was asked for.
        self._requested: set[int] = set()
        self._ends: Mapping[int, SessionEnd | None] = {}
        self.failure = ""

    def left(self) -> list[LinuxSession]:
        """The sessions that are still there."""
        found = map(self._lifecycle.sessions.get, self._ids)
        return [session for session in found if session is not None]

    def ends(self) -> Sequence[SessionEnd]:
        """The ends of the sessions that ended after they were looked for."""
        return [end for end in self._ends.values() if end is not None]

    def run(self, seconds: float) -> None:
        """Returns when they are gone, or after so many seconds; later if a call of the source lasts longer,
        or if there are many to request."""
        deadline = self._clock.steady() + seconds
        # A session that has ended by itself must not be reported as ended by this request.
        self._look()
        with self._lifecycle.awaiting(session.id for session in self.left()) as self._ends:
            self._request()
            again = self._clock.steady() + _AGAIN
            while self._clock.steady() < deadline and self._requested & {each.id for each in self.left()}:
                if self._clock.steady() >= again:
                    self._request()
                    again = deadline
                self._sleep(_LOOK)
                self._look()

    def _look(self) -> None:
        # A source that does not reply would take until its deadline each time.
        if self._watch.is_available:
            self._watch.poll()

    def _request(self) -> None:
        for session in self.left():
            if not self._watch.is_available:
                self.failure = f"{self._watch.name} does not reply"
                return
            try:
                self._watch.source.terminate(session.record.listed)
            except SourceUnavailable as error:
                # So would each further request.
                self.failure = f"{self._watch.name} does not reply"
                _log.error("cannot disconnect session %d: %s", session.id, error)
                return
            except SourceRefused as error:
                self.failure = f"{self._watch.name} refused the request"
                _log.error("cannot disconnect session %d: %s", session.id, error)
            else:
                self._requested.add(session.id)

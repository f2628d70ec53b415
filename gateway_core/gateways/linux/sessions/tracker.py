"""Follows the sources of sessions: each is polled by a thread of its own, and the table, the journal and the
disk follow what it lists. See `lifecycle` for what a restart of the core changes."""

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, wait
from contextlib import AbstractContextManager
from functools import partial

from gateway_contract.base.errors import StillConnected
from gateway_contract.configuration import Cgnat
from gateway_contract.core.sessions import EndedSession
from gateway_core.gateways.linux.daemons.source import Source, SourceEnd, SourceRefused, SourceUnavailable
from gateway_core.gateways.linux.sessions.hooks import HookSocket
from gateway_core.gateways.linux.sessions.lifecycle import Lifecycle, SessionEnd, SessionSurroundings
from gateway_core.gateways.linux.sessions.session import LinuxSession
from gateway_core.gateways.linux.sessions.session_store import SessionKey, SessionStore
from gateway_core.gateways.linux.sessions.source_watch import SourceWatch
from gateway_core.gateways.linux.threads import Crew
from gateway_core.records.clock import Clock, Expiry
from gateway_core.sessions.journal import Journal
from gateway_core.sessions.table import SessionTable

#: Seconds from a request to end a session to another one.
_AGAIN = 1.5
#: Seconds between two looks whether it is gone.
_LOOK = 0.1


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
        """Return the sessions that are still there."""
        found = map(self._lifecycle.sessions.get, self._ids)
        return [session for session in found if session is not None]

    def ends(self) -> Sequence[SessionEnd]:
        """Return the ends of the sessions that ended after they were looked for."""
        return [end for end in self._ends.values() if end is not None]

    def run(self, seconds: float) -> None:
        """Return when they are gone, or after so many seconds; later if a call of the source lasts longer, or
        if there are many to request."""
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


#: Seconds in which a session must be gone. The API waits 3 s for the reply.
_DISCONNECT = 2.5
#: The same where no client waits, and the seconds until another attempt, or until a silent source may reply.
_END, _PAUSE, _SILENT = 30.0, 60.0, 1.0

_log = logging.getLogger(__name__)


class NotDisconnected(StillConnected):
    """`sessions` are still there, as far as is known; `ends` are those of the others."""

    def __init__(self, sessions: Sequence[LinuxSession], ends: Sequence[SessionEnd], reason: str) -> None:
        self.sessions = sessions
        self.ends = ends
        super().__init__(len(sessions), [EndedSession.of(end.session.summary) for end in ends], reason)


class Tracker:
    """The sessions of all `sources`, whose names differ. Those of an earlier life of the core are in the
    table at once, stale until their source replies. Raises StepFailed. Any thread may call."""

    def __init__(
        self,
        sources: Iterable[Source],
        store: SessionStore,
        journal: Journal,
        clock: Clock,
        cgnat: Cgnat,
        surroundings: SessionSurroundings,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._clock = clock
        self._sleep = sleep
        self._surroundings = surroundings
        self._lifecycle = Lifecycle(store, journal, clock, cgnat, surroundings)
        self._watches: Mapping[str, SourceWatch] = {
            source.name: SourceWatch(source, self._lifecycle, clock) for source in sources
        }

    @property
    def sessions(self) -> SessionTable[LinuxSession]:
        return self._lifecycle.sessions

    @property
    def unavailable_sources(self) -> list[str]:
        """The names of the sources that do not reply, or did not yet. Their sessions are stale."""
        return [watch.name for watch in self._watches.values() if not watch.is_available]

    @property
    def watches(self) -> Iterable[SourceWatch]:
        """One for each source."""
        return self._watches.values()

    @property
    def incomplete_sources(self) -> set[str]:
        """The names of the sources that may have sessions which the table lacks: they do not reply, or the
        disk has no room for a session."""
        return {watch.name for watch in self._watches.values() if not watch.is_complete}

    def occupied(self) -> set[str]:
        """Return the access interfaces with sessions. Stale sessions count."""
        return {session.access_interface for session in self.sessions.all()}

    def run(self, hooks: HookSocket, crew: Crew) -> None:
        """Poll from time to time, and at each hook, until `hooks` is stopped. Sessions of an earlier life
        appear first; those of a source that there is no longer end."""
        if restored := list(self.sessions.all()):
            self._surroundings.appeared(restored)
        for name in self._lifecycle.sources() - self._watches.keys():
            self._lifecycle.end([SessionKey(name, key) for key in self._lifecycle.known(name)], _unknown)
        threads = [crew.start(watch.run, watch.name) for watch in self._watches.values()]
        try:
            while hooks.wait():
                self.trigger()
        finally:
            for watch in self._watches.values():
                watch.stop()
            for thread in threads:
                thread.join()

    def trigger(self) -> None:
        """Has each source polled within a moment. Call it when something may have changed."""
        for watch in self._watches.values():
            watch.trigger()

    def standstill(self) -> AbstractContextManager[object]:
        """In the block, no session starts or ends."""
        return self._lifecycle.standstill()

    def configure(self, cgnat: Cgnat) -> None:
        """Apply a new CGNAT configuration to all sessions."""
        self._lifecycle.configure(cgnat)

    def set_rates(
        self, id: int, down_bps: int, up_bps: int, expiry: Expiry | None = None
    ) -> tuple[LinuxSession, LinuxSession] | None:
        """Change the rates in the table and on disk, and return the session before and after. None for an
        unknown id. Raises StepFailed: then nothing is changed."""
        return self._lifecycle.set_rates(id, down_bps, up_bps, expiry)

    def disconnect(self, id: int) -> SessionEnd | None:
        """End a session, and return when it is gone. None if there is no such session, or if it has ended by
        itself. Raises NotDisconnected after 2.5 s, also while the source hangs."""
        ends = self.disconnect_many([id])
        return ends[0] if ends else None

    def disconnect_many(self, ids: Iterable[int], seconds: float = _DISCONNECT) -> list[SessionEnd]:
        """As `disconnect`, for all at once. After the wait, what is under way goes on."""
        attempts = [
            Disconnection(self._watches[name], self._lifecycle, of_source, self._clock, self._sleep)
            for name, of_source in self._by_source(ids).items()
        ]
        done, _ = wait([_on_a_thread(partial(attempt.run, seconds)) for attempt in attempts], seconds)
        for each in done:
            each.result()
        # An end that is under way has left the table, but is not among the ends yet.
        with self.standstill():
            left = [session for attempt in attempts for session in attempt.left()]
            ended = [end for attempt in attempts for end in attempt.ends()]
        if left:
            failures = (attempt.failure for attempt in attempts if attempt.failure)
            raise NotDisconnected(left, ended, next(failures, f"not gone after {seconds:g} s, may end later"))
        return ended

    def end(self, left: Callable[[], Iterable[int]]) -> None:
        """End the sessions whose ids are `left`, and try again until none is: a source may hang, or not have
        replied yet."""
        while ids := list(left()):
            replying = {watch.name for watch in self.watches if watch.is_available}
            found = filter(None, map(self.sessions.get, ids))
            heard = [session.id for session in found if session.key.source in replying]
            if not heard:
                self._sleep(_SILENT)
                continue
            try:
                self.disconnect_many(heard, _END)
            except NotDisconnected as error:
                _log.error("cannot end sessions, trying again in %g s: %s", _PAUSE, error)
                self._sleep(_PAUSE)

    def _by_source(self, ids: Iterable[int]) -> Mapping[str, list[int]]:
        found: dict[str, list[int]] = {}
        for id in ids:
            session = self.sessions.get(id)
            if session is not None and session.key.source in self._watches:
                found.setdefault(session.key.source, []).append(id)
        return found


def _on_a_thread(run: Callable[[], None]) -> "Future[None]":
    """A source that hangs delays the thread until the deadline of its call, and no caller."""
    done: Future[None] = Future()

    def work() -> None:
        try:
            run()
        except BaseException as error:
            done.set_exception(error)
            # To the log: the caller may not wait any more.
            raise
        done.set_result(None)

    threading.Thread(target=work, daemon=True).start()
    return done


def _unknown(keys: Sequence[str]) -> Mapping[str, SourceEnd]:
    return dict.fromkeys(keys, SourceEnd())

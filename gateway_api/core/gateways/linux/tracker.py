"""Follows the sources of sessions: each is polled by a thread of its own, and the table, the journal and the
disk follow what it lists. See `lifecycle` for what a restart of the core changes."""

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence

from gateway_api.base.errors import StillConnected
from gateway_api.core.clock import Clock
from gateway_api.core.configuration.sections import Cgnat
from gateway_api.core.gateways.linux.hooks import HookSocket
from gateway_api.core.gateways.linux.lifecycle import Lifecycle
from gateway_api.core.gateways.linux.session import LinuxSession
from gateway_api.core.gateways.linux.session_store import SessionKey, SessionStore
from gateway_api.core.gateways.linux.source_watch import SourceWatch
from gateway_api.core.gateways.linux.sources.source import (
    Source,
    SourceEnd,
    SourceRefused,
    SourceUnavailable,
)
from gateway_api.core.gateways.linux.surroundings import SessionEnd, SessionSurroundings
from gateway_api.core.journal import Journal
from gateway_api.core.sessions import SessionTable

#: Seconds after the request to end a session until it must be gone, and until it is requested again. The API
#: waits 3 s for the reply.
_DISCONNECT, _AGAIN = 2.5, 1.5
#: Seconds between two looks whether it is gone.
_LOOK = 0.1

_log = logging.getLogger(__name__)


class NotDisconnected(StillConnected):
    """`sessions` are still there, as far as is known; `ends` are those of the others."""

    def __init__(self, sessions: Sequence[LinuxSession], ends: Sequence[SessionEnd], reason: str) -> None:
        self.sessions = sessions
        self.ends = ends
        super().__init__(len(sessions), len(ends), reason)


class Tracker:
    """The sessions of all `sources`, whose names differ. Those of an earlier life of the core are in the
    table at once, stale until their source replies. Raises SessionStoreUnavailable. Any thread may call."""

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
        self._failure: BaseException | None = None

    @property
    def sessions(self) -> SessionTable[LinuxSession]:
        return self._lifecycle.sessions

    @property
    def unavailable_sources(self) -> list[str]:
        """The names of the sources that do not reply, or did not yet. Their sessions are stale."""
        return [watch.name for watch in self._watches.values() if not watch.is_available]

    def occupied(self) -> set[str] | None:
        """The access interfaces with sessions. None while a source does not reply."""
        if self.unavailable_sources:
            return None
        return {session.access_interface for session in self.sessions.all()}

    def run(self, hooks: HookSocket) -> None:
        """Polls from time to time, and at each hook, until `hooks` is stopped. Sessions of an earlier life
        appear first; those of a source that there is no longer end. Raises the error that ended a thread."""
        if restored := self.sessions.all():
            self._surroundings.appeared(restored)
        for name in self._lifecycle.sources() - self._watches.keys():
            self._lifecycle.end([SessionKey(name, key) for key in self._lifecycle.known(name)], _unknown)
        threads = [
            threading.Thread(target=self._watch, args=(watch, hooks), name=watch.name, daemon=True)
            for watch in self._watches.values()
        ]
        for thread in threads:
            thread.start()
        try:
            while hooks.wait():
                self.trigger()
        finally:
            for watch in self._watches.values():
                watch.stop()
            for thread in threads:
                thread.join()
        if self._failure is not None:
            raise self._failure

    def trigger(self, source: str | None = None) -> None:
        """Has a source, or each, polled within a moment. Call it when something may have changed."""
        for watch in self._watches.values() if source is None else [self._watches[source]]:
            watch.trigger()

    def poll(self) -> None:
        """Polls each source now, one after the other."""
        for watch in self._watches.values():
            watch.poll()

    def configure(self, cgnat: Cgnat) -> None:
        """Applies a new CGNAT configuration to all sessions."""
        self._lifecycle.configure(cgnat)

    def set_rates(self, id: int, down_bps: int, up_bps: int) -> tuple[LinuxSession, LinuxSession] | None:
        """Changes the rates in the table and on disk, and returns the session before and after. None for an
        unknown id. Raises SessionStoreUnavailable: then nothing is changed."""
        return self._lifecycle.set_rates(id, down_bps, up_bps)

    def disconnect(self, id: int) -> SessionEnd | None:
        """Ends a session, and returns when it is gone. None if there is no such session, or if it has ended
        by itself. Raises NotDisconnected. It lasts up to 2.5 s, and as long as the source's calls."""
        ends = self.disconnect_many([id])
        return ends[0] if ends else None

    def disconnect_many(self, ids: Iterable[int]) -> list[SessionEnd]:
        """As `disconnect`, for all at once: the deadline is the same."""
        ids = list(ids)
        # A session that has ended by itself must not be reported as ended by this request.
        self._poll_sources_of(self._present(ids))
        with self._lifecycle.awaiting(self._present_ids(ids)) as ends:
            requests = _Requests(self._watches)
            requests.send(self._present(ends))
            begun, is_again = self._clock.steady(), False
            while requests.awaited & self._present_ids(ends):
                passed = self._clock.steady() - begun
                if passed >= _DISCONNECT:
                    break
                if passed >= _AGAIN and not is_again:
                    requests.send(self._present(ends))
                    is_again = True
                self._sleep(_LOOK)
                self._poll_sources_of(self._present(ends))
            ended = [end for end in ends.values() if end is not None]
            if left := self._present(ends):
                raise NotDisconnected(left, ended, requests.failure or f"not gone after {_DISCONNECT:g} s")
            return ended

    def _present(self, ids: Iterable[int]) -> list[LinuxSession]:
        found = (session for id in ids if (session := self.sessions.get(id)) is not None)
        return [session for session in found if session.key.source in self._watches]

    def _present_ids(self, ids: Iterable[int]) -> set[int]:
        return {session.id for session in self._present(ids)}

    def _poll_sources_of(self, sessions: Iterable[LinuxSession]) -> None:
        """But not those that do not reply: that would take until their deadline each time."""
        for name in {session.key.source for session in sessions}:
            if self._watches[name].is_available:
                self._watches[name].poll()

    def _watch(self, watch: SourceWatch, hooks: HookSocket) -> None:
        try:
            watch.run()
        except BaseException as error:  # noqa: BLE001 - `run` raises it
            self._failure = error
            hooks.stop()


class _Requests:
    """Requests to end sessions. `awaited` has the ids of those that a source took. `failure` says why it did
    not take others; a client may see it."""

    def __init__(self, watches: Mapping[str, SourceWatch]) -> None:
        self._watches = watches
        self.awaited: set[int] = set()
        self.failure = ""

    def send(self, sessions: Iterable[LinuxSession]) -> None:
        silent = {name for name, watch in self._watches.items() if not watch.is_available}
        for session in sessions:
            name = session.key.source
            if name not in silent:
                try:
                    self._watches[name].source.terminate(session.record.listed)
                except SourceUnavailable as error:
                    # Each further request would take until the deadline of the source.
                    silent.add(name)
                    _log.error("cannot disconnect session %d: %s", session.id, error)
                except SourceRefused as error:
                    self.failure = f"{name} refused"
                    _log.error("cannot disconnect session %d: %s", session.id, error)
                else:
                    self.awaited.add(session.id)
            if name in silent:
                self.failure = f"{name} does not reply"


def _unknown(keys: Sequence[str]) -> Mapping[str, SourceEnd]:
    return dict.fromkeys(keys, SourceEnd())

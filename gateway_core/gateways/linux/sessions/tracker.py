"""Tracker of sessions. One thread for each source polls the source, and updates the table, the journal and
the disk with the sessions that the source lists. See `lifecycle` for the effects of a restart of the core."""

import errno
import logging
import os
import socket
import stat
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Self

from gateway_contract.base.errors import StillConnected
from gateway_contract.configuration import Cgnat, Configuration
from gateway_contract.core.sessions import EndedSession, SessionState, SessionType
from gateway_core.gateways.linux.daemons.source import (
    FailureSource,
    Source,
    SourceEnd,
    SourceFailure,
    SourceRefused,
    SourceSession,
    SourceUnavailable,
)
from gateway_core.gateways.linux.demux.admission import AccessVlan
from gateway_core.gateways.linux.sessions.lifecycle import Lifecycle, SessionEnd
from gateway_core.gateways.linux.sessions.provision import Provision
from gateway_core.gateways.linux.sessions.session import LinuxSession
from gateway_core.gateways.linux.sessions.session_store import SessionKey, SessionStore
from gateway_core.gateways.linux.threads import ThreadGroup
from gateway_core.records.clock import Clock
from gateway_core.sessions.journal import Journal
from gateway_core.sessions.table import SessionTable

#: Longest time between two polls of a source without a trigger.
_POLL_SECONDS = 5.0
#: Time from a trigger to the poll, which handles all triggers of this time.
_DEBOUNCE_SECONDS = 0.05
#: Time between two readings of failed sign-ons.
_SIGN_ON_READ_SECONDS = 5.0
#: Time from the request to end a session to the repeated request.
_REQUEST_REPEAT_SECONDS = 1.5
#: Time between two polls while sessions are expected to end.
_END_POLL_SECONDS = 0.1
#: Time limit for the end of a disconnected session. The API waits 3 s for the reply.
_MAX_DISCONNECT_SECONDS = 2.5
#: Time limit for the end of sessions when no client waits; time until the next attempt; and time between two
#: checks whether a silent source replies.
_MAX_END_SECONDS, _RETRY_SECONDS, _SILENT_RETRY_SECONDS = 30.0, 60.0, 1.0

#: Socket at which a datagram triggers a poll of all sources. The systemd units and `packaging/pppoe` use the
#: same path.
TRIGGER_SOCKET = Path("/run/gateway-core/trigger")

#: Maximum datagrams in one batch, and the pause after a batch: limit the processor time for endless senders.
#: The kernel queues some more datagrams and drops none: hooks wait, or leave the change to the next poll.
_MAX_DATAGRAMS_PER_BATCH, _HOOK_PAUSE_SECONDS = 1024, 0.02

_log = logging.getLogger(__name__)


@dataclass
class DisconnectionResult:
    """Intermediate result of the requests to end sessions of one source: the ids of the sessions whose end
    the source has accepted, the failures, and the ends by id. A client may see the text of the first
    failure."""

    accepted_ids: set[int] = field(default_factory=set)
    failures: list[str] = field(default_factory=list)
    ends: dict[int, SessionEnd] = field(default_factory=dict)


class SourceWatch:
    """Watch that polls one source. Sessions of the source are stale until the source replies. Thread-safe.

    `is_complete` is True while all sessions that the source lists are in the table. `silent_since` is the
    time of the first failed poll since the last reply, in epoch seconds; None while the source replies, and
    before the end of the first poll.
    """

    def __init__(self, source: Source, lifecycle: Lifecycle, clock: Clock) -> None:
        self.source = source
        self._lifecycle = lifecycle
        self._clock = clock
        self._poll_lock = threading.Lock()
        self._poll_count = 0
        self._listed_sessions: Mapping[str, SourceSession] = lifecycle.list_sessions_of(source.name)
        self.is_available = False
        self.is_complete = False
        self.silent_since: float | None = None
        self._triggered = threading.Event()
        self._stopped = threading.Event()

    @property
    def name(self) -> str:
        return self.source.name

    def trigger(self) -> None:
        """Request that `run` polls the source soon."""
        self._triggered.set()

    def stop(self) -> None:
        """Request that `run` returns."""
        self._stopped.set()
        self._triggered.set()

    def run(self) -> None:
        """Poll the source until `stop` is called: at once, after each trigger, and every _POLL_SECONDS."""
        while True:
            started_at = self._clock.steady()
            self.poll()
            ended_at = self._clock.steady()
            pause = 0.0
            if self._triggered.wait(_POLL_SECONDS):
                # Pause as long as the poll lasted: endless triggers must not use more than half of the time
                # of the core and of the source.
                pause = max(_DEBOUNCE_SECONDS, ended_at + (ended_at - started_at) - self._clock.steady())
            if self._stopped.wait(pause):
                return
            # Before the poll, which may miss a change that happens during the poll.
            self._triggered.clear()

    def poll(self) -> None:
        """Poll the source, and update the sessions. The poll starts after this call; simultaneous callers
        share a poll."""
        poll_count = self._poll_count
        with self._poll_lock:
            # A poll that was under way at the call has the number `poll_count`.
            if self._poll_count == poll_count:
                self._poll_count += 1
                try:
                    sessions = self._list_sessions()
                except SourceUnavailable as error:
                    self._record_failure(error)
                else:
                    self._update(sessions)

    def terminate(
        self, ids: Iterable[int], result: DisconnectionResult, seconds: float, sleep: Callable[[float], None]
    ) -> None:
        """Request the end of sessions, and wait until the sessions have ended, usually at most `seconds`. The
        wait may be longer if calls of the source last long. Record the outcome in `result`."""
        deadline = self._clock.steady() + seconds
        sessions = self._lifecycle.sessions
        # A session that has ended by itself must not be reported as ended by this request.
        self._poll_if_available()
        known_sessions = [session for id in ids if (session := sessions.get(id)) is not None]
        with self._lifecycle.collect_ends({session.id for session in known_sessions}, result.ends):
            self._send_requests(known_sessions, result)
            repeat_at = self._clock.steady() + _REQUEST_REPEAT_SECONDS
            while self._clock.steady() < deadline and any(map(sessions.get, result.accepted_ids)):
                if self._clock.steady() >= repeat_at:
                    self._send_requests(known_sessions, result)
                    repeat_at = deadline
                sleep(_END_POLL_SECONDS)
                self._poll_if_available()

    def _poll_if_available(self) -> None:
        # A poll of a silent source would last until the deadline of the call.
        if self.is_available:
            self.poll()

    def _send_requests(self, sessions: Sequence[LinuxSession], result: DisconnectionResult) -> None:
        for session in sessions:
            if self._lifecycle.sessions.get(session.id) is None:
                continue
            if not self.is_available:
                result.failures.append(f"{self.name} does not reply")
                return
            try:
                self.source.terminate(session.record.listed)
            except SourceUnavailable as error:
                # The other requests would fail too.
                _log.error("cannot disconnect session %d: %s", session.id, error)
                result.failures.append(f"{self.name} does not reply")
                return
            except SourceRefused as error:
                _log.error("cannot disconnect session %d: %s", session.id, error)
                result.failures.append(f"{self.name} refused the request")
            else:
                result.accepted_ids.add(session.id)

    def _list_sessions(self) -> dict[str, SourceSession]:
        sessions = self.source.list_sessions(self._listed_sessions)
        sessions_by_key = {session.key: session for session in sessions}
        if len(sessions_by_key) != len(sessions):
            raise SourceUnavailable("the source lists two sessions with the same key")
        return sessions_by_key

    def _update(self, sessions: dict[str, SourceSession]) -> None:
        former_sessions, name = self._listed_sessions, self.name
        ended_keys = [SessionKey(name, key) for key in former_sessions if key not in sessions]
        # A session that did not change is the same object.
        changed_or_new = [
            session for key, session in sessions.items() if former_sessions.get(key) is not session
        ]
        self._listed_sessions = {key: session for key, session in former_sessions.items() if key in sessions}
        self._lifecycle.end(ended_keys, self._explain_ends)
        if not self.is_available:
            self._record_reply()
        changed_sessions = {SessionKey(name, s.key): s for s in changed_or_new if s.key in former_sessions}
        self._lifecycle.follow(changed_sessions)
        new_sessions = {SessionKey(name, s.key): s for s in changed_or_new if s.key not in former_sessions}
        self.is_complete = not new_sessions or self._lifecycle.start(new_sessions)
        if not self.is_complete:
            sessions = {key: session for key, session in sessions.items() if key in former_sessions}
        self._listed_sessions = sessions
        self._lifecycle.write_unsaved()

    def _record_failure(self, error: SourceUnavailable) -> None:
        if self.silent_since is None:
            _log.error("%s does not reply, its sessions are stale: %s", self.name, error)
            self.silent_since = self._clock.wall()
        self.is_complete = False
        if self.is_available:
            self.is_available = False
            self._set_state(SessionState.STALE)

    def _record_reply(self) -> None:
        if self.silent_since is not None:
            _log.info("%s replies again", self.name)
        self.is_available, self.silent_since = True, None
        self._set_state(SessionState.ACTIVE)

    def _set_state(self, state: SessionState) -> None:
        self._lifecycle.set_state([SessionKey(self.name, key) for key in self._listed_sessions], state)

    def _explain_ends(self, keys: Sequence[str]) -> Mapping[str, SourceEnd]:
        try:
            return self.source.read_ends(keys)
        except SourceUnavailable as error:
            _log.warning(
                "%d sessions of %s have ended, their end reasons are unknown: %s", len(keys), self.name, error
            )
            return dict.fromkeys(keys, SourceEnd())


@dataclass
class SignOnWatch:
    """Watch that adds failed sign-ons to the journal. If `failures` is None, the watch does nothing.
    Thread-safe."""

    configuration: Configuration
    failures: FailureSource | None
    journal: Journal
    _has_warned: bool = False

    def configure(self, configuration: Configuration) -> None:
        """Use the trunks of a new configuration to find the VLANs of access interfaces."""
        self.configuration = configuration

    def run(self) -> None:
        """Read failed sign-ons every _SIGN_ON_READ_SECONDS until the process ends."""
        while self.failures is not None:
            self.read(self.failures)
            time.sleep(_SIGN_ON_READ_SECONDS)

    def read(self, failures: FailureSource) -> None:
        """Read new failed sign-ons, and add them to the journal. A failure to read is logged."""
        try:
            new_failures = failures.read()
        except SourceUnavailable as error:
            (_log.debug if self._has_warned else _log.warning)("cannot read failed sign-ons: %s", error)
            self._has_warned = True
            return
        self._has_warned = False
        for failure in new_failures:
            self._add(failures.name, failure)

    def _add(self, source: str, failure: SourceFailure) -> None:
        vlan = AccessVlan.parse(failure.access_interface, self.configuration.interfaces.trunks)
        self.journal.add_failed_sign_on(
            failure.reason,
            failure.at,
            failure,
            type=SessionType.PPPOE,
            outer_vlan_id=None if vlan is None else vlan.outer_vlan_id,
            inner_vlan_id=None if vlan is None else vlan.vlan_id,
            source=source,
        )


class HookSocket:
    """Unix datagram socket for the hooks of daemons. Every user of the machine may send, because dnsmasq runs
    as another user. The content of a datagram is ignored. Raises OSError if the socket cannot be created."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._socket = _bind(path)
        self._stopped = threading.Event()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()
        self._path.unlink(missing_ok=True)

    def wait(self) -> bool:
        """Wait until a hook has sent a datagram. Return False after `stop`."""
        if self._stopped.wait(_HOOK_PAUSE_SECONDS):
            return False
        self._socket.recv(1)
        for _ in range(_MAX_DATAGRAMS_PER_BATCH):
            try:
                self._socket.recv(1, socket.MSG_DONTWAIT)
            except BlockingIOError:
                break
        return not self._stopped.is_set()

    def stop(self) -> None:
        """Request that `wait` returns False. Thread-safe."""
        self._stopped.set()
        self._socket.shutdown(socket.SHUT_RD)


def _bind(path: Path) -> socket.socket:
    """Bind a datagram socket to a path, and replace the socket of an earlier process. Raises FileExistsError
    if a file at the path is not a socket."""
    if path.exists() and not stat.S_ISSOCK(path.stat().st_mode):
        raise FileExistsError(errno.EEXIST, "is there and is no socket", str(path))
    # The socket is renamed when it is ready: a hook must always find a socket.
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    receiver = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        receiver.bind(str(draft))
        # Not by the umask, which all threads share.
        draft.chmod(0o666)
        draft.rename(path)
    except BaseException:
        receiver.close()
        draft.unlink(missing_ok=True)
        raise
    return receiver


class Tracker:
    """Tracker of the sessions of all `sources`, which have different names. Sessions restored at the start
    are stale until the source of the session replies. Thread-safe. Raises StepFailed if the stored sessions
    cannot be read."""

    def __init__(
        self,
        sources: Iterable[Source],
        store: SessionStore,
        journal: Journal,
        clock: Clock,
        cgnat: Cgnat,
        provision: Provision,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._sleep = sleep
        self._provision = provision
        self._lifecycle = Lifecycle(store, journal, clock, cgnat, provision)
        self._watches: Mapping[str, SourceWatch] = {
            source.name: SourceWatch(source, self._lifecycle, clock) for source in sources
        }
        self.block_changes = self._lifecycle.block_changes
        self.configure = self._lifecycle.configure
        self.set_rates = self._lifecycle.set_rates

    @property
    def sessions(self) -> SessionTable[LinuxSession]:
        return self._lifecycle.sessions

    @property
    def unavailable_sources(self) -> list[str]:
        """Names of the sources that do not reply, or have not replied yet. The sessions of these sources are
        stale."""
        return [watch.name for watch in self._watches.values() if not watch.is_available]

    @property
    def watches(self) -> Iterable[SourceWatch]:
        return self._watches.values()

    @property
    def incomplete_sources(self) -> set[str]:
        """Names of the sources that may have sessions outside the table, because the source does not reply or
        because a session could not be stored on disk."""
        return {watch.name for watch in self._watches.values() if not watch.is_complete}

    def run(self, hooks: HookSocket, thread_group: ThreadGroup) -> None:
        """Poll the sources, regularly and after each datagram of a hook, until `hooks` is stopped. Before the
        first poll, add the restored sessions to the provision, and end the sessions of sources that are no
        longer used."""
        if restored := list(self.sessions.all()):
            self._provision.add_sessions(restored)
        self._lifecycle.end_sessions_without_source(self._watches)
        threads = [thread_group.start(watch.run, watch.name) for watch in self._watches.values()]
        try:
            while hooks.wait():
                self.trigger()
        finally:
            for watch in self._watches.values():
                watch.stop()
            for thread in threads:
                thread.join()

    def trigger(self) -> None:
        """Request that all sources are polled soon."""
        for watch in self._watches.values():
            watch.trigger()

    def disconnect(self, ids: Iterable[int], seconds: float = _MAX_DISCONNECT_SECONDS) -> list[SessionEnd]:
        """End sessions, all at the same time, and wait until the sessions have ended. Return the end of each
        session, by ascending id, without the sessions that had ended before the call. Raises StillConnected
        if a session is still connected after `seconds`, also if a source hangs; pending requests then
        continue."""
        groups = self._group_by_source(ids)
        results = {name: DisconnectionResult() for name in groups}
        calls = [
            partial(self._watches[name].terminate, group, results[name], seconds, self._sleep)
            for name, group in groups.items()
        ]
        finished_futures, _ = wait(map(_start_thread, calls), seconds)
        for future in finished_futures:
            future.result()
        # Wait for ends in progress: their sessions have left the table, but are not in `ends` yet.
        with self.block_changes():
            remaining_sessions = [self.sessions.get(id) for group in groups.values() for id in group]
            remaining_count = sum(session is not None for session in remaining_sessions)
            ends = [end for result in results.values() for end in result.ends.values()]
        sorted_ends = sorted(ends, key=lambda end: end.session.id)
        if remaining_count:
            failures = (failure for result in results.values() for failure in result.failures)
            reason = next(failures, f"not gone after {seconds:g} s, may end later")
            ended_records = [EndedSession.of(end.session.summary) for end in sorted_ends]
            raise StillConnected(remaining_count, ended_records, reason)
        return sorted_ends

    def end(self, find_remaining_sessions: Callable[[], Iterable[int]]) -> None:
        """End the sessions that `find_remaining_sessions` returns, and try again until
        `find_remaining_sessions` returns no id. Sessions of a source that does not reply are ended when the
        source replies."""
        while ids := list(find_remaining_sessions()):
            replying = {watch.name for watch in self.watches if watch.is_available}
            sessions = filter(None, map(self.sessions.get, ids))
            reachable = [session.id for session in sessions if session.key.source in replying]
            if not reachable:
                self._sleep(_SILENT_RETRY_SECONDS)
                continue
            try:
                self.disconnect(reachable, _MAX_END_SECONDS)
            except StillConnected as error:
                _log.error(
                    "cannot end the sessions of a commit, trying again in %g s: %s", _RETRY_SECONDS, error
                )
                self._sleep(_RETRY_SECONDS)

    def _group_by_source(self, ids: Iterable[int]) -> Mapping[str, list[int]]:
        groups: dict[str, list[int]] = {}
        for id in ids:
            session = self.sessions.get(id)
            if session is not None and session.key.source in self._watches:
                groups.setdefault(session.key.source, []).append(id)
        return groups


def _start_thread(run: Callable[[], None]) -> "Future[None]":
    """Run a function on a daemon thread, and return a future that is done when the function has ended. A
    source that hangs must delay neither the caller nor the end of the process."""
    future: Future[None] = Future()

    def work() -> None:
        try:
            run()
        except BaseException as error:
            future.set_exception(error)
            # Raised also for the log, because the caller may no longer wait.
            raise
        future.set_result(None)

    threading.Thread(target=work, daemon=True).start()
    return future

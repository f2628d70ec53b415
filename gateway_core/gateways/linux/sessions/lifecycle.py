"""The starts and ends of sessions, in the order that makes each of them an event once.

A start: the id is claimed on disk, the session comes into the table, session_up is in the journal, and disk
says that it is announced. An end: the session leaves the table, session_down is in the journal, and the id is
released on disk. When the core is killed, and another one starts on the same disk:

    before the id is claimed      the session is new: one session_up
    after it, before session_up   not announced: session_up if it is still listed, else session_up and _down
    before disk says announced    session_up comes AGAIN, with the same id
    after that                    no event while it is listed; session_down from the record when it is not
    before session_down           one session_down
    before the id is released     session_down comes AGAIN, with the same id
    after that                    no event

So each start and each end is an event at least once. The second event of a kind with the same id is the
repetition. While the disk fails, no session starts, ends are events at once, and what is missing on disk is
written later. After damage of the disk, the sessions that are up are new ones; those that ended meanwhile
have no event. The journal itself is memory: what no client has read when the core is killed is lost.

No session outlives a boot of the machine: those of a former one have ended with it, for the reason
`nas_reboot`, before any other session starts. Where the lease of a subscriber goes on, that is a new session.
"""

import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from operator import itemgetter
from typing import Protocol

import msgspec
from msgspec.structs import replace

from gateway_contract.base.errors import StepFailed
from gateway_contract.configuration import Cgnat
from gateway_contract.contract import Record
from gateway_contract.core.sessions import SessionState
from gateway_core.gateways.linux.daemons.source import NAS_REBOOT, SourceEnd, SourceSession, SourceTraffic
from gateway_core.gateways.linux.entries import UnreadableEntry
from gateway_core.gateways.linux.sessions.session import LinuxSession, SessionRecord, SessionTerms
from gateway_core.gateways.linux.sessions.session_store import (
    GIVE_IDS,
    STORE,
    STORED_SESSIONS,
    SessionKey,
    SessionStore,
    StoredSession,
)
from gateway_core.records.clock import Clock, Expiry
from gateway_core.sessions.journal import Journal
from gateway_core.sessions.session import Counters
from gateway_core.sessions.table import SessionTable

#: Ends for which a source is called once. The first ones of many must not wait for the last.
_MAX_ENDS_PER_CALL = 128

#: What a source tells of the ends of sessions, by its keys.
Ends = Callable[[Sequence[str]], Mapping[str, SourceEnd]]

_log = logging.getLogger(__name__)
_record = msgspec.json.Decoder(SessionRecord)


class SessionEnd(Record, frozen=True):
    """A session that has ended, as it was at its end."""

    session: LinuxSession
    reason: str
    traffic: Counters


class SessionSurroundings(Protocol):
    """The surroundings of the sessions: the configuration and the data plane. No method raises; none may call
    the tracker. Those that return None return at once; their calls are in the order of the changes."""

    def terms(self, listed: SourceSession) -> SessionTerms:
        """Return the terms that the configuration gives to a session that starts."""

    def baseline(self, listed: SourceSession) -> Counters:
        """Return the counters of the device of a session that starts. Only for a device that others may have
        used before: the access interface."""

    def traffic(self, session: LinuxSession, counted: SourceTraffic | None) -> Counters:
        """Return the traffic of a session that has ended, as far as it is known, with what its source
        counted: see `LinuxSession.traffic`."""

    def appeared(self, sessions: Sequence[LinuxSession]) -> None:
        """They are in the table now; those of an earlier life of the core come first, all at once."""

    def changed(self, sessions: Sequence[LinuxSession]) -> None:
        """They have other addresses, rates or steering now."""

    def gone(self, sessions: Sequence[LinuxSession]) -> None:
        """They are no longer in the table."""


class Lifecycle:
    """The sessions of all sources in `sessions`, those of an earlier life as stale ones. Any thread may call,
    but one at a time for the sessions of one source. Raises StepFailed."""

    def __init__(
        self,
        store: SessionStore,
        journal: Journal,
        clock: Clock,
        cgnat: Cgnat,
        surroundings: SessionSurroundings,
    ) -> None:
        self._store = store
        self._journal = journal
        self._clock = clock
        self._surroundings = surroundings
        self.sessions: SessionTable[LinuxSession] = SessionTable(cgnat)
        #: Around a change of the table, and its event and its place on disk: ids in the table ascend. The
        #: table's own lock is held for a moment only, so that lists do not wait for the disk.
        self._lock = threading.RLock()
        self._ids: dict[SessionKey, int] = {}
        #: Those of an earlier life whose start was not announced, as far as is known.
        self._unannounced: set[SessionKey] = set()
        # What is not on disk yet.
        self._announced: set[SessionKey] = set()
        self._records: dict[SessionKey, bytes] = {}
        self._released: set[SessionKey] = set()
        #: Keys that may have an id on disk, and no session.
        self._unclaimed: set[SessionKey] = set()
        #: What was logged and is not over, by the step.
        self._failures: dict[str, StepFailed] = {}
        self._awaited: list[dict[int, SessionEnd | None]] = []
        self._restore()
        self._end_former()

    def known(self, source: str) -> dict[str, SourceSession]:
        """Return the sessions of a source, as it listed them last."""
        with self.sessions.lock:
            return {
                session.key.name: session.record.listed
                for session in self.sessions.all()
                if session.key.source == source
            }

    def sources(self) -> set[str]:
        """Return the names of the sources that have sessions."""
        with self._lock:
            return {key.source for key in self._ids}

    def start(self, new: Mapping[SessionKey, SourceSession]) -> bool:
        """Begin sessions. False if the disk failed: then none began."""
        records = {key: self._begun(listed) for key, listed in new.items()}
        with self._lock:
            # First, what is released: a key that comes back would get its old id.
            if not self.settle():
                return False
            try:
                encoded = {key: msgspec.json.encode(record) for key, record in records.items()}
                ids = self._store.claim(encoded)
            except StepFailed as error:
                # They may be on disk. Later, their ids would be below those of other sessions.
                self._unclaimed |= records.keys()
                self._failed(error)
                return False
            self._worked(GIVE_IDS)
            sessions = [self._session(ids[key], key, record) for key, record in records.items()]
            with self.sessions.lock:
                for session in sessions:
                    self.sessions.add(session)
            self._ids |= ids
            self._surroundings.appeared(sessions)
            self._announce(sessions)
            self.settle()
        return True

    def end(self, keys: Sequence[SessionKey], ends: Ends) -> None:
        """End sessions of one source."""
        for first in range(0, len(keys), _MAX_ENDS_PER_CALL):
            batch = keys[first : first + _MAX_ENDS_PER_CALL]
            told = ends([key.name for key in batch])
            self._end({key: told[key.name] for key in batch})

    def follow(self, changed: Mapping[SessionKey, SourceSession]) -> None:
        """Change sessions as their source lists them now. That is no event."""
        with self._lock:
            found = []
            for key, listed in changed.items():
                session = self.sessions.get(self._ids[key])
                assert session is not None  # noqa: S101 - only `_end` removes it
                record = session.record.following(listed)
                if record is not session.record:
                    found.append(self._session(session.id, key, record, session.summary.state))
            self._replace(found)
            self._records |= {session.key: msgspec.json.encode(session.record) for session in found}
            self.settle()

    def set_rates(
        self, id: int, down_bps: int, up_bps: int, expiry: Expiry | None = None
    ) -> tuple[LinuxSession, LinuxSession] | None:
        """Return the session before and after. None for an unknown id. If the disk fails, nothing is
        changed."""
        with self._lock:
            before = self.sessions.get(id)
            if before is None:
                return None
            record = before.record.shaped(down_bps, up_bps, expiry)
            self._records[before.key] = msgspec.json.encode(record)
            if not self.settle():
                # It is unknown what is on disk now.
                self._records[before.key] = msgspec.json.encode(before.record)
                raise self._failures[STORE]
            after = self._session(id, before.key, record, before.summary.state)
            self._replace([after])
            return before, after

    def set_state(self, keys: Iterable[SessionKey], state: SessionState) -> None:
        """Change the state of sessions. Those that are active are announced, if it was not done before."""
        with self._lock:
            with self.sessions.lock:
                sessions = [self.sessions.get(self._ids[key]) for key in keys]
                for session in sessions:
                    if session is not None and session.summary.state != state:
                        self.sessions.replace(session.in_state(state))
            if state is SessionState.ACTIVE:
                self._announce(
                    [session for session in sessions if session and session.key in self._unannounced]
                )
                self.settle()

    def configure(self, cgnat: Cgnat) -> None:
        """Apply a new CGNAT configuration to all sessions."""
        with self._lock:
            with self.sessions.lock:
                before = self.sessions.all()
                self.sessions.configure(cgnat)
                after = self.sessions.all()
            pairs = zip(before, after, strict=True)
            if changed := [new for old, new in pairs if new.vrf_steered != old.vrf_steered]:
                self._surroundings.changed(changed)

    @contextmanager
    def awaiting(self, ids: Iterable[int]) -> Iterator[Mapping[int, SessionEnd | None]]:
        """The ends of sessions by id, which come while the caller waits."""
        awaited: dict[int, SessionEnd | None] = dict.fromkeys(ids)
        with self._lock:
            self._awaited.append(awaited)
        try:
            yield awaited
        finally:
            with self._lock:
                self._awaited = [held for held in self._awaited if held is not awaited]

    def standstill(self) -> AbstractContextManager[object]:
        """In the block, no session starts, ends or changes, but by the thread of the block."""
        return self._lock

    def settle(self) -> bool:
        """Write what is not on disk yet. False if the disk failed."""
        with self._lock:
            released = self._released | self._unclaimed
            if not (self._announced or self._records or released):
                return True
            try:
                self._store.settle(announced=self._announced, records=self._records, released=released)
            except StepFailed as error:
                self._failed(error)
                return False
            self._announced, self._records = set(), {}
            self._released, self._unclaimed = set(), set()
            self._worked(STORE)
            return True

    def _failed(self, error: StepFailed) -> None:
        if error.step not in self._failures:
            _log.error("cannot %s: %s; trying again", error.step, error.reason)
        self._failures[error.step] = error

    def _worked(self, step: str) -> None:
        if self._failures.pop(step, None) is not None:
            _log.info("the core can %s again", step)

    def _restore(self) -> None:
        known = self._store.known()
        restored = STORED_SESSIONS.read(
            known.items(), self._restore_session, name=itemgetter(0), place="records"
        )
        for session in restored:
            self.sessions.add(session)
            self._ids[session.key] = session.id
            if not known[session.key].announced:
                self._unannounced.add(session.key)
        self._unclaimed |= known.keys() - self._ids.keys()

    def _restore_session(self, item: tuple[SessionKey, StoredSession]) -> LinuxSession:
        """Return a session of an earlier life, stale. Raises UnreadableEntry."""
        key, row = item
        try:
            record = _record.decode(row.record)
            if record.boot_id is None:
                record = replace(record, boot_id=self._clock.boot_id)
                self._records[key] = msgspec.json.encode(record)
            return self._session(row.id, key, record, SessionState.STALE)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            # Of another version, which a downgrade left; or the disk has damaged it.
            raise UnreadableEntry(f"the record of session {row.id}: {error}") from error

    def _end_former(self) -> None:
        this = self._clock.boot_id
        if former := [each.key for each in self.sessions.all() if each.record.boot_id != this]:
            _log.info("%d sessions have ended with the reboot of the machine", len(former))
            self._end(dict.fromkeys(former, SourceEnd(NAS_REBOOT)), self._clock.boot_time())

    def _begun(self, listed: SourceSession) -> SessionRecord:
        terms = self._surroundings.terms(listed)
        if listed.interface != listed.access_interface:
            return SessionRecord.new(listed, terms, boot_id=self._clock.boot_id)
        return SessionRecord.new(listed, terms, self._surroundings.baseline(listed), self._clock.boot_id)

    def _session(
        self, id: int, key: SessionKey, record: SessionRecord, state: SessionState = SessionState.ACTIVE
    ) -> LinuxSession:
        return LinuxSession.of(id, key, record, state, self.sessions.steering(record.listed.ip_address))

    def _replace(self, sessions: Sequence[LinuxSession]) -> None:
        if sessions:
            with self.sessions.lock:
                for session in sessions:
                    self.sessions.replace(session)
            self._surroundings.changed(sessions)

    def _announce(self, sessions: Iterable[LinuxSession]) -> None:
        now = self._clock.wall()
        for session in sessions:
            self._journal.add_session_up(session.summary, now)
            self._unannounced.discard(session.key)
            self._announced.add(session.key)

    def _end(self, told: Mapping[SessionKey, SourceEnd], at: float | None = None) -> None:
        """Now, or `at` a time in epoch seconds."""
        with self._lock:
            with self.sessions.lock:
                removed = [self.sessions.remove(self._ids.pop(key)) for key in told]
            ends = [
                SessionEnd(session, end.reason, self._surroundings.traffic(session, end.traffic))
                for session, end in zip(removed, told.values(), strict=True)
            ]
            self._surroundings.gone([end.session for end in ends])
            self._announce(end.session for end in ends if end.session.key in self._unannounced)
            at = self._clock.wall() if at is None else at
            for end in ends:
                self._journal.add_session_down(end.session.summary, end.reason, at, end.traffic)
                self._forget(end)
            self.settle()

    def _forget(self, end: SessionEnd) -> None:
        self._released.add(end.session.key)
        for awaited in self._awaited:
            if end.session.id in awaited:
                awaited[end.session.id] = end

"""Starts and ends of sessions, in an order that reports each start and end in at least one event.

At a start, the core claims the id on disk, adds the session to the table, adds session_up to the journal, and
marks the session as announced on disk. At an end, the core removes the session from the table, adds
session_down to the journal, and releases the id on disk. If the core is killed, the restarted core adds these
events:

killed before                  after the restart
the id is claimed              the session is new: one session_up
session_up                     session_up if the session is still listed, else session_up and session_down
the disk says announced        session_up AGAIN, with the same id
session_down                   no event while the session is listed, then one session_down
the id is released             session_down AGAIN, with the same id
any later moment               no event

A second event of the same kind with the same id is a repetition. While the disk fails, no session starts; an
end adds its event at once, and the missing changes are written to disk later. If the data on disk is damaged,
the sessions that are up become new sessions, and sessions that ended meanwhile have no event. The journal is
in memory: events that no client has read are lost when the core is killed.

No session outlives a boot of the machine. At the start, sessions of a former boot end for the reason
`nas_reboot`, before any other session starts. A subscriber whose DHCP lease goes on has a new session.
"""

import logging
import threading
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import AbstractContextManager, contextmanager
from operator import itemgetter

import msgspec
from msgspec.structs import replace

from gateway_contract.base.errors import StepFailed
from gateway_contract.configuration import Cgnat
from gateway_contract.contract import Record
from gateway_contract.core.sessions import SessionState
from gateway_core.gateways.linux.daemons.source import NAS_REBOOT, SourceEnd, SourceSession
from gateway_core.gateways.linux.entries import UnreadableEntry
from gateway_core.gateways.linux.sessions.provision import Provision
from gateway_core.gateways.linux.sessions.session import NO_COUNTERS, LinuxSession, SessionRecord
from gateway_core.gateways.linux.sessions.session_store import (
    GIVE_IDS_STEP,
    STORE_STEP,
    STORED_SESSION_READER,
    SessionKey,
    SessionStore,
    StoredSession,
)
from gateway_core.records.clock import Clock, Expiry
from gateway_core.sessions.journal import Journal
from gateway_core.sessions.session import Counters
from gateway_core.sessions.table import SessionTable

#: Maximum number of session ends in one call of a source. The first ends of many must not wait for the last.
_MAX_ENDS_PER_CALL = 128

#: Function that returns the reason and traffic of session ends, as known to the source, by the source's keys.
ExplainEnds = Callable[[Sequence[str]], Mapping[str, SourceEnd]]

_log = logging.getLogger(__name__)
_record_decoder = msgspec.json.Decoder(SessionRecord)


class SessionEnd(Record, frozen=True):
    """End of a session: the last state of the session, the reason, and the total traffic."""

    session: LinuxSession
    reason: str
    traffic: Counters


class Lifecycle:
    """Lifecycle of the sessions of all sources, in the table `sessions`. Sessions restored at the start are
    stale.

    Thread-safe, but only one thread at a time may change the sessions of one source. Raises StepFailed if the
    stored sessions cannot be read.
    """

    def __init__(
        self, store: SessionStore, journal: Journal, clock: Clock, cgnat: Cgnat, provision: Provision
    ) -> None:
        self._store = store
        self._journal = journal
        self._clock = clock
        self._provision = provision
        self.sessions: SessionTable[LinuxSession] = SessionTable(cgnat)
        #: Held during a change of the table, its event and its record on disk, so that ids in the table
        #: ascend. The table's own lock is held only briefly: lists do not wait for the disk.
        self._lock = threading.RLock()
        self._ids: dict[SessionKey, int] = {}
        #: Restored sessions that are not marked as announced on disk.
        self._unannounced: set[SessionKey] = set()
        #: Changes that are not on disk yet: sessions to mark as announced, new records, and ids to release.
        #: The keys to release may include keys that have an id on disk, but no session.
        self._unsaved_announced: set[SessionKey] = set()
        self._unsaved_records: dict[SessionKey, bytes] = {}
        self._unsaved_released: set[SessionKey] = set()
        #: Current failures by step, which were logged.
        self._failures: dict[str, StepFailed] = {}
        self._end_collectors: list[tuple[Set[int], dict[int, SessionEnd]]] = []
        self._restore()
        self._end_sessions_of_former_boots()

    def list_sessions_of(self, source: str) -> dict[str, SourceSession]:
        """Return the sessions of a source, as listed by the source at the last successful poll. The keys of
        the map are the source's own names of the sessions."""
        with self.sessions.lock:
            return {
                session.key.name: session.record.listed
                for session in self.sessions.all()
                if session.key.source == source
            }

    def end_sessions_without_source(self, source_names: Container[str]) -> None:
        """End the sessions of all sources that are not in `source_names`, for an unknown reason."""
        if keys := [key for key in self._ids if key.source not in source_names]:
            self._end(dict.fromkeys(keys, SourceEnd()))

    def start(self, new_sessions: Mapping[SessionKey, SourceSession]) -> bool:
        """Start sessions. Return False if the disk failed; no session was then started."""
        records = {key: self._make_record(source_session) for key, source_session in new_sessions.items()}
        with self._lock:
            # Ids are released first: otherwise a key that returns would get its old id.
            if not self.write_unsaved():
                return False
            try:
                encoded_records = {key: msgspec.json.encode(record) for key, record in records.items()}
                ids = self._store.claim(encoded_records)
            except StepFailed as error:
                # The new ids may be on disk. Used later, they would be lower than the ids of newer
                # sessions.
                self._unsaved_released |= records.keys()
                self._record_failure(error)
                return False
            self._record_success(GIVE_IDS_STEP)
            sessions = [self._make_session(ids[key], key, record) for key, record in records.items()]
            with self.sessions.lock:
                for session in sessions:
                    self.sessions.add(session)
            self._ids |= ids
            self._provision.add_sessions(sessions)
            self._announce(sessions)
            self.write_unsaved()
        return True

    def end(self, keys: Sequence[SessionKey], explain_ends: ExplainEnds) -> None:
        """End sessions of one source. `explain_ends` returns the reason and the traffic of each end, by the
        source's own names of the sessions."""
        for first in range(0, len(keys), _MAX_ENDS_PER_CALL):
            batch = keys[first : first + _MAX_ENDS_PER_CALL]
            end_of_name = explain_ends([key.name for key in batch])
            self._end({key: end_of_name[key.name] for key in batch})

    def follow(self, changed_sessions: Mapping[SessionKey, SourceSession]) -> None:
        """Update sessions with the latest data of the source. No event is added to the journal."""
        with self._lock:
            updated_sessions = []
            for key, source_session in changed_sessions.items():
                session = self.sessions.get(self._ids[key])
                assert session is not None  # noqa: S101 - only `_end` removes it
                record = session.record.follow(source_session)
                if record is not session.record:
                    updated_sessions.append(
                        self._make_session(session.id, key, record, session.summary.state)
                    )
            self._replace(updated_sessions)
            self._unsaved_records |= {
                session.key: msgspec.json.encode(session.record) for session in updated_sessions
            }
            self.write_unsaved()

    def set_rates(
        self, id: int, down_bps: int, up_bps: int, expiry: Expiry | None = None
    ) -> tuple[LinuxSession, LinuxSession] | None:
        """Change the rates of a session in the table and on disk. Return the session before and after the
        change; None for an unknown id. Raises StepFailed if the disk fails; the rates then stay unchanged."""
        with self._lock:
            before = self.sessions.get(id)
            if before is None:
                return None
            record = before.record.with_rates(down_bps, up_bps, expiry)
            self._unsaved_records[before.key] = msgspec.json.encode(record)
            if not self.write_unsaved():
                # The disk may have the old or the new record: write the old record again.
                self._unsaved_records[before.key] = msgspec.json.encode(before.record)
                raise self._failures[STORE_STEP]
            after = self._make_session(id, before.key, record, before.summary.state)
            self._replace([after])
            return before, after

    def set_state(self, keys: Iterable[SessionKey], state: SessionState) -> None:
        """Set the state of sessions. A session that becomes active is announced with session_up, unless the
        session was announced before."""
        with self._lock:
            with self.sessions.lock:
                known_sessions = [self.sessions.get(self._ids[key]) for key in keys]
                sessions = [session for session in known_sessions if session is not None]
                for session in sessions:
                    if session.summary.state != state:
                        self.sessions.replace(session.with_state(state))
            if state is SessionState.ACTIVE:
                self._announce(session for session in sessions if session.key in self._unannounced)
                self.write_unsaved()

    def configure(self, cgnat: Cgnat) -> None:
        """Apply a new CGNAT configuration to all sessions, which may change the steering of a session."""
        with self._lock:
            with self.sessions.lock:
                before = self.sessions.all()
                self.sessions.configure(cgnat)
                after = self.sessions.all()
            pairs = zip(before, after, strict=True)
            if resteered_sessions := [new for old, new in pairs if new.vrf_steered != old.vrf_steered]:
                self._provision.update_sessions(resteered_sessions)

    @contextmanager
    def collect_ends(self, ids: Set[int], ends: dict[int, SessionEnd]) -> Iterator[None]:
        """During the block, add the end of each session in `ids` to the map `ends`, by id."""
        collector = ids, ends
        with self._lock:
            self._end_collectors.append(collector)
        try:
            yield
        finally:
            with self._lock:
                self._end_collectors = [each for each in self._end_collectors if each is not collector]

    def block_changes(self) -> AbstractContextManager[object]:
        """Return a context manager. Inside the block of the context manager, no other thread can start, end
        or change sessions."""
        return self._lock

    def write_unsaved(self) -> bool:
        """Write all unsaved changes to disk. Return False if the disk failed."""
        with self._lock:
            if not (self._unsaved_announced or self._unsaved_records or self._unsaved_released):
                return True
            try:
                self._store.write(
                    announced=self._unsaved_announced,
                    records=self._unsaved_records,
                    released=self._unsaved_released,
                )
            except StepFailed as error:
                self._record_failure(error)
                return False
            self._unsaved_announced, self._unsaved_records = set(), {}
            self._unsaved_released = set()
            self._record_success(STORE_STEP)
            return True

    def _record_failure(self, error: StepFailed) -> None:
        if error.step not in self._failures:
            _log.error("cannot %s, trying again: %s", error.step, error.reason)
        self._failures[error.step] = error

    def _record_success(self, step: str) -> None:
        if self._failures.pop(step, None) is not None:
            _log.info("the core can %s again", step)

    def _restore(self) -> None:
        stored_sessions = self._store.read_all()
        restored_sessions = STORED_SESSION_READER.read(
            stored_sessions.items(), self._restore_session, name=itemgetter(0), place="records"
        )
        for session in restored_sessions:
            self.sessions.add(session)
            self._ids[session.key] = session.id
            if not stored_sessions[session.key].announced:
                self._unannounced.add(session.key)
        self._unsaved_released |= stored_sessions.keys() - self._ids.keys()

    def _restore_session(self, item: tuple[SessionKey, StoredSession]) -> LinuxSession:
        """Return a stored session, in the state STALE. Raises UnreadableEntry if the record of the session is
        unreadable."""
        key, row = item
        try:
            record = _record_decoder.decode(row.record)
            if record.boot_id is None:
                record = replace(record, boot_id=self._clock.boot_id)
                self._unsaved_records[key] = msgspec.json.encode(record)
            return self._make_session(row.id, key, record, SessionState.STALE)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            # Another version of the gateway wrote the record, before a downgrade; or the record is damaged.
            raise UnreadableEntry(f"the record of session {row.id}: {error}") from error

    def _end_sessions_of_former_boots(self) -> None:
        boot_id = self._clock.boot_id
        if former_keys := [
            session.key for session in self.sessions.all() if session.record.boot_id != boot_id
        ]:
            _log.info(
                "the machine was rebooted: %d sessions from before the reboot have ended", len(former_keys)
            )
            self._end(dict.fromkeys(former_keys, SourceEnd(NAS_REBOOT)), self._clock.boot_time())

    def _make_record(self, source_session: SourceSession) -> SessionRecord:
        is_shared = source_session.interface == source_session.access_interface
        baseline = self._provision.read_baseline(source_session) if is_shared else NO_COUNTERS
        return SessionRecord.new(
            source_session, self._provision.make_terms(source_session), baseline, self._clock.boot_id
        )

    def _make_session(
        self, id: int, key: SessionKey, record: SessionRecord, state: SessionState = SessionState.ACTIVE
    ) -> LinuxSession:
        return LinuxSession.of(
            id, key, record, state, self.sessions.compute_steering(record.listed.ip_address)
        )

    def _replace(self, sessions: Sequence[LinuxSession]) -> None:
        if sessions:
            with self.sessions.lock:
                for session in sessions:
                    self.sessions.replace(session)
            self._provision.update_sessions(sessions)

    def _announce(self, sessions: Iterable[LinuxSession]) -> None:
        now = self._clock.wall()
        for session in sessions:
            self._journal.add_session_up(session.summary, now)
            self._unannounced.discard(session.key)
            self._unsaved_announced.add(session.key)

    def _end(self, end_of_key: Mapping[SessionKey, SourceEnd], ended_at: float | None = None) -> None:
        """End sessions. The time of the end is `ended_at` in epoch seconds, or the current time if `ended_at`
        is None."""
        with self._lock:
            with self.sessions.lock:
                ended_sessions = [self.sessions.remove(self._ids.pop(key)) for key in end_of_key]
            ends = [
                SessionEnd(session, end.reason, self._provision.find_traffic(session, end.traffic))
                for session, end in zip(ended_sessions, end_of_key.values(), strict=True)
            ]
            self._provision.remove_sessions([end.session for end in ends])
            self._announce(end.session for end in ends if end.session.key in self._unannounced)
            ended_at = self._clock.wall() if ended_at is None else ended_at
            for end in ends:
                self._journal.add_session_down(end.session.summary, end.reason, ended_at, end.traffic)
                self._unsaved_released.add(end.session.key)
                for ids, collected_ends in self._end_collectors:
                    if end.session.id in ids:
                        collected_ends[end.session.id] = end
            self.write_unsaved()

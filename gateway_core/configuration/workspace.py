"""Workflow of the configuration: edit the candidate, commit, confirm, roll back.

A commit has the following steps, in this order: the services and the gateway apply the configuration, the
store writes it to disk together with a note of the change, and the followers are called. When a method
returns, its change is on disk. When a method raises an error, nothing was changed.
"""

import logging
import secrets
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from typing import Any, Protocol

from msgspec.structs import replace

from gateway_contract.base.errors import Invalid, Stale, StepFailed
from gateway_contract.configuration import Configuration
from gateway_contract.contract import record_of
from gateway_contract.core import configuration as wire
from gateway_contract.core.impact import CommitDropsSessionsError, Impact
from gateway_contract.core.interface import CORE
from gateway_core.configuration import documents
from gateway_core.configuration.rules import load
from gateway_core.configuration.running import (
    RunningConfiguration,
    Snapshot,
    add_former_range,
    check_size,
    make_note,
    renew_generations,
)
from gateway_core.configuration.store import (
    Commit,
    ConfigurationStore,
    Deadline,
    State,
    Unreadable,
    disk_step,
)
from gateway_core.records.changes import Caller, Note
from gateway_core.records.clock import Clock

_log = logging.getLogger(__name__)

MAX_ARCHIVED_REVISIONS = 49
#: Seconds for which a change waits for another change. The API waits one second longer.
_LOCK_TIMEOUT_SECONDS = 2.0

_NO_IMPACT = Impact()

#: The type of `Gateway.freeze_sessions`.
FreezeSessions = Callable[[Configuration], AbstractContextManager[Impact]]
#: The type of `Gateway.apply_in_kernel`.
ApplyInGateway = Callable[[Configuration], AbstractContextManager[None]]
#: The text of each rendered file, by its name.
RenderedFiles = Mapping[str, str]


class GatewayServices(Protocol):
    """Services that a commit changes, in addition to the gateway."""

    def render(self, configuration: Configuration) -> RenderedFiles:
        """Render the files of the services, and verify that each service accepts its files. Raises StepFailed
        if a file cannot be rendered or is not accepted."""

    def apply(self, files: RenderedFiles, configuration: Configuration) -> None:
        """Make the services use the files within 20 s, because the API waits 30 s for a commit. A service
        whose files are unchanged is not disturbed. If a service refuses, make all services use their former
        files again, and raise StepFailed."""

    def resume(self, configuration: Configuration) -> None:
        """Render the files of the running configuration again, and apply the files to every service that
        accepts them. This may take longer than a commit. Raises StepFailed if a service refuses, with the
        reason of the first such service."""


@dataclass(frozen=True)
class ChangeRequest:
    """Terms of a change, in addition to its values.

    One of the ETags in `if_match` must be the current ETag; None matches any ETag. A change without a
    `caller` is not noted. `max_sessions_dropped` is the maximum number of sessions that a commit may end.
    """

    author: str = ""
    comment: str | None = None
    if_match: Sequence[str] | None = None
    caller: Caller | None = None
    max_sessions_dropped: int | None = None


_RETURN_REQUEST = ChangeRequest("core", "not confirmed in time", caller=Caller("configuration.return"))


class Workspace:
    """Running configuration, candidate and archive in a store. If the store is empty, `factory` returns the
    first configuration. Thread-safe.

    The constructor raises Unreadable if the stored configuration cannot be read, Invalid if it is not valid,
    and StepFailed if the first configuration cannot be stored. Every method that changes something raises
    StepFailed if a step of the change fails, and Stale if the request does not have the current ETag. Errors
    of the interface are raised as ErrorReply.
    """

    #: The current configurations.
    snapshot: Snapshot

    def __init__(
        self,
        store: ConfigurationStore,
        factory: Callable[[], RunningConfiguration],
        clock: Clock,
        services: GatewayServices,
    ) -> None:
        self._store = store
        self._clock = clock
        self._services = services
        #: False while the services may run with other files than those of the running configuration.
        self._is_applied = False
        self._preview_impact: Callable[[Configuration], Impact] = lambda _: _NO_IMPACT
        self._freeze_sessions: FreezeSessions = lambda _: nullcontext(_NO_IMPACT)
        self._apply_in_gateway: ApplyInGateway = lambda _: nullcontext()
        self._followers: list[Callable[[Configuration], None]] = []
        self._note_follower: Callable[[Note], None] = lambda _: None
        self._version_follower: Callable[[int], None] = lambda _: None
        self._lock = threading.RLock()
        if store.state is None:
            self.snapshot = Snapshot(State(running=0, key=secrets.token_hex(16)), factory(), ())
            self._make_running(self.snapshot.running, ChangeRequest("factory"), self.snapshot.state)
            return
        state = store.state
        running = RunningConfiguration.load_stored(store.read_document(state.running))
        users = running.sections.api.users
        generations = renew_generations(state.generations or {}, users, users)
        commits = tuple(map(store.read_commit, (state.running, *state.archive)))
        self.snapshot = Snapshot(replace(state, generations=generations), running, commits)
        if generations != state.generations:
            try:
                self._change_state(self.snapshot.state, "store the users' generations", None)
            except StepFailed as error:
                # The gateway must start anyway. The next change stores them.
                text = (
                    "cannot store the users' generations, all tokens end at the next restart of the core: %s"
                )
                _log.error(text, error)

    @property
    def effective_configuration(self) -> Configuration:
        """Configuration that the services and the gateway use: the running configuration. While a commit
        waits for its confirmation, this configuration also has the CGNAT range of the former
        configuration."""
        try:
            return self._compute_effective_configuration(self.snapshot.running, self.snapshot.state)
        except StepFailed as error:
            # The gateway must start anyway.
            _log.error(
                "cannot read the former configuration, sessions of the former CGNAT range are not served: %s",
                error,
            )
            return self.snapshot.running.sections

    def follow(self, follower: Callable[[Configuration], None]) -> None:
        """Register `follower`, which is called with each new running configuration, before the caller of the
        change gets the reply. The follower must not raise, because the configuration already runs."""
        self._followers.append(follower)

    def set_gateway(
        self,
        preview_impact: Callable[[Configuration], Impact],
        freeze_sessions: FreezeSessions,
        apply: ApplyInGateway,
    ) -> None:
        """Set the functions of the gateway that a commit calls: `preview_impact` predicts the effect,
        `freeze_sessions` ends the sessions that the commit affects, and `apply` applies the configuration or
        refuses it."""
        self._preview_impact = preview_impact
        self._freeze_sessions = freeze_sessions
        self._apply_in_gateway = apply

    def follow_notes(self, follower: Callable[[Note], None]) -> None:
        """Register `follower`, which is called with the note of each change after the note is on disk. Call
        `follower` at once with the last note, because an earlier process may have ended before its follower
        got this note."""
        self._note_follower = follower
        if self.snapshot.state.change is not None:
            follower(self.snapshot.state.change)

    def forget_note(self) -> None:
        """Remove the last note from the state. The follower of notes must have stored the note. Raises
        StepFailed if the disk fails.

        Version 0.1.0 cannot read a state whose note has the id of a call. A core that forgets the note at its
        end allows a downgrade to that version.
        """
        with self._lock:
            if self.snapshot.state.change is not None:
                state = replace(self.snapshot.state, change=None)
                self._change_state(state, "forget the last note", None)

    def follow_versions(self, follower: Callable[[int], None]) -> None:
        """Register `follower`, which is called with the version of each new snapshot before the snapshot
        takes effect. Call `follower` at once with the current version. If `follower` raises OSError, the
        change does not happen."""
        self._version_follower = follower
        follower(self.snapshot.version)

    def apply_running(self) -> None:
        """Render the running configuration again, and apply it to the services. Do nothing if the services
        already use the running configuration. This method must be called after a start, and after a failed
        commit that could not be undone. Raises StepFailed if a service refuses."""
        if self._is_applied:
            return
        # Without a timeout: no client waits.
        with self._lock:
            if not self._is_applied:
                self._resume_services()

    def edit(self, operations: Sequence[wire.Edit], request: ChangeRequest) -> wire.EditReply:
        """Apply all operations to the candidate, or none. Raises OperationRefused if an operation is invalid,
        and Invalid if the candidate would be too large."""
        with self._begin_staging(request):
            candidate, values = documents.edit(self.snapshot.candidate, operations)
            self._stage(candidate, request)
            return wire.EditReply(self.snapshot.etag, tuple(values))

    def replace_candidate(self, document: dict[str, Any], request: ChangeRequest) -> wire.StagedReply:
        """Replace the candidate by a whole document. A mask in the document keeps the candidate's secret.
        Raises Invalid if a value of the document is not valid."""
        with self._begin_staging(request):
            return self._stage_whole(
                documents.prepare_replacement(document, self.snapshot.candidate), request
            )

    def discard(self, request: ChangeRequest) -> wire.DiscardReply:
        """Discard all staged changes."""
        with self._begin_staging(request):
            before = self._compare_staged()
            self._stage(self.snapshot.running.document, request)
            return wire.DiscardReply(self.snapshot.etag, before)

    def rollback(self, revision: int, request: ChangeRequest) -> wire.StagedReply:
        """Replace the candidate by an archived configuration. The `revision` 1 is the newest. Raises
        RevisionNotFoundError if the archive has no such revision, and Unreadable if its file cannot be
        read."""
        with self._begin_staging(request):
            return self._stage_whole(self.read_archived(revision)[1], request)

    def compare(self, revision: int | None, to: int | None = None) -> wire.ComparisonReply:
        """Return the difference between two configurations. `revision` is an archived configuration, or None
        for the running configuration. `to` is an archived configuration, 0 for the running configuration, or
        None for the candidate. Raises RevisionNotFoundError if the archive has no such revision, and
        Unreadable if its file cannot be read."""
        snapshot = self.snapshot

        running = snapshot.running.document

        def read(revision: int) -> dict[str, Any]:
            return self._store.read_document(snapshot.get_archived_number(revision))

        before, after = running if revision is None else read(revision), snapshot.candidate
        if to is not None:
            after = running if to == 0 else read(to)
        changes = documents.compare(before, after)
        impact = None
        if revision is None and to is None:
            # An invalid candidate has no impact.
            with suppress(Invalid):
                is_staged = snapshot.state.candidate is not None
                impact = self._preview_impact(snapshot.next_running.sections) if is_staged else _NO_IMPACT
        return record_of(wire.ComparisonReply, self._make_difference(snapshot, changes), impact=impact)

    def commit(self, request: ChangeRequest, confirm_seconds: int | None = None) -> wire.CommitReply:
        """Make the candidate the running configuration. With `confirm_seconds`, the former configuration
        returns after this time unless the commit is confirmed.

        If another commit waits for its confirmation, a commit with changes confirms the other commit. A
        commit with `confirm_seconds` moves the deadline, even without changes. Raises Invalid if the
        candidate is not valid.
        """
        with self._begin_commit(request):
            snapshot, deadline = self.snapshot, None
            former_deadline = snapshot.state.deadline
            if confirm_seconds is not None:
                # The baseline of the first of several commits: that configuration is known to work.
                baseline = snapshot.state.running if former_deadline is None else former_deadline.baseline
                deadline = Deadline(baseline=baseline, at=0).schedule_in(confirm_seconds, self._clock)
            if snapshot.state.candidate is not None:
                return self._commit_if_changed(snapshot.next_running, request, deadline)
            before = self._make_difference(snapshot, [])
            if deadline is not None and former_deadline is not None:
                self._change_state(
                    replace(snapshot.state, deadline=deadline), "move the deadline", request.caller
                )
            return self._make_reply(0, before)

    def replace_running(self, document: dict[str, Any], request: ChangeRequest) -> wire.CommitReply:
        """Replace the running configuration by a whole document, in one step. A mask in the document keeps
        the secret of the running configuration. Raises CandidateStagedError if the candidate has changes, and
        Invalid if the document is not valid."""
        with self._begin_commit(request):
            running = self.snapshot.running
            if self.snapshot.state.candidate is not None:
                raise CORE.make_error(wire.CandidateStagedError())
            configuration = RunningConfiguration.of(documents.unmask(document, running.document), running)
            return self._commit_if_changed(configuration, request, None)

    def amend(self, operations: Sequence[wire.Edit], request: ChangeRequest) -> wire.CommitReply:
        """Apply all operations to the running configuration at once, or none. The candidate keeps its
        changes. If a commit waits for its confirmation, its deadline stays, and the configuration that may
        return gets the same changes. Raises OperationRefused if an operation is invalid, and Invalid if the
        result is not valid."""
        with self._begin_commit(request):
            running, deadline = self.snapshot.running, self.snapshot.state.deadline
            document, _ = documents.edit(running.document, operations)
            configuration = RunningConfiguration.of(document, running)
            if deadline is not None and document != running.document:
                baseline = RunningConfiguration.load_stored(self._store.read_document(deadline.baseline))
                new_baseline = RunningConfiguration.of(
                    documents.merge(running.document, document, baseline.document), baseline
                )
                commit = self._store.read_commit(deadline.baseline)
                number = self._store.add(new_baseline.document, commit)
                deadline = replace(deadline, baseline=number)
            return self._commit_if_changed(configuration, request, deadline)

    def restore(self, revision: int, request: ChangeRequest) -> wire.CommitReply:
        """Make an archived configuration run again at once. The `revision` 1 is the newest. The candidate
        keeps its changes. If the archived configuration is the baseline of a deadline, the deadline ends.
        Raises RevisionNotFoundError if the archive has no such revision, Unreadable if its file cannot be
        read, and Invalid if its document is not valid."""
        with self._begin_commit(request):
            deadline = self.snapshot.state.deadline
            if deadline is not None and deadline.baseline == self.snapshot.get_archived_number(revision):
                deadline = None
            configuration = RunningConfiguration.load_stored(self.read_archived(revision)[1])
            return self._commit_if_changed(configuration, request, deadline)

    def confirm(self, request: ChangeRequest) -> None:
        """Confirm the last commit, and end the sessions that only the former configuration served. Raises
        NothingToConfirmError if no commit waits for a confirmation. Raises StepFailed if a service or the
        gateway refuses: the deadline then stays."""
        with self._lock_changes():
            self.revert_if_due()
            if self.snapshot.state.deadline is None:
                raise CORE.make_error(wire.NothingToConfirmError())
            snapshot, step = self.snapshot, "store the confirmation"
            state, sections = replace(snapshot.state, deadline=None), snapshot.running.sections
            if self._compute_effective_configuration(snapshot.running, snapshot.state) == sections:
                self._change_state(state, step, request.caller)
                return
            files = self._services.render(sections)
            confirmed_snapshot = Snapshot(state, snapshot.running, snapshot.commits)
            with self._apply_to_services(files, sections), self._freeze_sessions(sections):
                with self._apply_in_gateway(sections):
                    self._publish(confirmed_snapshot, step, request.caller)
                for follower in self._followers:
                    follower(sections)

    def revert_if_due(self) -> bool:
        """Return to the former configuration if the deadline of an unconfirmed commit has passed. Return True
        if this call returned to the former configuration. Before the deadline, update the stored deadline if
        the wall clock was set. Raises StepFailed if a step of the change fails."""
        # Without a timeout: a service may take long for a commit, and no client waits.
        with self._lock:
            state, stored_state = self.snapshot.state, self._store.state
            if state.deadline is None:
                return False
            if not state.deadline.has_come(self._clock):
                deadline = state.deadline.follow_clock(self._clock)
                # The next start uses the deadline on disk.
                if stored_state is None or stored_state.deadline != deadline:
                    self._change_state(replace(state, deadline=deadline), "store the deadline", None)
                return False
            baseline, state = state.deadline.baseline, replace(state, deadline=None)
            try:
                former = RunningConfiguration.load_stored(self._store.read_document(baseline))
            except (Unreadable, Invalid) as error:
                # Another attempt would fail, too.
                _log.critical(
                    "cannot return to the former configuration, the unconfirmed commit stays: %s", error
                )
                self._change_state(state, "give up the deadline", None)
                return False
            # The gateway may not refuse: the return may be the operator's only way to the machine. The
            # followers apply what can be applied.
            self._make_running(former, _RETURN_REQUEST, state, lambda _: nullcontext())
            _log.warning("the last commit was not confirmed in time, the former configuration runs again")
            return True

    def end_tokens(self, username: str, request: ChangeRequest) -> None:
        """End all tokens of a user of the API: the user gets a new generation. Raises UserNotFoundError if
        there is no such user."""
        with self._lock_changes():
            generations = self.snapshot.state.generations or {}
            if username not in generations:
                raise CORE.make_error(wire.UserNotFoundError())
            generations = {**generations, username: secrets.token_hex(8)}
            state = replace(self.snapshot.state, generations=generations)
            self._change_state(state, "end the tokens", request.caller)

    def read_archived(self, revision: int) -> tuple[Commit, dict[str, Any]]:
        """Return the commit and the document of an archived configuration. The `revision` 1 is the newest.
        Raises RevisionNotFoundError if the archive has no such revision, and Unreadable if its file cannot be
        read."""
        snapshot = self.snapshot
        number = snapshot.get_archived_number(revision)
        return snapshot.commits[revision], self._store.read_document(number)

    def _compare_staged(self) -> wire.ConfigurationDifference:
        return self._make_difference(self.snapshot, self.snapshot.compare())

    @contextmanager
    def _lock_changes(self) -> Iterator[None]:
        """Hold the lock of all changes during the with block. Raises StepFailed if another change holds the
        lock too long."""
        if not self._lock.acquire(timeout=_LOCK_TIMEOUT_SECONDS):
            raise StepFailed("wait for the change under way", "it takes too long")
        try:
            yield
        finally:
            self._lock.release()

    @contextmanager
    def _begin_staging(self, request: ChangeRequest) -> Iterator[None]:
        with self._lock_changes():
            if request.if_match is not None and self.snapshot.etag not in request.if_match:
                raise Stale(self.snapshot.etag)
            yield

    @contextmanager
    def _begin_commit(self, request: ChangeRequest) -> Iterator[None]:
        with self._lock_changes():
            if self.revert_if_due():
                # The caller has read the configuration that was undone.
                raise Stale(self.snapshot.etag)
            with self._begin_staging(request):
                yield

    def _stage(self, document: dict[str, Any], request: ChangeRequest) -> None:
        check_size(document)
        self._change_state(
            replace(self.snapshot.state, candidate=document), "store the candidate", request.caller
        )

    def _stage_whole(self, document: dict[str, Any], request: ChangeRequest) -> wire.StagedReply:
        before = self._compare_staged()
        self._stage(document, request)
        return wire.StagedReply(len(self.snapshot.compare()), self.snapshot.etag, before)

    def _commit_if_changed(
        self, configuration: RunningConfiguration, request: ChangeRequest, deadline: Deadline | None
    ) -> wire.CommitReply:
        """Make a configuration run if it differs from the running configuration. The candidate keeps its
        other changes."""
        snapshot = self.snapshot
        candidate, running = snapshot.state.candidate, snapshot.running.document
        changes = documents.compare(running, configuration.document)
        before = self._make_difference(snapshot, changes)
        if changes:
            if candidate is not None:
                candidate = documents.merge(running, candidate, configuration.document)
            state = replace(snapshot.state, candidate=candidate, deadline=deadline)
            return self._make_reply(len(changes), before, self._make_running(configuration, request, state))
        return self._make_reply(0, before)

    def _make_running(
        self,
        configuration: RunningConfiguration,
        request: ChangeRequest,
        state: State,
        apply: ApplyInGateway | None = None,
    ) -> Impact:
        """Make a configuration run, with the candidate and the deadline of `state`. Return the effect on
        sessions and services. Raises CommitDropsSessionsError if more sessions would end than the request
        allows."""
        sections = self._compute_effective_configuration(configuration, state)
        files = self._services.render(sections)
        commit = Commit(int(self._clock.wall()), request.author, request.comment)
        number = self._store.add(configuration.document, commit, keep=state.revisions)
        preview = self._preview_impact(sections)
        _check_limit(preview, request)
        archive = (state.running, *state.archive)[:MAX_ARCHIVED_REVISIONS] if state.running else ()
        users = self.snapshot.running.sections.api.users
        generations = renew_generations(state.generations or {}, users, configuration.sections.api.users)
        state = replace(state, running=number, archive=archive, generations=generations)
        snapshot = Snapshot(state, configuration, (commit, *self.snapshot.commits[:MAX_ARCHIVED_REVISIONS]))
        with self._apply_to_services(files, sections), self._freeze_sessions(sections) as ended:
            # Again: sessions may have started in the seconds that the services took.
            impact = replace(ended, services=preview.services)
            _check_limit(impact, request)
            with (apply or self._apply_in_gateway)(sections):
                self._publish(snapshot, "replace the running configuration", request.caller, impact)
            for follower in self._followers:
                follower(sections)
        _log.info("revision %d is the running configuration now, committed by %s", number, commit.author)
        return impact

    @contextmanager
    def _apply_to_services(self, files: RenderedFiles, configuration: Configuration) -> Iterator[None]:
        """Apply rendered files to the services for the with block. If the block fails, make the services use
        their former files again."""
        if not self.snapshot.state.running:
            # At the first start, `apply_running` follows: a service that refuses must not stop the core.
            yield
            return
        # Before the attempt: `apply_running` repairs what a failure leaves behind.
        self._is_applied = False
        self._services.apply(files, configuration)
        try:
            yield
        except Exception:
            try:
                self._resume_services()
            except StepFailed as error:
                _log.critical(
                    "cannot undo a failed commit, services still use the files of the failed commit: %s",
                    error,
                )
            raise
        self._is_applied = True

    def _resume_services(self) -> None:
        self._services.resume(self.effective_configuration)
        self._is_applied = True

    def _compute_effective_configuration(
        self, configuration: RunningConfiguration, state: State
    ) -> Configuration:
        """Return the configuration that the services and the gateway use in the given state. Raises
        StepFailed if a disk error prevents reading the configuration that may return."""
        if state.deadline is None:
            return configuration.sections
        try:
            baseline = load(self._store.read_document(state.deadline.baseline))
        except (Unreadable, Invalid) as error:
            if isinstance(error.__cause__, OSError):
                reason = error.__cause__.strerror or "an error without a name"
                raise StepFailed("read the configuration that may return", reason) from error
            # A damaged configuration cannot return either.
            _log.error(
                "cannot read the former configuration, sessions of the former CGNAT range are not served: %s",
                error,
            )
            return configuration.sections
        return add_former_range(configuration.sections, baseline.cgnat.source_range)

    def _change_state(self, state: State, step: str, caller: Caller | None) -> None:
        self._publish(Snapshot(state, self.snapshot.running, self.snapshot.commits), step, caller)

    def _publish(self, new: Snapshot, step: str, caller: Caller | None, impact: Impact = _NO_IMPACT) -> None:
        note = self._make_note(caller, new, impact) if caller else None
        if note is not None:
            # In one rename with the change: after a crash, both are on disk or neither.
            new.state = replace(new.state, change=note)
        # First: from now on, the API asks again. If the rest fails, it asks each time until the next change.
        with disk_step("date the socket"):
            self._version_follower(new.version)
        self._store.publish(new.state, step)
        self.snapshot = new
        if note is not None:
            self._note_follower(note)

    def _make_note(self, caller: Caller, new: Snapshot, impact: Impact) -> Note | None:
        if caller.call is not None:
            # The API records the values.
            return Note.of(caller, self._clock.wall())
        return make_note(caller, self._clock.wall(), self.snapshot, new, impact)

    def _make_reply(
        self, number: int, before: wire.ConfigurationDifference, impact: Impact = _NO_IMPACT
    ) -> wire.CommitReply:
        """Return the reply to a commit of `number` changed values; 0 means that nothing was committed."""
        return record_of(
            wire.CommitReply, self.snapshot.commits[0], self._make_difference(self.snapshot, []),
            committed=number > 0,
            changes=number,
            archived_revision=1 if number else None,
            impact=impact,
            before=before,
        )  # fmt: skip

    def _make_difference(
        self, snapshot: Snapshot, changes: list[documents.Change]
    ) -> wire.ConfigurationDifference:
        deadline = snapshot.state.deadline
        shown_deadline = None if deadline is None else deadline.compute_shown_time(self._clock)
        return wire.ConfigurationDifference(documents.format_diff(changes), snapshot.etag, shown_deadline)


def _check_limit(impact: Impact, request: ChangeRequest) -> None:
    """Check that a commit does not end more sessions than the request allows. Raises CommitDropsSessionsError
    if it does."""
    max_sessions = request.max_sessions_dropped
    if max_sessions is not None and impact.sessions_dropped > max_sessions:
        raise CORE.make_error(CommitDropsSessionsError(impact.sessions_dropped, max_sessions))

"""The workflow of the configuration: edit the candidate, commit, confirm, roll back. A commit takes effect in
one order: applied, on disk, noted with its caller, and followed.

Any thread may call. A change is on disk when its method returns, or it did not happen.
"""

import logging
import secrets
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, Protocol

from msgspec.structs import asdict, replace

from gateway_contract.base.errors import Invalid, Stale, StepFailed
from gateway_contract.configuration import Configuration
from gateway_contract.core import configuration as wire
from gateway_contract.core.impact import CommitDropsSessionsError, Impact
from gateway_contract.core.interface import CORE
from gateway_core.configuration.documents import Change, changes, diff_text, merged, unmasked
from gateway_core.configuration.edit import edited, replaced
from gateway_core.configuration.rules import load
from gateway_core.configuration.running import (
    RunningConfiguration,
    Snapshot,
    note_of,
    refuse_too_large,
    renewed,
)
from gateway_core.configuration.store import (
    Commit,
    ConfigurationStore,
    Deadline,
    State,
    Unreadable,
    disk_step,
)
from gateway_core.configuration.unconfirmed import until_confirmed
from gateway_core.records.changes import Caller, Note
from gateway_core.records.clock import Clock

_log = logging.getLogger(__name__)

#: Archived revisions beside the running one.
ARCHIVED = 49

_NO_IMPACT = Impact()

#: As `Gateway.ending` and `Gateway.applying`.
Ending = Callable[[Configuration], AbstractContextManager[Impact]]
Applying = Callable[[Configuration], AbstractContextManager[None]]
#: The text of each rendered file, by its name.
Rendered = Mapping[str, str]

#: Seconds that a change waits for another. The API waits for one second more.
_PATIENCE = 2.0


class GatewayServices(Protocol):
    """The services that a commit changes, beside the gateway."""

    def render(self, configuration: Configuration) -> Rendered:
        """Return the files, verified: no service misreads or refuses one. Raises StepFailed."""

    def apply(self, rendered: Rendered, configuration: Configuration) -> None:
        """Make the services run by the files. Services that run by the same files already continue
        undisturbed. It takes at most 20 s: the API waits 30 s for a commit. Raises StepFailed: then every
        service runs as before."""

    def resume(self, configuration: Configuration) -> None:
        """Render the files of the running configuration anew, and apply them: a service that refuses does not
        keep the others from running by them. It may last longer than a commit. Raises StepFailed of the first
        one."""


@dataclass(frozen=True)
class ChangeRequest:
    """The terms of a change besides its values: the author and the comment of the commit; entity tags, one of
    which must be the current one; the caller for the note; and the most sessions that the commit may end.
    None in `if_match` matches any tag. Without a `caller`, the change is not noted."""

    author: str = ""
    comment: str | None = None
    if_match: Sequence[str] | None = None
    caller: Caller | None = None
    max_sessions_dropped: int | None = None


_RETURN = ChangeRequest("core", "not confirmed in time", caller=Caller("configuration.return"))


class Workspace:
    """The configurations in a store. An empty store starts with the one that `factory` makes.

    Raises Unreadable, Invalid and StepFailed. All methods that change something raise StepFailed, and Stale
    unless `if_match` of the request holds the entity tag. Where a method names an error of the interface, it
    raises that as an ErrorReply. `services` run by the configuration that runs.
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
        #: False while the services may run by other files than those of the running configuration.
        self._applied = False
        self._impact: Callable[[Configuration], Impact] = lambda _: _NO_IMPACT
        self._ending: Ending = lambda _: nullcontext(_NO_IMPACT)
        self._in_gateway: Applying = lambda _: nullcontext()
        self._followers: list[Callable[[Configuration], None]] = []
        self._tell: Callable[[Note], None] = lambda _: None
        self._date: Callable[[int], None] = lambda _: None
        self._lock = threading.RLock()
        if store.state is None:
            self.snapshot = Snapshot(State(running=0, key=secrets.token_hex(16)), factory(), ())
            self._run(self.snapshot.running, ChangeRequest("factory"), self.snapshot.state)
            return
        state = store.state
        running = RunningConfiguration.stored(store.document(state.running))
        users = running.sections.api.users
        generations = renewed(state.generations or {}, users, users)
        commits = tuple(map(store.commit, (state.running, *state.archive)))
        self.snapshot = Snapshot(replace(state, generations=generations), running, commits)
        if generations != state.generations:
            try:
                self._amend(self.snapshot.state, "store the users' generations", None)
            except StepFailed as error:
                # The gateway must start anyway. The next change stores them.
                _log.error("tokens end with the next start unless a change is stored before: %s", error)

    @property
    def in_force(self) -> Configuration:
        """The configuration that the services and the gateway run by: until a commit is confirmed, the
        running one with the range of the one that may return."""
        try:
            return self._in_force_by(self.snapshot.running, self.snapshot.state)
        except StepFailed as error:
            # The gateway must start anyway.
            _log.error("the range before an unconfirmed commit is not served: %s", error)
            return self.snapshot.running.sections

    def follow(self, follower: Callable[[Configuration], None]) -> None:
        """Call `follower` with each new running configuration, before the caller gets the reply. It must not
        raise: the configuration already runs."""
        self._followers.append(follower)

    def foresee(self, impact: Callable[[Configuration], Impact], ending: Ending) -> None:
        """Ask `impact` what a configuration would do, and `ending` which sessions end when it runs. Without a
        gateway there is no session to end."""
        self._impact = impact
        self._ending = ending

    def apply_by(self, applying: Applying) -> None:
        """Replace the running configuration in a block of `applying`, which may refuse it."""
        self._in_gateway = applying

    def note(self, tell: Callable[[Note], None]) -> None:
        """Call `tell` with the note of each change, once it is on disk. Also call it now, with the last
        note: the process may have ended before the call."""
        self._tell = tell
        if self.snapshot.state.change is not None:
            tell(self.snapshot.state.change)

    def date(self, date: Callable[[int], None]) -> None:
        """Call `date` with the version of each snapshot before that counts, and now. It may raise OSError:
        then the change does not happen."""
        self._date = date
        date(self.snapshot.version)

    def apply_running(self) -> None:
        """Make the services run by the running configuration, rendered anew, unless they do: after a start,
        and after a commit that failed and could not be undone. Raises StepFailed."""
        if self._applied:
            return
        # No client waits for it.
        with self._lock:
            if not self._applied:
                self._apply_running()

    def edit(self, operations: Sequence[wire.Edit], request: ChangeRequest) -> wire.EditReply:
        """Stage all operations or none. Raises OperationRefused, and Invalid for too large a candidate."""
        with self._staging(request):
            candidate, values = edited(self.snapshot.candidate, operations)
            self._stage(candidate, request)
            return wire.EditReply(self.snapshot.etag, tuple(values))

    def replace_candidate(self, document: dict[str, Any], request: ChangeRequest) -> wire.StagedReply:
        """Make a whole document the candidate. A mask in it stands for the candidate's secret. Raises Invalid
        for one that no edits could make."""
        with self._staging(request):
            return self._stage_whole(replaced(document, self.snapshot.candidate), request)

    def discard(self, request: ChangeRequest) -> wire.DiscardReply:
        """Drop all staged changes."""
        with self._staging(request):
            before = self._staged()
            self._stage(self.snapshot.running.document, request)
            return wire.DiscardReply(self.snapshot.etag, before)

    def rollback(self, revision: int, request: ChangeRequest) -> wire.StagedReply:
        """Make the candidate an archived configuration; 1 is the newest. Raises NotFound and Unreadable."""
        with self._staging(request):
            return self._stage_whole(self.archived(revision)[1], request)

    def compare(self, revision: int | None, to: int | None = None) -> wire.ComparisonReply:
        """From the running configuration, or from an archived one, to the candidate; or to an archived one,
        or with 0 to the running one. Raises NotFound and Unreadable."""
        snapshot = self.snapshot
        before = snapshot.running.document if revision is None else self._archived(snapshot, revision)
        if to is None:
            after = snapshot.candidate
        else:
            after = snapshot.running.document if to == 0 else self._archived(snapshot, to)
        impact = self._foreseen(snapshot) if revision is None and to is None else None
        difference = self._difference(snapshot, changes(before, after))
        return wire.ComparisonReply(**asdict(difference), impact=impact)

    def _archived(self, snapshot: Snapshot, revision: int) -> dict[str, Any]:
        return self._store.document(snapshot.archived(revision))

    def commit(self, request: ChangeRequest, confirm_seconds: int | None = None) -> wire.CommitReply:
        """Make the candidate run. With `confirm_seconds`, the former configuration returns after that time
        unless the commit is confirmed. While a commit waits for that, a commit of changes without
        `confirm_seconds` confirms it, and one with it moves the deadline, even with nothing to commit.

        Raises Invalid for an invalid candidate.
        """
        with self._committing(request):
            snapshot, deadline = self.snapshot, None
            waiting = snapshot.state.deadline
            if confirm_seconds is not None:
                # Of several commits, the baseline of the first: that configuration is known to work.
                baseline = snapshot.state.running if waiting is None else waiting.baseline
                deadline = Deadline(baseline=baseline, at=0).schedule_in(confirm_seconds, self._clock)
            if snapshot.state.candidate is not None:
                return self._run_if_other(snapshot.next, request, deadline)
            before = self._difference(snapshot, [])
            if deadline is not None and waiting is not None:
                self._amend(replace(snapshot.state, deadline=deadline), "move the deadline", request.caller)
            return self._reply(0, before)

    def replace_running(self, document: dict[str, Any], request: ChangeRequest) -> wire.CommitReply:
        """Make a whole document run, as if it had been staged and committed. A mask in it stands for the
        running secret. Raises CandidateStagedError, and Invalid for an invalid document."""
        with self._committing(request):
            running = self.snapshot.running
            if self.snapshot.state.candidate is not None:
                raise CORE.error(wire.CandidateStagedError())
            configuration = RunningConfiguration.of(unmasked(document, running.document), running)
            return self._run_if_other(configuration, request, None)

    def amend(self, operations: Sequence[wire.Edit], request: ChangeRequest) -> wire.CommitReply:
        """Change the running configuration at once, by all operations or none. Staged changes stay. A commit
        still waits for its confirmation: its baseline gets the same changes. Raises OperationRefused, and
        Invalid for an invalid result."""
        with self._committing(request):
            running, deadline = self.snapshot.running, self.snapshot.state.deadline
            document, _ = edited(running.document, operations)
            configuration = RunningConfiguration.of(document, running)
            if deadline is not None and document != running.document:
                before = RunningConfiguration.stored(self._store.document(deadline.baseline))
                held = RunningConfiguration.of(merged(running.document, document, before.document), before)
                commit = self._store.commit(deadline.baseline)
                number = self._store.add(held.document, commit)
                deadline = replace(deadline, baseline=number)
            return self._run_if_other(configuration, request, deadline)

    def restore(self, revision: int, request: ChangeRequest) -> wire.CommitReply:
        """Make an archived configuration run again at once; 1 is the newest. Staged changes stay. If it is
        the baseline of a deadline, that ends. Raises NotFound, Unreadable and Invalid."""
        with self._committing(request):
            deadline = self.snapshot.state.deadline
            if deadline is not None and deadline.baseline == self.snapshot.archived(revision):
                deadline = None
            configuration = RunningConfiguration.stored(self.archived(revision)[1])
            return self._run_if_other(configuration, request, deadline)

    def confirm(self, request: ChangeRequest) -> None:
        """Confirm the last commit. Sessions that went on until then end. Raises NothingToConfirmError, and
        StepFailed where a service or the gateway refuses: then the deadline stays."""
        with self._writing():
            self.return_if_due()
            if self.snapshot.state.deadline is None:
                raise CORE.error(wire.NothingToConfirmError())
            snapshot, step = self.snapshot, "store the confirmation"
            state, sections = replace(snapshot.state, deadline=None), snapshot.running.sections
            if self._in_force_by(snapshot.running, snapshot.state) == sections:
                self._amend(state, step, request.caller)
                return
            rendered = self._services.render(sections)
            confirmed = Snapshot(state, snapshot.running, snapshot.commits)
            with self._applying(rendered, sections), self._ending(sections):
                with self._in_gateway(sections):
                    self._publish(confirmed, step, request.caller)
                for follower in self._followers:
                    follower(sections)

    def return_if_due(self) -> bool:
        """Make the configuration before an unconfirmed commit run again, once the deadline has passed. True
        when that was now. Until then, the deadline on disk follows a clock that is set. Raises StepFailed."""
        # A service may take long for a commit, and no client waits for this.
        with self._lock:
            state, held = self.snapshot.state, self._store.state
            if state.deadline is None:
                return False
            if not state.deadline.has_come(self._clock):
                deadline = state.deadline.follow_clock(self._clock)
                # The next start uses the deadline on disk.
                if held is None or held.deadline != deadline:
                    self._amend(replace(state, deadline=deadline), "store the deadline", None)
                return False
            baseline, state = state.deadline.baseline, replace(state, deadline=None)
            try:
                former = RunningConfiguration.stored(self._store.document(baseline))
            except (Unreadable, Invalid) as error:
                # Another try would fail, too.
                _log.critical("the configuration before an unconfirmed commit is lost: %s", error)
                self._amend(state, "give up the deadline", None)
                return False
            # A refusal of the gateway must not keep it: it may be the operator's only way back. The followers
            # do what can be done.
            self._run(former, _RETURN, state, lambda _: nullcontext())
            _log.warning("a commit wasn't confirmed in time: the configuration before it runs again")
            return True

    def end_tokens(self, username: str, request: ChangeRequest) -> None:
        """Give a user of the API another generation. Raises UserNotFoundError."""
        with self._writing():
            generations = self.snapshot.state.generations or {}
            if username not in generations:
                raise CORE.error(wire.UserNotFoundError())
            generations = {**generations, username: secrets.token_hex(8)}
            state = replace(self.snapshot.state, generations=generations)
            self._amend(state, "end the tokens", request.caller)

    def archived(self, revision: int) -> tuple[Commit, dict[str, Any]]:
        """One archived configuration; 1 is the newest. Raises NotFound and Unreadable."""
        snapshot = self.snapshot
        number = snapshot.archived(revision)
        return snapshot.commits[revision], self._store.document(number)

    def _staged(self) -> wire.ConfigurationDifference:
        return self._difference(self.snapshot, self.snapshot.changes())

    def _foreseen(self, snapshot: Snapshot) -> Impact | None:
        """Return the effect of a commit; None for an invalid candidate."""
        if snapshot.state.candidate is None:
            return Impact()
        try:
            return self._impact(snapshot.next.sections)
        except Invalid:
            return None

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """One change at a time. A change that waited too long fails: its client may have left."""
        if not self._lock.acquire(timeout=_PATIENCE):
            raise StepFailed("wait for the change under way", "it takes too long")
        try:
            yield
        finally:
            self._lock.release()

    @contextmanager
    def _staging(self, request: ChangeRequest) -> Iterator[None]:
        with self._writing():
            if request.if_match is not None and self.snapshot.etag not in request.if_match:
                raise Stale(self.snapshot.etag)
            yield

    @contextmanager
    def _committing(self, request: ChangeRequest) -> Iterator[None]:
        with self._writing():
            if self.return_if_due():
                # The caller has read another configuration.
                raise Stale(self.snapshot.etag)
            with self._staging(request):
                yield

    def _stage(self, document: dict[str, Any], request: ChangeRequest) -> None:
        refuse_too_large(document)
        self._amend(replace(self.snapshot.state, candidate=document), "store the candidate", request.caller)

    def _stage_whole(self, document: dict[str, Any], request: ChangeRequest) -> wire.StagedReply:
        before = self._staged()
        self._stage(document, request)
        return wire.StagedReply(len(self.snapshot.changes()), self.snapshot.etag, before)

    def _run_if_other(
        self, configuration: RunningConfiguration, request: ChangeRequest, deadline: Deadline | None
    ) -> wire.CommitReply:
        """Make a configuration run, if it differs from the one that runs. Other staged changes stay."""
        snapshot = self.snapshot
        candidate, running = snapshot.state.candidate, snapshot.running.document
        found = changes(running, configuration.document)
        before = self._difference(snapshot, found)
        if found:
            if candidate is not None:
                candidate = merged(running, candidate, configuration.document)
            state = replace(snapshot.state, candidate=candidate, deadline=deadline)
            return self._reply(len(found), before, self._run(configuration, request, state))
        return self._reply(0, before)

    def _run(
        self,
        configuration: RunningConfiguration,
        request: ChangeRequest,
        state: State,
        applying: Applying | None = None,
    ) -> Impact:
        """Make a configuration run, with the candidate and the deadline of `state`, and return what that did.
        The baseline of the deadline may be a revision that does not count yet. Raises
        CommitDropsSessionsError."""
        sections = self._in_force_by(configuration, state)
        rendered = self._services.render(sections)
        commit = Commit(int(self._clock.wall()), request.author, request.comment)
        number = self._store.add(configuration.document, commit, keep=state.names())
        foreseen = self._impact(sections)
        _refuse_over(foreseen, request)
        archive = (state.running, *state.archive)[:ARCHIVED] if state.running else ()
        users = self.snapshot.running.sections.api.users
        generations = renewed(state.generations or {}, users, configuration.sections.api.users)
        state = replace(state, running=number, archive=archive, generations=generations)
        snapshot = Snapshot(state, configuration, (commit, *self.snapshot.commits[:ARCHIVED]))
        with self._applying(rendered, sections), self._ending(sections) as ended:
            # Again: the services may have taken seconds, in which sessions start.
            impact = replace(ended, services=foreseen.services)
            _refuse_over(impact, request)
            with (applying or self._in_gateway)(sections):
                self._publish(snapshot, "replace the running configuration", request.caller, impact)
            for follower in self._followers:
                follower(sections)
        _log.info("revision %d runs, committed by %s", number, commit.author)
        return impact

    @contextmanager
    def _applying(self, rendered: Rendered, configuration: Configuration) -> Iterator[None]:
        """Makes the services run by these files. If the block fails, they run as before again."""
        if not self.snapshot.state.running:
            # The first files are applied after the start: a service that refuses must not stop the core.
            yield
            return
        # Also if it fails: what it did not put back is tried again.
        self._applied = False
        self._services.apply(rendered, configuration)
        try:
            yield
        except Exception:
            try:
                self._apply_running()
            except StepFailed as error:
                _log.critical("the services run by the files of a failed commit: %s", error)
            raise
        self._applied = True

    def _apply_running(self) -> None:
        """Raises StepFailed."""
        self._services.resume(self.in_force)
        self._applied = True

    def _in_force_by(self, configuration: RunningConfiguration, state: State) -> Configuration:
        """Raises StepFailed if the disk does not read the configuration that may return."""
        if state.deadline is None:
            return configuration.sections
        try:
            baseline = load(self._store.document(state.deadline.baseline))
        except (Unreadable, Invalid) as error:
            if isinstance(error.__cause__, OSError):
                reason = error.__cause__.strerror or "an error without a name"
                raise StepFailed("read the configuration that may return", reason) from error
            # A damaged configuration cannot return either.
            _log.error("the range before an unconfirmed commit is not served: %s", error)
            return configuration.sections
        return until_confirmed(configuration.sections, baseline.cgnat.source_range)

    def _amend(self, state: State, step: str, caller: Caller | None) -> None:
        self._publish(Snapshot(state, self.snapshot.running, self.snapshot.commits), step, caller)

    def _publish(self, new: Snapshot, step: str, caller: Caller | None, impact: Impact = _NO_IMPACT) -> None:
        note = self._note_of(caller, new, impact) if caller else None
        if note is not None:
            # With the change, in one rename: after a crash, both are on disk or neither.
            new.state = replace(new.state, change=note)
        # First: from here on, the API asks anew. If the rest fails, it asks each time until the next change.
        with disk_step("date the socket"):
            self._date(new.version)
        self._store.publish(new.state, step)
        self.snapshot = new
        if note is not None:
            self._tell(note)

    def _note_of(self, caller: Caller, new: Snapshot, impact: Impact) -> Note | None:
        if caller.call is not None:
            # The API knows the rest.
            return Note.of(caller, self._clock.wall())
        return note_of(caller, self._clock.wall(), self.snapshot, new, impact)

    def _reply(
        self, number: int, before: wire.ConfigurationDifference, impact: Impact = _NO_IMPACT
    ) -> wire.CommitReply:
        """`number` is that of the changed values; without any, the commit is an older one."""
        commit = self.snapshot.commits[0]
        now = self._difference(self.snapshot, [])
        return wire.CommitReply(
            committed=number > 0,
            changes=number,
            archived_revision=1 if number else None,
            author=commit.author,
            comment=commit.comment,
            committed_at=commit.committed_at,
            confirm_deadline=now.confirm_deadline,
            etag=now.etag,
            impact=impact,
            before=before,
        )

    def _difference(self, snapshot: Snapshot, found: list[Change]) -> wire.ConfigurationDifference:
        deadline = snapshot.state.deadline
        shown = None if deadline is None else deadline.compute_shown_time(self._clock)
        return wire.ConfigurationDifference(diff_text(found), snapshot.etag, shown)


def _refuse_over(impact: Impact, request: ChangeRequest) -> None:
    """Raises CommitDropsSessionsError if more sessions end than the request allows."""
    most = request.max_sessions_dropped
    if most is not None and impact.sessions_dropped > most:
        raise CORE.error(CommitDropsSessionsError(impact.sessions_dropped, most))

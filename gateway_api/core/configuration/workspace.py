"""The workflow of the configuration: edit the candidate, commit, confirm, roll back.

Any thread may call. A change is on disk when its method returns, or it did not happen.
"""

import logging
import secrets
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from gateway_api.base.errors import Invalid
from gateway_api.core.changes import Caller
from gateway_api.core.clock import Clock
from gateway_api.core.configuration.documents import changes, merged, unmasked
from gateway_api.core.configuration.edit import Operation, edited
from gateway_api.core.configuration.outcome import (
    NothingToConfirm,
    Outcome,
    Staged,
    Stale,
    StepFailed,
    Unreadable,
)
from gateway_api.core.configuration.publisher import IfMatch, Publisher
from gateway_api.core.configuration.running import (
    RunningConfiguration,
    View,
    ended,
    refuse_too_large,
    renewed,
)
from gateway_api.core.configuration.services import render
from gateway_api.core.configuration.state import Commit, Deadline, State
from gateway_api.core.configuration.store import Store
from gateway_api.wire.core.configuration import ConfigurationDifference, EditedValue

_log = logging.getLogger(__name__)

#: The author and the action of the automatic rollback.
CORE = "core"
RETURN = "configuration.return"


class Workspace(Publisher):
    """The configurations in a store. An empty store starts with the one that `factory` makes. `check` checks
    a folder of rendered files, and raises StepFailed.

    Raises Unreadable, Invalid and StepFailed. All methods that change something raise StepFailed. A method
    with `if_match` raises Stale unless that holds the entity tag; None matches any.
    """

    def __init__(
        self,
        store: Store,
        factory: Callable[[], RunningConfiguration],
        clock: Clock,
        check: Callable[[Path], None],
    ) -> None:
        super().__init__(store, clock, check)
        if store.state is None:
            first = State(running=0, key=secrets.token_hex(16))
            self._run(factory(), self._commit_now("factory", None), first, ())
        else:
            state = store.state
            if state.deadline is not None:
                state = replace(state, deadline=state.deadline.resumed(clock))
            running = RunningConfiguration.stored(store.document(state.running))
            commits = tuple(map(store.commit, (state.running, *state.archive)))
            self._view = View(state, running, commits)
            users = running.sections.api.users
            generations = renewed(state.generations or {}, users, users)
            if generations != state.generations:
                state = replace(state, generations=generations)
                self._view = View(state, running, commits)
                try:
                    self._amend(state, "store the users' generations")
                except StepFailed as error:
                    # The gateway must start anyway. The next change stores them.
                    _log.error("tokens end with the next start unless a change is stored before: %s", error)

    def edit(
        self, operations: Sequence[Operation], if_match: IfMatch, caller: Caller | None = None
    ) -> tuple[list[EditedValue], str]:
        """Stages all operations or none. What each changed, and the new entity tag. Raises Refused, and
        Invalid for a candidate that has grown too large."""
        with self._writing(caller):
            self._expect(if_match)
            candidate, values = edited(self.view.candidate, operations)
            self._stage(candidate)
            return values, self.view.etag

    def discard(self, if_match: IfMatch, caller: Caller | None = None) -> tuple[ConfigurationDifference, str]:
        """Drops all staged changes. Returns them, and the new entity tag."""
        with self._writing(caller):
            self._expect(if_match)
            before = self.compare(None)
            self._stage(self.view.running.document)
            return before, self.view.etag

    def rollback(
        self, revision: int, if_match: IfMatch, caller: Caller | None = None
    ) -> tuple[ConfigurationDifference, int, str]:
        """Makes the candidate an archived configuration, 1 being the newest. The changes that were staged
        before, how many values a commit would change now, and the new entity tag. Raises NotFound and
        Unreadable."""
        with self._writing(caller):
            self._expect(if_match)
            before = self.compare(None)
            self._stage(self._document(revision))
            return before, len(self.view.changes()), self.view.etag

    def compare(self, revision: int | None) -> ConfigurationDifference:
        """From the running configuration, or from an archived one, to the candidate. Raises NotFound and
        Unreadable."""
        before = None if revision is None else self._document(revision)
        view = self.view
        return self._difference(view, changes(before or view.running.document, view.candidate))

    def commit(
        self,
        author: str,
        comment: str | None,
        confirm_seconds: int | None,
        if_match: IfMatch,
        caller: Caller | None = None,
    ) -> Outcome:
        """Makes the candidate run. With `confirm_seconds`, the former configuration returns after that time
        unless the commit is confirmed. While a commit waits for that, a commit of changes without
        `confirm_seconds` confirms it, and one with it moves the deadline, even with nothing to commit.

        Raises Invalid for an invalid candidate.
        """
        with self._writing(caller):
            self._look_again_if_returned()
            self._expect(if_match)
            view, deadline = self.view, self._deadline(confirm_seconds)
            if view.state.candidate is not None:
                candidate = RunningConfiguration.of(view.candidate, view.running)
                commit = self._commit_now(author, comment)
                return self._run_if_other(candidate, commit, candidate=None, deadline=deadline)
            before = self._difference(view, [])
            if deadline is not None and view.state.deadline is not None:
                self._amend(replace(view.state, deadline=deadline), "move the deadline")
            return self._outcome(0, before)

    def replace_running(
        self,
        document: dict[str, Any],
        author: str,
        comment: str | None,
        if_match: IfMatch,
        caller: Caller | None = None,
    ) -> Outcome:
        """Makes a whole document run, as if it had been staged and committed. A mask in it stands for the
        running secret. Raises Staged, and Invalid for an invalid document."""
        with self._writing(caller):
            self._look_again_if_returned()
            self._expect(if_match)
            view = self.view
            if view.state.candidate is not None:
                raise Staged("somebody has staged changes")
            document = unmasked(document, view.running.document)
            configuration = RunningConfiguration.of(document, view.running)
            refuse_too_large(document)
            commit = self._commit_now(author, comment)
            return self._run_if_other(configuration, commit, candidate=None, deadline=None)

    def amend(
        self,
        operations: Sequence[Operation],
        author: str,
        comment: str | None,
        if_match: IfMatch,
        caller: Caller | None = None,
    ) -> Outcome:
        """Changes the running configuration at once, all operations or none. Staged changes stay. A commit
        still waits for its confirmation: its baseline gets the same changes. Raises Refused, and Invalid for
        an invalid result."""
        with self._writing(caller):
            self._look_again_if_returned()
            self._expect(if_match)
            running, deadline = self.view.running, self.view.state.deadline
            document, _ = edited(running.document, operations)
            configuration = RunningConfiguration.of(document, running)
            # Before anything is stored: the running configuration and the baseline change together.
            refuse_too_large(document)
            if deadline is not None and document != running.document:
                before = RunningConfiguration.stored(self._store.document(deadline.baseline))
                held = RunningConfiguration.of(merged(running.document, document, before.document), before)
                refuse_too_large(held.document)
                commit = self._store.commit(deadline.baseline)
                number = self._store.add(held.document, commit, render(held.sections))
                deadline = replace(deadline, baseline=number)
            return self._run_beneath(configuration, self._commit_now(author, comment), deadline)

    def restore(self, revision: int, author: str, comment: str | None, caller: Caller | None) -> Outcome:
        """Makes an archived configuration run again at once; 1 is the newest. Staged changes stay. If it is
        the baseline of a deadline, that ends. Raises NotFound, Unreadable and Invalid."""
        with self._writing(caller):
            self._look_again_if_returned()
            deadline = self.view.state.deadline
            if deadline is not None and deadline.baseline == self.view.archived(revision):
                deadline = None
            configuration = RunningConfiguration.stored(self._document(revision))
            return self._run_beneath(configuration, self._commit_now(author, comment), deadline)

    def confirm(self, caller: Caller | None = None) -> None:
        """Confirms the last commit. Raises NothingToConfirm."""
        with self._writing(caller):
            self.return_if_due()
            state = self.view.state
            if state.deadline is None:
                raise NothingToConfirm("no commit waits for a confirmation")
            self._amend(replace(state, deadline=None), "store the confirmation")

    def return_if_due(self) -> bool:
        """Makes the configuration before an unconfirmed commit run again, once the deadline has passed. True
        when that was now. Until then, the deadline on disk follows a clock that is set. Raises StepFailed."""
        with self._writing(None):
            view = self.view
            deadline = view.state.deadline
            if deadline is None:
                return False
            if not deadline.has_come(self._clock):
                self._keep(deadline.following(self._clock))
                return False
            state = replace(view.state, deadline=None)
            try:
                baseline = RunningConfiguration.stored(self._store.document(deadline.baseline))
            except (Unreadable, Invalid) as error:
                # Another try would fail, too.
                _log.critical("the configuration before an unconfirmed commit is lost: %s", error)
                self._amend(state, "give up the deadline")
                return False
            commit = self._commit_now(CORE, "not confirmed in time")
            with self._writing(Caller(RETURN)):
                self._run(baseline, commit, state, view.commits)
            _log.warning("a commit wasn't confirmed in time: the configuration before it runs again")
            return True

    def end_tokens(self, username: str, caller: Caller | None = None) -> None:
        """Gives a user of the API another generation. Raises NoSuchUser."""
        with self._writing(caller):
            generations = ended(self.view.state.generations or {}, username)
            self._amend(replace(self.view.state, generations=generations), "end the tokens")

    def archive(self) -> Sequence[Commit]:
        """The commits of the archived configurations, newest first."""
        return self.view.commits[1:]

    def archived(self, revision: int) -> tuple[Commit, dict[str, Any]]:
        """One archived configuration; 1 is the newest. Raises NotFound and Unreadable."""
        view = self.view
        number = view.archived(revision)
        return view.commits[revision], self._store.document(number)

    def _document(self, revision: int) -> dict[str, Any]:
        return self._store.document(self.view.archived(revision))

    def _look_again_if_returned(self) -> None:
        if self.return_if_due():
            # The caller has read another configuration.
            raise Stale(self.view.etag)

    def _run_beneath(
        self, configuration: RunningConfiguration, commit: Commit, deadline: Deadline | None
    ) -> Outcome:
        """Makes a configuration run. Staged changes stay."""
        running, candidate = self.view.running.document, self.view.state.candidate
        refuse_too_large(configuration.document)
        if candidate is not None:
            candidate = merged(running, candidate, configuration.document)
        return self._run_if_other(configuration, commit, candidate=candidate, deadline=deadline)

    def _run_if_other(self, configuration: RunningConfiguration, commit: Commit, **state: Any) -> Outcome:
        """Makes a configuration run, with these fields of the state, if it differs from the one that runs."""
        view = self.view
        found = changes(view.running.document, configuration.document)
        before = self._difference(view, found)
        if found:
            self._run(configuration, commit, replace(view.state, **state), view.commits)
        return self._outcome(len(found), before)

    def _deadline(self, confirm_seconds: int | None) -> Deadline | None:
        if confirm_seconds is None:
            return None
        state = self.view.state
        # Of several commits, the baseline of the first: that configuration is known to work.
        baseline = state.running if state.deadline is None else state.deadline.baseline
        return Deadline.after(confirm_seconds, baseline, self._clock)

    def _stage(self, document: dict[str, Any]) -> None:
        refuse_too_large(document)
        self._amend(replace(self.view.state, candidate=document), "store the candidate")

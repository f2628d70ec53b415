"""How a change of the configuration takes effect: one at a time, on disk, and noted with its caller."""

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeAlias

from msgspec.structs import replace

from gateway_api.core.changes import Caller, Note
from gateway_api.core.clock import Clock
from gateway_api.core.configuration.documents import Change, diff_text
from gateway_api.core.configuration.outcome import Outcome, Stale, StepFailed
from gateway_api.core.configuration.running import RunningConfiguration, View, note_of, renewed, tidy
from gateway_api.core.configuration.sections import Configuration
from gateway_api.core.configuration.services import render
from gateway_api.core.configuration.state import Commit, Deadline, State
from gateway_api.core.configuration.store import Store
from gateway_api.wire.core.configuration import ConfigurationDifference

_log = logging.getLogger(__name__)

#: Archived revisions beside the running one.
ARCHIVED = 49

#: Seconds that a change waits for another. The API waits for one second more.
_PATIENCE = 2.0

IfMatch: TypeAlias = Sequence[str] | None


class Publisher:
    """The running and the staged configuration, in a store. `check` checks a folder of rendered files, and
    raises StepFailed."""

    _view: View

    def __init__(self, store: Store, clock: Clock, check: Callable[[Path], None]) -> None:
        self._store = store
        self._clock = clock
        self._check = check
        self._lock = threading.RLock()
        self._followers: list[Callable[[Configuration], None]] = []
        self._tell: Callable[[Note], None] = lambda _: None
        #: The caller of the current change, if it is to be noted.
        self._caller: Caller | None = None

    def follow(self, follower: Callable[[Configuration], None]) -> None:
        """Calls it with each new running configuration, before the caller gets the result. It must not raise:
        the configuration already runs."""
        self._followers.append(follower)

    def note(self, tell: Callable[[Note], None]) -> None:
        """Calls it with each change that has a caller, once it is on disk; and now with the last one, in case
        the process ended before that."""
        self._tell = tell
        if self.view.state.change is not None:
            tell(self.view.state.change)

    @property
    def view(self) -> View:
        """The current configurations."""
        return self._view

    @contextmanager
    def _writing(self, caller: Caller | None) -> Iterator[None]:
        """One change at a time. A change that waited too long fails: its client may have left."""
        if not self._lock.acquire(timeout=_PATIENCE):
            raise StepFailed("wait for the change under way", "it takes too long")
        before, self._caller = self._caller, caller
        try:
            yield
        finally:
            self._caller = before
            self._lock.release()

    def _expect(self, if_match: IfMatch) -> None:
        if if_match is not None and self.view.etag not in if_match:
            raise Stale(self.view.etag)

    def _outcome(self, found: int, before: ConfigurationDifference) -> Outcome:
        view = self.view
        return Outcome(found, view.commits[0], self._shown_deadline(view), view.etag, before)

    def _difference(self, view: View, found: list[Change]) -> ConfigurationDifference:
        return ConfigurationDifference(diff_text(found), view.etag, self._shown_deadline(view))

    def _shown_deadline(self, view: View) -> int | None:
        """When an unconfirmed commit is undone, in epoch seconds by the clock as it is set now."""
        deadline = view.state.deadline
        return None if deadline is None else deadline.shown(self._clock)

    def _keep(self, deadline: Deadline) -> None:
        """Stores the deadline if the disk has another: the next start uses that."""
        held = self._store.state
        if held is None or held.deadline != deadline:
            self._amend(replace(self.view.state, deadline=deadline), "store the deadline")

    def _commit_now(self, author: str, comment: str | None) -> Commit:
        return Commit(int(self._clock.wall()), author, comment)

    def _amend(self, state: State, step: str) -> None:
        self._publish(View(tidy(state, self.view.running), self.view.running, self.view.commits), step)

    def _run(
        self,
        configuration: RunningConfiguration,
        commit: Commit,
        state: State,
        before: Sequence[Commit],
    ) -> None:
        """Makes it run, with the candidate and the deadline of `state`, after the commits `before`. The
        baseline of the deadline may be a revision that does not count yet."""
        rendered = render(configuration.sections)
        number = self._store.add(configuration.document, commit, rendered, keep=state.names())
        self._check(self._store.services(number))
        archive = (state.running, *state.archive) if state.running else ()
        users = self.view.running.sections.api.users if state.running else ()
        generations = renewed(state.generations or {}, users, configuration.sections.api.users)
        state = replace(state, running=number, archive=archive[:ARCHIVED], generations=generations)
        view = View(tidy(state, configuration), configuration, (commit, *before[:ARCHIVED]))
        self._publish(view, "replace the running configuration")
        _log.info("revision %d runs, committed by %s", number, commit.author)
        for follower in self._followers:
            follower(configuration.sections)

    def _publish(self, view: View, step: str) -> None:
        note = None
        if self._caller is not None:
            note = note_of(self._caller, self._clock.wall(), self._view, view)
        if note is not None:
            # With the change, in one rename: after a crash, both are on disk or neither.
            view.state = replace(view.state, change=note)
        self._store.publish(view.state, step)
        self._view = view
        if note is not None:
            self._tell(note)

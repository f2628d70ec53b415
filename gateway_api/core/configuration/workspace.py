"""The configuration's workflow: one that runs, one candidate, and what becomes of them.

Any thread may call. What changes something does so for good, on disk, before it returns, or not at all.
"""

import hashlib
import logging
import math
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from gateway_api.core.configuration.diff import Change, changes
from gateway_api.core.configuration.edit import Operation, edited
from gateway_api.core.configuration.render import render
from gateway_api.core.configuration.running import RunningConfiguration
from gateway_api.core.configuration.sections import Configuration
from gateway_api.core.configuration.store import Commit, Deadline, State, Store
from gateway_api.errors import GatewayApiError, Invalid, NotFound, Problem

_log = logging.getLogger(__name__)

#: Revisions that stay besides the running one.
ARCHIVED = 49
#: The most bytes of a candidate as JSON.
LARGEST = 1 << 20

#: The author of what the core does by itself.
CORE = "core"


class Stale(GatewayApiError):
    """The configuration isn't the one that the caller has seen."""

    def __init__(self, etag: str) -> None:
        #: That of the configuration as it is now.
        self.etag = etag
        super().__init__("the configuration has changed")


class NothingToConfirm(GatewayApiError):
    """No commit waits for a confirmation."""


@dataclass(frozen=True)
class Outcome:
    """What came of a commit: so many values changed. `commit` is that of what runs now, which without
    changes is an older one; `etag` is of the configuration as it is now."""

    changes: int
    commit: Commit
    deadline: Deadline | None
    etag: str


class View:
    """What there is at one moment, to be looked at without waiting for whoever changes it."""

    def __init__(self, state: State, running: RunningConfiguration, commit: Commit) -> None:
        self.state = state
        #: What runs, and how it came to.
        self.running = running
        self.commit = commit
        #: The candidate's document; that of what runs, if nothing is staged.
        self.candidate = running.document if state.candidate is None else state.candidate
        canonical = msgspec.json.encode((running.document, self.candidate), order="sorted")
        #: A hash of both documents, secrets included: a changed password is a change.
        self.etag = hashlib.sha256(canonical).hexdigest()[:32]

    def changes(self) -> list[Change]:
        """From what runs to the candidate."""
        return changes(self.running.document, self.candidate)


class Workspace:
    """The configurations in a store; in an empty one, to begin with, the one that `factory` gives. `clock`
    gives epoch seconds; `check` looks at a folder of rendered files and raises StepFailed.

    Raises Unreadable, Invalid and StepFailed. All methods that change something raise StepFailed. Where one
    takes `if_match`, it raises Stale unless the entity tag is among these; None is any.
    """

    def __init__(
        self,
        store: Store,
        factory: Callable[[], RunningConfiguration],
        clock: Callable[[], float],
        check: Callable[[Path], None],
    ) -> None:
        self._store = store
        self._clock = clock
        self._check = check
        self._lock = threading.RLock()
        self._followers: list[Callable[[Configuration], None]] = []
        if store.state is None:
            self._run(factory(), Commit(int(clock()), "factory", None), State(running=0))
        else:
            running = RunningConfiguration.of(store.document(store.state.running))
            self._view = View(store.state, running, store.commit(store.state.running))

    def follow(self, follower: Callable[[Configuration], None]) -> None:
        """Has it called with every configuration that comes to run from now on, before anybody is told."""
        self._followers.append(follower)

    @property
    def view(self) -> View:
        """What there is now."""
        return self._view

    def edit(self, operations: Sequence[Operation], if_match: Sequence[str] | None) -> str:
        """Stages all operations or none; the entity tag after them. Raises Refused, and Invalid for a
        candidate that has grown too large."""
        with self._lock:
            self._expect(if_match)
            self._stage(edited(self.view.candidate, operations))
            return self.view.etag

    def discard(self, if_match: Sequence[str] | None) -> str:
        """Makes the candidate what runs; the entity tag after that."""
        with self._lock:
            self._expect(if_match)
            self._stage(self.view.running.document)
            return self.view.etag

    def rollback(self, revision: int, if_match: Sequence[str] | None) -> tuple[int, str]:
        """Makes the candidate an archived configuration, 1 being the newest. How many values a commit
        would change, and the entity tag. Raises NotFound and Unreadable."""
        with self._lock:
            self._expect(if_match)
            self._stage(self._store.document(self._archived(revision)))
            return len(self.view.changes()), self.view.etag

    def compare(self, revision: int | None) -> tuple[list[Change], str]:
        """From what runs, or from an archived configuration, to the candidate; and the entity tag. Raises
        NotFound and Unreadable."""
        if revision is None:
            view = self.view
            return view.changes(), view.etag
        with self._lock:
            before = self._store.document(self._archived(revision))
            return changes(before, self.view.candidate), self.view.etag

    def commit(
        self, author: str, comment: str | None, confirm_seconds: int | None, if_match: Sequence[str] | None
    ) -> Outcome:
        """Makes the candidate run. With `confirm_seconds`, what ran before comes back after that time
        unless somebody confirms. While one waits for that, a commit of changes without it confirms, and
        one with it moves the deadline, even where there is nothing to commit.

        Raises Invalid for a candidate that doesn't hold.
        """
        with self._lock:
            self.return_if_due()
            self._expect(if_match)
            view = self.view
            found = len(view.changes())
            deadline = self._deadline(confirm_seconds)
            if found:
                commit = Commit(int(self._clock()), author, comment)
                candidate = RunningConfiguration.of(view.candidate)
                self._run(candidate, commit, replace(view.state, candidate=None, deadline=deadline))
            elif deadline is not None and view.state.deadline is not None:
                self._amend(replace(view.state, deadline=deadline), "move the deadline")
            view = self.view
            return Outcome(found, view.commit, view.state.deadline, view.etag)

    def confirm(self) -> None:
        """Lets what runs stay. Raises NothingToConfirm."""
        with self._lock:
            self.return_if_due()
            state = self.view.state
            if state.deadline is None:
                raise NothingToConfirm("no commit waits for a confirmation")
            self._amend(replace(state, deadline=None), "store the confirmation")

    def return_if_due(self) -> None:
        """Has the configuration before an unconfirmed commit run again, once its deadline has come. Raises
        what `commit` raises, and Unreadable."""
        with self._lock:
            state = self.view.state
            if state.deadline is None or self._clock() < state.deadline.at:
                return
            _log.warning("a commit wasn't confirmed in time: the configuration before it runs again")
            baseline = RunningConfiguration.of(self._store.document(state.deadline.baseline))
            commit = Commit(int(self._clock()), CORE, "not confirmed in time")
            self._run(baseline, commit, replace(state, deadline=None))

    def archive(self) -> list[Commit]:
        """How the archived configurations came to be, newest first. Raises Unreadable."""
        with self._lock:
            return [self._store.commit(number) for number in self.view.state.archive]

    def archived(self, revision: int) -> tuple[Commit, dict[str, Any]]:
        """One archived configuration, 1 being the newest. Raises NotFound and Unreadable."""
        with self._lock:
            number = self._archived(revision)
            return self._store.commit(number), self._store.document(number)

    def _archived(self, revision: int) -> int:
        archive = self.view.state.archive
        if not 1 <= revision <= len(archive):
            raise NotFound("No such revision")
        return archive[revision - 1]

    def _expect(self, if_match: Sequence[str] | None) -> None:
        if if_match is not None and self.view.etag not in if_match:
            raise Stale(self.view.etag)

    def _deadline(self, confirm_seconds: int | None) -> Deadline | None:
        if confirm_seconds is None:
            return None
        state = self.view.state
        # The first of several: the one that somebody last knew to work.
        baseline = state.running if state.deadline is None else state.deadline.baseline
        return Deadline(math.ceil(self._clock() + confirm_seconds), baseline)

    def _stage(self, document: dict[str, Any]) -> None:
        if len(msgspec.json.encode(document)) > LARGEST:
            raise Invalid(Problem("", "invalid", f"A configuration has at most {LARGEST} bytes of JSON"))
        self._amend(replace(self.view.state, candidate=document), "store the candidate")

    def _amend(self, state: State, step: str) -> None:
        self._publish(View(_tidy(state, self.view.running), self.view.running, self.view.commit), step)

    def _run(self, configuration: RunningConfiguration, commit: Commit, state: State) -> None:
        """Makes it run, with a candidate and a deadline as `state` has them."""
        number = self._store.add(configuration.document, commit, render(configuration.sections))
        self._check(self._store.services(number))
        before = (state.running, *state.archive) if state.running else ()
        state = replace(state, running=number, archive=before[:ARCHIVED])
        view = View(_tidy(state, configuration), configuration, commit)
        self._publish(view, "replace the running configuration")
        _log.info("revision %d runs, committed by %s", number, commit.author)
        for follower in self._followers:
            follower(configuration.sections)

    def _publish(self, view: View, step: str) -> None:
        self._store.publish(view.state, step)
        self._view = view


def _tidy(state: State, running: RunningConfiguration) -> State:
    """The same without a candidate that is no other than what runs."""
    if state.candidate is not None and not changes(running.document, state.candidate):
        return replace(state, candidate=None)
    return state

"""How a change of the configuration takes effect: on disk, noted with its caller, and followed."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from msgspec.structs import replace

from gateway_api.core.changes import Caller, Note
from gateway_api.core.clock import Clock
from gateway_api.core.configuration.documents import Change, diff_text
from gateway_api.core.configuration.running import RunningConfiguration, View, note_of, renewed
from gateway_api.core.configuration.sections import Configuration
from gateway_api.core.configuration.services import render
from gateway_api.core.configuration.store import Commit, State, Store
from gateway_api.wire.core.configuration import CommitReply, ConfigurationDifference

_log = logging.getLogger(__name__)

#: Archived revisions beside the running one.
ARCHIVED = 49


@dataclass(frozen=True)
class ChangeRequest:
    """What a change needs besides its values: the author and the comment of the commit; entity tags, one of
    which must be the current one; and the caller for the note. None in `if_match` matches any tag. Without a
    `caller`, the change is not noted."""

    author: str = ""
    comment: str | None = None
    if_match: Sequence[str] | None = None
    caller: Caller | None = None


class Publisher:
    """The running and the staged configuration, in a store. `check` checks a folder of rendered files, and
    raises StepFailed."""

    #: The current configurations.
    view: View

    def __init__(self, store: Store, clock: Clock, check: Callable[[Path], None]) -> None:
        self._store = store
        self._clock = clock
        self._check = check
        self._followers: list[Callable[[Configuration], None]] = []
        self._tell: Callable[[Note], None] = lambda _: None

    def follow(self, follower: Callable[[Configuration], None]) -> None:
        """Calls `follower` with each new running configuration, before the caller gets the reply. It must not
        raise: the configuration already runs."""
        self._followers.append(follower)

    def note(self, tell: Callable[[Note], None]) -> None:
        """Calls `tell` with the note of each change, once it is on disk. Also calls it now, with the last
        note: the process may have ended before the call."""
        self._tell = tell
        if self.view.state.change is not None:
            tell(self.view.state.change)

    def _run(self, configuration: RunningConfiguration, request: ChangeRequest, state: State) -> None:
        """Makes a configuration run, with the candidate and the deadline of `state`. The baseline of the
        deadline may be a revision that does not count yet."""
        rendered = render(configuration.sections)
        commit = Commit(int(self._clock.wall()), request.author, request.comment)
        number = self._store.add(configuration.document, commit, rendered, keep=state.names())
        self._check(self._store.services(number))
        archive = (state.running, *state.archive)[:ARCHIVED] if state.running else ()
        users = self.view.running.sections.api.users
        generations = renewed(state.generations or {}, users, configuration.sections.api.users)
        state = replace(state, running=number, archive=archive, generations=generations)
        view = View(state, configuration, (commit, *self.view.commits[:ARCHIVED]))
        self._publish(view, "replace the running configuration", request.caller)
        _log.info("revision %d runs, committed by %s", number, commit.author)
        for follower in self._followers:
            follower(configuration.sections)

    def _amend(self, state: State, step: str, caller: Caller | None) -> None:
        self._publish(View(state, self.view.running, self.view.commits), step, caller)

    def _publish(self, view: View, step: str, caller: Caller | None) -> None:
        note = None if caller is None else note_of(caller, self._clock.wall(), self.view, view)
        if note is not None:
            # With the change, in one rename: after a crash, both are on disk or neither.
            view.state = replace(view.state, change=note)
        self._store.publish(view.state, step)
        self.view = view
        if note is not None:
            self._tell(note)

    def _reply(self, number: int, before: ConfigurationDifference) -> CommitReply:
        """`number` is that of the changed values; without any, the commit is an older one."""
        commit = self.view.commits[0]
        now = self._difference(self.view, [])
        return CommitReply(
            committed=number > 0,
            changes=number,
            archived_revision=1 if number else None,
            author=commit.author,
            comment=commit.comment,
            committed_at=commit.committed_at,
            confirm_deadline=now.confirm_deadline,
            etag=now.etag,
            before=before,
        )

    def _difference(self, view: View, found: list[Change]) -> ConfigurationDifference:
        deadline = view.state.deadline
        shown = None if deadline is None else deadline.shown(self._clock)
        return ConfigurationDifference(diff_text(found), view.etag, shown)

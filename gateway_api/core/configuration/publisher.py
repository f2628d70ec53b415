"""How a change of the configuration takes effect: applied, on disk, noted with its caller, and followed."""

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from msgspec.structs import replace

from gateway_api.core.configuration.documents import Change, diff_text
from gateway_api.core.configuration.running import RunningConfiguration, View, note_of, renewed
from gateway_api.core.configuration.sections import Configuration
from gateway_api.core.configuration.services import GatewayServices, render
from gateway_api.core.configuration.store import Commit, ConfigurationStore, State, StepFailed
from gateway_api.core.records.changes import Caller, Note
from gateway_api.core.records.clock import Clock
from gateway_api.wire.core.configuration import CommitReply, ConfigurationDifference
from gateway_api.wire.core.impact import CommitDropsSessionsError, Impact
from gateway_api.wire.core.interface import CORE

_log = logging.getLogger(__name__)

#: Archived revisions beside the running one.
ARCHIVED = 49

_NO_IMPACT = Impact()

#: As `Gateway.ending`.
Ending = Callable[[Configuration], AbstractContextManager[Sequence[int]]]


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


class Publisher:
    """The running and the staged configuration, in a store. `check` checks a folder of rendered files, and
    raises StepFailed. `services` run by the files."""

    #: The current configurations.
    view: View

    def __init__(
        self,
        store: ConfigurationStore,
        clock: Clock,
        check: Callable[[Path], None],
        services: GatewayServices,
    ) -> None:
        self._store = store
        self._clock = clock
        self._check = check
        self._services = services
        #: False while the services may run by other files than those of the running configuration.
        self._applied = False
        self._impact: Callable[[Configuration], Impact] = lambda _: _NO_IMPACT
        self._ending: Ending = lambda _: nullcontext(())
        self._followers: list[Callable[[Configuration], None]] = []
        self._tell: Callable[[Note], None] = lambda _: None

    def follow(self, follower: Callable[[Configuration], None]) -> None:
        """Calls `follower` with each new running configuration, before the caller gets the reply. It must not
        raise: the configuration already runs."""
        self._followers.append(follower)

    def foresee(self, impact: Callable[[Configuration], Impact], ending: Ending) -> None:
        """Asks `impact` what a configuration would do, and `ending` which sessions end when it runs. Without
        a gateway there is no session to end."""
        self._impact = impact
        self._ending = ending

    def note(self, tell: Callable[[Note], None]) -> None:
        """Calls `tell` with the note of each change, once it is on disk. Also calls it now, with the last
        note: the process may have ended before the call."""
        self._tell = tell
        if self.view.state.change is not None:
            tell(self.view.state.change)

    def _run(self, configuration: RunningConfiguration, request: ChangeRequest, state: State) -> Impact:
        """Makes a configuration run, with the candidate and the deadline of `state`, and returns what that
        did. The baseline of the deadline may be a revision that does not count yet. Raises
        CommitDropsSessionsError."""
        rendered = render(configuration.sections)
        commit = Commit(int(self._clock.wall()), request.author, request.comment)
        number = self._store.add(configuration.document, commit, rendered, keep=state.names())
        files = self._store.services(number)
        self._check(files)
        foreseen = self._impact(configuration.sections)
        _refuse_over(foreseen, request)
        archive = (state.running, *state.archive)[:ARCHIVED] if state.running else ()
        users = self.view.running.sections.api.users
        generations = renewed(state.generations or {}, users, configuration.sections.api.users)
        state = replace(state, running=number, archive=archive, generations=generations)
        view = View(state, configuration, (commit, *self.view.commits[:ARCHIVED]))
        with self._applying(files, configuration.sections), self._ending(configuration.sections) as ids:
            # Again: the services may have taken seconds, in which sessions start.
            impact = Impact.of(ids, foreseen.services)
            _refuse_over(impact, request)
            self._publish(view, "replace the running configuration", request.caller, impact)
            for follower in self._followers:
                follower(configuration.sections)
        _log.info("revision %d runs, committed by %s", number, commit.author)
        return impact

    @contextmanager
    def _applying(self, files: Path, configuration: Configuration) -> Iterator[None]:
        """Makes the services run by these files. If the block fails, they run as before again."""
        if not self.view.state.running:
            # The first files are applied after the start: a service that refuses must not stop the core.
            yield
            return
        # Also if it fails: what it did not put back is tried again.
        self._applied = False
        self._services.apply(files, configuration)
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
        self._services.resume(self._store.services(self.view.state.running), self.view.running.sections)
        self._applied = True

    def _amend(self, state: State, step: str, caller: Caller | None) -> None:
        self._publish(View(state, self.view.running, self.view.commits), step, caller)

    def _publish(self, view: View, step: str, caller: Caller | None, impact: Impact = _NO_IMPACT) -> None:
        note = None if caller is None else note_of(caller, self._clock.wall(), self.view, view, impact)
        if note is not None:
            # With the change, in one rename: after a crash, both are on disk or neither.
            view.state = replace(view.state, change=note)
        self._store.publish(view.state, step)
        self.view = view
        if note is not None:
            self._tell(note)

    def _reply(
        self, number: int, before: ConfigurationDifference, impact: Impact = _NO_IMPACT
    ) -> CommitReply:
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
            impact=impact,
            before=before,
        )

    def _difference(self, view: View, found: list[Change]) -> ConfigurationDifference:
        deadline = view.state.deadline
        shown = None if deadline is None else deadline.shown(self._clock)
        return ConfigurationDifference(diff_text(found), view.etag, shown)


def _refuse_over(impact: Impact, request: ChangeRequest) -> None:
    """Raises CommitDropsSessionsError if more sessions end than the request allows."""
    most = request.max_sessions_dropped
    if most is not None and impact.sessions_dropped > most:
        raise CORE.error(CommitDropsSessionsError(impact.sessions_dropped, most))

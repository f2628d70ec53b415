"""The configurations at one moment: what runs, what is staged, what is archived."""

import hashlib
from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from gateway_api.base.errors import NotFound
from gateway_api.core.configuration.diff import Change, changes
from gateway_api.core.configuration.running import RunningConfiguration
from gateway_api.core.configuration.store import Commit, State


class View:
    """To be looked at without waiting for whoever changes it."""

    def __init__(self, state: State, running: RunningConfiguration, commits: Sequence[Commit]) -> None:
        self.state = state
        self.running = running
        #: How what runs came to, and after it the archived ones, the newest first.
        self.commits = commits
        #: The candidate's document; that of what runs, if nothing is staged.
        self.candidate = running.document if state.candidate is None else state.candidate
        canonical = msgspec.json.encode((running.document, self.candidate), order="sorted")
        #: A hash of both documents, secrets included: a changed password is a change.
        self.etag = hashlib.blake2b(canonical, key=state.key.encode(), digest_size=16).hexdigest()

    def changes(self) -> list[Change]:
        """From what runs to the candidate."""
        return changes(self.running.document, self.candidate)

    def archived(self, revision: int) -> int:
        """The number of an archived configuration, 1 being the newest. Raises NotFound."""
        if not 1 <= revision <= len(self.state.archive):
            raise NotFound("No such revision")
        return self.state.archive[revision - 1]


def tidy(state: State, running: RunningConfiguration) -> State:
    """The same without a candidate that is no other than what runs."""
    if state.candidate == running.document:
        return replace(state, candidate=None)
    return state

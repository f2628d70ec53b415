"""What the API asks of the core daemon about the configuration, one method a call.

All that change something take `if_match`, the entity tags of which one must be the configuration's, or None
for any; they raise Stale, and NotDone. Entity tags are of the running configuration and the candidate
together.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from gateway_api.base.errors import Invalid, NotFound, Problem
from gateway_api.daemon.calls import Calls, EditNotFound, EditRefused, Fields, decoded
from gateway_api.wire.contract import Method
from gateway_api.wire.core import configuration as wire
from gateway_api.wire.core.configuration import (
    CommitReply,
    ConfigurationDifference,
    DiscardReply,
    EditAction,
    EditReply,
    RollbackReply,
)

#: A commit syncs a dozen files, asks FRR's parser, and has 100,000 sessions follow. Sent again because nobody
#: waited for its answer, it would look as if there had been nothing to commit.
_COMMIT_TIMEOUT = 30.0

IfMatch = Sequence[str] | None
Sections = dict[str, msgspec.Raw]


@dataclass(frozen=True)
class Edit:
    """`value` is any JSON, of no meaning to delete."""

    action: EditAction
    path: str
    value: Any = None


class ConfigurationCommands:
    """Every method raises CoreUnavailable when the core can't be asked, or answers nonsense."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    def for_request(self, id: str) -> "ConfigurationCommands":
        """The same; the API records its changes under that request id."""
        return ConfigurationCommands(self._calls.for_request(id))

    def running(self) -> tuple[Sections, str]:
        """Its sections, secrets masked, and the entity tag."""
        return self._sections(wire.GetConfiguration())

    def candidate(self) -> tuple[Sections, str]:
        """Its sections, secrets masked, and the entity tag."""
        return self._sections(wire.GetCandidate())

    def compare(self, revision: int | None) -> ConfigurationDifference:
        """From running, or from an archived revision, to the candidate. Raises NotFound."""
        wanted = None if revision is None else _revision(revision)
        return self._calls.reply(wire.CompareConfiguration(wanted))

    def edit(self, edits: Sequence[Edit], if_match: IfMatch) -> EditReply:
        """Stages all or none. Raises EditRefused, Invalid and EditNotFound."""
        return self._calls.reply(wire.EditCandidate(_sent(edits), if_match))

    def edit_all(self, edits: Sequence[Edit], if_match: IfMatch) -> EditReply:
        """As `edit`, but what is wrong is said with `operations` and the edit's number before it."""
        try:
            return self.edit(edits, if_match)
        except EditRefused as error:
            above = f"operations.{error.number}"
            problems = (Problem(f"{above}.{p.path}", p.code, p.message) for p in error.problems)
            raise Invalid(*problems) from error
        except EditNotFound as error:
            raise NotFound(f"operations.{error.number}: {error}") from error

    def commit(
        self, author: str, comment: str | None, confirm_seconds: int | None, if_match: IfMatch
    ) -> CommitReply:
        """Raises Invalid."""
        call = wire.CommitCandidate(author, comment, confirm_seconds, if_match)
        return self._calls.reply(call, timeout=_COMMIT_TIMEOUT)

    def replace(self, document: dict[str, Any], author: str, if_match: IfMatch) -> CommitReply:
        """Makes a whole configuration run. Raises Invalid, and Conflict while something is staged."""
        call = wire.ReplaceConfiguration(document, author, if_match=if_match)
        return self._calls.reply(call, timeout=_COMMIT_TIMEOUT)

    def amend(self, edits: Sequence[Edit], author: str, action: str) -> CommitReply:
        """Changes what runs at once, and leaves what is staged on top. The core tells of the change by
        `action`. Raises EditRefused, Invalid and EditNotFound."""
        call = wire.AmendConfiguration(_sent(edits), author, action=action)
        return self._calls.reply(call, timeout=_COMMIT_TIMEOUT)

    def restore(self, revision: int, author: str, action: str) -> CommitReply:
        """Has an archived revision run again at once, and leaves what is staged on top. The core tells of
        the change by `action`. Raises NotFound."""
        call = wire.RestoreRevision(_revision(revision), author, action=action)
        return self._calls.reply(call, timeout=_COMMIT_TIMEOUT)

    def confirm(self) -> None:
        """Raises Conflict."""
        self._calls.raw(wire.ConfirmCommit())

    def rollback(self, revision: int, if_match: IfMatch) -> RollbackReply:
        """Stages an archived revision. Raises NotFound."""
        return self._calls.reply(wire.RollbackCandidate(_revision(revision), if_match))

    def discard(self, if_match: IfMatch) -> DiscardReply:
        return self._calls.reply(wire.DiscardCandidate(if_match))

    def archive(self) -> Fields:
        """`revisions`, newest first, and `count`."""
        return self._calls.fields(wire.ListArchive(), "revisions", "count")

    def archived(self, revision: int) -> Fields:
        """`revision`, `committed_at`, `author`, `comment` and the `configuration`, secrets masked. Raises
        NotFound."""
        call = wire.GetArchivedRevision(_revision(revision))
        return self._calls.fields(call, *wire.ArchivedRevisionReply.__struct_fields__)

    def _sections(self, call: Method[wire.ConfigurationReply]) -> tuple[Sections, str]:
        reply = self._calls.fields(call, "configuration", "etag")
        return decoded(Sections, reply["configuration"]), decoded(str, reply["etag"])


def _sent(edits: Iterable[Edit]) -> tuple[wire.ConfigurationEdit, ...]:
    return tuple(wire.ConfigurationEdit(edit.action, edit.path, _json(edit)) for edit in edits)


def _json(edit: Edit) -> str | None:
    if edit.action == EditAction.DELETE:
        return None
    try:
        return msgspec.json.encode(edit.value).decode()
    except RecursionError as error:
        # It was just not too deep to be read.
        raise Invalid(Problem(edit.path, "invalid", "must not be nested as deeply")) from error


def _revision(number: int) -> int:
    """A number that a core can read; what can't be a revision is none."""
    if not 1 <= number < 1 << 31:
        raise NotFound("No such revision")
    return number

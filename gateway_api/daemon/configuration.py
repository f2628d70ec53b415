"""What the API asks of the core daemon about the configuration, one method a call.

All that change something take `if_match`, the entity tags of which one must be the configuration's, or None
for any; they raise Stale, and NotDone. Entity tags are of the running configuration and the candidate
together.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from gateway_api.base.errors import Invalid, NotFound, Problem
from gateway_api.daemon.calls import Calls, EditNotFound, EditRefused, Fields, decoded

#: A commit syncs a dozen files, asks FRR's parser, and has 100,000 sessions follow. Sent again because nobody
#: waited for its answer, it would look as if there had been nothing to commit.
_COMMIT_TIMEOUT = 30.0

#: Before a change, only to know what was: within the 5 s in which a client has its answer.
_GLANCE_TIMEOUT = 0.5

IfMatch = Sequence[str] | None
Sections = dict[str, msgspec.Raw]


@dataclass(frozen=True)
class Edit:
    """`value` is any JSON, of no meaning to delete."""

    action: Literal["set", "delete"]
    path: str
    value: Any = None


class Committed(msgspec.Struct, frozen=True):
    """Times are epoch seconds. When nothing was `committed`, the last commit's author, comment and time."""

    committed: bool
    changes: int
    author: str
    committed_at: int
    etag: str
    comment: str | None = None
    archived_revision: int | None = None
    confirm_deadline: int | None = None


class _Etag(msgspec.Struct):
    etag: str


class _RolledBack(msgspec.Struct):
    changes: int
    etag: str


class Difference(msgspec.Struct):
    """Lines that begin with - or +, and the entity tag of what they were made of. `confirm_deadline` is when
    the last commit is undone unless confirmed, in epoch seconds, or None."""

    diff: str
    etag: str
    confirm_deadline: int | None = None


class ConfigurationCommands:
    """Every method raises CoreUnavailable when the core can't be asked, or answers nonsense."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    def for_request(self, id: str) -> "ConfigurationCommands":
        """The same, whose changes are recorded by who makes them, under that id."""
        return ConfigurationCommands(self._calls.for_request(id))

    def running(self) -> tuple[Sections, str]:
        """Its sections, secrets masked, and the entity tag."""
        return self._sections("GetConfiguration")

    def candidate(self) -> tuple[Sections, str]:
        """Its sections, secrets masked, and the entity tag."""
        return self._sections("GetCandidate")

    def compare(self, revision: int | None) -> Difference:
        """From running, or from an archived revision, to the candidate. Raises NotFound."""
        wanted = None if revision is None else _revision(revision)
        return self._calls.typed(Difference, "CompareConfiguration", revision=wanted)

    def staged(self) -> Difference:
        """What a commit would change, as it is before it is changed."""
        return self._calls.typed(Difference, "CompareConfiguration", timeout=_GLANCE_TIMEOUT, revision=None)

    def glance(self) -> Any:
        """The candidate's document as it is before it is changed, secrets masked."""
        reply = self._calls.fields("GetCandidate", "configuration", timeout=_GLANCE_TIMEOUT)
        return decoded(dict[str, Any], reply["configuration"])

    def edit(self, edits: Sequence[Edit], if_match: IfMatch) -> str:
        """Stages all or none; the new entity tag. Raises EditRefused, Invalid and EditNotFound."""
        sent = [_sent(edit) for edit in edits]
        return self._calls.changed(_Etag, "EditCandidate", edits=sent, if_match=if_match).etag

    def edit_all(self, edits: Sequence[Edit], if_match: IfMatch) -> str:
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
    ) -> Committed:
        """Raises Invalid."""
        return self._calls.changed(
            Committed,
            "CommitCandidate",
            timeout=_COMMIT_TIMEOUT,
            author=author,
            comment=comment,
            confirm_seconds=confirm_seconds,
            if_match=if_match,
        )

    def replace(self, document: dict[str, Any], author: str, if_match: IfMatch) -> Committed:
        """Makes a whole configuration run. Raises Invalid, and Conflict while something is staged."""
        sent = msgspec.Raw(_json(document, ""))
        return self._calls.changed(
            Committed,
            "ReplaceConfiguration",
            timeout=_COMMIT_TIMEOUT,
            configuration=sent,
            author=author,
            if_match=if_match,
        )

    def amend(self, edits: Sequence[Edit], author: str, action: str) -> Committed:
        """Changes what runs at once, and leaves what is staged on top. The core tells of the change by
        `action`. Raises EditRefused, Invalid and EditNotFound."""
        return self._calls.typed(
            Committed,
            "AmendConfiguration",
            timeout=_COMMIT_TIMEOUT,
            edits=[_sent(edit) for edit in edits],
            author=author,
            action=action,
        )

    def restore(self, revision: int, author: str, action: str) -> Committed:
        """Has an archived revision run again at once, and leaves what is staged on top. The core tells of
        the change by `action`. Raises NotFound."""
        return self._calls.typed(
            Committed,
            "RestoreRevision",
            timeout=_COMMIT_TIMEOUT,
            revision=_revision(revision),
            author=author,
            action=action,
        )

    def confirm(self) -> None:
        """Raises Conflict."""
        self._calls.change("ConfirmCommit")

    def rollback(self, revision: int, if_match: IfMatch) -> tuple[int, str]:
        """How many values a commit would change, and the new entity tag. Raises NotFound."""
        wanted = _revision(revision)
        said = self._calls.changed(_RolledBack, "RollbackCandidate", revision=wanted, if_match=if_match)
        return said.changes, said.etag

    def discard(self, if_match: IfMatch) -> str:
        """The new entity tag."""
        return self._calls.changed(_Etag, "DiscardCandidate", if_match=if_match).etag

    def archive(self) -> Fields:
        """`revisions`, newest first, and `count`."""
        return self._calls.fields("ListArchive", "revisions", "count")

    def archived(self, revision: int) -> Fields:
        """`revision`, `committed_at`, `author`, `comment` and the `configuration`, secrets masked. Raises
        NotFound."""
        names = ("revision", "committed_at", "author", "comment", "configuration")
        return self._calls.fields("GetArchivedRevision", *names, revision=_revision(revision))

    def _sections(self, method: str) -> tuple[Sections, str]:
        reply = self._calls.fields(method, "configuration", "etag")
        return decoded(Sections, reply["configuration"]), decoded(str, reply["etag"])


def _sent(edit: Edit) -> dict[str, str | None]:
    if edit.action == "delete":
        return {"action": edit.action, "path": edit.path, "value_json": None}
    return {"action": edit.action, "path": edit.path, "value_json": _json(edit.value, edit.path).decode()}


def _json(value: Any, path: str) -> bytes:
    try:
        return msgspec.json.encode(value)
    except RecursionError as error:
        # It was just not too deep to be read.
        raise Invalid(Problem(path, "invalid", "must not be nested as deeply")) from error


def _revision(number: int) -> int:
    """A number that a core can read; what can't be a revision is none."""
    if not 1 <= number < 1 << 31:
        raise NotFound("No such revision")
    return number

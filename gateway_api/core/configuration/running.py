"""The running configuration, what is staged on top of it, and the note of a change to them."""

import hashlib
import logging
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from gateway_api.base.errors import Invalid, NotFound, Problem
from gateway_api.base.fields import MOST_PROBLEMS, load
from gateway_api.base.logs import redacted
from gateway_api.core.changes import Caller, Note
from gateway_api.core.configuration.documents import Change, changes, diff_text
from gateway_api.core.configuration.fields import schema_of
from gateway_api.core.configuration.outcome import NoSuchUser
from gateway_api.core.configuration.sections import Configuration, User
from gateway_api.core.configuration.state import Commit, State
from gateway_api.core.configuration.store import read_json
from gateway_api.core.configuration.values import violations

_log = logging.getLogger(__name__)

#: The most bytes of a configuration as JSON.
LARGEST = 1 << 20

_SCHEMA = schema_of(Configuration)()


@dataclass(frozen=True)
class RunningConfiguration:
    """`document` is the JSON as stored, `sections` what the schema made of it."""

    document: dict[str, Any]
    sections: Configuration

    @classmethod
    def of(
        cls, document: dict[str, Any], before: "RunningConfiguration | None" = None
    ) -> "RunningConfiguration":
        """A new one. It may break a rule of `strict` where `before` breaks it with the same value: otherwise
        nothing could be changed until that is mended. Raises Invalid, with the dotted path of everything
        that is wrong."""
        sections, problems = None, []
        try:
            sections = load(_SCHEMA, document)
        except Invalid as error:
            problems = list(error.problems)
        known = {} if before is None else violations(before.document, before.sections)
        found = violations(document, sections)
        problems += [problem for violation, problem in found.items() if violation not in known]
        if problems or sections is None:
            raise Invalid(*problems[:MOST_PROBLEMS])
        return cls(document, sections)

    @classmethod
    def stored(cls, document: dict[str, Any]) -> "RunningConfiguration":
        """One that ran before, perhaps with an older version: a rule of `strict` that it breaks is logged.
        Raises Invalid where it doesn't fit the schema."""
        sections = load(_SCHEMA, document)
        for problem in violations(document, sections).values():
            _log.warning("a stored configuration breaks a rule: %s %s", problem.path, problem.message)
        return cls(document, sections)

    @classmethod
    def read(cls, path: Path, users: Path | None = None) -> "RunningConfiguration":
        """The configuration in a file, with the users in another where it names none. Raises Unreadable
        and Invalid."""
        document = read_json(path, dict[str, Any])
        api = document.get("api")
        if users is not None and isinstance(api, dict) and not api.get("users"):
            api["users"] = read_json(users, list[Any])
        return cls.of(document)

    def redacted(self) -> dict[str, Any]:
        """The document, fit to be shown."""
        shown: dict[str, Any] = redacted(self.document)
        return shown


def refuse_too_large(document: dict[str, Any]) -> None:
    """Raises Invalid for more than `LARGEST` bytes."""
    if len(msgspec.json.encode(document)) > LARGEST:
        raise Invalid(Problem("", "invalid", f"A configuration has at most {LARGEST} bytes of JSON"))


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


def note_of(caller: Caller, at: float, before: View, after: View) -> Note | None:
    """Secrets are masked; None where nothing is other than it was. `at` is epoch seconds."""
    if after.running is not before.running:
        found = changes(before.running.document, after.running.document)
        commit = after.commits[0]
        return Note.of(
            caller,
            at,
            before={"diff": diff_text(found)},
            after={"changes": len(found), "committed_at": commit.committed_at, **_waits(after)},
            author=commit.author,
            comment=commit.comment,
        )
    was, now = ({"diff": diff_text(view.changes()), **_waits(view)} for view in (before, after))
    if ended := _ended(before, after):
        now["tokens_ended_of"] = ended
    return None if was == now else Note.of(caller, at, before=was, after=now)


def _ended(before: View, after: View) -> list[str]:
    """Whose generation is another."""
    was, now = (view.state.generations or {} for view in (before, after))
    return [name for name, generation in now.items() if was.get(name) != generation]


def _waits(view: View) -> dict[str, Any]:
    return {"to_be_confirmed": view.state.deadline is not None}


def renewed(held: Mapping[str, str], before: Iterable[User], after: Iterable[User]) -> dict[str, str]:
    """A generation for each user of a configuration, by name: the one that is held for users who are as they
    were before, and a new one for each other."""
    unchanged = set(map(_identity, before)) & set(map(_identity, after))
    return {
        user.username: (_identity(user) in unchanged and held.get(user.username)) or _new() for user in after
    }


def ended(held: Mapping[str, str], username: str) -> dict[str, str]:
    """The same with a new one for one user. Raises NoSuchUser."""
    if username not in held:
        raise NoSuchUser("the running configuration has no such user")
    return {**held, username: _new()}


def _new() -> str:
    """64 random bits, in hex."""
    return secrets.token_hex(8)


def _identity(user: User) -> tuple[str, str, str]:
    return user.username, user.password_hash, user.role

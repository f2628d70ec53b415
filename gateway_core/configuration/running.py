"""The running configuration, what is staged on top of it, and the note of a change to them.

A configuration is checked by the schema and by strict rules, which reject what a service would misread. New
values must keep the strict rules, stored values may break them: a version that adds one must still load, run
and restore what an older version stored.
"""

import hashlib
import logging
import re
import secrets
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from gateway_contract.base.errors import Invalid, NotFound, Problem
from gateway_contract.base.fields import MOST_PROBLEMS
from gateway_contract.base.vlan_names import short_name
from gateway_contract.configuration import ROOT, Configuration, ConfiguredUser, Field, ListOf, Object
from gateway_contract.core.impact import Impact
from gateway_core.configuration.documents import Change, InvalidDocument, changes, diff_text
from gateway_core.configuration.rules import NAME_OF_AN_INTERFACE, broken_strict_rules, load
from gateway_core.configuration.store import Commit, State, read_json
from gateway_core.records.changes import Caller, Note

_log = logging.getLogger(__name__)

#: The most bytes of a configuration as JSON.
LARGEST = 1 << 20


@dataclass(frozen=True)
class RunningConfiguration:
    """`document` is the JSON as stored, `sections` its typed values."""

    document: dict[str, Any]
    sections: Configuration

    @classmethod
    def of(
        cls, document: dict[str, Any], before: "RunningConfiguration | None" = None
    ) -> "RunningConfiguration":
        """Return a new one. It may break a strict rule that `before` breaks with the same value: otherwise
        nothing could be changed until that value is corrected. Raises Invalid, with the path of each
        problem."""
        sections, problems = None, []
        try:
            sections = load(document)
        except Invalid as error:
            problems = list(error.problems)
        known = {} if before is None else _violations(before.document, before.sections)
        found = _violations(document, sections)
        problems += [problem for violation, problem in found.items() if violation not in known]
        if problems or sections is None:
            raise InvalidDocument(document, problems[:MOST_PROBLEMS])
        refuse_too_large(document)
        return cls(document, sections)

    @classmethod
    def stored(cls, document: dict[str, Any]) -> "RunningConfiguration":
        """One that ran before, perhaps with an older version: a broken strict rule is only logged. Raises
        Invalid where it does not match the schema."""
        sections = load(document)
        for problem in _violations(document, sections).values():
            _log.warning("a stored configuration breaks a rule: %s %s", problem.path, problem.message)
        return cls(document, sections)

    @classmethod
    def read(cls, path: Path, users: Path | None = None) -> "RunningConfiguration":
        """Return the first one, from a file, as `first`. Raises Unreadable and Invalid."""
        return cls.first(read_json(path, dict[str, Any]), users)

    @classmethod
    def first(cls, document: dict[str, Any], users: Path | None) -> "RunningConfiguration":
        """Return the first one, which gets the users in a file if it has none. Raises Unreadable and
        Invalid."""
        api = document.get("api")
        if users is not None and isinstance(api, dict) and not api.get("users"):
            document = {**document, "api": {**api, "users": read_json(users, list[Any])}}
        return cls.of(document)


def refuse_too_large(document: dict[str, Any]) -> None:
    """Raises Invalid for more than `LARGEST` bytes."""
    if len(msgspec.json.encode(document)) > LARGEST:
        raise Invalid(Problem("", "invalid", f"A configuration has at most {LARGEST} bytes of JSON"))


#: A broken strict rule: the names in the path of the value, with the keys of items, as an item may move in
#: its list; the value; and the rule.
_Violation = tuple[tuple[str, ...], str, str]


def _violations(document: Any, sections: Configuration | None) -> dict[_Violation, Problem]:
    """Return all of a document, with their problems. `sections` are its typed values, None if it is
    invalid."""
    found = dict(_violations_in(ROOT, document, (), ""))
    if sections is not None:
        # A VLAN interface of that name may appear later, with its first session.
        name = sections.cgnat.vrf_name
        heads = {head for trunk in sections.interfaces.trunks for head in (trunk, short_name(trunk))}
        if any(re.fullmatch(rf"{re.escape(head)}(\.[0-9]+)+", name) for head in heads):
            violation = ("cgnat", "vrf_name"), name, NAME_OF_AN_INTERFACE
            found[violation] = Problem("cgnat.vrf_name", "invalid", NAME_OF_AN_INTERFACE)
    return found


def _violations_in(
    field: Field, value: Any, place: tuple[str, ...], path: str
) -> Iterator[tuple[_Violation, Problem]]:
    kind = field.kind
    if isinstance(kind, Object) and isinstance(value, dict):
        for name, below in kind.fields.items():
            yield from _violations_in(below, value.get(name), (*place, name), f"{path}.{name}".lstrip("."))
    elif isinstance(kind, ListOf) and isinstance(value, list):
        for number, item in enumerate(value):
            known = item.get(kind.key) if kind.key is not None and isinstance(item, dict) else number
            yield from _violations_in(kind.item, item, (*place, str(known)), f"{path}.{number}")
    else:
        for rule in broken_strict_rules(field, value):
            yield (place, value, rule), Problem(path, "invalid", rule)


class Snapshot:
    """The configurations at one moment, to read without a lock."""

    def __init__(self, state: State, running: RunningConfiguration, commits: Sequence[Commit]) -> None:
        #: Without a candidate that equals the running configuration.
        self.state = replace(state, candidate=None) if state.candidate == running.document else state
        self.running = running
        #: Another one for each snapshot, see `CheckAccess`.
        self.version = time.time_ns()
        #: Of the running configuration, and then of the archived ones, newest first.
        self.commits = commits
        #: The document of the candidate; the running one if nothing is staged.
        self.candidate = running.document if self.state.candidate is None else self.state.candidate
        canonical = msgspec.json.encode((running.document, self.candidate), order="sorted")
        #: A hash of both documents, secrets included: a changed password is a change.
        self.etag = hashlib.blake2b(canonical, key=state.key.encode(), digest_size=16).hexdigest()

    def changes(self) -> list[Change]:
        """From the running configuration to the candidate."""
        return changes(self.running.document, self.candidate)

    @cached_property
    def next(self) -> RunningConfiguration:
        """The configuration that a commit makes run. Raises Invalid."""
        return RunningConfiguration.of(self.candidate, self.running)

    def archived(self, revision: int) -> int:
        """Return the number of an archived revision; 1 is the newest. Raises NotFound."""
        if not 1 <= revision <= len(self.state.archive):
            raise NotFound("No such revision")
        return self.state.archive[revision - 1]


def note_of(caller: Caller, at: float, before: Snapshot, after: Snapshot, impact: Impact) -> Note | None:
    """Return the note of a change, secrets masked; None without a difference. `at` is epoch seconds, `impact`
    that of a configuration that runs now."""
    if after.running is not before.running:
        found = changes(before.running.document, after.running.document)
        commit = after.commits[0]
        now = {
            "changes": len(found),
            "committed_at": commit.committed_at,
            "sessions_dropped": impact.sessions_dropped,
            **_waits(after),
        }
        was = {"diff": diff_text(found)}
        return Note.of(caller, at, was, now, author=commit.author, comment=commit.comment)
    was, now = ({"diff": diff_text(snapshot.changes()), **_waits(snapshot)} for snapshot in (before, after))
    old, new = (snapshot.state.generations or {} for snapshot in (before, after))
    if renamed := [name for name, generation in new.items() if old.get(name) != generation]:
        now["tokens_ended_of"] = renamed
    return None if was == now else Note.of(caller, at, before=was, after=now)


def _waits(snapshot: Snapshot) -> dict[str, Any]:
    return {"to_be_confirmed": snapshot.state.deadline is not None}


def renewed(
    held: Mapping[str, str], before: Iterable[ConfiguredUser], after: Iterable[ConfiguredUser]
) -> dict[str, str]:
    """Return a generation for each user, by name: the former one for an unchanged user, else a new one.

    A token is valid while its user has the generation that the token names. Generations are random: no lost
    or restored state gives a user a former one.
    """
    unchanged = set(before) & set(after)
    return {
        user.username: (user in unchanged and held.get(user.username)) or secrets.token_hex(8)
        for user in after
    }

"""Running configuration, candidate, and the note of a change to the running configuration or the candidate.

Strict rules reject values that a service would misread. New values must keep strict rules. Stored values may
break strict rules: a version that adds a strict rule must still load, run and restore the configurations that
an older version stored.
"""

import dataclasses
import hashlib
import logging
import re
import secrets
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from ipaddress import IPv4Network
from pathlib import Path
from typing import Any, Self

import msgspec
from msgspec.structs import replace

from gateway_contract.base.errors import Invalid, Problem
from gateway_contract.base.fields import MAX_PROBLEMS
from gateway_contract.base.vlan_names import short_name
from gateway_contract.configuration import Cgnat, Configuration, ConfiguredUser
from gateway_contract.core.configuration import RevisionNotFoundError
from gateway_contract.core.impact import Impact
from gateway_contract.core.interface import CORE
from gateway_core.configuration.documents import Change, InvalidDocument, compare, format_diff
from gateway_core.configuration.rules import ABSENT, INTERFACE_NAME_RULE, find_problems, load_with_violations
from gateway_core.configuration.store import Commit, State, read_json
from gateway_core.records.changes import Caller, Note

_log = logging.getLogger(__name__)

#: Bytes of a configuration as JSON.
MAX_DOCUMENT_BYTES = 1 << 20


@dataclass(frozen=True)
class RunningConfiguration:
    """Configuration that can run: the `document` is the stored JSON, and `sections` has the typed values."""

    document: dict[str, Any]
    sections: Configuration

    @classmethod
    def of(cls, document: dict[str, Any], before: Self | None = None) -> Self:
        """Check a new document, and return its configuration. The document may break a strict rule by a value
        that is also in `before`: otherwise the operator could change nothing until this value is corrected.
        Raises Invalid with the path of each problem if the document is not valid."""
        sections, problems = find_problems(document, ABSENT if before is None else before.document)
        name = sections and _find_conflicting_vrf_name(sections)
        if name and name != (before and _find_conflicting_vrf_name(before.sections)):
            problems.append(Problem("cgnat.vrf_name", "invalid", INTERFACE_NAME_RULE))
        if problems or sections is None:
            raise InvalidDocument(document, problems[:MAX_PROBLEMS])
        check_size(document)
        return cls(document, sections)

    @classmethod
    def load_stored(cls, document: dict[str, Any]) -> Self:
        """Load a configuration that ran before, perhaps under an older version. A broken strict rule is only
        logged. Raises Invalid if the document does not match the definition."""
        sections, violations = load_with_violations(document)
        if _find_conflicting_vrf_name(sections):
            violations.append(Problem("cgnat.vrf_name", "invalid", INTERFACE_NAME_RULE))
        text = "the stored configuration breaks a rule of this version, and is used anyway: %s %s"
        for problem in violations:
            _log.warning(text, problem.path, problem.message)
        return cls(document, sections)

    @classmethod
    def read_first(cls, path: Path, users: Path | None = None) -> Self:
        """Read the first configuration from the file `path`. If the configuration has no users, read the
        users from the file `users`. Raises Unreadable if a file cannot be read, and Invalid if the
        configuration is not valid."""
        return cls.make_first(read_json(path, dict[str, Any]), users)

    @classmethod
    def make_first(cls, document: dict[str, Any], users: Path | None) -> Self:
        """Return the first configuration. If the document has no users, read the users from the file `users`.
        Raises Unreadable if the file cannot be read, and Invalid if the configuration is not valid."""
        api = document.get("api")
        if users is not None and isinstance(api, dict) and not api.get("users"):
            document = {**document, "api": {**api, "users": read_json(users, list[Any])}}
        return cls.of(document)


def check_size(document: dict[str, Any]) -> None:
    """Check that a document has at most `MAX_DOCUMENT_BYTES` bytes as JSON. Raises Invalid if the document is
    larger."""
    if len(msgspec.json.encode(document)) > MAX_DOCUMENT_BYTES:
        raise Invalid(
            Problem("", "invalid", f"A configuration has at most {MAX_DOCUMENT_BYTES} bytes of JSON")
        )


def _find_conflicting_vrf_name(configuration: Configuration) -> str | None:
    """Return the name of the VRF if a VLAN device of a trunk could get the same name. Otherwise, return
    None."""
    trunks, name = configuration.interfaces.trunks, configuration.cgnat.vrf_name
    prefixes = "|".join(re.escape(prefix) for trunk in trunks for prefix in (trunk, short_name(trunk)))
    return name if trunks and re.fullmatch(rf"({prefixes})(\.[0-9]+)+", name) else None


class Snapshot:
    """Running configuration and candidate at one moment, readable without a lock."""

    def __init__(self, state: State, running: RunningConfiguration, commits: Sequence[Commit]) -> None:
        #: The state; a candidate that equals the running configuration is left out.
        self.state = replace(state, candidate=None) if state.candidate == running.document else state
        self.running = running
        #: A number of this snapshot alone, see `CheckAccess`.
        self.version = time.time_ns()
        #: The commits of the running configuration, and then of the archived ones, newest first.
        self.commits = commits
        #: The document of the candidate; the running document if nothing is staged.
        self.candidate = running.document if self.state.candidate is None else self.state.candidate
        canonical = msgspec.json.encode((running.document, self.candidate), order="sorted")
        #: A hash of both documents, secrets included: a changed password is a change.
        self.etag = hashlib.blake2b(canonical, key=state.key.encode(), digest_size=16).hexdigest()

    def compare(self) -> list[Change]:
        """Return the changes from the running configuration to the candidate."""
        return compare(self.running.document, self.candidate)

    @cached_property
    def next_running(self) -> RunningConfiguration:
        """Configuration that runs after a commit of the candidate. Raises Invalid if the candidate is not
        valid."""
        return RunningConfiguration.of(self.candidate, self.running)

    def get_archived_number(self, revision: int) -> int:
        """Return the number in the store of an archived revision. The `revision` 1 is the newest. Raises
        RevisionNotFoundError if the archive has no such revision."""
        if not 1 <= revision <= len(self.state.archive):
            raise CORE.make_error(RevisionNotFoundError(revision))
        return self.state.archive[revision - 1]


def make_note(caller: Caller, at: float, before: Snapshot, after: Snapshot, impact: Impact) -> Note | None:
    """Return the note of a change, with secrets masked, or None if nothing changed. `at` is in epoch seconds.
    `impact` is the effect of a commit on sessions."""
    old_fields: dict[str, Any]
    new_fields: dict[str, Any]
    if after.running is not before.running:
        changes = compare(before.running.document, after.running.document)
        commit = after.commits[0]
        new_fields = {
            "changes": len(changes),
            "committed_at": commit.committed_at,
            "sessions_dropped": impact.sessions_dropped,
            "to_be_confirmed": after.state.deadline is not None,
        }
        old_fields = {"diff": format_diff(changes)}
        return Note.of(caller, at, old_fields, new_fields, author=commit.author, comment=commit.comment)
    old_fields, new_fields = (
        {"diff": format_diff(one.compare()), "to_be_confirmed": one.state.deadline is not None}
        for one in (before, after)
    )
    old, new = (snapshot.state.generations or {} for snapshot in (before, after))
    if ended := [name for name, generation in new.items() if old.get(name) != generation]:
        new_fields["tokens_ended_of"] = ended
    return None if old_fields == new_fields else Note.of(caller, at, before=old_fields, after=new_fields)


def renew_generations(
    former: Mapping[str, str], before: Iterable[ConfiguredUser], after: Iterable[ConfiguredUser]
) -> dict[str, str]:
    """Return a map from each user name to the generation of the user. A user keeps the `former` generation if
    the user is the same in `before` and `after`. Any other user gets a new generation.

    A token is valid while its user has the generation that the token names. Generations are random, so a user
    whose state was lost or restored never gets a former generation again.
    """
    unchanged = set(before) & set(after)
    return {
        user.username: (user in unchanged and former.get(user.username)) or secrets.token_hex(8)
        for user in after
    }


# The configuration of a commit that waits for its confirmation, with the range of the configuration that may
# return. A home with DHCP learns of another range only when it renews its lease, minutes later. The return of
# the former configuration restores the service of such a home at once only if its session still exists. So
# until the confirmation, the gateway also serves the sessions that have an address of the former range.


@dataclass(frozen=True, kw_only=True)
class UnconfirmedCgnat(Cgnat):
    """Section `cgnat` while a commit waits for its confirmation. `former_range` is the source range of the
    configuration that returns without a confirmation."""

    former_range: IPv4Network

    @property
    def source_ranges(self) -> tuple[IPv4Network, ...]:
        return self.source_range, self.former_range


def get_former_range(configuration: Configuration) -> IPv4Network | None:
    """Return the former CGNAT range that the gateway serves in addition to `cgnat.source_range` while a
    commit waits for its confirmation. Return None if there is no such range."""
    cgnat = configuration.cgnat
    return cgnat.former_range if isinstance(cgnat, UnconfirmedCgnat) else None


def add_former_range(configuration: Configuration, former: IPv4Network) -> Configuration:
    """Return a copy of a configuration that also serves the CGNAT range `former`, for use until the commit is
    confirmed. Return the same configuration if its own range is `former`."""
    cgnat = configuration.cgnat
    if cgnat.source_range == former:
        return configuration
    unconfirmed = UnconfirmedCgnat(**_get_values(cgnat), former_range=former)
    return dataclasses.replace(configuration, cgnat=unconfirmed)


def remove_former_range(configuration: Configuration) -> Configuration:
    """Return a copy of a configuration without a former CGNAT range, for use after the commit is
    confirmed."""
    return dataclasses.replace(configuration, cgnat=Cgnat(**_get_values(configuration.cgnat)))


def _get_values(cgnat: Cgnat) -> dict[str, Any]:
    return {field.name: getattr(cgnat, field.name) for field in dataclasses.fields(Cgnat)}

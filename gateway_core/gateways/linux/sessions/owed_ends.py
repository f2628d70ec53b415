"""The ends of sessions that commits owe, on disk from before a commit counts until its sessions are gone. A
core that is killed meanwhile leaves them to the next one.

The configuration before the commit is kept with them. A session ends only if it cannot go on with the one
that runs by then: a commit that failed ends nothing, nor does one that another has taken back.
"""

import logging
from collections.abc import Iterable, Sequence
from dataclasses import replace
from ipaddress import IPv4Network
from pathlib import Path
from typing import Any, NamedTuple, Self

import msgspec

from gateway_contract.base import durable
from gateway_contract.base.errors import Invalid
from gateway_contract.configuration import Configuration, Section
from gateway_contract.contract import Record
from gateway_core.configuration.rules import load_section
from gateway_core.configuration.store import Unreadable, disk_step, read_json
from gateway_core.configuration.unconfirmed import as_confirmed, former_range, until_confirmed
from gateway_core.gateways.linux.entries import EntryReader, UnreadableEntry
from gateway_core.gateways.linux.sessions.commit_ends import ended_by_commit
from gateway_core.gateways.linux.sessions.session import LinuxSession

_FILE = "owed-ends.json"
#: Those that `ended_by_commit` reads.
_SECTIONS = ("interfaces", "radius", "cgnat", "demux", "subscribers")

_OWED = EntryReader(
    "core",
    "owed_end",
    f"the commits in {_FILE}",
    "the sessions that a former commit was to end go on",
)

_log = logging.getLogger(__name__)


class _Kept(Record, frozen=True):
    """Sections of the configuration as in its document, by their names."""

    ids: tuple[int, ...]
    former: dict[str, Any]
    #: The range that was served beside the one of `former`.
    former_range: str | None = None


class CommitEnds(NamedTuple):
    """The ids of the sessions that a commit ends, and the configuration before it."""

    ids: tuple[int, ...]
    former: Configuration

    def left(self, sessions: Iterable[LinuxSession], running: Configuration) -> Self:
        """Without the sessions that are gone, or can go on with a running configuration."""
        ids = frozenset(self.ids)
        found = [session for session in sessions if session.id in ids]
        return self._replace(ids=tuple(ended_by_commit(found, self.former, running)))


class OwedEnds:
    """The ends of commits in a folder that only one process uses, for one thread at a time. `running` is the
    configuration of the start."""

    def __init__(self, folder: Path, running: Configuration) -> None:
        self._path = folder / _FILE
        self.commits: Sequence[CommitEnds] = self._restored(running)

    def keep(self, commits: Iterable[CommitEnds]) -> None:
        """Replace them, without commits that end nothing. Raises StepFailed: then disk has either."""
        wanted = [each for each in commits if each.ids]
        if wanted == self.commits:
            return
        with disk_step("store the ends of a commit"):
            if wanted:
                kept = [_make_kept(each) for each in wanted]
                durable.make_folder(self._path.parent)
                durable.replace(self._path, msgspec.json.encode(kept))
            else:
                # If a power cut brings it back, it ends nothing: no session outlives a reboot.
                self._path.unlink(missing_ok=True)
        self.commits = wanted

    def _restored(self, running: Configuration) -> list[CommitEnds]:
        if not self._path.exists():
            return []
        try:
            kept = read_json(self._path, list[Any])
        except Unreadable as error:
            _log.error("the sessions that a former commit was to end go on: %s", error)
            return []
        return _OWED.read(kept, lambda each: _parse_ends(each, running), name=repr, place=self._path)


def _make_kept(commit: CommitEnds) -> _Kept:
    held = former_range(commit.former)
    return _Kept(commit.ids, _sections(as_confirmed(commit.former)), None if held is None else str(held))


def _parse_ends(each: Any, running: Configuration) -> CommitEnds:
    """Return the ends of a commit, as the file has them. Raises UnreadableEntry."""
    try:
        kept = msgspec.convert(each, _Kept)
        former = replace(running, **_loaded(kept.former))
        if kept.former_range is not None:
            former = until_confirmed(former, IPv4Network(kept.former_range))
    except (Invalid, ValueError) as error:
        # Of another version, which a downgrade left.
        raise UnreadableEntry(f"one of another version: {error}") from error
    return CommitEnds(kept.ids, former)


def _sections(configuration: Configuration) -> dict[str, Any]:
    return {name: _plain(getattr(configuration, name)) for name in _SECTIONS}


def _plain(value: Any) -> Any:
    """JSON that `load_section` makes the value of."""
    if isinstance(value, Section):
        return {name: _plain(held) for name, held in vars(value).items()}
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return value if value is None or isinstance(value, int) else str(value)


def _loaded(sections: dict[str, Any]) -> dict[str, Any]:
    """Raises Invalid."""
    return {name: load_section(name, held) for name, held in sections.items() if name in _SECTIONS}

"""What was changed at the core by anybody but the API, as the core tells of it."""

from typing import Any

import msgspec

from gateway_api.daemon.calls import Calls


class Change(msgspec.Struct, frozen=True):
    """`at` is epoch seconds, `action` two words with a dot between them. `user` is who called the core, by
    the process of that number, or the core itself; `author` and `comment` are a commit's."""

    sequence: int
    at: int
    action: str
    user: str
    process: int | None = None
    author: str | None = None
    comment: str | None = None
    before: Any = None
    after: Any = None


class Told(msgspec.Struct, frozen=True):
    """Changes in their order, of the log of that name; `oldest` and `newest` are what the core holds."""

    log: str
    oldest: int
    newest: int
    changes: list[Change]


class ChangeLog:
    """Raises CoreUnavailable when the core can't be asked, or answers nonsense."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    def after(self, log: str | None, sequence: int) -> Told:
        """What followed a change; for a log of another name, all that is held."""
        return self._calls.typed(Told, "ListChanges", log=log, after_sequence=sequence)

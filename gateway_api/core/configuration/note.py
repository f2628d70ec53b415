"""What is noted of a change to the configuration."""

from typing import Any

from gateway_api.core.changes import Caller, Note
from gateway_api.core.configuration.diff import changes, diff_text
from gateway_api.core.configuration.view import View


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

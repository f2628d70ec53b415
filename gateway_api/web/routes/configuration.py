"""The running configuration, the candidate, and commits. Every change of the candidate honours If-Match."""

from datetime import UTC, datetime
from typing import Any

import msgspec

from gateway_api.core_client.calls import Fields, decoded
from gateway_api.core_client.commands import Sections
from gateway_api.web import audit, headers
from gateway_api.web.lists import selected
from gateway_api.web.operation import ADMIN, ANY_ROLE, GET, POST, PUT, Passed, Routes, Tagged
from gateway_api.web.records import (
    ArchivedConfiguration,
    Candidate,
    Committed,
    Configuration,
    Difference,
    Edited,
    Message,
    RolledBack,
    listing,
)
from gateway_api.web.schemas.queries import CompareQuery, short_list_query
from gateway_api.web.schemas.requests import Commit, DeleteValue, EditConfiguration, Rollback, SetValue
from gateway_api.web.services import daemon
from gateway_api.wire.core import configuration as wire


def whole(sections: tuple[Sections, str]) -> Tagged[Passed[Sections]]:
    return Tagged(Passed(sections[0]), sections[1])


def compare(found: wire.ComparisonReply, query: dict[str, Any]) -> Tagged[Difference]:
    """The difference from the running configuration, or from an archived revision, to the candidate, or to
    another revision. From the running configuration to the candidate, also what a commit would do to services
    and sessions. The entity tag is for If-Match: it stands for the running configuration and the candidate,
    not for the deadline, the archive or the sessions."""
    return Tagged(Difference(found.diff, found.confirm_deadline, found.impact), found.etag)


def edit(body: wire.Edit) -> Tagged[None]:
    return Tagged(None, _staged(daemon().edit([body], headers.if_match())).etag)


def edit_all(body: dict[str, list[wire.Edit]]) -> Tagged[Edited]:
    """Stages several changes, or none of them."""
    staged = _staged(daemon().edit_all(body["operations"], headers.if_match()))
    return Tagged(Edited([change.path for change in staged.changes]), staged.etag)


def replace_candidate(body: dict[str, Any]) -> Tagged[None]:
    """Stages a whole configuration, in place of all that is staged.

    The body is what GET has in `data`, changed. A masked secret stands for the one that the candidate has
    there, and the items of lists are found by their keys. Parts may be missing until the commit."""
    staged = _noted(daemon().reply(wire.ReplaceCandidate(body, headers.if_match())))
    return Tagged(None, staged.etag)


def commit(body: dict[str, Any]) -> Tagged[Committed]:
    """Commits the candidate, for good or until a deadline for its confirmation. 409 if more sessions than
    `max_sessions_dropped` would end."""
    return committed(daemon().commit(**body, if_match=headers.if_match()))


def confirm() -> Message:
    """Confirms a commit. 409 if no commit waits for a confirmation."""
    daemon().confirm()
    return Message("Confirmed")


def rollback(body: dict[str, Any]) -> Tagged[RolledBack]:
    """Stages an archived revision, 1 being the newest."""
    revision = body["revision"]
    staged = _noted(daemon().rollback(revision, headers.if_match()))
    message = f"Revision {revision} is the candidate; a commit makes it the running configuration"
    return Tagged(RolledBack(message, revision, staged.changes), staged.etag)


def discard() -> Tagged[None]:
    """Discards all changes of the candidate."""
    discarded = daemon().reply(wire.DiscardCandidate(headers.if_match()))
    audit.note(before=discarded.before)
    return Tagged(None, discarded.etag)


def archive(reply: wire.ArchiveReply, query: dict[str, Any]) -> wire.ArchiveReply:
    """The commits of the archived revisions, the newest first: author, time and comment. `running` is that of
    the running configuration."""
    return selected(wire.ListArchive, reply, **query)


def archived(reply: Fields, revision: int) -> Passed[Fields]:
    """One archived revision, secrets masked."""
    return Passed(reply)


def _noted(staged: wire.StagedReply) -> wire.StagedReply:
    audit.note(before=staged.before, after={"changes": staged.changes, "etag": staged.etag})
    return staged


def _staged(staged: wire.EditReply) -> wire.EditReply:
    audit.note(
        before=[_value(change.path, change.before_json) for change in staged.changes],
        after=[_value(change.path, change.after_json) for change in staged.changes],
    )
    return staged


def _value(path: str, text: str | None) -> dict[str, Any]:
    return {"path": path, "value": None if text is None else decoded(Any, msgspec.Raw(text.encode()))}


def committed(reply: wire.CommitReply) -> Tagged[Committed]:
    """The response to a commit, and its place in the audit log."""
    record = msgspec.structs.asdict(reply)
    audit.note(before=record.pop("before"), after=record)
    etag = record.pop("etag")
    return Tagged(Committed(_message(reply), **record), etag)


def _message(committed: wire.CommitReply) -> str:
    number = committed.changes
    text = f"Committed {number} change{'s' if number > 1 else ''}" if number else "Nothing to commit"
    if committed.confirm_deadline is None:
        has_confirmed = number and committed.before.confirm_deadline is not None
        return f"{text}, and confirmed the commit before" if has_confirmed else text
    deadline = datetime.fromtimestamp(committed.confirm_deadline, UTC)
    return f"{text}; the former configuration returns at {deadline:%Y-%m-%d %H:%M:%SZ} unless confirmed"


RUNNING = GET(
    "",
    whole,
    ANY_ROLE,
    "running",
    "All sections of the running configuration, secrets masked.",
    read=lambda core: core.sections(wire.GetConfiguration()),
    data=(Configuration,),
)

routes = Routes(
    "configuration",
    "/api/v1/system/config",
    RUNNING,
    GET(
        "/candidate",
        whole,
        ADMIN,
        "candidate",
        "All sections of the candidate, secrets masked.",
        read=lambda core: core.sections(wire.GetCandidate()),
        data=(Candidate,),
        errors=(501,),
    ),
    GET(
        "/compare",
        compare,
        ADMIN,
        query=CompareQuery,
        read=lambda core, query: core.compare(query.get("revision"), query.get("to")),
        errors=(404,),
        conditional=False,
    ),
    POST("/set", edit, ADMIN, "set_value", "Stages a value at a path.", body=SetValue, errors=(412,)),
    POST(
        "/delete",
        edit,
        ADMIN,
        "delete",
        "Stages the deletion of a path. 404 if the path does not exist.",
        body=DeleteValue,
        errors=(404, 412),
    ),
    POST("/edit", edit_all, ADMIN, body=EditConfiguration, errors=(404, 412)),
    PUT("/candidate", replace_candidate, ADMIN, body=Candidate, errors=(412, 501)),
    POST("/commit", commit, ADMIN, body=Commit, optional=True, errors=(409, 412)),
    POST("/confirm", confirm, ADMIN, errors=(409, 501)),
    POST("/rollback", rollback, ADMIN, body=Rollback, errors=(404, 412)),
    POST("/discard", discard, ADMIN, errors=(412,)),
    GET(
        "/archive",
        archive,
        ANY_ROLE,
        query=short_list_query(wire.ListArchive),
        read=lambda core, query: core.reply(wire.ListArchive()),
        data=(listing(wire.ListArchive),),
        errors=(501,),
    ),
    GET(
        "/archive/<revision>",
        archived,
        ANY_ROLE,
        read=lambda core, revision: core.archived(revision),
        data=(ArchivedConfiguration,),
        errors=(501,),
    ),
)

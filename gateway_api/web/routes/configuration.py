"""The running configuration, the candidate, and commits. Every change of the candidate honours If-Match."""

from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

import msgspec
from flask import Blueprint

from gateway_api.web import audit
from gateway_api.web.access import ADMIN, ANY_ROLE
from gateway_api.web.lists import select_records
from gateway_api.web.operation import Passed, WithETag, operation
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
from gateway_api.web.request import current
from gateway_api.web.schemas.queries import CompareQuery, Comparison, ListSelection, list_query
from gateway_api.web.schemas.requests import (
    Commit,
    CommitSchema,
    DeleteValueSchema,
    Document,
    EditConfigurationSchema,
    Rollback,
    RollbackSchema,
    SetValueSchema,
)
from gateway_api.web.services import core
from gateway_contract.contract import Method
from gateway_contract.core import configuration as wire
from gateway_contract.core_client import Fields, Sections, decode_part

configuration = Blueprint("configuration", __name__, url_prefix="/api/v1/system/config")


@configuration.get("")
@operation(ANY_ROLE, data=(Configuration,))
def running() -> WithETag[Passed[Sections]]:
    """All sections of the running configuration, secrets masked."""
    return _whole(wire.GetConfiguration())


@configuration.get("/candidate")
@operation(ADMIN, data=(Candidate,), errors=(501,))
def candidate() -> WithETag[Passed[Sections]]:
    """All sections of the candidate, secrets masked."""
    return _whole(wire.GetCandidate())


@configuration.get("/compare")
@operation(ADMIN, query=CompareQuery, errors=(404,), conditional=False)
def compare(query: Comparison) -> WithETag[Difference]:
    """The difference from the running configuration, or from an archived revision, to the candidate, or to
    another revision. From the running configuration to the candidate, also what a commit would do to services
    and sessions. The entity tag is for If-Match: it stands for the running configuration and the candidate,
    not for the deadline, the archive or the sessions."""
    found = core().compare(query.revision, query.to)
    return WithETag(Difference(found.diff, found.confirm_deadline, found.impact), found.etag)


@configuration.post("/set")
@operation(ADMIN, body=SetValueSchema, errors=(412,))
def set_value(body: wire.Edit) -> WithETag[None]:
    """Stages a value at a path."""
    return WithETag(None, _staged(core().edit([body], current().required_etags())).etag)


@configuration.post("/delete")
@operation(ADMIN, body=DeleteValueSchema, errors=(404, 412))
def delete(body: wire.Edit) -> WithETag[None]:
    """Stages the deletion of a path. 404 if the path does not exist."""
    return WithETag(None, _staged(core().edit([body], current().required_etags())).etag)


@configuration.post("/edit")
@operation(ADMIN, body=EditConfigurationSchema, errors=(404, 412))
def edit_all(body: list[wire.Edit]) -> WithETag[Edited]:
    """Stages several changes, or none of them."""
    staged = _staged(core().edit_all(body, current().required_etags()))
    return WithETag(Edited([change.path for change in staged.changes]), staged.etag)


@configuration.put("/candidate")
@operation(ADMIN, body=Candidate, errors=(412, 501))
def replace_candidate(body: Document) -> WithETag[None]:
    """Stages a whole configuration, in place of all that is staged.

    The body is what GET has in `data`, changed. A masked secret stands for the one that the candidate has
    there, and the items of lists are found by their keys. Parts may be missing until the commit."""
    staged = _noted(core().call(wire.ReplaceCandidate(body.sections, current().required_etags())))
    return WithETag(None, staged.etag)


@configuration.post("/commit")
@operation(ADMIN, body=CommitSchema, optional=True, errors=(409, 412))
def commit(body: Commit) -> WithETag[Committed]:
    """Commits the candidate, for good or until a deadline for its confirmation. 409 if more sessions than
    `max_sessions_dropped` would end."""
    return committed(core().commit(current().required_etags(), **asdict(body)))


@configuration.post("/confirm")
@operation(ADMIN, errors=(409, 501))
def confirm() -> Message:
    """Confirms a commit. 409 if no commit waits for a confirmation."""
    core().confirm()
    return Message("Confirmed")


@configuration.post("/rollback")
@operation(ADMIN, body=RollbackSchema, errors=(404, 412))
def rollback(body: Rollback) -> WithETag[RolledBack]:
    """Stages an archived revision, 1 being the newest."""
    staged = _noted(core().rollback(body.revision, current().required_etags()))
    message = f"Revision {body.revision} is the candidate; a commit makes it the running configuration"
    return WithETag(RolledBack(message, body.revision, staged.changes), staged.etag)


@configuration.post("/discard")
@operation(ADMIN, errors=(412,))
def discard() -> WithETag[None]:
    """Discards all changes of the candidate."""
    discarded = core().call(wire.DiscardCandidate(current().required_etags()))
    audit.note(before=discarded.before)
    return WithETag(None, discarded.etag)


@configuration.get("/archive")
@operation(
    ANY_ROLE,
    query=list_query(wire.ListArchive),
    data=(listing(wire.ListArchive),),
    errors=(501,),
)
def archive(query: ListSelection) -> wire.ArchiveReply:
    """The commits of the archived revisions, the newest first: author, time and comment. `running` is that of
    the running configuration."""
    return select_records(wire.ListArchive, core().call(wire.ListArchive()), query)


@configuration.get("/archive/<revision>")
@operation(ANY_ROLE, data=(ArchivedConfiguration,), errors=(501,))
def archived(revision: int) -> Passed[Fields]:
    """One archived revision, secrets masked."""
    return Passed(core().get_archived_revision(revision))


def _whole(call: Method[wire.ConfigurationReply]) -> WithETag[Passed[Sections]]:
    sections, etag = core().get_sections(call)
    return WithETag(Passed(sections), etag)


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
    return {"path": path, "value": None if text is None else decode_part(Any, msgspec.Raw(text.encode()))}


def committed(reply: wire.CommitReply) -> WithETag[Committed]:
    """The response to a commit, and its place in the audit log."""
    record = msgspec.structs.asdict(reply)
    audit.note(before=record.pop("before"), after=record)
    etag = record.pop("etag")
    return WithETag(Committed(_message(reply), **record), etag)


def _message(committed: wire.CommitReply) -> str:
    number = committed.changes
    text = f"Committed {number} change{'s' if number > 1 else ''}" if number else "Nothing to commit"
    if committed.confirm_deadline is None:
        has_confirmed = number and committed.before.confirm_deadline is not None
        return f"{text}, and confirmed the commit before" if has_confirmed else text
    deadline = datetime.fromtimestamp(committed.confirm_deadline, UTC)
    return f"{text}; the former configuration returns at {deadline:%Y-%m-%d %H:%M:%SZ} unless confirmed"

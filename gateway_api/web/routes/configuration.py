"""Views of the running configuration, the candidate and commits. Every change of the candidate honours
If-Match."""

from datetime import UTC, datetime
from typing import Any

import msgspec
from flask import Blueprint

from gateway_api.web import audit, records
from gateway_api.web.access import ADMIN, ANY_ROLE
from gateway_api.web.operation import RawJson, WithETag, operation, select_records
from gateway_api.web.request import get_request
from gateway_api.web.schemas import queries, requests
from gateway_api.web.services import core
from gateway_contract.contract import Method
from gateway_contract.core import configuration as wire
from gateway_contract.core_client import Fields, Sections, decode_part

configuration = Blueprint("configuration", __name__, url_prefix="/api/v1/system/config")


@configuration.get("", endpoint="running")
@operation(ANY_ROLE, data=(records.Configuration,))
def show_running() -> WithETag[RawJson[Sections]]:
    """Return all sections of the running configuration, with masked secrets."""
    return _respond_with_sections(wire.GetConfiguration())


@configuration.get("/candidate", endpoint="candidate")
@operation(ADMIN, data=(records.Candidate,), errors=(501,))
def show_candidate() -> WithETag[RawJson[Sections]]:
    """Return all sections of the candidate, with masked secrets."""
    return _respond_with_sections(wire.GetCandidate())


@configuration.get("/compare")
@operation(ADMIN, query=queries.CompareQuery, errors=(404,), is_conditional=False)
def compare(query: dict[str, int]) -> WithETag[records.Difference]:
    """Compare the running configuration, or an archived revision, with the candidate, or with another
    revision.

    A comparison of the running configuration with the candidate also shows the effect of a commit on services
    and sessions. The entity tag is for If-Match: it stands for the running configuration and the candidate,
    not for the deadline, the archive or the sessions."""
    comparison = core().compare(query.get("revision"), query.get("to"))
    return WithETag(
        records.Difference(comparison.diff, comparison.confirm_deadline, comparison.impact), comparison.etag
    )


@configuration.post("/set")
@operation(ADMIN, body=requests.SetValueSchema, errors=(412,))
def set_value(body: wire.Edit) -> WithETag[None]:
    """Stage a new value at a path."""
    return WithETag(None, _note_edits(core().edit([body], get_request().read_required_etags())).etag)


@configuration.post("/delete")
@operation(ADMIN, body=requests.DeleteValueSchema, errors=(404, 412))
def delete(body: wire.Edit) -> WithETag[None]:
    """Stage the deletion of a path. 404 if the path does not exist."""
    return WithETag(None, _note_edits(core().edit([body], get_request().read_required_etags())).etag)


@configuration.post("/edit")
@operation(ADMIN, body=requests.EditConfigurationSchema, errors=(404, 412))
def edit_all(body: list[wire.Edit]) -> WithETag[records.Edited]:
    """Stage several changes, or none if one of them fails."""
    staged = _note_edits(core().edit_all(body, get_request().read_required_etags()))
    return WithETag(records.Edited([change.path for change in staged.changes]), staged.etag)


@configuration.put("/candidate")
@operation(ADMIN, body=records.Candidate, errors=(412, 501))
def replace_candidate(body: dict[str, Any]) -> WithETag[None]:
    """Replace the whole candidate.

    The body is the `data` of a GET response, with changes. A masked secret keeps the candidate's secret; list
    items are identified by their keys. Parts may be missing until the commit."""
    staged = _note_staged(core().call(wire.ReplaceCandidate(body, get_request().read_required_etags())))
    return WithETag(None, staged.etag)


@configuration.post("/commit")
@operation(ADMIN, body=requests.CommitSchema, is_body_optional=True, errors=(409, 412))
def commit(body: dict[str, Any]) -> WithETag[records.Committed]:
    """Commit the candidate, permanently or until a deadline for its confirmation. 409 if more sessions than
    `max_sessions_dropped` would end."""
    return report_commit(core().commit(get_request().read_required_etags(), **body))


@configuration.post("/confirm")
@operation(ADMIN, errors=(409, 501))
def confirm() -> records.Message:
    """Confirm the last commit. 409 if no commit waits for a confirmation."""
    core().confirm()
    return records.Message("Confirmed")


@configuration.post("/rollback")
@operation(ADMIN, body=requests.RollbackSchema, errors=(404, 412))
def rollback(body: requests.Rollback) -> WithETag[records.RolledBack]:
    """Stage an archived revision as the candidate. Revision 1 is the newest."""
    staged = _note_staged(core().rollback(body.revision, get_request().read_required_etags()))
    message = f"Revision {body.revision} is the candidate; a commit makes it the running configuration"
    return WithETag(records.RolledBack(message, body.revision, staged.changes), staged.etag)


@configuration.post("/discard")
@operation(ADMIN, errors=(412,))
def discard() -> WithETag[None]:
    """Discard all staged changes of the candidate."""
    discarded = core().call(wire.DiscardCandidate(get_request().read_required_etags()))
    audit.note(before=discarded.before)
    return WithETag(None, discarded.etag)


@configuration.get("/archive", endpoint="archive")
@operation(
    ANY_ROLE,
    query=queries.make_list_query(wire.ListArchive),
    data=(records.make_list_record(wire.ListArchive),),
    errors=(501,),
)
def list_archive(query: queries.ListSelection) -> wire.ArchiveReply:
    """List the commits of the archived revisions, newest first: author, time and comment. `running` is the
    commit of the running configuration."""
    return select_records(wire.ListArchive, core().call(wire.ListArchive()), query)


@configuration.get("/archive/<revision>", endpoint="archived")
@operation(ANY_ROLE, data=(records.ArchivedConfiguration,), errors=(501,))
def show_revision(revision: int) -> RawJson[Fields]:
    """Return an archived revision, with masked secrets."""
    return RawJson(core().get_archived_revision(revision))


def _respond_with_sections(call: Method[wire.ConfigurationReply]) -> WithETag[RawJson[Sections]]:
    sections, etag = core().get_sections(call)
    return WithETag(RawJson(sections), etag)


def _note_staged(staged: wire.StagedReply) -> wire.StagedReply:
    audit.note(before=staged.before, after={"changes": staged.changes, "etag": staged.etag})
    return staged


def _note_edits(staged: wire.EditReply) -> wire.EditReply:
    audit.note(
        before=[_show_value(change.path, change.before_json) for change in staged.changes],
        after=[_show_value(change.path, change.after_json) for change in staged.changes],
    )
    return staged


def _show_value(path: str, text: str | None) -> dict[str, Any]:
    return {"path": path, "value": None if text is None else decode_part(Any, msgspec.Raw(text.encode()))}


def report_commit(reply: wire.CommitReply) -> WithETag[records.Committed]:
    """Return the response to a commit, and add the commit to the audit record of the request."""
    record = msgspec.structs.asdict(reply)
    audit.note(before=record.pop("before"), after=record)
    etag = record.pop("etag")
    return WithETag(records.Committed(_describe_commit(reply), **record), etag)


def _describe_commit(reply: wire.CommitReply) -> str:
    number = reply.changes
    text = f"Committed {number} change{'s' if number > 1 else ''}" if number else "Nothing to commit"
    if reply.confirm_deadline is None:
        has_confirmed = number and reply.before.confirm_deadline is not None
        return f"{text}, and confirmed the commit before" if has_confirmed else text
    deadline = datetime.fromtimestamp(reply.confirm_deadline, UTC)
    return f"{text}; the former configuration returns at {deadline:%Y-%m-%d %H:%M:%SZ} unless confirmed"

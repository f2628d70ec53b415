"""The running configuration, the candidate, and commits. Every change of the candidate honours If-Match."""

from datetime import UTC, datetime
from typing import Any

import msgspec
from flask import Blueprint, Response

from gateway_api.core_client.calls import decoded
from gateway_api.core_client.commands import Edit
from gateway_api.web import access, audit, headers, parse, responses
from gateway_api.web.configuration_records import (
    ArchivedConfiguration,
    Candidate,
    Committed,
    Difference,
    RolledBack,
)
from gateway_api.web.configuration_sections import Configuration
from gateway_api.web.records import Message, listing
from gateway_api.web.schemas.queries import CompareQuery, short_list_query
from gateway_api.web.schemas.requests import Commit, DeleteValue, EditConfiguration, Rollback, SetValue
from gateway_api.web.services import caller, daemon
from gateway_api.web.short_lists import selected
from gateway_api.wire.core import configuration as wire

routes = Blueprint("configuration", __name__, url_prefix="/api/v1/system/config")


@routes.get("")
@access.any_role
@access.together
@responses.data(Configuration, headers=("ETag",))
def running() -> Response:
    """All sections of the running configuration, secrets masked."""
    sections, etag = daemon().sections(wire.GetConfiguration())
    return responses.ok(sections, etag=etag)


@routes.get("/candidate")
@access.admin
@access.together
@responses.data(Candidate, headers=("ETag",), errors=(501,))
def candidate() -> Response:
    """All sections of the candidate, secrets masked."""
    sections, etag = daemon().sections(wire.GetCandidate())
    return responses.ok(sections, etag=etag)


@routes.get("/compare")
@access.admin
@access.together
@responses.data(Difference, headers=("ETag",), errors=(404,), conditional=False)
@parse.query(CompareQuery)
def compare(query: dict[str, Any]) -> Response:
    """The difference from the running configuration, or from an archived revision, to the candidate, or to
    another revision. From the running configuration to the candidate, also what a commit would do to services
    and sessions. The entity tag is for If-Match: it stands for the running configuration and the candidate,
    not for the deadline, the archive or the sessions."""
    found = msgspec.structs.asdict(daemon().compare(query.get("revision"), query.get("to")))
    return responses.ok(found, etag=found.pop("etag"))


@routes.post("/set")
@access.admin
@responses.data(headers=("ETag",), errors=(412,))
@parse.body(SetValue)
def set_value(edit: Edit) -> Response:
    """Stages a value at a path."""
    return _staged(daemon().edit([edit], headers.if_match()))


@routes.post("/delete")
@access.admin
@responses.data(headers=("ETag",), errors=(404, 412))
@parse.body(DeleteValue)
def delete(edit: Edit) -> Response:
    """Stages the deletion of a path. 404 if the path does not exist."""
    return _staged(daemon().edit([edit], headers.if_match()))


@routes.post("/edit")
@access.admin
@responses.data(headers=("ETag",), errors=(404, 412))
@parse.body(EditConfiguration)
def edit_all(body: dict[str, list[Edit]]) -> Response:
    """Stages several changes, or none of them."""
    return _staged(daemon().edit_all(body["operations"], headers.if_match()))


@routes.post("/commit")
@access.admin
@responses.data(Committed, headers=("ETag",), errors=(409, 412))
@parse.body(Commit, optional=True)
def commit(body: dict[str, Any]) -> Response:
    """Commits the candidate, for good or until a deadline for its confirmation. 409 if more sessions than
    `max_sessions_dropped` would end."""
    return committed_response(daemon().commit(caller().sub, **body, if_match=headers.if_match()))


@routes.post("/confirm")
@access.admin
@responses.data(Message, errors=(409, 501))
def confirm() -> Response:
    """Confirms a commit. 409 if no commit waits for a confirmation."""
    daemon().raw(wire.ConfirmCommit())
    return responses.ok(Message("Confirmed"))


@routes.post("/rollback")
@access.admin
@responses.data(RolledBack, headers=("ETag",), errors=(404, 412))
@parse.body(Rollback)
def rollback(body: dict[str, Any]) -> Response:
    """Stages an archived revision, 1 being the newest."""
    revision = body["revision"]
    staged = daemon().rollback(revision, headers.if_match())
    audit.note(before=staged.before, after={"changes": staged.changes, "etag": staged.etag})
    message = f"Revision {revision} is the candidate; a commit makes it the running configuration"
    return responses.ok(RolledBack(message, revision, staged.changes), etag=staged.etag)


@routes.post("/discard")
@access.admin
@responses.data(headers=("ETag",), errors=(412,))
def discard() -> Response:
    """Discards all changes of the candidate."""
    discarded = daemon().reply(wire.DiscardCandidate(headers.if_match()))
    audit.note(before=discarded.before)
    return responses.ok(etag=discarded.etag)


@routes.get("/archive")
@access.any_role
@access.together
@responses.data(listing(wire.ListArchive), errors=(501,))
@parse.query(short_list_query(wire.ListArchive))
def archive(query: dict[str, Any]) -> Response:
    """The commits of the archived revisions, the newest first: author, time and comment. `running` is that of
    the running configuration."""
    return responses.ok(selected(wire.ListArchive, daemon().reply(wire.ListArchive()), **query))


@routes.get("/archive/<revision>")
@access.any_role
@access.together
@responses.data(ArchivedConfiguration, errors=(501,))
def archived(revision: str) -> Response:
    """One archived revision, secrets masked."""
    return responses.ok(daemon().archived(parse.revision(revision)))


def _staged(staged: wire.EditReply) -> Response:
    audit.note(
        before=[_value(change.path, change.before_json) for change in staged.changes],
        after=[_value(change.path, change.after_json) for change in staged.changes],
    )
    return responses.ok(etag=staged.etag)


def _value(path: str, text: str | None) -> dict[str, Any]:
    return {"path": path, "value": None if text is None else decoded(Any, msgspec.Raw(text.encode()))}


def committed_response(committed: wire.CommitReply) -> Response:
    """The response to a commit, and its place in the audit log."""
    record = msgspec.structs.asdict(committed)
    audit.note(before=record.pop("before"), after=record)
    etag = record.pop("etag")
    return responses.ok({"message": _message(committed), **record}, etag=etag)


def _message(committed: wire.CommitReply) -> str:
    number = committed.changes
    text = f"Committed {number} change{'s' if number > 1 else ''}" if number else "Nothing to commit"
    if committed.confirm_deadline is None:
        has_confirmed = number and committed.before.confirm_deadline is not None
        return f"{text}, and confirmed the commit before" if has_confirmed else text
    deadline = datetime.fromtimestamp(committed.confirm_deadline, UTC)
    return f"{text}; the former configuration returns at {deadline:%Y-%m-%d %H:%M:%SZ} unless confirmed"

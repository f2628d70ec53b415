"""Work on many sessions: jobs of the core. No job needs the API, once it has started."""

from collections.abc import Mapping
from typing import Any

import msgspec
from flask import Blueprint, Response, url_for

from gateway_api.core_client.calls import decoded
from gateway_api.web import access, audit, lists, parse, responses
from gateway_api.web.records import JobPreview, listing
from gateway_api.web.schemas.jobs import DisconnectJob, RateJob
from gateway_api.web.schemas.queries import list_query
from gateway_api.web.services import caller, daemon
from gateway_api.wire.contract import Page
from gateway_api.wire.core.jobs import CancelJob, GetJob, Job, ListJobs

routes = Blueprint("jobs", __name__, url_prefix="/api/v1/subscribers")

#: Sessions that a dry run lists.
_FIRST = 100

_starts = responses.ViewResponse(
    (Job,), preview=JobPreview, status=202, headers=("Location",), errors=(409, 501)
)


@routes.post("/rate")
@access.admin
@_starts
@parse.body(RateJob)
def change_rates(body: dict[str, Any]) -> Response:
    """Starts to change the rates of all sessions that match, or lists the first hundred of them."""
    if body["dry_run"]:
        return _preview(body["filter"], "would get other rates")
    job = daemon().start_rate_job(body["filter"], body["per_second"], caller().sub, **body["change"])
    return _started(job)


@routes.post("/disconnect")
@access.admin
@_starts
@parse.body(DisconnectJob)
def disconnect(body: dict[str, Any]) -> Response:
    """Starts to disconnect all sessions that match, or lists the first hundred of them."""
    if body["dry_run"]:
        return _preview(body["filter"], "would be disconnected")
    return _started(daemon().start_disconnect_job(body["filter"], body["per_second"], caller().sub))


@routes.get("/jobs")
@access.any_role
@access.together
@responses.data(listing(ListJobs), errors=(501,))
@lists.query(list_query(ListJobs))
def index(query: dict[str, Any]) -> Response:
    """The last hundred jobs, the newest first."""
    return responses.listed(daemon().listed(ListJobs(**query)))


@routes.get("/jobs/<job>")
@access.any_role
@access.together
@responses.data(Job, errors=(501,))
def show(job: str) -> Response:
    """One job.

    It is `done` when it has acted on each of its sessions, once. A restart of the core daemon makes it
    `interrupted`, with its counts: it does not continue.
    """
    return responses.ok(daemon().fields(GetJob(parse.job_id(job)), "job")["job"])


@routes.delete("/jobs/<job>")
@access.admin
@responses.data(Job, errors=(409, 501))
def cancel(job: str) -> Response:
    """Cancels a job: it takes no further session. 409 if it has ended."""
    cancelled = daemon().reply(CancelJob(parse.job_id(job))).job
    audit.note(after=cancelled)
    return responses.ok(cancelled)


def _started(job: Job) -> Response:
    audit.note(after={"id": job.id, "total": job.total})
    response = responses.ok(job, 202)
    response.headers["Location"] = url_for(".show", job=job.id)
    return response


def _preview(filter: Mapping[str, str], what: str) -> Response:
    found = daemon().list_sessions(filter, None, Page(_FIRST))
    count = decoded(int, found.others["total"])
    message = f"{count} session{'' if count == 1 else 's'} {what}"
    sessions = [session for array in found.arrays for session in decoded(list[msgspec.Raw], array)]
    return responses.ok({"message": message, "count": count, "sessions": sessions})

"""Views of jobs of the core, which act on many sessions. A job that has started does not need the API."""

from collections.abc import Mapping

import msgspec
from flask import Blueprint, url_for

from gateway_api.web import audit, records
from gateway_api.web.access import ADMIN, ANY_ROLE
from gateway_api.web.operation import Created, RawJson, cast_records, list_operation, operation
from gateway_api.web.schemas import queries, requests
from gateway_api.web.services import core
from gateway_contract.contract import Page
from gateway_contract.core.jobs import CancelJob, GetJob, Job, ListJobs
from gateway_contract.core.sessions import SessionSummary
from gateway_contract.core_client import ListParts, decode_part

#: Number of sessions that a dry run lists.
_MAX_PREVIEW_SESSIONS = 100

jobs = Blueprint("jobs", __name__, url_prefix="/api/v1/subscribers")


@jobs.post("/rate")
@operation(ADMIN, body=requests.RateJobSchema, status=202, preview=records.JobPreview, errors=(409, 501))
def change_rates(body: requests.RateJob) -> Created[Job] | records.JobPreview:
    """Start a job that changes the rates of all matching sessions. A dry run lists the first hundred of these
    sessions instead."""
    if body.dry_run:
        return _preview_job(body.filter, "would get other rates")
    return _respond_with_job(core().start_rate_job(body.filter, body.per_second, **body.change.parameters))


@jobs.post("/disconnect")
@operation(
    ADMIN, body=requests.DisconnectJobSchema, status=202, preview=records.JobPreview, errors=(409, 501)
)
def disconnect(body: requests.DisconnectJob) -> Created[Job] | records.JobPreview:
    """Start a job that disconnects all matching sessions. A dry run lists the first hundred of these sessions
    instead."""
    if body.dry_run:
        return _preview_job(body.filter, "would be disconnected")
    return _respond_with_job(core().start_disconnect_job(body.filter, body.per_second))


@jobs.get("/jobs", endpoint="index")
@list_operation(ListJobs, errors=(501,))
def list_jobs(query: queries.ListSelection) -> ListParts:
    """List the last hundred jobs, newest first."""
    return core().call_list(query.make_call(ListJobs))


@jobs.get("/jobs/<job>")
@operation(ANY_ROLE, errors=(501,))
def show(job: int) -> RawJson[Job]:
    """Return a job.

    A job is `done` when it has acted once on each of its sessions. After a restart of the core daemon a job
    is `interrupted`: it keeps its counts, but does not continue."""
    return RawJson(core().call_fields(GetJob(job), "job")["job"])


@jobs.delete("/jobs/<job>")
@operation(ADMIN, errors=(409, 501))
def cancel(job: int) -> Job:
    """Cancel a job, which then stops before its next session. 409 if the job has ended."""
    cancelled_job = core().call(CancelJob(job)).job
    audit.note(after=cancelled_job)
    return cancelled_job


def _respond_with_job(job: Job) -> Created[Job]:
    audit.note(after={"id": job.id, "total": job.total})
    return Created(job, url_for("jobs.show", job=job.id))


def _preview_job(filter: Mapping[str, str], verb: str) -> records.JobPreview:
    result = core().list_sessions(filter, None, Page(_MAX_PREVIEW_SESSIONS))
    count = decode_part(int, result.others["total"])
    sessions = [session for array in result.arrays for session in decode_part(list[msgspec.Raw], array)]
    message = f"{count} session{'' if count == 1 else 's'} {verb}"
    return records.JobPreview(message, count, cast_records(sessions, SessionSummary))

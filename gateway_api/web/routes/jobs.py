"""Work on many sessions: jobs of the core. No job needs the API, once it has started."""

from collections.abc import Mapping

import msgspec
from flask import Blueprint, url_for

from gateway_api.web import audit
from gateway_api.web.access import ADMIN, ANY_ROLE
from gateway_api.web.lists import list_operation
from gateway_api.web.operation import Created, Passed, operation, passed
from gateway_api.web.records import JobPreview
from gateway_api.web.schemas.queries import ListSelection
from gateway_api.web.schemas.requests import DisconnectJob, DisconnectJobSchema, RateJob, RateJobSchema
from gateway_api.web.services import core
from gateway_contract.contract import Page
from gateway_contract.core.jobs import CancelJob, GetJob, Job, ListJobs
from gateway_contract.core.sessions import SessionSummary
from gateway_contract.core_client import ListParts, decode_part

#: Sessions that a dry run lists.
_FIRST = 100

jobs = Blueprint("jobs", __name__, url_prefix="/api/v1/subscribers")


@jobs.post("/rate")
@operation(ADMIN, body=RateJobSchema, status=202, preview=JobPreview, errors=(409, 501))
def change_rates(body: RateJob) -> Created[Job] | JobPreview:
    """Starts to change the rates of all sessions that match, or lists the first hundred of them."""
    if body.dry_run:
        return _preview(body.filter, "would get other rates")
    return _started(core().start_rate_job(body.filter, body.per_second, **body.change.parameters))


@jobs.post("/disconnect")
@operation(ADMIN, body=DisconnectJobSchema, status=202, preview=JobPreview, errors=(409, 501))
def disconnect(body: DisconnectJob) -> Created[Job] | JobPreview:
    """Starts to disconnect all sessions that match, or lists the first hundred of them."""
    if body.dry_run:
        return _preview(body.filter, "would be disconnected")
    return _started(core().start_disconnect_job(body.filter, body.per_second))


@jobs.get("/jobs", endpoint="index")
@list_operation(ListJobs, errors=(501,))
def list_jobs(query: ListSelection) -> ListParts:
    """The last hundred jobs, the newest first."""
    return core().call_list(query.call(ListJobs))


@jobs.get("/jobs/<job>")
@operation(ANY_ROLE, errors=(501,))
def show(job: int) -> Passed[Job]:
    """One job.

    It is `done` when it has acted on each of its sessions, once. A restart of the core daemon makes it
    `interrupted`, with its counts: it does not continue.
    """
    return Passed(core().call_fields(GetJob(job), "job")["job"])


@jobs.delete("/jobs/<job>")
@operation(ADMIN, errors=(409, 501))
def cancel(job: int) -> Job:
    """Cancels a job: it takes no further session. 409 if it has ended."""
    cancelled = core().call(CancelJob(job)).job
    audit.note(after=cancelled)
    return cancelled


def _started(job: Job) -> Created[Job]:
    audit.note(after={"id": job.id, "total": job.total})
    return Created(job, url_for("jobs.show", job=job.id))


def _preview(filter: Mapping[str, str], what: str) -> JobPreview:
    found = core().list_sessions(filter, None, Page(_FIRST))
    count = decode_part(int, found.others["total"])
    sessions = [session for array in found.arrays for session in decode_part(list[msgspec.Raw], array)]
    message = f"{count} session{'' if count == 1 else 's'} {what}"
    return JobPreview(message, count, passed(sessions, SessionSummary))

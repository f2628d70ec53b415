"""Work on many sessions: jobs of the core. No job needs the API, once it has started."""

from collections.abc import Mapping
from functools import partial
from typing import Any

import msgspec
from flask import url_for

from gateway_api.core_client.calls import Fields, decoded
from gateway_api.web import audit
from gateway_api.web.lists import listed
from gateway_api.web.operation import ADMIN, ANY_ROLE, DELETE, GET, POST, Located, Passed, Routes, passed
from gateway_api.web.records import JobPreview
from gateway_api.web.schemas.requests import DisconnectJob, RateJob
from gateway_api.web.services import daemon
from gateway_api.wire.contract import Page
from gateway_api.wire.core.jobs import CancelJob, GetJob, Job, ListJobs
from gateway_api.wire.core.sessions import SessionSummary

#: Sessions that a dry run lists.
_FIRST = 100


def change_rates(body: dict[str, Any]) -> Located[Job] | JobPreview:
    """Starts to change the rates of all sessions that match, or lists the first hundred of them."""
    if body["dry_run"]:
        return _preview(body["filter"], "would get other rates")
    return _started(daemon().start_rate_job(body["filter"], body["per_second"], **body["change"]))


def disconnect(body: dict[str, Any]) -> Located[Job] | JobPreview:
    """Starts to disconnect all sessions that match, or lists the first hundred of them."""
    if body["dry_run"]:
        return _preview(body["filter"], "would be disconnected")
    return _started(daemon().start_disconnect_job(body["filter"], body["per_second"]))


def show(reply: Fields, job: int) -> Passed[Job]:
    """One job.

    It is `done` when it has acted on each of its sessions, once. A restart of the core daemon makes it
    `interrupted`, with its counts: it does not continue.
    """
    return Passed(reply["job"])


def cancel(job: int) -> Job:
    """Cancels a job: it takes no further session. 409 if it has ended."""
    cancelled = daemon().reply(CancelJob(job)).job
    audit.note(after=cancelled)
    return cancelled


def _started(job: Job) -> Located[Job]:
    audit.note(after={"id": job.id, "total": job.total})
    return Located(job, url_for("jobs.show", job=job.id))


def _preview(filter: Mapping[str, str], what: str) -> JobPreview:
    found = daemon().list_sessions(filter, None, Page(_FIRST))
    count = decoded(int, found.others["total"])
    sessions = [session for array in found.arrays for session in decoded(list[msgspec.Raw], array)]
    message = f"{count} session{'' if count == 1 else 's'} {what}"
    return JobPreview(message, count, passed(sessions, SessionSummary))


_start = partial(POST, status=202, preview=JobPreview, errors=(409, 501))

routes = Routes(
    "jobs",
    "/api/v1/subscribers",
    _start("/rate", change_rates, ADMIN, body=RateJob),
    _start("/disconnect", disconnect, ADMIN, body=DisconnectJob),
    listed("/jobs", ListJobs, "The last hundred jobs, the newest first.", errors=(501,)),
    GET("/jobs/<job>", show, ANY_ROLE, read=lambda core, job: core.fields(GetJob(job), "job"), errors=(501,)),
    DELETE("/jobs/<job>", cancel, ADMIN, errors=(409, 501)),
)

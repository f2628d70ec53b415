"""The core's contract for jobs: background work on many sessions."""

from typing import Annotated

from msgspec import Meta

from gateway_contract.contract import (
    Command,
    Enumeration,
    Failure,
    ListReply,
    Method,
    Record,
    SelectingMethod,
    about,
    count,
)
from gateway_contract.core.sessions import ExpiresIn, NewRateDown, NewRateUp, SessionFilter, SessionId, Until

#: The most sessions a second that a job may act on, and how many if none is given.
MAX_SESSIONS_PER_SECOND, PER_SECOND = 10_000, 100
#: Jobs at a time.
MAX_RUNNING_JOBS = 4


class JobKind(Enumeration):
    """The action that a job performs on each session."""

    RATE = "rate", "Changes its rates."
    DISCONNECT = "disconnect", "Disconnects it."


class JobState(Enumeration):
    """The state of a job."""

    RUNNING = "running", "It acts on its sessions."
    DONE = "done", "It has acted on each."
    CANCELLED = "cancelled", "It was cancelled, and takes no further session."
    INTERRUPTED = "interrupted", "The core ended, and the job with it. It does not continue."


class JobError(Record, frozen=True):
    """A session on which the job failed, and the reason."""

    session_id: SessionId
    message: Annotated[str, about("Why.", "The session is still connected: accel-ppp does not reply")]


JobId = Annotated[int, about("Job id.", 3)]
Wanted = Annotated[SessionFilter, about("Which sessions; at least one condition.")]
PerSecond = Annotated[
    Annotated[int, Meta(ge=1, le=MAX_SESSIONS_PER_SECOND)],
    about("The most sessions per second, 1 to 10000.", 100),
]
Author = Annotated[str | None, about("User that the job is for, if known.", "admin")]


class Job(Record, frozen=True):
    """A job: work on all sessions that matched a filter when the job started. The job acts on each session at
    most once."""

    id: JobId
    kind: Annotated[JobKind, about("What it does.", "rate")]
    state: Annotated[JobState, about("How far it is.", "running")]
    filter: Annotated[dict[str, str], about("The conditions for its sessions, by field.", {"type": "pppoe"})]
    per_second: PerSecond
    author: Author
    total: Annotated[int, count("Number of its sessions.", 120)]
    done: Annotated[int, count("Sessions on which it has acted.", 57)]
    gone: Annotated[int, count("Sessions that had ended before.", 2)]
    failed: Annotated[int, count("Sessions on which it failed.", 1)]
    errors: Annotated[tuple[JobError, ...], about("The first ten failures.")]
    started_at: Annotated[int, count("When it started, Unix epoch seconds.", 1795271513)]
    finished_at: Annotated[
        int | None,
        about("When it ended, Unix epoch seconds; null while it runs, and if the core ended.", 1795271523),
    ]


class JobReply(Record, frozen=True):
    job: Annotated[Job, about("The job.")]


class StartRateJob(Command[JobReply], frozen=True):
    """Start a job that changes the rates of all sessions that match now. SetSessionRate does the same for one
    session."""

    filter: Wanted
    rate_down_bps: NewRateDown = None
    rate_up_bps: NewRateUp = None
    expires_in: ExpiresIn = None
    until: Until = None
    per_second: PerSecond = PER_SECOND
    author: Author = None


class StartDisconnectJob(Command[JobReply], frozen=True):
    """Start a job that disconnects all sessions that match now."""

    filter: Wanted
    per_second: PerSecond = PER_SECOND
    author: Author = None


class JobsReply(ListReply, frozen=True):
    """A list of jobs."""

    jobs: Annotated[tuple[Job, ...], about("The jobs.")]


class ListJobs(SelectingMethod[JobsReply], frozen=True):
    """List the last 100 jobs, newest first. The list includes jobs from before a restart of the core."""


class GetJob(Method[JobReply], frozen=True):
    """Return a job."""

    id: JobId


class CancelJob(Command[JobReply], frozen=True):
    """Cancel a job. The job finishes the sessions on which it is working now, and then stops."""

    id: JobId


class JobNotFoundError(Failure, frozen=True):
    """Error about a job: no job has that id."""

    id: JobId


class JobEndedError(Failure, frozen=True):
    """Refusal to cancel a job: the job has ended."""

    state: Annotated[JobState, about("Its state.", "done")]


class TooManyJobsError(Failure, frozen=True):
    """Refusal of a job: the core already runs as many jobs as it allows."""

    most: Annotated[int, count("So many.", MAX_RUNNING_JOBS)]

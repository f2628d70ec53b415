"""The methods of the core's interface about jobs."""

from collections.abc import Sequence
from typing import Any

import msgspec

from gateway_api.base.errors import NotDone, StillConnected
from gateway_api.core.gateways.ports import Gateway
from gateway_api.core.records.changes import Caller, ChangeLog, Note
from gateway_api.core.records.clock import Clock
from gateway_api.core.records.paging import Reply, Sorted
from gateway_api.core.service.core import errors
from gateway_api.core.service.jobs import Act, EndedJob, JobOutcome, Jobs, TooManyJobs
from gateway_api.core.service.rates import Rates, Wanted
from gateway_api.core.service.selection import selected
from gateway_api.core.sessions.journal import Journal
from gateway_api.wire.contract import Command
from gateway_api.wire.core.interface import CORE
from gateway_api.wire.core.jobs import (
    MOST_RUNNING,
    CancelJob,
    GetJob,
    Job,
    JobEndedError,
    JobError,
    JobKind,
    JobNotFoundError,
    JobReply,
    JobState,
    ListJobs,
    StartDisconnectJob,
    StartRateJob,
    TooManyJobsError,
)
from gateway_api.wire.core.sessions import SessionFilter
from gateway_api.wire.varlink.dispatcher import invalid_parameter
from gateway_api.wire.varlink.protocol import Peer


class JobService:
    """Serves the jobs of one gateway. `changes` gets those that did not come through the API."""

    def __init__(
        self,
        gateway: Gateway,
        journal: Journal,
        rates: Rates,
        jobs: Jobs,
        changes: ChangeLog,
        clock: Clock,
    ) -> None:
        self._gateway = gateway
        self._journal = journal
        self._rates = rates
        self._jobs = jobs
        self._changes = changes
        self._clock = clock

    def start_rate_job(self, call: StartRateJob, peer: Peer | None) -> JobReply:
        wanted = Wanted(call.rate_down_bps, call.rate_up_bps, call.expires_in, call.until)
        wanted.checked(self._clock)
        return self._started(JobKind.RATE, call, peer, lambda ids: self._change(ids, wanted, call.author))

    def start_disconnect_job(self, call: StartDisconnectJob, peer: Peer | None) -> JobReply:
        return self._started(JobKind.DISCONNECT, call, peer, lambda ids: self._disconnect(ids, call.author))

    def list_jobs(self, call: ListJobs) -> Reply:
        return selected(Sorted(self._jobs.all(), lambda job: (-job.id,), lambda job: job), call)

    def get_job(self, call: GetJob) -> JobReply:
        return _reply(call.id, self._jobs.get(call.id))

    def cancel_job(self, call: CancelJob, peer: Peer | None) -> JobReply:
        try:
            reply = _reply(call.id, self._jobs.cancel(call.id))
        except EndedJob as error:
            raise CORE.error(JobEndedError(error.state)) from error
        self._note("jobs.cancel", call, peer, reply.job)
        return reply

    def _started(
        self, kind: JobKind, call: StartRateJob | StartDisconnectJob, peer: Peer | None, act: Act
    ) -> JobReply:
        if call.filter == SessionFilter():
            raise invalid_parameter("filter")
        ids = [session.id for session in self._gateway.sessions.find(call.filter)]
        job = Job(
            id=0,
            kind=kind,
            state=JobState.RUNNING,
            filter=msgspec.to_builtins(call.filter),
            per_second=call.per_second,
            author=call.author,
            total=0,
            done=0,
            gone=0,
            failed=0,
            errors=(),
            started_at=0,
            finished_at=None,
        )
        with errors():
            try:
                started = self._jobs.start(job, ids, act)
            except TooManyJobs as error:
                raise CORE.error(TooManyJobsError(MOST_RUNNING)) from error
        self._note(f"jobs.{kind}", call, peer, started)
        return JobReply(started)

    def _change(self, ids: Sequence[int], wanted: Wanted, author: str | None) -> JobOutcome:
        done, failures = 0, []
        for id in ids:
            try:
                done += self._rates.change(id, wanted, author) is not None
            except NotDone as error:
                failures.append(JobError(id, str(error)))
        return JobOutcome(done, len(ids) - done - len(failures), tuple(failures))

    def _disconnect(self, ids: Sequence[int], author: str | None) -> JobOutcome:
        self._journal.disconnects(author, ids)
        try:
            return JobOutcome(done := len(self._gateway.disconnect_many(ids)), len(ids) - done)
        except StillConnected as error:
            ended = {each.id for each in error.ended}
            left = [id for id in ids if id not in ended and self._gateway.sessions.get(id) is not None]
            failures = tuple(JobError(id, f"Still connected: {error.reason}") for id in left)
            return JobOutcome(len(ended), len(ids) - len(ended) - len(failures), failures)

    def _note(self, action: str, call: Command[Any], peer: Peer | None, job: Job) -> None:
        if call.request_id is None:
            after = {"id": job.id, "filter": job.filter, "total": job.total}
            self._changes.add(Note.of(Caller(action, peer), self._clock.wall(), after=after))


def _reply(id: int, job: Job | None) -> JobReply:
    if job is None:
        raise CORE.error(JobNotFoundError(id))
    return JobReply(job)

"""Jobs: changes of many sessions in batches, while the core serves other calls.

A job acts on the sessions that match its filter when the job starts, and on each session at most once. The
progress of a job is written to disk after each batch of sessions. A job that was interrupted by a restart of
the core is never continued.
"""

import logging
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from gateway_contract.base.databases import Database, connect_to_read
from gateway_contract.base.errors import StepFailed, StillConnected
from gateway_contract.contract import Command, Record
from gateway_contract.core import jobs as wire
from gateway_contract.core.interface import CORE
from gateway_contract.core.jobs import Job, JobError, JobState
from gateway_contract.core.sessions import SessionFilter
from gateway_contract.varlink.dispatcher import make_parameter_error
from gateway_contract.varlink.protocol import Peer
from gateway_core.configuration.store import disk_step
from gateway_core.gateways.protocols import Gateway
from gateway_core.records.changes import Caller, ChangeLog, Note
from gateway_core.records.clock import Clock
from gateway_core.records.paging import Reply, SortedRows, select_records
from gateway_core.service.rates import NewRates, Rates
from gateway_core.sessions.journal import Journal

#: Length of a batch in seconds: a gateway ends several sessions as fast as a single session.
_BATCH_SECONDS = 0.1
_MAX_ERRORS_PER_JOB = 10
MAX_JOBS = 100

_SCHEMA = "CREATE TABLE IF NOT EXISTS job (id INTEGER PRIMARY KEY AUTOINCREMENT, job TEXT NOT NULL)"
#: No sync for each step of a job. Written data outlasts the end of the core at any moment.
_PRAGMAS = ("journal_mode = WAL", "synchronous = NORMAL")
_DELETE_OLD_JOBS = """
DELETE FROM job WHERE json_extract(job, '$.state') <> 'running'
AND id NOT IN (SELECT id FROM job ORDER BY id DESC LIMIT ?) RETURNING id
"""
#: Seconds to wait for a backup that reads the database.
_BACKUP_WAIT_SECONDS = 1.0

_log = logging.getLogger(__name__)


class JobOutcome(Record, frozen=True):
    """Outcome of a batch of sessions: the number of changed sessions, the number of sessions that had already
    ended, and the failures."""

    done: int = 0
    gone: int = 0
    errors: tuple[JobError, ...] = ()


#: A function that acts on the sessions with these ids.
SessionAction = Callable[[Sequence[int]], JobOutcome]


class Jobs:
    """Store and runner of jobs, in a folder: all running jobs, and the newest `max_kept` jobs. After a
    restart of the core, the jobs that ran before have the state interrupted. Thread-safe. The methods raise
    StepFailed if the disk fails. Errors of the interface are raised as ErrorReply."""

    def __init__(
        self,
        folder: Path,
        clock: Clock,
        sleep: Callable[[float], None] = time.sleep,
        max_kept: int = MAX_JOBS,
    ) -> None:
        self._path = folder / "jobs.sqlite"
        self._database = Database(
            self._path,
            "list of jobs",
            _SCHEMA,
            timeout=_BACKUP_WAIT_SECONDS,
            pragmas=_PRAGMAS,
            restore=self._restore,
        )
        self._clock = clock
        self._sleep = sleep
        self._max_kept = max_kept
        #: Held around a change of a job, in memory and on disk.
        self._lock = threading.Lock()
        self._jobs: dict[int, Job] = {}
        try:
            self._jobs = {job.id: job for job in self._read_jobs()}
        except StepFailed as error:
            # A gateway without its former jobs is better than none.
            _log.error("cannot read the list of jobs, which starts empty: %s", error)
        for job in list(self._jobs.values()):
            if job.state is JobState.RUNNING:
                self._store(replace(job, state=JobState.INTERRUPTED))

    def all(self) -> list[Job]:
        """Return all jobs, the newest first."""
        with self._lock:
            return sorted(self._jobs.values(), key=lambda job: -job.id)

    def get(self, id: int) -> Job | None:
        with self._lock:
            return self._jobs.get(id)

    def start(self, job: Job, ids: Sequence[int], act: SessionAction) -> Job:
        """Start a job that calls `act` with batches of the session `ids`, in order. Return the job with its
        new id and the total number of sessions. Raises TooManyJobsError if the maximum number of jobs runs
        already."""
        with self._lock:
            running = sum(job.state is JobState.RUNNING for job in self._jobs.values())
            if running >= wire.MAX_RUNNING_JOBS:
                raise CORE.make_error(wire.TooManyJobsError(wire.MAX_RUNNING_JOBS))
            job = replace(job, total=len(ids), started_at=int(self._clock.wall()))
            with disk_step("store jobs"):
                id, deleted_ids = self._database.use(lambda connection: self._insert_job(connection, job))
            job = self._jobs[id] = replace(job, id=id)
            for old in deleted_ids:
                self._jobs.pop(old, None)
        threading.Thread(target=self._run, args=(id, ids, act), daemon=True).start()
        return job

    def cancel(self, id: int) -> Job | None:
        """Cancel a job: it acts on no further session. Return the job, or None for an unknown id. Raises
        JobEndedError if the job has already ended."""
        with self._lock:
            job = self._jobs.get(id)
            if job is None:
                return None
            if job.state is not JobState.RUNNING:
                raise CORE.make_error(wire.JobEndedError(job.state))
            return self._finish(job, JobState.CANCELLED)

    def _run(self, id: int, ids: Sequence[int], act: SessionAction) -> None:
        final_state = JobState.DONE
        try:
            self._act_on_all(id, ids, act)
        except Exception:  # noqa: BLE001 - logged; the job must not run for ever
            _log.exception("job %d is interrupted by an internal error", id)
            final_state = JobState.INTERRUPTED
        with self._lock:
            # A cancelled job has ended, also if its last batch fails.
            if self._jobs[id].state is JobState.RUNNING:
                self._finish(self._jobs[id], final_state)

    def _act_on_all(self, id: int, ids: Sequence[int], act: SessionAction) -> None:
        per_second = self._jobs[id].per_second
        batch_size = max(1, int(per_second * _BATCH_SECONDS))
        next_batch_at = self._clock.steady()
        for first in range(0, len(ids), batch_size):
            while (wait := next_batch_at - self._clock.steady()) > 0:
                self._sleep(min(wait, _BATCH_SECONDS))
            batch = ids[first : first + batch_size]
            # Counted from the start of the batch: after a slow one, sessions must not come faster.
            next_batch_at = max(next_batch_at, self._clock.steady()) + len(batch) / per_second
            with self._lock:
                if self._jobs[id].state is not JobState.RUNNING:
                    return
            outcome = act(batch)
            with self._lock:
                job = self._jobs[id]
                self._store(
                    replace(
                        job,
                        done=job.done + outcome.done,
                        gone=job.gone + outcome.gone,
                        failed=job.failed + len(outcome.errors),
                        errors=(*job.errors, *outcome.errors)[:_MAX_ERRORS_PER_JOB],
                    )
                )

    def _finish(self, job: Job, state: JobState) -> Job:
        return self._store(replace(job, state=state, finished_at=int(self._clock.wall())))

    def _store(self, job: Job) -> Job:
        """Replace a job in memory and on disk, and return it. A failure of the disk is only logged, because
        the sessions have already changed. After a restart, the counts of the job may then be too low."""
        self._jobs[job.id] = job
        update = "UPDATE job SET job = ? WHERE id = ?"
        try:
            with disk_step("store jobs"):
                self._database.use(lambda connection: connection.execute(update, (_encode_job(job), job.id)))
        except StepFailed as error:
            _log.error(
                "cannot store the state of job %d, which may be outdated after a restart: %s", job.id, error
            )
        return job

    def _insert_job(self, connection: sqlite3.Connection, job: Job) -> tuple[int, list[int]]:
        """Insert a job. Return its id, and the ids of the old jobs that were deleted."""
        id = connection.execute("INSERT INTO job (job) VALUES (?)", (_encode_job(job),)).lastrowid
        assert id is not None  # noqa: S101 - the statement has inserted a row
        return id, [old for (old,) in connection.execute(_DELETE_OLD_JOBS, (self._max_kept,)).fetchall()]

    def _read_jobs(self) -> list[Job]:
        """Return the jobs on disk, sorted by id. If the disk is full, read the jobs from a read-only
        connection."""
        select = "SELECT id, job FROM job ORDER BY id"
        try:
            with disk_step("store jobs"):
                rows = self._database.open().execute(select).fetchall()
        except StepFailed as error:
            _log.error("cannot write the list of jobs, which is read-only for now: %s", error)
            wait = _BACKUP_WAIT_SECONDS
            with disk_step("read jobs"), closing(connect_to_read(self._path, wait, wait)) as connection:
                rows = connection.execute(select).fetchall()
        return [job for row in rows if (job := _decode_job(*row)) is not None]

    def _restore(self, connection: sqlite3.Connection) -> None:
        rows: Iterable[tuple[int, str]] = ((job.id, _encode_job(job)) for job in self._jobs.values())
        # In a file that begins anew, ids go on after the highest one.
        connection.executemany("INSERT OR IGNORE INTO job VALUES (?, ?)", rows)


def _encode_job(job: Job) -> str:
    return msgspec.json.encode(job).decode()


def _decode_job(id: int, text: str) -> Job | None:
    try:
        return replace(msgspec.json.decode(text, type=Job), id=id)
    except msgspec.DecodeError as error:
        # A job of a newer version, before a downgrade.
        _log.error("cannot decode job %d, which is missing in the list of jobs: %s", id, error)
        return None


@dataclass(frozen=True)
class JobService:
    """Service for the jobs of one gateway. Jobs that were not started through the API are added to the log
    `changes`."""

    gateway: Gateway
    journal: Journal
    rates: Rates
    jobs: Jobs
    changes: ChangeLog
    clock: Clock

    def start_rate_job(self, call: wire.StartRateJob, peer: Peer | None) -> wire.JobReply:
        new_rates = NewRates(call.rate_down_bps, call.rate_up_bps, call.expires_in, call.until)
        new_rates.check(self.clock)
        return self._start(
            wire.JobKind.RATE, call, peer, lambda ids: self._change_rates(ids, new_rates, call.author)
        )

    def start_disconnect_job(self, call: wire.StartDisconnectJob, peer: Peer | None) -> wire.JobReply:
        kind = wire.JobKind.DISCONNECT
        return self._start(kind, call, peer, lambda ids: self._disconnect(ids, call.author))

    def list_jobs(self, call: wire.ListJobs) -> Reply:
        return select_records(SortedRows(self.jobs.all(), lambda job: (-job.id,), lambda job: job), call)

    def get_job(self, call: wire.GetJob) -> wire.JobReply:
        return _make_reply(call.id, self.jobs.get(call.id))

    def cancel_job(self, call: wire.CancelJob, peer: Peer | None) -> wire.JobReply:
        reply = _make_reply(call.id, self.jobs.cancel(call.id))
        self._note("jobs.cancel", call, peer, reply.job)
        return reply

    def _start(
        self,
        kind: wire.JobKind,
        call: wire.StartRateJob | wire.StartDisconnectJob,
        peer: Peer | None,
        act: SessionAction,
    ) -> wire.JobReply:
        if call.filter == SessionFilter():
            raise make_parameter_error("filter")
        ids = [session.id for session in self.gateway.sessions.find(call.filter)]
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
        started = self.jobs.start(job, ids, act)
        self._note(f"jobs.{kind}", call, peer, started)
        return wire.JobReply(started)

    def _change_rates(self, ids: Sequence[int], new_rates: NewRates, author: str | None) -> JobOutcome:
        done, errors = 0, []
        for id in ids:
            try:
                done += self.rates.change(id, new_rates, author) is not None
            except StepFailed as error:
                errors.append(JobError(id, error.sentence))
        return JobOutcome(done, len(ids) - done - len(errors), tuple(errors))

    def _disconnect(self, ids: Sequence[int], author: str | None) -> JobOutcome:
        self.journal.note_disconnect(author, ids)
        try:
            return JobOutcome(done := len(self.gateway.disconnect(ids)), len(ids) - done)
        except StillConnected as error:
            ended = {session.id for session in error.ended}
            connected_ids = [
                id for id in ids if id not in ended and self.gateway.sessions.get(id) is not None
            ]
            errors = tuple(JobError(id, f"Still connected: {error.reason}") for id in connected_ids)
            return JobOutcome(len(ended), len(ids) - len(ended) - len(errors), errors)

    def _note(self, action: str, call: Command[Any], peer: Peer | None, job: Job) -> None:
        if call.request_id is None:
            after = {"id": job.id, "filter": job.filter, "total": job.total}
            self.changes.add(Note.of(Caller(action, peer), self.clock.wall(), after=after))


def _make_reply(id: int, job: Job | None) -> wire.JobReply:
    if job is None:
        raise CORE.make_error(wire.JobNotFoundError(id))
    return wire.JobReply(job)

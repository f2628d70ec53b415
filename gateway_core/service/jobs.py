"""Jobs: work on many sessions, one after the other, while the core does everything else.

The sessions of a job are those that match when it starts. It takes each id once, whatever comes of it. What
it has done is on disk before it acts on the next ones; a job that a restart interrupts never continues, so
no session is acted on twice.
"""

import logging
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from gateway_contract.base.databases import Database, connect_to_read
from gateway_contract.base.errors import StepFailed, StillConnected
from gateway_contract.contract import Command, Record
from gateway_contract.core.interface import CORE
from gateway_contract.core.jobs import (
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
from gateway_contract.core.sessions import SessionFilter
from gateway_contract.varlink.dispatcher import invalid_parameter
from gateway_contract.varlink.protocol import Peer
from gateway_core.configuration.store import disk_step
from gateway_core.gateways.protocols import Gateway
from gateway_core.records.changes import Caller, ChangeLog, Note
from gateway_core.records.clock import Clock
from gateway_core.records.paging import Reply, SortedRows, select_records
from gateway_core.service.core import errors
from gateway_core.service.rates import Rates, Wanted
from gateway_core.sessions.journal import Journal

#: Seconds for which sessions are taken together: a gateway ends several as fast as one.
_SLICE = 0.1
_MOST_ERRORS = 10
#: Jobs that are kept.
HELD = 100

_SCHEMA = "CREATE TABLE IF NOT EXISTS job (id INTEGER PRIMARY KEY AUTOINCREMENT, job TEXT NOT NULL)"
_ADD = "INSERT INTO job (job) VALUES (?)"
_PUT = "UPDATE job SET job = ? WHERE id = ?"
_SELECT = "SELECT id, job FROM job ORDER BY id"
_FORGET = """
DELETE FROM job WHERE json_extract(job, '$.state') <> 'running'
AND id NOT IN (SELECT id FROM job ORDER BY id DESC LIMIT ?) RETURNING id
"""
#: Seconds to wait for a backup that reads the database.
_PATIENCE = 1.0
_STEP = "store jobs"

_log = logging.getLogger(__name__)


class JobStore:
    """The jobs on disk, in a folder: the last `held` ones, and those that run. For one thread at a time.
    Raises StepFailed."""

    def __init__(self, folder: Path, held: int = HELD) -> None:
        self._path = folder / "jobs.sqlite"
        self._database = Database(self._path, "list of jobs", self._prepare, _PATIENCE)
        self._held = held
        #: As on disk, by id.
        self._rows: dict[int, str] = {}

    def restored(self) -> list[Job]:
        """Return all jobs, by id. Those that ran are interrupted now, for good. A full disk is read; the next
        use writes it."""
        try:
            with disk_step(_STEP):
                self._database.open()
        except StepFailed as error:
            _log.error("%s", error.sentence)
            with disk_step("read jobs"), closing(self._opened_to_read()) as connection:
                self._rows = dict(connection.execute(_SELECT))
        jobs = [replace(job, id=id) for id, text in self._rows.items() if (job := _job(id, text)) is not None]
        return [self._interrupted(job) if job.state is JobState.RUNNING else job for job in jobs]

    def added(self, job: Job) -> Job:
        """Store a job, and return it with an id that none had before."""
        text = _text(job)
        with disk_step(_STEP):
            id = self._database.use(lambda connection: connection.execute(_ADD, (text,)).lastrowid)
        assert id is not None  # noqa: S101 - it has inserted a row
        self._rows[id] = text
        return replace(job, id=id)

    def put(self, job: Job) -> None:
        """Replace what is kept of a job."""
        text = _text(job)
        with disk_step(_STEP):
            self._database.use(lambda connection: connection.execute(_PUT, (text, job.id)))
        self._rows[job.id] = text

    def forgotten(self) -> list[int]:
        """Forget the oldest jobs that are too many and do not run, and return their ids."""
        with disk_step(_STEP):
            rows = self._database.use(lambda one: one.execute(_FORGET, (self._held,)).fetchall())
        for (id,) in rows:
            self._rows.pop(id, None)
        return [id for (id,) in rows]

    def _opened_to_read(self) -> sqlite3.Connection:
        return connect_to_read(self._path, _PATIENCE, _PATIENCE)

    def _prepare(self, connection: sqlite3.Connection) -> None:
        # No sync for each step of a job. What it has written outlasts the end of the core at any moment.
        connection.execute("PRAGMA journal_mode = WAL").fetchall()
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute(_SCHEMA)
        with connection:
            connection.execute("BEGIN IMMEDIATE")
            # Ids go on after the highest one.
            connection.executemany("INSERT OR IGNORE INTO job VALUES (?, ?)", self._rows.items())
        self._rows = dict(connection.execute(_SELECT))

    def _interrupted(self, job: Job) -> Job:
        interrupted = replace(job, state=JobState.INTERRUPTED)
        try:
            self.put(interrupted)
        except StepFailed as error:
            # The next start tries again.
            _log.error("%s", error.sentence)
        return interrupted


def _text(job: Job) -> str:
    return msgspec.json.encode(job).decode()


def _job(id: int, text: str) -> Job | None:
    try:
        return msgspec.json.decode(text, type=Job)
    except msgspec.DecodeError as error:
        # Of another version, which a downgrade left.
        _log.error("cannot read job %d, which is left out: %s", id, error)
        return None


class JobOutcome(Record, frozen=True):
    """The outcome for some sessions: how many were acted on, how many had ended before, and the failures."""

    done: int = 0
    gone: int = 0
    errors: tuple[JobError, ...] = ()


Act = Callable[[Sequence[int]], JobOutcome]


class Jobs:
    """The jobs of a store, those of an earlier life of the core as interrupted ones. Any thread may call.
    Raises StepFailed where the disk fails. Where a method names an error of the interface, it raises that as
    an ErrorReply."""

    def __init__(self, store: JobStore, clock: Clock, sleep: Callable[[float], None] = time.sleep) -> None:
        self._store = store
        self._clock = clock
        self._sleep = sleep
        #: Around a change of a job, in memory and on disk.
        self._lock = threading.Lock()
        try:
            self._jobs = {job.id: job for job in store.restored()}
        except StepFailed as error:
            # A gateway without its former jobs is better than none.
            _log.error("%s", error.sentence)
            self._jobs = {}

    def all(self) -> list[Job]:
        """Return the newest first."""
        with self._lock:
            return sorted(self._jobs.values(), key=lambda job: -job.id)

    def get(self, id: int) -> Job | None:
        with self._lock:
            return self._jobs.get(id)

    def start(self, job: Job, ids: Sequence[int], act: Act) -> Job:
        """Start a job with these sessions: `act` gets them in order. The job gets an id and its total. Raises
        TooManyJobsError."""
        with self._lock:
            running = sum(job.state is JobState.RUNNING for job in self._jobs.values())
            if running >= MOST_RUNNING:
                raise CORE.error(TooManyJobsError(MOST_RUNNING))
            started = replace(job, total=len(ids), started_at=int(self._clock.wall()))
            started = self._store.added(started)
            self._jobs[started.id] = started
            for id in self._store.forgotten():
                self._jobs.pop(id, None)
        threading.Thread(target=self._run, args=(started.id, ids, act), daemon=True).start()
        return started

    def cancel(self, id: int) -> Job | None:
        """Return the job, which takes no further session. None for an unknown id. Raises JobEndedError."""
        with self._lock:
            job = self._jobs.get(id)
            if job is None:
                return None
            if job.state is not JobState.RUNNING:
                raise CORE.error(JobEndedError(job.state))
            return self._end(job, JobState.CANCELLED)

    def _run(self, id: int, ids: Sequence[int], act: Act) -> None:
        end = JobState.DONE
        try:
            self._work(id, ids, act)
        except Exception:  # noqa: BLE001 - logged; the job must not run for ever
            _log.exception("job %d stops", id)
            end = JobState.INTERRUPTED
        with self._lock:
            # One that was cancelled has ended, also if its last batch is an error.
            if self._jobs[id].state is JobState.RUNNING:
                self._end(self._jobs[id], end)

    def _work(self, id: int, ids: Sequence[int], act: Act) -> None:
        together = max(1, int(self._jobs[id].per_second * _SLICE))
        due = self._clock.steady()
        for first in range(0, len(ids), together):
            while (wait := due - self._clock.steady()) > 0:
                self._sleep(min(wait, _SLICE))
            taken = ids[first : first + together]
            # From the time of the start: after a gateway that was slow, sessions must not come faster.
            due = max(due, self._clock.steady()) + len(taken) / self._jobs[id].per_second
            with self._lock:
                if self._jobs[id].state is not JobState.RUNNING:
                    return
            self._count(id, act(taken))

    def _count(self, id: int, outcome: JobOutcome) -> None:
        with self._lock:
            job = self._jobs[id]
            self._put(
                replace(
                    job,
                    done=job.done + outcome.done,
                    gone=job.gone + outcome.gone,
                    failed=job.failed + len(outcome.errors),
                    errors=(*job.errors, *outcome.errors)[:_MOST_ERRORS],
                )
            )

    def _end(self, job: Job, state: JobState) -> Job:
        return self._put(replace(job, state=state, finished_at=int(self._clock.wall())))

    def _put(self, job: Job) -> Job:
        self._jobs[job.id] = job
        try:
            self._store.put(job)
        except StepFailed as error:
            # The sessions have changed. After a restart, the count may be too low.
            _log.error("%s", error.sentence)
        return job


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
        return select_records(SortedRows(self._jobs.all(), lambda job: (-job.id,), lambda job: job), call)

    def get_job(self, call: GetJob) -> JobReply:
        return _reply(call.id, self._jobs.get(call.id))

    def cancel_job(self, call: CancelJob, peer: Peer | None) -> JobReply:
        reply = _reply(call.id, self._jobs.cancel(call.id))
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
            started = self._jobs.start(job, ids, act)
        self._note(f"jobs.{kind}", call, peer, started)
        return JobReply(started)

    def _change(self, ids: Sequence[int], wanted: Wanted, author: str | None) -> JobOutcome:
        done, failures = 0, []
        for id in ids:
            try:
                done += self._rates.change(id, wanted, author) is not None
            except StepFailed as error:
                failures.append(JobError(id, error.sentence))
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

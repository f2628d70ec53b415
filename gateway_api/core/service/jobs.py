"""Jobs: work on many sessions, one after the other, while the core does everything else.

The sessions of a job are those that match when it starts. It takes each id once, whatever comes of it. What
it has done is on disk before it acts on the next ones; a job that a restart interrupts never continues, so
no session is acted on twice.
"""

import logging
import threading
import time
from collections.abc import Callable, Sequence

from msgspec.structs import replace

from gateway_api.base.errors import GatewayApiError, NotDone
from gateway_api.core.records.clock import Clock
from gateway_api.core.service.job_store import JobStore
from gateway_api.wire.contract import Record
from gateway_api.wire.core.jobs import MOST_RUNNING, Job, JobError, JobState

#: Seconds for which sessions are taken together: a gateway ends several as fast as one.
_SLICE = 0.1
_MOST_ERRORS = 10

_log = logging.getLogger(__name__)


class JobOutcome(Record, frozen=True):
    """The outcome for some sessions: how many were acted on, how many had ended before, and the failures."""

    done: int = 0
    gone: int = 0
    errors: tuple[JobError, ...] = ()


Act = Callable[[Sequence[int]], JobOutcome]


class TooManyJobs(GatewayApiError):
    """As many jobs as allowed run now."""


class EndedJob(GatewayApiError):
    """The job does not run."""

    def __init__(self, state: JobState) -> None:
        self.state = state
        super().__init__(f"the job is {state}")


class Jobs:
    """The jobs of a store, those of an earlier life of the core as interrupted ones. Any thread may call.
    Raises NotDone where the disk fails."""

    def __init__(self, store: JobStore, clock: Clock, sleep: Callable[[float], None] = time.sleep) -> None:
        self._store = store
        self._clock = clock
        self._sleep = sleep
        #: Around a change of a job, in memory and on disk.
        self._lock = threading.Lock()
        try:
            self._jobs = {job.id: job for job in store.restored()}
        except NotDone as error:
            # A gateway without its former jobs is better than none.
            _log.error("%s", error)
            self._jobs = {}

    def all(self) -> list[Job]:
        """The newest first."""
        with self._lock:
            return sorted(self._jobs.values(), key=lambda job: -job.id)

    def get(self, id: int) -> Job | None:
        with self._lock:
            return self._jobs.get(id)

    def start(self, job: Job, ids: Sequence[int], act: Act) -> Job:
        """Starts a job with these sessions: `act` gets them in order. The job gets an id and its total.
        Raises TooManyJobs."""
        with self._lock:
            running = sum(job.state is JobState.RUNNING for job in self._jobs.values())
            if running >= MOST_RUNNING:
                raise TooManyJobs(f"{running} jobs run")
            started = replace(job, total=len(ids), started_at=int(self._clock.wall()))
            started = self._store.added(started)
            self._jobs[started.id] = started
            for id in self._store.forgotten():
                self._jobs.pop(id, None)
        threading.Thread(target=self._run, args=(started.id, ids, act), daemon=True).start()
        return started

    def cancel(self, id: int) -> Job | None:
        """The job, which takes no further session. None for an unknown id. Raises EndedJob."""
        with self._lock:
            job = self._jobs.get(id)
            if job is None:
                return None
            if job.state is not JobState.RUNNING:
                raise EndedJob(job.state)
            return self._end(job, JobState.CANCELLED)

    def _run(self, id: int, ids: Sequence[int], act: Act) -> None:
        try:
            self._work(id, ids, act)
        except Exception:  # noqa: BLE001 - logged; the job must not run for ever
            _log.exception("job %d stops", id)
            with self._lock:
                self._end(self._jobs[id], JobState.INTERRUPTED)

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
        with self._lock:
            if self._jobs[id].state is JobState.RUNNING:
                self._end(self._jobs[id], JobState.DONE)

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
        except NotDone as error:
            # The sessions have changed. After a restart, the count may be too low.
            _log.error("%s", error)
        return job

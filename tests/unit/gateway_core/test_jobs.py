"""Jobs: each session once, at their pace, and what a restart leaves of them."""

import queue
import threading
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest
from msgspec.structs import replace

from gateway_contract.base.errors import StepFailed
from gateway_contract.core.jobs import MAX_RUNNING_JOBS, Job, JobError, JobKind, JobState
from gateway_contract.varlink.protocol import ErrorReply
from gateway_core.service.jobs import JobOutcome, Jobs, SessionAction
from tests.support.clocks import NOW
from tests.support.core_clock import StillClock
from tests.support.stack import PATIENCE, wait_for
from tests.support.workspaces import no_file_longer_than

WANTED = Job(
    id=0, kind=JobKind.RATE, state=JobState.RUNNING, filter={"type": "pppoe"}, per_second=100, author="alice",
    total=0, done=0, gone=0, failed=0, errors=(), started_at=0, finished_at=None,
)  # fmt: skip
IDS = range(1, 251)


class World:
    """Jobs on a disk, whose clock goes on when a job sleeps."""

    def __init__(self, folder: Path, held: int = 100) -> None:
        self.clock = StillClock()
        self.folder = folder
        self.held = held
        self.start_again()

    def start_again(self) -> None:
        """As after a restart of the core."""
        self.jobs = Jobs(self.folder, self.clock, self._sleep, self.held)

    def run(self, act: SessionAction, ids: Sequence[int] = IDS, **more: int) -> Job:
        return self.jobs.start(replace(WANTED, **more), ids, act)

    def ended(self, job: Job) -> Job:
        """The job when it does not run any more."""
        wait_for("the end of the job", lambda: self.job(job).state is not JobState.RUNNING)
        return self.job(job)

    def job(self, job: Job) -> Job:
        found = self.jobs.get(job.id)
        assert found is not None
        return found

    def _sleep(self, seconds: float) -> None:
        # No sleep is shorter: the clock could not count it.
        self.clock.now += max(seconds, 0.001)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path / "jobs")


class Held:
    """Acts on sessions, and waits before each batch but the first ones until it is released."""

    def __init__(self, free: int = 0) -> None:
        self.taken: list[int] = []
        self.waits = threading.Event()
        self.released = threading.Event()
        self._free = free

    def __call__(self, ids: Sequence[int]) -> JobOutcome:
        if len(self.taken) >= self._free:
            self.waits.set()
            assert self.released.wait(PATIENCE)
        self.taken += ids
        return JobOutcome(done=len(ids))


def all_done(ids: Sequence[int]) -> JobOutcome:
    return JobOutcome(done=len(ids))


@pytest.mark.parametrize("per_second", [1, 7, 10_000])
def test_no_second_has_more_sessions_than_allowed(world: World, per_second: int) -> None:
    seconds: Counter[int] = Counter()

    def act(ids: Sequence[int]) -> JobOutcome:
        seconds[int(world.clock.now - NOW)] += len(ids)
        # A slow gateway, now and then: the sessions that it delayed come no faster afterwards.
        world.clock.now += 2.5 * (sum(seconds.values()) == per_second)
        return JobOutcome(done=len(ids))

    world.ended(world.run(act, per_second=per_second))
    assert sum(seconds.values()) == 250
    # A batch of a tenth of a second may be at the border of two.
    assert max(seconds.values()) <= per_second + max(1, per_second // 10)
    assert world.clock.now - NOW >= 250 / per_second - 1


def test_a_job_takes_each_session_once_in_order_and_counts_what_came_of_it(world: World) -> None:
    taken: list[int] = []

    def act(ids: Sequence[int]) -> JobOutcome:
        taken.extend(ids)
        errors = tuple(JobError(id, f"no {id}") for id in ids if id % 10 == 0)
        gone = sum(id % 10 == 1 for id in ids)
        return JobOutcome(len(ids) - gone - len(errors), gone, errors)

    job = world.run(act)
    assert (job.state, job.total, job.done, job.started_at) == (JobState.RUNNING, 250, 0, NOW)
    job = world.ended(job)
    assert taken == list(IDS)
    assert (job.state, job.done, job.gone, job.failed) == ("done", 200, 25, 25)
    assert (job.filter, job.author) == ({"type": "pppoe"}, "alice")
    # Only the first failures are kept.
    assert [error.session_id for error in job.errors] == list(range(10, 101, 10))
    assert job.errors[0].message == "no 10"


def test_a_job_that_is_cancelled_takes_no_further_session(world: World) -> None:
    act = Held(free=20)
    job = world.run(act)
    assert act.waits.wait(PATIENCE)
    assert world.job(job).done == 20
    cancelled = world.jobs.cancel(job.id)
    assert cancelled is not None
    assert (cancelled.state, cancelled.finished_at is None) == ("cancelled", False)
    act.released.set()
    # The batch that was under way still counts.
    wait_for("the end of the batch", lambda: world.job(job).done == len(act.taken) == 30)
    with pytest.raises(ErrorReply, match="JobEnded"):
        world.jobs.cancel(job.id)
    assert world.jobs.cancel(99) is None


def test_a_job_that_a_restart_interrupts_is_listed_with_its_count_and_does_not_continue(world: World) -> None:
    act = Held(free=40)
    job = world.run(act)
    wait_for("some sessions", lambda: world.job(job).done == 40)
    for _ in range(2):
        world.start_again()
        assert world.job(job) == replace(job, state=JobState.INTERRUPTED, done=40)
    act.released.set()


def test_only_the_last_jobs_are_kept_and_those_that_run_and_no_id_comes_again(tmp_path: Path) -> None:
    world, act = World(tmp_path / "jobs", held=3), Held()
    first = world.run(act)
    last = [world.ended(world.run(all_done)) for _ in range(6)][:-4:-1]
    assert world.jobs.all() == [*last, world.job(first)]
    act.released.set()
    world.ended(first)
    world.start_again()
    assert [job.id for job in world.jobs.all()] == [*(job.id for job in last), first.id]
    assert world.run(all_done).id == last[0].id + 1


def test_only_so_many_jobs_run_at_a_time(world: World) -> None:
    act = Held()
    jobs = [world.run(act) for _ in range(MAX_RUNNING_JOBS)]
    with pytest.raises(ErrorReply, match="TooManyJobs"):
        world.run(act)
    act.released.set()
    for job in jobs:
        world.ended(job)
    world.ended(world.run(act))


def test_a_job_that_the_disk_refuses_does_not_start(world: World) -> None:
    act = Held()
    with no_file_longer_than(0), pytest.raises(StepFailed, match="store jobs"):
        world.run(act)
    assert world.jobs.all() == []
    assert act.taken == []
    act.released.set()
    assert world.ended(world.run(act)).done == 250


def test_a_start_on_a_full_disk_has_the_jobs_of_before_and_interrupts_those_that_ran(world: World) -> None:
    ended = world.ended(world.run(all_done))
    act = Held()
    running = world.run(act)
    with no_file_longer_than(0):
        world.start_again()
        assert [(job.id, job.state) for job in world.jobs.all()] == [
            (running.id, JobState.INTERRUPTED),
            (ended.id, JobState.DONE),
        ]
    act.released.set()
    assert world.ended(world.run(all_done)).id == running.id + 1


def test_a_list_of_jobs_that_is_harmed_while_it_is_in_use_keeps_its_jobs(world: World) -> None:
    first = world.ended(world.run(all_done))
    (world.folder / "jobs.sqlite").write_bytes(b"no database" * 1000)
    second = world.ended(world.run(all_done))
    assert second.id == first.id + 1
    world.start_again()
    assert world.jobs.all() == [second, first]


@pytest.mark.parametrize("is_cancelled", [False, True])
def test_a_job_whose_work_fails_is_interrupted_unless_it_was_cancelled_before(
    world: World, is_cancelled: bool, caplog: pytest.LogCaptureFixture
) -> None:
    threads, may_fail = queue.SimpleQueue[threading.Thread](), threading.Event()

    def act(_: Sequence[int]) -> JobOutcome:
        threads.put(threading.current_thread())
        assert may_fail.wait(PATIENCE)
        raise OSError("No space left on device")

    job = world.run(act)
    under_way = threads.get(timeout=PATIENCE)
    if is_cancelled:
        world.jobs.cancel(job.id)
    may_fail.set()
    under_way.join(PATIENCE)
    assert world.job(job).state is (JobState.CANCELLED if is_cancelled else JobState.INTERRUPTED)
    assert "No space left on device" in caplog.text

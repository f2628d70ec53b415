"""The jobs on disk, for a restart of the core."""

import logging
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
from msgspec.structs import replace

from gateway_api.base import durable
from gateway_api.base.errors import NotDone
from gateway_api.wire.core.jobs import Job, JobState

#: Jobs that are kept.
HELD = 100

_SCHEMA = "CREATE TABLE IF NOT EXISTS job (id INTEGER PRIMARY KEY AUTOINCREMENT, job TEXT NOT NULL)"
_FORGET = """
DELETE FROM job WHERE json_extract(job, '$.state') <> 'running'
AND id NOT IN (SELECT id FROM job ORDER BY id DESC LIMIT ?) RETURNING id
"""
#: Seconds to wait for a backup that reads the database.
_PATIENCE = 1.0

_log = logging.getLogger(__name__)


class JobStore:
    """The jobs in a folder: the last `held` ones, and those that run. For one thread at a time. Raises
    NotDone."""

    def __init__(self, folder: Path, held: int = HELD) -> None:
        self._folder = folder
        self._held = held
        self._connection: sqlite3.Connection | None = None

    def restored(self) -> list[Job]:
        """All jobs, by id. Those that ran are interrupted now, for good."""
        with self._usable() as connection:
            rows = connection.execute("SELECT id, job FROM job ORDER BY id").fetchall()
        jobs = [replace(job, id=id) for id, text in rows if (job := _job(id, text)) is not None]
        return [self._interrupted(job) if job.state is JobState.RUNNING else job for job in jobs]

    def added(self, job: Job) -> Job:
        """The same job with an id that none had before."""
        with self._usable() as connection:
            id = connection.execute("INSERT INTO job (job) VALUES (?)", (_text(job),)).lastrowid
        assert id is not None  # noqa: S101 - it has inserted a row
        return replace(job, id=id)

    def put(self, job: Job) -> None:
        """Replaces what is kept of a job."""
        with self._usable() as connection:
            connection.execute("UPDATE job SET job = ? WHERE id = ?", (_text(job), job.id))

    def forgotten(self) -> list[int]:
        """Forgets the oldest jobs that are too many and do not run, and returns their ids."""
        with self._usable() as connection:
            return [id for (id,) in connection.execute(_FORGET, (self._held,)).fetchall()]

    @contextmanager
    def _usable(self) -> Iterator[sqlite3.Connection]:
        try:
            if self._connection is None:
                self._connection = self._opened()
            yield self._connection
        except (OSError, sqlite3.Error) as error:
            reason = error.strerror if isinstance(error, OSError) else str(error)
            raise NotDone("store jobs", reason or "unknown") from error

    def _opened(self) -> sqlite3.Connection:
        durable.make_folder(self._folder)
        path = self._folder / "jobs.sqlite"
        if not durable.is_whole(path):
            aside = durable.set_aside(path)
            _log.error("began a new list of jobs: the old one is damaged, and is now %s", aside)
        connection = durable.database(path, timeout=_PATIENCE)
        try:
            # No sync for each step of a job. What it has written outlasts the end of the core at any moment.
            connection.execute("PRAGMA journal_mode = WAL").fetchall()
            connection.execute("PRAGMA synchronous = NORMAL")
            connection.execute(_SCHEMA)
        except BaseException:
            connection.close()
            raise
        return connection

    def _interrupted(self, job: Job) -> Job:
        interrupted = replace(job, state=JobState.INTERRUPTED)
        self.put(interrupted)
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

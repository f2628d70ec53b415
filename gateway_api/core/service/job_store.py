"""The jobs on disk, for a restart of the core."""

import logging
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
from msgspec.structs import replace

from gateway_api.base.databases import Database
from gateway_api.base.errors import NotDone
from gateway_api.wire.core.jobs import Job, JobState

#: Jobs that are kept.
HELD = 100

_SCHEMA = "CREATE TABLE IF NOT EXISTS job (id INTEGER PRIMARY KEY AUTOINCREMENT, job TEXT NOT NULL)"
_ADD = "INSERT INTO job (job) VALUES (?)"
_PUT = "UPDATE job SET job = ? WHERE id = ?"
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
        self._database = Database(folder / "jobs.sqlite", "list of jobs", self._prepare, _PATIENCE)
        self._held = held
        #: As on disk, by id.
        self._rows: dict[int, str] = {}

    def restored(self) -> list[Job]:
        """All jobs, by id. Those that ran are interrupted now, for good."""
        with _not_done():
            self._database.open()
        jobs = [replace(job, id=id) for id, text in self._rows.items() if (job := _job(id, text)) is not None]
        return [self._interrupted(job) if job.state is JobState.RUNNING else job for job in jobs]

    def added(self, job: Job) -> Job:
        """Stores a job, and returns it with an id that none had before."""
        text = _text(job)
        with _not_done():
            id = self._database.use(lambda connection: connection.execute(_ADD, (text,)).lastrowid)
        assert id is not None  # noqa: S101 - it has inserted a row
        self._rows[id] = text
        return replace(job, id=id)

    def put(self, job: Job) -> None:
        """Replaces what is kept of a job."""
        text = _text(job)
        with _not_done():
            self._database.use(lambda connection: connection.execute(_PUT, (text, job.id)))
        self._rows[job.id] = text

    def forgotten(self) -> list[int]:
        """Forgets the oldest jobs that are too many and do not run, and returns their ids."""
        with _not_done():
            rows = self._database.use(lambda one: one.execute(_FORGET, (self._held,)).fetchall())
        for (id,) in rows:
            self._rows.pop(id, None)
        return [id for (id,) in rows]

    def _prepare(self, connection: sqlite3.Connection) -> None:
        # No sync for each step of a job. What it has written outlasts the end of the core at any moment.
        connection.execute("PRAGMA journal_mode = WAL").fetchall()
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute(_SCHEMA)
        with connection:
            connection.execute("BEGIN IMMEDIATE")
            # Ids go on after the highest one.
            connection.executemany("INSERT OR IGNORE INTO job VALUES (?, ?)", self._rows.items())
        self._rows = dict(connection.execute("SELECT id, job FROM job ORDER BY id"))

    def _interrupted(self, job: Job) -> Job:
        interrupted = replace(job, state=JobState.INTERRUPTED)
        self.put(interrupted)
        return interrupted


@contextmanager
def _not_done() -> Iterator[None]:
    try:
        yield
    except (OSError, sqlite3.Error) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise NotDone("store jobs", reason or "unknown") from error


def _text(job: Job) -> str:
    return msgspec.json.encode(job).decode()


def _job(id: int, text: str) -> Job | None:
    try:
        return msgspec.json.decode(text, type=Job)
    except msgspec.DecodeError as error:
        # Of another version, which a downgrade left.
        _log.error("cannot read job %d, which is left out: %s", id, error)
        return None

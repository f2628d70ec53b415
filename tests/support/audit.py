"""A running gateway whose audit log a test reads, records for a database of the log, and a full disk."""

import json
import os
import secrets
import sqlite3
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import requests

from gateway_api.audit.log import AuditDatabase, Filter
from gateway_api.audit.record import AuditEntry
from gateway_contract.base.databases import DatabaseFile
from tests.support.sse import master_of
from tests.support.stack import Api, children, wait_for

RATES = {"rate_down": "50 mbit", "rate_up": "10 mbit"}


def kept_in(path: Path) -> list[str]:
    """Return the records in a database, oldest first."""
    with closing(sqlite3.connect(path)) as connection:
        return [record for (record,) in connection.execute("SELECT record FROM record ORDER BY number")]


def arbiter_of(folder: Path) -> int:
    """Return the process id of gunicorn in a `running_api` of this process whose state is in `folder`."""
    (arbiter,) = (
        pid
        for pid in children(os.getpid())
        if b"gateway_api.serving.users" in Path(f"/proc/{pid}/cmdline").read_bytes()
        and str(folder).encode() in Path(f"/proc/{pid}/environ").read_bytes()
    )
    return arbiter


@dataclass
class AuditedGateway:
    api: Api
    state: Path
    process: "subprocess.Popen[bytes]"

    def ask(self, method: str, path: str, role: str | None = "admin", **more: Any) -> requests.Response:
        """Send a request with a request id of its own, by which `record` finds its record."""
        headers = {"X-Request-ID": secrets.token_hex(8), **more.pop("headers", {})}
        return self.api.send(method, path, role, headers=headers, **more)

    def records(self, **query: Any) -> list[dict[str, Any]]:
        return list(self.api.get("/audit", "admin", params=query)["records"])

    def records_of(self, answer: requests.Response) -> list[dict[str, Any]]:
        request_id = answer.headers["X-Request-ID"]
        return [record for record in self.records() if record["request_id"] == request_id]

    def counted(self, answer: requests.Response) -> dict[str, Any]:
        """Wait for the record that the request of a client without a token began, and return it."""
        (record,) = wait_for("the record", lambda: self.records_of(answer))
        return dict(record)

    def record(self, method: str, path: str, role: str | None = "admin", **more: Any) -> dict[str, Any]:
        """Send a request, and return its only record."""
        (record,) = self.records_of(self.ask(method, path, role, **more))
        return record

    def text(self) -> str:
        """Return the content of all files of the audit log."""
        folder = self.state / "audit"
        kept = [record for path in folder.glob("*.sqlite") for record in kept_in(path)]
        return "\n".join([*kept, *(path.read_bytes().decode("latin-1") for path in folder.iterdir())])

    def log(self) -> str:
        return (self.state / "log").read_text()

    @property
    def workers(self) -> list[int]:
        return children(master_of(self.process))


def a_record(**more: Any) -> AuditEntry:
    fields = {
        "at": 1000.0,
        "user": "admin",
        "role": "admin",
        "address": "192.0.2.7",
        "request_id": "req",
        "method": "PUT",
        "action": "subscribers.change_rate",
        "route": "/api/v1/subscribers/{id}/rate",
        "path": "/api/v1/subscribers/7/rate",
        "status": 200,
        "result": "done",
        "message": None,
    }
    return AuditEntry(**(fields | more))


def texts(*request_ids: object, **more: Any) -> list[str]:
    return [a_record(request_id=str(id), **more).text() for id in request_ids]


def rows(trail: AuditDatabase) -> list[tuple[int, str]]:
    """Return the numbers and request ids of the records, oldest first."""
    with trail.read_newest(Filter(), None) as (_, found):
        return [(row.number, json.loads(row.record)["request_id"]) for row in found][::-1]


def names(trail: AuditDatabase) -> list[str]:
    return [name for _, name in rows(trail)]


@contextmanager
def full_disk(folder: Path, name: str = "known") -> Iterator[None]:
    """Have the disk be full for each write to the database `name` in the block."""
    path = folder / f"{name}.sqlite"
    with pytest.MonkeyPatch.context() as patch:
        insert = AuditDatabase._insert

        def inserted(trail: AuditDatabase, connection: DatabaseFile, records: Sequence[str]) -> None:
            if trail._path == path:
                connection.execute("PRAGMA max_page_count = 1")
                records = [record + " " * 100_000 for record in records]
            insert(trail, connection, records)

        patch.setattr(AuditDatabase, "_insert", inserted)
        yield

"""Records for a database of the audit log, what is in one, and a disk that is full for it."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from gateway_api.audit.log import AuditDatabase, Filter
from gateway_api.audit.record import AuditEntry
from gateway_contract.base.databases import DatabaseFile


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

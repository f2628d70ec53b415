"""A running gateway whose audit log a test reads, by the API and in its files."""

import os
import secrets
import sqlite3
import subprocess
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import requests

from tests.support.stack import Api, core_of, wait_for

RATES = {"rate_down": "50 mbit", "rate_up": "10 mbit"}


def kept_in(path: Path) -> list[str]:
    """Return the records in a database, oldest first."""
    with closing(sqlite3.connect(path)) as connection:
        return [record for (record,) in connection.execute("SELECT record FROM record ORDER BY number")]


def children(pid: int) -> list[int]:
    """Return the process ids of a process's children, on this machine."""
    listed = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [int(child) for child in listed.split()]


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

    @cached_property
    def _arbiter(self) -> int:
        core = core_of(self.process)
        (arbiter,) = (pid for pid in children(self.process.pid) if pid != core)
        return arbiter

    @property
    def workers(self) -> list[int]:
        return children(self._arbiter)

"""The service: core and API, with all that it does for a request. The access log goes to a file."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from bench.load import Request, Target
from gateway_api.cli.run import RunFolder
from tests.support.stack import descendants, issued, running_api, running_core, wait_for

#: Ids that requests for one session take in turn.
_IDS = 100
_USER = "operator"
_LIFETIME = 24 * 3600
#: Of the API.
_WORKERS = 2


@dataclass(frozen=True)
class Gateway:
    """`core` is a process id; so are `processes`: the arbiter of the API and its workers."""

    url: str
    folder: Path
    sessions: int
    core: int
    processes: tuple[int, ...]
    token: str
    certificate: Path | None
    password: str

    def get(self, *paths: str, status: int = 200, **headers: str) -> Request:
        """Requests for paths below `/api/v1`, as an operator."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        targets = tuple(Target(f"/api/v1{path}") for path in paths)
        headers = {"Authorization": f"Bearer {self.token}", **named}
        return Request(self.url, targets, headers=headers, status=status, certificate=self.certificate)

    def data(self, path: str) -> Any:
        """The data of one response."""
        return msgspec.json.decode(self.get(path).probe()[1])["data"]

    def ids(self) -> list[int]:
        """Ids of sessions that are there at the start, from the first to the last."""
        number = min(_IDS, self.sessions)
        return [1 + turn * self.sessions // number for turn in range(number)]

    def detail(self) -> Request:
        return self.get(*(f"/subscribers/{id}" for id in self.ids()))

    def login(self) -> Request:
        """The operator's."""
        body = msgspec.json.encode({"username": _USER, "password": self.password}).decode()
        headers = {"Content-Type": "application/json"}
        target = Target("/api/v1/auth/login", body)
        return Request(self.url, (target,), "POST", headers, certificate=self.certificate)

    @property
    def workers(self) -> list[int]:
        return [pid for pid in self.processes if not descendants(pid)]


@contextmanager
def gateway(folder: Path, sessions: int, arrivals: float = 0.0, tls: bool = True) -> Iterator[Gateway]:
    """The service with so many sessions of the lab. Without TLS, beside a peer that has none."""
    # It holds the folder's lock.
    run_folder = RunFolder(folder)
    run_folder.prepare()
    numbers = ("--sessions", str(sessions), "--arrivals", str(arrivals))
    before = set(descendants(os.getpid()))
    with (
        running_core(run_folder.core_socket, run_folder.factory, *numbers) as core,
        running_api(run_folder.core_socket, folder, workers=_WORKERS, tls=tls) as url,
    ):
        before.add(core.pid)

        def api() -> tuple[int, ...]:
            return tuple(pid for pid in descendants(os.getpid()) if pid not in before)

        # The port is open before all workers run.
        wait_for("the workers", lambda: len(api()) == 1 + _WORKERS)
        token = issued(folder, _USER, _LIFETIME)
        certificate = run_folder.certificate if tls else None
        password = run_folder.passwords[_USER]
        yield Gateway(url, folder, sessions, core.pid, api(), token, certificate, password)

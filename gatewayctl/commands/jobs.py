"""Jobs of the gateway: work on many sessions, which continues without this command."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import click

from gateway_contract.core.jobs import ListJobs
from gateway_contract.core.sessions import SessionFilter, SessionTypeFilter
from gatewayctl.client.gateway import Record, RemoteGateway
from gatewayctl.command import group
from gatewayctl.completion import conditions, listed
from gatewayctl.failures import CommandFailure, ExitStatus
from gatewayctl.invocation import acts, confirm, filter_of, reads
from gatewayctl.lists import ListCommand
from gatewayctl.results import Importance, Report, Sheet, ShownColumn
from gatewayctl.sessions import touched
from gatewayctl.targets import is_id
from gatewayctl.terminal import Progress, complain
from gatewayctl.texts import line

PATH = "/subscribers/jobs"
_RUNNING = "running"
_POLL_SECONDS = 0.5


def where_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """The options of a command that can start a job."""
    for option in (
        click.option("--per-second", metavar="N", type=int, help="The most sessions of a job per second."),
        click.option(
            "--where", "filter", metavar="FIELD=VALUE", multiple=True, callback=filter_of,
            type=conditions({**dict.fromkeys(SessionFilter.__struct_fields__), "type": SessionTypeFilter}),
            help="All sessions that match, as a job of the gateway: type, username, interface, search, ...",
        ),
    ):  # fmt: skip
        function = option(function)
    return function


@dataclass(frozen=True)
class JobRequest:
    """A job that a request starts."""

    path: str
    body: Record
    per_second: int | None

    def run(self, gateway: RemoteGateway, question: str, *, dry_run: bool, yes: bool) -> Report:
        """Shows the sessions, asks, starts the job and waits for its end. Raises ClientError, also for a
        search that may mean other sessions than the user has in mind."""
        search = self.body["filter"].get("search", "")
        if is_id(search):
            raise CommandFailure(
                ExitStatus.USAGE,
                f"--where search: {search} may be a session id, a VLAN id or a part of a name",
                f"nothing was done; say which: the TARGET id:{search} or user:{search}, or --where with "
                f"username={search}, interface=NAME, or search=user:{search}",
            )
        preview = gateway.send("POST", self.path, {**self.body, "dry_run": True})
        shown = Report(preview["message"], preview, table=touched(preview["sessions"]))
        if dry_run or preview["count"] == 0:
            return shown
        confirm(question, yes=yes, otherwise="nothing was changed", about=shown, always=True)
        pace = {} if self.per_second is None else {"per_second": self.per_second}
        return _followed(gateway, gateway.send("POST", self.path, {**self.body, **pace}))


def _followed(gateway: RemoteGateway, job: Record) -> Report:
    name = f"job {job['id']}"
    complain([f"{name} runs on the gateway; gatewayctl jobs cancel {job['id']} stops it"])
    try:
        with Progress(job["total"]) as progress:
            while True:
                progress.reach(job["done"] + job["gone"] + job["failed"], failed=job["failed"])
                if job["state"] != _RUNNING:
                    break
                time.sleep(_POLL_SECONDS)
                job = gateway.get(f"{PATH}/{job['id']}")
    except KeyboardInterrupt:
        complain([f"{name} continues on the gateway"])
        raise
    complain(_errors(job["errors"]))
    is_whole = job["state"] == "done" and job["failed"] == 0
    counts = ", ".join(f"{job[name]} {name}" for name in ("done", "gone", "failed"))
    text = f"job {job['id']} is {line(job['state'])}: {counts}, of {job['total']}"
    return Report(text, job, status=ExitStatus.DONE if is_whole else ExitStatus.REFUSED)


def _errors(errors: Sequence[Record]) -> list[str]:
    return [f"session {each['session_id']}: {line(each['message'])}" for each in errors]


_COLUMNS = (
    ShownColumn("id", importance=Importance.IDENTITY),
    ShownColumn("kind", importance=Importance.IDENTITY),
    ShownColumn("state", importance=Importance.IDENTITY),
    ShownColumn("total"),
    ShownColumn("done"),
    ShownColumn("gone"),
    ShownColumn("failed", importance=Importance.HIGH),
    ShownColumn("author"),
    ShownColumn("started_at"),
    ShownColumn("finished_at"),
)

job = click.argument("job", metavar="ID", type=listed(PATH, "jobs", "id", "state"))


def _path(job: str) -> str:
    return f"{PATH}/{quote(job, safe='')}"


@group()
def jobs() -> None:
    """Shows and cancels jobs: work on many sessions, which `--where` starts."""


jobs.add_command(
    ListCommand(
        "list",
        "Lists the last hundred jobs, the newest first.",
        PATH,
        ListJobs,
        _COLUMNS,
        hidden=("per_second",),
    ).command()
)


@jobs.command()
@reads
@job
def show(gateway: RemoteGateway, job: str) -> Sheet:
    """Shows one job with its failures."""
    return Sheet(gateway.get(_path(job)))


@jobs.command()
@acts
@job
def cancel(gateway: RemoteGateway, job: str) -> Report:
    """Cancels a job: it takes no further session."""
    done = gateway.send("DELETE", _path(job))
    return Report(f"job {done['id']} is {line(done['state'])} after {done['done']} of {done['total']}", done)

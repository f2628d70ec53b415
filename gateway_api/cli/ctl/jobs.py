"""Jobs of the gateway: work on all sessions that match a filter. A job continues without this command."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import click

from gateway_api.cli.ctl.completion import conditions
from gateway_api.cli.ctl.failures import ExitStatus, complain
from gateway_api.cli.ctl.invocation import confirm, filter_of
from gateway_api.cli.ctl.progress import Progress
from gateway_api.cli.ctl.results import Report
from gateway_api.cli.ctl.sessions import touched
from gateway_api.cli.ctl.texts import line
from gateway_api.client.gateway import Record, RemoteGateway
from gateway_api.wire.core.sessions import SessionFilter, SessionTypeFilter

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
class Job:
    """What a request starts."""

    path: str
    body: Record
    per_second: int | None

    def run(self, gateway: RemoteGateway, question: str, *, dry_run: bool, yes: bool) -> Report:
        """Shows the sessions, asks, starts the job and waits for its end. Raises ClientError."""
        preview = gateway.send("POST", self.path, {**self.body, "dry_run": True})
        shown = Report(preview["message"], preview, table=touched(preview["sessions"]))
        if dry_run or preview["count"] == 0:
            return shown
        confirm(question, yes=yes, otherwise="nothing was changed", about=shown)
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
